"""The SQL statements of a flush, for each database."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from django.db import connections, models

from ..index import RankIndex

__all__ = ["Merged", "merge_changes"]

_JOINS: Final = {
    "sum": "{old} + {new}",
    "max": "{greatest}({old}, {new})",
    "min": "{least}({old}, {new})",
    "last": "{new}",
}


class Merged(NamedTuple):
    """The members whose column doesn't have what it should."""

    different: list[str]
    """Those without a row or a value, and those for which a trigger wrote something else, or nothing."""

    locked: list[str]
    """Those whose rows are locked: nothing was written."""

    refused: list[str]
    """Those for which the column has no room."""


def merge_changes(index: RankIndex, rule: str, changes: Mapping[str, int]) -> Merged:
    """Merge each change into its member's column by a rule. A null stays null: its row isn't ranked.

    Locked rows are skipped.
    """
    connection = connections[index.get_using()]
    write: Any = {"postgresql": _Postgresql, "mysql": _MySQL}.get(connection.vendor, _SQLite)
    return write(index, rule, connection, changes).run()  # type: ignore[no-any-return]


class _Statements:
    """The statements for some changes. Rows are named by the position of their change."""

    greatest, least = "GREATEST", "LEAST"

    lock = ""
    """The clause that locks rows, and skips those that are locked."""

    def __init__(self, index: RankIndex, rule: str, connection: Any, changes: Mapping[str, int]) -> None:
        self.index, self.connection, self.members = index, connection, list(changes)
        column: Any = index.column
        pk: Any = index.model._meta.pk
        quote = connection.ops.quote_name
        self.is_decimal = isinstance(column.field, models.DecimalField)
        self.table, self.pk = quote(index.model._meta.db_table), quote(pk.column)
        self.column = quote(column.field.column)
        old = f"t.{self.column}"
        self.joined = _JOINS[rule].format(old=old, new="x.change", greatest=self.greatest, least=self.least)
        self.changes = list(map(index.ordering.first.kind.value, changes.values()))
        prepare = partial(pk.get_db_prep_value, connection=connection, prepared=False)
        self.keys = [prepare(index.from_text(member)) for member in changes]

    def run(self) -> Merged:
        """Lock the rows, write those that can be, and read what was written."""
        every = range(len(self.members))
        wanted = self.select(every, self.joined, self.lock)
        refused = [] if self.is_decimal else [at for at, value in wanted.items() if isinstance(value, float)]
        for at in refused:
            del wanted[at]
        different = []
        if wanted or not self.members:
            self.update(list(wanted))
            found = self.select(list(wanted), f"t.{self.column}", self.lock)
            different = [at for at in wanted if found.get(at) != wanted[at]]
        absent = [at for at in every if at not in wanted and at not in refused]
        return self.merged(different, absent, refused)

    def merged(self, different: list[int], absent: list[int], refused: Sequence[int] = ()) -> Merged:
        """Return the result: those that are ``absent`` but have a row are locked."""
        locked = self.select(absent, "1") if absent and self.lock else {}
        different += [at for at in absent if at not in locked]
        names = self.members.__getitem__
        return Merged(list(map(names, different)), list(map(names, locked)), list(map(names, refused)))

    def select(self, positions: Sequence[int], what: str, lock: str = "") -> dict[int, Any]:
        """Return ``what`` of the rows that exist, and whose column is not null, by position."""
        source, parameters = self.source(positions)
        sql = (
            f"SELECT x.n, {what} FROM {source} {self.join} {self.table} t ON t.{self.pk} = x.pk "  # noqa: S608
            f"WHERE t.{self.column} IS NOT NULL {lock}"
        )
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return dict(cursor.fetchall())

    def update(self, positions: Sequence[int]) -> None:
        raise NotImplementedError

    join = "JOIN"

    def source(self, positions: Sequence[int]) -> tuple[str, list[Any]]:
        """Return the changes at these positions as a table ``x``, and its parameters."""
        raise NotImplementedError


