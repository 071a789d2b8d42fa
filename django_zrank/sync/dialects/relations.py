"""PostgreSQL's tables, with their partitions and inheritance children."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["Relation", "find_families"]


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


def find_families(connection: BaseDatabaseWrapper, tables: Mapping[str, str]) -> dict[str, list[Relation]]:
    """Return each existing table, followed by its partitions and children. ``tables``: the key of each in the result,
    by its quoted name."""
    families: dict[str, list[Relation]] = {}
    with connection.cursor() as cursor:
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
            [list(tables)],
        )
        for name, *relation in cursor.fetchall():
            families.setdefault(tables[name], []).append(Relation(*relation))
    return families
