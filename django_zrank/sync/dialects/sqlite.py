"""SQLite."""

from __future__ import annotations

import os
import re
from typing import Any

from django.db import models

from .base import PREFIX, Capture
from .by_row import ByRow

__all__ = ["SQLite"]


class SQLite(ByRow):
    """``move`` leaves the mark of the member that a row was, where an update gives it to another."""

    operations = ("insert", "update", "move", "delete")
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
        # An update that doesn't name the column pays nothing. An integer key has three more names.
        return f"UPDATE OF {self.column(capture.column)}, rowid, oid, _rowid_"

    def insert(self, capture: Capture, row: str) -> str:
        member = f"{row}.{self.column(capture.column)}"
        columns, values = self.mark(capture, member)
        # A SELECT costs twice what VALUES do. Text is made of the key by SQLite: that is the column's affinity.
        what = f"SELECT {values} WHERE {member} IS NOT NULL" if capture.column.null else f"VALUES ({values})"
        return f"INSERT INTO {self.marks} ({columns}) {what};"

    def differs(self, field: models.Field[Any, Any]) -> str:
        column = self.column(field)
        return f"OLD.{column} COLLATE BINARY IS NOT NEW.{column}"
