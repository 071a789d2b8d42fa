"""Prefetching: Redis works in another thread while this one reads the next batches, or handles the last one."""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from threading import Lock
from typing import Any, Final, TypeVar

__all__ = ["prefetch"]

_READY: Final = 4
"""The most batches that wait for Redis: as long as it takes for these, the caller may wait for the database."""


_TURN: Final = 0.0001
"""Seconds for which a thread that has an answer of Redis waits while Python is at work in another one."""

_OBJECTS: Final = 100_000
"""The number of new objects at which the garbage collector runs."""

Batch = TypeVar("Batch")
Result = TypeVar("Result")


def prefetch(
    function: Callable[[Batch], Result], batches: Iterable[Batch]
) -> Generator[tuple[Batch, Result]]:
    """Yield each of ``batches`` with the result of ``function``, which runs while this thread reads the next ones.

    The function runs in another thread, so it may use Redis but no database: Django's connections belong to the thread
    that opened them. It takes the next batch as soon as it is done with one, also while the caller runs: Redis would
    wait if the caller had to be woken first. After an exception it isn't called again.
    """

    def call(batch: Batch) -> tuple[Batch, Result]:
        return batch, function(batch)

    # By default, the caller may run for 5 ms while a thread has something to send to Redis.
    with _TURNS.set(_TURN), closing(_results((partial(call, batch) for batch in batches), _READY)) as results:
        yield from results


def _results(calls: Iterable[Callable[[], Result]], most: int) -> Generator[Result]:
    """Yield the results of ``calls``, made in another thread one after the other, at most ``most`` of them before their
    result is asked for. None is made after one that failed, nor once this generator is closed."""
    coming: deque[Future[Result]] = deque()
    # By default, it runs for every 700 rows, and traverses what the process held before each time: a fifth of Python's
    # time. A threshold of 0 means that the project has disabled it.
    objects, *_ = gc.get_threshold()
    with (
        _COLLECTIONS.set(objects and max(objects, _OBJECTS)),
        ThreadPoolExecutor(max_workers=1) as thread,
    ):
        try:
            for call in calls:
                coming.append(thread.submit(_make, call, coming[-1] if coming else None))
                if len(coming) > most:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:
            thread.shutdown(cancel_futures=True)


def _make(call: Callable[[], Result], after: Future[Result] | None) -> Result:
    """Make a call, unless the one before has failed: then so does this."""
    if after:
        after.result()
    return call()


class _Setting:
    """A setting of the whole process. The last thread that needs another value puts the first one back."""

    def __init__(self, get: Callable[[], Any], put: Callable[[Any], None]) -> None:
        self._get, self._put = get, put
        self._lock, self._users, self._before = Lock(), 0, None

    @contextmanager
    def set(self, value: Any) -> Iterator[None]:
        with self._lock:
            if not self._users:
                self._before = self._get()
            self._users += 1
            self._put(value)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._put(self._before)


_TURNS: Final = _Setting(sys.getswitchinterval, sys.setswitchinterval)
_COLLECTIONS: Final = _Setting(lambda: gc.get_threshold()[0], gc.set_threshold)
