"""The triggers of each database, as SQL. Reads catalogs, changes nothing."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar, Final, NamedTuple

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from ..models import Mark

__all__ = ["CHANNEL", "DIALECTS", "LISTENING", "PREFIX", "Capture", "Dialect", "Trigger", "Unit"]

PREFIX: Final = "zrank_capture_"
"""What the name of every trigger of ours begins with, and of no other."""

CHANNEL: Final = "zrank_mark"
"""Where PostgreSQL tells, on commit, that there are marks. The payload is the index."""

LISTENING: Final = int.from_bytes(b"zrank", "big")
"""The advisory lock of whoever waits to be told. Writers tell nobody else: a NOTIFY makes all commits of a
database queue up (32 writers at once went at a sixth of their speed). They share the lock till they commit, so
who has got it has heard of, or can see, every mark."""

_NAME: Final = re.compile(rf"({PREFIX}.*_[0-9a-f]{{8}})_[0-9a-f]{{8}}_([a-z]+)")


class Trigger(NamedTuple):
    table: str
    """As the database itself spells it, so that two spellings of one table are equal."""

    name: str
    """``zrank_capture_<index>_<what it watches>_<how>_<operation>``, the middle two as hashes: a trigger is
    current if its name is."""

    def __str__(self) -> str:
        return f"{self.name} on {self.table}"

    @property
    def is_ours(self) -> bool:
        return _NAME.fullmatch(self.name) is not None

    @property
    def purpose(self) -> object:
        """What it watches: equal for a trigger and those that succeed it."""
        match = _NAME.fullmatch(self.name)
        return match and (self.table, *match.groups())


@dataclass(frozen=True)
class Capture:
    """One table whose changes leave marks for one index."""

    index: str
    model: type[models.Model]
    via: str | None
    column: models.Field[Any, Any]
    """What goes into ``Mark.member``."""

    watched: frozenset[models.Field[Any, Any]] | None
    """The columns whose change leaves a mark, or None: any update does."""

    @property
    def columns(self) -> list[models.Field[Any, Any]]:
        """Every column that a trigger names."""
        named = {self.column, *self.model._meta.pk_fields, *(self.watched or ())}
        return sorted(named, key=lambda field: field.column)


@dataclass(frozen=True)
class Unit:
    """The triggers of one capture, and the statements that make them."""

    capture: Capture
    prepare: Sequence[str]
    create: dict[Trigger, str]


class Dialect(ABC):
    """One database's way to write triggers. ``tables`` are those that will be spoken of."""

    operations: ClassVar[Sequence[str]] = ("insert", "update", "delete")
    transactional: ClassVar[bool] = True
    """Whether a transaction holds triggers, too: made with it, or not at all."""

    remakes_tables: ClassVar[bool] = False
    """Whether Django alters a table by making a new one in its place."""

    advice: ClassVar[str]
    """What to do where the database refuses a trigger."""

    def __init__(self, connection: BaseDatabaseWrapper, tables: Iterable[str]) -> None:
        self.connection = connection
        self.marks = self.quote(Mark._meta.db_table)

    @abstractmethod
    def unit(self, capture: Capture) -> Unit:
        """The triggers of ``capture``."""

    @abstractmethod
    def installed(self) -> dict[Trigger, bool]:
        """Every trigger of ours, and whether it is in force."""

    @abstractmethod
    def drop(self, trigger: Trigger) -> str:
        """The statement that drops ``trigger``."""

    def columns(self, tables: Iterable[str]) -> dict[str, set[str]]:
        """The names of each table's columns, none for a table that isn't there."""
        introspection = self.connection.introspection
        with self.connection.cursor() as cursor:
            present = set(introspection.table_names(cursor))
            return {
                table: {column.name for column in introspection.get_table_description(cursor, table)}
                if table in present
                else set()
                for table in tables
            }

    def leftovers(self) -> list[str]:
        """Statements that clear what dropped triggers leave behind."""
        return []

    def quote(self, name: str) -> str:
        return str(self.connection.ops.quote_name(name))

    def column(self, field: models.Field[Any, Any]) -> str:
        """The quoted name of a field's column."""
        return self.quote(str(field.column))

    def text(self, text: str) -> str:
        """``text`` as a literal."""
        return "'" + text.replace("'", "''") + "'"

    def mark(self, capture: Capture, member: str) -> tuple[str, str]:
        """The columns and the values of a mark."""
        columns = {"index": self.text(capture.index), "member": member}
        if capture.via is not None:
            columns["via"] = self.text(capture.via)
        return ", ".join(map(self.quote, columns)), ", ".join(columns.values())

    def names(self, capture: Capture, table: str, definition: Iterable[str]) -> dict[str, str]:
        """The name for each operation's trigger, short enough for every database."""
        what = repr((capture.index, table, capture.via, capture.column.column))
        slug = re.sub(r"[^a-z0-9]+", "_", capture.index.lower())[:20].strip("_")
        hashes = (sha256(part.encode()).hexdigest()[:8] for part in (what, what + "\n".join(definition)))
        stem = "_".join([PREFIX + slug, *hashes])
        return {operation: f"{stem}_{operation}" for operation in self.operations}


