"""Triggers of SQLite."""

from __future__ import annotations

import os
import re
from typing import Any

from django.db import models

from .dialect import PREFIX, Dialect
from .watched_tables import WatchedTable


class SQLite(Dialect):
    """SQLite. ``move`` leaves a mark for the former member, if an update gives a row to another one."""

    remakes_tables = True
    advice = "Make the database writable."
    catalog = (
        f"SELECT tbl_name, name, sql FROM sqlite_master WHERE type = 'trigger' AND name GLOB '{PREFIX}*'"
    )
    # Django's introspection takes a hundred times as long, because it parses the definitions of tables.
    catalog_of_columns = (
        "SELECT c.name FROM sqlite_master m, pragma_table_xinfo(m.name) c"
        " WHERE m.type = 'table' AND m.name = %s COLLATE NOCASE"
    )
    catalog_of_databases = "SELECT file FROM pragma_database_list WHERE name = 'main'"
    catalog_of_problems = "SELECT name, 'is a view' FROM sqlite_master WHERE type = 'view'"
    columns_named = re.compile(r'\b(?:OLD|NEW)\."([^"]+)"')

    def identity(self) -> object:
        ((file,),) = self.select(self.catalog_of_databases)
        return os.path.realpath(file) if file else self.connection.alias

    def bodies(self, source: WatchedTable) -> dict[str, str]:
        changed = "" if source.fields is None else " OR ".join(map(self.differs, source.columns))
        return {
            "insert": f"BEGIN {self.insert(source, 'NEW')} END",
            "update": (f"WHEN {changed} " if changed else "") + f"BEGIN {self.insert(source, 'NEW')} END",
            "move": f"WHEN {self.differs(source.column)} BEGIN {self.insert(source, 'OLD')} END",
            "delete": f"BEGIN {self.insert(source, 'OLD')} END",
        }

    def event(self, operation: str, source: WatchedTable) -> str:
        if operation != "move":
            return super().event(operation, source)
        # An update of other columns doesn't run it. An integer key has three more names.
        return f"UPDATE OF {self.column(source.column)}, rowid, oid, _rowid_"

    def insert(self, source: WatchedTable, row: str) -> str:
        member = f"{row}.{self.column(source.column)}"
        columns, values = self.mark(source, member)
        # SELECT costs twice as much as VALUES. SQLite converts the key to text, by the column's affinity.
        what = f"SELECT {values} WHERE {member} IS NOT NULL" if source.column.null else f"VALUES ({values})"
        return f"INSERT INTO {self.marks} ({columns}) {what};"

    def differs(self, field: models.Field[Any, Any]) -> str:
        column = self.column(field)
        return f"OLD.{column} COLLATE BINARY IS NOT NEW.{column}"
