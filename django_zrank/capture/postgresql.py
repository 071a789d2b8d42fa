"""Triggers of PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final, NamedTuple

from django.db import models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..models import SEVERAL, Mark
from .dialect import PREFIX, Dialect, Trigger, Unit, digest
from .told import TELL
from .watched_tables import WatchedTable

_FEW: Final = 200
"""The most changed rows of a statement for which each has a mark of its own; and the most members that one mark of a
larger statement names."""


class Relation(NamedTuple):
    """A table of PostgreSQL, or one of its partitions or inheritance children."""

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
    trigger for TRUNCATE. The state of a table is its number, and the set of its partitions: if that changes, rows may
    have come or gone unmarked.

    The function runs with the rights of the account that migrates, so that writers need none on the marks. That is why
    it has a fixed ``search_path``, and schemas in its names.
    """

    unique_names = False
    advice = "Migrate as the owner of the table, or grant its TRIGGER privilege (and CREATE on the schema)."
    # A trigger that partitions inherit is in force if it is in all of them. Other schemas may be other projects'.
    catalog = (
        "SELECT quote_ident(s.nspname) || '.' || quote_ident(c.relname), t.tgname, p.prosrc, t.tgenabled IN ('O', 'A')"
        " AND NOT EXISTS (SELECT FROM pg_trigger h WHERE h.tgparentid <> 0 AND h.tgname = t.tgname"
        " AND h.tgenabled NOT IN ('O', 'A')), c.oid::bigint, pg_table_is_visible(c.oid)"
        " FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        " JOIN pg_namespace s ON s.oid = c.relnamespace JOIN pg_proc p ON p.oid = t.tgfoid"
        f" WHERE NOT t.tgisinternal AND t.tgparentid = 0 AND starts_with(t.tgname, '{PREFIX}')"
    )
    catalog_of_columns = (
        "SELECT attname FROM pg_attribute"
        " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
    )
    catalog_of_databases = (
        "SELECT system_identifier, current_database(), pg_is_in_recovery(), coalesce((SELECT relnamespace"
        f" FROM pg_class WHERE oid = to_regclass('{Mark._meta.db_table}')), to_regnamespace(current_schema()))"
        " FROM pg_control_system()"
    )
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
        found = self.select(
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
            list(names),
        )
        for name, *relation in found:
            families.setdefault(names[name], []).append(Relation(*relation))
        return families

    def rows(self) -> Iterator[tuple[Any, ...]]:
        ours = {relation.number for family in self.families.values() for relation in family}
        for trigger, text, active, number, is_visible in super().rows():
            if is_visible or number in ours:
                yield trigger, text, active

    def installed(self) -> dict[Trigger, bool]:
        return {trigger: active for trigger, _, active in self.rows()}

    def problems(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for table, family in self.families.items():
            if family[0].is_view:
                found[table] = "is a view"
            elif any(relation.is_replicated for relation in family):
                found[table] = "is written by a subscription, which runs no triggers of a statement"
        return found

    def disturbs_writers(self) -> bool:
        ((level,),) = self.select("SELECT current_setting('transaction_isolation')")
        return bool(level == "serializable")

    @contextmanager
    def short_lock_timeout(self) -> Iterator[None]:
        # Below deadlock_timeout, so that a writer that waits in turn isn't cancelled.
        with transaction.atomic(self.connection.alias), self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT current_setting('lock_timeout'), set_config('lock_timeout', '500ms', true)"
            )
            usual, _ = cursor.fetchone()
            yield
            cursor.execute(
                "SELECT set_config('lock_timeout', %s, true)", [usual]
            )  # for a migration around it

    def fold(self, column: str) -> str:
        return column

    def written_by(self, tables: Iterable[str]) -> dict[str, list[str]]:
        families = self._families(tables).items()
        return {table: [relation.name for relation in family] for table, family in families}

    def has(self, table: str, columns: Collection[str]) -> bool:
        return super().has(self.quote(table), columns)

    def unit(self, source: WatchedTable) -> Unit:
        table, *parts = self.families.get(source.table, [Relation(0, "", source.table)])
        body = self.body(source, by_row=table.by_row)
        stem = self.stem(source, table.name, [body, "referenced" * source.is_referenced])
        function = f"{self.schema}.{self.quote(stem)}()"
        tag = f"$zrank_{digest(body)}$"
        prepare = [
            *self.alone(),
            (
                f"CREATE OR REPLACE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql"
                " SECURITY DEFINER SET search_path = pg_catalog, pg_temp"
                # Rows are estimated a hundred times too many, and compiling takes as long as the change.
                f" SET jit = off AS {tag}{body}{tag}"
            ),
            f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC",
        ]
        create: dict[Trigger, str] = {}
        for relation in (table, *parts):
            # Who turns foreign keys off turns these triggers off, too. Not so in MariaDB and SQLite.
            operations = [one for one in self._REFERENCING if one != "insert" or not source.is_referenced]
            names = {operation: f"{stem}_{operation}" for operation in operations}
            if relation is not table and relation.is_partition:
                names = {} if relation.is_foreign else {"truncate": names["truncate"]}
            for operation, name in names.items():
                by_row = table.by_row and operation != "truncate"
                how = "FOR EACH ROW" if by_row else f"{self._REFERENCING[operation]}FOR EACH STATEMENT"
                create[Trigger(relation.name, name)] = (
                    f"CREATE OR REPLACE TRIGGER {self.quote(name)} AFTER {operation.upper()} ON {relation.name} {how}"
                    f" EXECUTE FUNCTION {function}"
                )
        return Unit(source, create, prepare)

    def texts_for(self, source: WatchedTable) -> Iterable[str]:
        yield from (self.body(source, by_row=by_row) for by_row in (False, True))
        yield "referenced" * source.is_referenced

    def state(self, unit: Unit, *, again: bool = False) -> tuple[str, str] | None:
        family = self.families.get(unit.source.table, [])
        # A table that was restored has another number. What a subscription has written was not noticed when it ends.
        fed = ["fed"] * any(relation.is_replicated for relation in family)
        return unit.source.table, " ".join([*(f"{one.number} {one.version}".strip() for one in family), *fed])

    def alone(self) -> list[str]:
        # Others wait, instead of failing, or dropping a function that is about to be used.
        return [f"SELECT pg_advisory_xact_lock(hashtext('{PREFIX}'))"]

    def body(self, source: WatchedTable, *, by_row: bool) -> str:
        column = self.column(source.column)
        # Rows are the same if their keys and the captured column agree; otherwise they are a new and an old one.
        keys = list(dict.fromkeys([*source.model._meta.pk_fields, source.column]))
        others = [field for field in source.columns if field not in keys]
        if by_row:
            delete, insert = (self.insert(source, f"{row}.{column}") for row in ("OLD", "NEW"))
            changed = "true" if source.fields is None else self.differ("NEW", "OLD", others) or "false"
            update = (
                f"IF {self.differ('NEW', 'OLD', keys)} THEN {delete}; {insert};"
                f" ELSIF {changed} THEN {insert}; END IF"
            )
        else:
            delete, insert = (
                self.insert_many(source, f"r.{column}", f" FROM {rows} r", rows)
                for rows in ("old_rows", "new_rows")
            )
            on = " AND ".join(f"{self.value('n', field)} = {self.value('o', field)}" for field in keys)
            unmatched = " OR ".join(f"{row}.{self.column(keys[0])} IS NULL" for row in "no")
            changed = " OR ".join(filter(None, [unmatched, self.differ("n", "o", others)]))
            update = self.insert_many(
                source,
                f"coalesce(n.{column}, o.{column})",
                f" FROM new_rows n FULL JOIN old_rows o ON {on}",
                "new_rows",
                [] if source.fields is None else [f"({changed})"],
            )
        return f"""
BEGIN
  IF TG_OP = 'INSERT' THEN
    {insert};
  ELSIF TG_OP = 'UPDATE' THEN
    {update};
  ELSIF TG_OP = 'DELETE' THEN
    {delete};
  ELSE
    INSERT INTO {self.marks} ({self.quote("index")}) VALUES ({self.text(source.index)}); {TELL};
  END IF;
  RETURN NULL;
END
"""

    def insert_many(
        self, source: WatchedTable, member: str, rows: str, changed: str, conditions: Sequence[str] = ()
    ) -> str:
        """Return statements that leave marks for many rows. If ``changed``, a transition table, has more than
        ``_FEW``, each mark names so many members: a row for each would take longer than the change itself."""
        insert = self.insert(source, member, rows, conditions)
        if source.via is not None:
            return insert
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        columns, values = self.mark(replace(source, via=SEVERAL), "json_agg(m)::text")
        listed = f"SELECT concat({member}) AS m, (row_number() OVER () - 1) / {_FEW} AS part{rows}{where}"
        return (
            f"IF EXISTS (SELECT FROM {changed} OFFSET {_FEW}) THEN INSERT INTO {self.marks} ({columns})"
            f" SELECT {values} FROM ({listed}) listed GROUP BY part; {TELL}; ELSE {insert}; END IF"
        )

    def insert(
        self, source: WatchedTable, member: str, rows: str = "", conditions: Sequence[str] = ()
    ) -> str:
        # As clients read it: a cast to text would cut off the trailing blanks of a char(10).
        columns, values = self.mark(source, f"concat({member})")
        if source.column.null:
            conditions = [*conditions, f"{member} IS NOT NULL"]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"INSERT INTO {self.marks} ({columns}) SELECT {values}{rows}{where}; {TELL}"

    def differ(self, new: str, old: str, fields: Iterable[models.Field[Any, Any]]) -> str:
        """Return the condition under which two rows differ in one of these columns."""
        return " OR ".join(
            f"{self.value(new, field)} IS DISTINCT FROM {self.value(old, field)}" for field in fields
        )

    def value(self, row: str, field: models.Field[Any, Any]) -> str:
        """Return a column in a type whose equal values are identical."""
        column = f"{row}.{self.column(field)}"
        if self._COMPARABLE.match(str(field.db_type(self.connection))):
            return column
        return f'{column}::text COLLATE "C"'

    def text(self, text: str) -> str:
        literal = super().text(text)
        return f"E{literal}".replace("\\", r"\\") if "\\" in text else literal

    def drop(self, trigger: Trigger) -> str:
        return f"{super().drop(trigger)} ON {trigger.table}"

    def leftovers(self) -> list[str]:
        functions = self.select(
            "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE starts_with(p.proname, %s)"
            " AND pg_function_is_visible(p.oid) AND p.prorettype = 'trigger'::regtype"
            " AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgfoid = p.oid)",
            PREFIX,
        )
        return [f"DROP FUNCTION IF EXISTS {function}" for (function,) in functions]
