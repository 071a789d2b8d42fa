"""Answers by SQL, where Redis can't be believed: the same contract, slower, and bounded in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .index import RankIndex

__all__ = ["DatabaseSource"]


class DatabaseSource:
    """The database in Redis's stead."""

    def __init__(self, index: RankIndex) -> None:
        self.index = index
