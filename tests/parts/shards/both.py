"""The same rows in shards and in one piece."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django_zrank import RankIndex
from django_zrank.queries.request import Request
from django_zrank.queries.steps import Question, Steps, drive
from django_zrank.queries.view import View
from django_zrank.redis import reader_of
from django_zrank.shards.members import Shards
from django_zrank.shards.queries import over_shards
from django_zrank.store import Store
from tests.populations import populate
from tests.sharded import sharded

__all__ = ["COUNTS", "Both", "divide"]

COUNTS = (1, 2, 3, 7, 16)
"""Numbers of shards that answers are compared for."""


@dataclass
class Both:
    """The same rows in shards and in one piece."""

    whole: Store
    shards: Shards
    rounds: int = 0
    """The round trips of the newest answer."""

    def run(self, steps: Steps[Any], after: Callable[[int], Any] = lambda rounds: None) -> Any:
        """The answer to a query; ``after`` is called after each round trip, with their number."""
        self.rounds = 0

        def send(request: Request) -> list[Any]:
            self.rounds += 1
            replies = self.whole.send(request)
            after(self.rounds)
            return replies

        return drive(steps, send)

    def of_shards(self, question: Question[Any], view: View) -> Any:
        return self.run(over_shards(question, view, self.shards))

    def of_whole(self, question: Question[Any], view: View) -> Any:
        return self.run(question.steps(view, self.whole.live))

    def add_to_group(self, name: str, members: Iterable[str]) -> None:
        for member in members:
            for keys in (self.whole.live, self.shards.own(member)):
                self.whole.client.zadd(keys.beside("group", name), {member: "inf"})


def divide(
    index: type[RankIndex], shards: int, rows: Mapping[Any, Mapping[str, Any]], *, together: bool = False
) -> Both:
    """Make both hold exactly ``rows``, as ``populate()`` takes them. ``together``: shards are read by one script where
    there is one for several, as on one server; otherwise each by its own, as in a cluster."""
    whole, divided = populate(index, rows), sharded(index, shards)
    whole.learn()
    populate(divided, rows)
    live = tuple(reader_of(part).learn() for part in divided.instance().holders)
    return Both(whole, Shards(live, together))
