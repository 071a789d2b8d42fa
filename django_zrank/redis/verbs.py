"""Verbs: methods that ask, each written once as steps, which blocking code and coroutines call alike."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from django.db import models

from ..declaration import Index
from ..members import members_of, named
from ..queries.request import Blocking
from ..queries.steps import Steps, drive
from . import areader_of, reader_of

__all__ = ["Batches", "async_iterator", "async_version", "in_batches", "listed", "named_members", "verb"]

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")


class _Asker(Protocol):
    @property
    def index(self) -> Index[Any]: ...


Owner = TypeVar("Owner", bound=_Asker)
Method = TypeVar("Method", bound=Callable[..., Any])


def verb(
    begin: Callable[Concatenate[Owner, Parameters], Steps[Answer]],
) -> Callable[Concatenate[Owner, Parameters], Answer]:
    """Make a blocking method of a method that returns steps."""

    @wraps(begin)
    def ask(self: Owner, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
        return drive(begin(self, *args, **kwargs), reader_of(self.index).send)

    return _signed(ask, begin, "Steps[{}]", "{}")


def async_version(
    ask: Callable[Concatenate[Owner, Parameters], Answer],
) -> Callable[Concatenate[Owner, Parameters], Coroutine[Any, Any, Answer]]:
    """Make a coroutine function of the steps of a verb: ``atop = async_version(top)``."""
    begin: Any = inspect.unwrap(ask)

    @wraps(begin)
    async def aask(self: Owner, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
        reader = await areader_of(self.index)
        return await reader.adrive(begin(self, *args, **kwargs))

    return _named(aask, ask)


Batches = Callable[[], Steps[Sequence[Answer]]]
"""Begins the steps to the next batch, an empty one after the last."""


def in_batches(
    begin: Callable[Concatenate[Owner, Parameters], Batches[Answer]],
) -> Callable[Concatenate[Owner, Parameters], Iterator[Answer]]:
    """Make a method that returns an iterator of one that returns batches. Arguments are validated by the call, not when
    the first answer is taken."""

    @wraps(begin)
    def ask(self: Owner, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Iterator[Answer]:
        return each(self, begin(self, *args, **kwargs))

    def each(self: Owner, batches: Batches[Answer]) -> Iterator[Answer]:
        while batch := drive(batches(), reader_of(self.index).send):
            yield from batch

    return _signed(ask, begin, "Batches[{}]", "Iterator[{}]")


def async_iterator(
    ask: Callable[Concatenate[Owner, Parameters], Iterator[Answer]],
) -> Callable[Concatenate[Owner, Parameters], AsyncIterator[Answer]]:
    """Make a method that returns an asynchronous iterator of one that returns batches."""
    begin: Any = inspect.unwrap(ask)

    @wraps(begin)
    def aask(self: Owner, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> AsyncIterator[Answer]:
        return each(self, begin(self, *args, **kwargs))

    async def each(self: Owner, batches: Batches[Answer]) -> AsyncIterator[Answer]:
        reader = await areader_of(self.index)
        while batch := await reader.adrive(batches()):
            for one in batch:
                yield one

    return _named(aask, ask)


def listed(parameter: str, given: Any) -> Steps[list[Any]]:
    """The steps to a list of several members, which may be given by a query."""
    members = members_of(parameter, given)
    if isinstance(members, Collection) and not isinstance(members, models.QuerySet):
        return list(members)
    found: list[Any] = yield Blocking(partial(list, members))
    return found


def named_members(given: Sequence[Any]) -> Steps[list[Any]]:
    """The steps to the list of the members that a call names, as several arguments or as one iterable."""
    members = named("members", given)
    if members is given:
        return list(given)
    return (yield from listed("members", members))


def _signed(ask: Method, begin: Any, was: str, now: str) -> Method:
    """Give a verb the signature of a method that returns the answer, not the steps to it."""
    opening, closing = was.split("{}")
    signature = inspect.signature(begin)
    answer = signature.return_annotation.removeprefix(opening).removesuffix(closing)
    returns = now.format(answer)
    vars(ask)["__signature__"] = signature.replace(return_annotation=returns)
    ask.__annotations__ = {**begin.__annotations__, "return": returns}
    return ask


def _named(aask: Method, ask: Any) -> Method:
    """Name the asynchronous version of a verb as Django does."""
    name = ask.__name__
    aask.__name__ = f"__a{name[2:]}" if name.startswith("__") else f"a{name.lstrip('_')}"
    aask.__qualname__ = ask.__qualname__.removesuffix(name) + aask.__name__
    aask.__annotations__ = {**ask.__annotations__}
    vars(aask)["__signature__"] = inspect.signature(ask)
    return aask
