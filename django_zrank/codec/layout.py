"""The layout of an index in Redis, as its scripts have to know it. Pure data, no I/O.

A *stored member* is the tie bytes of :class:`~django_zrank.codec.order.Order` and then the primary key as text. It
stands in the sorted set of the whole index and in those of its facets, with the same score in each.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["PLAIN", "Layout"]


class Layout(NamedTuple):
    """The layout of an index."""

    width: int = 0
    """The number of tie bytes before every primary key. With 0, a stored member that begins with a NUL byte
    has 9 of them, that one included: only integers beyond ±2**53 need some, and no primary key begins so."""

    memberships: bool = False
    """True if a hash holds the *membership* of each member: its tie bytes, then the names of the facet rankings it
    stands in, sorted and joined by NUL bytes. Members with neither have no membership."""

    dense: bool = False
    """True if every ranking keeps its distinct values, in their order and with their counts: what dense ranks
    are read from."""

    def split(self, stored: bytes) -> tuple[bytes, bytes]:
        """The tie bytes and the primary key of a stored member."""
        width = self.width or (9 if self.memberships and stored[:1] == b"\0" else 0)
        return stored[:width], stored[width:]


PLAIN: Final = Layout()
"""A sorted set and nothing else."""
