"""Sending calls to a server: scripts by their digests, several calls in one round trip.

A client of redis-py's own knows one server. One that knows several has the methods of :class:`Servers`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from django.core.cache import caches
from django.core.signals import setting_changed
from redis import Redis
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError

from ..queries.request import Call, Request
from .keys import tag_of

__all__ = [
    "Servers",
    "cache_client",
    "has_several",
    "in_trips",
    "is_one_trip",
    "node_of",
    "primaries",
    "renew",
    "send",
    "send_all",
    "send_each",
    "send_once",
    "send_request",
    "server_of",
    "spreads_keys",
    "words",
]

_MOST: Final = 3000
"""Microseconds that the calls of one round trip may take of a server: it answers all of a pipeline that it has read
before it turns to another client."""


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


setting_changed.connect(_forget, dispatch_uid="django_zrank.redis.sending")


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


def spreads_keys(alias: str) -> bool:
    """Return True if the clients of a cache know several servers, each of which holds some slots."""
    return getattr(cache_client(alias).connection_factory, "spreads_keys", False)


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
    # Other threads close their connections themselves.
    if has_stepped_down := isinstance(error, ReadOnlyError):
        client.connection_pool.disconnect(inuse_connections=False)
    return has_stepped_down


def is_one_trip(request: Request) -> bool:
    """Return True if the calls go in one round trip, whatever servers they are about."""
    return len(request.calls) == 1 or request.cost <= _MOST


def in_trips(request: Request, locate: Callable[[str], str] = lambda key: "") -> list[Sequence[int]]:
    """Return the numbers of the calls of each round trip, so that none holds a server for long: several indexes may
    lie on one. A transaction about one of them is not cut. ``locate``: a function from a key to the name of its server,
    if there are several.
    """
    calls = request.calls
    if is_one_trip(request):
        return [range(len(calls))]
    trips: list[list[int]] = []
    last: dict[str, tuple[int, int, str]] = {}
    for at, call in enumerate(calls):
        server, tag = locate(call.keys[0]), tag_of(call.keys[0])
        trip, spent, before = last.get(server, (0, 0, ""))
        if spent and spent + call.cost > _MOST and not (request.atomic and tag == before):
            trip, spent = trip + 1, 0
        last[server] = trip, spent + call.cost, tag
        if trip == len(trips):
            trips.append([])
        trips[trip].append(at)
    return list(trips)


def send_request(client: Any, request: Request) -> list[Any]:
    """Return the replies to a request, in one round trip."""
    if has_several(client):
        replies: list[Any] = client.send_request(request)
        return replies
    calls = request.calls
    if request.once:
        return [send_once(client, calls[0])]
    if len(calls) == 1:
        return [send(client, calls[0])]
    return send_each(client, calls) if request.each else send_all(client, calls, atomic=request.atomic)


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
