"""``manage.py export_zrank`` and ``snapshot()``: what is exported is a ranking as it was at one moment."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from redis import Redis

from django_zrank import RankIndex
from django_zrank.management.base import ProgressCommand
from django_zrank.redis import reader_of
from django_zrank.statistics import RankingChanged
from django_zrank.sync.push import push
from django_zrank.sync.rebuild import rebuild
from django_zrank.testing import disable_sync
from tests.sharded import sharded
from tests.sync.processes import on_terminal
from tests.testapp.models import Competitor, Player, Ticket, Video
from tests.testapp.zrank import (
    ByDay,
    ByMoment,
    ByPrice,
    BySpan,
    CompetitorRank,
    PlayerAscending,
    PlayerRank,
    VideoRank,
)

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank"),
]


@pytest.fixture(autouse=True)
def _few(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of two members."""
    monkeypatch.setattr("django_zrank.ranking._PAGE", 2)


def export(*args: Any, **options: Any) -> str:
    out = StringIO()
    call_command("export_zrank", *args, stdout=out, **options)
    return out.getvalue()


def exported(*args: Any, **options: Any) -> list[dict[str, str]]:
    return [*csv.DictReader(export(*args, **options).splitlines())]


def build(*indexes: type[RankIndex]) -> None:
    for index in indexes:
        rebuild(index.instance())


def players(count: int = 7) -> list[Player]:
    with disable_sync():
        return [Player.objects.create(level=10 * level) for level in range(count)]


# What is written


def test_a_whole_ranking_as_the_database_orders_it() -> None:
    players()
    build(PlayerRank)
    rows = Player.objects.order_by("-level")
    expected = [
        {"rank": str(rank), "pk": str(player.pk), "score": str(player.level)}
        for rank, player in enumerate(rows, 1)
    ]
    assert exported("player") == expected
    assert exported("player", top=3) == expected[:3]
    assert exported("player", top=100) == expected
    assert [json.loads(line) for line in export("player", json=True).splitlines()] == [
        {name: int(value) for name, value in row.items()} for row in expected
    ]


def test_nobody() -> None:
    build(PlayerRank)
    assert export("player") == "rank,pk,score\n"
    assert export("player", json=True) == ""