class _Postgresql(_Statements):
    lock = "FOR NO KEY UPDATE OF t SKIP LOCKED"

    def run(self) -> Merged:
        every = range(len(self.members))
        source, parameters = self.source(every)
        sql = (
            f"WITH old AS (SELECT x.n, t.{self.pk} AS pk, {self.joined} AS value FROM {source} "  # noqa: S608
            f"JOIN {self.table} t ON t.{self.pk} = x.pk WHERE t.{self.column} IS NOT NULL {self.lock}), "
            f"new AS (UPDATE {self.table} AS t SET {self.column} = old.value FROM old WHERE t.{self.pk} = old.pk "
            f"RETURNING old.n, t.{self.column} AS value) "
            "SELECT old.n, new.n IS NOT NULL AND new.value IS NOT DISTINCT FROM old.value "
            "FROM old LEFT JOIN new ON new.n = old.n"
        )
        with self.connection.cursor() as cursor:
            # With the default random_page_cost the whole table would be read. A deferred constraint must fail here,
            # where the change at fault can be found, not at the commit. A trigger may wait for locks.
            limits = "SET LOCAL lock_timeout = '400ms'; SET LOCAL random_page_cost = 1"
            cursor.execute(f"{limits}; SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute(sql, parameters)
            found = dict(cursor.fetchall())
        return self.merged([at for at in found if not found[at]], [at for at in every if at not in found])

    def source(self, positions: Sequence[int]) -> tuple[str, list[Any]]:
        key_type = self.index.model._meta.pk.db_type(self.connection)
        change_type = "numeric" if self.is_decimal else "bigint"
        # As text: drivers refuse lists of several types, as of addresses of both versions.
        keys = [self.members[at] for at in positions]
        changes = [str(self.changes[at]) for at in positions]
        names = [str(at) for at in positions]
        sql = f"unnest(%s::text[]::{key_type}[], %s::text[]::{change_type}[], %s::text[]::int[]) AS x(pk, change, n)"
        return sql, [keys, changes, names]


class _MySQL(_Statements):
    join = "STRAIGHT_JOIN"

    @property
    def lock(self) -> str:  # type: ignore[override]
        skips = self.connection.features.has_select_for_update_skip_locked
        # In a deadlock, InnoDB rolls back the smaller transaction, so this one must never wait.
        return "FOR UPDATE SKIP LOCKED" if skips else "FOR UPDATE NOWAIT"

    def update(self, positions: Sequence[int]) -> None:
        source, parameters = self.source(positions)
        sql = (
            f"UPDATE {source} STRAIGHT_JOIN {self.table} t ON t.{self.pk} = x.pk "  # noqa: S608
            f"SET t.{self.column} = {self.joined} WHERE t.{self.column} IS NOT NULL"
        )
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)

    def source(self, positions: Sequence[int]) -> tuple[str, list[Any]]:
        if not positions:
            return "(SELECT NULL AS pk, 0 AS `change`, 0 AS n FROM DUAL WHERE 1 = 0) x", []
        rows = ["SELECT %s AS pk, %s AS `change`, %s AS n", *["SELECT %s, %s, %s"] * (len(positions) - 1)]
        parameters = [value for at in positions for value in (self.keys[at], self.changes[at], at)]
        return f"({' UNION ALL '.join(rows)}) x", parameters


class _SQLite(_Statements):
    greatest, least = "max", "min"

    def __init__(self, index: RankIndex, rule: str, connection: Any, changes: Mapping[str, int]) -> None:
        super().__init__(index, rule, connection, changes)
        if places := index.column.places:  # type: ignore[union-attr]
            self.joined = f"ROUND({self.joined}, {places})"

    def update(self, positions: Sequence[int]) -> None:
        source, parameters = self.source(positions)
        sql = (
            f"UPDATE {self.table} AS t SET {self.column} = {self.joined} FROM {source} "  # noqa: S608
            f"WHERE t.{self.pk} = x.pk AND t.{self.column} IS NOT NULL"
        )
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)

    def source(self, positions: Sequence[int]) -> tuple[str, list[Any]]:
        rows = [(self.keys[at], self.changes[at], at) for at in positions]
        sql = (
            "(SELECT json_extract(value, '$[0]') AS pk, CAST(json_extract(value, '$[1]') AS NUMERIC) AS change, "
            "json_extract(value, '$[2]') AS n FROM json_each(%s)) AS x"
        )
        return sql, [json.dumps(rows, default=str)]
