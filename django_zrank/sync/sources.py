"""Which tables and columns an index reads: a change of any other can't move a member."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models.constants import LOOKUP_SEP
from django.db.models.expressions import Col
from django.db.models.sql import Query
from django.db.models.sql.datastructures import BaseTable, Join

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["Source", "sources_of"]


@dataclass(frozen=True)
class Source:
    """One table that an index reads."""

    model: type[models.Model]
    """The model that the table belongs to."""

    path: str
    """The lookup path from the index's model to its rows; empty for the model's own table."""

    inherited: bool
    """Whether the path leads to a parent of the model, by multi-table inheritance."""

    fields: frozenset[models.Field[Any, Any]] | None
    """The columns read, or None where they can't be told: then every one counts."""

    def touched_by(self, update_fields: frozenset[str] | None) -> bool:
        """Whether a save of these fields (None: all of them) can move a member."""
        if update_fields is None or self.fields is None:
            return True
        return any(field.name in update_fields or field.attname in update_fields for field in self.fields)


def sources_of(index: RankIndex) -> list[Source]:
    """Every table behind the order of ``index`` and the filters of its queryset, its own first."""
    query = index.get_ranked().values_list("pk", *index.ordering.paths).query
    query.get_initial_alias()
    opaque = any(isinstance(node, Query) or hasattr(node, "query") for node in _nodes(query))
    fields: dict[str, set[models.Field[Any, Any]]] = {alias: set() for alias in query.alias_map}
    for node in _nodes(query):
        if isinstance(node, Col) and node.alias in fields:
            fields[node.alias].add(node.target)
    sources = []
    for alias, table in query.alias_map.items():
        if isinstance(table, Join):
            # The key that leads to a table decides which of its rows is read.
            for near, far in table.join_cols:
                _add(fields[table.parent_alias], _model_of(query, table.parent_alias), near)
                _add(fields[alias], _model_of(query, alias), far)
    for alias in query.alias_map:
        relations = _relations_to(query, alias)
        known = None if opaque and not relations else frozenset(fields[alias])
        sources.append(
            Source(
                model=_model_of(query, alias),
                path=LOOKUP_SEP.join(relation.name for relation in relations),
                inherited=all(getattr(relation.remote_field, "parent_link", False) for relation in relations) and bool(relations),
                fields=known,
            )
        )
    return sources


def _nodes(query: Query) -> Iterator[Any]:
    """Every expression in the filters and columns of ``query``. Subqueries are named, not entered."""
    pending: list[Any] = [query.where, *query.select, *query.annotations.values()]
    while pending:
        node = pending.pop()
        if node is None:
            continue
        yield node
        if not isinstance(node, Query) and hasattr(node, "get_source_expressions"):
            pending.extend(node.get_source_expressions())
        elif isinstance(node, (list, tuple)):
            pending.extend(node)


def _add(fields: set[models.Field[Any, Any]], model: type[models.Model], column: str) -> None:
    fields.update(field for field in model._meta.concrete_fields if field.column == column)


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


def _relations_to(query: Query, alias: str) -> list[Any]:
    """The relations that lead from the query's model to the table that ``alias`` stands for."""
    relations: list[Any] = []
    table = query.alias_map[alias]
    while isinstance(table, Join):
        relations.insert(0, table.join_field)
        table = query.alias_map[table.parent_alias]
    return relations
