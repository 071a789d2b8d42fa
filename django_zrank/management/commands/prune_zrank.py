"""``manage.py prune_zrank``: remove the remains of renamed and removed indexes."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.template.defaultfilters import pluralize

from ...sync.leftovers import Leftover, find_departed, find_leftovers, leave, prune
from ..base import ZRankCommand


class Command(ZRankCommand):
    help = (
        "Removes the keys in Redis, and the rows and triggers in the databases, of indexes that are no longer "
        "registered, and the rows and triggers of indexes that have moved to another database. Run it when no process "
        "of an older release is running."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "name",
            nargs="*",
            help="Names of former indexes. Their keys are removed even if no database here knows their build. "
            "Default: all that a database has recorded and that are no longer registered.",
        )
        parser.add_argument("--dry-run", action="store_true", help="Only show what would be removed.")

    def handle(self, *args: Any, **options: Any) -> None:
        named, dry_run = options["name"], options["dry_run"]
        for name in named:
            if not (name.isprintable() and 0 < len(name) < 256):
                raise CommandError(f"name: no index can be called {name!r}.")
        names = named or list(find_leftovers())
        moved = [] if named else list(find_departed())
        done = "would be removed" if dry_run else "removed"
        if not (names or moved):
            self.say("There is nothing to remove.")
        for index, alias in moved:
            self.report_rows(index.name, alias, leave(index, alias, dry_run=dry_run), done)
        for name in names:
            try:
                left = prune(name, foreign=bool(named), dry_run=dry_run)
            except ValueError as error:
                raise CommandError(f"name: {error}") from None
            self.report(left, done, named=bool(named))

    def report(self, left: Leftover, done: str, *, named: bool) -> None:
        if left.pending:
            whose = f"{left.pending} member{pluralize(left.pending)}"
            self.say(
                f"{left.index}: kept, because scores of {whose} are pending. Run sync_zrank with the release "
                f"that declared it; to give them up, run prune_zrank {left.index}"
            )
            return
        if left.foreign and not named:
            self.say(
                f"{left.index}: its keys in Redis are kept, because no database here knows their build. "
                f"If they aren't another project's, run prune_zrank {left.index}"
            )
        else:
            self.say(f"{left.index}: {left.keys} key{pluralize(left.keys)} in Redis {done}")
        for alias, rows in left.rows.items():
            self.report_rows(left.index, alias, rows, done)

    def report_rows(self, name: str, alias: str, rows: dict[str, int], done: str) -> None:
        nouns = ((count, what.removesuffix("s") if count == 1 else what) for what, count in rows.items())
        counts = ", ".join(f"{count} {noun}" for count, noun in nouns)
        self.say(f"{name}: {counts} in the database {alias!r} {done}")
