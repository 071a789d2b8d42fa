"""A row that can't be read or ranked stops neither the others, nor other indexes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, models
from redis import Redis

from django_zrank import RankIndex
from django_zrank.sync.push import push
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from tests.sync.capturing import table
from tests.sync.mirror import contents
from tests.testapp.models import Competitor, Ticket
from tests.testapp.zrank import ByDay, ByMoment, ByPrice, BySpan, PlayerRank

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]

BROKEN = {"postgresql": "'infinity'", "mysql": "'0000-00-00'"}
"""A date of each database that Python has none for."""


def assert_left_out(ticket: Ticket, index: type[RankIndex], caplog: pytest.LogCaptureFixture) -> None:
    """Assert that whatever writes the index logs this row, and ranks all others."""
    others = {str(pk) for pk in Ticket.objects.exclude(pk=ticket.pk).values_list("pk", flat=True)}
    with caplog.at_level(logging.ERROR, "django_zrank.sync"):
        assert sync(index).marks == 1
        assert contents(index).keys() == others
        rebuild(index.instance())
    assert contents(index).keys() == others
    assert str(ticket.pk) in caplog.text or "null" in caplog.text
    push(index.instance(), [ticket.pk, *others])
    assert contents(index).keys() == others
    assert verify(index.instance()).ok


@pytest.mark.skipif(connection.vendor not in BROKEN, reason="SQLite has a test of its own")
@pytest.mark.parametrize(("index", "column"), [(ByDay, "day"), (ByMoment, "moment")])
@pytest.mark.parametrize("value", ["broken", "BC"])
def test_it_is_logged_and_left_out(
    index: type[RankIndex], column: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    if value == "BC" and connection.vendor != "postgresql":
        pytest.skip("MariaDB has no years before 1")
    literal = BROKEN[connection.vendor] if value == "broken" else "'0044-03-15 BC'"
    tickets = [
        Ticket.objects.create(day=date(2020, 1, at), moment=datetime(2020, 1, at, tzinfo=UTC))
        for at in range(1, 10)
    ]
    sync(index)
    assert len(contents(index)) == 9
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("SET SESSION sql_mode = ''")
        cursor.execute(
            f"UPDATE testapp_ticket SET {column} = {literal} WHERE id = %s",
            [tickets[0].pk if connection.vendor == "postgresql" else tickets[0].pk.hex],
        )
    assert_left_out(tickets[0], index, caplog)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="Other databases refuse such values.")
@pytest.mark.parametrize(
    ("index", "column", "value"),
    [
        (ByDay, "day", "2023-02-29"),
        (ByMoment, "moment", "2023-31-12 10:00:00"),
        (ByMoment, "moment", 1_700_000_000),
        (ByPrice, "price", 12_345_678_901.5),
        (ByPrice, "price", 123_456_789_012_345),
        (ByPrice, "price", "free"),
        (BySpan, "span", "an hour"),
    ],
)
def test_a_value_of_another_type_is_logged_and_left_out(
    index: type[RankIndex], column: str, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    right = {
        "day": date(2020, 1, 1),
        "moment": datetime(2020, 1, 1, tzinfo=UTC),
        "price": 5,
        "span": timedelta(1),
    }
    tickets = [Ticket.objects.create(**{column: right[column]}) for _ in range(5)]
    sync(index)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE testapp_ticket SET {column} = %s WHERE id = %s", [value, tickets[0].pk.hex])
    assert_left_out(tickets[0], index, caplog)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="Other databases refuse such values.")
@pytest.mark.parametrize(
    "key", [models.UUIDField(primary_key=True), models.BigIntegerField(primary_key=True)]
)
def test_a_key_of_another_type_is_logged_and_left_out(
    key: models.Field[object, object], declare: Callable[..., type[RankIndex]]
) -> None:
    meta = type("Meta", (), {"app_label": "testapp", "db_table": "keyed"})
    model = type(
        "Keyed",
        (models.Model,),
        {"id": key, "n": models.IntegerField(), "Meta": meta, "__module__": __name__},
    )
    with table(model):
        index = declare(model, "-n")
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO keyed VALUES ('{7:032}', 1), ('garbage', 2), (x'00ff', 3), (1.5, 4)")
        sync(index)
        rebuild(index.instance())
        assert [str(entry.pk)[-1] for entry in index.ranking.top()] == ["7"]
        assert verify(index.instance()).ok


@pytest.mark.skipif(connection.vendor != "sqlite", reason="Other databases refuse such values.")
def test_a_facet_value_of_another_type_is_counted_as_text(declare: Callable[..., type[RankIndex]]) -> None:
    index = declare(Competitor, "-points", facets=("lost",))
    Competitor.objects.bulk_create([Competitor(points=1, lost=lost) for lost in (3, 3, 7)])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_competitor SET lost = 'many' WHERE lost = 7")
    sync(index)
    assert index.ranking.counts("lost") == {3: 2, "many": 1}


class Region(Enum):
    KANTO = "kanto"
    KANSAI = "kansai"

    def __str__(self) -> str:
        return str(self.value)


class RegionField(models.CharField):  # type: ignore[type-arg]
    """As packages for enums have it."""

    def from_db_value(self, value: str, *_: object) -> Region:
        return Region(value)

    def to_python(self, value: object) -> Region:
        return Region(value)


def test_a_value_of_an_enum_that_only_the_next_release_knows(declare: Callable[..., type[RankIndex]]) -> None:
    class Shop(models.Model):
        region = RegionField(max_length=9)
        sales = models.IntegerField()

        class Meta:
            app_label = "testapp"

    with table(Shop):
        index = declare(Shop, "-sales", facets=("region",))
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO testapp_shop (region, sales) VALUES ('kanto', 1), ('kyushu', 2)")
        sync(index)
        rebuild(index.instance())
        assert index.ranking.counts("region") == {Region.KANTO: 1, "kyushu": 1}
        assert index.ranking.filter(region=Region.KANTO).count() == 1
        assert verify(index.instance()).ok


def test_whatever_fails_for_one_index_the_others_are_synchronized(
    zrank: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: RankIndex) -> None:
        raise RuntimeError("a queryset that fails")

    monkeypatch.setattr(PlayerRank, "get_queryset", fails)
    zrank.flushall()
    Ticket.objects.create(day=date(2020, 1, 1))
    out, errors = StringIO(), StringIO()
    with pytest.raises(CommandError, match="Not every index"):
        call_command("sync_zrank", stdout=out, stderr=errors)
    assert "a queryset that fails" in errors.getvalue()
    assert len(contents(ByDay)) == 1


@pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL's intervals have years")
def test_durations_that_only_the_database_takes_for_equal() -> None:
    ticket = Ticket.objects.create(span=timedelta(days=360))
    sync(BySpan)
    with connection.cursor() as cursor:
        cursor.execute("SELECT interval '1 year' = interval '360 days'")
        assert cursor.fetchone() == (True,)
        cursor.execute("UPDATE testapp_ticket SET span = interval '1 year'")
    sync(BySpan)
    ticket.refresh_from_db()
    assert BySpan.ranking.score(ticket) == ticket.span == timedelta(days=365)
