"""Combined filters are made in pages, beside the live index: interrupted between any two round trips."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier
from time import sleep
from typing import Any

import pytest
from redis import Redis

from django_zrank import RankIndex
from django_zrank.codec.layout import Layout
from django_zrank.combined import making
from django_zrank.combined.filters import Clause, CombinedFilter
from django_zrank.combined.keys import registry_of
from django_zrank.combined.making import MAKE_COMBINED
from django_zrank.combined.view import CombinedView
from django_zrank.exceptions import FilterNotReady, FilterTooLarge
from django_zrank.groups.keys import group_key
from django_zrank.queries.counts import Size
from django_zrank.queries.request import Request
from django_zrank.queries.steps import Steps
from django_zrank.redis import reader
from django_zrank.redis.executor import Executor
from django_zrank.store import Change, Store
from tests.builds import load_rows, start
from tests.populations import populate
from tests.scripts import variants
from tests.sharded import sharded
from tests.test_asking import change
from tests.test_ranking import CompetitorRank, Row
from tests.testapp.methods import KEEPING
from tests.writes import apply_changes, begin_write

REGIONS, PLATFORMS = ("kantou", "kansai", "tohoku"), ("pc", "ps", None)
ALL = range(1, 61)


class Pieces(CompetitorRank):
    name = "pieces"
    facets = ("region", "platform")


class PiecesTied(Pieces):
    name = "pieces-tied"
    order = ("-points", "lost")


class PiecesDense(PiecesTied):
    name = "pieces-dense"
    ranking_method = KEEPING


MAKING = {*variants(MAKE_COMBINED)}
INDEXES = [Pieces, PiecesTied, PiecesDense]
NARROWED: dict[str, Callable[[Any], Any]] = {
    "two facets": lambda ranking: ranking.filter(region="kantou", platform__in=["pc", "ps"]),
    "one of several": lambda ranking: ranking.filter(region__in=["kansai", "kantou"]),
    "all but": lambda ranking: ranking.exclude(region="kansai"),
    "a group": lambda ranking: ranking.filter(group="live").exclude(platform="pc"),
    "all but a group": lambda ranking: ranking.exclude(group="live"),
    "many values": lambda ranking: ranking.filter(
        group__in=["live", "other"], platform__in=["1", "2", "3", "pc", "ps"]
    ),
}


def passes(name: str, member: int, row: Row | None, group: set[int]) -> bool:
    if row is None:
        return False
    region, platform = row["region"], row["platform"]
    return {
        "two facets": region == "kantou" and platform in ("pc", "ps"),
        "one of several": region in ("kansai", "kantou"),
        "all but": region != "kansai",
        "a group": member in group and platform != "pc",
        "all but a group": member not in group,
        "many values": member in group and platform in ("pc", "ps"),
    }[name]


def person(rng: random.Random) -> Row:
    points, lost = rng.randrange(20), rng.randrange(3)
    return {
        "points": points,
        "lost": lost,
        "region": rng.choice(REGIONS),
        "platform": rng.choice(PLATFORMS),
        "tags": set(),
    }


def all_but(index: type[RankIndex], region: str) -> Any:
    """Two filters, as for one the size would be a difference."""
    return index.ranking.exclude(region=region).exclude(region="nowhere")


def write(store: Store, index: type[RankIndex], rows: dict[int, Row | None]) -> None:
    changes = [Change(str(pk), None) if row is None else change(index, pk, row) for pk, row in rows.items()]
    apply_changes(store, begin_write(store), changes)


def forget(zrank: Redis) -> None:
    """Let what is kept be as old as it may be."""
    for key in zrank.scan_iter("*:combined_filter:*:stamp"):
        zrank.unlink(key)


def seconds_left(zrank: Redis) -> dict[bytes, Any]:
    return {key: zrank.ttl(key) for key in zrank.scan_iter("*:combined_filter:*")}


def number_of(zrank: Redis, command: str) -> int:
    stats: Any = zrank.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {}).get("calls", 0))


@pytest.fixture
def pages_of_ten(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Also where a set is as small as these are."""
    monkeypatch.setattr(making, "_PAGE", 10)
    monkeypatch.setattr(making, "_LOOK_UPS", 10)
    monkeypatch.setattr(making, "_SMALL", 0)
    (before,) = zrank.config_get("zset-max-listpack-entries").values()
    zrank.config_set("zset-max-listpack-entries", 0)
    yield
    zrank.config_set("zset-max-listpack-entries", before)


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[int], None]], None]]:
    """A function that has another one called after each piece of a making, with their number."""
    send, calls = Executor.send, Counter[str]()

    def interrupting(do: Callable[[int], None]) -> None:
        def sending(self: Executor, request: Request[Any]) -> list[Any]:
            replies = send(self, request)
            commands = {call.command for call in request.calls}
            if commands & MAKING and not calls["busy"]:
                calls["trips"] += 1
                calls["busy"] = 1
                try:
                    do(calls["trips"])
                finally:
                    calls["busy"] = 0
            return replies

        monkeypatch.setattr(Executor, "send", sending)

    yield interrupting
    assert calls["trips"]


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("name", NARROWED)
def test_it_is_what_the_filters_say(
    zrank: Redis, index: type[RankIndex], name: str, pages_of_ten: None
) -> None:
    rng = random.Random(f"{index.name} {name}")
    rows = {pk: person(rng) for pk in ALL}
    group = set(rng.sample(ALL, 30))
    for declared in (index, sharded(index, 3)):
        populate(declared, rows)
        declared.group("live").add(*group)
        ranking = NARROWED[name](declared.ranking)
        expected = {pk: row for pk, row in rows.items() if passes(name, pk, row, group)}
        assert {entry.pk: entry.score for entry in ranking.top(100)} == {
            pk: row["points"] for pk, row in expected.items()
        }
        assert ranking.count() == len(expected)
        assert ranking.counts("region") == Counter(row["region"] for row in expected.values())
        values = sorted({(-row["points"], row["lost"] * (index is not Pieces)) for row in expected.values()})
        if index.ranking_method == "dense":
            ranks = {pk: 1 + values.index((-row["points"], row["lost"])) for pk, row in expected.items()}
            assert {entry.pk: entry.rank for entry in ranking.top(100)} == ranks


