"""Verification of the distinct values of a ranking, and of the numbers of members that have each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ..iteration import batched
from ..queries.request import Call
from ..redis.scripts import Script
from ..store import Replaced, Store

__all__ = ["CHECK_COUNTS", "check_counts", "wrong_counts"]

CHECK_COUNTS: Final = Script("check_counts", __package__ or "")

_VALUES: Final = 100
"""Distinct values that one call counts: those with tie bytes take two binary searches each."""

_REMEMBERED: Final = 5000
"""The most wrong values of a ranking that are returned."""


def check_counts(
    store: Store, build: str, ranking: bytes, values: Sequence[bytes]
) -> list[tuple[bytes, int, bytes, bool]]:
    """Return for each distinct value of a ranking the number of members that have it; the number that is counted,
    as text; and true if that is right, and the value is listed or not as it should be. Raises :exc:`Replaced` if
    the server holds another build, or isn't the one that was written to."""
    keys = (store.keys.at(build).root, store.keys.meta)
    checked: list[tuple[bytes, int, bytes, bool]] = []
    for piece in batched(values, _VALUES):
        reply = store.call(CHECK_COUNTS, keys, (build, store.layout.width, ranking, *piece))
        if reply == [b"superseded"]:
            raise Replaced
        checked += (
            (value, right, counted, outcome == b"right")
            for value, (right, counted, outcome) in zip(piece, reply[1:], strict=True)
        )
    return checked


def wrong_counts(
    store: Store, build: str, ranking: bytes, size: int, was_written: Callable[[], bool]
) -> dict[bytes, tuple[int, int | None]]:
    """Return the distinct values of a ranking of so many members that are counted wrongly, each with the right number
    and the one that is counted. Those that are listed are counted; if these are not as many members, or values, as
    there are, so are the values of all counts, and of all members."""
    wrong, total = dict[bytes, tuple[int, int | None]](), 0

    def check(values: Iterable[bytes]) -> None:
        nonlocal total
        for value, right, counted, is_right in check_counts(store, build, ranking, list(values)):
            total += right
            if not is_right and len(wrong) < _REMEMBERED:
                wrong.setdefault(value, (right, int(counted) if counted.isdigit() else None))

    key: Any = b":".join(filter(None, (store.keys.at(build).root.encode(), ranking)))
    listed, counts = key + b":values", key + b":counts"
    for values in store.scan("ZSCAN", listed):
        check(values)
    numbers = store.read([Call("ZCARD", (listed,)), Call("HLEN", (counts,))])
    if total != size or numbers[0] != numbers[1] or was_written():
        for values in store.scan("HSCAN", counts):
            check(values)
        for stored in filter(None, store.scan("ZSCAN", key)):
            (scores,) = store.read([Call("ZMSCORE", (key,), stored)])
            ties = (store.layout.split(each)[0] for each in stored)
            check(
                {tie + b"%.17g" % score for tie, score in zip(ties, scores, strict=True) if score is not None}
            )
    return wrong
