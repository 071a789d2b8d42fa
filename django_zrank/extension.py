"""Extensions: what parts add to the mirror of an index. The kernel calls them, and names none: ``index.py`` lists them.

What a part adds to a declaration is a base class of ``RankIndex``, which overrides ``further_conditions()`` and the
methods beside it. What it adds to the mirror is an :class:`Extension`: one object for all indexes, imported when it is
first called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from django.utils.module_loading import import_string

from .declaration import Declaration

if TYPE_CHECKING:
    from django.core.checks import CheckMessage

    from .queries.query import Query
    from .store import Store

__all__ = ["Extension", "extensions", "installed", "timed"]

Index = TypeVar("Index", bound=Declaration[Any])

extensions: Final[dict[str, str]] = {}
"""The dotted paths of the extensions, by the attribute with which an index declares each. They are called in this
order."""


class Extension(Generic[Index]):
    """A part, for all indexes. By default, every hook does nothing. An index may be one that doesn't declare the part:
    an earlier release may have."""

    needs: Sequence[str] = ()
    """The attributes of an index that must be right for :meth:`check` to run."""

    def is_declared(self, index: Index) -> bool:
        """Return True if an index declares it."""
        return False

    def check(self, index: Index) -> Iterator[CheckMessage]:
        """Check the declaration, without a query."""
        yield from ()

    # Rows on their way to Redis

    def is_timed(self, index: Index) -> bool:
        """Return True if it depends on the time which rows are ranked."""
        return False

    def before_rows(self, index: Index) -> Any:
        """Return what :meth:`removing` needs of the time before the rows of a push are read. Not called for a save,
        which doesn't wait for it."""

    def removing(self, index: Index, before: Any) -> Callable[[Store], Any] | None:
        """Return a function that is called with the store of each part from which a push is about to remove members;
        None for none. ``before``: what :meth:`before_rows` returned; None if it wasn't called. Called if the index is
        timed."""

    def building(self, index: Index) -> Mapping[str, Any]:
        """Return fields of ``meta``, with their values, that belong to a build whose rows are about to be read. A build
        without a value (None) has no such field."""
        return {}

    # Upkeep

    def work(self, index: Index, *, limit: int | None, patience: float, skip_locked: bool) -> int:
        """Do what is due, for about ``limit`` members, or for all. Return their number.

        ``patience``: seconds for which to wait for locks. ``skip_locked``: leave locked rows for the next time, instead
        of raising :exc:`~django_zrank.exceptions.Busy` at the end."""
        return 0

    def report(self, members: int) -> str:
        """Return what ``sync_zrank`` says after work on so many members."""
        return ""

    # Scores that begin in Redis

    def rouse(self, index: Index, pks: Sequence[Any]) -> list[Any]:
        """Change the rows of members that are active, and about to be pushed, so that they are ranked. Return the keys
        of those whose rows are locked."""
        return []

    def changed(self, index: Index, members: Sequence[str]) -> Query[None]:
        """The steps that follow a change of scores of members in Redis. An error is logged."""
        yield from ()


def installed() -> dict[str, Extension[Any]]:
    """Return the extensions by their names."""
    return {name: _load(path) for name, path in extensions.items()}


def timed(index: Declaration) -> list[Extension[Any]]:
    """Return the extensions for which it depends on the time which rows of an index are ranked."""
    return [one for one in installed().values() if one.is_timed(index)]


@cache
def _load(path: str) -> Extension[Any]:
    extension: Extension[Any] = import_string(path)()
    return extension
