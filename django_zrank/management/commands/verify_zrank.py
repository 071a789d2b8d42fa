"""``manage.py verify_zrank``: compare indexes with the database, and repair them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.template.defaultfilters import pluralize

from ...exceptions import ZRankError
from ...sync.health import Status
from ...sync.leftovers import find_leftovers
from ...sync.verify import Drift, Report, verify
from ..base import ProgressCommand


class Command(ProgressCommand):
    help = "Compares indexes with the database, member by member. Exits with status 1 if they differ."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--repair", action="store_true", help="Repair the differences.")
        parser.add_argument("--json", action="store_true", help="Print one JSON document, for programs.")

    def handle(self, *args: Any, **options: Any) -> None:
        documents: list[dict[str, Any]] = []
        self.quiet |= options["json"]
        indexes = self.named(options["index"])
        for index in indexes:
            document: dict[str, Any] = {"index": index.name, "database": index.get_using(), "ok": False}
            try:
                with self.bar(index, options) as bar:
                    report = verify(index, repair=options["repair"], progress=bar.update)
            except ZRankError as error:
                self.stderr.write(str(error))
                document["error"] = str(error)
            else:
                document |= _document(report)
                for line in _lines(report):
                    self.say(f"{index.name}: {line}")
            documents.append(document)
        leftovers = find_leftovers({index.get_using() for index in indexes})
        for name, databases in leftovers.items():
            where = ", ".join(databases)
            self.say(f"{name}: no longer registered, but has rows in {where}: run prune_zrank")
        wrong = [document["index"] for document in documents if not document["ok"]]
        if options["json"]:
            found = [{"index": name, "databases": databases} for name, databases in leftovers.items()]
            whole = {"ok": not wrong, "indexes": documents, "leftovers": found}
            self.stdout.write(json.dumps(whole, allow_nan=False))
        if wrong:
            raise CommandError(f"Problems found: {', '.join(wrong)}.")


def _lines(report: Report) -> Iterator[str]:
    if report.status_before:
        yield f"was repaired: {report.status_before.value}"
    if report.status is not Status.HEALTHY:
        yield f"can't be trusted: {report.status.value}"
    if not report.compared:
        yield "not compared"
    elif not report.drift:
        members = report.members
        yield f"{members:,} member{pluralize(members)}, matching the database"
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
        members = report.unsettled
        when = f"each time {pluralize(members, 'it was,they were')} compared"
        yield f"{members} member{pluralize(members)} changed {when}"
    if report.waiting:
        yield f"{report.waiting} mark{pluralize(report.waiting)} waited, the oldest for {report.oldest:.1f} s"
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


def _document(report: Report) -> dict[str, Any]:
    capture = report.capture
    triggers = {
        kind: list(map(str, getattr(capture, kind))) for kind in ("missing", "outdated", "unexpected")
    }
    return {
        **{
            name: getattr(report, name)
            for name in ("ok", "compared", "rows", "members", "repaired", "unsettled")
        },
        **{kind: _drift(drift) for kind, drift in report.drifts.items()},
        "error": None,
        "status": report.status.name.lower(),
        "status_before": report.status_before and report.status_before.name.lower(),
        "marks": {"waiting": report.waiting, "oldest": report.oldest},
        "triggers": {"capture": capture.mode, **triggers, "error": capture.error},
        "warnings": report.warnings,
    }


def _drift(drift: Drift) -> dict[str, Any]:
    examples: list[dict[str, Any]] = [example._asdict() for example in drift.examples]
    for example in examples:
        if example["redis"] in (math.inf, -math.inf):
            example["redis"] = str(example["redis"])
    return {"count": drift.count, "examples": examples}
