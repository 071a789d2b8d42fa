"""The triggers of each database, as SQL. Reads catalogs, changes nothing."""

from __future__ import annotations

from typing import Final

from .base import PREFIX, Capture, Dialect, Trigger, Unit, owner_of
from .mysql import MySQL
from .postgresql import PostgreSQL
from .sqlite import SQLite

__all__ = ["DIALECTS", "PREFIX", "Capture", "Dialect", "Trigger", "Unit", "owner_of"]

DIALECTS: Final[dict[str, type[Dialect]]] = {"postgresql": PostgreSQL, "mysql": MySQL, "sqlite": SQLite}
"""By the ``vendor`` of a connection."""
