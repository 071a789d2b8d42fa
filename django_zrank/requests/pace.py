"""Work in pieces: each is a round trip short enough not to hold up other clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

__all__ = ["LEAST", "MOST", "TARGET", "Pace"]

Item = TypeVar("Item")
Reply = TypeVar("Reply")

TARGET: Final = 0.0015
"""Seconds of its processor that one call may take of the server."""

LEAST: Final = 500
MOST: Final = 4000
"""Bounds of a call's cost, whatever was measured. Below, nearly all of a call would be its round trip; and a server
that was fast while it was nearly empty would later be blocked for too long."""

_SHARE: Final = 0.3
"""The weight of the last call."""


class Pace:
    """The cost of one call, adapted to what the calls before it have taken of the server's processor.

    Cost is counted in look-ups and writes: about half a microsecond each. A server says itself what a call has taken:
    the time of a round trip is longer where the client, the server or its host is busy with something else, and
    smaller pieces would only make more of them.
    """

    def __init__(self, least: int = LEAST, most: int = MOST) -> None:
        self._least, self._most = least, most
        self._rate = least / TARGET
        """Cost a second. The first call is a small one."""

    @property
    def budget(self) -> int:
        """The most that one call may cost now."""
        return max(self._least, min(self._most, int(self._rate * TARGET)))

    def note(self, cost: float, seconds: float) -> None:
        """Learn from a call. A small one is ignored: its time is that of what each call begins and ends with."""
        if cost >= self._least / 2 and seconds > 0:
            self._rate += _SHARE * (cost / seconds - self._rate)

    def run(
        self,
        call: Callable[[list[Sequence[Item]]], tuple[Reply, float]],
        groups: Iterable[tuple[int, Sequence[Item]]],
    ) -> Iterator[Reply]:
        """Make one call for each piece, and yield the replies. The call also returns the seconds that it has taken of
        the server, 0 where that isn't known.

        ``groups``: items, with what each of them costs. A piece is a list of slices of groups. An item that costs more
        than the budget makes a piece of its own. Without items, one call is made with an empty piece.
        """
        for piece, spent in self.pieces(groups):
            reply, seconds = call(piece)
            self.note(spent, seconds)
            yield reply

    def pieces(
        self, groups: Iterable[tuple[int, Sequence[Item]]], most: int | None = None
    ) -> Iterator[tuple[list[Sequence[Item]], int]]:
        """Pieces with their costs, none above ``most``; without items, an empty one."""
        piece: list[Sequence[Item]] = []
        spent = budget = 0
        for price, items in groups:
            at = 0
            while at < len(items):
                if not piece:  # once for each: another thread may learn while a piece is cut
                    budget = self.budget if most is None else min(self.budget, most)
                count = max((budget - spent) // price, not piece)
                if count > 0:
                    piece.append(items[at : at + count])
                    spent += price * len(piece[-1])
                    at += count
                else:
                    yield piece, spent
                    piece, spent = [], 0
        yield piece, spent
