"""The beginning of a term: a server is accepted that has restarted, failed over or begun another history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..models import Generation
from ..store import Health, Store
from .flush import reconcile
from .marks import replay

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["accept_server"]


def accept_server(part: RankIndex, store: Store, health: Health, row: Generation) -> None:
    """Accept the server of a part under a new term: what it lacks waits again, as marks, and what is pending on it is
    what the column lacks. Nothing is changed where the database or Redis know another state by now, or where more was
    lost than is kept."""
    # The marks first: killed in between, they are worked off once more, which does no harm.
    replayed = replay(part, health.position, noted=row, server=health.server)
    if replayed is not None:
        reconcile(part, store, health)
        store.adopt_server(health, row.term + 1, behind=replayed > 0)
