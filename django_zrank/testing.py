"""For the test suites of projects that use the app, and for demos: a real server, and sync under control.

``ZRankTestMixin`` is for Django's test cases; the pytest fixtures are in :mod:`django_zrank.pytest_plugin`. Both give
tests a Redis of their own, one for each process: an embedded server, or the one that ``ZRANK["TEST_LOCATION"]`` names,
with a key prefix of its own.
"""

from __future__ import annotations

import atexit
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from secrets import token_hex
from typing import Any, ClassVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, transaction
from django.test import SimpleTestCase
from django.test.utils import override_settings
from django_redis import get_redis_connection
from redis import Redis

from .builds import TESTS
from .conf import get_settings, raw_settings
from .embedded import EmbeddedServer
from .exceptions import NotIsolated
from .index import RankIndex
from .models import Build
from .redis import isolation
from .registry import registry
from .store import Store
from .sync.in_step import breaker
from .sync.push import forget
from .sync.rebuild import rebuild
from .sync.signal_handlers import disable_sync

__all__ = ["EmbeddedServer", "ZRankTestMixin", "disable_sync", "own_redis", "reset", "sync_now"]


_TERM = 2**53
"""The term of tests' servers: above that of any index that was built on them before."""


class TestLocation:
    """The Redis that ``ZRANK["TEST_LOCATION"]`` names. Others may use it too, so keys get a prefix of their own."""

    __test__ = False

    def __init__(self, url: str) -> None:
        self.url = url
        prefix, self.suffix = get_settings().key_prefix, f"-test-{token_hex(4)}"
        self.key_prefix = (
            f"{prefix}{self.suffix}" if isinstance(prefix, str) else lambda: prefix() + self.suffix
        )

    def __enter__(self) -> TestLocation:
        return self

    def __exit__(self, *exc_info: object) -> None:
        with Redis.from_url(self.url) as client:
            self.empty(client)

    def empty(self, client: Redis) -> None:
        """Remove the keys of this process's tests."""
        for key in client.scan_iter(f"*{self.suffix}:*", count=500):
            client.unlink(key)


def make_server() -> EmbeddedServer | TestLocation:
    """The server that the settings name for tests, as a context manager."""
    location = get_settings().test_location
    return EmbeddedServer() if location is None else TestLocation(location)


def settings_for(server: Any) -> dict[str, Any]:
    """The settings that make the app use a server: an object with a ``url``, and perhaps ``options``.

    Only the timeouts of the cache's options are kept: passwords, Sentinels and certificates belong to another server.
    """
    alias, caches = get_settings().redis_alias, dict(settings.CACHES)
    cache: Any = caches[alias]
    options = cache.get("OPTIONS", {})
    kept = {name: options[name] for name in ("SOCKET_CONNECT_TIMEOUT", "SOCKET_TIMEOUT") if name in options}
    factory = {"CONNECTION_FACTORY": "django_redis.pool.ConnectionFactory"}
    options = {**factory, **getattr(server, "options", {}), **kept}
    caches[alias] = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url, "OPTIONS": options}
    if prefix := getattr(server, "key_prefix", None):
        return {"CACHES": caches, "ZRANK": {**raw_settings(), "KEY_PREFIX": prefix}}
    return {"CACHES": caches}


def empty(server: Any) -> Redis:
    """Empty the server, which the settings must name already. Returns the raw client."""
    isolation.require_test("Emptying a Redis")
    isolation.require_redis()
    alias = get_settings().redis_alias
    caches: dict[str, Any] = settings.CACHES
    if caches[alias]["LOCATION"] != server.url:
        raise NotIsolated(
            f"A test sets CACHES[{alias!r}] to another server than the one it was given, which is not emptied."
        )
    client: Redis = get_redis_connection(alias)
    if isinstance(server, TestLocation):
        server.empty(client)
    else:
        client.flushdb()
    return client


@contextmanager
def own_redis() -> Iterator[Redis]:
    """Give this process its own empty Redis. The context manager's value is the raw client.

    The server is started when the process first needs it, and runs until the process ends.
    """
    isolation.require_test("own_redis()")
    server = _server_of(os.getpid())
    with override_settings(**settings_for(server)):
        try:
            yield empty(server)
        finally:
            if isinstance(server, TestLocation):
                empty(server)


