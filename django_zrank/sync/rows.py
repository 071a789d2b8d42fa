"""Rows of the database, as what members are to be: for pushes, rebuilds and verifications alike."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, repeat
from operator import itemgetter
from threading import local
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import connections
from django.db.models import (
    BigIntegerField,
    DateTimeField,
    Exists,
    F,
    Func,
    Lookup,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
)
from django.db.models.expressions import OrderBy

from ..codec.fields import follow
from ..exceptions import Unrankable
from ..models import Generation
from ..recent import Recent
from ..store import Number, Store
from .watched_tables import every_row

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["Row", "encode", "fastest", "forget", "note_flush", "select", "select_among"]

logger = logging.getLogger("django_zrank.sync")

Row = tuple[Any, Number, bytes]
"""The primary key of a member, its score and its membership."""


class _Kept(local):
    """The querysets that ``select()`` has made: to make one takes longer than to read a row.

    Each thread has its own: a queryset that holds another one is changed, for a moment, by being compiled.
    """

    def __init__(self) -> None:
        self.rows: Recent[QuerySet[Any]] = Recent()


_kept = _Kept()

_NAMES: Final = 10_000
"""The number of combinations of facet values whose rankings' names are cached."""


class _Microseconds(Func):
    """A moment of PostgreSQL as its kind counts it: to make a ``datetime`` of each takes the driver 3 µs."""

    template = "(EXTRACT(EPOCH FROM %(expressions)s) * 1000000)::bigint"
    output_field = BigIntegerField()

    def get_db_converters(self, connection: Any) -> list[Any]:
        """Return no converters: Django's would call ``int()`` on an integer, for each row."""
        return []


class _AnyOf(Lookup):
    """``IN`` with all values in one parameter: to bind thousands of them takes longer than to find the rows."""

    lookup_name = "any_of"
    prepare_rhs = False

    def as_postgresql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        column, parameters = self.process_lhs(compiler, connection)
        return f"{column} = ANY(%s)", [*parameters, self.rhs]


def _among(index: RankIndex, pks: Sequence[Any]) -> Any:
    """The condition that a row is of one of these members."""
    if len(pks) == 1:
        return ("pk", pks[0])
    pk = index.model._meta.pk
    # An array of anything else would have to be told the type of the column, to compare as that does.
    connection = connections[index.get_using()]
    is_plain = index.has_integer_pk and pk.db_type(connection) in ("smallint", "integer", "bigint")
    if is_plain and connection.vendor == "postgresql":
        return _AnyOf(F("pk"), list(map(pk.get_prep_value, pks)))
    return ("pk__in", pks)


def select(index: RankIndex, *order_by: str | OrderBy) -> QuerySet[Any]:
    """The rows that are ranked, in this order, for ``encode()``: their primary keys, criteria and facet values.

    Where a facet may have several values, a member has a row for each combination of them, one after the other. They
    are joined to the model from outside: a queryset that asks for members *with a certain tag* must not hide their
    other tags.
    """
    if index.faceting.many:
        rows = every_row(index.model, index.get_using())
        # Not pk__in: SQLite would make a table of all that are ranked first, even for one member.
        ranked = rows.filter(Exists(index.get_ranked(Q(pk=OuterRef("pk"))).order_by()))
        order_by = (*order_by, "pk")
    else:
        ranked = index.get_ranked()
    if order_by or ranked.ordered:
        ranked = ranked.order_by(*order_by)
    columns = [fastest(index, path) for path in _columns(index)]
    if index.column is None:
        return ranked.values_list(*columns)
    # In one statement with the rows: it tells which of the flushes of each part these contain.
    noted = Generation.objects.using(index.get_using()).values("flushed")
    flushed = {
        f"zrank_flushed_{at}": Subquery(noted.filter(index=part.name)) for at, part in enumerate(index.parts)
    }
    noting: QuerySet[Any] = ranked.annotate(**flushed)
    return noting.values_list(*columns, *flushed)


def note_flush(
    index: RankIndex, stores: Sequence[Store], rows: Iterable[Sequence[Any]]
) -> Iterable[Sequence[Any]]:
    """Yield ``rows`` of ``select()``, and let the ``stores`` of all parts know the last flush that was noted when they
    were read."""
    return rows if index.column is None else _note_flush(stores, rows)


def _note_flush(stores: Sequence[Store], rows: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    for row in rows:
        for store, flushed in zip(stores, row[-len(stores) :], strict=True):
            store.flushed = flushed or 0
        yield row


def select_among(index: RankIndex, pks: Sequence[Any]) -> QuerySet[Any]:
    """Those rows of ``select()`` that are of some members."""
    key = index, index.get_using()
    rows = _kept.rows.get(key)
    if rows is None:
        rows = _kept.rows.keep(key, select(index))
    return rows.filter(_among(index, pks))


def forget(index: RankIndex) -> None:
    """Forget the queryset of ``index`` that this thread has kept."""
    _kept.rows.forget((index, index.get_using()))


def encode(index: RankIndex, rows: Iterable[Sequence[Any]]) -> Iterator[Row]:
    """Yield the key, score and membership of each of ``rows``. Those that can't be ranked are logged and left out."""
    order, facets, columns = index.ordering, index.faceting, _columns(index)
    score_of, criteria = order.encode, _pick(columns, order.paths)
    parse, may_lack_text = index.from_text, index.pk_type is None
    for row, names in _name(index, rows, columns) if facets else zip(rows, repeat(b""), strict=False):
        try:
            if may_lack_text:
                parse(row[0])
            score, tie = score_of(criteria(row))
        except (Unrankable, ValueError) as error:
            logger.error(
                "Index %r: %s %r has no rank: %s", index.name, index.model._meta.label, row[0], error
            )
        else:
            yield row[0], score, tie + names


def _columns(index: RankIndex) -> list[str]:
    """Return the columns to read of each row. A path that is both a criterion and a facet is read once."""
    return list(dict.fromkeys(["pk", *index.ordering.paths, *index.faceting.paths]))


def fastest(index: RankIndex, path: str) -> str | _Microseconds:
    """Return what is read fastest of a column: of a moment, perhaps its microseconds. A primary key is read as it is,
    since it names the member."""
    if path == "pk" or connections[index.get_using()].vendor != "postgresql" or not settings.USE_TZ:
        return path
    *_, field = follow(index.model, path)
    return _Microseconds(path) if type(field) is DateTimeField else path


def _pick(columns: Sequence[str], paths: Sequence[str]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function from a row to its values at ``paths``."""
    first = columns.index(paths[0]) if paths else 0
    end = first + len(paths)
    if list(paths) == list(columns[first:end]):  # nearly always, and fastest
        return itemgetter(slice(first, end))
    at = [columns.index(path) for path in paths]
    return lambda row: [row[position] for position in at]


def _name(
    index: RankIndex, rows: Iterable[Sequence[Any]], columns: Sequence[str]
) -> Iterator[tuple[Sequence[Any], bytes]]:
    """A row of each member, with the names of its facet rankings as a membership has them."""
    facets, paths = index.faceting, index.faceting.paths
    values = _pick(columns, paths)

    @lru_cache(_NAMES)
    def names(values: tuple[Any, ...]) -> bytes:
        each = values if facets.many else [(value,) for value in values]
        return "\0".join(facets.rankings(dict(zip(paths, each, strict=True)))).encode()

    if facets.many:
        for _, group in groupby(rows, itemgetter(0)):
            first, *others = group
            each = zip(values(first), *map(values, others), strict=True)
            yield first, names(tuple(map(frozenset, each)))
    else:
        for row in rows:
            yield row, names(tuple(values(row)))
