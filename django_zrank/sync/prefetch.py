"""Prefetching: Redis works in another thread while this one reads the next batch, or handles the last one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any, Final, TypeVar

__all__ = ["ahead", "prefetch"]

_AHEAD: Final = 16
"""The most batches that are read ahead: as long as Redis takes for these, the caller may wait for the database."""

Batch = TypeVar("Batch")
Result = TypeVar("Result")


def prefetch(function: Callable[[Batch], Result], batches: Iterable[Batch]) -> Iterator[tuple[Batch, Result]]:
    """Yield each of ``batches`` with the result of ``function``, which runs while this thread reads the next ones.

    The function runs in another thread, so it may use Redis but no database: Django's connections belong to the thread
    that opened them. It takes the next batch as soon as it is done with one, also while the caller runs: Redis would
    wait if the caller had to be woken first. After an exception it isn't called again.
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        pending: tuple[Batch, Future[Result]] | None = None
        for batch in batches:
            done, pending = pending, (batch, _begin(thread, function, batch, after=pending and pending[1]))
            if done:
                yield done[0], done[1].result()
        if pending:
            yield pending[0], pending[1].result()


def ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield ``batches``, some of which are read from Redis in another thread while the caller is at one before."""
    end: Any = object()
    coming: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(max_workers=1) as thread:
        try:
            while True:
                while len(coming) < _AHEAD:
                    coming.append(thread.submit(next, batches, end))
                if (batch := coming.popleft().result()) is end:
                    return
                yield batch
        finally:
            thread.shutdown(cancel_futures=True)


def _begin(
    thread: ThreadPoolExecutor, function: Callable[..., Result], *args: Any, after: Future[Any] | None = None
) -> Future[Result]:
    """Call a function in a thread, and return once it runs. Otherwise the thread might begin only when this one waits,
    or after Python's switch interval of 5 ms. Where ``after`` has failed, so does this call."""
    begun = Event()

    def run() -> Result:
        begun.set()
        if after:
            after.result()
        return function(*args)

    result = thread.submit(run)
    begun.wait()
    return result
