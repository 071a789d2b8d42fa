"""Views of the members that pass several filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeVar

from ..conf import settings_of
from ..queries.request import Call, Request, Swapped
from ..queries.steps import Question, Steps, one
from ..queries.view import View
from ..redis.keys import Keys
from ..redis.scripts import Script
from .conf import FilterSettings
from .draws import TestedDrawing
from .filters import CombinedFilter
from .making import combined_filter, read_combined

__all__ = ["CombinedView"]

Answer = TypeVar("Answer")

_PAGE: Final = 500
"""The values of a facet that are read in one round trip."""


@dataclass(frozen=True)
class CombinedView(View):
    """The members that pass several filters, which no one ranking holds."""

    ranking: str | None = None
    filters: CombinedFilter = field(default_factory=CombinedFilter)

    drawing: ClassVar[Any] = TestedDrawing

    @property
    def limit(self) -> int:
        """The bound in force on the members of the smallest of several filters."""
        ours = settings_of(FilterSettings).max_scan
        return ours if self.scan is None else min(ours, self.scan)

    @property
    def patience(self) -> float:
        """The bound in force on the seconds to wait for a combined filter."""
        ours = settings_of(FilterSettings).filter_timeout
        return ours if self.seconds is None else min(ours, self.seconds)

    @property
    def is_replicated(self) -> bool:
        """False if groups are filtered by: they change without a write of the index."""
        return all(clause.kind != "g" for clause in self.filters.clauses)

    def sets(self, keys: Keys) -> list[str]:
        """The keys of the sets that the clauses of the scope name."""
        return [
            keys.group(name) if clause.kind == "g" else keys.ranking(name)
            for clause in self.filters.clauses
            for name in clause.names
        ]

    def read(
        self,
        keys: Keys,
        script: Script,
        arguments: Sequence[Any],
        cost: int = 0,
        others: Sequence[str] = (),
        *,
        writes: bool = False,
    ) -> Steps[Any]:
        key = combined_filter(self, keys)
        call = Call(script.using(self.ranks.package), (key, keys.root, keys.meta, *others), arguments, cost)
        _, (reply,) = yield from read_combined(self, keys, key, call)
        return reply

    def plain_command(
        self,
        keys: Keys,
        command: str,
        *arguments: Any,
        otherwise: Question[Any],
        then: Callable[[Any], Answer],
    ) -> Steps[Answer]:
        if command == "ZCARD":
            return (yield from self._size(keys))  # type: ignore[return-value]
        return then((yield from otherwise.steps(self, keys)))

    def _size(self, keys: Keys) -> Steps[int]:
        """Count the members: for all but those of one ranking, a difference; else the size of a combined filter."""
        excluded = self.filters.excluded
        if excluded is None:
            return (yield from read_combined(self, keys, combined_filter(self, keys)))[0]
        sizes = (Call("ZCARD", (key,)) for key in (keys.root, keys.ranking(excluded)))
        live = Call("HGET", (keys.meta,), ("build",))
        build, everybody, others = yield Request((live, *sizes), atomic=True)
        if (build or b"").decode() != keys.build:
            raise Swapped
        count: int = everybody - others
        return max(0, count)

    def count_facet(self, keys: Keys, facet: str, covered: str) -> Steps[dict[bytes, int]]:
        if covered:
            return (yield from super().count_facet(keys, facet, covered))
        key = combined_filter(self, keys, facet)
        first = Call("HSCAN", (key,), (0, "COUNT", _PAGE), _PAGE)
        _, ((cursor, numbers),) = yield from read_combined(self, keys, key, first, facet=facet)
        while cursor:
            cursor, more = yield from one(Call("HSCAN", (key,), (cursor, "COUNT", _PAGE), _PAGE))
            numbers |= more
        return {name: int(number) for name, number in numbers.items()}
