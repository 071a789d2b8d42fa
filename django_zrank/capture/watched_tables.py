"""The tables and columns that an index reads. No other change can move a member."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from django.db import connections, models
from django.db.models.constants import LOOKUP_SEP
from django.db.models.expressions import Col, CombinedExpression, F, RawSQL, Value
from django.db.models.functions import Pi
from django.db.models.lookups import Exact, In
from django.db.models.sql import Query
from django.db.models.sql.datastructures import Join
from django.db.models.sql.where import AND, ExtraWhere

from ..codec.kinds import key_kind, kind_of
from ..declaration import Index

Node = TypeVar("Node")

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

    index: str = field(compare=False)  # what is declared as a name may have no hash
    model: type[models.Model]

    path: str
    """The lookup path from the index's model to the table's rows; empty for the model's own table."""

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
    def table(self) -> str:
        return self.model._meta.db_table

    @property
    def columns(self) -> list[models.Field[Any, Any]]:
        """Every column that its triggers name."""
        named = {self.column, *self.model._meta.pk_fields, *(self.fields or ())}
        return sorted(named, key=lambda field: field.column)

    @property
    def is_referenced(self) -> bool:
        """True if the last link to it is a foreign key that the database checks: no member leads to a new row, unless
        it was written in the same transaction, which left a mark of its own."""
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
        return str(key_kind(self.column).parse(value))

    def value_of(self, row: models.Model, using: str) -> Any:
        """Return the value of ``column`` in a saved row; None if it is null, or if the row is gone. For an expression,
        ``F("number") + 1``, or a deferred field, it is read from the database."""
        name = self.column.attname
        if self.column.primary_key:
            # A child that comes from a fixture has only its own key, which its parents share.
            return getattr(row, name) or row.pk
        value = vars(row).get(name, F(name))  # F if it is deferred
        if hasattr(value, "resolve_expression"):
            value = every_row(type(row), using).filter(pk=row.pk).values_list(name, flat=True).first()
        return value

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


def watched_tables(index: Index) -> list[WatchedTable]:
    """Return the tables that the order, facets and queryset of ``index`` read, its own first.

    Tables in subqueries are included only if the subquery finds the member's own row by its primary key. Tables in raw
    SQL are not.
    """
    sources = chain.from_iterable(_sources(index.name, query) for query in _queries(index)[0])
    return merged(sources, lambda source: replace(source, fields=None))


def merged(sources: Iterable[WatchedTable], key: Callable[[WatchedTable], object]) -> list[WatchedTable]:
    """Return one source for each ``key``, with the columns of all that have it."""
    found: dict[object, WatchedTable] = {}
    for source in sources:
        same = found.get(key(source), source)
        found[key(source)] = replace(source, fields=_union(same.fields, source.fields))
    return list(found.values())


def _union(fields: Fields, others: Fields) -> Fields:
    return None if fields is None or others is None else fields | others


def unseen_tables(index: Index) -> set[str]:
    """Return the tables that the index reads without a join to a member: their changes leave no mark."""
    own, others = _queries(index)
    tables = set(chain.from_iterable(query.extra_tables for query in own))
    for query in _nested(others):
        query.get_initial_alias()
        used = query.alias_refcount
        tables.update(table.table_name for alias, table in query.alias_map.items() if used.get(alias))
        tables.update(query.extra_tables)
    return tables


def expressions(index: Index, kind: type[Node]) -> tuple[list[tuple[Query, Node]], list[Node]]:
    """Return the expressions of a class in the queries that read members, each with its query; and those in the
    subqueries of :func:`unseen_tables`."""
    own, others = _queries(index)
    found = [(query, node) for query in own for node in _nodes(query) if isinstance(node, kind)]
    return found, [node for query in _nested(others) for node in _nodes(query) if isinstance(node, kind)]


def path_to(query: Query, column: Col) -> str:
    """Return the lookup path from a member to a column of ``query``."""
    _, relations, _ = _way_to(query, column.alias)
    return LOOKUP_SEP.join([*(relation.name for relation in relations), column.target.name])


def _nested(queries: list[Query]) -> Iterator[Query]:
    """Yield queries, and the subqueries in them."""
    for query in queries:
        yield query
        queries += [found for found in map(_query_of, _nodes(query)) if found is not None]
        queries += query.combined_queries


def depends_on_time(index: Index) -> bool:
    """Return True if a member may move although no watched table changes, because its row is compared with the time:
    with a function that has no arguments. (If it is compared with other rows, each save of it leaves a mark.)"""
    return any(map(_is_volatile, chain.from_iterable(map(_nodes, _queries(index)[0]))))


def volatile_functions(index: Index) -> set[str]:
    """Return the functions without arguments by which ``get_queryset()`` filters, such as ``Now``: their values change
    while no row does."""
    query = index.get_queryset().query
    nodes = _walk([query.where, *_conditions(query)])
    return {type(node).__name__ for node in nodes if _is_volatile(node)}


