"""Pages: consecutive members."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from .. import scripts
from ..keys import Keys
from .request import FEW, Request
from .view import View

__all__ = ["Bound", "Page", "PageAround", "PageAt", "PageBetween", "parse_page"]

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

    def request(self, view: View, keys: Keys) -> Request[Page]:
        return _request(view, keys, self.limit, "position", self.first)


class PageAround(NamedTuple):
    """``limit`` members with ``member`` in the middle, or at an end of the ranking; None if it is not ranked."""

    member: str
    limit: int

    def request(self, view: View, keys: Keys) -> Request[Page | None]:
        return _request(view, keys, self.limit, "member", self.member)


class PageBetween(NamedTuple):
    """Up to ``limit`` members with scores from ``best`` to ``worst`` inclusive, after the first ``offset``."""

    best: Bound
    worst: Bound
    limit: int
    offset: int = 0

    def request(self, view: View, keys: Keys) -> Request[Page]:
        return _request(view, keys, self.limit, "score", *self.best[:2], *self.worst[:2], self.offset)


def _request(view: View, keys: Keys, count: int, *start: Any) -> Request[Any]:
    arguments = (keys.generation, *view.order, count, _CHUNK, *start)

    def go_on(page: Page | None) -> Page | Request[Page] | None:
        left = page and min(count, page.following) - len(page.members)
        if not page or not page.members or not left:
            return page
        after = _request(view, keys, left, "position", page.first + len(page.members))
        return after.then(lambda rest: _joined(page, rest))

    cost = 2 * min(count, _CHUNK)
    page: Request[Any] = view.read(keys, scripts.READ_PAGE, arguments, parse_page, cost).then(go_on)
    return page._replace(light=count <= FEW)


def _joined(page: Page, rest: Page) -> Page:
    known = {stored for stored, _ in page.members}
    return page._replace(members=page.members + [one for one in rest.members if one[0] not in known])


def parse_page(reply: Any) -> Page | None:
    """Parse the page that the script has read; None if the member is not ranked."""
    if reply[0] == b"not ranked":
        return None
    _, size, first, following, before, members = reply
    pairs = zip(members[::2], map(float, members[1::2]), strict=True)
    return Page(size, first, following, before, list(pairs))