@pytest.mark.parametrize("shards", [None, 3])
@pytest.mark.parametrize("index", INDEXES)
def test_all_but_those_of_one_value_are_counted_by_a_difference(
    zrank: Redis, index: type[RankIndex], shards: int | None
) -> None:
    rng = random.Random(7)
    rows = {pk: person(rng) for pk in ALL}
    declared = sharded(index, shards) if shards else index
    populate(declared, rows)
    ranking = declared.ranking
    for region in (*REGIONS, "nowhere"):
        others = [row for row in rows.values() if row["region"] != region]
        assert ranking.exclude(region=region).count() == len(others)
        assert ranking.exclude(region=region).exists()
    assert ranking.exclude(region__in=[]).count() == len(rows)
    assert not [*zrank.scan_iter("*:combined_filter:*")]
    assert ranking.exclude(region__in=REGIONS).count() == 0
    assert [*zrank.scan_iter("*:combined_filter:*")]
    populate(declared, rows | {100: {**rows[1], "region": "kansai"}})  # another build is live
    assert ranking.exclude(region="kantou").count() == 1 + sum(
        row["region"] != "kantou" for row in rows.values()
    )


class PiecesWide(Pieces):
    """Integers beyond what a score holds exactly."""

    name = "pieces-wide"
    order = ("-total", "lost")


CUT = {
    **NARROWED,
    "neither": lambda ranking: ranking.exclude(region="kansai").exclude(platform__in=["pc", "nothing"]),
    "both of two": lambda ranking: ranking.filter(region="kantou", platform="pc"),
    "one of each": lambda ranking: ranking.filter(
        region__in=["kansai", "kantou"], platform__in=["pc", "ps", "nothing"]
    ),
    "nobody": lambda ranking: ranking.filter(region="kantou", platform__in=["nothing", "nowhere"]),
}


