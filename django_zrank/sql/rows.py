"""The ranked rows of the database, each once, in the order of Redis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from django.db import connections, models
from django.db.models import F, Func, Q, Value, Window
from django.db.models.expressions import OrderBy
from django.db.models.functions import Collate, RowNumber

from ..codec.filters import Condition
from ..codec.layout import StoredMember
from ..codec.units import Number, is_queryable
from ..declaration import Index
from ..iteration import batched
from ..queries.pages import Bound
from ..queries.view import View
from ..sync.rows import fastest

__all__ = ["CHUNK", "Row", "Rows"]

CHUNK: Final = 500
"""Values that one query looks up: SQLite may not take more than 999 parameters, Oracle 1,000 in a list."""

_NOBODY: Final = Q(pk__in=[])


class Row(NamedTuple):
    """A ranked row, as the database and Redis compare it."""

    pk: Any
    values: tuple[Any, ...]
    """The values of all criteria, as Redis stores them."""

    score: float
    tie: bytes
    member: bytes
    text: Any = None
    """The primary key as the database compares it."""

    attachment: bytes = b""

    @property
    def stored(self) -> bytes:
        stored = StoredMember(self.tie + self.member)
        stored.attachment = self.attachment
        return stored


class Rows:
    """The ranked rows of an index, and those that pass some conditions.

    They are read from the primary database, which Redis mirrors: a replica may lag behind, and lack a new member.
    """

    def __init__(self, index: Index, conditions: Iterable[Condition] = ()) -> None:
        self.index = index
        self.conditions = tuple(conditions)
        self.connection = connections[index.get_using()]
        self.order = index.ordering
        self.kind = index.ordering.first.kind

    @cached_property
    def ranked(self) -> models.QuerySet[Any]:
        """The rows that can be ranked, each once."""
        ranked: models.QuerySet[Any] = self._once(self.index.get_ranked().order_by())
        ranked = ranked.alias(zrank_text=_text(self.connection.vendor, F("pk")))
        for at, criterion in enumerate(self.order.criteria):
            name, column, kind = f"zrank_{at}", F(criterion.path), criterion.kind
            may_be_null = criterion.nullable and at > 0
            held = kind.held.get(self.connection.vendor)
            if held and not may_be_null:  # a database index may serve the column itself
                ranked = ranked.filter(Func(column, template=held, output_field=models.BooleanField()))
                ranked = ranked.alias(**{name: column})
            else:
                ranked = ranked.alias(**{name: kind.comparable(criterion.path, self.connection)})
            if limits := kind.limits(as_score=at == 0):
                lowest, highest = map(kind.at, limits)
                within = Q(**{f"{name}__gte": lowest, f"{name}__lte": highest})
                ranked = ranked.filter(within | Q(**{f"{name}__isnull": True}) if may_be_null else within)
        return ranked

    @cached_property
    def passing(self) -> models.QuerySet[Any]:
        """The ranked rows that pass the conditions."""
        rows = self.ranked
        for condition in self.conditions:
            query = Q()
            for path, values in condition.values.items():
                kind = self.index.faceting.reading(path).kind(path)
                exact: list[Any] = [
                    value
                    for value in values
                    if value is not None and is_queryable(value, self.connection.vendor)
                ]
                column = path
                if collation := kind.collation(self.connection):
                    column, exact = self.column(path), [Collate(Value(value), collation) for value in exact]
                null = kind.is_null(path, self.connection) if None in values else Q()
                query &= Q(**{f"{column}__in": exact}) | null
            rows = rows.filter(~query if condition.negated else query)
        return rows if rows is self.ranked else self._once(rows, ranked=self.ranked)

    def _once(self, queryset: Any, ranked: models.QuerySet[Any] | None = None) -> models.QuerySet[Any]:
        """Return the rows of ``queryset``, each once: if they may be repeated, select them by key from ``ranked``."""
        if not _may_repeat_rows(queryset):
            return queryset  # type: ignore[no-any-return]
        if ranked is None:
            ranked = self.index.annotate(models.QuerySet[Any](self.index.model, using=self.index.get_using()))
        return ranked.filter(pk__in=queryset.values("pk"))

    @cached_property
    def columns(self) -> list[Any]:
        """The columns of all criteria, then those of attachments, as ``values_list()`` takes them."""
        kinds = [(one.path, one.kind) for one in self.order.criteria]
        vendor, at = self.connection.vendor, self.connection
        criteria = [kind.comparable(path, at) if kind.readable(vendor) else path for path, kind in kinds]
        return criteria + [fastest(self.index, path) for path in self.index.attached_paths()]

    @cached_property
    def ascending(self) -> list[OrderBy]:
        """The order of positions: the lowest score first."""
        criteria = self.order.ascending(F(f"zrank_{at}") for at in range(len(self.order.criteria)))
        return [*criteria, OrderBy(F("zrank_text"))]

    def best_first(self, reverse: bool) -> list[Any]:
        ascending: list[Any] = [criterion.copy() for criterion in self.ascending]
        return [criterion.reverse_ordering() for criterion in ascending] if reverse else ascending

    def row(self, pk: Any, values: Sequence[Any], text: Any = None) -> Row:
        count = len(self.order.criteria)
        score, tie = self.order.encode(values[:count])
        stored = self.order.decode(float(score), tie)
        member, attachment = self.index.to_text(pk).encode(), self.index.attach(values[count:])
        return Row(pk, stored, float(score), tie, member, text, attachment)

    def find(self, members: Iterable[str], rows: models.QuerySet[Any] | None = None) -> dict[str, Row]:
        """Find ``members`` among ``rows``, by default those that pass the conditions."""
        rows = (self.passing if rows is None else rows).annotate(zrank_text=F("zrank_text"))
        found: dict[str, Row] = {}
        for pks in self.chunks(members):
            for pk, text, *values in rows.filter(pk__in=pks).values_list("pk", "zrank_text", *self.columns):
                # A database may find "A" by "a". Redis doesn't, so the result has the row's own spelling.
                found[self.index.to_text(pk)] = self.row(pk, values, text)
        return found

    def at(self, score: float, stored: bytes) -> Row:
        """Return the row that has a sort key, or would have it."""
        tie, member = self.index.layout.split(stored)
        pk = self.index.from_bytes(member)
        text = _text(self.connection.vendor, Value(pk, output_field=self.index._key.field))
        return Row(pk, self.order.decode(score, tie), score, tie, member, text)

    def chunks(self, members: Iterable[str]) -> Iterator[list[Any]]:
        """Split primary keys into as many as a query may take."""
        pks = [pk for pk in map(self.index.parse_pk, members) if is_queryable(pk, self.connection.vendor)]
        most = self.connection.features.max_query_params
        return batched(pks, most // 2 if most else len(pks))

    def number(self, view: View, members: Iterable[str]) -> dict[bytes, tuple[int, int]]:
        """Sort all rows; for each of many members, count the rows before it, and its rank less 1."""
        order = self.best_first(view.reverse)
        position = Window(RowNumber(), order_by=order) - 1
        before = position
        if view.method != "ordinal":
            before = Window(view.ranks.function(), order_by=order[:-1]) - 1
        numbered = self.passing.annotate(zrank_at=position, zrank_before=before)
        numbers: dict[bytes, tuple[int, int]] = {}
        for pks in self.chunks(members):
            # The condition on the numbers, joined by OR, keeps databases from filtering by key before they number.
            found = numbered.filter(Q(pk__in=pks) | Q(zrank_at__lt=0))
            for pk, *counts in found.values_list("pk", "zrank_at", "zrank_before"):
                numbers[self.index.to_text(pk).encode()] = tuple(counts)
        return numbers

    def count_before(self, view: View, where: Q) -> int:
        """Count the rows ``where`` or, if ranks count distinct values, the combinations of their criteria's values."""
        ours = self.passing.filter(where)
        if view.ranks.is_distinct:
            names = [f"zrank_{at}" for at in range(len(self.order.criteria))]
            ours = ours.annotate(**{name: F(name) for name in names}).values(*names).distinct()
        return ours.count()

    # Conditions

    def apart(self, me: Row, *, higher: bool, by_text: bool = True) -> Q:
        """The rows at higher, or lower, positions than ``me``. ``by_text``: also those that differ only by key."""
        reverse, found, equal = self.order.first.descending, Q(), Q()
        for at, (criterion, value) in enumerate(zip(self.order.criteria, me.values, strict=True)):
            name = f"zrank_{at}"
            null = Q(**{f"{name}__isnull": True})
            nulls_beyond = criterion.nullable and higher != (criterion.nulls_first != reverse)
            if value is None:
                found |= equal & ~null if not nulls_beyond else _NOBODY
                equal &= null
            else:
                comparison = "gt" if higher == (criterion.descending == reverse) else "lt"
                beyond = Q(**{f"{name}__{comparison}": value})
                found |= equal & (beyond | null if nulls_beyond and at else beyond)
                equal &= Q(**{name: value})
        return found | equal & Q(**{f"zrank_text__{'gt' if higher else 'lt'}": me.text}) if by_text else found

    def than(self, key: Number, comparison: str) -> Q:
        """The rows whose first criterion compares ("lt", "lte", "gt" or "gte") to the value with this key."""
        low, high = self._edges
        if low <= key <= high:
            return Q(**{f"zrank_0__{comparison}": self.kind.at(key)})
        return ~_NOBODY if (key < low) == comparison.startswith("gt") else _NOBODY

    @cached_property
    def _edges(self) -> tuple[Number, Number]:
        """The lowest and the highest key that has a value."""
        return self.kind.limits(as_score=True) or (self.kind.lowest, self.kind.highest)

    def beyond(self, bound: Bound, comparison: str) -> Q:
        return _NOBODY if not bound.score else self.than(self.kind.key(bound.value), comparison)

    def column(self, path: str) -> str:
        """Return the path of the column at the end of relations: their own lookups compare with values only, not with
        expressions."""
        *_, field = self.index.follow(path)
        while field.is_relation:
            field = getattr(field, "target_field", None) or field.related_model._meta.pk
            path = f"{path}__{field.name}"
        return path


def _may_repeat_rows(queryset: models.QuerySet[Any]) -> bool:
    """Return True if a row may be repeated, or belong to a GROUP BY that a condition would change."""
    query = queryset.query
    fields = [getattr(join, "join_field", None) for join in query.alias_map.values()]
    many = any(field and (field.one_to_many or field.many_to_many) for field in fields)
    return many or query.distinct or query.group_by is not None


def _text(vendor: str, key: Any) -> Func:
    """A primary key as text that compares by its bytes, as members do in Redis."""
    field = models.BinaryField() if vendor == "mysql" else models.TextField()
    return Func(key, template=_TEXTS.get(vendor, _TEXT), output_field=field)


_TEXT: Final = "CAST(%(expressions)s AS VARCHAR(255))"
_TEXTS: Final = {
    "sqlite": "CAST(%(expressions)s AS TEXT) COLLATE BINARY",
    "postgresql": 'CAST(%(expressions)s AS TEXT) COLLATE "C"',
    # Binary collations ignore trailing spaces, and a UUID cast straight to binary is not text.
    "mysql": "CAST(CAST(%(expressions)s AS CHAR) AS BINARY)",
}
