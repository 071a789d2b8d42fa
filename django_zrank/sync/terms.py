"""New terms: a server is accepted after a restart, a failover or another change of its history."""

from __future__ import annotations

from ..index import RankIndex
from ..models import Generation
from ..store import Health, Store
from .flush import reconcile
from .marks import replay

__all__ = ["accept_server"]


def accept_server(part: RankIndex, store: Store, health: Health, row: Generation) -> None:
    """Accept the server of a part under a new term: marks of the writes that it lacks wait again, and its pending
    scores are reduced to what the column lacks.

    Nothing changes if the database or Redis have another state by now, or if more was lost than is kept.
    """
    # Marks come first: if the process is killed after that, they are processed once more, which does no harm.
    replayed = replay(part, health.position, noted=row, server=health.server)
    if replayed is not None:
        reconcile(part, store, health)
        store.adopt_server(health, row.term + 1, behind=replayed > 0)
