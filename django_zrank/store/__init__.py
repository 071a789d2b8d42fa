"""An index in Redis, as it is written: changes, rebuilds, health and verification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ..codec.units import Number
from .health import Health, Serving
from .pending import Flight, Pending
from .touches import Swept, Touches
from .verifying import Replaced, Verifying
from .writing import LOAD_LIMIT, Applied, BuiltRow, Change, Epoch, Writing

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = [
    "LOAD_LIMIT",
    "Applied",
    "BuiltRow",
    "Change",
    "Epoch",
    "Flight",
    "Health",
    "Number",
    "Replaced",
    "Store",
    "Swept",
]


class Store(Writing, Serving, Verifying, Pending, Touches):
    """One index in Redis, as it is written, verified and rebuilt."""

    @classmethod
    def of(cls, part: RankIndex) -> Self:
        """Return the store of a part of an index."""
        return cls(part.name, part.layout, part.rule)
