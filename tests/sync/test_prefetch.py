from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from sys import getswitchinterval
from threading import Event, current_thread, main_thread

import pytest

from django_zrank.sync.prefetch import prefetch


@pytest.mark.parametrize("batches", [[], [1], [1, 2, 3]], ids=len)
def test_every_batch_with_its_result_in_their_order(batches: list[int]) -> None:
    assert list(prefetch(str, batches)) == [(batch, str(batch)) for batch in batches]


def test_the_next_batch_is_read_while_the_function_runs() -> None:
    read = Event()

    def batches() -> Iterator[int]:
        assert current_thread() is main_thread()
        yield 1
        read.set()
        yield 2

    def function(batch: int) -> bool:
        assert current_thread() is not main_thread()
        return read.wait(30)

    assert list(prefetch(function, batches())) == [(1, True), (2, True)]


def test_the_function_takes_the_next_batch_while_the_caller_has_the_turn() -> None:
    begun = {batch: Event() for batch in (1, 2, 3)}
    for batch, _ in prefetch(lambda batch: begun[batch].set(), begun):
        assert begun[min(batch + 1, 3)].wait(30)


def test_several_batches_wait_for_the_function() -> None:
    last = Event()

    def batches() -> Iterator[int]:
        yield from range(4)
        last.set()

    assert [waited for _, waited in prefetch(lambda batch: last.wait(30), batches())] == [True] * 4


def test_the_function_is_not_called_after_a_batch_on_which_it_failed() -> None:
    called: list[int] = []

    def function(batch: int) -> None:
        called.append(batch)
        raise RuntimeError("gone away")

    with pytest.raises(RuntimeError, match="gone away"):
        list(prefetch(function, [1, 2, 3]))
    assert called == [1]


def test_what_the_function_raises_reaches_the_caller() -> None:
    def function(batch: int) -> float:
        return 1 / batch

    results = prefetch(function, [1, 0, 2])
    assert next(results) == (1, 1)
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_where_reading_fails_what_was_begun_is_ended_first() -> None:
    begun, ended = Event(), Event()

    def batches() -> Iterator[int]:
        yield 1
        assert begun.wait(30)
        raise RuntimeError("gone away")

    def function(batch: int) -> None:
        begun.set()
        ended.set()

    with pytest.raises(RuntimeError, match="gone away"):
        list(prefetch(function, batches()))
    assert ended.is_set()


def test_a_caller_that_stops_leaves_no_thread() -> None:
    results = prefetch(lambda batch: current_thread(), [1, 2, 3])
    _, thread = next(results)
    results.close()
    assert not thread.is_alive()


def test_once_a_caller_has_stopped_batches_that_wait_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, stopped, called = Event(), Event(), []
    shutdown = ThreadPoolExecutor.shutdown

    def stop(thread: ThreadPoolExecutor, **options: bool) -> None:
        shutdown(thread, **options | {"wait": False})
        stopped.set()
        shutdown(thread)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", stop)

    def function(batch: int) -> None:
        called.append(batch)
        if batch == 2:
            begun.set()
            stopped.wait(30)

    results = prefetch(function, range(1, 10))
    next(results)
    assert begun.wait(30)
    results.close()
    assert called == [1, 2]


def test_what_is_set_for_the_whole_process_is_as_before_in_the_end() -> None:
    before = getswitchinterval(), gc.get_threshold()
    for _, (turn, thresholds) in prefetch(lambda batch: (getswitchinterval(), gc.get_threshold()), [1, 2]):
        assert turn < before[0]
        assert thresholds > before[1]
    assert (getswitchinterval(), gc.get_threshold()) == before


def test_the_last_of_two_at_once_puts_back_what_was_set() -> None:
    before = getswitchinterval(), gc.get_threshold()
    first, second = (prefetch(str, range(9)) for _ in range(2))
    next(first)
    next(second)
    first.close()
    assert (getswitchinterval(), gc.get_threshold()) != before
    second.close()
    assert (getswitchinterval(), gc.get_threshold()) == before
