"""Redis Cluster and Valkey Cluster behind django-redis: connections, and the nodes that keys lie on.

::

    "OPTIONS": {"CONNECTION_FACTORY": "django_zrank.cluster.ConnectionFactory", …}
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import starmap
from random import random
from threading import Lock
from typing import Any, Final

from django.core.cache import caches
from django_redis.pool import ConnectionFactory as BaseFactory
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, LoadBalancingStrategy, RedisCluster
from redis.exceptions import (
    ConnectionError,
    MovedError,
    ReadOnlyError,
    SlotNotCoveredError,
    TimeoutError,
)
from redis.retry import Retry

from .pool import guard

__all__ = [
    "ConnectionFactory",
    "is_cluster",
    "name_of_node",
    "node_of",
    "pipelined",
    "primaries",
    "renew",
    "replica_of",
    "use_replica",
]


class _Nodes(RedisCluster):
    """The client of a cluster, which drops connections whose use was interrupted."""

    def get_redis_connection(self, node: ClusterNode) -> Any:
        return guard(super().get_redis_connection(node))


class Cluster(_Nodes):
    """The client of a cluster."""

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._params = params

    @cached_property
    def replicas(self) -> RedisCluster:
        """A client whose connections may read from replicas. Those of this one may not: a primary that became a replica
        would go on answering them."""
        strategy = LoadBalancingStrategy.RANDOM_REPLICA
        return _Nodes(**{**self._params, "load_balancing_strategy": strategy})


class ConnectionFactory(BaseFactory):  # type: ignore[misc]
    """Connects a cache to a cluster, whose ``LOCATION`` is the URL of any of its nodes.

    ``OPTIONS`` are those of django-redis, with ``NODES``: a list of further nodes, ``(host, port)``, from which a
    process can learn the others. ``get_redis_connection()`` returns a ``redis.cluster.RedisCluster``: one for each
    process and location, since creating one takes two round trips, and Django creates a cache object for each thread.
    """

    _clients: Final[dict[tuple[Any, ...], RedisCluster]] = {}
    _lock = Lock()

    def connect(self, url: str) -> RedisCluster:
        params = {**self.make_connection_params(url), **self.pool_cls_kwargs, **self.redis_client_cls_kwargs}
        key = os.getpid(), repr(params)
        with self._lock:
            if key not in self._clients:
                self._clients[key] = self._make(params)
            return self._clients[key]

    def _make(self, params: dict[str, Any]) -> RedisCluster:
        given = {name: value for name, value in params.items() if name != "parser_class"}
        # If nodes are lost, the others serve their slots. The first slot that has moved makes the client read the map.
        defaults = {
            "startup_nodes": list(starmap(ClusterNode, self.options.get("NODES", ()))),
            "require_full_coverage": False,
            "reinitialize_steps": 1,
            "retry": Retry(NoBackoff(), 1),
        }
        client = Cluster(**{**defaults, **given})
        if "retry" not in given:
            # By default, redis-py retries ten times: a node that hangs would hold up a save for as many timeouts. Until
            # here there is one retry, as a new client asks a random node for the list of commands.
            client.set_retry(Retry(NoBackoff(), 0))
        return client

    def disconnect(self, connection: Any) -> None:
        if any(pid == os.getpid() for (pid, _), made in self._clients.items() if made is connection):
            connection.disconnect_connection_pools()

    @classmethod
    def forget(cls) -> None:
        """Have the child of a fork make its own clients. Another thread may have held the locks of its parent's."""
        cls._lock = Lock()
        for cache in caches.all(initialized_only=True):
            client = getattr(cache, "client", None)
            if isinstance(getattr(client, "connection_factory", None), cls):
                client.do_close_clients()  # type: ignore[union-attr]


os.register_at_fork(after_in_child=ConnectionFactory.forget)


def is_cluster(client: Any) -> bool:
    return RedisCluster in type(client).__mro__  # isinstance() would go through redis-py's protocols


def node_of(client: Any, key: str) -> Any:
    """The client of the server that a key lies on: in a cluster, of its node."""
    return client.get_redis_connection(client.get_node_from_key(key)) if is_cluster(client) else client


def name_of_node(client: Any, key: str) -> str:
    """The name of the node that a key lies on; '' without a cluster."""
    return str(client.get_node_from_key(key).name) if is_cluster(client) else ""


def use_replica(client: Any, key: str, use: Callable[[Any], Any]) -> Any:
    """Return ``use(replica)`` for a replica of the node that a key lies on, or for the node if it has none."""
    replicas = client.replicas
    node = replica_of(replicas, key, random())  # noqa: S311 - no secret
    try:
        return use(replicas.get_redis_connection(node))
    except (ConnectionError, TimeoutError, MovedError):
        replicas.nodes_manager.initialize(last_failed_node_name=node.name)
        raise


def replica_of(replicas: Any, key: str, dice: float) -> Any:
    """A replica of the node that a key lies on, chosen by ``dice``, a number from 0 to below 1."""
    nodes = replicas.nodes_manager.slots_cache.get(replicas.keyslot(key)) or []
    if not nodes:
        raise SlotNotCoveredError(f"No node serves the slot of {key!r}")
    chosen = nodes[1:] or nodes
    return chosen[int(dice * len(chosen))]


def primaries(client: Any) -> list[Any]:
    """The clients of all servers that take writes."""
    return list(map(client.get_redis_connection, client.get_primaries())) if is_cluster(client) else [client]


def pipelined(client: Any, key: str, commands: Iterable[Sequence[Any]], *, atomic: bool) -> list[Any]:
    """The replies of the server that a key lies on to several commands, errors among them, in one round trip.

    redis-py's own pipeline of a cluster would ask a server for the keys of each command, and send each command again,
    one by one, after a timeout.
    """
    pipeline: Any = node_of(client, key).pipeline(transaction=atomic)
    for words in commands:
        pipeline.execute_command(*words)
    try:
        replies: list[Any] = pipeline.execute(raise_on_error=False)
    except (ConnectionError, TimeoutError):
        if is_cluster(client):
            client.nodes_manager.initialize(last_failed_node_name=client.get_node_from_key(key).name)
        raise
    return replies


def renew(client: Any, error: Exception) -> bool:
    """Have a client look up its server again after an error. Return False if the request must not be repeated: the
    server may have carried it out."""
    if not is_cluster(client):
        if is_replica := isinstance(error, ReadOnlyError):  # other threads close their connections themselves
            client.connection_pool.disconnect(inuse_connections=False)
        return is_replica
    client.nodes_manager.initialize()
    return not isinstance(error, ConnectionError) or isinstance(error.__context__, ConnectionRefusedError)
