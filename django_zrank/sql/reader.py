"""SQL fallback: the same answers from the database, slower and within a time limit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from django.db import OperationalError
from django.utils import timezone

from ..codec.filters import GROUP, Condition
from ..conf import get_settings
from ..declaration import Declaration
from ..exceptions import IndexUnavailable
from ..queries.counts import CountFacet, Size
from ..queries.draws import Draw
from ..queries.pages import PageAround, PageAt, PageBetween
from ..queries.positions import BarePosition, BareScore, Locate
from ..queries.query import Question, Several
from ..queries.view import View
from ..recent import Recent
from .deadline import reading
from .ranks import (
    bare_position,
    bare_score,
    count_facet,
    locate,
    page_around,
    page_at,
    page_between,
    size,
)
from .rows import Rows
from .sampling import sample

__all__ = ["answer_by_sql"]

logger = logging.getLogger("django_zrank")

Answer = TypeVar("Answer")


_LOGGED_EVERY: Final = 60.0
_logged = Recent[bool]()
"""True, by the name of an index, if it was just logged that its answers lack what is pending."""


def answer_by_sql(
    index: Declaration, conditions: Iterable[Condition], question: Question[Answer], view: View
) -> Answer:
    """Return the answer to a question about the ranked rows that meet the conditions.

    A seed draws the same members each time, but others than from Redis. The cost grows with the rows: the database
    counts them by a scan, and sorts those that it numbers. An answer is computed from one snapshot of the database;
    in a caller's transaction, from what its isolation level shows.

    Raises :exc:`~django_zrank.IndexUnavailable` if it takes longer than ``ZRANK["DATABASE_TIMEOUT"]``, the database
    can't be reached, or only Redis has the answer.
    """
    if (index.rule or index.awake) and not _logged.get(index.name):
        _logged.keep(index.name, True, _LOGGED_EVERY)
        logger.warning("Index %r: answers by SQL lack the changes that are pending in Redis", index.name)
    return _answer(Rows(index, conditions), question, view)  # type: ignore[no-any-return]


def _answer(rows: Rows, question: Any, view: View) -> Any:
    if isinstance(question, Several):
        return [_answer(rows, one, view) for one in question.questions]
    name = rows.index.name
    if any(GROUP in condition.values for condition in rows.conditions):
        raise IndexUnavailable(f"Index {name!r}: groups are in Redis alone, which can't be trusted")
    if isinstance(question, Draw) and question.remember is not None:
        raise IndexUnavailable(
            f"Index {name!r}: the members shown before are in Redis alone, which can't be trusted"
        )
    # As in a push; but a caller's own condition means the time zone of the caller.
    zone = timezone.get_current_timezone() if getattr(question, "where", None) else None
    try:
        with timezone.override(zone), reading(rows.connection, get_settings().database_timeout):
            return _ANSWERS[type(question)](rows, view, question)
    except OperationalError as error:
        raise IndexUnavailable(f"Index {name!r}: the database failed, too: {error}") from error


_ANSWERS: Final[dict[type, Callable[[Rows, View, Any], Any]]] = {
    BarePosition: bare_position,
    BareScore: bare_score,
    CountFacet: count_facet,
    Draw: sample,
    Locate: locate,
    PageAround: page_around,
    PageAt: page_at,
    PageBetween: page_between,
    Size: size,
}
