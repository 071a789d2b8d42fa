"""``manage.py rebuild_zrank``: build indexes from the database."""

from __future__ import annotations

from time import monotonic
from typing import Any

from django.core.management.base import CommandParser
from django.template.defaultfilters import pluralize

from ...exceptions import ZRankError
from ...index import RankIndex
from ...store import LOAD_LIMIT
from ...sync.rebuild import BATCH_SIZE, count_rows, rebuild
from ..base import ProgressCommand


class Command(ProgressCommand):
    help = "Rebuilds indexes from the database. Readers see the old build until the new one is complete."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--dry-run", action="store_true", help="Only show what would be done.")
        parser.add_argument(
            "--batch-size",
            type=int,
            default=BATCH_SIZE,
            help=f"Rows to read at once, up to {LOAD_LIMIT}. Default: {BATCH_SIZE}.",
        )

        parser.add_argument(
            "--discard-pending",
            action="store_true",
            help="Give up scores that are pending for the database in which the index was before, or for a column that "
            "is gone.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self.require_between("--batch-size", options["batch_size"], 1, LOAD_LIMIT)
        for index in self.named(options["index"]):
            if options["dry_run"]:
                self.describe(index)
                continue
            began = monotonic()
            with self.bar(index, options) as bar:
                members = rebuild(
                    index,
                    batch_size=options["batch_size"],
                    progress=bar.update,
                    discard_pending=options["discard_pending"],
                )
            self.say(
                f"{index.name}: {members:,} member{pluralize(members)} ranked in {monotonic() - began:.1f} s"
            )

    def describe(self, index: RankIndex) -> None:
        try:
            members = index.ranking.count()
            now = f"{members:,} member{pluralize(members)} now"
        except ZRankError as error:
            now = str(error)
        rows = count_rows(index)
        self.say(
            f"{index.name}: would rank {rows:,} row{pluralize(rows)} of {index.model._meta.label} ({now})"
        )
