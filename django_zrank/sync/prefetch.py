"""Redis at work while this thread is: on the next batch of the database, or on the last one of Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any, TypeVar

__all__ = ["ahead", "prefetch"]

Batch = TypeVar("Batch")
Result = TypeVar("Result")


def prefetch(function: Callable[[Batch], Result], batches: Iterable[Batch]) -> Iterator[tuple[Batch, Result]]:
    """Each of ``batches`` with what ``function`` makes of it, while this thread reads the one after it.

    The function runs in another thread, so it may ask Redis but no database: Django's connections belong to the
    thread that opened them. It never runs while the caller has the turn.
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        pending: tuple[Batch, Future[Result]] | None = None
        for batch in batches:
            if pending:
                yield pending[0], pending[1].result()
            pending = batch, _begin(thread, function, batch)
        if pending:
            yield pending[0], pending[1].result()


def ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """``batches``, each read in another thread while the caller is at the one before it: from Redis, that is."""
    end: Any = object()
    with ThreadPoolExecutor(max_workers=1) as thread:
        coming = _begin(thread, next, batches, end)
        while (batch := coming.result()) is not end:
            coming = _begin(thread, next, batches, end)
            yield batch


def _begin(thread: ThreadPoolExecutor, function: Callable[..., Result], *args: Any) -> Future[Result]:
    """Call a function in a thread; returns once it runs. Python's threads change turns where one waits, or after 5 ms:
    else what is to go to Redis would often be sent only when this thread has nothing left to do."""
    begun = Event()

    def run() -> Result:
        begun.set()
        return function(*args)

    result = thread.submit(run)
    begun.wait()
    return result
