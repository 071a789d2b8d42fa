"""The base of the dialects: the triggers of all databases. It reads catalogs and changes nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar, Final, NamedTuple

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from ..models import Batch, Build, Capture, Mark
from .watched_tables import WatchedTable

OWN_TABLES: Final = frozenset(model._meta.db_table for model in (Mark, Batch, Build, Capture))
"""The app's tables that are written in one transaction with others."""

PREFIX: Final = "zrank_capture_"
"""The prefix of the names of all triggers of the app."""

_NAME: Final = re.compile(rf"{PREFIX}.*_([0-9a-f]{{8}})_[0-9a-f]{{8}}_[a-z]+")


class Trigger(NamedTuple):
    table: str
    """In the database's own spelling."""

    name: str
    """``zrank_capture_<index>_<its hash>_<definition's hash>_<operation>``: a trigger is recognised by this name,
    which stands for its table and its text, whenever it was made, and whichever object has the table's name."""

    def __str__(self) -> str:
        return f"{self.name} on {self.table}"

    @property
    def owner(self) -> str:
        """The hash of its index; '' for a trigger that isn't the app's."""
        match = _NAME.fullmatch(self.name)
        return match[1] if match else ""


@dataclass(frozen=True)
class Unit:
    """The triggers that watch one table for an index, and the statements that make them."""

    source: WatchedTable
    create: dict[Trigger, str]
    prepare: Sequence[str] = ()

    seal: Trigger | None = None
    """For databases without transactional DDL: the trigger of ``create`` that is created last, after the mark for all
    members, and dropped first. Without it, the unit isn't in place."""


