"""Intersections are made in pieces, beside the live index: interrupted between any two of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from redis import Redis

from django_zrank import RankIndex
from django_zrank.codec.layout import Layout
from django_zrank.engine.executor import Executor
from django_zrank.exceptions import FilterTooLarge
from django_zrank.facets import Facet
from django_zrank.filters import Clause, Scope
from django_zrank.requests.counts import CountFacet, Size
from django_zrank.requests.groups import add_to_group
from django_zrank.requests.pace import Pace
from django_zrank.requests.pages import PageAt
from django_zrank.requests.query import as_query, chained
from django_zrank.requests.request import Request
from django_zrank.requests.view import View
from django_zrank.store import Change, Store
from tests.builds import load_rows, start
from tests.populations import fill, populate
from tests.test_ranking import CompetitorRank, Row
from tests.testapp.zrank import PlayerAscending

from .conftest import ask

BOTH = Scope((Clause(False, "g", ("a",)), Clause(False, "g", ("b",))))


def add(store: Store, group: str, *members: str) -> None:
    store.run(lambda keys: add_to_group(keys, group, members, float("inf")))


@pytest.fixture
def narrowed(zrank: Redis, store: Store) -> Store:
    """Members in both groups."""
    add(store, "a", "1", "2")
    add(store, "b", "2", "3")
    return store


def times(zrank: Redis, pattern: str = "*:intersection:*") -> dict[bytes, Any]:
    return {key: zrank.ttl(key) for key in zrank.scan_iter(pattern)}


def steps(store: Store, question: Any, view: View) -> Iterator[Any]:
    """Ask a question, one round trip at a time; the last one is the answer."""
    answer = chained(question.query(view, store.learn()))
    while isinstance(answer, Request):
        answer = answer.parse(store.send(answer))
        yield answer


def test_it_is_kept_for_seconds_and_leaves_nothing_else(zrank: Redis, narrowed: Store) -> None:
    assert ask(narrowed, Size(), scope=BOTH) == 1
    found = times(zrank)
    assert sorted(key.rpartition(b":")[2] == b"making" for key in found) == [False, True]
    assert all(0 < seconds <= 60 for seconds in found.values())


def test_it_is_made_anew_after_seconds_and_the_old_one_is_unlinked(zrank: Redis, narrowed: Store) -> None:
    assert ask(narrowed, Size(), scope=BOTH) == 1
    add(narrowed, "a", "3")
    assert ask(narrowed, Size(), scope=BOTH) == 1
    (making,) = times(zrank, "*:making")
    zrank.hset(making, "fresh", 1)
    assert ask(narrowed, Size(), scope=BOTH) == 2
    others = Scope((*BOTH.clauses, Clause(True, "g", ("c",))))
    registry = narrowed.live.intersections
    assert zrank.zcard(registry) == 1
    zrank.zadd(registry, dict.fromkeys(zrank.zrange(registry, 0, -1), 1))
    assert ask(narrowed, Size(), scope=others) == 2
    assert len(times(zrank)) == 3, "two that are noted, and one that is there"


def test_too_many(zrank: Redis, narrowed: Store, settings: Any) -> None:
    settings.ZRANK = {"MAX_SCAN": 1}
    with pytest.raises(FilterTooLarge, match="2 members, more than 1"):
        ask(narrowed, Size(), scope=BOTH)
    assert not times(zrank)


def test_many_wait_for_the_one_who_makes_it(narrowed: Store) -> None:
    view = View(narrowed.layout, BOTH)
    (call,) = chained(Size().query(view, narrowed.live)).calls
    first = narrowed.send(Request((call,), list))[0]
    assert first[:2] == [b"going", 1]
    waiting = chained(Size().query(view, narrowed.live))
    waiting = waiting.parse(narrowed.send(waiting))
    assert isinstance(waiting, Request)
    assert waiting.delay > 0
    with mock.patch("django_zrank.engine.executor.sleep") as slept:
        *_, answer = steps(narrowed, view_made(view, first[1]), view)
        assert answer == 1
        assert not slept.called, "the one who makes it waits for nobody"
        assert waiting.parse(narrowed.send(waiting)) == 1
        assert slept.called


def view_made(view: View, step: int) -> Any:
    """The question of a client that has got an intersection to a step."""
    return mock.Mock(query=lambda _, keys: as_query(view.make(keys, step=str(step).encode())))


def test_what_a_killed_client_began_is_finished_by_another(zrank: Redis, narrowed: Store) -> None:
    view = View(narrowed.layout, BOTH)
    next(steps(narrowed, Size(), view))
    (making,) = times(zrank, "*:making")
    zrank.hset(making, "lease", 1)  # long ago: it is begun anew
    assert ask(narrowed, Size(), scope=BOTH) == 1


# Interrupted


class Pieces(CompetitorRank):
    name = "pieces"
    facets = ("region", "platform")


class PiecesTied(Pieces):
    name = "pieces-tied"
    order = ("-points", "lost")


class PiecesDense(PiecesTied):
    name = "pieces-dense"
    ranking_method = "dense"


REGIONS, PLATFORMS = ("kantou", "kansai", "tohoku"), ("pc", "ps", None)
SCOPES = {
    "two facets": Scope(
        (Clause(False, "r", ("region:kantou",)), Clause(False, "r", ("platform:pc", "platform:ps")))
    ),
    "one of several": Scope((Clause(False, "r", ("region:kansai", "region:kantou")),)),
    "all but": Scope((Clause(True, "r", ("region:kansai",)),)),
    "a group": Scope((Clause(False, "g", ("live",)), Clause(True, "r", ("platform:pc",)))),
    "many values": Scope(
        (
            Clause(False, "g", ("live",)),
            Clause(False, "r", ("platform:1", "platform:2", "platform:3", "platform:pc", "platform:ps")),
        )
    ),
}


def person(rng: random.Random) -> Row:
    points, lost = rng.randrange(20), rng.randrange(3)
    return {
        "points": points,
        "lost": lost,
        "region": rng.choice(REGIONS),
        "platform": rng.choice(PLATFORMS),
        "tags": set(),
    }


def passes(scope: Scope, member: int, one: Row | None, group: set[int]) -> bool:
    if one is None:
        return False
    names = {f"region:{one['region']}", f"platform:{one['platform'] or '*'}"}
    return all(
        ((member in group) if kind == "g" else bool(names & set(sets))) != negated
        for negated, kind, sets in scope.clauses
    )


def written(index: type[RankIndex], member: int, one: Row | None) -> Change:
    from tests.test_asking import change

    return Change(str(member), None) if one is None else change(index, member, one)


@pytest.mark.parametrize("index", [Pieces, PiecesTied, PiecesDense])
@pytest.mark.parametrize("scope", SCOPES.values(), ids=list(SCOPES))
@pytest.mark.parametrize("facet", ["", "region"])
def test_members_move_between_any_two_pieces(
    zrank: Redis, index: type[RankIndex], scope: Scope, facet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written members stand where they stand at the end; all others where they have been all the time."""
    monkeypatch.setattr(View, "PACE", Pace(30, 30))
    rng = random.Random(str((index.name, scope, facet)))
    rows: dict[int, Row | None] = {pk: person(rng) for pk in range(1, 61)}
    store = populate(index, rows)  # type: ignore[arg-type]
    group = set(rng.sample(range(1, 61), 30))
    add(store, "live", *map(str, group))
    view = View(store.layout, scope, True, index.instance().get_ranking_method())
    question: Any = CountFacet(Facet(("region",), (), many=False)) if facet else PageAt(0, 1000)
    interrupted = 0
    answer: Any = None
    for answer in steps(store, question, view):  # noqa: B007
        phase = [zrank.hget(key, "phase") for key in zrank.scan_iter("*:making")]
        if phase in ([b"scan"], [b"written"]) and interrupted < 15:
            interrupted += 1
            for member in rng.sample(range(1, 61), 3):
                rows[member] = rng.choice([person(rng), person(rng), None])
                store.apply_changes(store.begin_write(), [written(index, member, rows[member])])
    assert interrupted > 8
    expected = {pk: one for pk, one in rows.items() if one and passes(scope, pk, one, group)}
    if facet:
        assert answer == {
            f"region:{region}".encode(): number
            for region in REGIONS
            if (number := sum(one["region"] == region for one in expected.values()))
        }
    else:
        found = {int(store.layout.split(stored)[1]): score for stored, score in answer.members}
        assert found == {pk: one["points"] for pk, one in expected.items()}
        assert len(answer.members) == len(found), "nobody twice"
    assert not [key for key in zrank.scan_iter("*:intersection:*") if zrank.ttl(key) < 0]


