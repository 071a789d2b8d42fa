"""Exceptions."""

__all__ = [
    "Busy",
    "CaptureError",
    "FilterNotReady",
    "FilterTooLarge",
    "IndexUnavailable",
    "IndexUnhealthy",
    "NotBuilt",
    "NotIsolated",
    "NotRanked",
    "RankingChanged",
    "RebuildSuperseded",
    "StillRanked",
    "Unrankable",
    "ZRankError",
]


class ZRankError(Exception):
    """Base class of the app's exceptions."""


class NotRanked(ZRankError):
    """The member is not in the ranking."""


class IndexUnavailable(ZRankError):
    """The index can't be read: it is not built, or its Redis can't be reached."""


class NotBuilt(IndexUnavailable):
    """The index was never built, or its Redis was emptied, or its declaration has changed since."""


class IndexUnhealthy(IndexUnavailable):
    """Redis restarted or failed over, and may have lost the newest writes, which are being replayed."""


class NotIsolated(IndexUnavailable):
    """A test would use the project's Redis, or a test helper was called outside of tests."""


class FilterTooLarge(ZRankError, ValueError):
    """No declared facet covers a combination of filters, and the smallest of them has too many members."""


class FilterNotReady(ZRankError):
    """A combination of filters that no declared facet covers isn't computed in time, or too many others are kept. What
    is computed so far is kept for some seconds, so that the same call goes on from there."""


class RankingChanged(ZRankError):
    """A ranking has changed while a snapshot of it was read."""


class RebuildSuperseded(ZRankError):
    """Another rebuild of the same index began, so this one ended."""


class StillRanked(ZRankError):
    """A member can't be erased, because the next push would rank its row again."""


class Busy(ZRankError):
    """Another process holds the lock on the index's generation. Nothing was changed, and marks still wait."""


class CaptureError(ZRankError):
    """The database can't hold the triggers that record changes."""


class Unrankable(ZRankError, ValueError):
    """A value can't be ranked: NaN, an infinity, or a number beyond what a score holds."""