class _ByRow(Dialect):
    """A trigger that runs once for each row, one for each operation."""

    catalog: ClassVar[str]
    create = "CREATE TRIGGER IF NOT EXISTS"

    def bodies(self, capture: Capture) -> dict[str, str]:
        raise NotImplementedError

    def unit(self, capture: Capture) -> Unit:
        table = capture.model._meta.db_table
        bodies = self.bodies(capture)
        names = self.names(capture, table, bodies.values())
        create = {
            Trigger(table.lower(), names[operation]): (
                f"{self.create} {self.quote(names[operation])} AFTER {self.event(operation, capture)}"
                f" ON {self.quote(table)} FOR EACH ROW {body}"
            )
            for operation, body in bodies.items()
        }
        return Unit(capture, (), create)

    def event(self, operation: str, capture: Capture) -> str:
        """What runs the trigger."""
        return operation.upper()

    def installed(self) -> dict[Trigger, bool]:
        with self.connection.cursor() as cursor:
            cursor.execute(self.catalog)
            found = [Trigger(table.lower(), name) for table, name in cursor.fetchall()]
        return {trigger: True for trigger in found if trigger.is_ours}

    def drop(self, trigger: Trigger) -> str:
        return f"DROP TRIGGER IF EXISTS {self.quote(trigger.name)}"


class SQLite(_ByRow):
    """``move`` leaves the mark of the member that a row was, where an update gives it to another."""

    operations = ("insert", "update", "move", "delete")
    remakes_tables = True
    advice = "Make the database writable."
    catalog = f"SELECT tbl_name, name FROM sqlite_master WHERE type = 'trigger' AND name GLOB '{PREFIX}*'"

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


class MySQL(_ByRow):
    """MariaDB and MySQL. They run triggers with the rights of whoever made them.

    Plain ``INSERT … VALUES`` only: ``INSERT … SELECT`` would hold the lock on the table's counter until the
    writer's statement ends.
    """

    transactional = False
    advice = (
        "Grant the TRIGGER privilege on it to the account that migrates (and, where the binary log is on and "
        "refuses, SET GLOBAL log_bin_trust_function_creators = 1)."
    )
    catalog = (
        "SELECT event_object_table, trigger_name FROM information_schema.triggers"
        f" WHERE trigger_schema = DATABASE() AND LEFT(trigger_name, {len(PREFIX)}) = '{PREFIX}'"
    )

    def __init__(self, connection: BaseDatabaseWrapper, tables: Iterable[str]) -> None:
        super().__init__(connection, tables)
        if not connection.mysql_is_mariadb:  # type: ignore[attr-defined]
            self.create = "CREATE TRIGGER"

    def text(self, text: str) -> str:
        if "\\" in text:  # an escape, or not: that depends on sql_mode
            return f"CONVERT(0x{text.encode().hex()} USING utf8mb4)"
        return super().text(text)

    def bodies(self, capture: Capture) -> dict[str, str]:
        old, new = self.insert(capture, "OLD"), self.insert(capture, "NEW")
        same = self.same(capture.column)
        others = [self.same(field) for field in capture.columns if field != capture.column]
        # Each statement costs a microsecond a row. What is usual takes two: one condition, one mark.
        if capture.watched is None:
            update = f"IF {same} THEN {new} ELSE {old} {new} END IF;"
        elif others:
            update = (
                f"IF {same} AND NOT ({' AND '.join(others)}) THEN {new}"
                f" ELSEIF NOT ({same}) THEN {old} {new} END IF;"
            )
        else:
            update = f"IF NOT ({same}) THEN {old} {new} END IF;"
        return {"insert": f"BEGIN {new} END", "update": f"BEGIN {update} END", "delete": f"BEGIN {old} END"}

    def insert(self, capture: Capture, row: str) -> str:
        member = f"{row}.{self.column(capture.column)}"
        columns, values = self.mark(capture, member)
        insert = f"INSERT INTO {self.marks} ({columns}) VALUES ({values});"
        return f"IF {member} IS NOT NULL THEN {insert} END IF;" if capture.column.null else insert

    def same(self, field: models.Field[Any, Any]) -> str:
        column = self.column(field)
        old, new = f"OLD.{column}", f"NEW.{column}"
        if re.search("char|text", str(field.db_type(self.connection))):
            # By its collation 'Bob' is 'bob'. A primary key is its bytes, to Redis.
            old, new = f"CAST({old} AS BINARY)", f"CAST({new} AS BINARY)"
        return f"{old} <=> {new}"


