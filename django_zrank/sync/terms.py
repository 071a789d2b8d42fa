"""New terms, under which a server is trusted after a restart, a failover or another change of its history."""

from __future__ import annotations

from ..declaration import Index
from ..extension import installed
from ..models import Build
from ..store import Health, Store
from .marks import replay

__all__ = ["is_behind", "trust_server"]


def trust_server(index: Index, store: Store, health: Health, row: Build) -> None:
    """Accept the server of an index under a new term: marks of the writes that it lacks wait again, and extensions
    compare what they have there with the database.

    Nothing changes if the database or Redis have another state by now, or if more was lost than is kept.
    """
    # Marks come first: if the process is killed after that, they are processed once more, which does no harm.
    replayed = replay(index, health, noted=row)
    if replayed is None:
        return
    if all(one.trusting(index, health, everything=False) for one in installed().values()):
        store.adopt_server(health, row.term + 1, behind=replayed > 0)


def is_behind(index: Index, store: Store) -> bool:
    """Return True if the database has lost what extensions had noted in it: it was restored from a backup, or failed
    over."""
    return any(one.is_behind(index, store) for one in installed().values())
