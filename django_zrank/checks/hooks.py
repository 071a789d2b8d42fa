"""Checks of the attributes and methods of an index, before any of them is called."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Final

from django.core.checks import CheckMessage, Error, Warning

from ..codec.shards import Sharded
from ..index import RankIndex

__all__ = ["SETTINGS", "check_attributes", "check_hooks", "error", "problems_of", "warning"]

_INTERNAL: Final = {"get_ranked"}

_OWN: Final = (RankIndex, Sharded)

_HOOKS: Final = {name for one in _OWN for name in vars(one) if name.startswith(("get_", "aget_"))} - _INTERNAL

SETTINGS: Final = {name for one in _OWN for name in one.__annotations__ if not name.startswith("_")} - {
    "ranking",
    "scores",
}

_STEMS: Final = sorted(SETTINGS | {name.removeprefix("get_") for name in _HOOKS if name.startswith("get_")})


def error(cls: type, message: str, hint: str, code: str) -> Error:
    """An error of a declaration. ``message`` follows the name of the class."""
    return Error(f"{cls.__name__}{message}", hint=hint, obj=cls, id=code)


def warning(cls: type, message: str, hint: str, code: str) -> Warning:
    return Warning(f"{cls.__name__}{message}", hint=hint, obj=cls, id=code)


def check_attributes(cls: type[RankIndex]) -> Iterator[CheckMessage]:
    """Names that are nearly those of an attribute, and names that RankIndex needs for itself."""
    own = {
        name: base
        for base in reversed(cls.__mro__)
        if base not in RankIndex.__mro__
        for name in vars(base)
        if not name.startswith("_")
    }
    for name, base in own.items():
        if name in SETTINGS | _HOOKS:
            continue
        meant = _meant(name)
        if hasattr(RankIndex, name):
            hint = f"Did you mean {meant}?" if meant else "Choose another name."
            yield error(base, f".{name} hides an attribute of RankIndex.", hint, "zrank.E029")
        elif meant:
            hint = f"Did you mean {meant}? If not, choose another name, or begin it with an underscore."
            yield warning(base, f".{name} is not an attribute of RankIndex.", hint, "zrank.W006")


def _meant(name: str) -> str:
    """The attribute or method that ``name`` nearly is, if any."""
    stem = name.removeprefix("get_")
    close = get_close_matches(stem, _STEMS, n=1, cutoff=0.75)
    if not close:
        return ""
    is_hook = stem != name or close[0] not in SETTINGS
    return f"get_{close[0]}()" if is_hook else close[0]


def check_hooks(cls: type[RankIndex]) -> Iterator[CheckMessage]:
    """Methods that can't be called as RankIndex calls them."""
    for name, problem in problems_of(cls).items():
        written = f"{'async ' * name.startswith('a')}def {name}({', '.join(['self', *_parameters(name)])})"
        yield error(cls, f".{name} {problem}.", f"Write it as RankIndex does: {written}.", "zrank.E028")
    blank = object.__new__(cls)
    if blank.has_async_excluded and not blank.has_blocking_excluded:
        hint = "Define get_excluded() as well as aget_excluded(): recommend() and the REST API call it."
        yield error(cls, " excludes members in coroutines alone.", hint, "zrank.E037")


def problems_of(cls: type[RankIndex]) -> dict[str, str]:
    """Methods that can't be called as RankIndex calls them, and why not."""
    blank = object.__new__(cls)
    found = {
        name: _problem(getattr(blank, name), _parameters(name), is_async=name.startswith("a"))
        for name in sorted(_HOOKS)
    }
    return {name: problem for name, problem in found.items() if problem}


def _parameters(hook: str) -> list[str]:
    return [name for name in inspect.signature(getattr(RankIndex, hook)).parameters if name != "self"]


def _problem(hook: Any, names: list[str], *, is_async: bool) -> str:
    if not callable(hook):
        return f"is {hook!r}, not a method"
    if inspect.iscoroutinefunction(hook) != is_async:
        return "is not async" if is_async else "is async"
    try:
        inspect.signature(hook).bind(*names)
    except (TypeError, ValueError) as error:
        return f"can't be called with ({', '.join(names)}): {error}"
    return ""
