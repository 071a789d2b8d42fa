"""Progress bars, where tqdm is installed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None  # type: ignore[assignment, misc]

__all__ = ["progress_bar"]


def progress_bar(title: str, *, hidden: bool, total: Callable[[], int]) -> AbstractContextManager[Any]:
    """Return a bar for ``total()`` rows, which are counted only if the bar is shown: not without a terminal."""
    if hidden or tqdm is None:
        return nullcontext(SimpleNamespace(update=lambda rows: None))
    bar = tqdm(desc=title, unit=" rows", unit_scale=True, disable=None)
    if not bar.disable:
        bar.total = total()
    return bar
