"""``manage.py erase_zrank``: remove a primary key from all that is stored of an index."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final

from django.core.management.base import CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder
from django.template.defaultfilters import pluralize

from ...erase.erasure import erase
from ...registry import registry
from ..base import ZRankCommand

_NOUNS: Final = {
    "rankings": "ranking,rankings",
    "pending": "pending change,pending changes",
    "touched": "touch,touches",
    "group": "group,groups",
    "remembered": "list of shown members,lists of shown members",
    "combined_filter": "combined_filter,combined_filters",
    "marks": "mark,marks",
}


class Command(ZRankCommand):
    help = (
        "Removes the primary key of a member from everything that django-zrank stores for an index. Its row must be "
        "deleted, or have left the queryset of the index."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("index", help="Name of the index.")
        parser.add_argument("pk", help="Primary key of the member.")
        parser.add_argument("--json", action="store_true", help="Print one JSON document, for programs.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            index = registry.get(options["index"])
        except LookupError as error:
            raise CommandError(str(error.args[0])) from None
        try:
            erased = erase(index, options["pk"])
        except ValueError as error:
            raise CommandError(f"pk: {error}") from None
        if options["json"]:
            self.stdout.write(json.dumps(asdict(erased), cls=DjangoJSONEncoder))
            return
        removed = ", ".join(
            f"{number} {pluralize(number, _NOUNS[kind])}" for kind, number in erased.removed.items()
        )
        self.say(f"{erased.index}: removed {erased.member}: {removed or 'nothing was found'}")
        for kind, until in erased.remains.items():
            when = (
                f"until {until:%Y-%m-%d %H:%M:%S %Z}".rstrip()
                if until
                else "for now: erase it once more later"
            )
            self.say(f"{erased.index}: remains in {kind} {when}")
