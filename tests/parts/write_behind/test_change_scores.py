"""With increment_scores.lua, which does the same for members of one ranking."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis, ResponseError

from django_zrank.codec.layout import PLAIN, Layout
from django_zrank.exceptions import IndexUnavailable
from django_zrank.queries.request import Call
from django_zrank.redis.sending import send_all
from django_zrank.store import Change
from django_zrank.write_behind.changes import INCREMENT_SCORES, Changed, ChangeScores
from django_zrank.write_behind.keys import once_key, pending_key
from django_zrank.write_behind.store import PendingStore
from tests.builds import TERM, load_rows, shadow, start

from .scripted import RULE, pending, ruled, take

FACETED, DENSE = Layout(memberships=True), Layout(memberships=True, beside="dense")
SCRIPTS = pytest.mark.parametrize("key", ["", "k"], ids=["increment_scores", "change_scores"])


def ask(
    store: PendingStore, changes: dict[str, int], key: str = "", limits: tuple[int, int] = (-100, 100)
) -> Changed:
    question = ChangeScores(store.layout, store.rule, limits, [*changes.items()], key, 60)
    found: Changed = store.run(question.steps)
    return found


def build(store: PendingStore, name: str, rows: dict[str, int], membership: bytes = b"") -> None:
    """Make members the live build."""
    plain = PendingStore(store.name, store.layout)  # which adds nothing to rows
    assert start(plain, name)
    assert load_rows(plain, name, [Change(member, score, membership) for member, score in rows.items()])
    assert plain.swap_rebuilt(name)
    store.believe(name)


def faceted(store: PendingStore, layout: Layout = FACETED, rule: str = RULE) -> PendingStore:
    """An index of the members 1, 2 and 3, each its own score, which stand in a ranking of a facet, too."""
    found = ruled(store.name, layout, rule)
    build(found, "faceted", {"1": 1, "2": 2, "3": 3}, b"region:x")
    return found


def scores_of(client: Redis, key: str) -> dict[str, float]:
    found: Any = client.zrange(key, 0, -1, withscores=True)
    return {member.decode(): score for member, score in found}


@SCRIPTS
@pytest.mark.parametrize("changes", [{"1": 5}, {"1": 5, "3": -7}], ids=["one", "two"])
def test_all_members_are_changed(
    zrank: Redis, scores: PendingStore, key: str, changes: dict[str, int]
) -> None:
    expected = {member: int(member) + by for member, by in changes.items()}
    found = ask(scores, changes, key)
    assert (found.outcome, [int(score) for score in found.results]) == ("done", [*expected.values()])
    assert scores_of(zrank, scores.live.root) == {"1": 1, "2": 2, "3": 3} | expected
    assert pending(scores) == changes
    assert scores.read_meta("held", "rule") == [RULE, RULE]


@SCRIPTS
@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"7": 1}, ("missing", ["7"])),
        ({"1": 1, "7": 1, "8": 1000}, ("missing", ["7", "8"])),
        ({"1": 1000}, ("beyond", ["1"])),
        ({"1": -1000}, ("beyond", ["1"])),
        ({"1": 100}, ("beyond", ["1"])),
        ({"1": 1, "2": 99, "3": -104}, ("beyond", ["2", "3"])),
        ({"1": 2**53}, ("beyond", ["1"])),
        ({"1": -(2**53)}, ("beyond", ["1"])),
    ],
)
def test_nothing_is_changed_if_one_can_not_be(
    zrank: Redis, scores: PendingStore, key: str, changes: dict[str, int], found: tuple[str, list[str]]
) -> None:
    before = scores_of(zrank, scores.live.root)
    outcome, members = ask(scores, changes, key)
    assert (outcome, sorted(one.decode() if isinstance(one, bytes) else one for one in members)) == found
    assert (scores_of(zrank, scores.live.root), pending(scores)) == (before, {})
    assert scores.read_meta("held") == [""]
    assert ask(scores, {"1": 1}, key).outcome == "done"  # the key has named no call


@SCRIPTS
@pytest.mark.parametrize(("score", "by"), [(200, -5), (200, -150), (-200, 5), (-200, 250), (100, -1)])
def test_a_score_beyond_the_range_may_return(
    zrank: Redis, scores: PendingStore, key: str, score: int, by: int
) -> None:
    """As after the column's range was narrowed."""
    zrank.zadd(scores.live.root, {"1": score})
    outcome = "done" if abs(score + by) <= 100 or abs(score + by) < abs(score) else "beyond"
    assert ask(scores, {"1": by}, key).outcome == outcome
    zrank.zadd(scores.live.root, {"1": score})
    assert ask(scores, {"1": by, "2": 1}, key and f"{key}2").outcome == outcome