@pytest.mark.parametrize("index", [Pieces, PiecesTied, PiecesWide])
@pytest.mark.parametrize("name", [name for name in CUT if "group" not in name and name != "many values"])
def test_a_small_set_is_cut_down_at_once(
    zrank: Redis, index: type[RankIndex], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"{index.name} {name}")
    totals = [2**63 - 1, 2**62 + 1, 2**62, 2**53 + 1, 2**53, 0, -(2**53) - 1, -(2**63)]
    populate(index, {pk: {**person(rng), "total": rng.choice(totals)} for pk in ALL})
    ranking, requests, send = CUT[name](index.ranking), list[Request[Any]](), Executor.send
    ranking._reader.trust.until = 0.0  # of an earlier test, it may be over in the middle of this one
    monkeypatch.setattr(reader, "_TRUST", 60.0)  # the server isn't looked at again, however long this takes
    index.ranking.count()

    def sending(self: Executor, request: Request[Any]) -> list[Any]:
        requests.append(request)
        return send(self, request)

    monkeypatch.setattr(Executor, "send", sending)
    found = ranking.top(100)
    assert len(requests) == 2
    assert not [key for key in zrank.scan_iter("*:combined_filter:*") if b":new" in key]
    forget(zrank)
    monkeypatch.setattr(making, "_SMALL", 0)
    assert ranking.top(100) == found
    assert len(requests) > 4 or not found
    assert bool(found) == (name != "nobody")


def test_whoever_finds_another_one_making_it_waits(zrank: Redis, pages_of_ten: None) -> None:
    rng = random.Random(1)
    rows = {pk: person(rng) for pk in ALL}
    store, view = populate(Pieces, rows), NARROWED["two facets"](Pieces.ranking).view
    keys = store.learn()
    maker, other = Size().steps(view, keys), Size().steps(view, keys)

    def go_on(steps: Steps[int], step: Any) -> Any:
        assert isinstance(step, Request)
        return steps.send(store.send(step))

    def finish(steps: Steps[int], step: Any) -> int:
        try:
            while True:
                step = go_on(steps, step)
        except StopIteration as end:
            return int(end.value)

    left = go_on(maker, go_on(maker, next(maker)))  # a piece is made
    assert go_on(other, go_on(other, next(other))) is making._PAUSE
    count = sum(passes("two facets", pk, row, set()) for pk, row in rows.items())
    assert finish(maker, left) == count
    assert finish(other, next(other)) == count


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("name", NARROWED)
@pytest.mark.parametrize("at_once", [3, 25])
def test_members_move_between_any_two_pages(
    zrank: Redis, index: type[RankIndex], name: str, at_once: int, between: Any, pages_of_ten: None
) -> None:
    """Those that aren't written stand where they stand; others where they have stood at one moment."""
    rng = random.Random(f"{index.name} {name} {at_once}")
    rows: dict[int, Row | None] = {pk: person(rng) for pk in ALL}
    store = populate(index, rows)  # type: ignore[arg-type]
    group = set(rng.sample(ALL, 30))
    index.group("live").add(*group)
    states: dict[int, list[Row | None]] = {pk: [row] for pk, row in rows.items()}

    def move(trip: int) -> None:
        written = {pk: rng.choice([person(rng), person(rng), None]) for pk in rng.sample(ALL, at_once)}
        for pk, row in written.items():
            states[pk].append(row)
        if trip < 12:
            write(store, index, written)

    between(move)
    found = NARROWED[name](index.ranking).top(100)
    scores = {entry.pk: entry.score for entry in found}
    assert len(found) == len(scores), "nobody twice"
    for pk, each in states.items():
        passing = [row and passes(name, pk, row, group) for row in each]
        if pk in scores:
            assert scores[pk] in [
                row["points"] for row, one in zip(each, passing, strict=True) if row and one
            ]
        else:
            assert not all(passing), "it passed all the time"
    assert not [key for key, seconds in seconds_left(zrank).items() if seconds < 0]


def test_many_members_that_one_write_has_moved(zrank: Redis, between: Any, pages_of_ten: None) -> None:
    """More than are read in one page have the same version."""
    rng = random.Random(1)
    rows = {pk: {**person(rng), "region": "kantou", "platform": "pc"} for pk in ALL}
    store = populate(PiecesTied, rows)
    between(
        lambda trip: (
            write(
                store, PiecesTied, {pk: {**row, "lost": trip, "region": "kansai"} for pk, row in rows.items()}
            )
            if trip in (2, 3)
            else None
        )
    )
    found = PiecesTied.ranking.filter(region__in=["kantou", "kansai"], platform="pc").top(100)
    assert sorted(entry.pk for entry in found) == [*ALL]


