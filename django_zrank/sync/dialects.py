"""The triggers of each database, as SQL. Reads catalogs, changes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, ClassVar, Final, NamedTuple

from django.db import DatabaseError, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..models import Batch, Capture, Generation, Mark
from .watched_tables import WatchedTable

OWN_TABLES: Final = frozenset(model._meta.db_table for model in (Mark, Batch, Generation, Capture))
"""The app's tables that are written in one transaction with others."""

PREFIX: Final = "zrank_capture_"
"""The prefix of the names of all triggers of the app."""

_NAME: Final = re.compile(rf"{PREFIX}.*_([0-9a-f]{{8}})_[0-9a-f]{{8}}_[a-z]+")


class Trigger(NamedTuple):
    table: str
    """In the database's own spelling."""

    name: str
    """``zrank_capture_<index>_<its hash>_<definition's hash>_<operation>``: a trigger is recognised by its name, which
    tells its table and its text, and not when it was made, or of which object that has the table's name."""

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
        """Return the reason why triggers can't watch a table, by its name, for each table that has one; and why one of
        the app's own can't hold what they write."""
        found = {name.lower(): problem for name, problem in self.select(self.catalog_of_problems)}
        return {table: found[table.lower()] for table in self.tables | OWN_TABLES if table.lower() in found}

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
        have come or gone without a mark, although the triggers are there. None if there is nothing to tell it by.
        ``again``: read what was read before once more."""
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


class MySQL(Dialect):
    """MariaDB and MySQL, which run triggers with the rights of the account that created them (the definer).

    Triggers use ``INSERT … VALUES`` only: ``INSERT … SELECT`` would hold the lock on the auto-increment counter until
    the writer's statement ends.

    DDL isn't transactional. So each unit has a *seal*: a trigger on the table of generations that is created after all
    others, and after the mark for all members. It only acts on the deletion of a row that no index has, which leaves a
    mark, or fails as every save would.

    The time at which a trigger was created tells if its table was restored from a dump, which brings triggers of a
    later time, and rows that left no marks. Under Galera each node has a time of its own, so there it tells nothing.
    """

    transactional = False
    advice = (
        "Grant the TRIGGER privilege on it to the account that migrates (and, where the binary log is on and "
        "refuses, SET GLOBAL log_bin_trust_function_creators = 1)."
    )
    catalog = (
        "SELECT event_object_table, trigger_name, action_statement, definer, CURRENT_USER(), UNIX_TIMESTAMP(created)"
        " FROM information_schema.triggers"
        f" WHERE trigger_schema = DATABASE() AND LEFT(trigger_name, {len(PREFIX)}) = '{PREFIX}'"
    )
    catalog_of_columns = (
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_schema = DATABASE() AND table_name = %s"
    )
    catalog_of_databases = "SELECT @@hostname, @@port, @@datadir, DATABASE()"
    catalog_of_problems = (
        "SELECT t.table_name,"
        " coalesce(concat('has the engine ', t.engine, ', which has no transactions'), 'is a view')"
        " FROM information_schema.tables t LEFT JOIN information_schema.engines e ON e.engine = t.engine"
        " WHERE t.table_schema = DATABASE() AND (t.engine IS NULL OR e.transactions = 'NO')"
        " UNION ALL SELECT table_name,"
        " concat('loses rows by the key ', constraint_name, ' ON DELETE CASCADE, which runs no triggers')"
        " FROM information_schema.referential_constraints"
        " WHERE constraint_schema = DATABASE() AND delete_rule = 'CASCADE'"
    )
    columns_named = re.compile(r"\b(?:OLD|NEW)\.`([^`]+)`")

    _PROBE: Final = ""
    """The key of the row whose deletion runs the seals' bodies."""

    _REFUSED: Final = (1044, 1142, 1143, 1449)
    """Errors of a trigger whose definer may not write marks, or is gone."""

    def __init__(self, connection: BaseDatabaseWrapper, tables: Iterable[str]) -> None:
        super().__init__(connection, tables)
        self.created: dict[Trigger, str] = {}
        """When triggers were created, as of the last look."""
        if connection.mysql_is_mariadb:  # type: ignore[attr-defined]
            at = "UNIX_TIMESTAMP(created)"
            self.catalog = self.catalog.replace(at, f"IF(@@wsrep_on, NULL, {at})")
        else:
            self.create = "CREATE TRIGGER"

    @contextmanager
    def short_lock_timeout(self) -> Iterator[None]:
        ((usual,),) = self.select("SELECT @@lock_wait_timeout")
        with self.connection.cursor() as cursor:
            cursor.execute("SET SESSION lock_wait_timeout = 1")
            try:
                yield
            finally:
                cursor.execute("SET SESSION lock_wait_timeout = %s", [usual])

    def unit(self, source: WatchedTable) -> Unit:
        unit = super().unit(source)
        table = Generation._meta.db_table
        seal = Trigger(self.spelled(table), _stem(next(iter(unit.create))) + "_seal")
        column, marked = self.quote("index"), self.text(source.index)
        unit.create[seal] = (
            f"{self.create} {self.quote(seal.name)} AFTER DELETE ON {self.quote(table)} FOR EACH ROW"
            f" BEGIN IF OLD.{column} = {self.text(self._PROBE)} THEN"
            f" INSERT INTO {self.marks} ({column}) VALUES ({marked}); END IF; END"
        )
        return replace(unit, seal=seal)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        self.created.clear()
        for trigger, *others, at in super().rows():
            self.created[trigger] = "" if at is None else str(at)
            yield trigger, *others

    def state(self, unit: Unit, *, again: bool = False) -> tuple[str, str] | None:
        if again:
            list(self.rows())
        triggers = sorted(trigger for trigger in unit.create if trigger != unit.seal)
        times = [self.created.get(trigger, "") for trigger in triggers]
        return (_stem(triggers[0]), " ".join(times)) if all(times) else None

    def installed(self) -> dict[Trigger, bool]:
        found, seals, me = {}, {}, ""
        for trigger, _, definer, me in self.rows():  # noqa: B007
            found[trigger] = definer
            if trigger.name.endswith("_seal"):
                seals[_stem(trigger)] = definer
        # This account's triggers are in force. Those of other accounts are if their seals work.
        strangers = set(found.values()) - {me}
        trusted = {me} | (strangers if strangers and self.seals_work() else set())
        return {
            trigger: definer in trusted and definer in (me, seals.get(_stem(trigger)))
            for trigger, definer in found.items()
        }

    def seals_work(self) -> bool:
        """Return True if the accounts that created the seals still exist and may leave marks, or if that can't be
        tested now, for example on a read-only server."""
        using = self.connection.alias
        try:
            with transaction.atomic(using):
                row = Generation.objects.using(using).create(index=self._PROBE)
                row.delete(using=using)
                transaction.set_rollback(True, using)
        except DatabaseError as error:
            return error.args[0] not in self._REFUSED
        return True

    def text(self, text: str) -> str:
        if "\\" in text:  # sql_mode decides if a backslash escapes
            return f"CONVERT(0x{text.encode().hex()} USING utf8mb4)"
        return super().text(text)

    def bodies(self, source: WatchedTable) -> dict[str, str]:
        old, new = self.insert(source, "OLD"), self.insert(source, "NEW")
        same = self.same(source.column)
        others = [self.same(field) for field in source.columns if field != source.column]
        # Each statement costs a microsecond a row. The usual case takes two: one condition, one mark.
        if source.fields is None:
            update = f"IF {same} THEN {new} ELSE {old} {new} END IF;"
        else:
            changed = f"IF {same} AND NOT ({' AND '.join(others)}) THEN {new} ELSEIF" if others else "IF"
            update = f"{changed} NOT ({same}) THEN {old} {new} END IF;"
        return {"insert": f"BEGIN {new} END", "update": f"BEGIN {update} END", "delete": f"BEGIN {old} END"}

    def insert(self, source: WatchedTable, row: str) -> str:
        member = f"{row}.{self.column(source.column)}"
        columns, values = self.mark(source, member)
        insert = f"INSERT INTO {self.marks} ({columns}) VALUES ({values});"
        return f"IF {member} IS NOT NULL THEN {insert} END IF;" if source.column.null else insert

    def same(self, field: models.Field[Any, Any]) -> str:
        column = self.column(field)
        old, new = f"OLD.{column}", f"NEW.{column}"
        if re.search("char|text", str(field.db_type(self.connection))):
            # By its collation 'Bob' equals 'bob'; in Redis, members are bytes.
            old, new = f"CAST({old} AS BINARY)", f"CAST({new} AS BINARY)"
        return f"{old} <=> {new}"


