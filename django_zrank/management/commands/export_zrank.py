"""``manage.py export_zrank``: write a whole ranking, as of a single moment."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import date, timedelta
from math import inf
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile
from typing import Any, Final, TextIO

from django.core.management.base import CommandError, CommandParser
from django.template.defaultfilters import pluralize
from django.utils.duration import duration_iso_string

from ...ranking import Ranking
from ...statistics import RankingChanged
from ..base import ProgressCommand

_COLUMNS = ("rank", "pk", "score")

_FORMULAS: Final = tuple(
    "=+-@\t\r\n\0\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
)
"""The characters with which a formula may begin, as OWASP lists them under "CSV Injection"."""

_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)


class Command(ProgressCommand):
    index_help = "Name of the index. Default: the only one."
    help = (
        "Writes the rank, primary key and score of each member of a ranking, best first, as CSV, as of a single "
        "moment. Exits with status 1, and writes nothing, if the ranking keeps changing while it is read."
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
            help="How many times to read the ranking again if it has changed in the meantime. Default: 2.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        indexes = self.named(options["index"])
        if len(indexes) != 1:
            raise CommandError("Name one index.")
        (index,) = indexes
        top, retries = options["top"], options["retries"]
        if top is not None:
            self.require_between("--top", top, 1, inf)
        self.require_between("--retries", retries, 0, inf)
        try:
            ranking = index.ranking.using("primary").filter(**_parse(options["filter"]))
            ranking.snapshot(top)
        except ValueError as error:
            raise CommandError(f"--filter: {error}") from None

        def total(_: Any) -> int:
            count = ranking.count()
            return 2 * (count if top is None else min(top, count))  # each is read twice

        # Nothing is written before the end, so that no partial or changed result is mistaken for a snapshot.
        with (
            TemporaryFile("w+", encoding="utf-8", newline="\n") as file,
            _replacing(options["output"]) if options["output"] is not None else nullcontext() as output,
        ):
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
            if output:
                shutil.copyfileobj(file, output)
            else:
                for line in file:
                    self.stdout.write(line)
        if output:
            self.say(f"{index.name}: {members} member{pluralize(members)} written to {options['output']}")


def _parse(conditions: list[str]) -> dict[str, str]:
    """Parse conditions such as ``region=kanto``. Raises ``ValueError``."""
    pairs = [condition.partition("=") for condition in conditions]
    if not all(separator for _, separator, _ in pairs):
        raise ValueError("expected FACET=VALUE")
    return {facet: value for facet, _, value in pairs}


@contextmanager
def _replacing(name: str) -> Iterator[TextIO]:
    """Open a new file that takes the place of the one called ``name`` at the end. If it can't be written completely,
    nothing is changed. Devices and pipes are written to.

    Raises ``CommandError`` for errors of files.
    """
    try:
        path = Path(name).resolve()  # a link stays one
        if path.is_symlink():  # Python 3.13 raises no error for a loop
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        is_written_to = path.exists() and not path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a null character
        raise CommandError(f"--output: {error}") from error
    if not name or path.is_dir():
        raise CommandError(f"--output: expected the name of a file, not {name!r}.")
    new = None if is_written_to else path.with_name(f".zrank-{token_hex(8)}")
    try:
        with (new or path).open("w", encoding="utf-8", newline="\n") as file:
            yield file
        if new:
            if path.exists():
                shutil.copymode(path, new)
            new.replace(path)
    except OSError as error:
        raise CommandError(f"--output: {error.strerror or error}: {name!r}") from error
    finally:
        if new:
            with suppress(OSError):
                new.unlink(missing_ok=True)


def _write(
    file: TextIO, ranking: Ranking, top: int | None, progress: Callable[[int], Any], *, as_json: bool
) -> int:
    """Write a snapshot of a ranking, and return the number of its members. Raises ``RankingChanged``."""
    members, rows = 0, csv.writer(file, lineterminator="\n")
    quoted = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
    if not as_json:
        rows.writerow(_COLUMNS)
    for entry in ranking.snapshot(top, progress=progress):
        members += 1
        row = (entry.rank, entry.pk, entry.score)
        if as_json:
            cells = map(_plain, row)
            file.write(json.dumps(dict(zip(_COLUMNS, cells, strict=True)), ensure_ascii=False) + "\n")
        else:
            # Before Python 3.13, csv quotes no carriage return that isn't part of its line ends.
            (quoted if "\r" in str(entry.pk) else rows).writerow(map(_cell, row))
    return members


def _cell(value: Any) -> int | float | str:
    """Return a value for CSV: with an apostrophe before text that a spreadsheet would take for a formula."""
    is_formula = isinstance(value, str) and value.startswith(_FORMULAS) and not _NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else _plain(value)


def _plain(value: Any) -> int | float | str:
    """Return a value for JSON and CSV: text unless it is a number; decimals, which are exact, as text, too."""
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, date):
        return value.isoformat()
    return duration_iso_string(value) if isinstance(value, timedelta) else str(value)
