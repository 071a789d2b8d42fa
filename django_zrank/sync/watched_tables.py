"""The tables and columns that an index reads: a change of any other can't move a member."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.db import connections, models
from django.db.models.constants import LOOKUP_SEP
from django.db.models.expressions import Col, RawSQL
from django.db.models.sql import Query
from django.db.models.sql.datastructures import BaseTable, Join
from django.db.models.sql.where import ExtraWhere

from ..codec.spelling import spelling_of
from .subqueries import nodes, own_rows, tables_of_others, walk

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["Link", "WatchedTable", "every_row", "unseen_tables", "watched_tables"]

_BATCH: Final = 1000


class Link(NamedTuple):
    """One join on the way from a member to a table: a row leads to those that hold the same value."""

    model: type[models.Model]
    """The model of the nearer row."""

    near: models.Field[Any, Any]
    far: models.Field[Any, Any]


@dataclass(frozen=True)
class WatchedTable:
    """One table that an index reads."""

    model: type[models.Model]
    """The model that the table belongs to."""

    path: str
    """The lookup path from the index's model to its rows; empty for the model's own table."""

    inherited: bool
    """True if the path leads to a parent of the model, by multi-table inheritance."""

    fields: frozenset[models.Field[Any, Any]] | None
    """The columns read; None if they are unknown, so that every one counts."""

    column: models.Field[Any, Any]
    """The column of a row that says whose it is: it holds a member's primary key, or what ``via`` holds."""

    via: str | None
    """None where ``column`` holds the primary key of the member. Else the nearest column to the row on the way
    from the member: ``club_id``, ``club__league_id``. Members are those that it leads to the row."""

    links: tuple[Link, ...]
    """The joins from a member to the column that ``via`` names; none where it is None."""

    def touched_by(self, update_fields: frozenset[str] | None) -> bool:
        """Return True if a save of these fields (None: all of them) can move a member."""
        if update_fields is None or self.fields is None:
            return True
        return any(field.name in update_fields or field.attname in update_fields for field in self.fields)

    def text_of(self, value: Any) -> str:
        """Return ``Mark.member`` for a row whose ``column`` holds ``value``, as :meth:`members_at` reads it.
        Raises ``ValueError``."""
        return str(spelling_of(self.column).parse(value))

    def members_of(self, row: models.Model, using: str, limit: int | None = None) -> Iterator[Any]:
        """The primary keys of all members that lead to ``row`` by ``via``, or of ``limit`` of them."""
        with suppress(ValueError):
            yield from self.members_at([self.text_of(getattr(row, self.column.attname))], using, limit)

    def members_at(self, texts: Iterable[str], using: str, limit: int | None = None) -> Iterator[Any]:
        """The primary keys of all members whose ``via`` holds one of these values (as marks store them), or of
        ``limit`` of them, some perhaps repeated.

        The links are followed when the mark is worked off, not by the trigger that wrote it: a transaction
        that gives a row another value doesn't see a member that one beside it is just leading there.
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
    """The rows of ``model``, also those that its managers hide."""
    return models.QuerySet(model, using=using)


def watched_tables(index: RankIndex) -> list[WatchedTable]:
    """Every table behind the order of ``index``, its facets, and the filters of its queryset, its own first.

    Tables inside a subquery are not among them, unless it reads the member's own row by its primary key; nor is what a
    piece of raw SQL reads.
    """
    queries = chain.from_iterable(map(own_rows, _queries(index)))
    sources: dict[object, WatchedTable] = {}
    for source in chain.from_iterable(map(_sources, queries)):
        way = replace(source, fields=None)
        same = sources.get(way)
        if same is not None:
            both = None if None in (same.fields, source.fields) else same.fields | source.fields  # type: ignore[operator]
            source = replace(source, fields=both)
        sources[way] = source
    return list(sources.values())


def _sources(query: Query) -> Iterator[WatchedTable]:
    """The tables that ``query`` reads, that of its model first."""
    query.get_initial_alias()
    # Joins that a later filter made superfluous stay in the map, without a reference.
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
            # The key that leads to a table decides which of its rows is read.
            for near, far in _joined(table):
                fields[table.parent_alias].add(near)
                fields[alias].add(far)
            relation: Any = getattr(table.join_field, "field", table.join_field)
            kind = _kind_column(relation)
            if kind is not None:  # of rows that may lead to any model, the one to which they do decides, too
                holder = kind.model._meta.db_table
                for end in (alias, table.parent_alias):
                    if tables[end].table_name == holder:
                        fields[end].add(kind)
            elif type(relation).get_extra_restriction is not models.ForeignObject.get_extra_restriction:
                opaque = True
    return (_source(query, alias, None if opaque else _stored(fields[alias])) for alias in tables)


def unseen_tables(index: RankIndex) -> set[str]:
    """Tables of which the index reads rows that lead to no member: their changes leave no mark."""
    return tables_of_others(_queries(index))


def _queries(index: RankIndex) -> list[Query]:
    """Return the queries that read members."""
    queries = [index.get_ranked().values_list("pk", *index.ordering.paths).query]
    if index.faceting:
        queries.append(every_row(index.model).values_list("pk", *index.faceting.paths).query)
    return queries


def _source(query: Query, alias: str, fields: frozenset[models.Field[Any, Any]] | None) -> WatchedTable:
    relations, links = _way_to(query, alias)
    model = _model_of(query, alias)
    pk: models.Field[Any, Any] = query.model._meta.pk  # type: ignore[union-attr]
    column = links[-1].far if links else pk
    path = LOOKUP_SEP.join(relation.name for relation in relations)
    inherited = bool(relations) and all(
        getattr(relation.remote_field, "parent_link", False) for relation in relations
    )
    # A value is passed on as long as the column that leads to a row is the one by which its own was found.
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
    """The column that holds the content type of a generic relation; None for other relations."""
    name = getattr(relation, "content_type_field_name", None)
    return None if name is None else relation.related_model._meta.get_field(name)


def _stored(fields: Iterable[models.Field[Any, Any]]) -> frozenset[models.Field[Any, Any]] | None:
    """``fields`` with those in place of a generated one that it is made of: they are what is written."""
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
    """The model of the table that ``alias`` stands for."""
    table = query.alias_map[alias]
    if isinstance(table, BaseTable) and not isinstance(table, Join):
        model: Any = query.model
    else:
        field: Any = table.join_field  # a relation, or the other side of one
        model = field.related_model
        if table.table_name != model._meta.db_table:  # the table between the two of a many-to-many
            model = field.remote_field.through if hasattr(field.remote_field, "through") else field.model
    return model._meta.concrete_model  # type: ignore[no-any-return]


def _way_to(query: Query, alias: str) -> tuple[list[Any], list[Link]]:
    """The relations, and the joins, that lead from the query's model to the table that ``alias`` stands for."""
    relations: list[Any] = []
    links: list[Link] = []
    table: Any = query.alias_map[alias]
    while isinstance(table, Join):
        # Of a join on several columns one is enough to find the rows, and perhaps some more.
        near, far = _joined(table)[0]
        relations.insert(0, table.join_field)
        links.insert(0, Link(_model_of(query, table.parent_alias), near, far))
        table = query.alias_map[table.parent_alias]
    return relations, links


def _joined(table: Any) -> Sequence[tuple[models.Field[Any, Any], models.Field[Any, Any]]]:
    """The pairs of columns that a join compares, the nearer one first."""
    pairs: Sequence[tuple[models.Field[Any, Any], models.Field[Any, Any]]] = table.join_fields
    return pairs


def _parse(far: models.Field[Any, Any], near: models.Field[Any, Any], texts: Iterable[str]) -> Iterator[Any]:
    """Values of ``near`` out of the database's text of the values of ``far``. What is none can't lead anywhere."""
    read, parse = spelling_of(far).parse, spelling_of(near).parse
    for text in texts:
        with suppress(ValueError):
            # A generic relation's columns may be of two types: a UUID, and text.
            yield parse(str(read(text)))
