"""``manage.py capture_zrank``: the triggers that record changes."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import connections
from django.template.defaultfilters import pluralize

from ...capture.triggers import captured, drop, examine_triggers, install, refusal, sharing
from ..base import ZRankCommand


class Command(ZRankCommand):
    help = (
        "Creates the triggers that record changes, as migrate does, and drops outdated ones if the live build is of "
        "the current declaration. Before you uninstall django-zrank, stop sync_zrank and run this command with --drop: "
        "triggers without django-zrank's tables make every write fail."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--database",
            choices=tuple(connections),
            help="Only this database. Default: all databases.",
        )
        action = parser.add_mutually_exclusive_group()
        action.add_argument(
            "--check",
            action="store_true",
            help="Change nothing; exit with status 1 if a trigger is missing or outdated, or if an index belongs to "
            "another release.",
        )
        action.add_argument(
            "--drop",
            action="store_true",
            help="Remove all triggers. The next migrate or sync_zrank restores them.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        aliases = [options["database"]] if options["database"] else list(connections)
        if amiss := [alias for alias in aliases if not self.do(alias, **options)]:
            raise CommandError(f"Not complete in: {', '.join(amiss)}.")

    def do(self, alias: str, **options: Any) -> bool:
        """Act on one database. Return True if its triggers are complete afterwards."""
        indexes = captured(alias)
        if not options["check"]:
            if options["drop"]:
                changes = drop(alias)
            else:
                if options["database"]:
                    indexes += sharing(alias)
                changes = install(alias, indexes)
            created, dropped = len(changes.created), len(changes.dropped)
            self.say(f"{alias}: {created} trigger{pluralize(created)} created, {dropped} dropped")
            if options["drop"]:
                return True
        found = examine_triggers(alias, indexes, thorough=True)
        for kind in ("missing", "outdated", "unexpected"):
            for trigger in getattr(found, kind):
                self.say(f"{alias}: {kind}: {trigger}")
        reasons = [*filter(None, [found.error, *map(refusal, indexes)])]
        for reason in reasons:
            self.say(f"{alias}: {reason}")
        if not options["check"]:
            return found.works
        if is_complete := found.works and not (found.outdated or reasons):
            self.say(f"{alias}: complete")
        return is_complete
