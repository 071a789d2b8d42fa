"""Sending calls: scripts by their digests, several calls in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from redis import Redis
from redis.exceptions import (
    AskError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    TryAgainError,
)

from ..cluster import is_cluster, node_of, pipelined
from ..queries.request import Call, Request
from .keys import guard_of

__all__ = ["complete", "in_trips", "send", "send_all", "send_each", "send_once", "words"]

_MOST: Final = 3000
"""Microseconds that the calls of one round trip may take of a server: it answers all of a pipeline that it has read
before it turns to another client."""


def in_trips(client: Redis | None, request: Request) -> list[Sequence[int]]:
    """Return the numbers of the calls of each round trip, so that none holds a server for long: shards may lie on one.
    A transaction about one shard is not cut, nor what replicas are asked: they have been found fresh in the same round
    trip. ``client``: needed to know the nodes of a cluster.
    """
    calls = request.calls
    if request.replica or sum(call.cost for call in calls) <= _MOST:
        return [range(len(calls))]
    cluster: Any = client if client is not None and is_cluster(client) else None
    trips: list[list[int]] = []
    last: dict[str, tuple[int, int, str]] = {}
    for at, call in enumerate(calls):
        key = call.keys[0]
        node = cluster.get_node_from_key(key).name if cluster else ""
        trip, spent, shard = last.get(node, (0, 0, ""))
        if spent and spent + call.cost > _MOST and not (request.atomic and guard_of(key) == shard):
            trip, spent = trip + 1, 0
        last[node] = trip, spent + call.cost, guard_of(key)
        if trip == len(trips):
            trips.append([])
        trips[trip].append(at)
    return list(trips)


def send(client: Redis, call: Call) -> Any:
    """Return the reply to one call. A server that doesn't know a script yet is sent its text."""
    try:
        return client.execute_command(*words(call))  # type: ignore[no-untyped-call]
    except NoScriptError:
        return client.execute_command(*words(call, known=False))  # type: ignore[no-untyped-call]


def send_once(client: Redis, call: Call) -> Any:
    """Return the reply to one call that must not be made twice. A client would repeat it after an error of the
    connection, even if the server had received it."""
    pool: Any = node_of(client, call.keys[0]).connection_pool
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
    """Return the replies to several calls to one server, in one round trip. ``atomic``: they are a transaction.

    Raises the first error among the replies.
    """
    for known in (True, False):
        replies = pipelined(
            client, calls[0].keys[0], [words(call, known=known) for call in calls], atomic=atomic
        )
        errors = [reply for reply in replies if isinstance(reply, Exception)]
        if not any(isinstance(error, NoScriptError) for error in errors):
            break
    return complete(client, calls, replies, (AskError, TryAgainError))


def send_each(client: Redis, calls: Sequence[Call]) -> list[Any]:
    """Return the replies to several calls to one server, in one round trip, errors among them. Those that it can't
    answer yet, or no longer, are sent again, one by one.

    Raises ``ReadOnlyError`` and errors of the connection, which concern all of them.
    """
    replies = pipelined(client, calls[0].keys[0], map(words, calls), atomic=False)
    replies = _send_again(client, calls, replies, (AskError, MovedError, NoScriptError, TryAgainError))
    for reply in replies:
        if isinstance(reply, ReadOnlyError):
            raise reply
    return replies


def complete(
    client: Redis, calls: Sequence[Call], replies: Sequence[Any], moved: tuple[type[Exception], ...]
) -> list[Any]:
    """Return the replies, or raise the first error. Errors ``moved`` come from a slot that is moving to another node:
    these calls are sent again, and redis-py follows the slot."""
    completed = _send_again(client, calls, replies, moved)
    for reply in completed:
        if isinstance(reply, Exception):
            raise reply
    return completed


def _send_again(
    client: Redis, calls: Sequence[Call], replies: Sequence[Any], errors: tuple[type[Exception], ...]
) -> list[Any]:
    """Return the replies, errors among them. Calls whose reply is one of these ``errors`` are sent again, one by
    one."""
    again = list(replies)
    for at, call in enumerate(calls):
        if isinstance(again[at], errors):
            try:
                again[at] = send(client, call)
            except (RedisError, RedisClusterException) as error:
                again[at] = error
    return again


def words(call: Call, *, known: bool = True) -> tuple[Any, ...]:
    """Return the command that is sent for a call.

    Scripts touch keys that they don't declare. While a slot of a cluster moves key by key, a script would find some of
    these missing, and be stopped halfway by others. So each declares one more key, which never exists: a node refuses
    scripts that declare both existing and missing keys of a moving slot.
    """
    command, keys, arguments, _ = call
    if isinstance(command, str):
        return (command, *keys, *arguments)
    script = ("EVALSHA", command.sha) if known else ("EVAL", command.source)
    return (*script, len(keys) + 1, *keys, guard_of(keys[0]), *arguments)