class Dialect:
    """The triggers of one database. ``tables``: those that it will be asked about.

    What stands here is for databases whose triggers run once for each row, and have one operation each.
    """

    advice: ClassVar[str]
    """A hint for errors when the database refuses a trigger."""

    catalog: str
    """Selects each trigger's table, name and text, and more."""

    catalog_of_columns: ClassVar[str]
    """Selects the names of the columns of a table."""

    catalog_of_databases: ClassVar[str]
    """Selects what is the same for all connections to a database."""

    catalog_of_problems: ClassVar[str]
    """Selects the tables that triggers can't watch, with the reasons."""

    columns_named: ClassVar[re.Pattern[str]]
    """Matches the columns that a trigger's text names."""

    transactional: ClassVar[bool] = True
    """True if triggers are created and dropped transactionally."""

    remakes_tables: ClassVar[bool] = False
    """True if Django alters a table by replacing it with a new one."""

    unique_names: ClassVar[bool] = True
    """True if the name of a trigger is unique in a database, not only for its table."""

    create = "CREATE TRIGGER IF NOT EXISTS"

    def __init__(self, connection: BaseDatabaseWrapper, tables: Iterable[str]) -> None:
        self.connection, self.tables = connection, frozenset(tables)
        self.marks = self.quote(Mark._meta.db_table)

    # What the database has

    def select(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            return list(cursor.fetchall())

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the catalog about the app's triggers: the trigger, its text, and more."""
        for table, name, *others in self.select(self.catalog):
            if (trigger := Trigger(self.spelled(table), name)).owner:
                yield trigger, *others

    def installed(self) -> dict[Trigger, bool]:
        """Return all triggers of the app, with True for each that is in force."""
        return dict.fromkeys(self.texts(), True)

    def texts(self) -> dict[Trigger, str]:
        """Return the SQL text of all triggers of the app."""
        return {trigger: text for trigger, text, *_ in self.rows()}

    def dangling(self) -> set[Trigger]:
        """Return the triggers of the app that fail their table's writes, because they name a missing column."""
        texts = self.texts()
        columns = {table: self.columns(table) for table in {trigger.table for trigger in texts}}
        return {trigger for trigger, text in texts.items() if not self.named(text) <= columns[trigger.table]}

    def named(self, text: str) -> set[str]:
        """Return the columns that a trigger's text names."""
        return set(map(self.fold, self.columns_named.findall(text)))

    def columns(self, table: str) -> set[str]:
        """Return the names of the columns of a table of a trigger."""
        return {self.fold(name) for (name,) in self.select(self.catalog_of_columns, table)}

    def has(self, table: str, columns: Collection[str]) -> bool:
        """Return True if a table of a model exists, with these columns."""
        return self.columns(table).issuperset(map(self.fold, columns))

    def identity(self) -> object:
        """Return a value that is the same for all connections to a database."""
        return self.select(self.catalog_of_databases)

    def problems(self) -> dict[str, str]:
        """Return the problems of tables, by their names: the reasons why triggers can't watch them or, for the app's
        own tables, why they can't hold marks."""
        found = {name.lower(): problem for name, problem in self.select(self.catalog_of_problems)}
        return {table: found[table.lower()] for table in self.tables | OWN_TABLES if table.lower() in found}

    def disturbs_writers(self) -> bool:
        """Return True if reading marks outside of a transaction may make the transactions that leave them fail."""
        return False

    def short_lock_timeout(self) -> AbstractContextManager[None]:
        """Don't wait long for table locks in this block: a session that waits for one blocks all later ones."""
        return nullcontext()

    # Names

    def quote(self, name: str) -> str:
        return str(self.connection.ops.quote_name(name))

    def column(self, field: models.Field[Any, Any]) -> str:
        """Return the quoted name of a field's column."""
        return self.quote(str(field.column))

    def text(self, text: str) -> str:
        """Return ``text`` as a literal."""
        return "'" + text.replace("'", "''") + "'"

    def fold(self, column: str) -> str:
        """Return the name of a column in the spelling in which names are compared."""
        return column.lower()

    def spelled(self, table: str) -> str:
        """Return the name of a table as in :attr:`Trigger.table`."""
        return table.lower() if self.connection.features.ignores_table_name_case else table

    def written_by(self, tables: Iterable[str]) -> dict[str, list[str]]:
        """Return, for each of these models' tables, the names in :attr:`Trigger.table` of those that it consists of."""
        return {table: [self.spelled(table)] for table in tables}

    def stem(self, source: WatchedTable, table: str, definition: Iterable[str]) -> str:
        """Return the prefix of the names of a unit's triggers, short enough for every database."""
        what = repr((source.index, table, source.via, source.column.column))
        slug = re.sub(r"[^a-z0-9]+", "_", source.index.lower())[:11].strip("_")
        return "_".join([PREFIX + slug, owner_of(source.index), digest(what + "\n".join(definition))])

    # Statements

    def unit(self, source: WatchedTable) -> Unit:
        """Return the triggers that watch ``source``."""
        bodies = self.bodies(source)
        stem = self.stem(source, source.table, bodies.values())
        return Unit(
            source,
            {
                Trigger(self.spelled(source.table), f"{stem}_{operation}"): (
                    f"{self.create} {self.quote(f'{stem}_{operation}')} AFTER {self.event(operation, source)}"
                    f" ON {self.quote(source.table)} FOR EACH ROW {body}"
                )
                for operation, body in bodies.items()
            },
        )

    def bodies(self, source: WatchedTable) -> dict[str, str]:
        """Return the bodies of the triggers, by their operations."""
        raise NotImplementedError

    def texts_for(self, source: WatchedTable) -> Iterable[str]:
        """Return the texts of the triggers that watch ``source``, whatever the state of its table."""
        return self.bodies(source).values()

    def state(self, unit: Unit, *, again: bool = False) -> tuple[str, str] | None:
        """Return a key, and the state of the unit's table that is noted under it: if another one is noted, rows may
        have come or gone without a mark, although the triggers are there. None if the database shows no state.
        ``again``: read the state anew."""
        return None

    def event(self, operation: str, source: WatchedTable) -> str:
        return operation.upper()

    def seal(self, unit: Unit) -> str:
        """Return the statement that creates the seal of a unit whose other triggers are there."""
        return unit.create[unit.seal]  # type: ignore[index]

    def drop(self, trigger: Trigger) -> str:
        """Return the statement that drops ``trigger``."""
        return f"DROP TRIGGER IF EXISTS {self.quote(trigger.name)}"

    def leftovers(self) -> list[str]:
        """Return statements that remove what dropped triggers leave behind."""
        return []

    def alone(self) -> list[str]:
        """Return statements that let no other process change triggers until the end of the transaction."""
        return []

    def mark(self, source: WatchedTable, member: str) -> tuple[str, str]:
        """Return the columns and the values of a mark."""
        columns = {"index": self.text(source.index), "member": member}
        if source.via is not None:
            columns["via"] = self.text(source.via)
        return ", ".join(map(self.quote, columns)), ", ".join(columns.values())


def owner_of(index: str) -> str:
    """Return the owner in the names of an index's triggers."""
    return digest(index)


def digest(text: str) -> str:
    """Return eight digits that identify a text."""
    return sha256(text.encode()).hexdigest()[:8]
