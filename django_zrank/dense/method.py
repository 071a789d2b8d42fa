"""The ranking method, as the kernel calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django.db.models.functions import DenseRank

from ..methods import Method, Value
from ..queries.steps import Steps
from ..queries.view import View
from ..redis.keys import Keys
from ..store import Store
from .checking import wrong_counts
from .values import read_values

__all__ = ["Dense"]


class Dense(Method):
    example = "1223"
    function = DenseRank
    package = __package__ or ""
    is_distinct = True
    keeps = "distinct values"
    suffixes = (":values", ":counts")
    """A sorted set: tie bytes + score as text, for each distinct value -> that score; and a hash: the same -> how many
    members have it."""

    writes = 3

    def read_values(
        self, view: View, keys: Keys, bound: Value, skipped: int, count: int
    ) -> Steps[tuple[int, list[Value]]]:
        return read_values(view, keys, bound, skipped, count)

    def check(
        self, store: Store, build: str, ranking: bytes, size: int, was_written: Callable[[], bool]
    ) -> Iterator[tuple[bytes, int, int | None, str]]:
        for value, (right, counted) in wrong_counts(store, build, ranking, size, was_written).items():
            yield value, right, counted, "count of a value"
