"""Erasure of a member: what :class:`~django_zrank.RankIndex` offers, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async

from ..exceptions import ZRankError

__all__ = ["Erased", "Erasing", "StillRanked"]


class StillRanked(ZRankError):
    """A member can't be erased, because the next push would rank its row again."""


@dataclass
class Erased:
    """The result of an erasure."""

    index: str

    member: str
    """The primary key, as Redis stores it."""

    removed: dict[str, int] = field(default_factory=dict)
    """The number of places that held the primary key, by kind: ``rankings`` of all builds; ``pending`` changes, also
    those in flushes; ``touched``; ``group`` for groups; ``remembered`` for lists of members shown to others;
    ``combined_filter`` for combined filters, which are removed as a whole; ``marks`` that were processed."""

    remains: dict[str, datetime | None] = field(default_factory=dict)
    """The kinds of places that still hold the primary key, and until when. None means that the member must be erased
    again: after the running rebuild for ``newest writes`` and ``former shards``, and after a drain for ``marks``."""


class Erasing:
    """The methods of an index that erase a member."""

    if TYPE_CHECKING:

        @classmethod
        def instance(cls) -> Any:
            """Return the instance that serves this process."""

    @classmethod
    def erase(cls, member: Any) -> Erased:
        """Remove the primary key of ``member`` from everything that is stored for the index. Return what was removed,
        what remains, and until when. The row must be deleted, or have left the queryset. See
        :func:`~django_zrank.erase.erasure.erase`."""
        from .erasure import erase

        return erase(cls.instance(), member)

    @classmethod
    async def aerase(cls, member: Any) -> Erased:
        """The asynchronous version of :meth:`erase`."""
        return await sync_to_async(cls.erase)(member)
