"""The connections of a process to Redis."""

from __future__ import annotations

from typing import Any

import django.test.signals  # noqa: F401 - whoever keeps connections hears of other settings
from django.conf import settings
from django.core.cache import caches
from django.test.utils import override_settings

__all__ = ["disconnect", "pin"]

_SENTINELS = ("CLIENT_CLASS", "CONNECTION_POOL_CLASS", "CONNECTION_FACTORY", "SENTINELS", "SENTINEL_KWARGS")


def pin(url: str) -> None:
    """Let this process know one server for good, whichever is the primary."""
    cache = settings.CACHES["zrank"]
    options: dict[str, Any] = {
        name: value for name, value in cache["OPTIONS"].items() if name not in _SENTINELS
    }
    override_settings(
        CACHES={**settings.CACHES, "zrank": {**cache, "LOCATION": url, "OPTIONS": options}}
    ).enable()


def disconnect() -> None:
    """Send the next command to the server that is the primary now."""
    caches["zrank"].client.do_close_clients()