def has_raw_sql(index: Index) -> bool:
    """Return True if ``get_queryset()`` contains raw SQL, which may read anything."""
    nodes = chain.from_iterable(map(_nodes, chain.from_iterable(_queries(index))))
    return any(isinstance(node, (RawSQL, ExtraWhere)) for node in nodes)


def annotation_problem(index: Index, path: str) -> str:
    """Return why changes of an annotation can't be noticed, or why it is no single value; an empty text if neither."""
    query = index.get_queryset().query
    expression = query.annotations[path]
    if expression.contains_over_clause:
        return "is a window function: a change of one row could move others, unnoticed"
    nodes = list(_walk([expression, *_conditions(query)]))
    vendor = connections[index.get_using()].vendor
    for node in nodes:
        if isinstance(node, (RawSQL, ExtraWhere)):
            return "contains raw SQL, which may read anything"
        if vendor == "mysql" and isinstance(node, models.Avg) and _is_average_of_integers(node):
            return "is an average of integers, whose digits this database varies: average floats, F(…) * 1.0"
        if (inner := _query_of(node)) is not None:
            nodes += _nodes(inner)
        if _is_volatile(node):
            return f"depends on {type(node).__name__}(), which changes while no row does"
    if any(
        isinstance(node, Col) and _is_repeated(query, node.alias) for node in _outside_aggregates(expression)
    ):
        return "may have several values for one row"
    return ""


def _is_average_of_integers(average: models.Avg) -> bool:
    given = average.get_source_expressions()[0].output_field
    return not kind_of(average.output_field).step and kind_of(given).step > 0  # 0 for floats


def _outside_aggregates(expression: Any) -> Iterator[Any]:
    if not isinstance(expression, models.Aggregate):
        yield expression
        for part in expression.get_source_expressions():
            yield from _outside_aggregates(part) if hasattr(part, "get_source_expressions") else ()


def _is_repeated(query: Query, alias: str) -> bool:
    """Return True if several rows of a table may belong to one member."""
    join: Any = query.alias_map.get(alias)
    if not isinstance(join, Join):
        return False
    field: Any = join.join_field
    return bool(field.one_to_many or field.many_to_many) or _is_repeated(query, join.parent_alias)


def _queries(index: Index) -> tuple[list[Query], list[Query]]:
    """Return the queries that read members, with their subqueries that find the member's own row by its primary key:
    these are watched like joins. And return their other subqueries."""
    paths = dict.fromkeys((*index.ordering.paths, *index.annotated, *index.attached))
    own, others = [index.get_ranked().values_list("pk", *paths).query], list[Query]()
    if joined := [path for path in index.faceting.paths if path not in index.annotated]:
        own.append(every_row(index.model).values_list("pk", *joined).query)
    for query in own:
        for node in _nodes(query):
            if isinstance(node, In) and isinstance(node.rhs, Query):
                if _is_pk(node.lhs, query) and _selects_pk(node.rhs, query):
                    own.append(node.rhs)
            elif (found := _query_of(node)) is not None and not any(found is one for one in own):
                (own if _is_correlated(found, query) else others).append(found)
    return own, others


def _nodes(query: Query) -> Iterator[Any]:
    """Yield every expression in the filters and columns of ``query``, without entering subqueries."""
    return _walk([query.where, *query.select, *query.annotation_select.values(), *_conditions(query)])


def _conditions(query: Query) -> list[Any]:
    """Return the conditions of the joins of ``query``: those of its filtered relations."""
    joins: list[Any] = [table for table in query.alias_map.values() if isinstance(table, Join)]
    return [join.filtered_relation.resolved_condition for join in joins if join.filtered_relation]


def _is_volatile(node: Any) -> bool:
    """Return True for a function without arguments, such as ``Now()``: its value changes while no row does."""
    return isinstance(node, models.Func) and not node.get_source_expressions() and not isinstance(node, Pi)


def _walk(pending: list[Any]) -> Iterator[Any]:
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


def _sources(index: str, query: Query) -> Iterator[WatchedTable]:
    """Yield the tables that ``query`` reads, its model's first."""
    query.get_initial_alias()
    # The map keeps joins that a later filter made unnecessary, without a reference.
    used = query.alias_refcount
    tables: dict[str, Any] = {alias: table for alias, table in query.alias_map.items() if used.get(alias)}
    fields: dict[str, set[models.Field[Any, Any]]] = {alias: set() for alias in tables}
    expressions = list(_nodes(query))
    for node in expressions:
        if isinstance(node, Col) and node.alias in fields:
            fields[node.alias].add(node.target)
    opaque = bool(query.extra or _added(type(query))) or any(map(_is_opaque, expressions))
    for alias, table in tables.items():
        if not isinstance(table, Join):
            continue
        # The columns that are joined on decide which row is read.
        for near, far in table.join_fields:  # type: ignore[attr-defined]
            fields[table.parent_alias].add(near)
            fields[alias].add(far)
        relation: Any = getattr(table.join_field, "field", table.join_field)
        if name := getattr(relation, "content_type_field_name", None):
            # A generic relation depends on the content type, too.
            kind = relation.related_model._meta.get_field(name)
            for end in (alias, table.parent_alias):
                if tables[end].table_name == kind.model._meta.db_table:
                    fields[end].add(kind)
        elif type(relation).get_extra_restriction is not models.ForeignObject.get_extra_restriction:
            opaque = True
    for alias in tables:
        yield _source(index, query, alias, None if opaque else _stored(fields[alias]))


