"""The client of a cluster: it finds the nodes that keys lie on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from random import random
from typing import Any, Final

from redis import Redis
from redis.cluster import ClusterNode, LoadBalancingStrategy, RedisCluster
from redis.exceptions import (
    AskError,
    ConnectionError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    SlotNotCoveredError,
    TryAgainError,
)

from ..pool import guard
from ..queries.request import Call, Request
from ..redis.keys import tag_of
from ..redis.sending import send, send_once, words
from .exchange import exchange

__all__ = ["Cluster", "Unserved", "as_redis_errors"]

_MOVED: Final = AskError, MovedError, TryAgainError
"""Errors of a slot that is moving to another node."""


class Unserved(RedisError):
    """No node is known that serves a key."""


@contextmanager
def as_redis_errors() -> Iterator[None]:
    """Raise errors of redis-py's own that are no ``RedisError`` as :exc:`Unserved`."""
    try:
        yield
    except RedisClusterException as error:
        raise Unserved(str(error)) from error


class _Nodes(RedisCluster):
    """A client which drops connections whose use was interrupted."""

    def get_redis_connection(self, node: ClusterNode) -> Any:
        return guard(super().get_redis_connection(node))


class Cluster(_Nodes):
    """The client of a cluster, with what :class:`~django_zrank.redis.sending.Servers` asks of it."""

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._params = params

    @cached_property
    def replicas(self) -> Any:
        """A client whose connections may read from replicas. Those of this one may not: a primary that became a replica
        would go on answering them."""
        strategy = LoadBalancingStrategy.RANDOM_REPLICA
        return _Nodes(**{**self._params, "load_balancing_strategy": strategy})

    def server_of(self, key: str) -> str:
        """Return the name of the node that a key lies on."""
        with as_redis_errors():
            return str(self._find(key).name)

    def node_of(self, key: str) -> Redis:
        """Return the client of the node that a key lies on."""
        with as_redis_errors():
            node: Redis = self.get_redis_connection(self._find(key))
            return node

    def _find(self, key: str) -> ClusterNode:
        node: ClusterNode = self.get_node_from_key(key)  # type: ignore[no-untyped-call]
        return node

    def primaries(self) -> Sequence[Redis]:
        """Return the clients of all nodes that take writes."""
        return [self.get_redis_connection(node) for node in self.get_primaries()]  # type: ignore[no-untyped-call]

    def renew(self, error: Exception) -> bool:
        """Look up the nodes again after an error. Return False if the request must not be repeated: a node may have
        carried it out."""
        is_uncovered = isinstance(error.__cause__, SlotNotCoveredError)
        if not (is_uncovered or isinstance(error, (ConnectionError, MovedError, ReadOnlyError))):
            return False
        with as_redis_errors():
            self.nodes_manager.initialize()
        return not isinstance(error, ConnectionError) or isinstance(error.__context__, ConnectionRefusedError)

    def send_request(self, request: Request) -> list[Any]:
        """Return the replies to a request, in one round trip to all nodes that it is about. Calls about one index are a
        transaction if the request is.

        Raises the first error, after all have replied. If the request asks for ``each``, errors are replies, but those
        that concern a whole node.
        """
        calls = [_guarded(call) for call in request.calls]
        with as_redis_errors():
            if request.once:
                return [send_once(self.node_of(calls[0].keys[0]), calls[0])]
            if len(calls) == 1:
                return [send(self, calls[0])]
            replies = _exchanged(self, self._find, calls, atomic=request.atomic)
        if not request.atomic:
            self._send_again(calls, replies)
        for reply in replies:
            if isinstance(reply, ReadOnlyError if request.each else Exception):
                raise reply
        return replies

    def _send_again(self, calls: Sequence[Call], replies: list[Any]) -> None:
        """Send calls about a slot that is moving again, one by one: redis-py follows it."""
        for at, call in enumerate(calls):
            if isinstance(replies[at], _MOVED):
                try:
                    with as_redis_errors():
                        replies[at] = send(self, call)
                except RedisError as error:
                    replies[at] = error

    def ask_replicas(self, request: Request) -> list[Any]:
        """Return the replies of replicas, or of nodes that have none, to a request. Calls about one index are answered
        by the same node. Raises the first error."""
        calls = [_guarded(call) for call in request.calls]
        dice = random()  # noqa: S311 - no secret
        with as_redis_errors():
            replies = _exchanged(self.replicas, partial(replica_of, self.replicas, dice=dice), calls)
            if any(isinstance(reply, MovedError) for reply in replies):
                self.replicas.nodes_manager.initialize()
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies


def replica_of(replicas: Any, key: str, dice: float) -> ClusterNode:
    """Return a replica of the node that a key lies on, chosen by ``dice``, a number from 0 to below 1."""
    nodes: list[ClusterNode] = replicas.nodes_manager.slots_cache.get(replicas.keyslot(key)) or []
    if not nodes:
        raise SlotNotCoveredError(f"No node serves the slot of {key!r}")
    chosen = nodes[1:] or nodes
    return chosen[int(dice * len(chosen))]


def _exchanged(
    client: RedisCluster, find: Callable[[str], Any], calls: Sequence[Call], *, atomic: bool = False
) -> list[Any]:
    """Return the replies of the nodes that ``find`` returns for keys to several calls, errors among them.

    A call without keys goes where the one before it goes.
    """
    indexes: dict[str, list[int]] = {}
    tag = ""
    for at, call in enumerate(calls):
        tag = tag_of(call.keys[0]) if call.keys else tag
        indexes.setdefault(tag, []).append(at)
    replies: dict[int, Any] = {}
    unknown = list(indexes.values())
    for known in (True, False):
        nodes = [find(calls[one[0]].keys[0]) for one in unknown]
        commands = [[words(calls[at], known=known) for at in one] for one in unknown]
        found = exchange(client, list(zip(nodes, commands, strict=True)), atomic=atomic)
        for one, answers in zip(unknown, found, strict=True):
            replies.update(zip(one, answers, strict=True))
        unknown = [one for one in unknown if any(isinstance(replies[at], NoScriptError) for at in one)]
        if not unknown:
            break
    return [replies[at] for at in range(len(calls))]


def _guarded(call: Call) -> Call:
    """Return a call of a script with one more key, which never exists.

    Scripts touch keys that they don't declare. While a slot moves key by key, a script would find some of these
    missing, and be stopped halfway by others. A node refuses scripts that declare both existing and missing keys of a
    moving slot.
    """
    if isinstance(call.command, str):
        return call
    return call._replace(keys=(*call.keys, f"{tag_of(call.keys[0])}:guard"))
