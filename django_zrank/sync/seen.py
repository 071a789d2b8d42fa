"""The column that tells when a row was last seen: written after touches."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from django.db import connections
from django.db.models import Case, F, Q, QuerySet, Value, When

from ..codec.awake import MOMENT, TimeAgo
from .patience import PATIENCE, briefly
from .watched_tables import every_row

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["write_seen"]

_STATEMENT: Final = 200
"""Rows of one statement: SQLite may not take more than 999 parameters."""

_NOW: Final = timedelta(0)


def write_seen(index: RankIndex, times: Mapping[Any, int | None], *, patience: float = PATIENCE) -> None:
    """Write when rows, by their primary keys, were seen, in microseconds; None is now, by the database's clock.

    A row that was seen later keeps that: so what is written twice, or late, does no harm.

    Raises :exc:`~django_zrank.exceptions.Busy` where others keep rows locked for longer than ``patience`` seconds.
    """
    using, field = index.get_using(), index.awake.field  # type: ignore[union-attr]
    name: str = field.name  # type: ignore[union-attr]
    pairs = iter(times.items())
    while chunk := dict(islice(pairs, _STATEMENT)):
        rows = every_row(index.model, using).filter(pk__in=list(chunk))
        moments = {
            pk: TimeAgo(_NOW) if time is None else Value(MOMENT.value(time), output_field=field)
            for pk, time in chunk.items()
        }
        later = [
            When(Q(pk=pk) & (Q(**{name: None}) | Q(**{f"{name}__lt": moment})), then=moment)
            for pk, moment in moments.items()
        ]
        briefly(using, partial(_update, rows, {name: Case(*later, default=F(name))}), patience=patience)


def _update(rows: QuerySet[Any], values: dict[str, Case]) -> None:
    if connections[rows.db].features.has_select_for_update_nowait:
        # Nobody waits for a lock of somebody who may have been stopped, nor in a deadlock.
        list(rows.select_for_update(nowait=True).values_list("pk"))
    rows.update(**values)