@cache
def _server_of(pid: int) -> EmbeddedServer | TestLocation:
    """The server of a process: one that is forked from a test run has none yet."""
    server = make_server()
    if isinstance(server, EmbeddedServer):
        server.start()
        atexit.register(server.__exit__)
    return server


class ZRankTestMixin:
    """A mixin that gives test cases a Redis of their own: ``class OpponentTests(ZRankTestMixin, TestCase)``.

    When a test begins, every index contains the rows that ``setUpTestData()`` or a fixture has saved. For rows that the
    test itself saves, see :func:`sync_now`.
    """

    zrank: ClassVar[Redis]
    """The raw client."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if issubclass(cls, SimpleTestCase):
            order = cls.__mro__
            if order.index(ZRankTestMixin) > order.index(SimpleTestCase):
                raise TypeError(
                    f"{cls.__name__}: ZRankTestMixin must be named before the test case it is mixed into."
                )
            isolation.offer()

    @classmethod
    def setUpClass(cls) -> None:
        cls.zrank = cls.enterClassContext(own_redis())  # type: ignore[attr-defined]
        super().setUpClass()  # type: ignore[misc]

    def _callSetUp(self) -> None:  # noqa: N802 - unittest's
        # Not in setUp(), which is often overridden without a call of super(). Nor in Django's _pre_setup(), which runs
        # within setUpClass() for the first test of a TransactionTestCase: before the class has saved rows of its own.
        empty(_server_of(os.getpid()))
        reset()
        for index in registry.all():
            has_rows = False
            with suppress(AssertionError, RuntimeError):  # a database that the test may not use
                has_rows = index.get_ranked().exists()
            if has_rows:  # for the others, reset() has done it, in less time
                sync_now(index)
        super()._callSetUp()  # type: ignore[misc]


def reset() -> None:
    """Build every registered index without members, so that rows that a test saves are pushed.

    The builds are recorded in each database that the test may use, so that marks are processed, too. If the test may
    use a database only later, call this again then. Raises :exc:`~django_zrank.exceptions.NotIsolated` outside of
    tests, and in tests without a Redis of their own.
    """
    isolation.require_test("reset()")
    isolation.require_redis()
    breaker.forget()
    built: dict[str, list[Build]] = defaultdict(list)
    servers: dict[str, str] = {}  # by the node of a cluster
    for index in (holder for whole in registry.all() for holder in whole.holders):
        store, building = Store(index.name, index.layout), index.new_build()
        node = store.node()
        server = servers[node] = servers.get(node) or store.check_health().server
        store.start_rebuild(building, owner=TESTS, server=server, term=_TERM)
        store.swap_rebuilt(building)
        store.unlink_doomed()
        forget(index)
        note = Build(index=index.name, build=building, owner=TESTS, server=server, term=_TERM)
        built[index.get_using()].append(note)
    for using, notes in built.items():
        # Django and pytest-django raise these where a test may not use a database.
        with suppress(AssertionError, RuntimeError), transaction.atomic(using):
            Build.objects.using(using).filter(pk__in=[note.pk for note in notes])._raw_delete(using)
            Build.objects.using(using).bulk_create(notes)


def sync_now(*indexes: RankIndex | type[RankIndex]) -> None:
    """Rebuild indexes, by default all, from the rows that the current connection sees.

    Call this inside a ``TestCase``, where no transaction commits, so nothing is pushed. Indexes of databases that the
    test case may not use stay as they are, unless they are named. Raises
    :exc:`~django_zrank.exceptions.NotIsolated` outside of tests, and in tests without a Redis of their own.
    """
    isolation.require_test("sync_now()")
    isolation.require_redis()
    for index in (one.instance() for one in indexes or registry.all()):
        try:
            rebuild(index, uncommitted=True)
        except AssertionError:  # as Django raises where a test may not use a database
            # A test case without even the default one can't mean this.
            if indexes or index.get_using() == DEFAULT_DB_ALIAS:
                raise
