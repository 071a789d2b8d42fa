"""Hooks by which parts attach to the kernel, which names none of them. :mod:`django_zrank.index` lists the parts.

Functions are named by dotted paths, and imported when they are called: a project doesn't load what it doesn't use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from django.utils.module_loading import import_string

from .conf import get_settings

__all__ = [
    "Fallback",
    "Source",
    "combined_filter",
    "combined_filters",
    "companions",
    "divisible",
    "fallback",
    "fallbacks",
    "sources",
    "written",
]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Fallback(NamedTuple):
    """Answers questions about a ranking that Redis can't be trusted to answer."""

    function: str
    """The dotted path of a function of an index, the conditions, a question and a view. It returns the answer, or
    raises :exc:`~django_zrank.IndexUnavailable`."""

    label: str
    """The state that the health view shows for an index that is answered by it."""

    def answer(self, *args: Any) -> Any:
        """Call the function."""
        return import_string(self.function)(*args)


fallbacks: Final[dict[str, Fallback]] = {}
"""The fallbacks by the values of ``ZRANK["UNHEALTHY"]`` that choose them."""


class Source(NamedTuple):
    """Servers that rankings are read from in place of the primary."""

    function: str
    """The dotted path of a function of a :class:`~django_zrank.redis.reader.Reader`, of a function that returns
    the steps, given the live keys, and of a view. It returns the steps to the answer."""

    check: str
    """The dotted path of a system check, if ``ZRANK["READS"]`` chooses them: a function of the alias in ``CACHES`` and
    its entry there."""

    def asking(self, *args: Any) -> Any:
        """Call the function."""
        return import_string(self.function)(*args)


sources: Final[dict[str, Source]] = {}
"""The sources by the values of ``ZRANK["READS"]`` and the arguments of ``using()`` that choose them; without
"primary"."""

written: Final[list[Callable[[Any, tuple[int, int]], None]]] = []
"""Functions that are called after a write of this process: with the :class:`~django_zrank.redis.keys.Keys` of the
build that was written to, and with the term and the version of the write."""

companions: Final[dict[str, str]] = {}
"""The dotted paths of functions that return a context manager, entered while ``sync_zrank --watch`` runs, by the app
that has to be installed. Arguments: the indexes, and the event that ends the worker."""


combined_filters: Final[list[str]] = []
"""The dotted path of a function of an index, a view and conditions: it returns the view of the members that meet the
conditions, for which there is no ranking. It raises ``ValueError``."""


def divisible(
    function: Callable[Concatenate[Any, Arguments], Result],
) -> Callable[Concatenate[Any, Arguments], Result]:
    """Let a part take the place of a function of an index that holds its members itself: for an index that has a
    ``division``, the function of the same name in that module is called."""

    @wraps(function)
    def call(index: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if index.division:
            return import_string(f"{index.division}.{function.__name__}")(index, *args, **kwargs)  # type: ignore[no-any-return]
        return function(index, *args, **kwargs)

    return call


def fallback() -> Fallback | None:
    """Return the fallback that the settings choose."""
    return fallbacks.get(get_settings().unhealthy)


def combined_filter() -> Callable[..., Any] | None:
    """Return the function that combines conditions, or None if there is none."""
    return import_string(combined_filters[-1]) if combined_filters else None
