"""PostgreSQL, with its partitions and inheritance children."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, ClassVar, NamedTuple

from django.db import models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ...models import Mark
from .base import PREFIX, Capture, Dialect, Trigger, Unit

__all__ = ["PostgreSQL"]


class Relation(NamedTuple):
    """A table, or one of its partitions or inheritance children."""

    number: int
    schema: str
    name: str
    """With its schema, both quoted."""

    is_partition: bool = False
    is_foreign: bool = False
    """On another server, whose writes run no triggers here."""

    is_view: bool = False

    is_replicated: bool = False
    """True if a subscription writes to it. Its workers run no triggers for statements, or as ours, for rows."""

    by_row: bool = False
    """True if it is partitioned, or if its rows can be written under another table's name."""

    version: str = ""
    """Changes whenever the table is attached to, or detached from, its parent."""


class PostgreSQL(Dialect):
    """Triggers that run once for each statement and see all its rows, with one function for all operations.

    A statement only runs the triggers of the table that it names. So if a table has partitions or inheritance children,
    or is one itself, triggers run for each row; partitions inherit those of their table. Each partition has its own
    trigger for TRUNCATE. The name of the table's own one depends on the set of its partitions: if that changes, the
    trigger counts as missing, because rows may have come or gone unmarked.

    The function runs with the rights of the account that migrates, so that writers need none on the marks. That is why
    it has a fixed ``search_path``, and schemas in its names.
    """

    advice = "Migrate as the owner of the table, or grant its TRIGGER privilege (and CREATE on the schema)."
    columns_named = re.compile(r'\b(?:n|o|r|NEW|OLD)\."([^"]+)"')

    _REFERENCING: ClassVar = {
        "insert": "REFERENCING NEW TABLE AS new_rows ",
        "update": "REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows ",
        "delete": "REFERENCING OLD TABLE AS old_rows ",
        "truncate": "",
    }
    _COMPARABLE: ClassVar = re.compile(
        "smallint|integer|bigint|real|double|numeric|boolean|date|time|uuid|bytea"
    )
    """Types whose equal values are identical. All others are compared as text: 360 days equal a year."""

    def __init__(self, connection: BaseDatabaseWrapper, tables: Iterable[str]) -> None:
        super().__init__(connection, tables)
        self.families = self._families({*tables, Mark._meta.db_table})
        self.schema = ""
        if family := self.families.get(Mark._meta.db_table):
            self.schema, self.marks = family[0].schema, family[0].name

    def _families(self, tables: Iterable[str]) -> dict[str, list[Relation]]:
        """Return each of these tables that exists, followed by its partitions and children."""
        names = {self.quote(table): table for table in tables}
        families: dict[str, list[Relation]] = {}
        with self.connection.cursor() as cursor:
            cursor.execute(
                "WITH RECURSIVE family(name, oid, depth, version) AS ("
                "  SELECT name, to_regclass(name)::oid, 0, '' FROM unnest(%s::text[]) t(name)"
                "  UNION SELECT f.name, i.inhrelid, f.depth + 1, i.xmin::text"
                "  FROM family f JOIN pg_inherits i ON i.inhparent = f.oid)"
                " SELECT f.name, c.oid::bigint, quote_ident(s.nspname),"
                " quote_ident(s.nspname) || '.' || quote_ident(c.relname), c.relispartition, c.relkind = 'f',"
                " c.relkind IN ('v', 'm'), EXISTS (SELECT FROM pg_subscription_rel r WHERE r.srrelid = c.oid),"
                " c.relkind = 'p' OR EXISTS (SELECT FROM pg_inherits i WHERE c.oid IN (i.inhrelid, i.inhparent)),"
                " f.version"
                " FROM family f JOIN pg_class c ON c.oid = f.oid JOIN pg_namespace s ON s.oid = c.relnamespace"
                " ORDER BY f.depth, c.oid",
                [list(names)],
            )
            for name, *relation in cursor.fetchall():
                families.setdefault(names[name], []).append(Relation(*relation))
        return families

    def identity(self) -> object:
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT system_identifier, current_database(), coalesce(nullif(%s, ''), current_schema()),"
                " pg_is_in_recovery() FROM pg_control_system()",
                [self.schema],
            )
            return cursor.fetchone()

    def problems(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for table, family in self.families.items():
            if family[0].is_view:
                found[table] = "is a view"
            elif any(relation.is_replicated for relation in family):
                found[table] = "is written by a subscription, which runs no triggers of a statement"
        return found

    @contextmanager
    def short_lock_timeout(self) -> Iterator[None]:
        # Below deadlock_timeout, so that a writer that waits in turn isn't cancelled.
        with transaction.atomic(self.connection.alias), self.connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '500ms'")
            yield

    def spell(self, table: str) -> Collection[str]:
        return [relation.name for relation in self._families({table}).get(table, [])]

    def unit(self, capture: Capture) -> Unit:
        name = capture.model._meta.db_table
        table, *parts = self.families.get(name, [Relation(0, "", name)])
        body = self.body(capture, self.by_row if table.by_row else self.by_statement)
        # By its number, a table that was restored differs from the one that was dumped, with its triggers.
        definition = [body, str(table.number), "referenced" * capture.is_referenced]
        # What a subscription has written was not noticed: when it ends, the triggers are made anew.
        fed = "fed" * any(relation.is_replicated for relation in (table, *parts))
        stem = self.stem(capture, table.name, definition, fed)
        function = f"{self.schema}.{self.quote(stem)}()"
        tag = f"$zrank_{sha256(body.encode()).hexdigest()[:8]}$"
        prepare = [
            # A concurrent migration waits, instead of failing.
            f"SELECT pg_advisory_xact_lock(hashtext('{PREFIX}'))",
            (
                f"CREATE OR REPLACE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql"
                f" SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {tag}{body}{tag}"
            ),
            f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC",
        ]
        create: dict[Trigger, str] = {}
        for relation in (table, *parts):
            # Who turns foreign keys off turns these triggers off, too. Not so in MariaDB and SQLite.
            operations = [one for one in self._REFERENCING if one != "insert" or not capture.is_referenced]
            names = {operation: f"{stem}_{operation}" for operation in operations}
            if relation is table and parts:
                versions = " ".join(f"{part.number} {part.version}" for part in parts)
                names["truncate"] = self.stem(capture, table.name, definition, versions + fed) + "_truncate"
            elif relation is not table and relation.is_partition:
                names = {} if relation.is_foreign else {"truncate": names["truncate"]}
            for operation, name in names.items():
                by_row = table.by_row and operation != "truncate"
                how = "FOR EACH ROW" if by_row else f"{self._REFERENCING[operation]}FOR EACH STATEMENT"
                create[Trigger(relation.name, name)] = (
                    f"CREATE OR REPLACE TRIGGER {self.quote(name)} AFTER {operation.upper()} ON {relation.name} {how}"
                    f" EXECUTE FUNCTION {function}"
                )
        return Unit(capture, self.owners(capture, table.name), prepare, create)

    def body(self, capture: Capture, write: Callable[[Capture], tuple[str, str, str]]) -> str:
        insert, update, delete = write(capture)
        return f"""
BEGIN
  IF TG_OP = 'INSERT' THEN
    {insert};
  ELSIF TG_OP = 'UPDATE' THEN
    {update};
  ELSIF TG_OP = 'DELETE' THEN
    {delete};
  ELSE
    INSERT INTO {self.marks} ({self.quote("index")}) VALUES ({self.text(capture.index)});
  END IF;
  RETURN NULL;
END
"""

    def by_statement(self, capture: Capture) -> tuple[str, str, str]:
        """Return the SQL for rows that a statement has inserted, updated and deleted."""
        # Rows are the same if their keys and the captured column agree; otherwise they are a new and an old one.
        keys = self.keys(capture)
        on = " AND ".join(f"{self.value('n', field)} = {self.value('o', field)}" for field in keys)
        unmatched = [f"{row}.{self.column(keys[0])} IS NULL" for row in "no"]
        changed = (
            []
            if capture.watched is None
            else [f"({' OR '.join([*unmatched, *self.differ(capture, 'n', 'o')])})"]
        )
        column = self.column(capture.column)
        return (
            self.insert(capture, f"r.{column}", " FROM new_rows r"),
            self.insert(
                capture,
                f"coalesce(n.{column}, o.{column})",
                f" FROM new_rows n FULL JOIN old_rows o ON {on}",
                changed,
            ),
            self.insert(capture, f"r.{column}", " FROM old_rows r"),
        )

    def by_row(self, capture: Capture) -> tuple[str, str, str]:
        """Return the SQL for a row that was inserted, updated and deleted."""
        old, new = (self.insert(capture, f"{row}.{self.column(capture.column)}") for row in ("OLD", "NEW"))
        moved = " OR ".join(
            f"{self.value('NEW', field)} IS DISTINCT FROM {self.value('OLD', field)}"
            for field in self.keys(capture)
        )
        changed = (
            "true" if capture.watched is None else " OR ".join(self.differ(capture, "NEW", "OLD")) or "false"
        )
        return new, f"IF {moved} THEN {old}; {new}; ELSIF {changed} THEN {new}; END IF", old

    def insert(self, capture: Capture, member: str, rows: str = "", conditions: Sequence[str] = ()) -> str:
        # As clients read it: a cast to text would cut off the trailing blanks of a char(10).
        columns, values = self.mark(capture, f"concat({member})")
        if capture.column.null:
            conditions = [*conditions, f"{member} IS NOT NULL"]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"INSERT INTO {self.marks} ({columns}) SELECT {values}{rows}{where}"

    def keys(self, capture: Capture) -> list[models.Field[Any, Any]]:
        return list(dict.fromkeys([*capture.model._meta.pk_fields, capture.column]))

    def differ(self, capture: Capture, new: str, old: str) -> list[str]:
        """Return conditions, one of which is true if two rows with the same key differ."""
        keys = self.keys(capture)
        return [
            f"{self.value(new, field)} IS DISTINCT FROM {self.value(old, field)}"
            for field in capture.columns
            if field not in keys
        ]

    def value(self, row: str, field: models.Field[Any, Any]) -> str:
        """Return a column in a type whose equal values are identical."""
        column = f"{row}.{self.column(field)}"
        if self._COMPARABLE.match(str(field.db_type(self.connection))):
            return column
        return f'{column}::text COLLATE "C"'

    def text(self, text: str) -> str:
        literal = super().text(text)
        return f"E{literal}".replace("\\", r"\\") if "\\" in text else literal

    def installed(self) -> dict[Trigger, bool]:
        return {trigger: active for trigger, active, _, _ in self._rows()}

    def texts(self) -> dict[Trigger, str]:
        return {trigger: text for trigger, _, text, _ in self._rows()}

    def dangling(self) -> set[Trigger]:
        return {trigger for trigger, _, text, columns in self._rows() if not self.named(text) <= {*columns}}

    def _rows(self) -> Iterator[tuple[Trigger, bool, str, list[str]]]:
        """Yield each trigger of the app, True if it is in force (in all partitions that inherit it), the text of its
        function and the columns of its table."""
        seen = [relation.number for family in self.families.values() for relation in family]
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT quote_ident(s.nspname) || '.' || quote_ident(c.relname), t.tgname, t.tgenabled IN ('O', 'A')"
                " AND NOT EXISTS (SELECT FROM pg_trigger h WHERE h.tgparentid <> 0 AND h.tgname = t.tgname"
                " AND h.tgenabled NOT IN ('O', 'A')), p.prosrc,"
                " ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = c.oid AND NOT attisdropped)"
                " FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
                " JOIN pg_namespace s ON s.oid = c.relnamespace JOIN pg_proc p ON p.oid = t.tgfoid"
                " WHERE NOT t.tgisinternal AND t.tgparentid = 0 AND starts_with(t.tgname, %s)"
                # Other schemas may be other projects'.
                " AND (pg_table_is_visible(c.oid) OR c.oid = ANY(%s::bigint[]::oid[]))",
                [PREFIX, seen],
            )
            for table, name, *others in cursor.fetchall():
                if (trigger := Trigger(table, name)).owner:
                    yield trigger, *others

    def drop(self, trigger: Trigger) -> str:
        return f"DROP TRIGGER IF EXISTS {self.quote(trigger.name)} ON {trigger.table}"

    def columns(self, tables: Iterable[str]) -> dict[str, set[str]]:
        numbers = {table: family[0].number for table, family in self._families({*tables}).items()}
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT attrelid::bigint, attname FROM pg_attribute"
                " WHERE attrelid = ANY(%s::bigint[]::oid[]) AND attnum > 0 AND NOT attisdropped",
                [[*numbers.values()]],
            )
            found = cursor.fetchall()
        return {table: {name for at, name in found if at == numbers.get(table)} for table in tables}

    def leftovers(self) -> list[str]:
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE starts_with(p.proname, %s)"
                " AND pg_function_is_visible(p.oid) AND p.prorettype = 'trigger'::regtype"
                " AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgfoid = p.oid)",
                [PREFIX],
            )
            return [f"DROP FUNCTION IF EXISTS {function}" for (function,) in cursor.fetchall()]
