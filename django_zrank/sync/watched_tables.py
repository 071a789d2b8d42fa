"""The tables and columns that an index reads. No other change can move a member."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from django.db import connections, models
from django.db.models.constants import LOOKUP_SEP
from django.db.models.expressions import Col, RawSQL
from django.db.models.sql import Query
from django.db.models.sql.datastructures import BaseTable, Join
from django.db.models.sql.where import ExtraWhere

from ..codec.fields import spelling_of
from ..index import RankIndex
from .subqueries import nodes, own_rows, tables_of_others, walk

__all__ = ["Link", "WatchedTable", "every_row", "unseen_tables", "watched_tables"]

_BATCH: Final = 1000

Fields: TypeAlias = "frozenset[models.Field[Any, Any]] | None"
"""Columns; None for all of a table."""


class Link(NamedTuple):
    """One join on the way from a member to a table."""

    model: type[models.Model]
    """The model of the nearer row."""

    near: models.Field[Any, Any]
    far: models.Field[Any, Any]


@dataclass(frozen=True)
class WatchedTable:
    """One table that an index reads."""

    model: type[models.Model]

    path: str
    """The lookup path from the index's model to the table's rows; empty for the model's own table."""

    inherited: bool
    """True for a parent's table, in multi-table inheritance."""

    fields: Fields
    """The columns read; all if that is unknown."""

    column: models.Field[Any, Any]
    """The column that relates a row to members: it holds a member's primary key, or the value of ``via``."""

    via: str | None
    """The lookup path from a member to the last column that leads to the row, such as ``club_id`` or
    ``club__league_id``; None if ``column`` holds the member's primary key."""

    links: tuple[Link, ...]
    """The joins from a member to the column that ``via`` names; empty if that is None."""

    @property
    def is_referenced(self) -> bool:
        """True if the last link to it is a foreign key that the database checks."""
        key = self.links[-1].near if self.links else None
        return (
            isinstance(key, models.ForeignKey)
            and key.db_constraint  # type: ignore[attr-defined]  # Not in the stubs
            and key.target_field == self.column
            and key.model._meta.managed
            and self.model._meta.managed
        )

    def touched_by(self, update_fields: frozenset[str] | None) -> bool:
        """Return True if a save of these fields (None for all) can move a member."""
        if update_fields is None or self.fields is None:
            return True
        return any(field.name in update_fields or field.attname in update_fields for field in self.fields)

    def text_of(self, value: Any) -> str:
        """Return ``Mark.member`` for a row whose ``column`` holds ``value``, as :meth:`members_at` reads it.
        Raises ``ValueError``."""
        return str(spelling_of(self.column).parse(value))

    def value_of(self, row: models.Model, using: str) -> Any:
        """Return the value of ``column`` in a saved row; None if it is null, or if the row is gone. For an expression,
        ``F("number") + 1``, or a deferred field, it is read from the database."""
        if self.column.attname in vars(row):  # not deferred
            value = getattr(row, self.column.attname)
            if not hasattr(value, "resolve_expression"):
                return value
        rows = every_row(type(row), using).filter(pk=row.pk)
        return rows.values_list(self.column.attname, flat=True).first()

    def members_of(self, row: models.Model, using: str, limit: int | None = None) -> Iterator[Any]:
        """Yield the primary keys of the members that are related to ``row`` by ``via``, at most ``limit``."""
        value = self.value_of(row, using)
        with suppress(ValueError):
            yield from () if value is None else self.members_at([self.text_of(value)], using, limit)

    def members_at(self, texts: Iterable[str], using: str, limit: int | None = None) -> Iterator[Any]:
        """Yield the primary keys of the members whose ``via`` holds one of these values (as marks store them), at most
        ``limit``, perhaps with duplicates.

        Links are followed when the mark is processed, not by the trigger: its transaction can't see members that a
        concurrent one is linking to the row.
        """
        values = list(_parse(self.column, self.links[-1].near, texts))
        size = min(_BATCH, connections[using].features.max_query_params or _BATCH)
        for start in range(0, len(values), size):
            found: Any = values[start : start + size]
            for position in range(len(self.links) - 1, -1, -1):
                model, near, _ = self.links[position]
                column = self.links[position - 1].far.attname if position else "pk"
                rows = every_row(model, using).filter(**{f"{near.attname}__in": found})
                found = rows.order_by().values_list(column, flat=True)
            for pk in found if limit is None else found[:limit]:
                if limit is not None:
                    limit -= 1
                yield pk
            if limit == 0:
                break


def every_row(model: type[models.Model], using: str | None = None) -> models.QuerySet[Any]:
    """Return all rows of ``model``, including those that its managers hide."""
    return models.QuerySet(model, using=using)


def watched_tables(index: RankIndex) -> list[WatchedTable]:
    """Return the tables that the order, facets and queryset of ``index`` read, its own first.

    Tables in subqueries are included only if the subquery finds the member's own row by its primary key. Tables in raw
    SQL are not.
    """
    queries = chain.from_iterable(map(own_rows, _queries(index)))
    sources: dict[object, WatchedTable] = {}
    for source in chain.from_iterable(map(_sources, queries)):
        way = replace(source, fields=None)
        if same := sources.get(way):
            source = replace(source, fields=union(same.fields, source.fields))
        sources[way] = source
    return list(sources.values())


def union(fields: Fields, others: Fields) -> Fields:
    return None if fields is None or others is None else fields | others


