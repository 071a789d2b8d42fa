"""Answers by SQL, where Redis can't be believed: the same contract, slower, and bounded in time.

The cost grows with the rows: one scan counts all of them, and those that are numbered are sorted, in the database.
They are read from the database that Redis mirrors, the writer: a replica may lag behind it, and would then not
know a member that has just been made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.db import OperationalError, connections, models
from django.db.models import Count, F, Func, Q, Value, Window
from django.db.models.expressions import OrderBy
from django.db.models.functions import Collate, DenseRank, Rank, Round, RowNumber

from .codec.fields import follow, value_field
from .codec.kinds import Fixed, Float, Kind
from .codec.order import Criterion
from .codec.times import Span
from .codec.units import EXACT, Number
from .conf import get_settings
from .deadline import reading
from .deck import Card, Dealer, Numbers, Side
from .exceptions import IndexUnavailable
from .filters import GROUP, Condition, as_query
from .store import Bound, Excluded, Page, Place, Sample

if TYPE_CHECKING:
    from .facets import Facet
    from .index import RankIndex

__all__ = ["DatabaseSource"]

_CHUNK: Final = 500
"""Values that one query looks up: SQLite may not take more than 999 parameters, Oracle 1,000 in a list."""

_FEW: Final = 3
"""Up to so many members, a scan that counts those before each costs less than sorting all to number them."""

_NOBODY: Final = Q(pk__in=[])


class _Row(NamedTuple):
    """A ranked row, as the database and as Redis compare it with others."""

    pk: Any
    values: tuple[Any, ...]
    """Of all criteria, as they are stored."""

    score: float
    tie: bytes
    member: bytes
    text: Any = None
    """The primary key as the database compares it."""

    @property
    def stored(self) -> bytes:
        return self.tie + self.member


class DatabaseSource:
    """The database in Redis's stead. One seed draws the same members from either, if they hold the same, and no more
    filters are given than one facet covers.

    ``conditions``: what the members must pass. Every method raises :exc:`~django_zrank.IndexUnavailable` where the
    answer takes longer than ``ZRANK["DATABASE_TIMEOUT"]``, the database can't be reached, or groups or the memory of
    whom somebody was shown are asked about, which are in Redis alone. An answer is computed from one state of the
    database; inside a caller's transaction, from what its isolation level shows.
    """

    def __init__(self, index: RankIndex, conditions: Iterable[Condition] = ()) -> None:
        self.index = index
        self.conditions = tuple(conditions)
        self.connection = connections[index.get_using()]
        self.order = index.ordering
        self.kind = index.ordering.first.kind
        if any(GROUP in condition.values for condition in self.conditions):
            raise IndexUnavailable(
                f"Index {index.name!r}: groups are in Redis alone, which can't be believed"
            )

    # Answers: see the methods of django_zrank.store.Store

    def sample_nearby(
        self,
        member: str,
        wanted: int,
        *,
        reverse: bool,
        bands: Sequence[tuple[Number, Number]],
        excluded: Excluded,
        numbers: Callable[[int], bytes],
        measure: str = "score",
        method: str = "ordinal",
        remember: int | None = None,
    ) -> Sample | None:
        """Four queries, up to seven where much is excluded; each further band that is tried costs as much without the
        first. One more unless the method is ordinal."""
        if remember is not None:
            raise IndexUnavailable(
                f"Index {self.index.name!r}: whom somebody was shown is in Redis alone, which can't be believed"
            )
        barred = {str(pk).encode() for pk in excluded}
        dealer = Dealer(wanted, barred, Numbers(numbers, wanted, excluding=bool(barred)))
        with self._answering():
            me = self._find([member], self._ranked).get(member)
            if me is None:
                return None
            for band, (below, above) in enumerate(bands):
                near = self._near(me, below, above, by_ranks=measure == "ranks")
                chosen: list[Card] = []
                if near.candidates >= wanted or band == len(bands) - 1:
                    chosen = dealer.choose(*(reversed(near.sides) if reverse else near.sides))
                if len(chosen) == wanted:
                    break
            before = None
            if method != "ordinal":
                found = self._number([card.member.decode() for card in chosen], reverse, method)
                before = [found[card.member][1] for card in chosen]
        drawn = [(card.position, card.tie + card.member, card.score) for card in chosen]
        return Sample(near.size, near.position, band, near.candidates, drawn, before)

    def sample_many(self, wishes: Sequence[Mapping[str, Any]]) -> list[Sample | None]:
        """Several samples, one after the other, each bounded in time."""
        return [self.sample_nearby(**wish) for wish in wishes]

    def position(self, member: str, *, reverse: bool) -> int | None:
        with self._answering():
            me = self._find([member]).get(member)
            return None if me is None else self._rows.filter(self._apart(me, higher=reverse)).count()

    def score(self, member: str) -> float | None:
        with self._answering():
            me = self._find([member]).get(member)
            return None if me is None else me.score

    def places(self, members: Iterable[str], *, reverse: bool, method: str) -> tuple[int, list[Place | None]]:
        """Up to three members cost a scan, and two more each where the method is dense; more are numbered."""
        members = list(members)
        with self._answering():
            found = self._find(members)
            if len(found) > _FEW:
                size, numbers = self._rows.count(), self._number(members, reverse, method)
            else:
                size, numbers = self._count_better(list(found.values()), reverse, method)
        rows = (found.get(member) for member in members)
        return size, [row and Place(*numbers[row.member], row.stored, row.score) for row in rows]

    def page(self, first: int, count: int, *, reverse: bool, method: str) -> Page:
        with self._answering():
            size = self._rows.count()
            return self._page(size, first, size, count, reverse, method)

    def page_around(self, member: str, count: int, *, reverse: bool, method: str) -> Page | None:
        with self._answering():
            me = self._find([member]).get(member)
            if me is None:
                return None
            size, numbers = self._count_better([me], reverse, "ordinal")
            first = max(0, min(numbers[me.member][0] - count // 2, size - count))
            return self._page(size, first, size, count, reverse, method)

    def page_between(self, best: Bound, worst: Bound, count: int, *, reverse: bool, method: str) -> Page:
        better = self._beyond(best, "gt" if reverse else "lt")
        worse = self._beyond(worst, "lt" if reverse else "gt")
        with self._answering():
            counts = self._rows.aggregate(
                size=Count("pk"), better=Count("pk", filter=better), worse=Count("pk", filter=worse)
            )
            first, last = counts["better"], counts["size"] - counts["worse"]
            page = self._page(counts["size"], first, last, count, reverse, method)
            if not page.members and method == "dense":
                page = page._replace(before=self._count_values(better))
        return page

    def size(self) -> int:
        with self._answering():
            return self._rows.count()

    def count_facet(self, facet: str, covered: str = "") -> dict[bytes, int]:
        declared = next(one for one in self.index.faceting.all if one.name == facet)
        with self._answering():
            counts = self._count_facet(declared)
        return {declared.ranking(values).encode(): count for values, count in counts.items()}

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            with reading(self.connection, get_settings().database_timeout):
                yield
        except OperationalError as error:
            raise IndexUnavailable(
                f"Index {self.index.name!r}: the database did not answer: {error}"
            ) from error

    # The ranked rows

    @cached_property
    def _ranked(self) -> models.QuerySet[Any]:
        """The rows that have a place in the order, each of them once."""
        ranked: models.QuerySet[Any] = self._once(self.index.get_ranked().order_by())
        names = {
            f"zrank_{at}": self._expression(criterion) for at, criterion in enumerate(self.order.criteria)
        }
        ranked = ranked.alias(**names, zrank_text=_text(self.connection.vendor))
        for name, criterion in zip(names, self.order.criteria, strict=True):
            limits = self._limits(criterion.kind, is_first=criterion is self.order.first)
            if limits is not None:
                lowest, highest = (_value_at(criterion.kind, limit) for limit in limits)
                within = Q(**{f"{name}__gte": lowest, f"{name}__lte": highest})
                may_be_null = criterion.nullable and criterion is not self.order.first
                ranked = ranked.filter(within | Q(**{f"{name}__isnull": True}) if may_be_null else within)
        return ranked

    @cached_property
    def _rows(self) -> models.QuerySet[Any]:
        """Those of them that pass the conditions."""
        rows = self._ranked
        for query in as_query(self.conditions, self._exactly):
            rows = rows.filter(query)
        return rows if rows is self._ranked else self._once(rows, ranked=self._ranked)

    def _once(self, queryset: Any, ranked: models.QuerySet[Any] | None = None) -> models.QuerySet[Any]:
        """The rows of ``queryset``, each once: where they may be repeated, by their primary keys, out of ``ranked``."""
        if not _may_repeat_rows(queryset):
            return queryset  # type: ignore[no-any-return]
        if ranked is None:
            ranked = models.QuerySet[Any](self.index.model, using=self.index.get_using())
        return ranked.filter(pk__in=queryset.values("pk"))

    def _expression(self, criterion: Criterion) -> Any:
        """A criterion as an expression that the database orders as Redis orders what is stored."""
        field: Any
        *_, field = follow(self.index.model, criterion.path)
        field = value_field(field)
        if isinstance(criterion.kind, Fixed) and (
            # SQLite keeps decimals as floats, whose noise behind the last place would split one value in two.
            self.connection.vendor == "sqlite" or field.decimal_places is None
        ):
            return Round(F(criterion.path), precision=criterion.kind.places)
        return F(criterion.path)

    @staticmethod
    def _limits(kind: Kind, *, is_first: bool) -> tuple[Number, Number] | None:
        """The lowest and the highest key (see ``_key_of()``) that a row may have to be ranked; None where no column
        can hold others."""
        if isinstance(kind, (Fixed, Float, Span)) or (is_first and type(kind) is Kind):
            exact = is_first and not kind.is_wide and not isinstance(kind, Float)
            return (-EXACT, EXACT) if exact else (kind.lowest, kind.highest)
        return None

    @cached_property
    def _ascending(self) -> list[OrderBy]:
        """The order of positions: the lowest score first."""
        criteria = self.order.ascending(F(f"zrank_{at}") for at in range(len(self.order.criteria)))
        return [*criteria, OrderBy(F("zrank_text"))]

    def _best_first(self, reverse: bool) -> list[Any]:
        ascending: list[Any] = [criterion.copy() for criterion in self._ascending]
        return [criterion.reverse_ordering() for criterion in ascending] if reverse else ascending

    @cached_property
    def _encode(self) -> Callable[[Sequence[Any]], tuple[Number, bytes]]:
        return self.order.encoder()

    def _row(self, pk: Any, values: Sequence[Any], text: Any = None) -> _Row:
        score, tie = self._encode(values)
        stored = self.order.decode(float(score), tie)
        return _Row(pk, stored, float(score), tie, self.index.to_text(pk).encode(), text)

    def _find(self, members: Iterable[str], rows: models.QuerySet[Any] | None = None) -> dict[str, _Row]:
        """Those of ``members`` that are among ``rows``, or else among those asked about."""
        rows = (self._rows if rows is None else rows).annotate(zrank_text=F("zrank_text"))
        found: dict[str, _Row] = {}
        for pks in self._chunks(members):
            for pk, text, *values in rows.filter(pk__in=pks).values_list(
                "pk", "zrank_text", *self.order.paths
            ):
                # Where the database finds "A" by "a", Redis doesn't: it is asked for by the other name.
                found[self.index.to_text(pk)] = self._row(pk, values, text)
        return found

    def _chunks(self, members: Iterable[str]) -> Iterator[list[Any]]:
        """The primary keys, as many as a query may take. SQLite can't even be asked for an integer beyond 64 bits."""
        pks = [self.index.parse_pk(member) for member in members]
        pks = [pk for pk in pks if not (isinstance(pk, int) and pk.bit_length() > 63)]
        size = self.connection.features.max_query_params or len(pks) or 1
        size = size if size > 2 * _CHUNK else _CHUNK
        return (pks[start : start + size // 2] for start in range(0, len(pks), max(1, size // 2)))

    # Conditions

    def _apart(self, me: _Row, *, higher: bool, by_text: bool = True) -> Q:
        """The rows at higher, or lower, positions than ``me``. ``by_text``: equal ones too, as their keys say."""
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

    def _key_of(self, value: Any) -> Number:
        """What a value of the first criterion is compared and reckoned with, without a loss: its units, or a float."""
        return self.kind.encode(value) if isinstance(self.kind, Float) else self.kind.units(value)

    def _than(self, key: Number, comparison: str) -> Q:
        """The rows whose first criterion is "lt", "lte", "gt" or "gte" than the value with this key."""
        low, high = self._edges
        if low <= key <= high:
            return Q(**{f"zrank_0__{comparison}": _value_at(self.kind, key)})
        return ~_NOBODY if (key < low) == comparison.startswith("gt") else _NOBODY

    @cached_property
    def _edges(self) -> tuple[Number, Number]:
        """The lowest and the highest key that there is a value for."""
        return self._limits(self.kind, is_first=True) or (self.kind.lowest, self.kind.highest)

    def _beyond(self, bound: Bound, comparison: str) -> Q:
        return _NOBODY if not bound.score else self._than(self._key_of(bound.value), comparison)

    # Near a member

    def _near(self, me: _Row, below: Number, above: Number, *, by_ranks: bool) -> _Near:
        lower, higher = self._apart(me, higher=False), self._apart(me, higher=True)
        counts = {"size": Count("pk"), "position": Count("pk", filter=lower)}
        counts["among"] = Count("pk", filter=Q(pk=me.pk))
        if by_ranks:
            found = self._rows.aggregate(**counts)
            position, after = found["position"], found["position"] + found["among"]
            first, last = max(0, position - below), min(found["size"], after + above) - 1
            sides = (
                self._side(first, position - 1, lower, base=0),
                self._side(after, last, higher, base=after),
            )
        else:
            key = self._key_of(me.values[0])
            from_low, to_high = self._than(key - below, "gte"), self._than(key + above, "lte")
            counts["first"] = Count("pk", filter=self._than(key - below, "lt"))
            counts["end"] = Count("pk", filter=to_high)
            found = self._rows.aggregate(**counts)
            position, after = found["position"], found["position"] + found["among"]
            first, last = found["first"], found["end"] - 1
            # What lies between is said twice: databases find ranges by an index, but seldom out of an OR.
            lower &= from_low & self._than(key, "lte")
            higher &= to_high & self._than(key, "gte")
            sides = (
                self._side(first, position - 1, lower, base=first),
                self._side(after, last, higher, base=after),
            )
        candidates = max(0, int(last - first + 1 - found["among"]))
        return _Near(found["size"], position, candidates, sides)

    def _side(self, first: int, last: int, where: Q, base: int) -> Side:
        """The positions ``first`` to ``last`` among the rows ``where``, of which the lowest stands at ``base``."""
        rows = self._rows.filter(where)
        numbered = rows.annotate(zrank_position=Window(RowNumber(), order_by=self._ascending) + (base - 1))

        def find(positions: Sequence[int]) -> dict[int, Card]:
            cards: dict[int, Card] = {}
            for start in range(0, len(positions), _CHUNK):
                found = numbered.filter(zrank_position__in=positions[start : start + _CHUNK])
                for position, pk, *values in found.values_list("zrank_position", "pk", *self.order.paths):
                    cards[position] = self._card(position, pk, values)
            return cards

        def read() -> Iterator[Card]:
            found = rows.order_by(*self._ascending).values_list("pk", *self.order.paths)
            for position, (pk, *values) in enumerate(found[first - base : last - base + 1], first):
                yield self._card(position, pk, values)

        return Side(first, last, find, read)

    def _card(self, position: int, pk: Any, values: Sequence[Any]) -> Card:
        row = self._row(pk, values)
        return Card(position, row.member, row.score, row.tie)

    # Ranks

    def _page(self, size: int, first: int, last: int, count: int, reverse: bool, method: str) -> Page:
        """Up to ``count`` members from the place ``first`` on, of those before the place ``last``."""
        following = max(0, last - first)
        rows = self._rows.order_by(*self._best_first(reverse)).values_list("pk", *self.order.paths)
        count = min(count, following)
        found = [self._row(pk, values) for pk, *values in rows[first : first + count]] if count else []
        before = first
        if found and method == "dense":
            before = self._count_values(self._apart(found[0], higher=reverse, by_text=False))
        elif found and method == "competition":
            before = self._rows.filter(self._apart(found[0], higher=reverse, by_text=False)).count()
        return Page(size, first, following, before, [(row.stored, row.score) for row in found])

    def _count_values(self, where: Q) -> int:
        """How many distinct values of all criteria together the rows ``where`` have."""
        names = [f"zrank_{at}" for at in range(len(self.order.criteria))]
        rows = self._rows.filter(where).annotate(**{name: F(name) for name in names})
        distinct: int = rows.values(*names).distinct().count()
        return distinct

    def _count_better(
        self, rows: Iterable[_Row], reverse: bool, method: str
    ) -> tuple[int, dict[bytes, tuple[int, int]]]:
        """How many rows there are; for each of ``rows`` how many stand before it, and what stands before its rank."""
        rows = list(rows)
        counts: dict[str, Any] = {"size": Count("pk")}
        for at, row in enumerate(rows):
            counts[f"place_{at}"] = Count("pk", filter=self._apart(row, higher=reverse))
            if method == "competition":
                better = self._apart(row, higher=reverse, by_text=False)
                counts[f"before_{at}"] = Count("pk", filter=better)
        found = self._rows.aggregate(**counts)
        numbers: dict[bytes, tuple[int, int]] = {}
        for at, row in enumerate(rows):
            place = found[f"place_{at}"]
            before = found.get(f"before_{at}", place)
            if method == "dense":
                before = self._count_values(self._apart(row, higher=reverse, by_text=False))
            numbers[row.member] = place, before
        return found["size"], numbers

    def _number(self, members: Iterable[str], reverse: bool, method: str) -> dict[bytes, tuple[int, int]]:
        """The same of many: all are sorted, and a number given to each."""
        order = self._best_first(reverse)
        place, rank = (
            Window(RowNumber(), order_by=order) - 1,
            Window(_RANKS[method](), order_by=order[:-1]) - 1,
        )
        numbered = self._rows.annotate(zrank_place=place, zrank_before=place if method == "ordinal" else rank)
        numbers: dict[bytes, tuple[int, int]] = {}
        for pks in self._chunks(members):
            # Joined by OR to what is told of the numbers, the keys can't be looked up before all have theirs.
            found = numbered.filter(Q(pk__in=pks) | Q(zrank_place__lt=0))
            for pk, *number in found.values_list("pk", "zrank_place", "zrank_before"):
                numbers[self.index.to_text(pk).encode()] = (number[0], number[1])
        return numbers

    # Facets

    def _exactly(self, path: str, value: Any) -> Any:
        """A value that a column is compared with, so that no two texts are one."""
        collation = self._collation(path)
        return Collate(Value(value), collation) if collation and value is not None else value

    def _collation(self, path: str) -> str | None:
        """To MariaDB and MySQL "A" is "a" is "a ", unless they are told."""
        field = self.index.faceting.reading(path).field(path)
        if self.connection.vendor != "mysql" or not isinstance(field, (models.CharField, models.TextField)):
            return None
        return "utf8mb4_nopad_bin" if self.connection.mysql_is_mariadb else "utf8mb4_0900_bin"  # type: ignore[attr-defined]

    def _count_facet(self, facet: Facet) -> Counter[tuple[Any, ...]]:
        everybody = models.QuerySet[Any](self.index.model, using=self.index.get_using()).order_by()
        rows = everybody.filter(pk__in=self._rows.values("pk"))
        columns: dict[str, Any] = {}
        for at, path in enumerate(facet.paths):
            collation = self._collation(path)
            columns[f"zrank_facet_{at}"] = Collate(F(path), collation) if collation else F(path)
        counts: Counter[tuple[Any, ...]] = Counter()
        if not (facet.many and len(facet.paths) > 1):
            grouped = rows.values(**columns).annotate(zrank_count=Count("pk", distinct=facet.many))
            for *values, count in grouped.values_list(*columns, "zrank_count"):
                counts[tuple(values)] += count
            return counts
        # Of several values at each path, every combination counts, also of two paths that lead through one relation.
        members: dict[Any, list[set[Any]]] = {}
        for at, column in enumerate(columns):
            found = rows.values(**{column: columns[column]}).values_list("pk", column)
            for pk, value in found:
                members.setdefault(pk, [set() for _ in columns])[at].add(value)
        for values in members.values():
            counts.update(product(*values))
        return counts


class _Near(NamedTuple):
    """What is near a member."""

    size: int
    position: int
    candidates: int
    sides: tuple[Side, Side]


_RANKS: Final = {"ordinal": RowNumber, "competition": Rank, "dense": DenseRank}


def _value_at(kind: Kind, key: Number) -> Any:
    return key if isinstance(kind, Float) else kind.value(int(key))


def _may_repeat_rows(queryset: models.QuerySet[Any]) -> bool:
    """Whether a row may come up several times, or belong to groups that a condition would change."""
    query = queryset.query
    fields = [getattr(join, "join_field", None) for join in query.alias_map.values()]
    many = any(field and (field.one_to_many or field.many_to_many) for field in fields)
    return many or query.distinct or query.group_by is not None


def _text(vendor: str) -> Func:
    """The primary key as text, which compares by its bytes, as members do in Redis."""
    field = models.BinaryField() if vendor == "mysql" else models.TextField()
    return Func(F("pk"), template=_TEXTS.get(vendor, _TEXT), output_field=field)


_TEXT: Final = "CAST(%(expressions)s AS VARCHAR(255))"
_TEXTS: Final = {
    "sqlite": "CAST(%(expressions)s AS TEXT) COLLATE BINARY",
    "postgresql": 'CAST(%(expressions)s AS TEXT) COLLATE "C"',
    # Its binary collations ignore spaces at the end, and a UUID cast straight to binary is no text.
    "mysql": "CAST(CAST(%(expressions)s AS CHAR) AS BINARY)",
}
