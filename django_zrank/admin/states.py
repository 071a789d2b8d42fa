"""The state of an index, as the admin shows it, at a cost independent of the number of members."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from django.db import OperationalError, connections

from ..exceptions import IndexUnavailable
from ..index import RankIndex
from ..sql.deadline import reading
from ..store import Store
from ..sync.gauges import Gauges, read_gauges
from ..sync.health import Verdict
from ..sync.jobs import jobs_of
from ..sync.rebuild import count_rows

__all__ = ["Server", "State", "read_servers", "read_state", "read_states"]

_COUNTING: Final = 0.25
"""Seconds that counting the rows may take; a verification counts them, too."""

_LOOKING: Final = 2.0
"""Seconds that all other queries may take."""


@dataclass(frozen=True)
class State:
    """The state of an index in Redis and in the database."""

    index: RankIndex

    gauges: Gauges | None = None
    """None if the database did not answer in time, or Redis had not answered for another index."""

    rows: int | None = None
    """The number of rows that the database ranks; None if counting them takes too long."""

    has_open_jobs: bool = False

    @property
    def model(self) -> str:
        return str(self.index.model._meta.label)

    @property
    def is_healthy(self) -> bool:
        return self.gauges is not None and self.gauges.verdict is Verdict.HEALTHY

    @property
    def label(self) -> str:
        if self.gauges is None:
            return "not checked"
        return self.gauges.verdict.value if self.gauges.verdict else "Redis can't be reached"


def read_states(indexes: Iterable[RankIndex]) -> Iterator[State]:
    """Yield the state of each index. If Redis doesn't answer for one, it isn't asked about the others."""
    is_there = True
    for index in indexes:
        state = read_state(index) if is_there else State(index)
        yield state
        is_there = is_there and (state.gauges is None or state.gauges.verdict is not None)


def read_state(index: RankIndex) -> State:
    gauges, rows, has_open_jobs = None, None, False
    connection = connections[index.get_using()]
    try:
        with reading(connection, _LOOKING):
            has_open_jobs = jobs_of(index).filter(is_open=True).exists()
            gauges = read_gauges(index)
        with reading(connection, _COUNTING):
            rows = count_rows(index)
    except OperationalError:
        pass
    return State(index, gauges, rows, has_open_jobs)


@dataclass
class Server:
    """A Redis server that holds an index, or some of its shards."""

    name: str
    role: str

    memory: int
    limit: int
    """Bytes; no limit: 0."""

    policy: str

    own: int = 0
    """Bytes that the index takes there without its facet rankings, as Redis estimates them; 0 if unknown."""


def read_servers(index: RankIndex) -> list[Server]:
    """Return each server once; none if Redis can't be reached. It takes two round trips a shard."""
    found: dict[str, Server] = {}
    try:
        for part in index.parts:
            store = Store.of(part)
            info = store.server_info()
            server = found.setdefault(str(info["run_id"]), _server(info))
            with suppress(IndexUnavailable):  # refused: MEMORY is forbidden to many accounts
                server.own += store.memory()
    except IndexUnavailable:
        return []
    return list(found.values())


def _server(info: dict[str, Any]) -> Server:
    kind = "Valkey" if "valkey_version" in info else "Redis"
    return Server(
        name=f"{kind} {info.get('valkey_version') or info.get('redis_version', '')}",
        role=str(info.get("role", "")),
        memory=int(info.get("used_memory", 0)),
        limit=int(info.get("maxmemory", 0)),
        policy=str(info.get("maxmemory_policy", "")),
    )
