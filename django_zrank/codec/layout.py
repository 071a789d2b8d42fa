"""The layout of an index in Redis, as its scripts need it. Pure data, no I/O.

A *stored member* is the tie bytes of :class:`~django_zrank.codec.order.Order`, then the primary key as text. It is in
the sorted set of the whole index and in those of its facets, with the same score in each.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["PLAIN", "Layout"]


class Layout(NamedTuple):
    width: int = 0
    """The number of tie bytes before every primary key. With 0, a stored member that begins with a NUL byte has 9,
    including the NUL: only integers beyond ±2**53 need them, and no primary key begins with NUL."""

    memberships: bool = False
    """True if a hash holds the *membership* of each member: its tie bytes, then the names of its facet rankings,
    sorted and joined by NUL bytes. Members with neither have no membership."""

    dense: bool = False
    """True if every ranking keeps its distinct values, sorted and counted. Dense ranks are read from them."""

    def split(self, stored: bytes) -> tuple[bytes, bytes]:
        """Return the tie bytes and the primary key of a stored member."""
        width = self.width or (9 if self.memberships and stored[:1] == b"\0" else 0)
        return stored[:width], stored[width:]


PLAIN: Final = Layout()
"""A sorted set of bare primary keys, and nothing else."""
