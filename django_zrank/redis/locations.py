"""Locations of caches: which of them are one Redis database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.conf import settings

__all__ = ["location_of", "sharing"]


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
        names and f"The indexes share a Redis database with the cache {names}: cache.clear() would wipe them."
    )
