"""SQLite."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from django.db import models

from .base import PREFIX, ByRow, Capture

__all__ = ["SQLite"]


class SQLite(ByRow):
    """SQLite. ``move`` leaves a mark for the former member, if an update gives a row to another one."""

    remakes_tables = True
    advice = "Make the database writable."
    catalog = (
        f"SELECT tbl_name, name, sql FROM sqlite_master WHERE type = 'trigger' AND name GLOB '{PREFIX}*'"
    )
    columns_named = re.compile(r'\b(?:OLD|NEW)\."([^"]+)"')

    def identity(self) -> object:
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT file FROM pragma_database_list WHERE name = 'main'")
            (file,) = cursor.fetchone()
        return os.path.realpath(file) if file else self.connection.alias

    def problems(self) -> dict[str, str]:
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT lower(name) FROM sqlite_master WHERE type = 'view'")
            views = {name for (name,) in cursor.fetchall()}
        return {table: "is a view" for table in self.tables if table.lower() in views}

    def columns(self, tables: Iterable[str]) -> dict[str, set[str]]:
        # Django's introspection takes a hundred times as long, because it parses the definitions of tables.
        found: dict[str, set[str]] = {}
        with self.connection.cursor() as cursor:
            for table in tables:
                cursor.execute(
                    "SELECT c.name FROM sqlite_master m, pragma_table_xinfo(m.name) c"
                    " WHERE m.type = 'table' AND m.name = %s COLLATE NOCASE",
                    [table],
                )
                found[table] = {name for (name,) in cursor.fetchall()}
        return found

    def bodies(self, capture: Capture) -> dict[str, str]:
        changed = "" if capture.watched is None else " OR ".join(map(self.differs, capture.columns))
        return {
            "insert": f"BEGIN {self.insert(capture, 'NEW')} END",
            "update": (f"WHEN {changed} " if changed else "") + f"BEGIN {self.insert(capture, 'NEW')} END",
            "move": f"WHEN {self.differs(capture.column)} BEGIN {self.insert(capture, 'OLD')} END",
            "delete": f"BEGIN {self.insert(capture, 'OLD')} END",
        }

    def event(self, operation: str, capture: Capture) -> str:
        if operation != "move":
            return super().event(operation, capture)
        # An update of other columns doesn't run it. An integer key has three more names.
        return f"UPDATE OF {self.column(capture.column)}, rowid, oid, _rowid_"

    def insert(self, capture: Capture, row: str) -> str:
        member = f"{row}.{self.column(capture.column)}"
        columns, values = self.mark(capture, member)
        # SELECT costs twice as much as VALUES. SQLite converts the key to text, by the column's affinity.
        what = f"SELECT {values} WHERE {member} IS NOT NULL" if capture.column.null else f"VALUES ({values})"
        return f"INSERT INTO {self.marks} ({columns}) {what};"

    def differs(self, field: models.Field[Any, Any]) -> str:
        column = self.column(field)
        return f"OLD.{column} COLLATE BINARY IS NOT NEW.{column}"
