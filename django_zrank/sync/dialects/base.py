"""The base of the dialects: names of triggers, and the methods that each dialect implements."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar, Final, NamedTuple

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from ...models import Mark

__all__ = ["PREFIX", "ByRow", "Capture", "Dialect", "Trigger", "Unit", "owner_of"]

PREFIX: Final = "zrank_capture_"
"""The prefix of the names of all triggers of the app."""

_NAME: Final = re.compile(rf"{PREFIX}.*(_([0-9a-f]{{8}})_[0-9a-f]{{8}}_[a-z]+)")


class Trigger(NamedTuple):
    table: str
    """In the database's own spelling."""

    name: str
    """``zrank_capture_<index>_<its hash>_<definition's hash>_<operation>``: a trigger is current if its name is."""

    def __str__(self) -> str:
        return f"{self.name} on {self.table}"

    @property
    def owner(self) -> str:
        """The owner in its name: one of the :attr:`Unit.owners` of its index; '' for a trigger that isn't the app's."""
        match = _NAME.fullmatch(self.name)
        return match[2] if match else ""

    @property
    def purpose(self) -> tuple[str, str]:
        """The table, and the end of the name: what two triggers of one definition share."""
        match = _NAME.fullmatch(self.name)
        return self.table, match[1] if match else ""


@dataclass(frozen=True)
class Capture:
    """A table whose changes leave marks for an index."""

    index: str
    model: type[models.Model]
    via: str | None
    column: models.Field[Any, Any]
    """The column whose value goes into ``Mark.member``."""

    watched: frozenset[models.Field[Any, Any]] | None
    """The columns whose change leaves a mark, or None: any update does."""

    is_referenced: bool = False
    """True if members lead to its rows by foreign keys that the database checks: no member leads to a new row, unless
    it was written in the same transaction, which left a mark of its own."""

    @property
    def columns(self) -> list[models.Field[Any, Any]]:
        """Every column that a trigger names."""
        named = {self.column, *self.model._meta.pk_fields, *(self.watched or ())}
        return sorted(named, key=lambda field: field.column)


@dataclass(frozen=True)
class Unit:
    """The triggers of one capture, and the statements that make them."""

    capture: Capture
    owners: Collection[str]
    """The owners in the names of its triggers, also of those that older releases made for the same purpose."""

    prepare: Sequence[str]
    create: dict[Trigger, str]

    seal: Trigger | None = None
    """For databases without transactional DDL: the trigger of ``create`` that is created last, after the mark for all
    members, and dropped first. Without it, the unit isn't in place."""


class Dialect(ABC):
    """The triggers of one database. ``tables``: those that it will be asked about."""

    transactional: ClassVar[bool] = True
    """True if triggers are created and dropped transactionally."""

    remakes_tables: ClassVar[bool] = False
    """True if Django alters a table by replacing it with a new one."""

    unique_names: ClassVar[bool] = False
    """True if the name of a trigger is unique in a database, not only for its table."""

    advice: ClassVar[str]
    """A hint for errors when the database refuses a trigger."""

    columns_named: ClassVar[re.Pattern[str]]
    """Matches the columns that a trigger's text names."""

    def __init__(self, connection: BaseDatabaseWrapper, tables: Iterable[str]) -> None:
        self.connection, self.tables = connection, frozenset(tables)
        self.marks = self.quote(Mark._meta.db_table)

    @abstractmethod
    def unit(self, capture: Capture) -> Unit:
        """Return the triggers of ``capture``."""

    @abstractmethod
    def installed(self) -> dict[Trigger, bool]:
        """Return all triggers of the app, with True for each that is in force."""

    @abstractmethod
    def texts(self) -> dict[Trigger, str]:
        """Return the SQL text of all triggers of the app."""

    @abstractmethod
    def drop(self, trigger: Trigger) -> str:
        """Return the statement that drops ``trigger``."""

    @abstractmethod
    def identity(self) -> object:
        """Return a value that is the same for all connections to a database."""

    def seal(self, unit: Unit) -> str:
        """Return the statement that creates the seal of a unit whose other triggers are there."""
        return unit.create[unit.seal]  # type: ignore[index]

    def problems(self) -> dict[str, str]:
        """Return the reason why triggers can't watch a table, by its name, for each table that has one."""
        return {}

    @contextmanager
    def short_lock_timeout(self) -> Iterator[None]:
        """Don't wait long for table locks in this block: a session that waits for one blocks all later ones."""
        yield

    def columns(self, tables: Iterable[str]) -> dict[str, set[str]]:
        """Return the names of the columns of each table; none for a table that doesn't exist."""
        introspection = self.connection.introspection
        with self.connection.cursor() as cursor:
            present = {name.lower(): name for name in introspection.table_names(cursor)}
            return {
                table: {
                    column.name
                    for column in introspection.get_table_description(cursor, present[table.lower()])
                }
                if table.lower() in present
                else set()
                for table in tables
            }

    def dangling(self) -> set[Trigger]:
        """Return the triggers of the app that fail their table's writes, because they name a missing column."""
        texts = self.texts()
        columns = self.columns({trigger.table for trigger in texts})
        folded = {table: set(map(self.fold, names)) for table, names in columns.items()}
        return {trigger for trigger, text in texts.items() if not self.named(text) <= folded[trigger.table]}

    def fold(self, column: str) -> str:
        """Return a column's name in the spelling in which names are compared."""
        return column

    def spell(self, table: str) -> Collection[str]:
        """Return the names in :attr:`Trigger.table` that mean a table of a model."""
        return [table.lower()]

    def named(self, text: str) -> set[str]:
        """Return the columns that a trigger's text names."""
        return set(map(self.fold, self.columns_named.findall(text)))

    def leftovers(self) -> list[str]:
        """Return statements that remove what dropped triggers leave behind."""
        return []

    def quote(self, name: str) -> str:
        return str(self.connection.ops.quote_name(name))

    def column(self, field: models.Field[Any, Any]) -> str:
        """Return the quoted name of a field's column."""
        return self.quote(str(field.column))

    def text(self, text: str) -> str:
        """Return ``text`` as a literal."""
        return "'" + text.replace("'", "''") + "'"

    def mark(self, capture: Capture, member: str) -> tuple[str, str]:
        """Return the columns and the values of a mark."""
        columns = {"index": self.text(capture.index), "member": member}
        if capture.via is not None:
            columns["via"] = self.text(capture.via)
        return ", ".join(map(self.quote, columns)), ", ".join(columns.values())

    def owners(self, capture: Capture, table: str) -> list[str]:
        """Return the owners in the names of triggers, of this release and of earlier ones."""
        what = repr((capture.index, table, capture.via, capture.column.column))
        return [owner_of(capture.index), _digest(what)]

    def stem(self, capture: Capture, table: str, definition: Iterable[str], state: str = "") -> str:
        """Return the prefix of the names of a unit's triggers, short enough for every database. ``state``: of the
        table, if the trigger must be made anew whenever that changes."""
        what = repr((capture.index, table, capture.via, capture.column.column))
        slug = re.sub(r"[^a-z0-9]+", "_", capture.index.lower())[:11].strip("_")
        slug += f"_{_digest(state)}" if state else ""
        return "_".join([PREFIX + slug, owner_of(capture.index), _digest(what + "\n".join(definition))])


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


def owner_of(index: str) -> str:
    """Return the owner in the names of an index's triggers."""
    return _digest(index)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]
