"""Something else happens between two steps of an operation: round trips to Redis, and statements of the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any
from unittest import mock

from django.db import connections

from django_zrank.queries.request import Request
from django_zrank.store import Store

__all__ = ["count_steps", "interrupted"]


@contextmanager
def interrupted(act: Callable[[int], Any], using: str = "default") -> Iterator[None]:
    """Call ``act`` before each step in this thread, with its number from 1; not inside a transaction, whose part it
    would become."""
    send, thread = Store.send, get_ident()
    steps, busy = [0], [False]

    def step() -> None:
        if busy[0] or get_ident() != thread or connections[using].in_atomic_block:
            return
        busy[0] = True
        try:
            steps[0] += 1
            act(steps[0])
        finally:
            busy[0] = False

    def sent(self: Store, request: Request[Any]) -> list[Any]:
        step()
        return send(self, request)

    def executed(execute: Callable[..., Any], *args: Any) -> Any:
        step()
        return execute(*args)

    with mock.patch.object(Store, "send", sent), connections[using].execute_wrapper(executed):
        yield


def count_steps(operation: Callable[[], Any]) -> int:
    """Return the number of steps of an operation."""
    steps: list[int] = []
    with interrupted(steps.append):
        operation()
    return len(steps)