class PostgreSQL(Dialect):
    """Triggers that run once for each statement and see all its rows, by one function for all operations.

    The function runs with the rights of whoever migrates, so that writers need none on the marks; hence its
    fixed ``search_path`` and the schemas in its names.
    """

    operations = ("insert", "update", "delete", "truncate")
    advice = "Migrate as the owner of the table, or grant its TRIGGER privilege (and CREATE on the schema)."

    _REFERENCING: ClassVar = {
        "insert": "REFERENCING NEW TABLE AS new_rows ",
        "update": "REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows ",
        "delete": "REFERENCING OLD TABLE AS old_rows ",
        "truncate": "",
    }
    _COMPARABLE: ClassVar = re.compile(
        "smallint|integer|bigint|real|double|numeric|boolean|date|time|interval|uuid|bytea"
    )
    """Types whose equal values are the same. All others are compared as text."""

    def __init__(self, connection: BaseDatabaseWrapper, tables: Iterable[str]) -> None:
        super().__init__(connection, tables)
        self.places = self._places({*tables, Mark._meta.db_table})
        _, self.schema, self.marks = self.places.get(Mark._meta.db_table, (0, "", self.marks))

    def _places(self, tables: set[str]) -> dict[str, tuple[int, str, str]]:
        """Of each table that is there: its number, its schema and its full name, quoted."""
        by_name = {self.quote(table): table for table in tables}
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT t.name, c.oid::bigint, quote_ident(s.nspname), quote_ident(c.relname)"
                " FROM unnest(%s::text[]) t(name) JOIN pg_class c ON c.oid = to_regclass(t.name)"
                " JOIN pg_namespace s ON s.oid = c.relnamespace",
                [list(by_name)],
            )
            return {
                by_name[name]: (number, schema, f"{schema}.{table}")
                for name, number, schema, table in cursor.fetchall()
            }

    def unit(self, capture: Capture) -> Unit:
        _, _, table = self.places.get(capture.model._meta.db_table, (0, "", capture.model._meta.db_table))
        body = self.body(capture)
        names = self.names(capture, table, [body])
        function = f"{self.schema}.{self.quote(names['insert'].removesuffix('_insert'))}()"
        tag = f"$zrank_{sha256(body.encode()).hexdigest()[:8]}$"
        prepare = [
            # Of two that migrate at once the second waits, instead of failing.
            f"SELECT pg_advisory_xact_lock(hashtext('{PREFIX}'))",
            (
                f"CREATE OR REPLACE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql"
                f" SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {tag}{body}{tag}"
            ),
            f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC",
        ]
        create = {
            Trigger(table, name): (
                f"CREATE OR REPLACE TRIGGER {self.quote(name)} AFTER {operation.upper()} ON {table} "
                f"{self._REFERENCING[operation]}FOR EACH STATEMENT EXECUTE FUNCTION {function}"
            )
            for operation, name in names.items()
        }
        return Unit(capture, prepare, create)

    def body(self, capture: Capture) -> str:
        return f"""
BEGIN
  IF TG_OP = 'INSERT' THEN
    {self.insert(capture, "{}", "new_rows")};
  ELSIF TG_OP = 'UPDATE' THEN
    {self.insert_changed(capture)};
  ELSIF TG_OP = 'DELETE' THEN
    {self.insert(capture, "{}", "old_rows")};
  ELSE
    INSERT INTO {self.marks} ({self.quote("index")}) VALUES ({self.text(capture.index)});
  END IF;
  IF FOUND AND NOT pg_try_advisory_xact_lock_shared({LISTENING}) THEN
    PERFORM pg_notify('{CHANNEL}', {self.text(capture.index)});
  END IF;
  RETURN NULL;
END
"""

    def insert(self, capture: Capture, value: str, rows: str, conditions: Sequence[str] = ()) -> str:
        member = value.format(self.column(capture.column))
        columns, values = self.mark(capture, f"({member})::text")
        if capture.column.null:
            conditions = [*conditions, f"{member} IS NOT NULL"]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"INSERT INTO {self.marks} ({columns}) SELECT {values} FROM {rows}{where}"

    def insert_changed(self, capture: Capture) -> str:
        # Rows are one if they agree in the key and in whose they are; else they are a new and an old one.
        keys = [*capture.model._meta.pk_fields]
        if capture.column not in keys:
            keys.append(capture.column)
        on = " AND ".join(f"{self.value('n', field)} = {self.value('o', field)}" for field in keys)
        unmatched = [f"{row}.{self.column(keys[0])} IS NULL" for row in "no"]
        differ = [
            f"{self.value('n', field)} IS DISTINCT FROM {self.value('o', field)}"
            for field in capture.columns
            if field not in keys
        ]
        changed = [] if capture.watched is None else [f"({' OR '.join([*unmatched, *differ])})"]
        return self.insert(
            capture, "coalesce(n.{0}, o.{0})", f"new_rows n FULL JOIN old_rows o ON {on}", changed
        )

    def value(self, row: str, field: models.Field[Any, Any]) -> str:
        """A column, in a type in which nothing but the same is equal."""
        column = f"{row}.{self.column(field)}"
        if self._COMPARABLE.match(str(field.db_type(self.connection))):
            return column
        return f'{column}::text COLLATE "C"'

    def text(self, text: str) -> str:
        literal = super().text(text)
        return f"E{literal}".replace("\\", r"\\") if "\\" in text else literal

    def installed(self) -> dict[Trigger, bool]:
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT quote_ident(s.nspname) || '.' || quote_ident(c.relname), t.tgname,"
                " t.tgenabled IN ('O', 'A') FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
                " JOIN pg_namespace s ON s.oid = c.relnamespace"
                " WHERE NOT t.tgisinternal AND starts_with(t.tgname, %s)"
                # Other schemas may be other projects'.
                " AND (pg_table_is_visible(c.oid) OR c.oid = ANY(%s::bigint[]::oid[]))",
                [PREFIX, [number for number, _, _ in self.places.values()]],
            )
            found = {Trigger(table, name): active for table, name, active in cursor.fetchall()}
        return {trigger: active for trigger, active in found.items() if trigger.is_ours}

    def drop(self, trigger: Trigger) -> str:
        return f"DROP TRIGGER IF EXISTS {self.quote(trigger.name)} ON {trigger.table}"

    def columns(self, tables: Iterable[str]) -> dict[str, set[str]]:
        numbers = {table: self.places[table][0] if table in self.places else None for table in tables}
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT attrelid::bigint, attname FROM pg_attribute"
                " WHERE attrelid = ANY(%s::bigint[]::oid[]) AND attnum > 0 AND NOT attisdropped",
                [[number for number in numbers.values() if number is not None]],
            )
            found = cursor.fetchall()
        return {table: {name for at, name in found if at == number} for table, number in numbers.items()}

    def leftovers(self) -> list[str]:
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE starts_with(p.proname, %s)"
                " AND pg_function_is_visible(p.oid) AND p.prorettype = 'trigger'::regtype"
                " AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgfoid = p.oid)",
                [PREFIX],
            )
            return [f"DROP FUNCTION IF EXISTS {function}" for (function,) in cursor.fetchall()]


DIALECTS: Final[dict[str, type[Dialect]]] = {"postgresql": PostgreSQL, "mysql": MySQL, "sqlite": SQLite}
"""By the ``vendor`` of a connection."""
