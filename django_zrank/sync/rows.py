"""Rows of the database, encoded as members: for pushes, rebuilds and verifications."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cache, cached_property, lru_cache
from itertools import groupby, repeat
from operator import itemgetter
from threading import local
from typing import Any, Final, NamedTuple

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import (
    Exists,
    F,
    Func,
    Lookup,
    OuterRef,
    Q,
    QuerySet,
    TextField,
    Value,
)
from django.db.models.expressions import OrderBy
from django.template.defaultfilters import pluralize
from django.utils import timezone

from ..capture.watched_tables import every_row
from ..codec.fields import is_annotation
from ..codec.kinds import kind_of
from ..codec.units import is_queryable
from ..conf import get_settings
from ..declaration import Index
from ..exceptions import Unrankable
from ..extension import declared
from ..recent import Recent
from ..store import BuiltRow, Store

logger = logging.getLogger("django_zrank.sync")


_NAMES: Final = 10_000
"""The number of combinations of facet values whose rankings' names are cached."""


class _Unreadable(NamedTuple):
    """A value that can't be converted. It has no rank; as that of a facet, it is text."""

    stored: Any

    def __str__(self) -> str:
        return str(self.stored)


class _Readable(Func):
    """A column whose values are converted here, so that only its row is left out if that fails. Django's converters, or
    a driver, SQLite's by the type of the column, would fail the whole statement."""

    template = "%(expressions)s"
    output_field = TextField()

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = f"+{self.extra.get('template', self.template)}"
        return self.as_sql(compiler, connection, template=template, **extra)

    def get_db_converters(self, connection: Any) -> list[Any]:
        (column,) = self.get_source_expressions()
        converters = [*connection.ops.get_db_converters(column), *column.get_db_converters(connection)]

        def convert(value: Any, _: Any, connection: Any) -> Any:
            converted = value
            try:
                for one in converters:
                    converted = one(converted, column, connection)
            except Exception:  # noqa: BLE001 - whatever a value raises
                return _Unreadable(value)
            return converted

        return [convert] if converters else []


class _AnyOf(Lookup):
    """``IN`` with all values in one parameter: binding thousands takes longer than finding the rows."""

    lookup_name = "any_of"
    prepare_rhs = False

    def as_postgresql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        column, parameters = self.process_lhs(compiler, connection)
        return f"{column} = ANY(%s)", [*parameters, self.rhs]


_KEY: Final = object()
"""The parameter of a compiled statement that the key replaces when it is run."""


def _unzoned() -> AbstractContextManager[None]:
    """Turn off the active time zone in this block: a request's would move the limits of __date and __year."""
    return timezone.override(None)


class _Selection:
    """The queryset of ``select()``, and its statement for one member: to make both takes longer than to read a row.
    ``columns``: those to read, by default the index's own."""

    def __init__(self, index: Index, columns: Sequence[str] = ()) -> None:
        self.index = index
        with _unzoned():
            self.rows = select(index, columns=columns)

    @cached_property
    def statement(self) -> tuple[Any, str, Sequence[Any]]:
        """The compiler, the text and the parameters. Raises ``EmptyResultSet``."""
        with _unzoned():
            compiler = self.rows.filter(pk=Value(_KEY)).query.get_compiler(self.index.get_using())
            return compiler, *compiler.as_sql()

    @cached_property
    def is_converted(self) -> bool:
        """True if values are not as the driver returns them. A field's own code may ask for the active time zone."""
        compiler, *_ = self.statement
        read = [column for column, *_ in compiler.select[: compiler.col_count]]
        return bool(compiler.get_converters(read)) or compiler.has_composite_fields(read)

    @property
    def source(self) -> Any:
        """The statement without its columns. Where it is the same for two querysets, they have the same rows. Raises
        ``EmptyResultSet``."""
        compiler, sql, parameters = self.statement
        table = compiler.connection.ops.quote_name(self.index.model._meta.db_table)
        # Columns may have a FROM, too: EXTRACT(EPOCH FROM "table"."column").
        *_, source = re.split(rf" FROM {re.escape(table)}(?!\.)", sql, maxsplit=1)
        return source, [(type(value), value) for value in parameters]

    def among(self, pks: Sequence[Any]) -> Iterable[Sequence[Any]]:
        """Return the rows that are of these members."""
        if len(pks) == 1:
            return self.read(pks[0])
        with _unzoned():
            return list(self.rows.filter(_among(self.index, pks)))

    def read(self, pk: Any) -> Iterable[Sequence[Any]]:
        """Return the rows of one member."""
        try:
            compiler, sql, parameters = self.statement
        except EmptyResultSet:
            return ()
        connection, field = compiler.connection, self.index.model._meta.pk
        # As a lookup does: a value that isn't prepared is refused where no new row could have it, such as 0 on MySQL.
        key = field.get_db_prep_value(field.get_prep_value(pk), connection, prepared=True)
        # Those that depend on the time can be called for their present value.
        given = [key if value is _KEY else value() if callable(value) else value for value in parameters]
        with connection.cursor() as cursor:
            cursor.execute(sql, given)
            found: list[Any] = cursor.fetchall()
        if not self.is_converted:
            return found
        with _unzoned():
            return list(compiler.results_iter([found]))


