"""Sending calls to one server: scripts by their digests, several calls in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from redis import Redis
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError

from ..queries.request import Call, Request
from .keys import tag_of
from .servers import server_of

__all__ = ["in_trips", "is_one_trip", "send", "send_all", "send_each", "send_once", "words"]

_MOST: Final = 3000
"""Microseconds that the calls of one round trip may take of a server: it answers all of a pipeline that it has read
before it turns to another client."""


def is_one_trip(calls: Sequence[Call]) -> bool:
    """Return True if calls go in one round trip, whatever servers they are about."""
    return len(calls) == 1 or sum([call.cost for call in calls]) <= _MOST


def in_trips(client: Redis | None, request: Request) -> list[Sequence[int]]:
    """Return the numbers of the calls of each round trip, so that none holds a server for long: several indexes may
    lie on one. A transaction about one of them is not cut. ``client``: needed if it knows several servers.
    """
    calls = request.calls
    if is_one_trip(calls):
        return [range(len(calls))]
    trips: list[list[int]] = []
    last: dict[str, tuple[int, int, str]] = {}
    for at, call in enumerate(calls):
        server, tag = server_of(client, call.keys[0]), tag_of(call.keys[0])
        trip, spent, before = last.get(server, (0, 0, ""))
        if spent and spent + call.cost > _MOST and not (request.atomic and tag == before):
            trip, spent = trip + 1, 0
        last[server] = trip, spent + call.cost, tag
        if trip == len(trips):
            trips.append([])
        trips[trip].append(at)
    return list(trips)


def send(client: Any, call: Call) -> Any:
    """Return the reply to one call. A server that doesn't know a script yet is sent its text."""
    try:
        return client.execute_command(*words(call))
    except NoScriptError:
        return client.execute_command(*words(call, known=False))


def send_once(client: Redis, call: Call) -> Any:
    """Return the reply to one call that must not be made twice. A client would repeat it after an error of the
    connection, even if the server had received it."""
    pool: Any = client.connection_pool
    connection: Any = pool.get_connection()
    try:
        try:
            connection.send_command(*words(call))
            return connection.read_response()
        except NoScriptError:
            connection.send_command(*words(call, known=False))
            return connection.read_response()
    finally:
        pool.release(connection)


def send_all(client: Redis, calls: Sequence[Call], *, atomic: bool = False) -> list[Any]:
    """Return the replies to several calls, in one round trip. ``atomic``: they are a transaction.

    Raises the first error among the replies.
    """
    for known in (True, False):
        replies = _pipelined(client, calls, known=known, atomic=atomic)
        errors = [reply for reply in replies if isinstance(reply, Exception)]
        if not any(isinstance(error, NoScriptError) for error in errors):
            break
    if errors:
        raise errors[0]
    return replies


def send_each(client: Redis, calls: Sequence[Call]) -> list[Any]:
    """Return the replies to several calls, errors among them, in one round trip. Scripts that the server doesn't know
    yet are sent again, one by one.

    Raises ``ReadOnlyError`` and errors of the connection, which concern all of them.
    """
    replies = _pipelined(client, calls)
    for at, call in enumerate(calls):
        if isinstance(replies[at], NoScriptError):
            try:
                replies[at] = send(client, call)
            except RedisError as error:
                replies[at] = error
        if isinstance(replies[at], ReadOnlyError):
            raise replies[at]
    return replies


def _pipelined(
    client: Redis, calls: Sequence[Call], *, known: bool = True, atomic: bool = False
) -> list[Any]:
    pipeline: Any = client.pipeline(transaction=atomic)
    for call in calls:
        pipeline.execute_command(*words(call, known=known))
    replies: list[Any] = pipeline.execute(raise_on_error=False)
    return replies


def words(call: Call, *, known: bool = True) -> tuple[Any, ...]:
    """Return the command that is sent for a call."""
    command, keys, arguments, _ = call
    if isinstance(command, str):
        return (command, *keys, *arguments)
    script = ("EVALSHA", command.sha) if known else ("EVAL", command.source)
    return (*script, len(keys), *keys, *arguments)