@SCRIPTS
def test_a_rebuild_gets_the_changes_of_its_members(zrank: Redis, scores: PendingStore, key: str) -> None:
    assert start(scores, "next")
    assert load_rows(scores, "next", [Change("1", 1), Change("2", 2)])
    for changes in ({"1": 5}, {"1": 5, "2": 5, "3": 5}):
        assert ask(scores, changes, key and f"{key}{len(changes)}").outcome == "done"
    assert scores_of(zrank, shadow(scores, "next")) == {"1": 11, "2": 7}
    assert scores_of(zrank, scores.live.root) == {"1": 11, "2": 7, "3": 8}


@SCRIPTS
def test_a_rebuild_that_has_no_such_member_yet(zrank: Redis, scores: PendingStore, key: str) -> None:
    assert start(scores, "next")
    for changes in ({"1": 5}, {"1": 5, "2": 5}):
        assert ask(scores, changes, key and f"{key}{len(changes)}").outcome == "done"
    assert not zrank.exists(shadow(scores, "next"))


@SCRIPTS
def test_a_rebuild_of_another_declaration_gets_them_from_their_flush(
    zrank: Redis, scores: PendingStore, key: str
) -> None:
    build(scores, "one-1", {"1": 1, "2": 2})
    assert start(scores, "other-1")
    zrank.zadd(shadow(scores, "other-1"), {"1": 1, "2": 2})
    for changes in ({"1": 5}, {"1": 5, "2": 5}):
        assert ask(scores, changes, key and f"{key}{len(changes)}").outcome == "done"
    assert scores_of(zrank, shadow(scores, "other-1")) == {"1": 1, "2": 2}


@SCRIPTS
def test_the_build_that_was_put_in_place_is_changed(zrank: Redis, scores: PendingStore, key: str) -> None:
    believed = scores.live.build
    build(scores, "second", {"1": 1, "2": 2})
    scores.believe(believed)
    for changes in ({"1": 5}, {"1": 5, "2": 5}):
        scores.believe(believed)
        assert ask(scores, changes, key and f"{key}{len(changes)}").outcome == "done"
    assert scores_of(zrank, scores.keys.at("second").root) == {"1": 11, "2": 7}


@SCRIPTS
@pytest.mark.parametrize("changes", [{"1": 5}, {"1": 5, "3": -7}], ids=["one", "two"])
def test_changes_that_were_evicted_are_missed_after_others(
    scores: PendingStore, key: str, changes: dict[str, int]
) -> None:
    assert ask(scores, changes, key).outcome == "done"
    scores.client.delete(pending_key(scores.keys))
    assert ask(scores, changes, key and f"{key}2").outcome == "done"
    assert scores.check_health().is_evicted


@SCRIPTS
def test_another_rule_waits_until_the_former_is_flushed(scores: PendingStore, key: str) -> None:
    assert ask(scores, {"1": 5}, key).outcome == "done"
    other = ruled(scores.name, PLAIN, "sum:other:0")
    for changes in ({"1": 5}, {"1": 5, "2": 5}):
        with pytest.raises(IndexUnavailable):
            ask(other, changes, key and f"{key}2")
    assert pending(scores) == {"1": 5}