def test_it_is_kept_for_seconds_and_then_made_anew(zrank: Redis) -> None:
    rng = random.Random(2)
    populate(Pieces, {pk: person(rng) for pk in ALL})
    Pieces.group("live").add(1, 2)
    ranking = Pieces.ranking.filter(group="live")
    assert ranking.count() == 2
    found = seconds_left(zrank)
    assert sorted(key.rpartition(b":")[2] == b"stamp" for key in found) == [False, True]
    assert all(0 < seconds <= 65 for seconds in found.values())
    Pieces.group("live").add(3)
    assert ranking.count() == 2
    forget(zrank)
    assert ranking.count() == 3
    assert zrank.zcard(registry_of(Pieces.ranking.store.live)) == 1


def test_it_is_kept_for_longer_where_its_making_takes_long(
    zrank: Redis, monkeypatch: pytest.MonkeyPatch, pages_of_ten: None
) -> None:
    monkeypatch.setattr(making, "SHARE", 10**6)
    populate(Pieces, {pk: person(random.Random(pk)) for pk in ALL})
    all_but(Pieces, "kantou").count()  # in dozens of round trips, so a millisecond at least
    (stamp,) = zrank.scan_iter("*:stamp")
    assert zrank.ttl(stamp) > 900


def test_those_that_nobody_reads_any_more_are_unlinked(zrank: Redis) -> None:
    store = populate(Pieces, {pk: person(random.Random(pk)) for pk in ALL})
    all_but(Pieces, "kantou").count()
    registry = registry_of(store.live)
    (first,) = zrank.zrange(registry, 0, -1)
    zrank.zadd(registry, {first: 1})
    all_but(Pieces, "kansai").count()
    assert not zrank.exists(first)
    assert zrank.zcard(registry) == 1


def test_one_that_is_evicted_is_made_again(zrank: Redis) -> None:
    populate(Pieces, {pk: person(random.Random(pk)) for pk in ALL})
    ranking = all_but(Pieces, "kantou")
    expected = ranking.count()
    (key,) = zrank.scan_iter("*:combined_filter:*[0-9a-f]", _type="zset")
    zrank.unlink(key)
    assert ranking.count() == expected > 0


def test_one_that_is_evicted_whenever_it_is_made(
    zrank: Redis, settings: Any, monkeypatch: pytest.MonkeyPatch, pages_of_ten: None
) -> None:
    populate(Pieces, {pk: person(random.Random(pk)) for pk in ALL})
    send = Executor.send

    def evicting(self: Executor, request: Request[Any]) -> list[Any]:
        replies = send(self, request)
        for call in request.calls:
            if call.command in MAKING:
                zrank.unlink(call.keys[4])
        return replies

    monkeypatch.setattr(Executor, "send", evicting)
    settings.ZRANK = {"FILTER_TIMEOUT": 0.05}
    with pytest.raises(FilterNotReady):
        all_but(Pieces, "kantou").count()


def test_clients_that_ask_at_once_make_it_once(zrank: Redis, pages_of_ten: None) -> None:
    populate(Pieces, {pk: person(random.Random(pk)) for pk in range(1, 200)})
    ranking, barrier = all_but(Pieces, "kantou"), Barrier(4)
    zrank.config_resetstat()
    expected, pages = ranking.count(), number_of(zrank, "zrange")
    forget(zrank)

    def ask(_: int) -> int:
        barrier.wait()
        return ranking.count()

    zrank.config_resetstat()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [expected] * 4
    assert number_of(zrank, "zrange") == pages > 2


def test_what_a_killed_client_began_is_made_by_another(
    zrank: Redis, between: Any, pages_of_ten: None
) -> None:
    populate(Pieces, {pk: person(random.Random(pk)) for pk in ALL})
    ranking = all_but(Pieces, "kantou")
    expected = ranking.count()
    forget(zrank)

    def kill(trip: int) -> None:
        raise KeyboardInterrupt

    between(kill)
    with pytest.raises(KeyboardInterrupt):
        ranking.count()
    between(lambda trip: None)
    with pytest.raises(FilterNotReady):
        ranking.within(seconds=0).count()
    assert ranking.count() == expected, "after it has waited"


