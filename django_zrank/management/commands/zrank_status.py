"""``manage.py zrank_status``: show the state of indexes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from ...sync.gauges import Gauges, read_gauges
from ..base import IndexCommand


class Command(IndexCommand):
    help = "Shows the state of the indexes: members, waiting changes and statuses."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--json", action="store_true", help="Print one JSON document, for programs.")

    def handle(self, *args: Any, **options: Any) -> None:
        states = {index.name: read_gauges(index) for index in self.named(options["index"])}
        if options["json"]:
            self.stdout.write(json.dumps({name: _plain(gauges) for name, gauges in states.items()}, indent=2))
            return
        rows: list[tuple[str, ...]] = [
            ("index", "status", "members", "waiting", "lag", "pending", "pending lag", "build")
        ]
        rows += [(name, *_row(gauges)) for name, gauges in states.items()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows if states else ():
            cells = (
                cell.rjust(width) if 2 <= at < 7 else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            self.say("  ".join(cells).rstrip())
        for name, gauges in states.items():
            if holders := [holder for holder in gauges.unwell if holder != name]:
                self.say(f"{name}: not healthy: {', '.join(holders)}")
            if gauges.reason:
                self.say(gauges.reason)


def _plain(gauges: Gauges) -> dict[str, Any]:
    return {**asdict(gauges), "status": gauges.status and gauges.status.name}


def _row(gauges: Gauges) -> tuple[str, ...]:
    return (
        gauges.status.name if gauges.status else "UNREACHABLE",
        _number(gauges.members),
        _number(gauges.waiting),
        f"{gauges.oldest:.1f} s",
        _number(gauges.pending),
        f"{gauges.lag:.1f} s",
        gauges.build or "none",
    )


def _number(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"
