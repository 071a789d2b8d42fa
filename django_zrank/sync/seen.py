"""Writes to the column that tells when a row was last seen."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import DataError, IntegrityError
from django.db.models import Case, F, Q, Value, When
from django.utils import timezone

from ..codec.awake import MOMENT, TimeAgo
from ..index import RankIndex
from ..members import batched
from ..store import Store
from .transactions import PATIENCE, briefly
from .watched_tables import every_row

__all__ = ["carry_touches", "write_seen"]

logger = logging.getLogger("django_zrank.sync")

_STATEMENT: Final = 200
"""Rows of one statement: SQLite may not take more than 999 parameters."""

_BATCH: Final = 500
"""Members that one call settles."""

_NOW: Final = timedelta(0)


def carry_touches(
    index: RankIndex, store: Store, members: Iterable[str], *, patience: float = PATIENCE
) -> list[str]:
    """Write the touches of members to their column, and settle them. Return the members that had been touched.

    Raises as ``write_seen()`` does.
    """
    touched = store.read_touches(list(members)) if index.seen_field else {}
    for chunk in map(dict, batched(touched.items(), _BATCH)):
        write_seen(index, {index.from_text(text): time for text, time in chunk.items()}, patience=patience)
        store.settle_touches(chunk, chunk, index.awake.rest)  # type: ignore[union-attr]
    return list(touched)


def write_seen(index: RankIndex, times: Mapping[Any, int | None], *, patience: float = PATIENCE) -> None:
    """Write the times at which rows, by their primary keys, were seen: in microseconds, None for the database's now.

    A later time in the column is kept, so a time may be written twice, or late. What a constraint of the database
    refuses is logged, and lost: otherwise all others would wait for it.

    Raises :exc:`~django_zrank.exceptions.Busy` if rows stay locked for longer than ``patience`` seconds.
    """
    for chunk in map(dict, batched(times.items(), _STATEMENT)):
        try:
            _update(index, chunk, patience)
        except (DataError, IntegrityError) as error:
            if len(chunk) == 1:
                logger.error("Index %r: the database refuses the time of %s: %s", index.name, *chunk, error)
                continue
            for pk, time in chunk.items():
                write_seen(index, {pk: time}, patience=patience)


def _update(index: RankIndex, chunk: Mapping[Any, int | None], patience: float) -> None:
    using, field = index.get_using(), index.seen_field
    name: str = field.name  # type: ignore[union-attr]
    rows = every_row(index.model, using).filter(pk__in=list(chunk))
    moments = {
        pk: TimeAgo(_NOW) if time is None else Value(_from_redis(time), output_field=field)
        for pk, time in chunk.items()
    }
    later = [
        When(Q(pk=pk) & (Q(**{name: None}) | Q(**{f"{name}__lt": moment})), then=moment)
        for pk, moment in moments.items()
    ]

    def work() -> None:
        # Don't wait for a lock whose holder may have been stopped, nor in a deadlock.
        list(rows.select_for_update(nowait=True).values_list("pk"))
        rows.update(**{name: Case(*later, default=F(name))})

    briefly(using, work, patience=patience)


def _from_redis(time: int) -> datetime:
    """Convert a time of Redis's clock to a column's: local time if ``USE_TZ`` is off."""
    moment = MOMENT.value(time)
    return moment if settings.USE_TZ else timezone.make_naive(moment.replace(tzinfo=UTC))
