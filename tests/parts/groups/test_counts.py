"""Groups that count their members by the facets they had when they joined."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from redis import Redis

from django_zrank import RankIndex, groups
from django_zrank.groups.keys import group_key
from django_zrank.redis import reader_of
from django_zrank.sync.rebuild import rebuild
from tests.keyspace import whole
from tests.populations import populate
from tests.sharded import sharded
from tests.sync.conftest import declare  # noqa: F401 - a fixture
from tests.test_checks import Case, assert_found, declaring
from tests.test_ranking import CompetitorRank
from tests.testapp.models import Competitor

from .test_groups import ROW

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
REGIONS = ("kantou", "a,b: c", None)
FACETS = ("region", "tags", ("region", "platform"))


class CountedRank(CompetitorRank):
    name = "counted"
    group_counts = FACETS


class TiedCountedRank(CountedRank):
    name = "counted-tied"
    order = ("-points", "lost")


class SomeCountedRank(CompetitorRank):
    name = "counted-some"

    def get_group_counts(self, group: str) -> Sequence[str]:
        return ("region",) if group.startswith("live:") else ()


def random_row(chance: Random) -> dict[str, Any]:
    tags = set(chance.sample(range(4), chance.randrange(3)))
    return ROW | {
        "points": 1,
        "region": chance.choice(REGIONS),
        "platform": chance.choice(("pc", "tv")),
        "tags": tags,
    }


class Audience:
    """A group, with what is to be expected of it."""

    def __init__(self, zrank: Redis, index: type[RankIndex], name: str) -> None:
        self.zrank, self.index, self.name = zrank, index, name
        self.group = index.group(name)
        self.joined: dict[int, dict[str, Any]] = {}
        self.minutes: dict[int, float] = {}

    def add(self, members: list[int], minutes: float, rows: dict[int, dict[str, Any]]) -> None:
        expires = None if minutes == float("inf") else minutes * MINUTE
        assert self.group.add(members, expires=expires) == len({*members} - self.joined.keys())
        for member in members:
            self.joined.setdefault(member, rows.get(member, {}))
            self.minutes[member] = minutes

    def remove(self, members: list[int], *, claims: bool) -> None:
        gone = [member for member in dict.fromkeys(members) if member in self.joined]
        if claims:
            assert self.group.claim(members) == gone
        else:
            assert self.group.remove(members) == len(gone)
        self._forget(gone)

    def pass_a_minute(self) -> None:
        for part in self.index.instance().holders:
            key = group_key(reader_of(part).keys, self.name)
            for member, until in self.zrank.zrange(key, 0, -1, withscores=True):
                if until != float("inf"):
                    self.zrank.zincrby(key, -60_000_000, member)
        self.minutes = {member: left - 1 for member, left in self.minutes.items()}
        self._forget([member for member, left in self.minutes.items() if left <= 0])

    def _forget(self, members: list[int]) -> None:
        for member in members:
            del self.joined[member], self.minutes[member]

    def check(self) -> None:
        rows = [row for row in self.joined.values() if row]
        assert self.group.count() == len(self.joined)
        assert self.group.counts("region") == Counter(row["region"] for row in rows)
        assert self.group.counts("tags") == Counter(tag for row in rows for tag in row["tags"] or (None,))
        assert asyncio.run(self.group.acounts("platform", "region")) == Counter(
            (row["platform"], row["region"]) for row in rows
        )


@pytest.mark.parametrize("part", [3, 500])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("declared", [CountedRank, TiedCountedRank], ids=lambda index: index.name)
def test_counts_are_exact_through_joining_leaving_and_expiry(
    zrank: Redis, declared: type[RankIndex], shards: int, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the members become in the meantime, and however many expire between two calls."""
    monkeypatch.setattr(groups, "_PIECE", part)
    chance = Random(f"{declared.name}-{shards}-{part}")
    index = declared if shards == 1 else sharded(declared, shards)
    rows = {pk: random_row(chance) for pk in range(40)}
    populate(index, rows)
    show = Audience(zrank, index, "live")
    for _ in range(150):
        members = chance.choices(range(50), k=chance.randrange(1, 12))  # ten are not ranked
        match chance.choice(["add", "add", "remove", "claim", "change", "wait", "swap"]):
            case "add":
                show.add(members, chance.choice([1, 2, 5, float("inf")]), rows)
            case "remove" | "claim" as how:
                show.remove(members, claims=how == "claim")
            case "change":
                rows |= {pk: random_row(chance) for pk in members if pk < 40}
                write(zrank, index, rows)
            case "swap":
                write(zrank, index, rows, swaps=True)
            case "wait":
                show.pass_a_minute()
        if chance.random() < 0.4:
            show.check()
    show.check()
    show.remove(list(range(50)), claims=False)
    assert [key for key in whole(zrank) if ":group:" in key] == []


