"""Redis at work while the next batch is read from the database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["overlap"]

Batch = TypeVar("Batch")
Result = TypeVar("Result")


def overlap(function: Callable[[Batch], Result], batches: Iterable[Batch]) -> Iterator[tuple[Batch, Result]]:
    """Each of ``batches`` with what ``function`` makes of it, while this thread reads the one after it.

    The function runs in another thread, so it may ask Redis but no database: Django's connections belong to the
    thread that opened them. It never runs while the caller has the turn.
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        pending: tuple[Batch, Future[Result]] | None = None
        for batch in batches:
            if pending:
                yield pending[0], pending[1].result()
            pending = batch, thread.submit(function, batch)
        if pending:
            yield pending[0], pending[1].result()