def give_up(ranking: Any, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(FilterNotReady):
            ranking.within(seconds=0).count()


def test_a_later_call_goes_on_with_what_was_given_up(zrank: Redis, pages_of_ten: None) -> None:
    populate(PiecesTied, {pk: person(random.Random(pk)) for pk in range(1, 200)})
    ranking = all_but(PiecesTied, "kantou")
    zrank.config_resetstat()
    expected, pages = ranking.count(), number_of(zrank, "zrange")
    forget(zrank)
    zrank.config_resetstat()
    give_up(ranking, 3)
    assert ranking.count() == expected
    assert number_of(zrank, "zrange") == pages > 5
    assert sorted(key.rpartition(b":")[2] == b"stamp" for key in seconds_left(zrank)) == [False, True]


def test_a_client_that_gives_up_keeps_nobody_from_going_on(
    zrank: Redis, between: Any, pages_of_ten: None
) -> None:
    populate(PiecesTied, {pk: person(random.Random(pk)) for pk in range(1, 200)})
    ranking = all_but(PiecesTied, "kantou")
    between(lambda trip: sleep(0.02))
    with pytest.raises(FilterNotReady):
        ranking.within(seconds=0.05).count()
    zrank.config_resetstat()
    give_up(ranking)
    assert number_of(zrank, "zrange") == 1


def test_counts_go_on_too(zrank: Redis, pages_of_ten: None) -> None:
    populate(Pieces, {pk: person(random.Random(pk)) for pk in range(1, 200)})
    ranking = all_but(Pieces, "kantou")
    expected, found, attempts = ranking.counts("platform"), None, 0
    for key in zrank.scan_iter("*:combined_filter*"):
        zrank.unlink(key)
    while found is None:
        attempts += 1
        with suppress(FilterNotReady):
            found = ranking.within(seconds=0).counts("platform")
    assert found == expected
    assert attempts > 5


@pytest.mark.parametrize("lost", ["server", "started", "version", "key", "noted"])
def test_what_another_server_lost_is_begun_anew(zrank: Redis, lost: str, pages_of_ten: None) -> None:
    """A failover loses pages, and another server has other cursors; a rebuild forgets who was written."""
    store = populate(PiecesTied, {pk: person(random.Random(pk)) for pk in range(1, 200)})
    ranking = all_but(PiecesTied, "kantou")
    expected = ranking.count()
    forget(zrank)
    give_up(ranking, 3)
    (making,) = zrank.scan_iter("*:making")
    change = """local state = cmsgpack.unpack(redis.call('GET', KEYS[1]))
        state.set = 99 -- nothing is left to read
        state.server = ARGV[1] == 'server' and 'another' or state.server
        redis.call('SET', KEYS[1], cmsgpack.pack(state), 'KEEPTTL')"""
    zrank.eval(change, 1, making, lost)
    if lost == "started":
        zrank.hset(store.keys.meta, "started", 1000)
    elif lost == "version":
        later = int(zrank.hget(store.keys.meta, "applied") or 0) + 1  # type: ignore[arg-type]
        zrank.hset(store.keys.meta, mapping={"applied": later, "floor": later})
    elif lost in ("key", "noted"):
        zrank.unlink(making.removesuffix(b":making") + b":noted" * (lost == "noted"))
    assert ranking.count() == expected


@pytest.mark.parametrize("evicted_before", [False, True])
def test_versions_that_are_evicted(
    zrank: Redis, evicted_before: bool, between: Any, pages_of_ten: None
) -> None:
    rng = random.Random(4)
    rows: dict[int, Row | None] = {pk: person(rng) for pk in ALL}
    store = populate(PiecesTied, rows)  # type: ignore[arg-type]
    write(store, PiecesTied, {1: person(rng)})
    if evicted_before:
        zrank.unlink(store.keys.recent)

    def evict(trip: int) -> None:
        if trip == 3:
            write(store, PiecesTied, {pk: {**person(rng), "region": "tohoku"} for pk in ALL})
            zrank.unlink(store.keys.recent)

    between(evict)
    found = PiecesTied.ranking.exclude(region="kantou").top(100)
    assert len(found) == len({entry.pk for entry in found})
    if not evicted_before:
        assert sorted(entry.pk for entry in found) == [*ALL]


@pytest.mark.parametrize("index", INDEXES)
def test_the_index_is_rebuilt_between_any_two_pages(
    zrank: Redis, index: type[RankIndex], between: Any, pages_of_ten: None
) -> None:
    rng = random.Random(1)
    rows = {pk: person(rng) for pk in ALL}
    store = populate(index, rows)

    def rebuild(trip: int) -> None:
        if trip in (4, 9):
            rows.update({pk: person(rng) for pk in ALL})
            start(store, str(trip))
            assert load_rows(store, str(trip), [change(index, pk, row) for pk, row in rows.items()])
            assert store.swap_rebuilt(str(trip))

    index.ranking.count()  # this process knows the live build
    between(rebuild)
    found = NARROWED["two facets"](index.ranking).top(100)
    assert {entry.pk: entry.score for entry in found} == {
        pk: row["points"] for pk, row in rows.items() if passes("two facets", pk, row, set())
    }


@pytest.mark.parametrize("by", [1, -1], ids=["later", "sooner"])
def test_members_that_renew_meanwhile_are_not_missed(
    zrank: Redis, by: int, between: Any, pages_of_ten: None
) -> None:
    populate(Pieces, {pk: person(random.Random(pk)) for pk in range(1, 400)})
    group = Pieces.group("live")
    group.add(*range(1, 300))
    zrank.zadd(group_key(Pieces.ranking.store.keys, "live"), {str(pk): 5e15 + pk for pk in range(1, 300)})

    def renew(trip: int) -> None:
        if trip % 7 == 0 and trip < 60:
            key = group_key(Pieces.ranking.store.keys, "live")
            zrank.zadd(key, {str(300 - trip): 5e15 + by * 10**15 + trip})

    between(renew)
    assert Pieces.ranking.filter(group="live").count() == 299


def test_who_was_read_with_tie_bytes_and_without_is_gone_in_both_forms(
    zrank: Redis, between: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "_PAGE", 10)
    store = Store("wide", Layout(0, True))
    start(store, "a")
    far = Change("99", -(2.0**60), b"\0" + bytes(8))
    assert load_rows(store, "a", [far, *(Change(str(pk), pk) for pk in range(1, 201))])
    assert store.swap_rebuilt("a")
    states = {5: Change("99", 20.5), 10: Change("99", None)}
    between(lambda trip: apply_changes(store, begin_write(store), [states[trip]]) if trip in states else None)
    view = CombinedView(store.layout, filters=CombinedFilter((Clause(True, "g", ("nobody",)),)))
    assert store.run(lambda keys: Size().steps(view, keys)) == 199


@pytest.mark.part("write_behind")
@pytest.mark.parametrize("begins_at", [0, 5])
def test_scores_that_fall_in_redis_first(
    zrank: Redis, begins_at: int, between: Any, pages_of_ten: None
) -> None:
    """No version names these members, who move from what is left to read to what was read."""
    from django_zrank.write_behind.changes import ChangeScores

    store = populate(Pieces, {pk: {**person(random.Random(pk)), "points": pk} for pk in range(1, 101)})
    Pieces.group("live").add(200)

    def fall(trip: int) -> None:
        if begins_at <= trip < 10:
            falls = [(str(101 - trip), -1000)]
            store.run(ChangeScores(store.layout, "sum", (-(10**6), 10**6), falls).steps)

    fall(0)
    between(fall)
    found = {entry.pk for entry in Pieces.ranking.exclude(group="live").top(100)}
    assert found == {*range(1, 101)}


def test_a_ranking_is_read_on_from_where_its_last_member_was(
    zrank: Redis, between: Any, pages_of_ten: None
) -> None:
    """Who is read last is gone, and all that were read leave, so positions change."""
    rows = {pk: {**person(random.Random(pk)), "points": pk} for pk in range(1, 101)}
    store = populate(PiecesTied, rows)

    def remove(trip: int) -> None:
        if trip <= 10:
            write(store, PiecesTied, {10 * trip - at: None for at in range(8)})

    between(remove)
    found = {entry.pk for entry in PiecesTied.ranking.exclude(group="live").top(100)}
    assert found >= {pk for pk in rows if pk % 10 in (1, 2)}


def test_too_many_leave_nothing(zrank: Redis, settings: Any) -> None:
    populate(Pieces, {pk: person(random.Random(pk)) for pk in ALL})
    settings.ZRANK = {"MAX_SCAN": 1}
    ranking = all_but(Pieces, "kantou")
    for _ in range(2):
        with pytest.raises(FilterTooLarge, match="60 members, more than 1 "):
            ranking.count()
    assert not seconds_left(zrank)
    assert not zrank.zcard(registry_of(Pieces.ranking.store.live)), "it takes nobody's place"
