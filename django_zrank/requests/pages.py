"""Members that stand one after the other."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import scripts
from ..keys import Keys
from .request import Request
from .view import View

__all__ = ["Bound", "Page", "PageAround", "PageAt", "PageBetween"]


class Bound(NamedTuple):
    """A score to begin or end with."""

    score: str = ""
    """As the sorted set compares it; '' for none."""

    exact: bytes = b""
    """Its tie bytes, where the score alone is not exact."""

    value: Any = None
    """The value itself, in its field's own type; None for none."""


class Page(NamedTuple):
    """Members that stand one after the other, best first."""

    size: int
    """Members in the ranking."""

    first: int
    """The number of members before the first one."""

    following: int
    """The number of members from the first to the end of the ranking, or to the worst score asked for."""

    before: int
    """The first one's rank less 1; without a first one, the rank less 1 that it would have."""

    members: list[tuple[bytes, float]]
    """Stored member and score of each."""


class PageAt(NamedTuple):
    """Up to ``limit`` members from the position ``first`` (0 is best) on. One round trip."""

    first: int
    limit: int

    def request(self, view: View, keys: Keys) -> Request[Page]:
        return _request(view, keys, self.limit, "position", self.first)


class PageAround(NamedTuple):
    """``limit`` members with ``member`` in their middle, or at the ranking's end; None where it is not ranked."""

    member: str
    limit: int

    def request(self, view: View, keys: Keys) -> Request[Page | None]:
        arguments = (keys.generation, *view.order, self.limit, "member", self.member)
        return view.read(keys, scripts.READ_PAGE, arguments, _parse)


class PageBetween(NamedTuple):
    """Up to ``limit`` members with scores from ``best`` to ``worst``, ends included, without the first ``offset``."""

    best: Bound
    worst: Bound
    limit: int
    offset: int = 0

    def request(self, view: View, keys: Keys) -> Request[Page]:
        return _request(view, keys, self.limit, "score", *self.best[:2], *self.worst[:2], self.offset)


def _request(view: View, keys: Keys, count: int, *start: Any) -> Request[Page]:
    return view.read(keys, scripts.READ_PAGE, (keys.generation, *view.order, count, *start), _parse)  # type: ignore[arg-type]


def _parse(reply: Any) -> Page | None:
    if reply[0] == b"not ranked":
        return None
    _, size, first, following, before, members = reply
    pairs = zip(members[::2], map(float, members[1::2]), strict=True)
    return Page(size, first, following, before, list(pairs))
