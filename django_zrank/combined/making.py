"""Rankings of the members that pass several filters, and counts of these by a facet: made once, and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from secrets import token_hex
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from ..conf import settings_of
from ..exceptions import FilterNotReady, FilterTooLarge
from ..queries.request import Blocking, Call, Request, Swapped
from ..queries.steps import Steps
from ..redis.keys import Keys
from ..redis.scripts import Script
from .conf import FilterSettings
from .keys import combined_key, registry_of, stamp_of

if TYPE_CHECKING:
    from .view import CombinedView

__all__ = ["combined_filter", "read_combined"]

MAKE_COMBINED: Final = Script("make_combined", __package__)

KEPT: Final = 5000
"""Milliseconds for which it is kept, from the beginning of its making: answers may be as old."""

SHARE: Final = 20
"""If that is longer, it is kept for as many times as its making has taken."""

_PAGE: Final = 150
"""Members that are read in one round trip, in order; fewer in no order, as they take longer."""

_LOOK_UPS: Final = 1000
"""Look-ups in the sets of a filter, in one round trip."""

_SMALL: Final = 1000
"""The most members of a set of stored members that the server cuts down at once; fewer by several sets."""

_CUTS: Final = 5000
"""Look-ups of members in these sets."""

_WAIT: Final = 0.02
"""Seconds after which a client looks again for what another one makes."""

_PAUSE: Final = Blocking(partial(sleep, _WAIT), partial(asyncio.sleep, _WAIT))
"""Waits so long, once for all questions that are answered together."""


def combined_filter(view: CombinedView, keys: Keys, facet: str = "") -> str:
    """Return the key of the members that pass the filters of a view, a sorted set like a ranking; or of their numbers
    by the names of a facet's rankings, which begin with ``facet``: a hash."""
    return combined_key(keys, facet, str(view.filters), *view.sets(keys))


def read_combined(
    view: CombinedView, keys: Keys, key: str, *calls: Call, facet: str = ""
) -> Steps[tuple[int, list[Any]]]:
    """Return the size of a combined filter, or of counts, with the replies to calls about its ``key``. It is made if it
    isn't there. The same transaction finds it there, so that it isn't replaced in between."""
    until = monotonic() + view.patience
    looks = (
        Call("HGET", (keys.meta,), ("build",)),
        Call("GET", (stamp_of(key),)),
        Call("EXISTS", (key,)),
    )
    is_made = False
    while True:
        build, size, is_there, *replies = yield Request((*looks, *calls), writes=True, atomic=True)
        if (build or b"").decode() != keys.build:
            raise Swapped
        if size is not None and bool(int(size)) == bool(is_there):  # else it was evicted
            return int(size), replies
        if is_made and monotonic() >= until:
            raise _not_ready(view)
        found = yield from _make(view, keys, key, facet, until, calls)
        if found:
            return found
        is_made = True


def _make(
    view: CombinedView, keys: Keys, key: str, facet: str, until: float, calls: Sequence[Call]
) -> Steps[tuple[int, list[Any]] | None]:
    """Make a combined filter, or wait until another client has made it. Return its size with the replies to ``calls``
    if one piece was enough. Raises ``FilterTooLarge`` and ``FilterNotReady``: a later call goes on from there."""
    settings, layout, filters = settings_of(FilterSettings), view.layout, view.filters
    names = (keys.root, keys.meta, keys.recent, registry_of(keys), key, *view.sets(keys))
    page = min(_PAGE, max(20, _LOOK_UPS // filters.look_ups))
    small = min(_SMALL, _CUTS // sum(len(clause.names) for clause in filters.clauses))
    what = (keys.build, *layout.arguments, str(filters), facet)
    bounds = (view.limit, settings.max_combined_filters, settings.max_combined_filter_bytes, KEPT, SHARE)
    script = MAKE_COMBINED.using(layout.keeper.package)
    maker, is_first = token_hex(4), True
    while True:
        is_last = monotonic() >= until
        arguments = (*what, maker, int(is_last), page, small, *bounds)
        call = Call(script, names, arguments, 200 + 4 * page + 10 * len(names))
        (word, *numbers), *replies = yield Request((call, *calls), writes=True, atomic=bool(calls))
        if word == b"kept":
            return (numbers[0], replies) if is_first else None
        if word == b"too large":
            setting = ' (ZRANK["MAX_SCAN"])' if view.limit == settings.max_scan else ""
            raise FilterTooLarge(
                f"no facet covers these filters, and they would be computed from {numbers[0]:,} members, more than "
                f"{view.limit:,}{setting}"
            )
        if word == b"full":
            raise FilterNotReady(
                f"no facet covers these filters, and {numbers[0]} other combined filters take {numbers[1]:,} bytes of "
                'Redis (ZRANK["MAX_COMBINED_FILTERS"], ZRANK["MAX_COMBINED_FILTER_BYTES"])'
            )
        if is_last:
            raise _not_ready(view)
        if word == b"busy":
            yield _PAUSE
        calls, is_first = (), False


def _not_ready(view: CombinedView) -> FilterNotReady:
    bound = (
        'ZRANK["FILTER_TIMEOUT"]'
        if view.patience == settings_of(FilterSettings).filter_timeout
        else "within()"
    )
    return FilterNotReady(
        f"no facet covers these filters, and they aren't combined after {view.patience:g} seconds ({bound})"
    )
