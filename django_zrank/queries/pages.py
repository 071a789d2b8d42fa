"""Pages: consecutive members."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, NamedTuple

from ..redis import scripts
from ..redis.keys import Keys
from .steps import Steps
from .view import View

__all__ = [
    "Bound",
    "Page",
    "PageAbove",
    "PageAround",
    "PageAt",
    "PageBeside",
    "PageBetween",
    "TopByCommand",
    "parse_page",
]

_CHUNK: Final = 1000
"""Members that are read in one round trip."""


class Bound(NamedTuple):
    """A score at which a page begins or ends."""

    score: str = ""
    """The score as text; '' for no bound."""

    exact: bytes = b""
    """Its tie bytes, if the score alone is not exact."""

    value: Any = None
    """The value in its field's own type; None for no bound."""


class Page(NamedTuple):
    """Consecutive members, best first."""

    size: int
    """Members in the ranking."""

    first: int
    """The number of members before the first one."""

    following: int
    """The number of members from the first one to the end of the ranking, or to the worst score."""

    before: int
    """The rank of the first member less 1; of an empty page, the rank that it would have, less 1."""

    members: list[tuple[bytes, float]]
    """The stored member and score of each."""


class PageAt(NamedTuple):
    """Up to ``limit`` members from the position ``first`` (0 is best) on. As every page, one round trip for 1,000
    members. A member that moves meanwhile appears once, or not at all."""

    first: int
    limit: int

    def steps(self, view: View, keys: Keys) -> Steps[Page]:
        return _read(view, keys, self.limit, "position", self.first)


class TopByCommand(NamedTuple):
    """The best ``limit`` members, at least one, with their scores. For bare primary keys in one ranking."""

    limit: int

    def steps(self, view: View, keys: Keys) -> Steps[list[tuple[bytes, float]]]:
        arguments = (0, self.limit - 1, *(["REV"] if view.reverse else []), "WITHSCORES")
        # Unlike the command, the script distinguishes an empty index from a missing one.
        page = PageAt(0, self.limit)
        found = yield from view.plain_command(
            keys, "ZRANGE", *arguments, otherwise=page, then=attrgetter("members")
        )
        if found and isinstance(found[0], bytes):  # by RESP2
            found = zip(found[::2], map(float, found[1::2]), strict=True)
        return [(stored, score) for stored, score in found]


class PageAround(NamedTuple):
    """``limit`` members with ``member`` in the middle, or at an end of the ranking; None if it is not ranked."""

    member: str
    limit: int

    def steps(self, view: View, keys: Keys) -> Steps[Page | None]:
        return _read(view, keys, self.limit, "member", self.member)


class PageAbove(NamedTuple):
    """The last member that ranks better than ``member``, if there is one, then ``member``, as if it were the first of
    its equals; None if it is not ranked. With ordinal ranks, the member just before it ranks better."""

    member: str

    def steps(self, view: View, keys: Keys) -> Steps[Page | None]:
        return _read(view, keys, 1, "better", self.member)


class PageBeside(NamedTuple):
    """Up to ``limit`` members before a sort key; or after it, with a member that still has it before these. A member
    that doesn't move is neither left out nor repeated, however many round trips it takes."""

    score: float
    stored: bytes
    limit: int
    is_after: bool

    def steps(self, view: View, keys: Keys) -> Steps[Page]:
        def read(score: float, stored: bytes, count: int) -> Steps[Page]:
            ahead, back = (count, 0) if self.is_after else (0, count)
            arguments = (keys.build, *view.order, ahead, count, "sort key", repr(score), stored, back)
            reply = yield from view.read(keys, scripts.READ_PAGE, arguments, 2 * count)
            return parse_page(reply)  # type: ignore[return-value]

        return self.in_pieces(read, _CHUNK)

    def in_pieces(self, read: Callable[[float, bytes, int], Steps[Page]], most: int) -> Steps[Page]:
        """Read a page in pieces of ``most`` members, each from the sort key at the end of the one before. ``read``
        returns so many members on one side of a sort key."""
        members: list[tuple[bytes, float]] = []
        stored, score, left = self.stored, self.score, self.limit
        behind = first = None
        while True:
            count = min(left, most) + self.is_after  # one more: the member that has the sort key
            page = yield from read(score, stored, count)
            left -= len(page.members) - (page.members[:1] == [(stored, score)])
            known = {one for one, _ in members}
            found = [one for one in page.members if one[0] not in known]
            members = [*members, *found] if self.is_after else [*found, *members]
            if first is None or not self.is_after:
                first = page
            if behind is None or self.is_after:
                behind = page.following - len(page.members)
            if left <= 0 or len(page.members) < count:
                return first._replace(members=members, following=len(members) + behind)
            stored, score = page.members[-1 if self.is_after else 0]


class PageBetween(NamedTuple):
    """Up to ``limit`` members with scores from ``best`` to ``worst`` inclusive, after the first ``offset``."""

    best: Bound
    worst: Bound
    limit: int
    offset: int = 0

    def steps(self, view: View, keys: Keys) -> Steps[Page]:
        return _read(view, keys, self.limit, "score", *self.best[:2], *self.worst[:2], self.offset)


def _read(view: View, keys: Keys, count: int, *start: Any) -> Steps[Any]:
    """Read a page in as many round trips as it takes."""
    how = keys.build, *view.order
    arguments = (*how, count, _CHUNK, *start)
    page = parse_page((yield from view.read(keys, scripts.READ_PAGE, arguments, 2 * min(count, _CHUNK))))
    if page is None:
        return None
    known = {stored for stored, _ in page.members}
    at, left = page.first + len(page.members), min(count, page.following) - len(page.members)
    while page.members and left > 0:
        arguments = (*how, left, _CHUNK, "position", at)
        cost = 2 * min(left, _CHUNK)
        rest = parse_page((yield from view.read(keys, scripts.READ_PAGE, arguments, cost)))
        if rest is None or not rest.members:
            break
        page.members.extend(one for one in rest.members if one[0] not in known)
        known.update(stored for stored, _ in rest.members)
        at = rest.first + len(rest.members)
        left = min(left, rest.following) - len(rest.members)
    return page


def parse_page(reply: Any) -> Page | None:
    """Parse the page that the script has read; None if the member is not ranked."""
    if reply[0] == b"not ranked":
        return None
    _, size, first, following, before, members = reply
    pairs = zip(members[::2], map(float, members[1::2]), strict=True)
    return Page(size, first, following, before, list(pairs))
