"""Pools whose connections are dropped if their use was interrupted.

The handler of a signal may raise between the sending of a command and the reading of its reply, as Celery's soft time
limit and Ctrl-C do. redis-py drops a connection if that happens while it writes or waits. Anywhere else, it gives the
connection back, and the reply goes to the next caller.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

from redis.exceptions import RedisError

__all__ = ["AsyncDropping", "Dropping", "dropping", "guard"]

Client = TypeVar("Client", bound=Any)


class Dropping:
    """Mixed into a class of pools: drop a connection if another exception than Redis's ends its use."""

    def get_connection(self, *args: Any, **kwargs: Any) -> Any:
        connection = super().get_connection(*args, **kwargs)  # type: ignore[misc]
        connection.zrank_handled = sys.exc_info()[1]
        return connection

    def release(self, connection: Any) -> None:
        error = sys.exc_info()[1]
        if error is not None and _is_interrupted(connection, error):
            connection.disconnect()
        super().release(connection)  # type: ignore[misc]


class AsyncDropping:
    """The same for pools of ``redis.asyncio``."""

    async def get_connection(self, *args: Any, **kwargs: Any) -> Any:
        connection = await super().get_connection(*args, **kwargs)  # type: ignore[misc]
        connection.zrank_handled = sys.exc_info()[1]
        return connection

    def release(self, connection: Any) -> Coroutine[Any, Any, None]:
        error = sys.exc_info()[1]  # the coroutine may be awaited in another task
        is_interrupted = error is not None and _is_interrupted(connection, error)
        return self._release(connection, is_interrupted=is_interrupted)

    async def _release(self, connection: Any, *, is_interrupted: bool) -> None:
        if is_interrupted:
            await connection.disconnect(nowait=True)
        await super().release(connection)  # type: ignore[misc]


def _is_interrupted(connection: Any, error: BaseException) -> bool:
    """Return True if the exception that is raised or handled wasn't yet handled when the connection was taken. redis-py
    releases connections in a ``finally`` clause."""
    handled, connection.zrank_handled = getattr(connection, "zrank_handled", None), None
    return error is not handled and not isinstance(error, RedisError)


@cache
def dropping(kind: Any, mixin: Any) -> Any:
    """Return a class of pools with a mixin."""
    return type(kind.__name__, (mixin, kind), {})


def guard(client: Client) -> Client:
    """Return a client of one server, whose pool drops connections from now on. The pool may be any that the project's
    settings name, and other threads may be using it, so it only changes its class."""
    pool = client.connection_pool
    if not isinstance(pool, Dropping):
        kind: Any = type(pool)
        pool.__class__ = dropping(kind, Dropping)
    return client
