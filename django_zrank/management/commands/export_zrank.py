"""``manage.py export_zrank``: write a whole ranking, as of a single moment."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TextIO

from django.core.management.base import CommandError, CommandParser
from django.utils.duration import duration_iso_string

from ...exceptions import RankingChanged
from ...ranking import Ranking
from ..base import ProgressCommand

_COLUMNS = ("rank", "pk", "score")


class Command(ProgressCommand):
    help = (
        "Writes the rank, primary key and score of each member of a ranking, best first, as CSV, as of a single "
        "moment. Exits with 1, and writes nothing, if the ranking keeps changing while it is read."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--filter",
            action="append",
            default=[],
            metavar="FACET=VALUE",
            help="Only members with this value. May be repeated; all must match.",
        )
        parser.add_argument("--top", type=int, metavar="N", help="Only the best N members.")
        parser.add_argument("--json", action="store_true", help="Write JSON Lines, one object per line.")
        parser.add_argument("--output", metavar="FILE", help="The file to write. Default: standard output.")
        parser.add_argument(
            "--retries",
            type=int,
            default=2,
            metavar="N",
            help="How many times to read the ranking again if it has changed meanwhile. Default: 2.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        indexes = self.named(options["index"])
        if len(indexes) != 1:
            raise CommandError("Name one index.")
        (index,) = indexes
        top, retries = options["top"], options["retries"]
        try:
            ranking = index.ranking.using("primary").filter(**_parse(options["filter"]))
            ranking.snapshot(top)
        except ValueError as error:
            raise CommandError(str(error)) from None

        def total(_: Any) -> int:
            count = ranking.count()
            return 2 * (count if top is None else min(top, count))  # each is read twice

        # Nothing is written before the end, so that no partial or changed result is mistaken for a snapshot.
        with TemporaryFile("w+", encoding="utf-8", newline="\n") as file:
            while True:
                try:
                    with self.bar(index, options, total) as bar:
                        members = _write(file, ranking, top, bar.update, as_json=options["json"])
                    break
                except RankingChanged as error:
                    if retries <= 0:
                        raise
                    self.stderr.write(f"{error}: reading it again")
                    retries -= 1
                    file.seek(0)
                    file.truncate()
            file.seek(0)
            if options["output"]:
                with Path(options["output"]).open("w", encoding="utf-8", newline="\n") as output:
                    shutil.copyfileobj(file, output)
                self.say(f"{index.name}: {members} members written to {options['output']}")
            else:
                for line in file:
                    self.stdout.write(line)


def _parse(conditions: list[str]) -> dict[str, str]:
    """Parse conditions such as ``region=kanto``. Raises ``ValueError``."""
    pairs = [condition.partition("=") for condition in conditions]
    if not all(separator for _, separator, _ in pairs):
        raise ValueError("--filter: expected FACET=VALUE")
    return {facet: value for facet, _, value in pairs}


def _write(
    file: TextIO, ranking: Ranking, top: int | None, progress: Callable[[int], Any], *, as_json: bool
) -> int:
    """Write a snapshot of a ranking, and return the number of its members. Raises ``RankingChanged``."""
    members, rows = 0, csv.writer(file, lineterminator="\n")
    if not as_json:
        rows.writerow(_COLUMNS)
    for entry in ranking.snapshot(top, progress=progress):
        members += 1
        row = (entry.rank, _plain(entry.pk), _plain(entry.score))
        if as_json:
            file.write(json.dumps(dict(zip(_COLUMNS, row, strict=True)), ensure_ascii=False) + "\n")
        else:
            rows.writerow(row)
    return members


def _plain(value: Any) -> int | float | str:
    """Return a value for JSON and CSV: text unless it is a number; decimals, which are exact, as text, too."""
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, date):
        return value.isoformat()
    return duration_iso_string(value) if isinstance(value, timedelta) else str(value)
