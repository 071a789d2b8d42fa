"""Members and what leads to them, under keys that each database casts to another text."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import connection, models
from django.db.models import F

from django_zrank import RankIndex
from django_zrank.models import Mark
from django_zrank.sync.drain import drain
from django_zrank.sync.marks import waiting_marks
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.triggers import captured, drop, install
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from tests.sync.mirror import assert_mirrors, contents
from tests.testapp.models import (
    Chapter,
    Code,
    Host,
    Label,
    Member,
    Nickname,
    Player,
    Switch,
    Tag,
    Ticket,
    Zone,
)

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank", "undrained"),
]

Declare = Callable[..., type[RankIndex]]


@pytest.fixture
def watch(declare: Declare, settings: Any) -> Iterator[Declare]:
    """Declares an index whose tables have triggers, too."""
    names: list[str] = []

    def add(model: Any, order: str, **attributes: Any) -> type[RankIndex]:
        index = declare(model, order, **attributes)
        names.append(index.instance().name)
        install("default", captured("default"))
        Mark.objects.all().delete()
        return index

    yield add
    drop("default", names)


def settle(index: type[RankIndex]) -> None:
    """Process every mark, and compare."""
    drain(index.instance())
    assert not waiting_marks(index.instance()).exists()
    assert_mirrors(index)
    report = verify(index.instance())
    assert not report.drift


# Keys


ADDRESSES = ["10.0.0.1", "10.0.0.10", "::1", "2001:db8::1:0:0:1", "::ffff:10.0.0.1", "::10.0.0.1"]


@pytest.mark.parametrize(
    ("model", "path", "keys"),
    [
        (Host, "load", ADDRESSES),
        (Switch, "load", [True, False]),
        (Ticket, "integer", [uuid.UUID(int=1), uuid.UUID("AB" * 16)]),
        (
            Nickname,
            "score",
            ["Bob", "bob2 ", "007", "ünï", "a\\b", "it's \"quo%ted", "日本", "*", " a ", "🎲"],
        ),
        (Code, "load", ["bob", "x y"]),
        (Player, "level", [1, 2**31 - 1]),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_rows_come_change_and_go_by_bulk_methods(
    watch: Declare, model: type[models.Model], path: str, keys: list[Any]
) -> None:
    index = watch(model, f"-{path}")
    rows = models.QuerySet(model)
    rows.bulk_create([model(pk=key, **{path: place}) for place, key in enumerate(keys)])
    settle(index)
    assert len(contents(index)) == len(keys)
    rows.update(**{path: 7})
    settle(index)
    rebuild(index.instance())
    assert_mirrors(index)
    for row in rows.all():
        assert index.ranking.rank(row) is not None
        rows.filter(pk=row.pk)._raw_delete("default")  # nobody's signal tells
    settle(index)
    assert contents(index) == {}


@pytest.mark.parametrize(("model", "path"), [(Host, "load"), (Switch, "load"), (Ticket, "integer")])
def test_saved_rows_are_pushed_and_deleted_ones_taken_out(watch: Declare, model: Any, path: str) -> None:
    index = watch(model, f"-{path}")
    pk = {Host: "::10.0.0.1", Switch: True, Ticket: str(uuid.UUID("AB" * 16)).upper()}[model]
    row = model(pk=pk, **{path: 5})
    row.save()
    assert len(contents(index)) == 1
    assert_mirrors(index)
    row.delete()
    assert contents(index) == {}
    settle(index)


@pytest.mark.parametrize("capture", ["triggers", "signals"])
def test_rows_that_lead_to_members_by_a_key_of_another_text(
    watch: Declare, settings: Any, capture: str
) -> None:
    settings.ZRANK = {"CAPTURE": capture}
    index = watch(Host, "-load", get_queryset=lambda self: Host.objects.filter(zone__is_up=True))
    zone = Zone.objects.create(gateway="::10.0.0.1", is_up=False)
    Host.objects.bulk_create(Host(address=address, load=5, zone=zone) for address in ADDRESSES)
    rebuild(index.instance())
    assert contents(index) == {}
    zone.is_up = True
    zone.save()
    assert len(contents(index)) == len(ADDRESSES)
    Zone.objects.update(is_up=False)
    if capture == "signals":
        zone.save(update_fields=["is_up"])
        zone.refresh_from_db()
        zone.is_up = False
        zone.save()
    settle(index)
    assert contents(index) == {}


@pytest.mark.skipif(connection.vendor == "postgresql", reason="PostgreSQL takes no NUL in text.")
def test_a_key_with_nul_is_logged_and_holds_up_nothing(
    watch: Declare, caplog: pytest.LogCaptureFixture
) -> None:
    index = watch(Nickname, "-score")
    with caplog.at_level(logging.ERROR, "django_zrank.sync"):
        Nickname.objects.bulk_create([Nickname(nick=nick, score=5) for nick in ("ada", "nul\0byte", "zoe")])
        drain(index.instance())
        assert not waiting_marks(index.instance()).exists()
        assert sorted(contents(index)) == ["ada", "zoe"]
        assert rebuild(index.instance()) == 2
    assert "NUL" in caplog.text
    Nickname(nick="bob\0", score=1).save()
    Nickname.objects.get(nick="nul\0byte").delete()
    assert not verify(index.instance()).drift
    assert sorted(contents(index)) == ["ada", "zoe"]


# Rows of any model


def test_a_facet_behind_a_generic_relation(watch: Declare) -> None:
    index = watch(Host, "-load", facets=("labels__word",))
    kinds = ContentType.objects.get_for_models(Host, Player)
    host = Host.objects.create(address="10.0.0.1", load=5)
    label = Label.objects.create(word="red", object_id="10.0.0.1", content_type=kinds[Host])
    settle(index)
    assert index.ranking.filter(labels__word="red").count() == 1
    # Neither the key nor the word changes: the row is another model's from now on.
    Label.objects.filter(pk=label.pk).update(content_type=kinds[Player])
    settle(index)
    assert index.ranking.filter(labels__word="red").count() == 0
    Label.objects.filter(pk=label.pk).update(content_type=kinds[Host])
    settle(index)
    assert index.ranking.filter(labels__word="red").count() == 1
    host.delete()  # and its labels with it
    settle(index)


def test_members_that_lead_to_rows_of_any_model(watch: Declare) -> None:
    index = watch(Label, "pk", facets=("host__is_hidden",))
    kinds = ContentType.objects.get_for_models(Host, Player)
    Host.objects.bulk_create(Host(address=address) for address in ADDRESSES)
    labels = Label.objects.bulk_create(
        Label(word="red", object_id=pk, content_type=kinds[Host])
        for pk in Host.objects.values_list("pk", flat=True)
    )

    def hidden() -> int:
        drain(index.instance())
        assert not waiting_marks(index.instance()).exists()
        assert not verify(index.instance()).drift
        return index.ranking.filter(host__is_hidden=True).count()

    assert hidden() == 0
    Host.objects.update(is_hidden=True)
    # PostgreSQL compares the text '10.0.0.1/32', as Django asks it to, and finds none.
    found = 0 if connection.vendor == "postgresql" else len(labels)
    assert hidden() == Label.objects.filter(host__is_hidden=True).count() == found
    Label.objects.filter(pk=labels[0].pk).update(content_type=kinds[Player])
    assert hidden() == Label.objects.filter(host__is_hidden=True).count() == max(found - 1, 0)


def test_a_row_that_leads_to_another_model_by_a_text_that_is_no_key(watch: Declare) -> None:
    index = watch(Host, "-load", facets=("labels__word",))
    Host.objects.create(address="10.0.0.1", load=5)
    kind = ContentType.objects.get_for_model(Nickname)
    Label.objects.bulk_create([Label(word="red", object_id="no address", content_type=kind)])
    Label(word="red", object_id="none, either", content_type=kind).save()
    settle(index)


# Rows that managers hide


def test_members_that_the_base_manager_hides(watch: Declare) -> None:
    index = watch(Member, "-points", facets=("tags__word",))
    tag = Tag.objects.create(word="red")
    member = Member.objects.create(points=5, is_hidden=True)
    member.tags.add(tag)
    settle(index)
    assert index.ranking.filter(tags__word="red").count() == 1
    Tag.objects.update(word="blue")
    settle(index)
    assert index.ranking.filter(tags__word="blue").count() == 1
    member.tags.clear()
    settle(index)


def test_members_behind_a_row_that_the_base_manager_hides(watch: Declare) -> None:
    index = watch(Member, "-points", get_queryset=lambda self: Member.objects.filter(chapter__name="open"))
    chapter = Chapter.objects.create(name="closed", is_hidden=True)
    Member.objects.create(points=5, chapter=chapter, is_hidden=True)
    Chapter.objects.update(name="open")
    settle(index)
    assert len(contents(index)) == 1
    Chapter.objects.filter(pk=chapter.pk).update(name="closed")
    settle(index)
    assert contents(index) == {}


def test_exclusions_of_a_member_that_the_base_manager_hides(watch: Declare) -> None:
    index = watch(Member, "-points", band=10, get_excluded=lambda self, member: [member.pk + 1])
    pks = [Member.objects.create(points=5, is_hidden=True).pk for _ in range(3)]
    settle(index)
    assert {entry.pk for entry in index.ranking.recommend(pks[0], n=3)} == {pks[0] + 2} & set(pks)


# Rows whose instances don't tell by which value they lead to members


@pytest.fixture
def at_sites(declare: Declare) -> type[RankIndex]:
    """Hosts at sites that are up."""
    hosts = Host._base_manager.filter(site__is_up=True)
    index = declare(Host, "-load", get_queryset=lambda self: hosts.all())
    sync(index)
    return index


def test_a_row_without_the_value_that_others_refer_to_is_deleted(at_sites: type[RankIndex]) -> None:
    zone = Zone.objects.create(gateway="10.0.0.1")
    zone.is_up = False
    zone.save()
    zone.delete()
    sync(at_sites)
    assert_mirrors(at_sites)


@pytest.mark.parametrize("watched", [True, False])
def test_a_value_that_only_the_database_knows(at_sites: type[RankIndex], watched: bool) -> None:
    zone = Zone.objects.create(gateway="10.0.0.1", number=1)
    zone.number = F("number") + 1
    zone.save()
    host = Host._base_manager.create(address="10.0.0.2", load=3, site_id=2)
    host.load = F("load") + 1
    host.save()
    if watched:
        sync(at_sites)
    assert_mirrors(at_sites)
    assert at_sites.ranking.score("10.0.0.2") == 4
    zone.refresh_from_db()
    zone.is_up = False
    zone.save()
    assert_mirrors(at_sites)
