"""The SQL statement of a flush, for each database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from django.db import connections, models

from ..index import RankIndex
from ..members import batched
from .watched_tables import every_row

__all__ = ["add_to_column"]

_JOINS: Final = {
    "sum": "{old} + {new}",
    "max": "{greatest}({old}, {new})",
    "min": "{least}({old}, {new})",
    "last": "{new}",
}

_UNION: Final = 1000
"""Rows of one statement on MySQL."""


def add_to_column(index: RankIndex, rule: str, changes: Mapping[str, int]) -> None:
    """Merge each change into its member's column by a rule, in one statement. A null stays null: its row isn't ranked.

    No statement waits long for a locked row. In a deadlock, this transaction fails, not the other one.
    """
    connection = connections[index.get_using()]
    column: Any = index.column
    pk: Any = index.model._meta.pk
    quote = connection.ops.quote_name
    greatest, least = ("max", "min") if connection.vendor == "sqlite" else ("GREATEST", "LEAST")
    old = f"t.{quote(column.field.column)}"
    joined = _JOINS[rule].format(old=old, new="x.change", greatest=greatest, least=least)
    names = quote(index.model._meta.db_table), quote(column.field.column), quote(pk.column), joined
    unit = index.ordering.first.kind.value
    prepare = partial(pk.get_db_prep_value, connection=connection, prepared=False)
    key_of: Any = int if index.has_integer_pk else lambda member: prepare(index.from_text(member))
    pairs = sorted((key_of(member), unit(change)) for member, change in changes.items())
    write = {"postgresql": _postgresql, "mysql": _mysql}.get(connection.vendor, _sqlite)
    write(index, connection, names, pairs)


def _postgresql(
    index: RankIndex, connection: Any, names: tuple[str, ...], pairs: list[tuple[Any, Any]]
) -> None:
    table, column, pk, joined = names
    key_type = index.model._meta.pk.db_type(connection)
    is_decimal = isinstance(index.column.field, models.DecimalField)  # type: ignore[union-attr]
    sql = (
        f"UPDATE {table} AS t SET {column} = {joined} "  # noqa: S608
        f"FROM unnest(%s::{key_type}[], %s::{'numeric' if is_decimal else 'bigint'}[]) AS x(pk, change) "
        f"WHERE t.{pk} = x.pk AND t.{column} IS NOT NULL"
    )
    keys, changes = zip(*pairs, strict=True)
    with connection.cursor() as cursor:
        # lock_timeout is below deadlock_timeout, so that this transaction fails in a deadlock. With the default
        # random_page_cost the whole table would be read. A deferred constraint must fail here, where the change at
        # fault can be found, not at the commit.
        limits = "SET LOCAL lock_timeout = '400ms'; SET LOCAL random_page_cost = 1"
        cursor.execute(f"{limits}; SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(sql, [_array(keys) if index.has_integer_pk else list(keys), _array(changes)])


def _array(numbers: Iterable[Any]) -> str:
    """Return an array as text: the driver would inspect the type of each number."""
    return f"{{{','.join(map(str, numbers))}}}"


def _mysql(index: RankIndex, connection: Any, names: tuple[str, ...], pairs: list[tuple[Any, Any]]) -> None:
    table, column, pk, joined = names
    for chunk in batched(pairs, _UNION):
        # In a deadlock, InnoDB rolls back the smaller transaction, so this one must never wait.
        rows = every_row(index.model, connection.alias).filter(pk__in=[key for key, _ in chunk])
        list(rows.select_for_update(nowait=True).values_list("pk"))
        union = " UNION ALL ".join(["SELECT %s AS pk, %s AS `change`", *["SELECT %s, %s"] * (len(chunk) - 1)])
        sql = (
            f"UPDATE ({union}) x STRAIGHT_JOIN {table} t ON t.{pk} = x.pk "  # noqa: S608
            f"SET t.{column} = {joined} WHERE t.{column} IS NOT NULL"
        )
        with connection.cursor() as cursor:
            cursor.execute(sql, [value for pair in chunk for value in pair])


def _sqlite(index: RankIndex, connection: Any, names: tuple[str, ...], pairs: list[tuple[Any, Any]]) -> None:
    table, column, pk, joined = names
    places = index.column.places  # type: ignore[union-attr]
    sql = (
        f"UPDATE {table} AS t SET {column} = {f'ROUND({joined}, {places})' if places else joined} "  # noqa: S608
        "FROM (SELECT json_extract(value, '$[0]') AS pk, CAST(json_extract(value, '$[1]') AS NUMERIC) AS change "
        "FROM json_each(%s)) AS x "
        f"WHERE t.{pk} = x.pk AND t.{column} IS NOT NULL"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, [json.dumps(pairs, default=str)])
