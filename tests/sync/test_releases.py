"""Releases that rank other rows, or rank them otherwise, run side by side during a deployment."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, models
from django.db.models import F, Q
from django.db.models.expressions import RawSQL
from django.test.utils import isolate_apps
from django.utils import timezone
from redis import Redis

from django_zrank import RankIndex, declaration
from django_zrank.capture import triggers
from django_zrank.exceptions import NotBuilt, ZRankError
from django_zrank.models import Build, Capture, Mark
from django_zrank.queries.counts import Size
from django_zrank.queries.draws import Draw
from django_zrank.queries.view import View
from django_zrank.recommendations import condition, parse_point
from django_zrank.sync.drain import drain
from django_zrank.sync.health import Status, examine
from django_zrank.sync.push import push
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from tests.rankings import answer_by_sql
from tests.recoding import recoded
from tests.sync.capturing import table
from tests.sync.mirror import contents
from tests.testapp.models import Competitor, Guild, Player, Ticket

Declare = Callable[..., type[RankIndex[Any]]]


class Before(RankIndex[Player]):
    """The older release."""

    model = Player
    order = ("-level",)
    name = "released"
    facets = ("is_active",)

    def get_queryset(self) -> models.QuerySet[Player]:
        return Player.objects.filter(bio__in={"a", "b", "c"})


class After(Before):
    """The newer one, which filters by another column."""

    def get_queryset(self) -> models.QuerySet[Player]:
        return Player.objects.filter(name__in={"a", "b", "c"})


@pytest.fixture
def players(zrank: Redis, transactional_db: None) -> Iterator[list[Player]]:
    Capture.objects.filter(index="released").delete()
    yield Player.objects.bulk_create(
        [Player(level=level, bio="abx"[level % 3], name="axx"[level % 3]) for level in range(30)]
    )
    triggers.drop("default", ["released"])
    Build.objects.filter(index="released").delete()


def ranked(index: type[RankIndex[Any]]) -> dict[str, float]:
    return {str(pk): level for pk, level in index.instance().get_ranked().values_list("pk", "level")}


def refused(work: Callable[..., Any], *args: Any) -> None:
    with pytest.raises(NotBuilt):
        work(*args)


@pytest.mark.parametrize("migrate", ["before", "between", "after"])
def test_an_older_watcher_leaves_nothing_wrong(players: list[Player], migrate: str) -> None:
    """It processes the marks of ``migrate``, while processes of both releases save."""
    before, after = Before.instance(), After.instance()
    sync(before)
    assert contents(Before) == ranked(Before)

    def change(level: int) -> None:
        for player in players[::7]:
            player.level, player.name, player.bio = level, "xa"[level % 2], "ax"[level % 2]
            player.save()

    steps = {
        "before": [lambda: triggers.install("default", [after]), lambda: sync(before), lambda: sync(after)],
        "between": [lambda: sync(before), lambda: triggers.install("default", [after]), lambda: sync(after)],
        "after": [
            lambda: rebuild(after),
            lambda: refused(sync, before),
            lambda: triggers.install("default", [after]),
        ],
    }
    for level, step in enumerate(steps[migrate], start=100):
        step()
        change(level)
    sync(after)
    assert contents(After) == ranked(After)
    assert examine(after) is Status.HEALTHY
    assert not Mark.objects.filter(index="released").exists()


@pytest.mark.parametrize(
    "mark",
    [{"via": "club_id", "member": "1"}, {"member": "no number"}],
    ids=["of a related row", "of a key of another type"],
)
@pytest.mark.parametrize("is_live", [True, False], ids=["built", "being built"])
def test_an_older_drain_leaves_marks_that_only_the_newer_release_understands(
    players: list[Player], mark: dict[str, Any], is_live: bool
) -> None:
    sync(Before.instance())
    row = Build.objects.filter(index="released")
    newer = f"{After.instance().declaration}-1"
    row.update(**({"build": newer} if is_live else {"building": newer}))
    Mark.objects.all().delete()
    Mark.objects.create(index="released", **mark)
    with pytest.raises(NotBuilt, match="another declaration"):
        drain(Before.instance())
    assert Mark.objects.filter(index="released").exists()


def linked(name: str) -> tuple[Any, ...]:
    """A release that calls its only foreign key, whose column keeps its name, by this one: the model that it leads to,
    its own, and the index."""
    with isolate_apps("tests.testapp"):
        club, member = (
            type("Meta", (), {"app_label": "testapp", "db_table": table}) for table in ("led_to", "linked")
        )
        far: Any = type(
            "LedTo", (models.Model,), {"is_open": models.BooleanField(), "Meta": club, "__module__": __name__}
        )
        link = models.ForeignKey(far, models.CASCADE, db_column="far_id")
        fields = {"score": models.IntegerField(), name: link, "Meta": member, "__module__": __name__}
        near: Any = type("Linked", (models.Model,), fields)
    rows = {"get_queryset": lambda self: near.objects.filter(**{f"{name}__is_open": True})}
    return (
        far,
        near,
        type("LinkedRank", (RankIndex,), {"model": near, "order": ("score",), "name": "linked", **rows}),
    )


@pytest.mark.parametrize("is_older", [True, False], ids=["older", "newer"])
def test_a_relation_that_is_called_otherwise(zrank: Redis, transactional_db: None, is_older: bool) -> None:
    """A mark of the other release names it as that one does. It waits, if the release that drains has no triggers."""
    (far, near, before), (_, _, after) = linked("club"), linked("team")
    drains, other = (before, after) if is_older else (after, before)
    with table(far), table(near):
        near.objects.create(score=5, club=far.objects.create(is_open=True))
        sync(other)
        triggers.install("default", [other.instance()])
        far.objects.update(is_open=False)
        drain(drains.instance())
        assert Mark.objects.filter(index="linked").exists() or not contents(other)
        drain(other.instance())
        assert not Mark.objects.filter(index="linked").exists()
        assert not contents(other)
        triggers.drop("default", ["linked"])


def declared(fields: dict[str, models.Field[Any, Any]], conditions: Any = (), **attributes: Any) -> str:
    """The digits of an index of a model with these fields."""
    with isolate_apps("tests.testapp"):
        meta = type("Meta", (), {"app_label": "testapp"})
        model: Any = type("Released", (models.Model,), {**fields, "Meta": meta, "__module__": __name__})
        rows = {"get_queryset": lambda self: model.objects.filter(*conditions)}
        return (
            type("Index", (RankIndex,), {"model": model, "order": ("score",), **rows, **attributes})
            .instance()
            .declaration
        )


def formula(expression: Any) -> dict[str, Any]:
    score = models.GeneratedField(expression=expression, output_field=models.IntegerField(), db_persist=True)
    return {"wins": models.IntegerField(), "score": score}


def flag(field: models.Field[Any, Any]) -> dict[str, Any]:
    return {"score": models.IntegerField(), "flag": field}


def when() -> dict[str, Any]:
    return {"score": models.DateTimeField(), "flag": models.IntegerField()}


@pytest.mark.parametrize(
    ("one", "other", "part"),
    [
        pytest.param(
            lambda: declared(formula(F("wins") + 1)),
            lambda: declared(formula(F("wins") + 2)),
            "parameters<, *_formulas(index, sql)>]",
            id="formula",
        ),
        pytest.param(
            lambda: declared(flag(models.BooleanField()), facets=("flag",)),
            lambda: declared(flag(models.IntegerField()), facets=("flag",)),
            "[<*_types(index, sql), >sql",
            id="type of a facet",
        ),
        pytest.param(
            lambda: declared(flag(models.DecimalField(max_digits=5, decimal_places=2)), [Q(flag__gte=3)]),
            lambda: declared(flag(models.DecimalField(max_digits=5, decimal_places=0)), [Q(flag__gte=3)]),
            "[<*_types(index, sql), >sql",
            id="type of a column that is only filtered by",
        ),
        pytest.param(
            lambda: declared(flag(models.GenericIPAddressField()), facets=("flag",)),
            lambda: declared(flag(models.GenericIPAddressField(unpack_ipv4=True)), facets=("flag",)),
            "[<*_types(index, sql), >sql",
            id="spelling of addresses",
        ),
        pytest.param(
            lambda: declared(flag(models.IntegerField()), [models.Q(flag=1)]),
            lambda: declared(flag(models.IntegerField()), [models.Q(flag=2)]),
            "sql, <parameters, >*",
            id="value of a condition",
        ),
        pytest.param(
            lambda: declared(flag(models.IntegerField()), [models.Q(flag=1)]),
            lambda: declared(flag(models.IntegerField()), [~models.Q(flag=1)]),
            "sql), <sql, >",
            id="condition",
        ),
        pytest.param(
            lambda: declared({"score": models.IntegerField(), "id": models.BigAutoField(primary_key=True)}),
            lambda: declared(
                {"score": models.IntegerField(), "id": models.CharField(max_length=9, primary_key=True)}
            ),
            "[<*_types(index, sql), >sql",
            id="type of the key",
        ),
    ],
)
def test_another_declaration(one: Any, other: Any, part: str) -> None:
    assert one() == one() != other() == other()
    with left_out(part):
        assert one() == other()


def left_out(part: str) -> AbstractContextManager[None]:
    """Leave what is in angle brackets out of the fingerprint: releases that differ in no more are taken for one."""
    old, new = re.sub("[<>]", "", part), re.sub("<.*>", "", part)
    return recoded(declaration, "fingerprint", old, new)


@pytest.mark.parametrize("setting", ["USE_TZ", "TIME_ZONE"])
def test_another_time_zone_of_times_without_one(settings: Any, setting: str) -> None:
    settings.USE_TZ, settings.TIME_ZONE = setting == "USE_TZ", "UTC"
    kept, moment = declared(flag(models.IntegerField())), declared(when())
    part = (
        "<settings.USE_TZ, >" if setting == "USE_TZ" else "<, connections[index.get_using()].timezone_name>"
    )
    with left_out(part):
        unnoticed = declared(when())
    del connection.timezone_name
    if setting == "USE_TZ":
        settings.USE_TZ = False
    else:
        settings.TIME_ZONE = "Asia/Tokyo"
    assert declared(flag(models.IntegerField())) == kept, "no time is ranked"
    assert declared(when()) != moment
    with left_out(part):
        assert declared(when()) == unnoticed


def test_the_time_zone_of_a_request_is_no_part_of_it(settings: Any) -> None:
    def this_year() -> str:
        return declared({**when(), "score": models.DateTimeField()}, [models.Q(score__year=2026)])

    before = this_year()
    with timezone.override("Asia/Tokyo"):
        assert this_year() == before


@pytest.mark.part("erase", "sql")
def test_the_time_zone_of_a_request_moves_no_row(zrank: Redis, transactional_db: None) -> None:
    class OfTheYear(RankIndex[Ticket]):
        model = Ticket
        order = ("-moment",)
        name = "of-the-year"

        def get_queryset(self) -> models.QuerySet[Ticket]:
            return Ticket.objects.filter(moment__year=2026)

    ticket = Ticket.objects.create(moment=datetime(2026, 12, 31, 23, tzinfo=UTC))
    index = OfTheYear.instance()
    rebuild(index)
    with timezone.override("Asia/Tokyo"):
        push(index, [ticket.pk])
        assert OfTheYear.ranking.count() == 1
        rebuild(index)
        assert OfTheYear.ranking.count() == 1
        assert not verify(index).drift
        assert answer_by_sql(index, (), Size(), View(index.layout)) == 1
        with pytest.raises(ZRankError, match="still ranked"):
            OfTheYear.erase(ticket)


@pytest.mark.part("sql")
def test_the_condition_of_a_caller_is_of_its_time_zone(transactional_db: None, declare: Declare) -> None:
    index = declare(Ticket, "-integer").instance()
    Ticket.objects.create(integer=1, moment=datetime(2026, 12, 31, 23, tzinfo=UTC))
    with timezone.override("Asia/Tokyo"):
        where, view = condition(index, models.Q(moment__year=2027)), View(index.layout)
        around = parse_point(index, view, 1)
        draw = Draw(None, 1, ((1, 1),), "exact", given=(1,), where=where, at=around)
        assert len(answer_by_sql(index, (), draw, view).drawn) == 1
    assert not answer_by_sql(index, (), draw, view).drawn


def test_a_percent_sign_shifts_no_parameters() -> None:
    def among(*values: int) -> str:
        literal = models.expressions.RawSQL("'%%s' = '%%s'", (), output_field=models.BooleanField())
        conditions = [literal, models.Q(flag__in=values), models.Q(score=3)]
        return declared(flag(models.IntegerField()), conditions)

    assert among(1, 2) == among(2, 1) != among(1, 3)


def test_another_limit_of_values(settings: Any) -> None:
    def limited(limit: int) -> str:
        settings.ZRANK = {"MAX_VALUES": limit}
        attributes = {"model": Competitor, "order": ("points",), "facets": ("tags",)}
        return type("Tagged", (RankIndex,), attributes).instance().declaration

    assert limited(20) == limited(20) != limited(21)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("field", "values"),
    [
        (models.JSONField(), [{"season": "spring" * 9}, {"season": "spring" * 8 + "summer"}]),
        (models.BinaryField(), [b"one", b"two"]),
    ],
)
def test_another_value_that_a_driver_wraps(field: models.Field[Any, Any], values: list[Any]) -> None:
    one, other, again = (declared(flag(field), [models.Q(flag=value)]) for value in [*values, values[0]])
    assert one == again != other


def test_another_type_of_a_column_that_only_raw_sql_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def digits() -> str:
        slug = RawSQL("(SELECT t.slug FROM testapp_guild t LIMIT 1)", (), output_field=models.TextField())
        rows = {"get_queryset": lambda self: Competitor.objects.filter(region=slug)}
        attributes = {"model": Competitor, "order": ("points",), **rows}
        return type("Raw", (RankIndex,), attributes).instance().declaration

    before = digits()
    monkeypatch.setattr(Guild._meta.get_field("slug"), "db_collation", "C")
    assert digits() != before


def test_the_models_that_a_process_installs_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither their order, nor further models of the same tables, such as a proxy that only the admin has."""

    def digits() -> str:
        attributes = {"model": Competitor, "order": ("points",), "facets": ("guild__slug", "tags__word")}
        return type("Joined", (RankIndex,), attributes).instance().declaration

    found, installed = digits(), apps.get_models(include_auto_created=True)
    with isolate_apps("tests.testapp"):
        meta = type("Meta", (), {"app_label": "testapp", "proxy": True})
        proxy: Any = type("Shown", (Guild,), {"Meta": meta, "__module__": __name__})
    for models_ in (installed[::-1], [*installed, proxy]):
        monkeypatch.setattr(apps, "get_models", lambda found=models_, **kwargs: found)
        assert digits() == found


def test_it_is_the_same_in_every_process() -> None:
    """Whatever the seed of Python's hashes, which decides the order of a set."""
    code = (
        "import django; django.setup()\n"
        "from tests.sync.test_releases import Before\n"
        "print(Before.instance().declaration)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONHASHSEED": str(seed), "PYTHONPATH": "."},
        ).stdout
        for seed in (0, 1)
    }
    assert len(found) == 1
