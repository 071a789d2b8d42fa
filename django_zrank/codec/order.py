"""The order of an index: its criteria, parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.core.exceptions import FieldError
from django.db import models
from django.db.models import F
from django.db.models.constants import LOOKUP_SEP
from django.db.models.expressions import OrderBy

from ..exceptions import Unrankable
from .fields import Annotated, follow, unannotated
from .kinds import Kind, ranked_kind
from .units import HIGHEST, LAST, LOWEST, NUL, Number, unpack

__all__ = ["Criterion", "Order"]


@dataclass(frozen=True)
class Criterion:
    path: str
    """The lookup path of the value, from the model: ``level``, ``profile__level``."""

    descending: bool
    """True if a higher value ranks better."""

    kind: Kind

    nullable: bool = False
    """True if the column may be null, or a relation on the way may be missing."""

    nulls_first: bool = False
    """True if nulls rank before values. Never for the first criterion: a row without a score is not ranked."""

    @classmethod
    def parse(
        cls, model: type[models.Model], declared: str | F | OrderBy, annotated: Annotated = unannotated
    ) -> Criterion:
        """Parse ``-level`` of ``model``, or ``F("level").desc(nulls_first=True)``.

        Raises ``FieldDoesNotExist`` or ``FieldError``.
        """
        path, descending, nulls_first = _parse_ordering(declared)
        *relations, field = follow(model, path, annotated)
        for relation in relations:
            if not (relation.many_to_one or relation.one_to_one):
                raise FieldError(f"{path}: {relation.name} may lead to several rows")
        last = path.rpartition(LOOKUP_SEP)[2]
        column = getattr(field, "attname", field.name)
        if field.is_relation and last not in ("pk", column if column != field.name else "pk"):
            hint = f"; its column is {column}" if column != field.name else ""
            raise FieldError(f"{path} is a relation, which can't be ranked{hint}")
        # The reverse of a one-to-one relation may lead to no row.
        nullable = any(not one.concrete or one.null for one in relations) or bool(field.null)
        return cls(path, descending, ranked_kind(field), nullable, nulls_first)


def _parse_ordering(declared: Any) -> tuple[str, bool, bool]:
    """Parse a criterion: its path, true if it descends, and true if nulls are first."""
    if isinstance(declared, str):
        return declared.removeprefix("-"), declared.startswith("-"), False
    if type(declared) is F:
        return declared.name, False, False  # type: ignore[attr-defined]
    if isinstance(declared, OrderBy) and type(declared.expression) is F:
        path: str = declared.expression.name  # type: ignore[attr-defined]
        return path, declared.descending, bool(declared.nulls_first)
    raise FieldError(
        f'expected text such as "-level", or F("level").desc(nulls_first=True), not {declared!r}'
    )


class TieCode:
    """A further criterion as 8 tie bytes that sort as positions do, after one that places nulls if there may be any."""

    def __init__(
        self, kind: Kind, *, complemented: bool, nullable: bool = False, nulls_low: bool = False
    ) -> None:
        units, value = kind.units, kind.value
        self.width = 8 + nullable

        # One function for each case: they run once for every member of an index.
        self.encode: Callable[[Any], bytes]
        self.decode: Callable[[bytes], Any]
        if complemented:
            self.encode = lambda given: (HIGHEST - units(given)).to_bytes(8, "big")
            self.decode = lambda code: value(HIGHEST - int.from_bytes(code, "big"))
        else:
            self.encode = lambda given: (units(given) - LOWEST).to_bytes(8, "big")
            self.decode = lambda code: value(unpack(code))
        if nullable:
            encode, decode = self.encode, self.decode
            null = (b"\0" if nulls_low else b"\2") + bytes(8)
            self.encode = lambda given: null if given is None else b"\1" + encode(given)
            self.decode = lambda code: None if code == null else decode(code[1:])


@dataclass(frozen=True)
class Order:
    """The order of an index, best first."""

    criteria: tuple[Criterion, ...]

    @classmethod
    def parse(
        cls,
        model: type[models.Model],
        order: Sequence[str | F | OrderBy],
        annotated: Annotated = unannotated,
    ) -> Order:
        """Parse Django's ordering syntax over ``model``. Raises ``FieldDoesNotExist`` or ``FieldError``."""
        if isinstance(order, str) or not isinstance(order, Sequence) or not order:
            raise FieldError('expected a sequence of criteria such as ("-level",)')
        criteria = tuple(Criterion.parse(model, declared, annotated) for declared in order)
        if criteria[0].nulls_first:
            raise FieldError(f"{criteria[0].path}: nulls can't be first: a row without a score is not ranked")
        columns = [tuple(field.name for field in follow(model, one.path, annotated)) for one in criteria]
        for at, column in enumerate(columns):
            if column in columns[:at]:
                raise FieldError(f"{criteria[at].path} is named twice")
        return cls(criteria)

    @cached_property
    def first(self) -> Criterion:
        """The criterion whose value is the score."""
        return self.criteria[0]

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The lookup paths of all criteria, as ``values_list()`` takes them."""
        return tuple(criterion.path for criterion in self.criteria)

    @cached_property
    def is_wide(self) -> bool:
        """True if the first criterion may be an integer beyond ±2**53, which a score can't hold exactly."""
        return self.first.kind.is_wide

    @cached_property
    def width(self) -> int:
        """The number of tie bytes before every primary key (see :class:`~django_zrank.codec.layout.Layout`): 0 with one
        criterion; else 8 for each further one, 9 if it is nullable, and 8 for the first if it is wide."""
        if len(self.criteria) == 1:
            return 0
        return 8 * self.is_wide + sum(8 + criterion.nullable for criterion in self.criteria[1:])

    @cached_property
    def encode(self) -> Callable[[Sequence[Any]], tuple[Number, bytes]]:
        """A function from the criteria's values to the score and the tie bytes. It raises ``Unrankable``."""
        kind, codes = self.first.kind, [code.encode for code in self._codes]
        if not codes:
            return kind.encoder()
        first = kind.encoder_of_first()

        def encode(values: Sequence[Any]) -> tuple[Number, bytes]:
            try:
                score, tie = first(values)
                for code, value in zip(codes, values[1:], strict=True):
                    tie += code(value)
            except (AttributeError, TypeError) as error:
                if None in values:
                    raise Unrankable(
                        f"null in a column that the model declares as not null: {values!r}"
                    ) from error
                raise
            return score, tie

        return encode

    def decode(self, score: float, tie: bytes) -> tuple[Any, ...]:
        """Return the values of all criteria, each in its field's own type."""
        kind = self.first.kind
        if not self.width:
            return (kind.value(unpack(tie[1:])) if tie else kind.decode(score),)
        at = 0
        if kind.is_wide:
            values, at = [kind.value(unpack(tie[:8]))], 8
        else:
            values = [kind.decode(score)]
        for code in self._codes:
            values.append(code.decode(tie[at : at + code.width]))
            at += code.width
        return tuple(values)

    def bound_of(self, value: Any) -> tuple[float, bytes]:
        """Return the score of a value of the first criterion, and the prefix of tie bytes that tells members with this
        value from others with the same score; empty if the score is exact.

        Raises ``ValueError`` for anything that is not a value of the criterion, or is beyond 64 bits.
        """
        kind = self.first.kind
        try:
            score, exact = kind.bound(kind.check(value))
            return score, exact if self.width or not exact else NUL + exact
        except (Unrankable, ValueError) as error:
            raise ValueError(f"{self.first.path}: {error}") from None

    def ahead_of(self, value: Any, *, reverse: bool) -> tuple[float, bytes]:
        """Return the sort key of a position ahead of all members with a value of the first criterion; ``reverse``: a
        higher score ranks better. Raises ``ValueError``, as :meth:`bound_of`."""
        kind = self.first.kind
        try:
            encode = kind.encoder_of_first() if self.width else self.encode
            score, tie = encode((kind.check(value),))
        except (Unrankable, ValueError) as error:
            raise ValueError(f"{self.first.path}: {error}") from None
        return float(score), tie + (LAST * (self.width + 1) if reverse else b"")

    def ascending(self, expressions: Iterable[Any]) -> tuple[OrderBy, ...]:
        """Return the criteria as ``order_by()`` takes them, in the order of positions: lowest score first.

        ``expressions``: one for the values of each. Nulls are placed only in nullable columns, because a database can't
        use an index if their place is given.
        """
        reverse = self.first.descending
        return tuple(
            OrderBy(
                expression,
                descending=criterion.descending != reverse,
                nulls_first=True if nullable and criterion.nulls_first != reverse else None,
                nulls_last=True if nullable and criterion.nulls_first == reverse else None,
            )
            for criterion, expression in zip(self.criteria, expressions, strict=True)
            for nullable in (criterion.nullable and criterion is not self.first,)
        )

    @cached_property
    def _codes(self) -> tuple[TieCode, ...]:
        reverse = self.first.descending
        return tuple(
            TieCode(
                criterion.kind,
                complemented=criterion.descending != reverse,
                nullable=criterion.nullable,
                nulls_low=criterion.nulls_first != reverse,
            )
            for criterion in self.criteria[1:]
        )