@SCRIPTS
@pytest.mark.parametrize("ahead", [-2000, 3600 * 10**6])
def test_the_server_is_looked_at_again_after_a_millisecond(
    zrank: Redis, scores: PendingStore, key: str, ahead: int
) -> None:
    """And before it, if the last look was noted by a clock that was ahead."""
    assert ask(scores, {"1": 5}, key).outcome == "done"
    seconds, micros = zrank.time()  # type: ignore[misc]
    state = {"server": "another", "identified": seconds * 10**6 + micros + ahead}
    zrank.hset(scores.keys.meta, mapping=state)
    for changes in ({"1": 5}, {"1": 5, "2": 5}):
        with pytest.raises(IndexUnavailable):
            ask(scores, changes, key and f"{key}2")


# The short way: of one member, within a millisecond of a look at the server


IDENTIFY = """
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'identified', string.format('%.0f', time[1] * 1000000 + time[2]))
"""


def ask_at_once(store: PendingStore, *changes: int, rule: str = RULE) -> list[Any]:
    """Change the scores of the first members in the same moment in which the server has been looked at."""
    members = [(str(n), change) for n, change in enumerate(changes, 1)]
    question = ChangeScores(PLAIN, rule, (-100, 100), members)
    (call,) = next(question.steps(store.live)).calls
    store.client.script_load(INCREMENT_SCORES.source)
    identify = Call("EVAL", (), (IDENTIFY, 1, store.keys.meta))
    _, found = send_all(store.client, (identify, call), atomic=True)
    return found  # type: ignore[no-any-return]


@pytest.fixture
def unseen(zrank: Redis, scores: PendingStore) -> PendingStore:
    """Who looks at the server again finds that it is another one; more is pending."""
    assert ask(scores, {"1": 5, "2": 5}).outcome == "done"
    zrank.hset(scores.keys.meta, "server", "another")
    return scores


def test_the_server_is_not_looked_at_again_within_a_millisecond(zrank: Redis, unseen: PendingStore) -> None:
    assert ask_at_once(unseen, 7) == [b"done", 13]
    assert zrank.zscore(unseen.live.root, "1") == 13
    assert pending(unseen) == {"1": 12, "2": 5}


def test_several_members_are_changed_within_a_millisecond(unseen: PendingStore) -> None:
    assert ask_at_once(unseen, 7, 8) == [b"done", 13, 15]
    assert pending(unseen) == {"1": 12, "2": 13}


def test_a_rebuild_gets_the_change_within_a_millisecond(zrank: Redis, scores: PendingStore) -> None:
    assert start(scores, "next")
    assert load_rows(scores, "next", [Change("1", 1)])
    assert ask(scores, {"1": 5}).outcome == "done"
    assert ask_at_once(scores, 7) == [b"done", 13]
    assert scores_of(zrank, shadow(scores, "next")) == {"1": 13}


def test_another_rule_is_refused_within_a_millisecond(scores: PendingStore) -> None:
    assert ask(scores, {"1": 5}).outcome == "done"
    with pytest.raises(ResponseError, match="UNAVAILABLE"):
        ask_at_once(scores, 7, rule="sum:other:0")


def test_the_first_change_is_noted_within_a_millisecond(scores: PendingStore) -> None:
    """Or it would not be missed if it was evicted."""
    assert ask(scores, {"1": 5}).outcome == "done"
    assert take(scores)
    assert scores.settle_flush(TERM, 1)
    assert ask_at_once(scores, 7) == [b"done", 13]
    scores.client.delete(pending_key(scores.keys))
    assert scores.check_health().is_evicted


@pytest.mark.parametrize("change", [1000, -1000])
def test_what_leads_beyond_the_range_is_refused_within_a_millisecond(
    zrank: Redis, scores: PendingStore, change: int
) -> None:
    assert ask(scores, {"1": 5}).outcome == "done"
    assert ask_at_once(scores, change) == [b"beyond", b"1"]
    assert (zrank.zscore(scores.live.root, "1"), pending(scores)) == (6, {"1": 5})


