"""Combined filters: rankings of the members that pass several filters, or one that no declared facet covers.

A draw tests the members that it deals. Whatever else is asked, and a draw of which too few pass, is answered from an
*combined filter*: a sorted set like that of a ranking, made in pieces and kept for some seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..codec.filters import Condition
from ..declaration import Index
from ..queries.view import View
from .filters import plan
from .view import CombinedView

__all__ = ["combine"]


def combine(index: Index, view: View, conditions: Sequence[Condition]) -> View:
    """Return the view of the members that meet ``conditions``, in the order of ``view``. Raises ``ValueError``, such as
    ``FilterTooLarge``."""
    filters = plan(index, conditions)
    return CombinedView(
        view.layout, None, view.reverse, view.method, view.scan, view.seconds, filters=filters
    )
