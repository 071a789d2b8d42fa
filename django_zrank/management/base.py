"""Base classes of the commands: names of indexes as arguments, silence at ``--verbosity 0``, progress bars."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from math import inf
from types import SimpleNamespace
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ..exceptions import ZRankError
from ..index import RankIndex
from ..registry import registry
from ..sync.rebuild import count_rows

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None  # type: ignore[assignment, misc]


class ZRankCommand(BaseCommand):
    """A command that prints only errors at ``--verbosity 0``, and errors of the app without a traceback."""

    quiet = False

    def execute(self, *args: Any, **options: Any) -> str | None:
        self.quiet = options["verbosity"] == 0
        try:
            return super().execute(*args, **options)
        except ZRankError as error:
            raise CommandError(str(error)) from error

    @staticmethod
    def require_between(option: str, value: Any, low: float, high: float) -> None:
        """Raise ``CommandError``, which names the option, unless the value is a number within its limits."""
        if not (isinstance(value, (int, float)) and low <= value <= high):  # nan isn't
            expected = f"{low} to {high}" if high < inf else f"at least {low}"
            raise CommandError(f"{option}: expected {expected}, not {value!r}.")

    def say(self, line: str) -> None:
        """Write a line to stdout, unless the command is quiet."""
        if not self.quiet:
            self.stdout.write(line)


class IndexCommand(ZRankCommand):
    """A command about the indexes that are named, by default all."""

    index_help = "Names of indexes. Default: all of them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("index", nargs="*", help=self.index_help)

    def named(self, names: list[str]) -> list[RankIndex]:
        """Return the indexes with these names, by default all. Raises ``CommandError`` for names that no index has."""
        try:
            indexes = registry.named(names)
        except LookupError as error:
            raise CommandError(str(error.args[0])) from None
        if not indexes:
            self.say("No index is registered: declare one in an app's zrank.py.")
        return indexes


class ProgressCommand(IndexCommand):
    """A command that shows its progress with each index in a terminal, if tqdm is installed."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--no-progress",
            action="store_true",
            help="Show no progress bar. Without a terminal, none is shown.",
        )

    def bar(
        self, index: RankIndex, options: dict[str, Any], total: Callable[[RankIndex], int] = count_rows
    ) -> AbstractContextManager[Any]:
        """Return a bar for the rows of ``index``, which are counted only if it is shown."""
        if tqdm is None or options["no_progress"] or not options["verbosity"]:
            return nullcontext(SimpleNamespace(update=lambda rows: None))
        bar = tqdm(desc=index.name, unit=" rows", unit_scale=True, disable=None)
        if not bar.disable:
            bar.total = total(index)
        return bar