# Calls under a key


def test_a_call_that_was_made_returns_the_scores_as_they_are(zrank: Redis, scores: PendingStore) -> None:
    assert ask(scores, {"1": 5, "2": 7}, "k").outcome == "done"
    assert ask(scores, {"1": 1}, "another").outcome == "done"
    outcome, found = ask(scores, {"2": 7, "1": 5}, "k")
    assert (outcome, [int(score) for score in found]) == ("replayed", [9, 7])
    assert pending(scores) == {"1": 6, "2": 7}
    assert 0 < zrank.ttl(once_key(scores.keys, "k")) <= 60


def test_a_call_that_was_made_is_refused_neither_for_its_range_nor_its_rule(scores: PendingStore) -> None:
    assert ask(scores, {"1": 99}, "k").outcome == "done"
    assert ask(scores, {"1": 99}, "k").outcome == "replayed"


@pytest.mark.parametrize("other", [{"1": 6}, {"2": 5}, {"1": 5, "2": 5}])
def test_a_key_names_one_call(scores: PendingStore, other: dict[str, int]) -> None:
    assert ask(scores, {"1": 5}, "k").outcome == "done"
    assert ask(scores, other, "k").outcome == "reused"
    assert pending(scores) == {"1": 5}


# Rules


@pytest.mark.parametrize(
    ("operation", "change", "score", "waits"),
    [
        ("max", 7, 7, {"2": 7}),
        ("max", 1, 2, {}),
        ("max", 2, 2, {}),
        ("min", 1, 1, {"2": 1}),
        ("min", 7, 2, {}),
        ("last", 7, 7, {"2": 7}),
        ("last", 2, 2, {"2": 2}),
    ],
)
def test_what_a_rule_makes_of_a_score(
    zrank: Redis, store: PendingStore, operation: str, change: int, score: int, waits: dict[str, int]
) -> None:
    """What doesn't change it isn't pending, unless it may be later than a change of the column."""
    scores = ruled(store.name, PLAIN, f"{operation}:level:0")
    found = ask(scores, {"2": change})
    assert (found.outcome, [int(one) for one in found.results]) == ("done", [score])
    assert scores_of(zrank, scores.live.root)["2"] == score
    assert pending(scores) == waits
    assert bool(scores.read_meta("held")[0]) == bool(waits)


@pytest.mark.parametrize(("operation", "waits", "change"), [("max", 50, 30), ("min", -50, -30)])
def test_a_change_that_waits_is_better_than_the_score_of_another_build(
    store: PendingStore, operation: str, waits: int, change: int
) -> None:
    scores = ruled(store.name, PLAIN, f"{operation}:level:0")
    assert ask(scores, {"2": waits}).outcome == "done"
    build(scores, "another", {"1": 1, "2": 2})
    found = ask(scores, {"2": change})
    assert [int(one) for one in found.results] == [waits]
    assert pending(scores) == {"2": waits}


@pytest.mark.parametrize(
    ("operation", "change", "built"),
    [("max", 40, 10), ("max", 60, 60), ("min", 70, 90), ("min", 40, 40), ("last", 40, 40)],
)
def test_a_rebuild_gets_what_is_pending(
    zrank: Redis, store: PendingStore, operation: str, change: int, built: int
) -> None:
    """It may have a row that is newer than the live score, and no worse change would leave a mark of it."""
    scores, row = ruled(store.name, PLAIN, f"{operation}:level:0"), 90 if operation == "min" else 10
    build(scores, "outdated", {"1": 50, "2": 50})
    assert start(scores, "next")
    assert load_rows(scores, "next", [Change("1", row), Change("2", row)])
    assert ask(scores, {"1": change, "2": 50}).outcome == "done"
    assert scores_of(zrank, shadow(scores, "next")) == {"1": built, "2": 50 if operation == "last" else row}


