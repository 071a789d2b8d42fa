"""Triggers of MariaDB and MySQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from django.db import DatabaseError, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..models import Build
from .dialect import PREFIX, Dialect, Trigger, Unit
from .watched_tables import WatchedTable


class MySQL(Dialect):
    """MariaDB and MySQL, which run triggers with the rights of the account that created them (the definer).

    Triggers use ``INSERT … VALUES`` only: ``INSERT … SELECT`` would hold the lock on the auto-increment counter until
    the writer's statement ends.

    DDL isn't transactional. So each unit has a *seal*: a trigger on the table of builds that is created after all
    others, and after the mark for all members. It only acts on the deletion of a row that no index has, which leaves a
    mark, or fails as every save would.

    The time at which a trigger was created shows if its table was restored from a dump, which creates triggers at a
    later time, and inserts rows without marks. On Galera, this time differs between nodes and is ignored.
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
        """The times at which triggers were created, as last read."""
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
        table = Build._meta.db_table
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
                row = Build.objects.using(using).create(index=self._PROBE)
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
