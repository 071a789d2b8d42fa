"""Clients of ``redis.asyncio``, one pool for each event loop, with the options of django-redis's own client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis.asyncio.connection
import redis.asyncio.sentinel
from asgiref.sync import SyncToAsync
from django.conf import settings
from django.core.cache import caches
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry
from redis.sentinel import SentinelConnectionPool

from ..pool import AsyncDropping, dropping
from .isolation import require_redis
from .pipelines import Pipelines

__all__ = ["Client", "Loop", "running_loop"]

_OWN = ("command_packer", "connection_pool", "event_dispatcher", "himport_registry", "parser_class")
_OWN_PREFIXES = ("maint_", "maintenance_", "orig_", "oss_")
"""Arguments that redis-py itself adds to blocking connections."""


class Client:
    """A client of one server, and its free connections."""

    def __init__(self, redis: Redis | None) -> None:
        self.redis = copy_client(redis) if redis else None
        """None if requests are sent from threads."""

        self.free = asyncio.Semaphore(self.redis.connection_pool.max_connections if self.redis else 1)
        """Makes coroutines wait for a connection; a thread is refused one."""

        self.pipelines = Pipelines(self.redis, self.free) if self.redis else None

    async def close(self) -> None:
        """Close its connections."""
        if self.redis:
            await self.redis.aclose()
            manager = getattr(self.redis.connection_pool, "sentinel_manager", None)
            for sentinel in manager.sentinels if manager else ():
                await sentinel.aclose()


class Loop:
    """The clients of one event loop, and the steps that its coroutines take together."""

    def __init__(self) -> None:
        self.caches: dict[str, tuple[Any, Any]] = {}
        """The entry of ``CACHES``, and django-redis's client for it, by the alias."""

        self.clients: dict[tuple[str, int], Client] = {}
        """By the alias and django-redis's number of the server: 0 is the primary."""

        self.until: dict[Hashable, float] = {}
        """The times until which the servers of these clients are trusted: see
        :class:`~django_zrank.redis.reader.Trust`."""

        self.together: dict[Hashable, asyncio.Future[BaseException | None]] = {}
        """Steps that coroutines take together: see :class:`~django_zrank.queries.steps.Once`."""

        self.life = self._live()

    async def client(self, alias: str, *, write: bool = True) -> Client:
        """Return the client for an alias of ``CACHES``; of the server that django-redis chooses to write or to read."""
        require_redis()
        entry = settings.CACHES.get(alias)
        made_for, cache = self.caches.get(alias, (None, None))
        if cache is None or made_for is not entry:
            found: Any = caches[alias]
            cache = found.client
            self.caches[alias] = entry, cache
            for key in [key for key in self.clients if key[0] == alias]:  # other settings, in tests
                await self.clients.pop(key).close()
        number = cache.get_next_client_index(write=write)
        client = self.clients.get((alias, number))
        if client is None:
            # A factory may say that its clients block: then threads connect, too.
            blocks = getattr(cache.connection_factory, "blocks", False)
            client = self.clients[alias, number] = Client(None if blocks else cache.connect(number))
        return client

    async def _live(self) -> AsyncGenerator[None]:
        """Close the connections when the loop ends: asyncio.run() and servers then close asynchronous generators."""
        try:
            yield
        finally:
            _loops.pop(asyncio.get_running_loop(), None)
            for client in self.clients.values():
                await client.close()
            self.clients.clear()


_loops: dict[asyncio.AbstractEventLoop, Loop] = {}


async def running_loop() -> Loop:
    """Return the :class:`Loop` of the running event loop. A fork runs another one, so it shares no connection."""
    running = asyncio.get_running_loop()
    loop = _loops.get(running)
    if loop is None:
        for other in [other for other in list(_loops) if other.is_closed()]:  # other threads add theirs
            _loops.pop(other, None)
        loop = _loops[running] = Loop()
        await anext(loop.life)
    return loop


def _renew_thread() -> None:
    """Give a fork a thread for its queries. It inherits asgiref's executor, but not the thread that the parent may have
    started (``gunicorn --preload``), and would wait for it forever."""
    SyncToAsync.single_thread_executor = ThreadPoolExecutor(max_workers=1)


os.register_at_fork(after_in_child=_renew_thread)


def copy_client(client: Redis) -> AsyncRedis:
    """Return a client of the same server with the same options, for coroutines."""
    pool = client.connection_pool
    options: dict[str, Any] = {"max_connections": pool.max_connections, **_options(pool.connection_kwargs)}
    if isinstance(pool, SentinelConnectionPool):
        manager = pool.sentinel_manager
        hosts = [sentinel.connection_pool.connection_kwargs for sentinel in manager.sentinels]
        sentinel = redis.asyncio.sentinel.Sentinel(  # type: ignore[no-untyped-call]
            [(host["host"], host["port"]) for host in hosts],
            manager.min_other_sentinels,
            _options(manager.sentinel_kwargs),
            **_options(manager.connection_kwargs),
        )
        copy: Any = dropping(redis.asyncio.sentinel.SentinelConnectionPool, AsyncDropping)(
            pool.service_name,
            sentinel,
            is_master=pool.is_master,
            check_connection=pool.check_connection,
            connection_class=_counterpart(pool.connection_class, redis.asyncio.sentinel),
            **options,
        )
    else:
        kind = _counterpart(pool.connection_class, redis.asyncio.connection)
        copy = dropping(redis.asyncio.ConnectionPool, AsyncDropping)(connection_class=kind, **options)
    return AsyncRedis.from_pool(copy)  # which it closes, too


def _counterpart(kind: type, module: Any) -> Any:
    """Return the class in ``redis.asyncio`` with the name of a class of connections, or of its nearest base."""
    return next(getattr(module, one.__name__) for one in kind.__mro__ if hasattr(module, one.__name__))


def _options(given: dict[str, Any]) -> dict[str, Any]:
    kept = {
        name: value
        for name, value in given.items()
        if name not in _OWN and not name.startswith(_OWN_PREFIXES)
    }
    if retry := kept.get("retry"):
        kept["retry"] = Retry(retry._backoff, retry._retries, retry._supported_errors)
    return kept
