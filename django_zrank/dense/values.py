"""The distinct values of a ranking."""

from __future__ import annotations

from typing import Final

from ..methods import Value
from ..queries.steps import Steps
from ..queries.view import View
from ..redis.keys import Keys
from ..redis.scripts import Script

__all__ = ["READ_VALUES", "read_values"]

READ_VALUES: Final = Script("read_values", __package__ or "")


def read_values(
    view: View, keys: Keys, bound: Value, skipped: int, count: int
) -> Steps[tuple[int, list[Value]]]:
    """Return the number of distinct values that are better than a bound, and these after the first ``skipped``, best
    first: ``count`` of them, at most 1,000."""
    score, tie = bound
    arguments = keys.build, view.order[2], repr(score), tie, skipped, count
    better, *texts = yield from view.read(keys, READ_VALUES, arguments, count)
    return better, [(float(text), tie) for tie, text in map(view.layout.split, texts)]
