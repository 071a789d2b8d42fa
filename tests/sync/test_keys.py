"""Members and what leads to them, under keys that each database casts to another text."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.contenttypes.models import ContentType
from django.db import connection, models

from django_zrank import RankIndex
from django_zrank.capture.triggers import captured, drop, install
from django_zrank.models import Mark
from django_zrank.queries.positions import Locate
from django_zrank.queries.view import View
from django_zrank.sync.drain import drain
from django_zrank.sync.marks import waiting_marks
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.verify import verify
from tests.rankings import answer_by_sql
from tests.sync.capturing import table
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


def test_exclusions_of_a_row_whose_key_is_still_text(watch: Declare) -> None:
    """A row that was just created has the key that it was given. The hook finds the one that the database returns."""

    def get_excluded_many(self: RankIndex, tickets: Sequence[Ticket]) -> dict[Any, list[Any]]:
        found = Ticket.objects.filter(pk__in=[ticket.pk for ticket in tickets])
        return {pk: [friend.pk] for pk in found.values_list("pk", flat=True)}

    async def aget_excluded_many(self: RankIndex, tickets: Sequence[Ticket]) -> dict[Any, list[Any]]:
        return await sync_to_async(get_excluded_many)(self, tickets)

    index = watch(
        Ticket,
        "-integer",
        band=9,
        get_excluded_many=get_excluded_many,
        aget_excluded_many=aget_excluded_many,
    )
    me = Ticket.objects.create(pk=str(uuid.UUID("ab" * 16)).upper(), integer=5)
    friend, other = (Ticket.objects.create(integer=5) for _ in range(2))
    assert isinstance(me.pk, str)
    settle(index)
    assert [entry.pk for entry in index.ranking.recommend(me, 3)] == [other.pk]
    assert [entry.pk for entry in async_to_sync(index.ranking.arecommend)(me, 3)] == [other.pk]
    assert [entry.pk for _, drawn in index.ranking.recommend_many([me], 3) for entry in drawn or ()] == [
        other.pk
    ]


@pytest.mark.part("sql")
@pytest.mark.skipif(connection.vendor != "mysql", reason="Integers of other databases have a sign.")
def test_unsigned_keys_of_64_bits(watch: Declare) -> None:
    class Hashed(models.Model):
        id = models.PositiveBigIntegerField(primary_key=True)
        load = models.IntegerField()

        class Meta:
            app_label = "testapp"

    with table(Hashed):
        index = watch(Hashed, "-load")
        Hashed.objects.bulk_create(Hashed(pk=pk, load=1) for pk in (7, 2**63, 2**64 - 1))
        settle(index)
        Hashed.objects.update(load=2)
        settle(index)
        assert contents(index) == dict.fromkeys(("7", str(2**63), str(2**64 - 1)), 2)
        found = index.instance(), (), Locate([str(2**64 - 1)]), View(index.instance().layout)
        assert answer_by_sql(*found).found[0] is not None
        Hashed.objects.filter(pk__gt=7)._raw_delete("default")
        settle(index)
        assert contents(index) == {"7": 2}
