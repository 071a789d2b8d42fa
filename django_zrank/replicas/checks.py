"""The system check of a cache whose replicas are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from django.core import checks
from django.core.checks import CheckMessage

__all__ = ["check_replicas"]

_WITH_REPLICAS: Final = (".SentinelConnectionFactory", ".cluster.ConnectionFactory")
"""Ends of the names of factories that find replicas by themselves."""


def check_replicas(alias: str, config: dict[str, Any]) -> Iterator[CheckMessage]:
    """Check that an entry of ``CACHES`` names replicas."""
    location, factory = config.get("LOCATION"), config.get("OPTIONS", {}).get("CONNECTION_FACTORY", "")
    if isinstance(location, str) and "," not in location and not factory.endswith(_WITH_REPLICAS):
        message = f"ZRANK['READS'] is 'replica', and CACHES[{alias!r}] names no replicas: all reads go to the primary."
        hint = "Name replicas in its LOCATION, after the primary and a comma; or use Sentinel or a cluster."
        yield checks.Warning(message, hint=hint, id="zrank.W007")
