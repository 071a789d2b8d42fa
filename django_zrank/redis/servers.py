"""The servers behind a client. A client of redis-py's own knows one, and is asked itself."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final, Protocol

from django.core.cache import caches
from django.core.signals import setting_changed
from redis import Redis
from redis.exceptions import ReadOnlyError

from ..queries.request import Request

__all__ = ["Servers", "cache_client", "has_several", "node_of", "primaries", "renew", "server_of"]


class _CacheClients(threading.local):
    """django-redis's clients of this thread, by the aliases of their caches: ``caches`` takes 3 µs to find one, a tenth
    of a read."""

    def __init__(self) -> None:
        self.by_alias: dict[str, Any] = {}


_kept: Final = [_CacheClients()]


def cache_client(alias: str) -> Any:
    """Return django-redis's client for an alias of ``CACHES``. Ask it for the raw client, ``get_client()``, before each
    call, because it closes and replaces that."""
    clients = _kept[0].by_alias
    client = clients.get(alias)
    if client is None:
        cache: Any = caches[alias]
        client = clients[alias] = cache.client
    return client


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "CACHES":
        _kept[0] = _CacheClients()  # in all threads


setting_changed.connect(_forget, dispatch_uid="django_zrank.redis.servers")


class Servers(Protocol):
    """The methods of a client of several servers, which a connection factory brings. Of what it sends, the first key
    says which server takes it. It raises subclasses of ``RedisError`` alone."""

    def send_request(self, request: Request) -> list[Any]:
        """Return the replies to a request, in one round trip to all servers that it is about."""

    def server_of(self, key: str) -> str:
        """Return the name of the server that a key lies on."""

    def node_of(self, key: str) -> Redis:
        """Return the client of the server that a key lies on."""

    def primaries(self) -> Sequence[Redis]:
        """Return the clients of all servers that take writes."""

    def renew(self, error: Exception) -> bool:
        """Look up the servers again after an error. Return False if the request must not be repeated: a server may have
        carried it out."""


def has_several(client: Any) -> bool:
    """Return True for a client of several servers."""
    return hasattr(client, "send_request")


def server_of(client: Any, key: str) -> str:
    """Return the name of the server that a key lies on; '' for the only one."""
    return client.server_of(key) if has_several(client) else ""


def node_of(client: Any, key: str) -> Any:
    """Return the client of the server that a key lies on."""
    return client.node_of(key) if has_several(client) else client


def primaries(client: Any) -> Sequence[Any]:
    """Return the clients of all servers that take writes."""
    return client.primaries() if has_several(client) else [client]


def renew(client: Any, error: Exception) -> bool:
    """Have a client look up its server again after an error. Return False if the request must not be repeated."""
    if has_several(client):
        return bool(client.renew(error))
    if is_replica := isinstance(error, ReadOnlyError):  # other threads close their connections themselves
        client.connection_pool.disconnect(inuse_connections=False)
    return is_replica
