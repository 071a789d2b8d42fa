"""Write-behind, as the kernel calls it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.core.checks import CheckMessage
from django.db.models import Q, Subquery
from django.db.models.functions import Coalesce
from django.template.defaultfilters import pluralize

from ..conf import settings_of
from ..extension import Extension, Preceding
from ..models import Build
from ..queries.request import Call
from ..redis.keys import Keys
from ..store import Health, Store
from .checks import check_write_behind
from .conf import ScoreSettings
from .declaration import WriteBehindIndex
from .flush import are_lost, flush, reconcile, write_scores
from .keys import carried_key, pending_key
from .store import DROP_PENDING, PendingStore

__all__ = ["WriteBehind"]

_PACKAGE = __package__ or ""


class WriteBehind(Extension[WriteBehindIndex]):
    needs = ("model", "order")

    def is_declared(self, index: WriteBehindIndex) -> bool:
        return index.column is not None

    def check(self, index: WriteBehindIndex) -> Iterator[CheckMessage]:
        return check_write_behind(index)

    def column(self, holder: WriteBehindIndex) -> Coalesce:
        """The number of the last flush, which tells which flushes the rows contain."""
        noted = Build.objects.using(holder.get_using()).filter(index=holder.name)
        return Coalesce(Subquery(noted.values("flushed")), 0)

    def before_write(self, script: str, holder: WriteBehindIndex, keys: Keys, noted: int | None) -> Preceding:
        flushed = "" if noted is None and script == "apply_changes" else noted or 0
        return Preceding(_PACKAGE, (pending_key(keys),), (holder.noted_rule, flushed))

    def before_check(self, script: str, keys: Keys) -> Preceding:
        return Preceding(_PACKAGE, (pending_key(keys),))

    def work(self, index: WriteBehindIndex, *, limit: int | None, patience: float, skip_locked: bool) -> int:
        return flush(index, limit=limit, patience=patience, skip_locked=skip_locked)

    def report(self, members: int) -> str:
        return f"{members} score{pluralize(members)} flushed"

    def waiting(self, store: Store) -> tuple[int, float]:
        return PendingStore(store.name).waiting()

    def bring(self, holder: WriteBehindIndex) -> None:
        write_scores(holder)

    def state(self, keys: Keys, members: Sequence[bytes]) -> list[Call]:
        return [
            Call("HMGET", (pending_key(keys),), members),
            Call("HMGET", (keys.meta,), ("taken", "settled")),
        ]

    def settled(self, replies: Sequence[Any], members: int) -> list[Any]:
        pending, (taken, settled) = replies
        is_calm = taken == settled
        return [(taken,) if is_calm and change is None else None for change in pending]

    def holds(self, store: Store, member: str) -> bool:
        taken, settled = store.read_meta("taken", "settled")
        flight = [carried_key(store.keys, int(taken))] if taken != settled else []
        hashes = [pending_key(store.keys), *flight]
        return any(store.read([Call("HEXISTS", (key,), (member,)) for key in hashes]))

    def removal(self, keys: Keys, key: str, member: str) -> Call | None:
        if keys.kind_of(key) != "pending":
            return None
        flush = key.removeprefix(pending_key(keys)).removeprefix(":")
        return Call(DROP_PENDING, (keys.meta, key), (member, flush))

    def expiring(self) -> Mapping[str, tuple[str, float]]:
        return {"once": ("idempotency keys", settings_of(ScoreSettings).keep_keys)}

    def is_behind(self, holder: WriteBehindIndex, store: Store) -> bool:
        return are_lost(holder, store)

    def trusting(self, holder: WriteBehindIndex, health: Health, *, everything: bool) -> bool:
        return reconcile(holder, PendingStore.of(holder), health, everything=everything)

    def keeps(self) -> Q:
        return Q(flush__isnull=False)
