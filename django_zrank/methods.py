"""Ranking methods: the ranks of members that are equal in every criterion. ``index.py`` lists those of parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, ClassVar, Final

from django.db.models import Func
from django.db.models.functions import Rank, RowNumber
from django.utils.module_loading import import_string

__all__ = ["Competition", "Method", "Ordinal", "Value", "kept_for", "method_of", "methods", "suffixes"]

Value = tuple[float, bytes]
"""A distinct value: a score, and tie bytes."""


class Method:
    """A ranking method. One object serves all indexes."""

    example: ClassVar[str]
    """The ranks of four members, of which the second and the third are equal."""

    function: ClassVar[type[Func]]
    """SQL's window function of these ranks."""

    package: ClassVar[str] = ""
    """The package whose Lua libraries take the place of the kernel's of the same names: ``ranks`` in scripts that read
    ranks by this method, ``beside`` in scripts that write an index that declares it. '' for none."""

    is_distinct: ClassVar[bool] = False
    """True if a rank counts distinct values, not members: what several indexes count can't be added up."""

    # What an index that declares it keeps in Redis beside each of its rankings

    keeps: ClassVar[str] = ""
    """A description for messages, such as "distinct values"; '' for nothing. Other indexes can't be ranked by this
    method."""

    suffixes: ClassVar[Sequence[str]] = ()
    """The ends of the names of these keys, after the name of the ranking."""

    writes: ClassVar[int] = 1
    """The number of writes that a member of a ranking takes."""

    def read_values(self, view: Any, keys: Any, bound: Value, skipped: int, count: int) -> Any:
        """Return the number of distinct values of a :class:`~.queries.view.View` that are better than a bound, and
        these after the first ``skipped``, best first, ``count`` of them: as steps. ``bound``: a score and a prefix of
        tie bytes."""
        raise NotImplementedError

    def check(
        self, store: Any, build: str, ranking: bytes, size: int, was_written: Callable[[], bool]
    ) -> Iterator[tuple[bytes, int, int | None, str]]:
        """Yield what is kept wrongly beside a ranking of so many members: its name, the number that is right, the one
        that is kept, and what it is. Raises :exc:`~.store.Replaced`."""
        return iter(())


class Ordinal(Method):
    example = "1234"
    function = RowNumber


class Competition(Method):
    example = "1224"
    function = Rank


methods: Final = {
    "ordinal": "django_zrank.methods.Ordinal",
    "competition": "django_zrank.methods.Competition",
}
"""The dotted paths of the ranking methods, by their names."""


@cache
def method_of(name: str) -> Method:
    """Return the ranking method of a name. Raises ``LookupError``."""
    method: Method = import_string(methods[name])()
    return method


def kept_for(name: Any) -> str:
    """Return the name of a ranking method for which something is kept beside each ranking; '' for any other name."""
    return name if name in list(methods) and method_of(name).keeps else ""


@cache
def suffixes() -> Sequence[str]:
    """Return the ends of the names of all keys that may stand beside a ranking."""
    return [suffix for name in methods for suffix in method_of(name).suffixes]
