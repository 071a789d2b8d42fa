"""Removal of the shards that an index had before their number was changed."""

from __future__ import annotations

import logging
import re

from django.db import connections
from django.db.models import F, QuerySet

from ..exceptions import Busy, IndexUnavailable
from ..index import RankIndex
from ..models import Batch, Generation
from ..notes import RETIRED, is_accepted, noted
from ..store import Store
from .flush import flush, write_scores
from .terms import accept_server

__all__ = ["other_shards", "retire_other_shards", "unlink_other_shards"]

logger = logging.getLogger("django_zrank.sync")


def retire_other_shards(index: RankIndex) -> None:
    """Retire the shards of releases with another number of shards: their processes settle no more marks, which the
    build that is about to begin needs. They can be read and written until they are unlinked."""
    rows = Generation.objects.using(index.get_using()).exclude(generation=RETIRED)
    if names := other_shards(index, rows):
        rows.filter(index__in=names).update(building=F("generation"), generation=RETIRED)


def unlink_other_shards(index: RankIndex) -> None:
    """Write the scores of retired shards to their column, unlink their keys, and then delete their rows.

    Shards that aren't retired are kept, because another release may be building them. A shard that can't be reached is
    left for the next time.
    """
    rows = Generation.objects.using(index.get_using()).filter(generation=RETIRED)
    for name in other_shards(index, rows):
        try:
            _unlink(index.called(name))
        except (Busy, IndexUnavailable) as error:
            logger.warning("Index %r: the former shard %r was not removed. %s", index.name, name, error)


def other_shards(index: RankIndex, rows: QuerySet[Generation]) -> list[str]:
    """Return the names in ``rows`` that parts of ``index`` have with another number of shards."""
    own, known = {part.name for part in index.parts}, re.compile(re.escape(index.name) + r"(/\d+:\d+\.\d+)?")
    names = rows.filter(index__startswith=index.name).values_list("index", flat=True)
    return [name for name in names if name not in own and known.fullmatch(name)]


def _unlink(part: RankIndex) -> None:
    store = Store.of(part)
    if not connections[part.get_using()].in_atomic_block:
        if store.builds():
            health, row = store.check_health(), noted(part)
            # Its server may have restarted, or failed over.
            if health.generation == row.building and not is_accepted(health, row):
                accept_server(part, store, health, row)
            flush(part)
        # Processes of the former release may have changed scores until here.
        store.close()
        if store.waiting()[0]:
            write_scores(part)
    store.unlink_all()
    for model in (Batch, Generation):
        model.objects.using(part.get_using()).filter(index=part.name)._raw_delete(part.get_using())