@pytest.mark.part("dense")
@pytest.mark.parametrize("shards", [1, 3])
def test_a_filter_and_dense_ranks(shards: int) -> None:
    with disable_sync():
        for at in range(12):
            region = ("kantou", "kansai")[at % 2]
            Competitor.objects.create(points=at // 6, region=region, platform=("pc", "ps")[at // 10])
    index = sharded(CompetitorRank, shards)
    rebuild(index.instance())
    for filters in ({}, {"region": "kantou"}, {"region": "kantou", "platform": "pc"}):
        rows = Competitor.objects.filter(**filters)
        levels = sorted({row.points for row in rows if row.points is not None}, reverse=True)
        expected = {(levels.index(row.points or 0) + 1, row.pk, row.points) for row in rows}
        found = [(entry.rank, entry.pk, entry.score) for entry in index.ranking.filter(**filters).snapshot()]
        assert [rank for rank, _, _ in found] == sorted(rank for rank, _, _ in expected)
        assert {*found} == expected


def test_filters_of_the_command() -> None:
    with disable_sync():
        one, *_ = [
            Competitor.objects.create(points=1, region=region, platform="pc") for region in ("a=b", "c")
        ]
    build(CompetitorRank)
    assert exported("competitors", filter=["region=a=b", "platform=pc"]) == [
        {"rank": "1", "pk": str(one.pk), "score": "1"}
    ]


@pytest.mark.parametrize(
    ("index", "values", "said"),
    [
        (ByPrice, {"price": Decimal("1234567890.10")}, "1234567890.10"),
        (ByDay, {"day": date(2026, 11, 30)}, "2026-11-30"),
        (
            ByMoment,
            {"moment": datetime(2026, 11, 30, 23, 59, 59, 123456, UTC)},
            "2026-11-30T23:59:59.123456+00:00",
        ),
        (BySpan, {"span": timedelta(days=1, microseconds=5)}, "P1DT00H00M00.000005S"),
    ],
)
def test_values_are_those_of_their_fields(index: type[RankIndex], values: dict[str, Any], said: str) -> None:
    with disable_sync():
        ticket = Ticket.objects.create(**values)
    build(index)
    name = index.instance().name
    assert exported(name) == [{"rank": "1", "pk": str(ticket.pk), "score": said}]
    assert json.loads(export(name, json=True)) == {"rank": 1, "pk": str(ticket.pk), "score": said}


def test_a_file(tmp_path: Path) -> None:
    players(3)
    build(PlayerRank)
    path = tmp_path / "final.csv"
    assert export("player", output=str(path)) == f"player: 3 members written to {path}\n"
    assert path.read_text() == export("player")
    assert export("player", output=str(path), verbosity=0) == ""


def test_progress_on_a_terminal() -> None:
    players()
    build(PlayerRank)
    assert "14.0/14.0" in on_terminal("export_zrank", "player")


@pytest.mark.parametrize(
    ("args", "options", "said"),
    [
        (["nobody"], {}, "no index called 'nobody'"),
        ([], {}, "Name one index"),
        (["player", "ascending"], {}, "Name one index"),
        (["player"], {"filter": ["region"]}, "expected FACET=VALUE"),
        (["player"], {"filter": ["region=a"]}, "no such facet"),
        (["player"], {"top": 0}, "--top: expected at least 1, not 0"),
    ],
)
def test_what_can_t_be_exported(args: list[str], options: dict[str, Any], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        export(*args, **options)


def test_an_index_that_is_not_built(zrank: Redis) -> None:
    zrank.flushall()
    with pytest.raises(CommandError, match="rebuild_zrank player"):
        export("player")


# While it is written


@pytest.fixture
def disturb(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets the command's first attempts meet a change after the first page."""

    def disturb(times: int, change: Callable[[], Any]) -> None:
        left = [times]

        @contextmanager
        def bar(*_: Any) -> Iterator[Any]:
            changes = [change] if left[0] else []
            left[0] -= 1
            yield SimpleNamespace(update=lambda members: changes and changes.pop()())

        monkeypatch.setattr(ProgressCommand, "bar", bar)

    return disturb


def test_a_ranking_that_changes_once_is_read_again(disturb: Callable[..., None]) -> None:
    _, *_, best = players()
    build(PlayerRank)
    disturb(2, best.delete)
    errors = StringIO()
    with pytest.raises(CommandError, match="'player' has changed"):
        export("player", retries=0)
    disturb(1, lambda: Player.objects.create(level=1000))
    assert [row["score"] for row in exported("player", stderr=errors)] == [
        "1000",
        "50",
        "40",
        "30",
        "20",
        "10",
        "0",
    ]
    assert errors.getvalue().count("reading it again") == 1


def test_a_ranking_that_keeps_changing_is_not_written(disturb: Callable[..., None], tmp_path: Path) -> None:
    players()
    build(PlayerRank)
    disturb(9, lambda: Player.objects.create(level=1000 + Player.objects.count()))
    path = tmp_path / "final.csv"
    path.write_text("of last week")
    out = StringIO()
    with pytest.raises(CommandError, match="'player' has changed"):
        call_command("export_zrank", "player", output=str(path), stdout=out, stderr=StringIO())
    assert (path.read_text(), out.getvalue()) == ("of last week", "")


def test_changes_elsewhere_don_t_disturb(disturb: Callable[..., None]) -> None:
    """Those of other values, of members beyond the best, and of what the order doesn't name."""
    with disable_sync():
        rows = [Competitor.objects.create(points=at, region="ab"[at > 4]) for at in range(10)]
    build(CompetitorRank)
    last = CompetitorRank.ranking.filter(region="a")

    def change() -> None:
        Competitor.objects.create(points=100, region="b")
        rows[9].delete()
        Competitor.objects.filter(pk=rows[0].pk).update(lost=5)
        Competitor.objects.get(pk=rows[0].pk).save()

    disturb(1, change)
    found = exported("competitors", filter=["region=a"], retries=0)
    assert [row["score"] for row in found] == ["4", "3", "2", "1", "0"]
    disturb(1, rows[0].delete)
    assert [row["score"] for row in exported("competitors", filter=["region=a"], top=3, retries=0)] == [
        "4",
        "3",
        "2",
    ]
    assert last.count() == 4


def test_a_score_that_changes_in_redis() -> None:
    with disable_sync():
        videos = [Video.objects.create(views=at) for at in range(6)]
    build(VideoRank)
    snapshot = VideoRank.ranking.snapshot()
    next(snapshot)
    VideoRank.scores.increment(videos[0], 50)
    with pytest.raises(RankingChanged):
        list(snapshot)


Change = Callable[[list[Player]], Any]


def update(at: int, level: int | None) -> Change:
    return lambda rows: Player.objects.filter(pk=rows[at].pk).update(level=level)


CHANGES: dict[str, tuple[Change, Change]] = {
    "enters as best": (update(7, 99), update(7, None)),
    "enters in the middle": (update(7, 35), update(7, None)),
    "enters last": (update(7, -5), update(7, None)),
    "leaves from the top": (update(6, None), update(6, 60)),
    "leaves from the end": (update(0, None), update(0, 0)),
    "rises": (update(0, 99), update(0, 0)),
    "falls": (update(6, -5), update(6, 60)),
    "gains": (update(3, 31), update(3, 30)),
}
"""Changes of one member, and back."""


@pytest.mark.parametrize("shards", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("limit", [None, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("change", CHANGES)
def test_every_moment_at_which_one_changes(
    change: str, limit: int | None, shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each round trip a change is made, and before another one undone: what ends without an error is the ranking
    before or after it."""
    rows = players(8)
    index = sharded(PlayerAscending, shards)
    update(7, None)(rows)
    rebuild(index.instance())
    ranking, reader = index.ranking.reversed(), reader_of(index.instance())
    send = reader.send
    make, undo = CHANGES[change]

    def best() -> list[tuple[Any, Any]]:
        ranked = Player.objects.filter(level__isnull=False).order_by("-level")
        return list(ranked.values_list("pk", "level")[:limit])

    def snapshot(*at: int) -> list[tuple[Any, Any]] | None:
        sent = 0

        def disturbed(request: Any) -> Any:
            nonlocal sent
            sent += 1
            for number, does in zip(at, (make, undo), strict=False):
                if sent == number:
                    does(rows)
                    push(index.instance(), [row.pk for row in rows])
            return send(request)

        monkeypatch.setattr(reader, "send", disturbed)
        try:
            return [(entry.pk, entry.score) for entry in ranking.snapshot(limit)]
        except RankingChanged:
            return None
        finally:
            monkeypatch.setattr(reader, "send", send)
            trips.append(sent)

    trips: list[int] = []
    make(rows)
    after = best()
    undo(rows)
    push(index.instance(), [row.pk for row in rows])
    before = best()
    assert snapshot() == before
    last, refused = trips[-1], 0
    for first in range(1, last + 1):
        for second in (*range(first + 1, last + 1), last + 100):
            found = snapshot(first, second)
            undo(rows)
            push(index.instance(), [row.pk for row in rows])
            assert found in (None, before, after), (first, second)
            refused += found is None
    assert (refused > 0) == (before != after)
