"""Positions of scans, which read large keys a piece at a time, while others write them."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

from ..requests.request import Call

__all__ = ["Fields", "Members"]


class Fields(NamedTuple):
    """A position in a hash."""

    cursor: int = 0

    def call(self, key: str, size: int) -> Call:
        """Return the call that reads about ``size`` fields from here."""
        return Call("HSCAN", (key,), (self.cursor, "COUNT", size))

    def take(
        self, reply: tuple[int, dict[bytes, bytes]], size: int
    ) -> tuple[dict[bytes, bytes], Fields | None]:
        """Return what was found, and the position to go on from: None at the end."""
        cursor, found = reply
        return found, Fields(cursor) if cursor else None


class Members(NamedTuple):
    """A position in a sorted set. To read that in its order takes the server half as long as ZSCAN.

    A member with a lower score that comes or goes shifts all others. So a piece begins with members that were read
    before. If it doesn't, some may have been skipped, and the position is moved back.
    """

    start: int = 0

    last: tuple[float, bytes] = (float("-inf"), b"")
    """Score and member: what is beyond them was not read yet."""

    def call(self, key: str, size: int) -> Call:
        """Return the call that reads ``size`` members from here."""
        return Call("ZRANGE", (key,), (self.start, self.start + max(size, 2) - 1, "WITHSCORES"))

    def take(self, reply: list[Any], size: int) -> tuple[list[tuple[bytes, float]], Members | None]:
        """Return what was found, and the position to go on from: None at the end."""
        if reply and isinstance(reply[0], list):  # RESP3
            found: list[tuple[bytes, float]] = list(map(tuple, reply))
        else:
            found = list(zip(reply[::2], map(float, reply[1::2]), strict=True))
        size = max(size, 2)
        if self.start and (not found or _key(found[0]) > self.last):
            return [], Members(max(0, self.start - size), self.last)
        is_end = len(found) < size
        new = found[bisect_right(found, self.last, key=_key) :]
        if is_end:
            return new, None
        overlap = max(1, size // 32)
        return new, Members(self.start + size - overlap, _key(new[-1]) if new else self.last)


def _key(found: tuple[bytes, float]) -> tuple[float, bytes]:
    member, score = found
    return score, member
