"""Calls about several shards, written to all of their servers before any reply is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from random import random
from typing import Any

from redis import Redis
from redis.exceptions import (
    AskError,
    ConnectionError,
    MovedError,
    NoScriptError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from ..cluster import is_cluster, replica_of
from ..queries.request import Call
from .keys import guard_of
from .sending import complete, send_all, words

__all__ = ["send_spread"]


def send_spread(
    client: Redis, calls: Sequence[Call], *, atomic: bool = False, replica: bool = False
) -> list[Any]:
    """Return the replies to calls about several shards, in one round trip to all of their servers. ``atomic``: calls
    about one shard are a transaction. ``replica``: replicas are asked.

    Raises the first error, after all have replied.
    """
    if not is_cluster(client):
        return send_all(client, calls, atomic=atomic)
    shards: dict[str, list[int]] = {}
    for at, call in enumerate(calls):
        shards.setdefault(guard_of(call.keys[0]), []).append(at)
    replies: dict[int, Any] = {}
    unknown = list(shards.values())
    for known in (True, False):
        batches = [(calls[one[0]].keys[0], [words(calls[at], known=known) for at in one]) for one in unknown]
        found = _exchange(client, batches, atomic=atomic, replica=replica)
        for one, answers in zip(unknown, found, strict=True):
            replies.update(zip(one, answers, strict=True))
        unknown = [one for one in unknown if any(isinstance(replies[at], NoScriptError) for at in one)]
        if not unknown:
            break
    moved = () if atomic or replica else (AskError, MovedError, TryAgainError)
    return complete(client, calls, [replies[at] for at in range(len(calls))], moved)


def _exchange(
    client: Any,
    batches: Iterable[tuple[str, Sequence[Sequence[Any]]]],
    *,
    atomic: bool = False,
    replica: bool = False,
) -> list[list[Any]]:
    """Return the replies to batches of commands, errors included. Each batch goes to the server of its key, in one
    round trip: all servers are connected before the first write, and written to before the first read.

    Raises the first error of a connection, after the others have been read.
    """
    client = client.replicas if replica else client
    find = partial(replica_of, client, dice=random()) if replica else client.get_node_from_key  # noqa: S311
    nodes: dict[str, _Node] = {}
    asked = []
    failed: dict[str, Exception] = {}
    try:
        for key, commands in batches:
            found = find(key)
            if found.name not in nodes:
                nodes[found.name] = _Node(client.get_redis_connection(found))
            nodes[found.name].commands += [("MULTI",), *commands, ("EXEC",)] if atomic else commands
            asked.append((nodes[found.name], commands))
        for use in (_Node.connect, _Node.write, _Node.read):
            for name, node in nodes.items():
                # After a failure, replies that haven't arrived yet are not awaited: timeouts would add up.
                if name in failed or (failed and use is _Node.read and not node.has_answered()):
                    continue
                try:
                    use(node)
                except (ConnectionError, TimeoutError) as error:
                    failed[name] = error
            if failed and use is _Node.connect:
                break
    finally:
        for node in nodes.values():
            node.release()
    if failed:
        name, first = next(iter(failed.items()))
        client.nodes_manager.initialize(last_failed_node_name=name)
        raise first
    replies = [node.take(commands, atomic=atomic) for node, commands in asked]
    if replica and any(isinstance(reply, MovedError) for reply in chain.from_iterable(replies)):
        client.nodes_manager.initialize()
    return replies


class _Node:
    """Commands to one server, and its replies."""

    def __init__(self, redis: Any) -> None:
        self.redis = redis
        self.connection: Any = None
        self.commands: list[Sequence[Any]] = []
        self.replies: deque[Any] = deque()

    def connect(self) -> None:
        self.connection = self.redis.connection_pool.get_connection()

    def write(self) -> None:
        self.connection.send_packed_command(self.connection.pack_commands(self.commands))

    def read(self) -> None:
        for _ in self.commands:
            try:
                self.replies.append(self.connection.read_response())
            except ResponseError as error:
                self.replies.append(error)

    def has_answered(self) -> bool:
        return bool(self.connection.can_read(timeout=0))

    def take(self, commands: Sequence[Sequence[Any]], *, atomic: bool) -> list[Any]:
        """Return the next replies, parsed as redis-py's own client does."""
        framing = 2 if atomic else 0
        replies = [self.replies.popleft() for _ in range(len(commands) + framing)]
        if atomic:
            _, *queued, done = replies
            refused = next((reply for reply in queued if isinstance(reply, Exception)), done)
            replies = [refused] * len(queued) if isinstance(done, Exception) else done
        callbacks = self.redis.response_callbacks
        return [
            callbacks[name](reply) if name in callbacks and not isinstance(reply, Exception) else reply
            for (name, *_), reply in zip(commands, replies, strict=True)
        ]

    def release(self) -> None:
        if self.connection is not None:
            if len(self.replies) < len(self.commands):
                self.connection.disconnect()
            self.redis.connection_pool.release(self.connection)
