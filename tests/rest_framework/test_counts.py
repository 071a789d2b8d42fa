"""Counts that are kept: for how long, and by whom they are made."""

from __future__ import annotations

import os
from itertools import count
from threading import Event, Thread

import pytest
from redis import Redis

from django_zrank.exceptions import FilterNotReady
from django_zrank.redis import executor
from django_zrank.rest_framework import counts, viewsets
from django_zrank.rest_framework.counts import Counts, KeptCounts
from django_zrank.sync.rebuild import rebuild
from tests.testapp.zrank import CompetitorRank


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(counts, "monotonic", clock)
    return clock


def test_kept_for_a_while(clock: Clock) -> None:
    kept, numbers = KeptCounts(), count(1)

    def number(took: float) -> int:
        def counting() -> Counts:
            clock.now += took
            return Counts(next(numbers), ())

        return kept.get("facet", counting, seconds=1, patience=0).number

    assert [number(took=0.0), number(took=0.0)] == [1, 1]
    clock.now += 1
    assert number(took=0.5) == 2  # for 20 times as long as it took
    clock.now += 9.9
    assert number(took=0.0) == 2
    clock.now += 0.1
    assert number(took=30.0) == 3
    clock.now += 59.9  # and for a minute at most
    assert number(took=0.0) == 3
    clock.now += 0.1
    assert number(took=0.0) == 4


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_counts_anew() -> None:
    """Though another thread of its parent's holds the locks."""
    kept, is_counting, may_end = KeptCounts(), Event(), Event()

    def slow() -> Counts:
        is_counting.set()
        assert may_end.wait(30)
        return Counts(1, ())

    thread = Thread(target=lambda: kept.get("facet", slow, seconds=60, patience=0))
    thread.start()
    assert is_counting.wait(30)
    with kept._guard:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = int(kept.get("facet", lambda: Counts(2, ()), seconds=60, patience=0).number != 2)
            finally:
                os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    may_end.set()
    thread.join(30)


def test_one_counts_and_others_wait_so_long() -> None:
    kept, is_counting, may_end = KeptCounts(), Event(), Event()

    def slow() -> Counts:
        is_counting.set()
        assert may_end.wait(30)
        return Counts(1, ())

    def counting() -> Counts:
        return kept.get("facet", slow, seconds=60, patience=0)

    thread = Thread(target=counting)
    thread.start()
    assert is_counting.wait(30)
    with pytest.raises(FilterNotReady, match="after 0 seconds"):
        counting()
    assert kept.get("other", lambda: Counts(2, ()), seconds=60, patience=0).number == 2
    may_end.set()
    thread.join(30)
    assert counting().number == 1


def test_an_error_is_not_kept() -> None:
    kept = KeptCounts()
    with pytest.raises(ZeroDivisionError):
        kept.get("facet", lambda: Counts(1 // 0, ()), seconds=60, patience=0)
    assert kept.get("facet", lambda: Counts(1, ()), seconds=60, patience=0).number == 1


def test_the_oldest_are_forgotten() -> None:
    kept, made = KeptCounts(), []

    def number(what: int) -> None:
        kept.get(what, lambda: made.append(what) or Counts(what, ()), seconds=60, patience=0)  # type: ignore[func-returns-value]

    for what in (*range(256), 0, 256, 0, 1):
        number(what)
    assert made == [*range(257), 1]


@pytest.mark.django_db(transaction=True)
def test_none_are_kept_before_a_build_has_been_read(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing would tell the counts of one build from those of another."""
    kept = KeptCounts()
    monkeypatch.setattr(viewsets, "_counts", kept)
    rebuild(CompetitorRank.instance())
    view = viewsets.LeaderboardViewSet()
    executor._live.clear()
    for number in (0, 1, 1):
        assert view._get_counts(CompetitorRank.ranking, ["region"]).number == 0
        assert len(kept._kept) == number
