"""Keeps tests out of a project's Redis.

Django creates separate databases for tests, but leaves Redis as it is. So while a test environment is set up (by
Django's test runner, or by pytest-django), this app only uses a Redis that belongs to the tests: without one, saves
push nothing, and anything else raises :exc:`~django_zrank.exceptions.NotIsolated`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from django.conf import settings

from ..conf import get_settings
from ..exceptions import NotIsolated

__all__ = [
    "is_isolated",
    "is_offered",
    "is_testing",
    "location_of",
    "may_use_redis",
    "note_project",
    "offer",
    "require_redis",
    "require_test",
    "sharing",
]

_project: set[tuple[tuple[Any, ...], Any]] = set()
"""The location and the prefix, as it was declared, of each of the project's caches when the process started."""


def note_project() -> None:
    """Note the project's Redis. Called once, before a test can change the settings."""
    caches: Any = settings.CACHES
    _project.update((location_of(cache), get_settings().key_prefix) for cache in caches.values())


def is_testing() -> bool:
    """Return True if a test environment is set up in this process."""
    # If it isn't imported, nothing has set it up. Another thread may be importing it now.
    state = getattr(sys.modules.get("django.test.utils"), "_TestState", None)
    return hasattr(state, "saved_data")


def is_isolated() -> bool:
    """Return True if the Redis in use is the tests' own.

    It is another one than the project's, or has another prefix, or is the one that the project names for its tests.
    """
    now, caches = get_settings(), cast("dict[str, Any]", settings.CACHES)
    if now.redis_alias not in caches:
        return False
    location = location_of(caches[now.redis_alias])
    is_for_tests = now.test_location is not None and location == location_of({"LOCATION": now.test_location})
    return is_for_tests or (location, now.key_prefix) not in _project


def may_use_redis() -> bool:
    """Return False in a test without a Redis of its own."""
    return not is_testing() or is_isolated()


_offered = False


def offer() -> None:
    """Note that some tests will get a Redis of their own."""
    global _offered
    _offered = True


def is_offered() -> bool:
    return _offered


def require_redis() -> None:
    """Raise ``NotIsolated`` in a test without a Redis of its own."""
    if is_testing() and not is_isolated():
        raise NotIsolated(
            f"Tests don't use the Redis of CACHES[{get_settings().redis_alias!r}]. Give them a separate one: use "
            "the fixture zrank, or the mixin for test cases (Testing, in the docs). Or, if only tests use these "
            "settings, set ZRANK['TEST_LOCATION'] to the LOCATION of that cache."
        )


def require_test(what: str) -> None:
    """Raise ``NotIsolated`` unless a test environment is set up."""
    if not is_testing():
        module = getattr(settings, "SETTINGS_MODULE", None) or "configured by hand"
        raise NotIsolated(f"{what} is for tests: no test environment is set up (settings: {module}).")


def location_of(cache: Mapping[str, Any]) -> tuple[Any, ...]:
    """The host, port and database number of an entry of ``CACHES``; its ``LOCATION`` if that isn't the URL of one
    server."""
    location = cache.get("LOCATION")
    text = str(location[0] if isinstance(location, (list, tuple)) and location else location)
    try:
        url = urlsplit(text)
        port = url.port or 6379
    except ValueError:  # several hosts
        return (text,)
    if not url.scheme.startswith(("redis", "valkey")):
        return (text,)
    database = cache.get("OPTIONS", {}).get("CONNECTION_POOL_KWARGS", {}).get("db")
    database = database or parse_qs(url.query).get("db", [url.path.strip("/")])[-1]
    return "127.0.0.1" if url.hostname == "localhost" else url.hostname, port, str(database or 0)


def sharing(alias: str) -> str:
    """A warning if the cache ``alias`` shares its database with others, or is the default one; else empty."""
    caches: Any = settings.CACHES
    location = location_of(caches[alias])
    shared = [other for other in caches if other != alias and location_of(caches[other]) == location]
    if alias == "default":
        shared.append(alias)
    names = ", ".join(map(repr, shared))
    return (
        names
        and f"The indexes share a Redis database with the cache {names}: cache.clear() would delete them."
    )
