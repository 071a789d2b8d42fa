"""Something else happens between two steps of an operation: round trips to Redis, and statements of the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from typing import Any
from unittest import mock

import pytest
from django.db import connection, connections

from django_zrank.queries.request import Request
from django_zrank.store import Store
from django_zrank.sync import verify as verification

__all__ = ["comparing", "count_steps", "interrupted", "just_after", "just_before", "somebody_waits"]


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


@contextmanager
def comparing(act: Callable[[int], Any]) -> Iterator[None]:
    """Call ``act`` before each step of a verification's comparison: what changes before or after that might as well
    change before or after the verification."""
    compare = verification._compare

    def interrupted_compare(*args: Any, **options: Any) -> None:
        with interrupted(act):
            compare(*args, **options)

    with mock.patch.object(verification, "_compare", interrupted_compare):
        yield


def just_before(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, act: Callable[[], object], *, after: bool = False
) -> None:
    """Call ``act`` once: before the next call of a function of a class or module, or after it."""
    function = getattr(owner, name)

    def interrupted_call(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(owner, name, function)
        if after:
            found = function(*args, **options)
            act()
            return found
        act()
        return function(*args, **options)

    monkeypatch.setattr(owner, name, interrupted_call)


just_after = partial(just_before, after=True)


def count_steps(operation: Callable[[], Any], interrupt: Callable[..., Any] = interrupted) -> int:
    """Return the number of steps of an operation."""
    steps: list[int] = []
    with interrupt(steps.append):
        operation()
    return len(steps)


def somebody_waits() -> bool:
    """Return True if a transaction waits for a lock: of this connection, or on MariaDB in this database.

    Other processes that run tests have databases on the same server.
    """
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":  # pg_stat_activity is a snapshot, as old as the transaction
            cursor.execute(
                "SELECT pg_backend_pid() = ANY(pg_blocking_pids(pid)) FROM pg_locks WHERE NOT granted"
            )
        else:
            cursor.execute(
                "SELECT true FROM information_schema.innodb_trx JOIN information_schema.processlist"
                " ON id = trx_mysql_thread_id WHERE trx_state = 'LOCK WAIT' AND db = DATABASE()"
            )
        return any(waits for (waits,) in cursor.fetchall())
