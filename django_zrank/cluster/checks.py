"""The system check of a cache whose server is a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from django.core import checks
from django.core.checks import CheckMessage

from ..redis.isolation import location_of

__all__ = ["check_location"]

_PASSWORD: Final = re.compile(r"(://[^/@,]*:)[^/@,]*@")
"""The password in a URL."""


def check_location(alias: str, config: dict[str, Any]) -> Iterator[CheckMessage]:
    """Check the ``LOCATION`` of a cluster."""
    location = str(config.get("LOCATION"))
    if "," in location or not location.startswith(("redis://", "rediss://")):
        hint = "Name one node there, as redis://host:port, and others in OPTIONS['NODES'] as (host, port)."
        problem = "The LOCATION of a cluster must be the URL of one node"
    elif location_of(config)[-1] != "0":
        hint = "Remove the number. A cluster has one database: give indexes that share it a KEY_PREFIX each."
        problem = "The LOCATION of a cluster must name no database"
    else:
        return
    shown = _PASSWORD.sub(r"\1…@", location)
    yield checks.Error(f"CACHES[{alias!r}]: {problem}, not {shown!r}.", hint=hint, id="zrank.E007")
