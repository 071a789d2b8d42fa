"""Work in pieces: each is a round trip short enough not to hold up other clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import perf_counter
from typing import Final, TypeVar

__all__ = ["LEAST", "MOST", "TARGET", "Pace"]

Item = TypeVar("Item")
Reply = TypeVar("Reply")

TARGET: Final = 0.002
"""Seconds that one call may take of the server."""

LEAST: Final = 1000
MOST: Final = 2500
"""Bounds of a call's cost, whatever was measured. On a busy host every call is slow, and smaller pieces only make more
of them; and a server that was fast while it was nearly empty would later be blocked for too long."""

_DECAY: Final = 0.8


class Pace:
    """The cost of one call, adapted to the time that the calls before it have taken.

    Cost is counted in look-ups and writes: about a microsecond each. A busy client, and other clients, only ever add
    to the time of a round trip, so the fastest of the last calls shows what the server can do.
    """

    def __init__(self) -> None:
        self._rate = LEAST / TARGET
        """Cost a second. The first call is a small one."""

    @property
    def budget(self) -> int:
        """The most that one call may cost now."""
        return max(LEAST, min(MOST, int(self._rate * TARGET)))

    def note(self, cost: float, seconds: float) -> None:
        """Learn from a call. A small one is ignored: its time is that of the round trip, not of the work."""
        if cost >= LEAST / 2:
            self._rate = max(cost / seconds, self._rate * _DECAY)

    def run(
        self,
        call: Callable[[list[Item]], Reply],
        items: Iterable[Item],
        cost: int | Callable[[Item], int] = 1,
    ) -> Iterator[Reply]:
        """Make one call for each piece of ``items``, with the piece as its argument, and yield the replies.

        ``cost``: of an item. An item that costs more than the budget makes a piece of its own. Without items, one call
        is made with an empty piece.
        """
        for number, (piece, spent) in enumerate(self._pieces(iter(items), cost)):
            if piece or not number:
                began = perf_counter()
                reply = call(piece)
                self.note(spent, perf_counter() - began)
                yield reply

    def _pieces(
        self, items: Iterator[Item], cost: int | Callable[[Item], int]
    ) -> Iterator[tuple[list[Item], int]]:
        """Pieces with their costs; the last one may be empty."""
        if isinstance(cost, int):
            more = True
            while more:
                piece = list(islice(items, max(1, self.budget // cost)))
                yield piece, len(piece) * cost
                more = bool(piece)
            return
        piece, spent = [], 0
        for item in items:
            price = cost(item)
            if piece and spent + price > self.budget:
                yield piece, spent
                piece, spent = [], 0
            piece.append(item)
            spent += price
        yield piece, spent
