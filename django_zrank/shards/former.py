"""Shards that an index had before their number was changed."""

from __future__ import annotations

import logging

from django.db import connections
from django.db.models import F, QuerySet

from ..builds import RETIRED, is_trusted, noted_and_found
from ..declaration import Index
from ..exceptions import Busy, IndexUnavailable
from ..extension import installed
from ..models import Batch, Build
from ..store import Store
from ..sync.health import trust_server
from ..transactions import PATIENCE
from .declaration import ShardedIndex

__all__ = ["retire_former", "unlink_former"]

logger = logging.getLogger("django_zrank.sync")


def retire_former(index: ShardedIndex) -> None:
    """Retire the shards of releases with another number of shards: their processes settle no more marks, which the
    build that is about to begin needs. They can be read and written until they are unlinked."""
    rows = Build.objects.using(index.get_using()).exclude(build=RETIRED)
    if names := _former(index, rows):
        rows.filter(index__in=names).update(building=F("build"), build=RETIRED)


def unlink_former(index: ShardedIndex) -> None:
    """Write the scores of retired shards to their column, unlink their keys, and then delete their rows.

    Shards that aren't retired are kept, because another release may be building them. A shard that can't be reached is
    left for the next time.
    """
    rows = Build.objects.using(index.get_using()).filter(build=RETIRED)
    for name in _former(index, rows):
        try:
            _unlink(index.shard(name))
        except (Busy, IndexUnavailable) as error:
            logger.warning("Index %r: the former shard %r was not removed. %s", index.name, name, error)


def _former(index: ShardedIndex, rows: QuerySet[Build]) -> list[str]:
    """Return the names in ``rows`` that shards of ``index`` have with another number of shards."""
    own = {shard.name for shard in index.holders}
    names = rows.filter(index__startswith=index.name).values_list("index", flat=True)
    return [name for name in names if name not in own and index.may_hold(name)]


def _unlink(shard: Index) -> None:
    store = Store.of(shard)
    if not connections[shard.get_using()].in_atomic_block:
        if any(store.read_meta("build", "building")):
            row, health = noted_and_found(shard, store)
            # Its server may have restarted, or failed over.
            if health.build == row.building and not is_trusted(health, row):
                trust_server(shard, store, health, row)
            for one in installed().values():
                one.work(shard, limit=None, patience=PATIENCE, skip_locked=False)
        # Processes of the former release may have changed scores until here.
        store.call("HDEL", (store.keys.meta,), ("build", "building"))
        for one in installed().values():
            if one.waiting(store)[0]:
                one.bring(shard)
    store.unlink_all()
    for model in (Batch, Build):
        model.objects.using(shard.get_using()).filter(index=shard.name)._raw_delete(shard.get_using())
