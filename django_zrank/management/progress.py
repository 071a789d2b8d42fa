"""Commands with a progress bar, where tqdm is installed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

from django.core.management.base import CommandParser

from ..index import RankIndex
from ..sync.rebuild import count_rows
from .base import IndexCommand

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None  # type: ignore[assignment, misc]

__all__ = ["ProgressCommand"]


class ProgressCommand(IndexCommand):
    """A command that shows its progress with each index in a terminal."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--no-progress", action="store_true", help="No progress bar. There is none without a terminal."
        )

    def bar(
        self, index: RankIndex, options: dict[str, Any], *, passes: int = 1
    ) -> AbstractContextManager[Any]:
        """Return a bar for some passes over the rows of ``index``, which are counted only if it is shown."""
        if tqdm is None or options["no_progress"] or not options["verbosity"]:
            return nullcontext(SimpleNamespace(update=lambda rows: None))
        bar = tqdm(desc=index.name, unit=" rows", unit_scale=True, disable=None)
        if not bar.disable:
            bar.total = passes * count_rows(index)
        return bar
