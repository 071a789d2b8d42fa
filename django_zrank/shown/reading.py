"""Steps whose answers have the attachments of the members in them, which are read in the same round trips."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha1
from typing import Any, Final, TypeVar

from ..codec.layout import Layout, StoredMember
from ..queries.draws import Sample
from ..queries.pages import Page
from ..queries.request import Call, Request
from ..queries.steps import Steps
from ..redis.scripts import Script, library_text

__all__ = ["attaching", "followed"]

Answer = TypeVar("Answer")

_READING: Final = {
    *("count_before", "deal", "deal_tested", "read_page", "read_placements", "read_ranks", "sample_nearby")
}
"""The scripts that return members, or take those that an answer has."""


class FollowedScript(Script):
    """A script of another name that returns what it replies, and the memberships of the members in that."""

    def __init__(self, script: Script) -> None:
        follows = Script("after/memberships", __package__)
        vars(self).update(vars(script))
        further = [library_text(one, ()) for one in follows.libraries if one not in script.libraries]
        libraries = script.source.removesuffix(script.text)
        answer = f"local function answer()\n{script.text}\nend\nlocal name = '{script.name}'"
        self.source = "\n".join([*further, libraries, answer, follows.text])
        self.sha = sha1(self.source.encode(), usedforsecurity=False).hexdigest()


followed = cache(FollowedScript)
"""Return a script with the memberships of the members in its reply."""


def attaching(steps: Steps[Answer], layout: Layout) -> Steps[Answer]:
    """The same steps, whose answer has the attachments of its members: of those in the replies of scripts."""
    found: dict[bytes, bytes] = {}
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, Request):
                    calls = [_following(call) for call in step.calls]
                    outcome = yield Request(calls, *step[1:])
                    for at, call in enumerate(step.calls):
                        if calls[at] is not call:
                            outcome[at], members, memberships = outcome[at]
                            found |= {
                                one: held for one, held in zip(members, memberships, strict=True) if held
                            }
                else:
                    outcome = yield step
            except Exception as error:  # noqa: BLE001 - the generator may know what to do about it
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        return _attached(end.value, found, layout)  # type: ignore[no-any-return]


def _following(call: Call) -> Call:
    """Return the call that reads the memberships of members; the same if it reads none, or if these are known."""
    script, keys, arguments, cost = call
    if not isinstance(script, Script) or script.name not in _READING:
        return call
    if script.name == "count_before" and isinstance(arguments[-1], StoredMember):
        return call
    return Call(followed(script), keys, arguments, cost * 3 // 2)


def _attached(answer: Any, found: Mapping[bytes, bytes], layout: Layout) -> Any:
    """Return an answer with the attachments of its members."""

    def attached(stored: bytes) -> bytes:
        if (membership := found.get(stored)) is None:
            return stored
        member = StoredMember(stored)
        member.attachment = layout.attachment_of(membership)
        return member

    def of(part: Any) -> Any:
        if isinstance(part, bytes):
            return attached(part)
        if isinstance(part, (list, tuple)):
            parts = map(of, part)
            return part._make(parts) if hasattr(part, "_make") else type(part)(parts)
        return part

    # The answers that are read most take half the time.
    if isinstance(answer, Page):
        return Page(*answer[:-1], [(attached(stored), score) for stored, score in answer.members])
    if isinstance(answer, Sample):
        drawn = [(score, attached(stored), before) for score, stored, before in answer.drawn]
        return answer._replace(drawn=drawn)
    return of(answer)