@pytest.mark.parametrize("operation", ["max", "min", "last"])
@pytest.mark.parametrize(("score", "change"), [(2, 101), (2, -101), (200, 150), (-200, -150)])
def test_a_score_that_is_set_stays_in_the_range(
    zrank: Redis, store: PendingStore, operation: str, score: int, change: int
) -> None:
    scores = ruled(store.name, PLAIN, f"{operation}:level:0")
    zrank.zadd(scores.live.root, {"2": score})
    after = {"max": max(score, change), "min": min(score, change), "last": change}[operation]
    is_worse = (after > 100 and after > score) or (after < -100 and after < score)
    assert ask(scores, {"2": change}).outcome == ("beyond" if is_worse else "done")


# Rankings of facets


@pytest.mark.parametrize(
    "layout", [FACETED, pytest.param(DENSE, marks=pytest.mark.part("dense"))], ids=["facets", "dense"]
)
def test_every_ranking_of_a_member_is_changed(zrank: Redis, store: PendingStore, layout: Layout) -> None:
    scores = faceted(store, layout)
    assert ask(scores, {"1": 5, "2": 4}).outcome == "done"
    for ranking in ("", "region:x"):
        key = scores.live.ranking(ranking)
        assert scores_of(zrank, key) == {"1": 6, "2": 6, "3": 3}
        if layout.beside:
            assert scores_of(zrank, f"{key}:values") == {"3": 3, "6": 6}
            assert zrank.hgetall(f"{key}:counts") == {b"3": b"1", b"6": b"2"}
    assert scores.check_health().behind == ""


@pytest.mark.parametrize(
    "layout", [FACETED, pytest.param(DENSE, marks=pytest.mark.part("dense"))], ids=["facets", "dense"]
)
def test_every_ranking_of_a_rebuild_is_changed(zrank: Redis, store: PendingStore, layout: Layout) -> None:
    """By the facets that a member has there."""
    scores = faceted(store, layout)
    assert start(scores, "next")
    assert load_rows(scores, "next", [Change("1", 1, b"region:y"), Change("2", 2, b"region:x")])
    assert ask(scores, {"1": 5, "3": 4}).outcome == "done"
    next_build = scores.keys.at("next")
    assert scores_of(zrank, next_build.root) == {"1": 6, "2": 2}
    assert scores_of(zrank, next_build.ranking("region:y")) == {"1": 6}
    assert scores_of(zrank, next_build.ranking("region:x")) == {"2": 2}
    if layout.beside:
        assert scores_of(zrank, f"{next_build.root}:values") == {"2": 2, "6": 6}


def test_a_ranking_that_was_evicted_is_missed(zrank: Redis, store: PendingStore) -> None:
    scores = faceted(store)
    zrank.delete(scores.live.ranking("region:x"))
    assert ask(scores, {"1": 5}).outcome == "done"
    assert scores.check_health().behind == "rebuild"


@SCRIPTS
def test_a_score_that_tie_bytes_make_exact_is_beyond_what_changes(
    zrank: Redis, store: PendingStore, key: str
) -> None:
    scores = ruled(store.name, FACETED, RULE)
    wide = b"\0" + bytes(8)
    build(scores, "wide", {"1": 1})
    zrank.zadd(scores.live.root, {wide + b"2": 2**60})
    zrank.hset(scores.live.memberships, "2", wide)  # type: ignore[arg-type]
    for changes in ({"2": 5}, {"1": 5, "2": 5}, {"2": -5}, {"1": 5, "2": -5}):
        question = ChangeScores(scores.layout, RULE, (-100, 100), [*changes.items()], key, 60, faceted=False)
        found: Changed = scores.run(question.steps)
        assert (found.outcome, found.results) == ("beyond", ["2"])
    assert pending(scores) == {}


def test_a_flush_takes_what_was_changed(scores: PendingStore) -> None:
    ask(scores, {"1": 5})
    ask(scores, {"1": 5, "2": 1})
    flight = take(scores)
    assert flight
    assert (flight.rule, flight.changes) == (RULE, {"1": 10, "2": 1})
    assert scores.confirm_flush(TERM, flight, [])
