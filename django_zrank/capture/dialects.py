"""The dialect of each database."""

from __future__ import annotations

from typing import Final

from .dialect import Dialect
from .mysql import MySQL
from .postgresql import PostgreSQL
from .sqlite import SQLite

DIALECTS: Final[dict[str, type[Dialect]]] = {"postgresql": PostgreSQL, "mysql": MySQL, "sqlite": SQLite}
"""By the ``vendor`` of a connection."""