def _stem(trigger: Trigger) -> str:
    """Return the part that the names of a unit's triggers share."""
    return trigger.name.rpartition("_")[0]


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
                f" SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {tag}{body}{tag}"
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
                self.insert(source, f"r.{column}", f" FROM {rows} r") for rows in ("old_rows", "new_rows")
            )
            on = " AND ".join(f"{self.value('n', field)} = {self.value('o', field)}" for field in keys)
            unmatched = " OR ".join(f"{row}.{self.column(keys[0])} IS NULL" for row in "no")
            changed = " OR ".join(filter(None, [unmatched, self.differ("n", "o", others)]))
            update = self.insert(
                source,
                f"coalesce(n.{column}, o.{column})",
                f" FROM new_rows n FULL JOIN old_rows o ON {on}",
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
    INSERT INTO {self.marks} ({self.quote("index")}) VALUES ({self.text(source.index)});
  END IF;
  RETURN NULL;
END
"""

    def insert(
        self, source: WatchedTable, member: str, rows: str = "", conditions: Sequence[str] = ()
    ) -> str:
        # As clients read it: a cast to text would cut off the trailing blanks of a char(10).
        columns, values = self.mark(source, f"concat({member})")
        if source.column.null:
            conditions = [*conditions, f"{member} IS NOT NULL"]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"INSERT INTO {self.marks} ({columns}) SELECT {values}{rows}{where}"

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


def owner_of(index: str) -> str:
    """Return the owner in the names of an index's triggers."""
    return digest(index)


def digest(text: str) -> str:
    """Return eight digits that identify a text."""
    return sha256(text.encode()).hexdigest()[:8]


DIALECTS: Final[dict[str, type[Dialect]]] = {"postgresql": PostgreSQL, "mysql": MySQL, "sqlite": SQLite}
"""By the ``vendor`` of a connection."""
