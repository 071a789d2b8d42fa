"""Triggers that run once for each row, one for each operation: the base of SQLite, MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from .base import Capture, Dialect, Trigger, Unit

__all__ = ["ByRow"]


class ByRow(Dialect):
    """Triggers that run once for each row, one for each operation."""

    catalog: ClassVar[str]
    """Selects each trigger's table, name and text."""

    unique_names = True
    create = "CREATE TRIGGER IF NOT EXISTS"

    def bodies(self, capture: Capture) -> dict[str, str]:
        raise NotImplementedError

    def unit(self, capture: Capture) -> Unit:
        table = capture.model._meta.db_table
        bodies = self.bodies(capture)
        stem = self.stem(capture, table, bodies.values())
        create = {
            Trigger(table.lower(), f"{stem}_{operation}"): (
                f"{self.create} {self.quote(f'{stem}_{operation}')} AFTER {self.event(operation, capture)}"
                f" ON {self.quote(table)} FOR EACH ROW {body}"
            )
            for operation, body in bodies.items()
        }
        return Unit(capture, self.owners(capture, table), (), create)

    def fold(self, column: str) -> str:
        return column.lower()

    def event(self, operation: str, capture: Capture) -> str:
        return operation.upper()

    def installed(self) -> dict[Trigger, bool]:
        return dict.fromkeys(self.texts(), True)

    def texts(self) -> dict[Trigger, str]:
        return {trigger: text for trigger, text, *_ in self.rows()}

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the catalog about the app's triggers."""
        with self.connection.cursor() as cursor:
            cursor.execute(self.catalog)
            for table, name, *others in cursor.fetchall():
                if (trigger := Trigger(table.lower(), name)).owner:
                    yield trigger, *others

    def drop(self, trigger: Trigger) -> str:
        return f"DROP TRIGGER IF EXISTS {self.quote(trigger.name)}"
