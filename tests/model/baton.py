"""Threads of which one runs at a time: a baton changes hands at each request to Redis and each statement of SQL.

A transaction is one step, as no other process sees the middle of it. What a thread has done is named by the script or
command (``begin_write``), by the statement and its table (``SELECT mark``), or ``transaction``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from threading import Event, Thread, local
from typing import Any
from unittest import mock

from django.db import connections
from django.db.backends.signals import connection_created
from django.db.transaction import Atomic

from django_zrank.conf import get_settings
from django_zrank.exceptions import ZRankError
from django_zrank.queries.request import Request
from django_zrank.redis.keys import Keys
from django_zrank.redis.scripts import Script
from django_zrank.store import Store
from django_zrank.sync import rebuild

__all__ = ["Actor", "passed_on"]

_here = local()


class Killed(BaseException):
    """Ends a thread as SIGKILL ends a process: nothing of it reaches Redis or the database afterwards."""


class Actor:
    """A thread that waits before each step until it is told to take it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        """Run ``work`` up to its first step. Errors of the app end it: marks wait, as after any failure."""
        self.work = work
        self.done: list[str] = []
        """What the last step consisted of."""

        self.error: BaseException | None = None
        self.has_ended = self.is_killed = False
        self._turn, self._waits = Event(), Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()
        self._await()

    def step(self) -> bool:
        """Take the next step. Return False if there is none."""
        if self.has_ended:
            return False
        self.done.clear()
        self._waits.clear()
        self._turn.set()
        self._await()
        return True

    def until(self, *steps: str) -> None:
        """Go on until each of ``steps`` was taken, in this order; or until the work ends."""
        for wanted in steps:
            while self.step() and wanted not in self.done:
                pass

    def finish(self) -> None:
        while self.step():
            pass

    def kill(self) -> None:
        self.is_killed = True
        self.finish()

    def _await(self) -> None:
        assert self._waits.wait(60), f"a thread hangs after {self.done}"
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        _here.actor = self
        try:
            with suppress(ZRankError, Killed):
                self.work()
        except BaseException as error:  # noqa: BLE001 - raised again where the baton is
            self.error = error
        finally:
            connections.close_all()
            self.has_ended = True
            self._waits.set()

    def wait(self) -> None:
        """Wait for the turn, in the thread itself."""
        if not self.is_killed:
            self._waits.set()
            assert self._turn.wait(120)
            self._turn.clear()
        if self.is_killed:
            raise Killed


@contextmanager
def passed_on(index: str, using: str = "default") -> Iterator[None]:
    """In this block, threads of actors wait before each step. Of requests, those about other indexes don't count. A
    rebuild loads in its own thread."""
    send, enter = Store.send, Atomic.__enter__

    def sent(store: Store, request: Request) -> list[Any]:
        actor: Actor | None = getattr(_here, "actor", None)
        tag = Keys.of(get_settings().key_prefix, index).tag
        # A push sends those of several indexes together.
        commands = [call.command for call in request.calls if "".join(call.keys[:1]).startswith(tag)]
        if actor is None or not commands:
            return send(store, request)
        actor.wait()
        actor.done += [one.name if isinstance(one, Script) else str(one) for one in commands]
        return send(store, request)

    def executed(execute: Any, sql: str, *args: Any) -> Any:
        actor: Actor = _here.actor
        if not (connections[using].in_atomic_block or sql.startswith("BEGIN")):
            actor.wait()
        actor.done.append(_named(sql))
        return execute(sql, *args)

    def entered(atomic: Atomic) -> None:
        actor = getattr(_here, "actor", None)
        if actor is not None:
            connection = connections[using]
            if executed not in connection.execute_wrappers:
                connection.execute_wrappers.append(executed)
            if not connection.in_atomic_block:
                actor.wait()
                actor.done.append("transaction")
        enter(atomic)

    def connected(sender: Any, connection: Any, **kwargs: Any) -> None:
        wrappers = connection.execute_wrappers
        if hasattr(_here, "actor") and connection.alias == using and executed not in wrappers:
            wrappers.append(executed)

    connection_created.connect(connected, weak=False)
    try:
        with (
            mock.patch.object(Store, "send", sent),
            mock.patch.object(Atomic, "__enter__", entered),
            mock.patch.object(rebuild, "ThreadPoolExecutor", _Inline),
        ):
            yield
    finally:
        connection_created.disconnect(connected)


def _named(sql: str) -> str:
    verb = "MAX" if "MAX(" in sql else sql.split(None, 1)[0].upper()
    table = re.search(r"(?:zrank|testapp)_(\w+)", sql)
    return f"{verb} {table[1]}" if table else verb


class _Inline:
    """An executor that runs what it is given at once, in the thread that gives it."""

    def __init__(self, max_workers: int) -> None:
        pass

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*args))
        return done

    def shutdown(self, **options: Any) -> None:
        pass
