"""Multiset sketches of the difference between Redis and the database."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from secrets import token_bytes
from struct import Struct
from typing import Final

from ..codec.layout import Layout
from .rows import EncodedRow

__all__ = ["MultisetSketch", "Values", "Weights", "group_of", "member_getter"]

_NAMES: Final = 10_000
"""The number of combinations of facet rankings whose weights are cached."""

_pack = Struct("<d8s").pack


def member_getter(layout: Layout) -> Callable[[bytes], bytes]:
    """Return a function from a stored member to its primary key."""
    if layout.memberships and not layout.width:
        return lambda stored: layout.split(stored)[1]
    return itemgetter(slice(layout.width, None))


class MultisetSketch:
    """The difference of two multisets of weighted records, in 8 MB.

    A record's weight is added to the cell of its group, one of a million, for one side, and subtracted for the other. A
    group whose cell isn't zero in the end must be compared.
    """

    _CELLS: Final = 1 << 20
    _WRAP: Final = (1 << 64) - 1

    def __init__(self) -> None:
        self._cells = array("Q", bytes(8 * self._CELLS))

    def add(self, groups: Iterable[bytes], weights: Iterable[int], factor: int = 1) -> None:
        """Add the weight of each record, times ``factor``, to its group."""
        cells, last, wrap = self._cells, self._CELLS - 1, self._WRAP
        for number, weight in zip(map(hash, groups), weights, strict=True):
            cell = number & last
            cells[cell] = (cells[cell] + weight * factor) & wrap

    def is_uneven(self, group: bytes) -> bool:
        """Return True if the cell of a group isn't zero."""
        return self._cells[hash(group) & (self._CELLS - 1)] != 0

    def __bool__(self) -> bool:
        """Return True if any cell isn't zero."""
        return any(self._cells)


class Weights:
    """A sketch of members and memberships, in which what is equal on both sides cancels out.

    The weight of a member in a ranking is the product of two hashes, of the member with its score and of the ranking,
    so a row is hashed once, however many rankings it is in. Hashes are Python's (SipHash), of 64 bits, with a random
    salt for each comparison. The probability that a difference cancels out is below 2**-50.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.sketch = MultisetSketch()
        """By members."""

        self._salt = token_bytes(8)
        self._rankings = lru_cache(_NAMES)(self._weigh_rankings)

        self.member_of = member_getter(layout)

    def _weigh_rankings(self, names: bytes) -> int:
        """Return the weight of the whole index and these facet rankings, joined by NUL bytes."""
        return sum(map(self.hash, {b"", *names.split(b"\0")}))

    def hash(self, text: bytes) -> int:
        """Return the salted hash of a text."""
        return hash(self._salt + text)

    def add_rows(self, rows: Mapping[bytes, EncodedRow]) -> None:
        """Add each member with the rankings that its row puts it in."""
        self.sketch.add(rows, self._weigh_rows(rows))

    def _weigh_rows(self, rows: Mapping[bytes, EncodedRow]) -> Iterator[int]:
        salt, split, weigh, whole = self._salt, self.layout.split, self._rankings, self._rankings(b"")
        for member, (_, score, membership) in rows.items():
            if membership:
                tie, names = split(membership)
                weight = hash(tie + member + _pack(score, salt)) * weigh(names)
                yield weight + hash(salt.join((member, membership)))
            else:
                yield hash(member + _pack(score, salt)) * whole

    def subtract_ranking(self, name: str, members: Sequence[tuple[bytes, float]]) -> None:
        """Subtract each stored member with the score that it has in a ranking in Redis."""
        texts = (stored + _pack(score, salt) for salt in [self._salt] for stored, score in members)
        stored = map(itemgetter(0), members)
        self.sketch.add(map(self.member_of, stored), map(hash, texts), -self.hash(name.encode()))

    def subtract_memberships(self, memberships: Mapping[bytes, bytes]) -> None:
        """Subtract each member with its membership in Redis."""
        self.sketch.add(memberships, map(hash, map(self._salt.join, memberships.items())), -1)


class Values:
    """A sketch of distinct values: those of members, minus those that are counted and listed."""

    def __init__(self, weights: Weights) -> None:
        self.sketch = MultisetSketch()
        """By :func:`group_of`."""

        self._hash, self._member_of = weights.hash, weights.member_of

    def of(self, members: Iterable[tuple[bytes, float]]) -> list[bytes]:
        """Return the distinct value of each stored member."""
        found = ((stored, len(stored) - len(self._member_of(stored)), score) for stored, score in members)
        return [stored[:width] + b"%.17g" % score for stored, width, score in found]

    def add_ranking(self, name: str, members: Iterable[tuple[bytes, float]]) -> None:
        """Add the value of each member of a ranking."""
        groups = [group_of(name, value) for value in self.of(members)]
        self.sketch.add(groups, (self._hash(b"count" + group) for group in groups))

    def subtract_counts(self, name: str, counts: Mapping[bytes, bytes]) -> None:
        """Subtract each value that is counted, and must be listed. An invalid count never cancels out."""

        def weigh(group: bytes, text: bytes) -> int:
            if len(text) < 20 and text.isdigit() and text == b"%d" % int(text) != b"0":
                return int(text) * self._hash(b"count" + group) + self._hash(b"value" + group)
            return self._hash(b"no count" + text + group)

        groups = [group_of(name, value) for value in counts]
        self.sketch.add(groups, map(weigh, groups, counts.values()), -1)

    def add_listed(self, name: str, values: Sequence[tuple[bytes, float]]) -> None:
        """Add each value that is listed. One with a wrong score never cancels out."""

        def weigh(group: bytes, listed: tuple[bytes, float]) -> int:
            value, score = listed
            try:
                is_right = float(self._member_of(value)) == score
            except ValueError:
                is_right = False
            return self._hash((b"value" if is_right else b"no value") + group)

        groups = [group_of(name, value) for value, _ in values]
        self.sketch.add(groups, map(weigh, groups, values))


def group_of(name: str, value: bytes) -> bytes:
    """Return the group of a distinct value of a ranking."""
    return name.encode() + b"\0" + value
