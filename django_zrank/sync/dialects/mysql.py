"""MariaDB and MySQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from django.db import DatabaseError, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ...models import Generation
from .base import PREFIX, ByRow, Capture, Trigger, Unit

__all__ = ["MySQL"]


class MySQL(ByRow):
    """MariaDB and MySQL, which run triggers with the rights of the account that created them (the definer).

    Triggers use ``INSERT … VALUES`` only: ``INSERT … SELECT`` would hold the lock on the auto-increment counter until
    the writer's statement ends.

    DDL isn't transactional. So each unit has a *seal*: a trigger on the table of generations that is created after all
    others, and after the mark for all members. It only acts on the deletion of a row that no index has, which leaves a
    mark, or fails as every save would. It also notes when the others were created: a table that is restored from a dump
    brings triggers of a later time, and rows that left no marks.
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
    columns_named = re.compile(r"\b(?:OLD|NEW)\.`([^`]+)`")

    _PROBE: Final = ""
    """The key of the row whose deletion runs the seals' bodies."""

    _TIMES: Final = "times"
    """In the text of a seal, what the times of the other triggers replace."""

    _REFUSED: Final = (1044, 1142, 1143, 1449)
    """Errors of a trigger whose definer may not write marks, or is gone."""

    def __init__(self, connection: BaseDatabaseWrapper, tables: Iterable[str]) -> None:
        super().__init__(connection, tables)
        if not connection.mysql_is_mariadb:  # type: ignore[attr-defined]
            self.create = "CREATE TRIGGER"

    def identity(self) -> object:
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT @@hostname, @@port, @@datadir, DATABASE()")
            return cursor.fetchone()

    def problems(self) -> dict[str, str]:
        names = {table.lower(): table for table in self.tables}
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT lower(t.table_name), t.engine FROM information_schema.tables t"
                " LEFT JOIN information_schema.engines e ON e.engine = t.engine"
                " WHERE t.table_schema = DATABASE() AND (t.engine IS NULL OR e.transactions = 'NO')"
            )
            found = {names[name]: engine for name, engine in cursor.fetchall() if name in names}
        return {
            table: f"has the engine {engine}, which has no transactions" if engine else "is a view"
            for table, engine in found.items()
        }

    @contextmanager
    def short_lock_timeout(self) -> Iterator[None]:
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT @@lock_wait_timeout")
            (usual,) = cursor.fetchone()
            cursor.execute("SET SESSION lock_wait_timeout = 1")
            try:
                yield
            finally:
                cursor.execute("SET SESSION lock_wait_timeout = %s", [usual])

    def unit(self, capture: Capture) -> Unit:
        unit = super().unit(capture)
        table = Generation._meta.db_table
        seal = Trigger(table.lower(), _stem(next(iter(unit.create))) + "_seal")
        column, marked = self.quote("index"), self.text(capture.index)
        unit.create[seal] = (
            f"{self.create} {self.quote(seal.name)} AFTER DELETE ON {self.quote(table)} FOR EACH ROW"
            f" BEGIN IF OLD.{column} = {self.text(self._PROBE)} AND '{self._TIMES}' <> '' THEN"
            f" INSERT INTO {self.marks} ({column}) VALUES ({marked}); END IF; END"
        )
        return replace(unit, seal=seal)

    def seal(self, unit: Unit) -> str:
        told = [_time(trigger, at) for trigger, _, _, _, at in self.rows() if trigger in unit.create]
        return super().seal(unit).replace(self._TIMES, "; ".join(told))

    def installed(self) -> dict[Trigger, bool]:
        found, seals, me = {}, {}, ""
        for trigger, text, definer, me, at in self.rows():  # noqa: B007
            found[trigger] = definer, _time(trigger, at)
            if trigger.name.endswith("_seal"):
                seals[_stem(trigger)] = definer, text
        # This account's triggers are in force. Those of other accounts are if their seals work.
        strangers = {definer for definer, _ in found.values()} - {me}
        trusted = {me} | (strangers if strangers and self.seals_work() else set())
        in_force: dict[Trigger, bool] = {}
        for trigger, (definer, time) in found.items():
            sealed_by, text = seals.get(_stem(trigger), ("", time))
            is_ours = definer in trusted and definer in (me, sealed_by)
            in_force[trigger] = is_ours and (time in text or trigger.name.endswith("_seal"))
        return in_force

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

    def bodies(self, capture: Capture) -> dict[str, str]:
        old, new = self.insert(capture, "OLD"), self.insert(capture, "NEW")
        same = self.same(capture.column)
        others = [self.same(field) for field in capture.columns if field != capture.column]
        # Each statement costs a microsecond a row. The usual case takes two: one condition, one mark.
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
            # By its collation 'Bob' equals 'bob'; in Redis, members are bytes.
            old, new = f"CAST({old} AS BINARY)", f"CAST({new} AS BINARY)"
        return f"{old} <=> {new}"


def _time(trigger: Trigger, at: Any) -> str:
    """Return what a seal notes of a trigger: its operation, and when it was created."""
    return f"{trigger.name.rpartition('_')[2]} at {at}"


def _stem(trigger: Trigger) -> str:
    """Return the part that the names of a unit's triggers share."""
    return trigger.name.rpartition("_")[0]
