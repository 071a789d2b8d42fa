"""Removal of an index as it was with another number of shards."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ..models import Batch, Generation
from ..store import Store

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["unlink_other_shards"]

_KEYS: Final = 500
"""Keys of one SCAN or UNLINK."""


def unlink_other_shards(index: RankIndex) -> None:
    """Unlink the keys of parts that an index has no more, and delete what the database notes of them: those last, as
    they tell that there were such parts."""
    using, own = index.get_using(), {part.name for part in index.parts}
    rows = (
        Generation.objects.using(using).filter(index__startswith=index.name).values_list("index", flat=True)
    )
    for name in rows:
        if name not in own and re.fullmatch(re.escape(index.name) + r"(/\d+:\d+\.\d+)?", name):
            store = Store(name)
            for keys in store.scan_keys(_KEYS):
                store.unlink(keys)
            for model in (Batch, Generation):
                model.objects.using(using).filter(index=name)._raw_delete(using)