def write(
    zrank: Redis, index: type[RankIndex], rows: dict[int, dict[str, Any]], *, swaps: bool = False
) -> None:
    """Write the memberships of members, as a push does, or as a rebuild, of which no process has heard yet."""
    instance = index.instance()
    for part in instance.holders:
        store = reader_of(part).store
        live = zrank.hget(store.keys.meta, "build").decode()
        new = f"{live.partition('-')[0]}-{Random(live).random()}" if swaps else live
        for pk, row in rows.items():
            if instance.holder_of(str(pk)) is part:
                _, tie = instance.ordering.encode([row[path] for path in instance.ordering.paths])
                many = {path: value if path == "tags" else [value] for path, value in row.items()}
                names = instance.faceting.rankings({path: values or [None] for path, values in many.items()})
                memberships = store.keys.at(new).memberships
                zrank.hset(memberships, str(pk), tie + "\0".join(names).encode())
        if swaps:
            zrank.unlink(store.keys.at(live).memberships)
            zrank.hset(store.keys.meta, "build", new)


def test_more_values_than_one_call_looks_at(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_PIECE", 100)
    populate(CountedRank, {pk: ROW | {"points": 1, "region": f"r{pk % 700}"} for pk in range(1400)})
    show = CountedRank.group("live")
    show.add(range(1400))
    assert show.counts("region") == {f"r{at}": 2 for at in range(700)}


def test_a_group_that_was_evicted_counts_nobody(zrank: Redis) -> None:
    populate(CountedRank, {1: ROW | {"points": 1}, 2: ROW | {"points": 1}})
    show = CountedRank.group("live")
    show.add(1)
    zrank.unlink(group_key(reader_of(CountedRank.instance()).keys, "live"))
    assert show.counts("region") == {}
    show.add(1, 2)
    assert show.counts("region") == {"kantou": 2}
    zrank.unlink(group_key(reader_of(CountedRank.instance()).keys, "live"))
    show.add(2)
    show.add(1)
    assert show.counts("region") == {"kantou": 2}
    show.clear()
    assert [key for key in whole(zrank) if "live" in key] == []


def test_an_index_that_is_not_built_counts_nobody(zrank: Redis) -> None:
    class Unbuilt(CountedRank):
        name = "counted-unbuilt"

    assert Unbuilt.group("live").add(1) == 1
    assert Unbuilt.group("live").counts("region") == {}


def test_members_that_joined_before_counts_were_declared(
    zrank: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count from when they join again. Members that leave leave their counts, whoever declares what."""
    populate(CountedRank, {pk: ROW | {"points": 1} for pk in range(1, 6)})
    show = CountedRank.group("live")
    with monkeypatch.context() as earlier:
        earlier.setattr(CountedRank, "group_counts", ())
        CountedRank.group("live").add(1, 2)
    show.add(1, 3, 4, 5)
    assert show.counts("region") == {"kantou": 3}
    with monkeypatch.context() as earlier:
        earlier.setattr(CountedRank, "group_counts", ())
        CountedRank.group("live").remove(1, 3)
        CountedRank.group("live").claim(4)
    assert show.counts("region") == {"kantou": 1}
    show.add(1)
    assert show.counts("region") == {"kantou": 2}


def test_each_group_may_count_by_other_facets(zrank: Redis) -> None:
    populate(SomeCountedRank, {1: ROW | {"points": 1}})
    show, queue = SomeCountedRank.group("live:1"), SomeCountedRank.group("queue")
    show.add(1)
    queue.add(1)
    assert show.counts("region") == {"kantou": 1}
    kept = {key.partition(":group:")[2]: held for key, held in whole(zrank).items()}
    assert kept["live%3A1:joined"] == {b"1": b"region:kantou"}
    assert kept["live%3A1:counts"] == {b"region:kantou": b"1"}
    assert "queue:joined" not in kept
    for paths in (("region",), ("nothing",), (), ("region", "region")):
        with pytest.raises(
            ValueError, match=f"'queue' are not counted by {', '.join(paths) or 'nothing'}; declare"
        ):
            queue.counts(*paths)
    with pytest.raises(
        ValueError, match=r"'live:1' are not counted by platform; declare.* of SomeCountedRank"
    ):
        show.counts("platform")


def test_a_column_that_is_no_facet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountedRank, "group_counts", ("region", "lost"))
    for call in (
        lambda: CountedRank.group("live").add(1),
        lambda: CountedRank.group("live").counts("region"),
    ):
        with pytest.raises(ValueError, match="group_counts: 'lost' is not a facet of the index 'counted'"):
            call()


@pytest.mark.parametrize(
    "case",
    [
        declaring(
            "zrank.E048", "no facet", "Wrong.group_counts: 'name' is not a facet", group_counts=("name",)
        ),
        declaring("zrank.E048", "a text", "expected a sequence such as", group_counts="name"),
        declaring("zrank.E048", "none", "expected a sequence such as", group_counts=None),
    ],
)
def test_what_is_wrong_is_found(case: Case, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(case, settings, monkeypatch)


@pytest.mark.part("erase")
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.django_db(transaction=True)
def test_members_count_as_they_joined_until_they_are_erased(
    zrank: Redis,
    declare: Any,  # noqa: F811
    shards: int,
) -> None:
    """Through saves, rebuilds and the deletion of their rows; whether or not they have expired."""
    index = declare(Competitor, "-points", facets=("region",), group_counts=("region",), shards=shards)
    Competitor.objects.bulk_create(Competitor(points=at, region="ab"[at % 2]) for at in range(20))
    rebuild(index.instance())
    rows = list(Competitor.objects.order_by("points"))
    show = index.group("live: 42")
    show.add(rows[:10])
    rows[1].region = "c"
    rows[1].save()
    Competitor.objects.filter(pk=rows[3].pk).update(region="d")
    rebuild(index.instance())
    assert show.counts("region") == {"a": 5, "b": 5}
    show.add(rows)
    assert show.counts("region") == {"a": 10, "b": 10}
    show.remove(rows[1], rows[3])
    show.add(rows[1], rows[3], expires=MINUTE)
    assert show.counts("region") == {"a": 10, "b": 8, "c": 1, "d": 1}
    gone = [row.pk for row in rows[:4]]
    Competitor.objects.filter(pk__in=gone).delete()
    rebuild(index.instance())
    assert show.counts("region") == {"a": 10, "b": 8, "c": 1, "d": 1}
    for part in index.instance().holders:
        key = group_key(reader_of(part).keys, "live%3A%2042")
        for pk in gone[1], gone[3]:
            if zrank.zscore(key, pk):
                zrank.zadd(key, {pk: 1})
    for pk in gone:
        assert index.erase(pk).removed["group"] == 1
        assert [
            key for key, held in whole(zrank).items() if ":group:" in key and str(pk).encode() in held
        ] == []
    assert show.counts("region") == {"a": 8, "b": 8}