def _sources(query: Query) -> Iterator[WatchedTable]:
    """Return the tables that ``query`` reads, its model's first."""
    query.get_initial_alias()
    # The map keeps joins that a later filter made unnecessary, without a reference.
    used = query.alias_refcount
    tables: dict[str, Any] = {alias: table for alias, table in query.alias_map.items() if used.get(alias)}
    expressions = list(nodes(query))
    fields: dict[str, set[models.Field[Any, Any]]] = {alias: set() for alias in tables}
    for node in expressions:
        if isinstance(node, Col) and node.alias in fields:
            fields[node.alias].add(node.target)
    opaque = bool(query.extra) or any(map(_is_opaque, expressions))
    for alias, table in tables.items():
        if isinstance(table, Join):
            # The columns that are joined on decide which row is read.
            for near, far in table.join_fields:  # type: ignore[attr-defined]
                fields[table.parent_alias].add(near)
                fields[alias].add(far)
            relation: Any = getattr(table.join_field, "field", table.join_field)
            kind = _kind_column(relation)
            if kind is not None:  # a generic relation depends on the content type, too
                holder = kind.model._meta.db_table
                for end in (alias, table.parent_alias):
                    if tables[end].table_name == holder:
                        fields[end].add(kind)
            elif type(relation).get_extra_restriction is not models.ForeignObject.get_extra_restriction:
                opaque = True
    return (_source(query, alias, None if opaque else _stored(fields[alias])) for alias in tables)


def unseen_tables(index: RankIndex) -> set[str]:
    """Return the tables that the index reads without a join to a member: their changes leave no mark."""
    return tables_of_others(_queries(index))


def _queries(index: RankIndex) -> list[Query]:
    """Return the queries that read members."""
    queries = [index.get_ranked().values_list("pk", *index.ordering.paths).query]
    if index.faceting:
        queries.append(every_row(index.model).values_list("pk", *index.faceting.paths).query)
    return queries


def _source(query: Query, alias: str, fields: Fields) -> WatchedTable:
    relations, links = _way_to(query, alias)
    model = _model_of(query, alias)
    pk: models.Field[Any, Any] = query.model._meta.pk  # type: ignore[union-attr]
    column = links[-1].far if links else pk
    path = LOOKUP_SEP.join(relation.name for relation in relations)
    inherited = bool(relations) and all(
        getattr(relation.remote_field, "parent_link", False) for relation in relations
    )
    # Joins on the same column pass on the same value: skip them.
    while links and links[-1].near == (links[-2].far if len(links) > 1 else pk):
        links.pop()
    via = None
    if links:
        names = [relation.name for relation in relations[: len(links) - 1]]
        via = LOOKUP_SEP.join([*names, links[-1].near.attname])
    return WatchedTable(model, path, inherited, fields, column, via, tuple(links))


def _is_opaque(node: Any) -> bool:
    """Return True if an expression may read columns that it doesn't name."""
    return isinstance(node, (Query, RawSQL, ExtraWhere)) or hasattr(node, "query")


def _kind_column(relation: Any) -> models.Field[Any, Any] | None:
    """Return the content type column of a generic relation; None for other relations."""
    name = getattr(relation, "content_type_field_name", None)
    return None if name is None else relation.related_model._meta.get_field(name)


def _stored(fields: Iterable[models.Field[Any, Any]]) -> Fields:
    """Return ``fields`` with each generated column replaced by the columns that it is computed from."""
    stored: set[models.Field[Any, Any]] = set()
    for field in fields:
        if isinstance(field, models.GeneratedField):
            expression = field.expression.resolve_expression(  # type: ignore[attr-defined]
                Query(field.model, alias_cols=False)
            )
            parts = list(walk([expression]))
            if any(map(_is_opaque, parts)):
                return None
            stored.update(node.target for node in parts if isinstance(node, Col))
        else:
            stored.add(field)
    return frozenset(stored)


def _model_of(query: Query, alias: str) -> type[models.Model]:
    """Return the model of the table with this alias."""
    table = query.alias_map[alias]
    if isinstance(table, BaseTable) and not isinstance(table, Join):
        model: Any = query.model
    else:
        field: Any = table.join_field  # a relation, or the other side of one
        model = field.related_model
        if table.table_name != model._meta.db_table:  # the through table of a many-to-many
            model = field.remote_field.through if hasattr(field.remote_field, "through") else field.model
    return model._meta.concrete_model  # type: ignore[no-any-return]


def _way_to(query: Query, alias: str) -> tuple[list[Any], list[Link]]:
    """Return the relations and the joins from the query's model to the table with this alias."""
    relations: list[Any] = []
    links: list[Link] = []
    table: Any = query.alias_map[alias]
    while isinstance(table, Join):
        # One column of a composite join finds the rows, and perhaps some more, which do no harm.
        near, far = table.join_fields[0]  # type: ignore[attr-defined]
        relations.insert(0, table.join_field)
        links.insert(0, Link(_model_of(query, table.parent_alias), near, far))
        table = query.alias_map[table.parent_alias]
    return relations, links


def _parse(far: models.Field[Any, Any], near: models.Field[Any, Any], texts: Iterable[str]) -> Iterator[Any]:
    """Convert the database's texts of values of ``far`` to values of ``near``. Invalid ones are skipped."""
    read, parse = spelling_of(far).parse, spelling_of(near).parse
    for text in texts:
        with suppress(ValueError):
            # The columns of a generic relation may have two types, such as UUID and text.
            yield parse(str(read(text)))
