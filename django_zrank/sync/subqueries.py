"""Subqueries of a queryset: those that read the row itself, and those that read other rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models.expressions import Col
from django.db.models.lookups import Exact, In
from django.db.models.sql import Query
from django.db.models.sql.datastructures import Join
from django.db.models.sql.where import AND

__all__ = ["nodes", "own_rows", "tables_of_others", "walk"]


def nodes(query: Query) -> Iterator[Any]:
    """Yield every expression in the filters and columns of ``query``, without entering subqueries."""
    pending: list[Any] = [query.where, *query.select, *query.annotation_select.values()]
    joins: list[Any] = [table for table in query.alias_map.values() if isinstance(table, Join)]
    pending.extend(join.filtered_relation.resolved_condition for join in joins if join.filtered_relation)
    yield from walk(pending)


def walk(pending: list[Any]) -> Iterator[Any]:
    """Yield every expression in ``pending``, each before its parts."""
    while pending:
        node = pending.pop()
        if node is None:
            continue
        yield node
        if not isinstance(node, Query) and hasattr(node, "get_source_expressions"):
            pending.extend(node.get_source_expressions())
        elif isinstance(node, (list, tuple)):
            pending.extend(node)


def own_rows(query: Query) -> Iterator[Query]:
    """Yield ``query``, and its subqueries that find its own rows by their primary key: they are watched like joins."""
    pending = [query]
    while pending:
        query = pending.pop()
        yield query
        pending.extend(_split(query)[0])


def tables_of_others(queries: Iterable[Query]) -> set[str]:
    """Return the tables that ``queries`` read without a join to their own rows."""
    tables: set[str] = set()
    pending: list[Query] = []
    for query in queries:
        for own in own_rows(query):
            tables.update(own.extra_tables)
            pending.extend(_split(own)[1])
    while pending:
        query = pending.pop()
        query.get_initial_alias()
        used = query.alias_refcount
        tables.update(table.table_name for alias, table in query.alias_map.items() if used.get(alias))
        tables.update(query.extra_tables)
        pending.extend(found for found in map(_query_of, nodes(query)) if found is not None)
        pending.extend(query.combined_queries)
    return tables


def _split(query: Query) -> tuple[list[Query], list[Query]]:
    """Return the subqueries of ``query`` that read its own rows, and the others."""
    own: list[Query] = []
    others: list[Query] = []
    for node in nodes(query):
        if isinstance(node, In) and isinstance(node.rhs, Query):
            if _is_pk(node.lhs, query) and _selects_pk(node.rhs, query):
                own.append(node.rhs)
        else:
            found = _query_of(node)
            if found is not None and not any(found is one for one in own):
                (own if _is_correlated(found, query) else others).append(found)
    return own, others


def _query_of(node: Any) -> Query | None:
    found = node if isinstance(node, Query) else getattr(node, "query", None)
    return found if isinstance(found, Query) else None


def _is_pk(node: Any, query: Query) -> bool:
    """Return True if an expression is the primary key of ``query``'s model."""
    return isinstance(node, Col) and node.target.primary_key and node.alias == query.get_initial_alias()


def _reads_same_model(inner: Query, outer: Query) -> bool:
    one, other = inner.model, outer.model
    same = one is not None and other is not None and one._meta.concrete_model is other._meta.concrete_model
    return same and not (inner.combinator or inner.extra or inner.where.contains_over_clause)


def _selects_pk(inner: Query, outer: Query) -> bool:
    """Return True for the subquery in ``pk__in=Model.objects.filter(…)``, of the same model."""
    plain = not (inner.is_sliced or inner.distinct_fields or inner.annotation_select)
    pks = [_is_pk(one, inner) for one in inner.select]
    return _reads_same_model(inner, outer) and plain and pks == [True]


def _is_correlated(inner: Query, outer: Query) -> bool:
    """Return True for ``filter(pk=OuterRef("pk"))`` of the same model."""
    return (
        _reads_same_model(inner, outer)
        and inner.where.connector == AND
        and not inner.where.negated
        and any(
            isinstance(one, Exact) and _is_pk(one.lhs, inner) and _is_pk(one.rhs, outer)
            for one in inner.where.children
        )
    )
