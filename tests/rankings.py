"""Rankings that always ask the same side: the database, or Redis."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.utils.module_loading import import_string

from django_zrank import RankIndex, Ranking
from django_zrank.queries.request import Blocking
from django_zrank.redis import reader_of

__all__ = ["ByRedis", "BySql", "answer_by_sql", "by_sql"]


def answer_by_sql(*args: Any) -> Any:
    """The SQL fallback, for tests marked as those of that part."""
    return import_string("django_zrank.sql.answer_by_sql")(*args)


class BySql(Ranking):
    """A ranking that only queries the database."""

    def _ask(self, question: Any, view: Any = None) -> Any:
        asked = partial(answer_by_sql, self.index, self.conditions, question, view or self.view)
        return (yield Blocking(asked))


def by_sql(index: type[RankIndex]) -> BySql:
    return BySql(index.instance())


class ByRedis(Ranking):
    """A ranking that only queries Redis."""

    def _ask(self, question: Any, view: Any = None) -> Any:
        return (yield from reader_of(self.index).running(partial(question.steps, view or self.view)))
