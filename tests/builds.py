"""Builds that tests make by hand, on the server that ``testing.reset()`` has trusted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django_zrank.builds import TESTS as OWNER
from django_zrank.redis.sending import node_of
from django_zrank.store import Store
from django_zrank.testing import _TERM as TERM

__all__ = ["OWNER", "TERM", "identity", "load_rows", "shadow", "start", "trust"]


def start(store: Store, building: str, **how: Any) -> bool:
    """Begin to build a build, by default for the database that the live one belongs to."""
    health = store.check_health()
    how = {"owner": health.owner or OWNER, "server": health.server, "term": TERM, **how}
    return store.start_rebuild(building, **how)


def load_rows(store: Store, building: str, rows: Collection[tuple[str, Any, bytes]]) -> bool:
    """Add members to a build that is being built, in pieces. False: it was superseded."""
    return store.load_rows(building, rows)


def shadow(store: Store, building: str) -> str:
    """The root of a build that is being built."""
    return store.keys.at(building).root


def identity(store: Store) -> str:
    """The process and the replication history of the server that a store lies on."""
    server = node_of(store.client, store.keys.meta)
    return "{run_id}/{master_replid}".format(**server.info("server"), **server.info("replication"))


def trust(store: Store, build: str) -> None:
    """Make a build whose keys were written by hand the live one."""
    client, root = store.client, store.keys.at(build).root
    present = "".join(str(client.exists(key)) for key in (root, f"{root}:memberships", f"{root}:rankings"))
    state = {"build": build, "owner": OWNER, "server": identity(store), "term": TERM}
    client.hset(store.keys.meta, mapping={**state, "applied": 1, "present": present})
