"""Steps towards an answer: generators that yield what they need done, for blocking code and for coroutines alike."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

from ..queries.query import merged
from ..queries.request import Blocking, Request

__all__ = ["MAY_BLOCK", "Blocking", "Once", "Send", "Step", "Steps", "drive", "together"]

Answer = TypeVar("Answer")


async def _may_not() -> bool:
    return False


MAY_BLOCK: Final[Blocking[bool]] = Blocking(lambda: True, _may_not)
"""The step whose outcome is True in blocking code, and False in coroutines."""


@dataclass(frozen=True, slots=True)
class Once:
    """Steps without an answer, taken once for all coroutines of a loop that need them at the same time.

    ``begin`` and ``is_due`` take the loop whose connections they are about, or None for those of blocking code.
    """

    key: Hashable
    begin: Callable[[Any], Steps[None]]
    is_due: Callable[[Any], bool]


Step: TypeAlias = "Request | Blocking[Any] | Once"

Steps: TypeAlias = Generator[Step, Any, Answer]
"""Yields steps, is sent their outcomes (of a request the replies), and returns the answer."""

Send: TypeAlias = Callable[[Request], list[Any]]


def drive(steps: Steps[Answer], send: Send) -> Answer:
    """Take the steps one by one, and return the answer."""
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, Request):
                    outcome: Any = send(step)
                elif isinstance(step, Blocking):
                    outcome = step.call()
                else:
                    outcome = drive(step.begin(None), send) if step.is_due(None) else None
            except Exception as error:  # noqa: BLE001 - the steps may know what to do about it
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def together(several: Sequence[Steps[Answer]]) -> Steps[list[Answer]]:
    """Take the steps of several side by side: what they request goes in one round trip, what blocks in one thread.
    An error ends all of them. None of them may yield a :class:`Once`."""
    answers: dict[int, Answer] = {}
    outcomes: dict[int, Any] = dict.fromkeys(range(len(several)))
    while outcomes:
        waiting: dict[int, Step] = {}
        for at, outcome in outcomes.items():
            try:
                waiting[at] = several[at].send(outcome)
            except StopIteration as end:
                answers[at] = end.value
        outcomes = {}
        requests = {at: step for at, step in waiting.items() if isinstance(step, Request)}
        if requests:
            replies = iter((yield merged(list(requests.values()), spread=True)))
            outcomes |= {at: list(islice(replies, len(one.calls))) for at, one in requests.items()}
        blocking = {at: step.call for at, step in waiting.items() if isinstance(step, Blocking)}
        if blocking:
            found = yield Blocking(partial(_call_all, tuple(blocking.values())))
            outcomes |= zip(blocking, found, strict=True)
    return [answers[at] for at in range(len(several))]


def _call_all(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    return [call() for call in calls]