class _Kept(Recent[Any], local):
    """Each thread has its own: compiling a queryset with a subquery changes it for a moment."""


_kept = _Kept()
"""The selections of indexes; and of several indexes, those that are read together."""

_Shared = tuple[_Selection, Mapping[Index, Callable[[Sequence[Any]], Sequence[Any]]]]
"""A selection for several indexes, and functions from its rows to those of each of them."""


def key_parser(index: Index) -> Callable[[str | None], Any]:
    """Return a function to the primary key that a mark or a member names, None if no row can have it."""
    from_text, vendor = index.from_text, connections[index.get_using()].vendor

    def parse(text: str | None) -> Any:
        try:  # suppress() takes longer than the rest
            pk = from_text(text)
        except ValueError:
            return None
        return pk if is_queryable(pk, vendor) else None

    return parse


def _among(index: Index, pks: Sequence[Any]) -> Any:
    """Return the condition that selects the rows of these members."""
    pk = index.model._meta.pk
    # An array of another type would need a cast to the type of the column.
    connection = connections[index.get_using()]
    is_plain = index.has_integer_pk and pk.db_type(connection) in ("smallint", "integer", "bigint")
    if is_plain and connection.vendor == "postgresql":
        return _AnyOf(F("pk"), list(map(pk.get_prep_value, pks)))
    return ("pk__in", pks)


def select(index: Index, *order_by: str | OrderBy, columns: Sequence[str] = ()) -> QuerySet[Any]:
    """Return the ranked rows for ``encode()``, in this order: their primary keys, criteria and facet values; or these
    ``columns``.

    With a facet of several values, a member has consecutive rows, one for each combination. Values are joined outside
    of the declared queryset: one that selects members *with a certain tag* must not hide their other tags.
    """
    if index.faceting.many:
        rows = every_row(index.model, index.get_using())
        # Not pk__in: SQLite would first list all ranked rows, even for one member.
        ranked = index.annotate(rows.filter(Exists(index.get_ranked(Q(pk=OuterRef("pk"))).order_by())))
        order_by = (*order_by, "pk")
    else:
        ranked = index.get_ranked()
    if order_by or ranked.ordered:
        ranked = ranked.order_by(*order_by)
    read = [fastest(index, path) for path in columns or _columns(index)]
    further = {
        f"zrank_{name}_{at}": declared(index)[name].column(holder)
        for name in _reading(index)
        for at, holder in enumerate(index.holders)
    }
    if not further:
        return ranked.values_list(*read)
    noting: QuerySet[Any] = ranked.annotate(**further)
    return noting.values_list(*read, *further)


def _selection(index: Index) -> _Selection:
    key = index, index.get_using()
    found: _Selection = _kept.get(key) or _kept.keep(key, _Selection(index))
    return found


def select_among(index: Index, pks: Sequence[Any]) -> Iterable[Sequence[Any]]:
    """Return the rows of ``select()`` that are of these members."""
    return _selection(index).among(pks)


def select_together(members: Mapping[Index, Sequence[Any]]) -> dict[Index, Iterable[Sequence[Any]]]:
    """Return the rows of ``select_among()`` of several indexes, those that can be read by one statement: indexes with
    the same members to read, and with statements that differ in nothing but their columns. Indexes that share no
    statement with another are left out."""
    alike: dict[Any, list[Index]] = {}
    for index, pks in members.items():
        if _is_shareable(index):
            alike.setdefault((index.model, index.get_using(), frozenset(pks)), []).append(index)
    found: dict[Index, Iterable[Sequence[Any]]] = {}
    for indexes in alike.values():
        for selection, pick in _shared(indexes):
            rows = list(selection.among(members[indexes[0]]))
            found |= {index: map(own, rows) for index, own in pick.items()}
    return found


@cache
def _is_shareable(index: Index) -> bool:
    """Return True if what is read of a row depends on nothing but the names of the columns."""
    return not (
        index.faceting.many
        or declared(index)
        or any(is_annotation(index.follow(path)[-1]) for path in _columns(index))
    )


def _shared(indexes: Sequence[Index]) -> list[_Shared]:
    """Return selections for those of these indexes of a model and a database that can be read together."""
    if len(indexes) == 1:
        return []
    key = (*indexes, indexes[0].get_using())
    kept: list[_Shared] | None = _kept.get(key)
    if kept is None:
        kept = _kept.keep(key, list(_share(indexes)))
    return kept


