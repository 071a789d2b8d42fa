"""Keeps tests out of a project's Redis.

Django creates separate databases for tests, but leaves Redis as it is. So while a test environment is set up (by
Django's test runner, or by pytest-django), this app only uses a Redis that belongs to the tests: without one, saves
push nothing, and anything else raises :exc:`~django_zrank.exceptions.NotIsolated`.
"""

from __future__ import annotations

import sys
from typing import Any, cast

from django.conf import settings

from ..conf import get_settings
from ..exceptions import NotIsolated
from .locations import location_of

__all__ = [
    "is_isolated",
    "is_offered",
    "is_testing",
    "may_use_redis",
    "offer",
    "remember",
    "require_redis",
    "require_test",
]

_project: set[tuple[tuple[Any, ...], str]] = set()
"""The location and the prefix of each of the project's caches when the process started."""


def remember() -> None:
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
            f"Tests do not use the Redis of CACHES[{get_settings().redis_alias!r}]. Give them one of their own with "
            "the fixture zrank or with django_zrank.testing.ZRankTestMixin. Or, if these settings are for tests "
            "alone, set ZRANK['TEST_LOCATION'] to the LOCATION of that cache."
        )


def require_test(what: str) -> None:
    """Raise ``NotIsolated`` unless a test environment is set up."""
    if not is_testing():
        module = getattr(settings, "SETTINGS_MODULE", None) or "configured by hand"
        raise NotIsolated(f"{what} is for tests: no test environment is set up (settings: {module}).")
