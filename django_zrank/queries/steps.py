"""Steps to an answer: generators that yield each step, are sent its outcome, and return the answer; for blocking code
and for coroutines alike."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

from ..redis.keys import Keys
from .request import FULL, Blocking, Call, Request

if TYPE_CHECKING:
    from .view import View

__all__ = [
    "IS_SYNC",
    "Once",
    "Question",
    "Send",
    "Several",
    "Step",
    "Steps",
    "drive",
    "merged",
    "one",
    "together",
]

Answer = TypeVar("Answer")
Found = TypeVar("Found", covariant=True)


async def _is_not() -> bool:
    return False


IS_SYNC: Final[Blocking[bool]] = Blocking(lambda: True, _is_not)
"""The step whose outcome is True in blocking code, and False in coroutines."""


@dataclass(frozen=True, slots=True)
class Once:
    """Steps without an answer, taken once for all coroutines of a loop that need them at the same time.

    ``begin`` and ``is_due`` take the loop whose connections they are about, or None for those of blocking code.
    """

    key: Hashable
    begin: Callable[[Any], Steps[Any]]
    is_due: Callable[[Any], bool]


Step: TypeAlias = "Request | Blocking[Any] | Once"

Steps: TypeAlias = Generator[Step, Any, Answer]
"""Yields steps, is sent their outcomes (of a request, which is a round trip, the replies to its calls), and returns the
answer."""

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
            except Exception as error:  # noqa: BLE001 - the generator may know what to do about it
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def one(call: Call, **how: bool) -> Steps[Any]:
    """Return the reply to one call; ``how``: attributes of its request."""
    (reply,) = yield Request((call,), **how)
    return reply


def together(several: Sequence[Steps[Answer]], *, at_once: int | None = None) -> Steps[list[Answer]]:
    """Return the answers of several side by side: what they request shares round trips, what blocks is called
    in one thread. An error ends all of them. None of them may yield a :class:`Once`.

    ``at_once``: the most that go in one round trip, or fewer, as they cost; all if it is None."""
    answers: dict[int, Answer] = {}
    waiting: dict[int, Request] = {}
    blocking: dict[int, Blocking[Any]] = {}

    def advance(at: int, outcome: Any) -> None:
        try:
            step = several[at].send(outcome)
        except StopIteration as end:
            answers[at] = end.value
        else:
            if isinstance(step, Request):
                waiting[at] = step
            else:
                blocking[at] = step  # type: ignore[assignment]

    for at in range(len(several)):
        advance(at, None)
    while waiting or blocking:
        if blocking:
            begun, blocking = blocking, {}
            asked = list(dict.fromkeys(begun.values()))  # several may wait in the same step
            found = [(yield asked[0])] if len(asked) == 1 else (yield Blocking(partial(_call_all, asked)))
            outcomes = dict(zip(asked, found, strict=True))
            for at, step in begun.items():
                advance(at, outcomes[step])
            continue
        sent = _first(waiting, at_once)
        replies = iter((yield merged(list(sent.values()))))
        # Those that have begun end first, because what they have put into Redis expires.
        later = {at: request for at, request in waiting.items() if at not in sent}
        waiting.clear()
        for at, request in sent.items():
            advance(at, list(islice(replies, len(request.calls))))
        waiting |= later
    return [answers[at] for at in range(len(several))]


def _call_all(steps: Iterable[Blocking[Any]]) -> list[Any]:
    return [step.call() for step in steps]


def merged(requests: Sequence[Request], *, each: bool = False) -> Request:
    """Return one request for the calls of several."""
    calls, writes, atomic = list[Call](), False, False
    for request in requests:
        calls += request.calls
        writes, atomic = writes or request.writes, atomic or request.atomic
    return Request(tuple(calls), writes=writes, atomic=atomic, each=each)


def _first(waiting: Mapping[int, Request], most: int | None) -> Mapping[int, Request]:
    """Return the first requests, as many as go in one round trip: at least one."""
    if most is None:
        return dict(waiting)
    first: dict[int, Request] = {}
    cost = 0
    for at, request in waiting.items():
        cost += request.cost
        if first and (cost > FULL or len(first) == most):
            break
        first[at] = request
    return first


class Question(Protocol[Found]):
    """A question about a ranking, answered from Redis in steps, or from the database by SQL."""

    def steps(self, view: View, keys: Keys) -> Steps[Found]:
        """Return the steps to the answer of Redis."""


@dataclass(frozen=True, slots=True)
class Several(Generic[Answer]):
    """Several questions, at most ``at_once`` of them in a round trip."""

    questions: Sequence[Question[Answer]]
    at_once: int = 100

    def steps(self, view: View, keys: Keys) -> Steps[list[Answer]]:
        return self.joined([question.steps(view, keys) for question in self.questions])

    def joined(self, several: Sequence[Steps[Answer]]) -> Steps[list[Answer]]:
        """Answer the questions together."""
        return together(several, at_once=self.at_once)
