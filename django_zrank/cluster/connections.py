"""The connections of a cache to a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import starmap
from threading import Lock
from typing import Any, ClassVar, Final

from django.core.cache import caches
from django.core.checks import CheckMessage
from django_redis.pool import ConnectionFactory as BaseFactory
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import parse_url
from redis.retry import Retry

from .checks import check_location
from .client import Cluster, as_redis_errors

__all__ = ["ConnectionFactory"]


class ConnectionFactory(BaseFactory):  # type: ignore[misc]
    """Connects a cache to a cluster, whose ``LOCATION`` is the URL of any of its nodes.

    ``OPTIONS`` are those of django-redis, with ``NODES``: a list of further nodes, ``(host, port)``, from which a
    process can learn the others. ``get_redis_connection()`` returns a ``redis.cluster.RedisCluster``: one for each
    process and location, since creating one takes two round trips, and Django creates a cache object for each thread.
    """

    blocks: ClassVar[bool] = True
    """Coroutines leave connecting and sending to threads."""

    spreads_keys: ClassVar[bool] = True
    """Keys of several slots may lie on several servers, so no call takes them."""

    _clients: Final[dict[tuple[Any, ...], RedisCluster]] = {}
    _lock = Lock()

    def connect(self, url: str) -> RedisCluster:
        params = self._params(url)
        key = os.getpid(), repr(params)
        with self._lock, as_redis_errors():
            if key not in self._clients:
                self._clients[key] = self._make(params)
            return self._clients[key]

    def _params(self, url: str) -> dict[str, Any]:
        return {**self.make_connection_params(url), **self.pool_cls_kwargs, **self.redis_client_cls_kwargs}

    def client_options(self, url: str) -> dict[str, Any]:
        """Return the options of connections, for checks, without connecting."""
        given = parse_url(url) if "://" in url else {}  # type: ignore[no-untyped-call]
        return {**self._params(url), **given}

    def check(self, alias: str, config: dict[str, Any]) -> Iterator[CheckMessage]:
        """Check an entry of ``CACHES`` that names this factory."""
        return check_location(alias, config)

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
