"""Removal of the shards that an index had before their number was changed."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from django.db import connections

from ..exceptions import Busy, IndexUnavailable
from ..models import Batch, Generation
from ..store import Store
from .flush import flush

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["unlink_other_shards"]

logger = logging.getLogger("django_zrank.sync")

_KEYS: Final = 500
"""Keys of one SCAN or UNLINK."""


def unlink_other_shards(index: RankIndex) -> None:
    """Unlink the keys of parts that an index has no more, and delete what the database notes of them: those last, as
    they tell that there were such parts. Scores and touches that began there are written to their columns before.

    A part that can't be reached, or whose server is not accepted, is left for the next rebuild.
    """
    using, own = index.get_using(), {part.name for part in index.parts}
    rows = (
        Generation.objects.using(using).filter(index__startswith=index.name).values_list("index", flat=True)
    )
    for name in rows:
        if name not in own and re.fullmatch(re.escape(index.name) + r"(/\d+:\d+\.\d+)?", name):
            try:
                _unlink(index.called(name))
            except (Busy, IndexUnavailable) as error:
                logger.warning("Index %r: its former shard %r is left. %s", index.name, name, error)


def _unlink(part: RankIndex) -> None:
    store = Store(part.name)
    if store.builds() and not connections[part.get_using()].in_atomic_block:
        flush(part)
    for keys in store.scan_keys(_KEYS):
        store.unlink(keys)
    for model in (Batch, Generation):
        model.objects.using(part.get_using()).filter(index=part.name)._raw_delete(part.get_using())