@pytest.mark.parametrize("question", [PageAt(0, 1000), CountFacet(Facet(("region",), (), many=False))])
def test_what_there_is_of_it_stays_as_long_as_it_is_made(
    zrank: Redis, question: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by pieces that put nothing in."""
    monkeypatch.setattr(View, "PACE", Pace(1, 1))
    rng = random.Random(2)
    rows = {pk: person(rng) | {"points": pk, "platform": "pc" if pk < 9 else None} for pk in range(1, 61)}
    store = populate(PiecesDense, rows)
    view = View(store.layout, SCOPES["two facets"], True, "dense")
    pieces = 0
    for pieces, _ in enumerate(steps(store, question, view), 1):  # noqa: B007
        found = times(zrank)
        assert min(found.values()) > 50
        if any(zrank.hexists(key, "in_place") for key in found if key.endswith(b":making")):
            break  # it is made
        for key in found:
            zrank.expire(key, 50)
    assert pieces > 5


@pytest.mark.parametrize("facet", ["", "region"])
def test_its_pieces_say_what_they_took(zrank: Redis, facet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the next ones are as large as the server allows."""
    noted: list[tuple[float, float]] = []
    monkeypatch.setattr(View, "PACE", Pace(30, 30))
    monkeypatch.setattr(Pace, "note", lambda pace, cost, seconds: noted.append((cost, seconds)))
    rng = random.Random(3)
    store = populate(Pieces, {pk: person(rng) for pk in range(1, 61)})
    noted.clear()  # what it took to write them
    add(store, "live", *map(str, range(1, 61)))
    question: Any = CountFacet(Facet(("region",), (), many=False)) if facet else Size()
    pieces = len(list(steps(store, question, View(store.layout, SCOPES["a group"]))))
    assert len(noted) >= pieces - 2 > 2
    assert all(0 < cost <= 60 and 0 < seconds < 1 for cost, seconds in noted)


@pytest.mark.parametrize("index", [PiecesTied, PiecesDense])
def test_the_index_is_rebuilt_between_any_two_pieces(
    zrank: Redis, index: type[RankIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(View, "PACE", Pace(1, 1))
    rng = random.Random(1)
    scope, rebuilds = SCOPES["two facets"], iter(range(2))
    rows: dict[int, Row] = {pk: person(rng) for pk in range(1, 61)}
    store = populate(index, rows)
    sends, send = 0, Executor.send

    def sending(self: Executor, request: Request[Any]) -> list[Any]:
        nonlocal sends, rows
        sends += 1
        if sends % 7 == 0 and next(rebuilds, None) is not None:
            rows = {pk: person(rng) for pk in range(1, 61)}
            populate_again(index, rows)
        return send(self, request)

    store.learn()
    monkeypatch.setattr(Executor, "send", sending)
    page = ask(store, PageAt(0, 1000), scope=scope)
    found = {int(store.layout.split(stored)[1]): score for stored, score in page.members}
    assert sends > 20
    assert found == {pk: one["points"] for pk, one in rows.items() if passes(scope, pk, one, set())}


def populate_again(index: type[RankIndex], rows: dict[int, Row]) -> None:
    """Another generation, put in the place of the live one by somebody else."""
    with mock.patch.object(Executor, "learn"):
        populate(index, rows)


def test_members_that_renew_meanwhile_are_not_missed(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "PACE", Pace(20, 20))
    store = fill(PlayerAscending, {pk: pk for pk in range(1, 41)})
    for pk in range(1, 41):
        store.run(lambda keys, pk=pk: add_to_group(keys, "a", [str(pk)], 4e15 + pk))  # type: ignore[misc]
    view = View(store.layout, Scope((Clause(False, "g", ("a",)),)))
    answer = None
    for at, answer in enumerate(steps(store, Size(), view), 1):  # noqa: B007
        if at <= 40:
            store.run(lambda keys, at=at: add_to_group(keys, "a", [str(41 - at)], 5e15 + at))  # type: ignore[misc]
    assert answer == 40


def test_who_was_read_with_tie_bytes_and_without_is_gone_in_both_forms(
    zrank: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(View, "PACE", Pace(20, 20))
    store = Store("wide", Layout(0, True))
    start(store, "a")
    far = Change("99", -(2.0**60), b"\0" + bytes(8))
    assert load_rows(store, "a", [far, *(Change(str(pk), pk) for pk in range(1, 41))])
    assert store.swap_rebuilt("a")
    view = View(store.layout, Scope((Clause(True, "g", ("nobody",)),)))
    answer = None
    for at, answer in enumerate(steps(store, Size(), view)):  # noqa: B007
        if at == 0:
            store.apply_changes(store.begin_write(), [Change("99", 20.5)])
        (phase,) = [zrank.hget(key, "phase") for key in zrank.scan_iter("*:making")]
        if phase == b"written":
            store.apply_changes(store.begin_write(), [Change("99", None)])
    assert answer == 40
