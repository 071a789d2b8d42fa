"""Commands that are written to several nodes before any reply is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from redis.cluster import ClusterNode
from redis.exceptions import ConnectionError, ResponseError, TimeoutError

__all__ = ["exchange"]

Commands: TypeAlias = Sequence[Sequence[Any]]


def exchange(
    client: Any, batches: Iterable[tuple[ClusterNode, Commands]], *, atomic: bool = False
) -> list[list[Any]]:
    """Return the replies to batches of commands, errors included. Each batch goes to its node, in one round trip: all
    nodes are connected before the first write, and written to before the first read. ``atomic``: each batch is a
    transaction.

    Raises the first error of a connection, after the others have been read.
    """
    nodes: dict[str, _Node] = {}
    asked = []
    failed: dict[str, Exception] = {}
    try:
        for found, commands in batches:
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
    return [node.take(commands, atomic=atomic) for node, commands in asked]


class _Node:
    """Commands to one node, and its replies."""

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

    def take(self, commands: Commands, *, atomic: bool) -> list[Any]:
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
