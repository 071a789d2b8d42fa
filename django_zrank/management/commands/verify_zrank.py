"""``manage.py verify_zrank``: compare indexes with the database, and repair them.

``--json`` prints one document, ``{"ok": …, "indexes": [{…}, …], "leftovers": [{"index": …, "databases": […]}, …]}``.
Leftovers are names that no index has any more and of which databases still have rows (``prune_zrank`` removes them).
The fields of each index:

``index``, ``database``
    Its name, and the alias of the database that it mirrors.
``ok``
    True if it is right, and can be expected to stay so.
``error``
    The reason why it could not be verified, or null. With an error, the fields below are left out.
``verdict``, ``verdict_before``
    The members of :class:`~django_zrank.sync.health.Verdict` in lower case: the verdict at the end, ``"healthy"`` or
    why it can't be trusted; and the one before ``--repair``, or null if nothing was repaired.
``compared``
    True if members were compared. They aren't if the index can't be trusted anyway.
``rows``, ``members``
    The numbers of rows that the database ranks, and of members that Redis holds.
``missing``, ``extra``, ``different``
    ``{"count": …, "examples": [{"member": …, "database": …, "redis": …, "why": …}, …]}``: wrong members, and for
    the first few the scores on both sides, as Redis stores them, and what else is wrong. A missing score is null, an
    infinite one is text.
``broken``
    The same for what is inconsistent within Redis: names of facet rankings, and counts of distinct values.
``repaired``
    The number of these that were repaired.
``unsettled``
    The number of members that changed each time they were compared.
``marks``
    ``{"waiting": …, "oldest": …}`` at the beginning; ``oldest`` is an age in seconds.
``triggers``
    ``{"capture": "triggers" or "signals", "missing": […], "outdated": […], "unexpected": […], "error": …}``
``warnings``
    Settings of Redis that endanger the index, as text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError, CommandParser

from ...exceptions import ZRankError
from ...index import RankIndex
from ...sync.health import Verdict
from ...sync.leftovers import find_leftovers
from ...sync.rebuild import count_rows
from ...sync.report import Drift, Report
from ...sync.verify import verify
from ..base import IndexCommand
from ..progress import progress_bar


class Command(IndexCommand):
    help = "Compares indexes with the database, member by member. Exits with 1 where one is not right."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--repair", action="store_true", help="Repair what is wrong.")
        parser.add_argument("--json", action="store_true", help="Print one JSON document, for machines.")
        parser.add_argument(
            "--no-progress", action="store_true", help="No progress bar. There is none without a terminal."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        documents: list[dict[str, Any]] = []
        self.quiet |= options["json"]
        without_bar = options["no_progress"] or not options["verbosity"]
        indexes = self.named(options["index"])
        for index in indexes:
            try:
                report = self.verify(index, options["repair"], without_bar)
            except ZRankError as error:
                self.stderr.write(str(error))
                documents.append(_failed(index, error))
            else:
                documents.append(_document(report))
                for line in _lines(report):
                    self.say(f"{index.name}: {line}")
        leftovers = find_leftovers({index.get_using() for index in indexes})
        for name, databases in leftovers.items():
            self.say(
                f"{name}: no such index any more, but rows of it in {', '.join(databases)}: see prune_zrank"
            )
        wrong = [document["index"] for document in documents if not document["ok"]]
        if options["json"]:
            document = {"ok": not wrong, "indexes": documents, "leftovers": _leftovers(leftovers)}
            self.stdout.write(json.dumps(document, allow_nan=False))
        if wrong:
            raise CommandError(f"Problems found: {', '.join(wrong)}.")

    def verify(self, index: RankIndex, repair: bool, no_progress: bool) -> Report:
        # Rows and members: twice the rows, if nothing is wrong.
        with progress_bar(index.name, hidden=no_progress, total=lambda: 2 * count_rows(index)) as bar:
            return verify(index, repair=repair, progress=bar.update)


def _lines(report: Report) -> Iterator[str]:
    """Yield the report as lines of text."""
    if report.verdict_before:
        yield f"was repaired: {report.verdict_before.value}"
    if report.verdict is not Verdict.HEALTHY:
        yield f"can't be trusted: {report.verdict.value}"
    if not report.compared:
        yield "not compared"
    elif not report.drift:
        yield f"{report.members} members, as the database has them"
    for kind, drift in report.drifts.items():
        if drift.count:
            examples = ", ".join(
                f"{member} ({_score(database)} in the database, {_score(redis)} in Redis{why and f'; {why}'})"
                for member, database, redis, why in drift.examples
            )
            yield f"{drift.count} {kind}: {examples}{', …' if drift.count > len(drift.examples) else ''}"
    if report.repaired:
        yield f"{report.repaired} repaired"
    if report.unsettled:
        yield f"{report.unsettled} members changed each time they were compared"
    if report.waiting:
        yield f"{report.waiting} marks waited, the oldest for {report.oldest:.1f} s"
    if report.capture.mode != "triggers":
        yield f"capture is by {report.capture.mode}: not every change is noticed"
    if report.capture.error:
        yield report.capture.error
    for state in ("missing", "outdated", "unexpected"):
        for trigger in getattr(report.capture, state):
            yield f"trigger {state}: {trigger}"
    for warning in report.warnings:
        yield f"warning: {warning}"


def _score(score: float | None) -> str:
    return "none" if score is None else f"{score:.17g}"


def _leftovers(found: dict[str, list[str]]) -> list[dict[str, Any]]:
    return [{"index": name, "databases": databases} for name, databases in found.items()]


def _failed(index: RankIndex, error: ZRankError) -> dict[str, Any]:
    return {"index": index.name, "database": index.get_using(), "ok": False, "error": str(error)}


def _document(report: Report) -> dict[str, Any]:
    """Return the report as a JSON document."""
    return {
        "index": report.index.name,
        "database": report.index.get_using(),
        "ok": report.ok,
        "error": None,
        "verdict": report.verdict.name.lower(),
        "verdict_before": report.verdict_before and report.verdict_before.name.lower(),
        "compared": report.compared,
        "rows": report.rows,
        "members": report.members,
        **{kind: _drift(drift) for kind, drift in report.drifts.items()},
        "repaired": report.repaired,
        "unsettled": report.unsettled,
        "marks": {"waiting": report.waiting, "oldest": report.oldest},
        "triggers": {
            "capture": report.capture.mode,
            "missing": report.capture.missing,
            "outdated": report.capture.outdated,
            "unexpected": report.capture.unexpected,
            "error": report.capture.error,
        },
        "warnings": report.warnings,
    }


def _drift(drift: Drift) -> dict[str, Any]:
    examples = [
        {
            "member": member,
            "database": database,
            "redis": str(redis) if redis in (math.inf, -math.inf) else redis,
            "why": why,
        }
        for member, database, redis, why in drift.examples
    ]
    return {"count": drift.count, "examples": examples}
