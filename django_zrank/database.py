"""Answers by SQL, where Redis can't be believed: the same contract, slower, and bounded in time.

The cost grows with the rows: one scan counts all of them, and the rows of a band are sorted, in the database.
They are read from the database that Redis mirrors, the writer: a replica may lag behind it, and would then not
know a member that has just been made.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.db import OperationalError, connections, models
from django.db.models import Count, F, Func, Q, Window
from django.db.models.functions import Round, RowNumber

from .conf import get_settings
from .deadline import reading
from .deck import Card, Dealer, Numbers, Side
from .exceptions import IndexUnavailable
from .ordering import EXACT, Boolean, Day, Fixed, Float, Number, follow
from .store import Sample

if TYPE_CHECKING:
    from .index import RankIndex

__all__ = ["DatabaseSource"]

_CHUNK: Final = 500
"""Positions that one query looks up: SQLite may not take more than 999 parameters, Oracle 1,000 in a list."""


class _Me(NamedTuple):
    """The member who asks, as the database compares it with others."""

    score: float
    value: Any
    text: Any

    @property
    def lower(self) -> Q:
        """Those at lower positions."""
        return Q(zrank_score__lt=self.value) | Q(zrank_score=self.value, zrank_text__lt=self.text)

    @property
    def higher(self) -> Q:
        """Those at higher positions."""
        return Q(zrank_score__gt=self.value) | Q(zrank_score=self.value, zrank_text__gt=self.text)


class DatabaseSource:
    """The database in Redis's stead. One seed draws the same members from either, if they hold the same.

    Every method raises :exc:`~django_zrank.IndexUnavailable` where the answer takes longer than
    ``ZRANK["DATABASE_TIMEOUT"]``, or the database can't be reached. An answer is computed from one state of the
    database; inside a caller's transaction, from what its isolation level shows.
    """

    def __init__(self, index: RankIndex) -> None:
        self.index = index
        self.connection = connections[index.get_using()]
        self.path, self.kind = index.ordering.first.path, index.ordering.first.kind

    def sample_nearby(
        self,
        member: str,
        wanted: int,
        *,
        reverse: bool,
        bands: Sequence[tuple[Number, Number]],
        excluded: Iterable[str],
        numbers: Callable[[int], bytes],
        measure: str = "score",
        method: str = "ordinal",
        remember: int | None = None,
    ) -> Sample | None:
        """See :meth:`django_zrank.store.Store.sample_nearby`. Four queries, up to seven where
        much is excluded; each further band that is tried costs as much without the first."""
        barred = {text.encode() for text in excluded}
        dealer = Dealer(wanted, barred, Numbers(numbers, wanted, excluding=bool(barred)))
        with self._answering():
            me = self._find(member)
            if me is None:
                return None
            for band, (below, above) in enumerate(bands):
                low, high = self._value(me.score - below), self._value(me.score + above)
                size, position, first, last = self._count(me, low, high)
                chosen: list[Card] = []
                if last - first >= wanted or band == len(bands) - 1:
                    lower = Q(zrank_score__gte=low, zrank_score__lte=me.value) & me.lower
                    higher = Q(zrank_score__gte=me.value, zrank_score__lte=high) & me.higher
                    sides = self._side(first, position - 1, lower), self._side(position + 1, last, higher)
                    chosen = dealer.choose(*(reversed(sides) if reverse else sides))
                if len(chosen) == wanted:
                    break
        return Sample(size, position, band, max(0, last - first), [*chosen], None)

    def position(self, member: str, *, reverse: bool) -> int | None:
        """How many members stand before ``member``; None where it is not ranked."""
        with self._answering():
            me = self._find(member)
            return None if me is None else self._rows.filter(me.higher if reverse else me.lower).count()

    def score(self, member: str) -> float | None:
        """The score of ``member``; None where it is not ranked."""
        with self._answering():
            me = self._find(member)
            return None if me is None else me.score

    def size(self) -> int:
        """How many members are ranked."""
        with self._answering():
            return self._rows.count()

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
    def _limits(self) -> tuple[Number, Number]:
        """The lowest and the highest score that a row of this index can have."""
        match self.kind:
            case Float():
                return -sys.float_info.max, sys.float_info.max
            case Boolean():
                return 0, 1
            case Day():
                return self.kind.encode(date.min), self.kind.encode(date.max)
        return -EXACT, EXACT

    @cached_property
    def _field(self) -> Any:
        """The field that holds the score."""
        *_, field = follow(self.index.model, self.path)
        return field.output_field if isinstance(field, models.GeneratedField) else field

    @cached_property
    def _score(self) -> Any:
        """The score as an expression that the database orders as Redis orders scores."""
        if isinstance(self.kind, Fixed) and (
            # SQLite keeps decimals as floats, whose noise behind the last place would split one score in two.
            self.connection.vendor == "sqlite" or self._field.decimal_places is None
        ):
            return Round(F(self.path), precision=self.kind.places)
        return F(self.path)

    @cached_property
    def _rows(self) -> models.QuerySet[Any]:
        """The rows that have a place in the order, each of them once."""
        ranked: Any = self.index.get_ranked().order_by()
        if _may_repeat_rows(ranked):
            rows = self.index.model._base_manager.using(self.index.get_using())
            ranked = rows.filter(pk__in=ranked.values("pk"))
        named = ranked.alias(zrank_score=self._score, zrank_text=_text(self.connection.vendor))
        lowest, highest = map(self.kind.decode, self._limits)
        within: models.QuerySet[Any] = named.filter(zrank_score__gte=lowest, zrank_score__lte=highest)
        return within

    def _value(self, score: float) -> Any:
        """What a column can be compared with to find scores up to, or from, ``score``."""
        low, high = self._limits
        return self.kind.decode(min(max(score, low), high))

    def _find(self, member: str) -> _Me | None:
        rows = self._rows.filter(pk=self.index.parse_pk(member)).annotate(zrank_text=F("zrank_text"))
        for pk, value, text in rows.values_list("pk", self.path, "zrank_text"):
            # Where the database finds "A" by "a", Redis doesn't.
            if self.index.to_text(pk) == member:
                score = self.kind.encode(value)
                return _Me(float(score), self.kind.decode(score), text)
        return None

    def _count(self, me: _Me, low: Any, high: Any) -> tuple[int, int, int, int]:
        """How many members there are, my position, and the first and the last that lie in the band."""
        counts = self._rows.aggregate(
            size=Count("pk"),
            position=Count("pk", filter=me.lower),
            below=Count("pk", filter=Q(zrank_score__lt=low)),
            above=Count("pk", filter=Q(zrank_score__lte=high)),
        )
        return counts["size"], counts["position"], counts["below"], counts["above"] - 1

    def _side(self, first: int, last: int, where: Q) -> Side:
        """The positions ``first`` to ``last``, which are those of the rows ``where``."""
        rows, order = self._rows.filter(where), ("zrank_score", "zrank_text")
        row_number = Window(RowNumber(), order_by=order) + (first - 1)
        numbered = rows.annotate(zrank_position=row_number)

        def find(positions: Sequence[int]) -> dict[int, Card]:
            cards: list[Card] = []
            for start in range(0, len(positions), _CHUNK):
                found = numbered.filter(zrank_position__in=positions[start : start + _CHUNK])
                cards += itertools.starmap(self._card, found.values_list("zrank_position", "pk", self.path))
            return {card.position: card for card in cards}

        def read() -> Iterator[Card]:
            found = rows.order_by(*order).values_list("pk", self.path)
            return (self._card(position, *row) for position, row in enumerate(found, first))

        return Side(first, last, find, read)

    def _card(self, position: int, pk: Any, value: Any) -> Card:
        return Card(position, self.index.to_text(pk).encode(), float(self.kind.encode(value)))


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
