"""Exceptions."""

__all__ = [
    "Busy",
    "CaptureError",
    "FilterTooLarge",
    "IndexUnavailable",
    "IndexUnhealthy",
    "NotBuilt",
    "NotIsolated",
    "NotRanked",
    "RebuildSuperseded",
    "Unrankable",
    "ZRankError",
]


class ZRankError(Exception):
    """Base of every error that this app raises on purpose."""


class NotRanked(ZRankError):
    """The member asked about is not in the ranking."""


class IndexUnavailable(ZRankError):
    """The index can't answer: it is not built, or its Redis can't be reached."""


class NotBuilt(IndexUnavailable):
    """The index was never built, or its Redis was emptied, or its declaration has changed since."""


class IndexUnhealthy(IndexUnavailable):
    """Redis restarted or failed over, and may have lost the newest writes; they are being replayed."""


class NotIsolated(IndexUnavailable):
    """A test would use the project's Redis, or something for tests is called outside of them."""


class FilterTooLarge(ZRankError, ValueError):
    """No declared facet covers a combination of filters, and it leaves too many members to be computed at once."""


class RebuildSuperseded(ZRankError):
    """Another rebuild of the same index began, and this one gave way."""


class Busy(ZRankError):
    """Another process holds the row of the index's generation. Nothing was changed; marks go on waiting."""


class CaptureError(ZRankError):
    """The database can't hold the triggers that record changes."""


class Unrankable(ZRankError, ValueError):
    """A value has no exact place in the order: NaN, an infinity, or beyond what a score holds."""