def _source(index: str, query: Query, alias: str, fields: Fields) -> WatchedTable:
    model, relations, links = _way_to(query, alias)
    names: list[str] = [relation.name for relation in relations]
    pk: models.Field[Any, Any] = query.model._meta.pk  # type: ignore[union-attr]
    column = links[-1].far if links else pk
    # Joins on the same column pass on the same value: skip them.
    while links and links[-1].near == (links[-2].far if len(links) > 1 else pk):
        links.pop()
    via = LOOKUP_SEP.join([*names[: len(links) - 1], links[-1].near.attname]) if links else None
    return WatchedTable(index, model, LOOKUP_SEP.join(names), fields, column, via, tuple(links))


def _way_to(query: Query, alias: str) -> tuple[type[models.Model], list[Any], list[Link]]:
    """Return the model of a table, and the relations and the joins that lead to it from the query's model."""
    join: Any = query.alias_map[alias]
    if not isinstance(join, Join):
        return query.model._meta.concrete_model, [], []  # type: ignore[union-attr,return-value]
    before, relations, links = _way_to(query, join.parent_alias)
    field: Any = join.join_field  # a relation, or the other side of one
    model = field.related_model
    if join.table_name != model._meta.db_table:  # the through table of a many-to-many
        model = field.remote_field.through if hasattr(field.remote_field, "through") else field.model
    # One column of a composite join finds the rows, and perhaps some more, which do no harm.
    near, far = join.join_fields[0]  # type: ignore[attr-defined]
    return model._meta.concrete_model, [*relations, field], [*links, Link(before, near, far)]


_TRUSTED: Final = ("builtins", "django", "django_zrank", "typing")
"""Packages whose classes put columns into SQL only by their expressions."""

_HARMLESS: Final = {"arity", "bilateral", "deconstruct", "function", "lookup_name", "name", "output_field"}
"""Attributes of expressions that put nothing into SQL; the name of a function is looked at."""

_OF_FIELDS: Final = frozenset(["select_format", "get_placeholder", "get_placeholder_sql"])
"""Methods by which a field puts more into SQL than its column."""


def _is_opaque(node: Any) -> bool:
    """Return True if an expression may read columns that it doesn't name, because a part of its SQL is not Django's:
    raw SQL, a template, another text that is put into one, or a method of the project that writes SQL."""
    if isinstance(node, (Query, RawSQL, ExtraWhere)) or hasattr(node, "query"):
        return True
    if not hasattr(node, "as_sql"):  # a list of expressions
        return False
    extra = dict(getattr(node, "extra", ()))
    names = extra.pop("function", ""), getattr(node, "function", "")
    own = {name for name in vars(node) if name in ("template", "arg_joiner") or name.startswith("as_")}
    value: Any = node if isinstance(node, (Col, Value)) else None
    return (
        bool(extra or own)
        or not all(re.fullmatch(r"[\w.]*", name or "") for name in names)
        or (isinstance(node, CombinedExpression) and not re.fullmatch(r"[-+*/^%&|<>#]*", node.connector))
        or bool(_added(type(node)) - _HARMLESS)
        or (value is not None and bool(_added(type(value._output_field_or_none)) & _OF_FIELDS))
    )


def _added(kind: type) -> set[str]:
    """Return the attributes that a class has from another package than Django, except special methods."""
    added = chain.from_iterable(
        vars(one) for one in kind.__mro__ if one.__module__.partition(".")[0] not in _TRUSTED
    )
    return {name for name in added if not name.startswith("__")}


def _stored(fields: Iterable[models.Field[Any, Any]]) -> Fields:
    """Return ``fields`` with each generated column replaced by the columns that it is computed from."""
    stored: set[models.Field[Any, Any]] = set()
    for one in fields:
        if isinstance(one, models.GeneratedField):
            expression = one.expression.resolve_expression(  # type: ignore[attr-defined]
                Query(one.model, alias_cols=False)
            )
            parts = list(_walk([expression]))
            if any(map(_is_opaque, parts)):
                return None
            stored.update(node.target for node in parts if isinstance(node, Col))
        else:
            stored.add(one)
    return frozenset(stored)


def _parse(far: models.Field[Any, Any], near: models.Field[Any, Any], texts: Iterable[str]) -> Iterator[Any]:
    """Convert the database's texts of values of ``far`` to values of ``near``. Invalid ones are skipped."""
    read, parse = key_kind(far).parse, key_kind(near).parse
    for text in texts:
        with suppress(ValueError):
            # The columns of a generic relation may have two types, such as UUID and text.
            yield parse(str(read(text)))
