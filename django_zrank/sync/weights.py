"""Weights of what either side of an index holds, for a sketch of their difference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from operator import itemgetter
from secrets import token_bytes
from struct import Struct
from typing import Final

from ..codec.layout import Layout
from .rows import Row

__all__ = ["Weights"]

_NAMES: Final = 10_000
"""The number of combinations of facet rankings whose weights are cached."""

_pack = Struct("<d8s").pack


class Weights:
    """Records of both sides with their weights: those of Redis are negative, so that what agrees adds up to nothing.

    A member, its score and a ranking weigh the product of two hashes, of the member with its score and of the ranking:
    so a row is hashed once, however many rankings it stands in. A membership weighs the product of its hash and its
    member's. The hashes are Python's (SipHash), of 64 bits, with a salt drawn for each comparison. What differs is a
    sum of such products: it comes to zero, and is overlooked, with a probability below 2**-50.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._salt = token_bytes(8)
        self._rankings = lru_cache(_NAMES)(self._weigh_rankings)

        self.member_of: Callable[[bytes], bytes] = (
            (lambda stored: layout.split(stored)[1])
            if layout.memberships and not layout.width
            else itemgetter(slice(layout.width, None))
        )
        """A function from a stored member to its primary key."""

    def _weigh_rankings(self, names: bytes) -> int:
        """The rankings of a member with these facet rankings, joined by NUL bytes: the whole index is one of them."""
        return sum(self._hash(name) for name in {b"", *names.split(b"\0")})

    def _hash(self, text: bytes) -> int:
        return hash(self._salt + text)

    def rows(self, rows: Mapping[bytes, Row]) -> Iterator[tuple[bytes, int]]:
        """Each member as its row says that it should stand."""
        salt, split, weigh = self._salt, self.layout.split, self._rankings
        for member, (_, score, membership) in rows.items():
            if membership:
                tie, names = split(membership)
                weight = hash(tie + member + _pack(score + 0.0, salt)) * weigh(names)
                yield member, weight + (hash(member) | 1) * hash(salt + membership)
            else:
                yield member, hash(member + _pack(score + 0.0, salt)) * weigh(b"")

    def ranking(self, name: str, members: Iterable[tuple[bytes, float]]) -> Iterator[tuple[bytes, int]]:
        """Each stored member with the score that it has in a ranking in Redis."""
        salt, member_of, weight = self._salt, self.member_of, -self._hash(name.encode())
        for stored, score in members:
            yield member_of(stored), hash(stored + _pack(score + 0.0, salt)) * weight

    def memberships(self, memberships: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, int]]:
        """Each member with its membership in Redis."""
        salt = self._salt
        for member, membership in memberships:
            yield member, -(hash(member) | 1) * hash(salt + membership)

    # Distinct values. Their group is the ranking and the value

    def value_of(self, stored: bytes, score: float) -> bytes:
        """The distinct value that a stored member has."""
        return stored[: len(stored) - len(self.member_of(stored))] + b"%.17g" % score

    def values(self, name: str, members: Iterable[tuple[bytes, float]]) -> Iterator[tuple[bytes, int]]:
        """The value of each member of a ranking."""
        for stored, score in members:
            group = group_of(name, self.value_of(stored, score))
            yield group, self._hash(b"count" + group)

    def counts(self, name: str, counts: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, int]]:
        """Each value that is counted, and so must be listed. A count that isn't one never adds up."""
        for value, text in counts:
            group = group_of(name, value)
            if text.isdigit() and text == b"%d" % int(text) != b"0":
                yield group, -int(text) * self._hash(b"count" + group) - self._hash(b"value" + group)
            else:
                yield group, self._hash(b"no count" + text + group)

    def listed(self, name: str, values: Iterable[tuple[bytes, float]]) -> Iterator[tuple[bytes, int]]:
        """Each value that is listed, by its score; one at another score never adds up."""
        for value, score in values:
            group = group_of(name, value)
            number = self.member_of(value)
            try:
                is_right = float(number) == score
            except ValueError:
                is_right = False
            yield group, self._hash((b"value" if is_right else b"no value") + group)


def group_of(name: str, value: bytes) -> bytes:
    """The group of a distinct value of a ranking."""
    return name.encode() + b"\0" + value