def _share(indexes: Sequence[Index]) -> Iterator[_Shared]:
    alike: list[tuple[Any, list[Index]]] = []
    for index in indexes:
        with suppress(EmptyResultSet):
            source = _selection(index).source
            own = next((own for other, own in alike if other == source), None)
            if own is None:
                alike.append((source, [index]))
            else:
                own.append(index)
    for _, own in alike:
        if len(own) > 1:
            columns = list(dict.fromkeys(path for index in own for path in _columns(index)))
            yield _Selection(own[0], columns), {index: _pick(columns, _columns(index)) for index in own}


def forget() -> None:
    """Forget the querysets that this thread has kept."""
    _kept.clear()


def encode(index: Index, rows: Iterable[Sequence[Any]], stores: Sequence[Store] = ()) -> Iterator[BuiltRow]:
    """Yield the member, score and membership of each of ``rows``, which are of ``select()``, and note in ``stores``,
    those of all holders, what extensions read with them. Rows that can't be read or ranked are logged and skipped."""
    if stores and (read := _reading(index)):
        rows = _noting(rows, [(store.noted, name) for name in read for store in stores])
    order, facets, columns = index.ordering, index.faceting, _columns(index)
    score_of, criteria = order.encode, _pick(columns, order.paths)
    parse, key_type, has_facets = index.from_text, index.pk_type, bool(facets)
    name = _namer(index) if has_facets else None
    attached = _pick(columns, paths) if (paths := index.attached) else None
    for row, values in (
        _with_facets(index, rows, columns) if has_facets else zip(rows, repeat(()), strict=False)
    ):
        try:
            key = row[0]
            if type(key) is not key_type:
                if key_type:  # SQLite's columns hold values of any type
                    raise Unrankable(f"its key is no {key_type.__name__}")
                key = parse(key)
            score, tie = score_of(criteria(row))
            names = name(values) if name else b""
            if attached:
                names = index.attach(attached(row)) + (b"\0" + names if names else b"")
        except Exception as error:  # noqa: BLE001 - whatever a value raises, the other rows are ranked
            logger.error(
                "Index %r: %s %r has no rank: %s", index.name, index.model._meta.label, row[0], error
            )
        else:
            yield str(key), score, tie + names


@cache
def _reading(index: Index) -> list[str]:
    """Return the names of the extensions that read a column."""
    return [name for name, one in declared(index).items() if one.column(index) is not None]


def _noting(
    rows: Iterable[Sequence[Any]], columns: Sequence[tuple[dict[str, Any], str]]
) -> Iterator[Sequence[Any]]:
    """Yield rows, and note their last values in these ``columns``: each a dictionary and a name in it."""
    places = [(noted, name, at - len(columns)) for at, (noted, name) in enumerate(columns)]
    for row in rows:
        for noted, name, at in places:
            noted[name] = row[at]
        yield row


def _columns(index: Index) -> list[str]:
    """Return the columns to read, each once."""
    paths = *index.ordering.paths, *index.faceting.paths, *index.attached
    return list(dict.fromkeys(["pk", *paths]))


def fastest(index: Index, path: str) -> str | Func:
    """Return the expression by which a column is read. A primary key is read as it is, because it names the member."""
    vendor = connections[index.get_using()].vendor
    *_, field = index.follow(path)
    kind = kind_of(field)
    if path != "pk" and (template := kind.reading(vendor)):
        return _Readable(path, template=template)
    is_converted = (kind.converts and vendor == "sqlite") or hasattr(kind.field, "from_db_value")
    return _Readable(path) if is_converted else path


def _pick(columns: Sequence[str], paths: Sequence[str]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function from a row to its values at ``paths``."""
    at = [columns.index(path) for path in paths]
    if at == list(range(at[0], at[0] + len(at))):  # nearly always, and fastest
        return itemgetter(slice(at[0], at[0] + len(at)))
    return itemgetter(*at)


def _namer(index: Index) -> Callable[[tuple[Any, ...]], bytes]:
    """Return a function from facet values to the names of the rankings, as in a membership. It raises ``Unrankable`` if
    there are more than ``ZRANK["MAX_VALUES"]``."""
    facets, paths, limit = index.faceting, index.faceting.paths, get_settings().max_values

    @lru_cache(_NAMES)
    def names(values: tuple[Any, ...]) -> bytes:
        each = values if facets.many else [(value,) for value in values]
        found = dict(zip(paths, each, strict=True))
        if facets.many and facets.count(found) > limit:
            raise Unrankable(
                f'the values of its facets make more than {limit:,} ranking{pluralize(limit)} (ZRANK["MAX_VALUES"])'
            )
        return "\0".join(facets.rankings(found)).encode()

    return names


def _with_facets(
    index: Index, rows: Iterable[Sequence[Any]], columns: Sequence[str]
) -> Iterator[tuple[Sequence[Any], tuple[Any, ...]]]:
    """Yield a row of each member, with its facet values."""
    values = _pick(columns, index.faceting.paths)
    if index.faceting.many:
        for _, group in groupby(rows, itemgetter(0)):
            first, *others = group
            each = zip(values(first), *map(values, others), strict=True)
            yield first, tuple(map(frozenset, each))
    else:
        for row in rows:
            yield row, tuple(values(row))
