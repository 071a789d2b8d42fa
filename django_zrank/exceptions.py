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
    "RebuildSuperseded",
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
    """The index was never built, its Redis was emptied, or its declaration has changed since."""


class IndexUnhealthy(IndexUnavailable):
    """Redis restarted or failed over, and may have lost the newest writes, which are being replayed."""


class NotIsolated(IndexUnavailable):
    """A test tried to use the project's Redis, or a test helper was called outside of tests."""


class FilterTooLarge(ZRankError, ValueError):
    """No declared facet covers several filters, and the smallest of them has too many members; or the values of
    a filter make more than 1,000 combinations of a composite facet."""


class FilterNotReady(ZRankError):
    """No declared facet covers several filters, and what answers them wasn't computed in time, or is too much beside
    what is kept. The partial result is kept for some seconds. If you repeat the call, it continues from there."""


class RebuildSuperseded(ZRankError):
    """Another rebuild of the same index began, so this one ended."""


class Busy(ZRankError):
    """Rows stayed locked by other processes for too long. Marks that could not be processed, or scores that could not
    be written, still wait. The call can be repeated."""


class CaptureError(ZRankError):
    """The triggers that record changes can't be created."""


class Unrankable(ZRankError, ValueError):
    """A value can't be ranked: NaN, an infinity, or a number beyond what a score holds."""
