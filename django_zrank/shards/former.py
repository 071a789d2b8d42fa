"""Shards that an index had before their number was changed."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from django.db import connections, transaction
from django.db.models import F, QuerySet

from ..builds import RETIRED, is_trusted, noted_and_found
from ..declaration import Index
from ..exceptions import Busy, IndexUnavailable
from ..extension import installed
from ..models import Batch, Build
from ..redis.scripts import Script
from ..store import Store
from ..sync.health import trust_server
from ..transactions import PATIENCE, briefly
from .declaration import ShardedIndex

__all__ = ["retire_former", "unlink_former"]

UNLINK_RETIRED: Final = Script("unlink_retired", __package__)

_KEYS: Final = 500

logger = logging.getLogger("django_zrank.sync")


def retire_former(index: ShardedIndex) -> None:
    """Retire the shards of releases with another number of shards: their processes settle no more marks, which the
    build that is about to begin needs. They can be read and written until they are unlinked."""
    rows = Build.objects.using(index.get_using()).exclude(build=RETIRED)
    if names := [row.index for row in _former(index, rows)]:
        rows.filter(index__in=names).update(building=F("build"), build=RETIRED)


def unlink_former(index: ShardedIndex, *, discards: bool = False) -> None:
    """Write the scores of retired shards to their column, unlink their keys, and then delete their rows.

    Shards that aren't retired are kept, because another release may be building them, and so is one that is built again
    meanwhile, by a release that was rolled back. A shard that can't be reached, or whose scores can't be written, is
    left for the next time. ``discards``: give up scores that no column can take.
    """
    for row in _former(index, Build.objects.using(index.get_using()).filter(build=RETIRED)):
        try:
            _unlink(index.shard(row.index), row, discards=discards)
        except (Busy, IndexUnavailable) as error:
            logger.warning("Index %r: the former shard %r was not removed. %s", index.name, row.index, error)


def _former(index: ShardedIndex, rows: QuerySet[Build]) -> list[Build]:
    """Return those of ``rows`` that belong to shards which ``index`` has with another number of shards."""
    own = {shard.name for shard in index.holders}
    found = rows.filter(index__startswith=index.name)
    return [row for row in found if row.index not in own and index.may_hold(row.index)]


def _unlink(shard: Index, retired: Build, *, discards: bool) -> None:
    using, store = shard.get_using(), Store.of(shard)
    is_own = not connections[using].in_atomic_block
    # A rebuild notes in the row what it builds, before that is live.
    same = Build.objects.using(using).filter(index=shard.name, build=RETIRED, building=retired.building)
    if is_own and any(store.read_meta("build", "building")):
        row, health = noted_and_found(shard, store)
        # Its server may have restarted, or failed over.
        if health.build == row.building and not is_trusted(health, row):
            trust_server(shard, store, health, row)
        for one in installed().values():
            one.work(shard, limit=None, patience=PATIENCE, skip_locked=False)
    if not briefly(using, partial(_close, store, same)):
        return
    for one in installed().values() if is_own else ():
        # Processes of the former release may have changed scores until here.
        if one.waiting(store)[0]:
            one.bring(shard)
        if (left := one.waiting(store)[0]) and not (discards and one.is_stranded(shard, store)):
            raise Busy(f"The scores of {left} members can't be written")
    keys = store.keys
    for names in filter(None, store.scan_keys(f"{keys.tag}:", _KEYS)):
        if store.call(UNLINK_RETIRED, (keys.meta, *names)) != b"done":
            return
    with transaction.atomic(using):
        if same._raw_delete(using):
            Batch.objects.using(using).filter(index=shard.name)._raw_delete(using)


def _close(store: Store, same: QuerySet[Build]) -> bool:
    """Let no more scores change in a shard, nor a build that is being made take its place. Return False, with nothing
    changed, if the row of its build isn't the ``same`` any more."""
    if not same.update(term=F("term")):  # which locks it
        return False
    store.call("HDEL", (store.keys.meta,), ("build", "building"))
    return True
