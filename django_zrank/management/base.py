"""Base classes of the commands: names of indexes as arguments, silence at ``--verbosity 0``."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ..index import RankIndex
from ..registry import registry

__all__ = ["IndexCommand", "ZRankCommand"]


class ZRankCommand(BaseCommand):
    """A command that prints only errors at ``--verbosity 0``."""

    quiet = False

    def execute(self, *args: Any, **options: Any) -> str | None:
        self.quiet = options["verbosity"] == 0
        return super().execute(*args, **options)

    def say(self, line: str) -> None:
        """Write a line to stdout, unless the command is quiet."""
        if not self.quiet:
            self.stdout.write(line)


class IndexCommand(ZRankCommand):
    """A command about the indexes that are named, by default all."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("index", nargs="*", help="Names of indexes. Default: all of them.")

    def named(self, names: list[str]) -> list[RankIndex]:
        """Return the indexes with these names, by default all."""
        try:
            indexes = registry.named(names)
        except LookupError as error:
            raise CommandError(str(error.args[0])) from None
        if not indexes:
            self.say("No index is registered: declare one in an app's zrank.py.")
        return indexes
