"""The runs of the model: what may happen in each, and which guards each shows to be needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from . import scores, sync
from .world import Process

_WATCHER, _WRITER, _SITE = Process("watch"), Process("write"), Process("save")
_NEW, _OLD_SERVER = Process("watch", release=1), Process("watch", pinned=0)
_OTHER = Process("watch", database=1)
_FLUSH, _DRAIN, _ACCEPT = map(scores.Process, ("flush", "drain", "accept"))


@dataclass(frozen=True)
class Case:
    """A run: what it is about, and its bounds."""

    about: str
    bounds: sync.Bounds | scores.Bounds
    lane: str = "tests"
    """Where it runs: ``tests``, ``slow``, ``by hand`` if it takes minutes; or ``too large`` to be searched to its end:
    it only shows which guard is needed."""

    def model(self, without: str = "") -> sync.Model | scores.Model:
        if isinstance(self.bounds, sync.Bounds):
            return sync.Model(self.bounds, without)
        return scores.Model(self.bounds, without)


def _sync(about: str, *processes: Process, may: str = "", lane: str = "tests", **bounds: int) -> Case:
    faults = frozenset(may.split())
    return Case(about, sync.Bounds(processes=processes, may=faults, **bounds), lane)


CASES: Final = {
    "rollback": _sync(
        "a watcher, and somebody who changes rows twice, commits or rolls back, and then pushes",
        _WATCHER, _SITE, kills=False, may="rollback",
    ),
    "dropped trigger": _sync(
        "a trigger that is dropped; a watcher and two saves", _WATCHER, _WRITER, faults=1, may="drop"
    ),
    "pushes": _sync("two watchers, and somebody who saves twice", _WATCHER, _WATCHER, _WRITER),
    "rebuild": _sync(
        "two watchers, of which one rebuilds, and a save",
        _WATCHER, _WATCHER, _WRITER, saves=1, faults=1, may="rebuild", lane="slow",
    ),
    "rebuild, twice": _sync(
        "the same with two saves", _WATCHER, _WATCHER, _WRITER, faults=1, may="rebuild", lane="by hand"
    ),
    "first build": _sync(
        "two watchers that build an index, each taken for dead at any time, and a save",
        _WATCHER, _WATCHER, _WRITER, saves=1, is_built=False, kills=False, may="lapse", lane="slow",
    ),
    "restart": _sync(
        "a server that restarts with all it had; two saves, pushed",
        _WATCHER, _SITE, faults=1, may="restart", lane="slow",
    ),
    "emptied": _sync(
        "a server that restarts empty; a save, pushed",
        _WATCHER, _SITE, saves=1, faults=1, kills=False, may="empty",
    ),
    "crash": _sync(
        "a server that restarts from an older dump; saves of two members, pushed",
        _WATCHER, _SITE, faults=1, members=2, kills=False, may="crash", lane="slow",
    ),
    "failover": _sync(
        "a replica that lags takes over; two watchers, and a save",
        _WATCHER, _WATCHER, _WRITER, saves=1, faults=1, servers=2, kills=False, may="failover", lane="slow",
    ),
    "failover of writers": _sync(
        "the same with two saves",
        _WATCHER, _WATCHER, _WRITER, faults=1, servers=2, kills=False, may="failover", lane="too large",
    ),
    "partition": _sync(
        "a replica takes over, and one of two watchers stays with the old server",
        _WATCHER, _OLD_SERVER, _WRITER, saves=1, faults=1, servers=2, kills=False, may="failover", lane="slow",
    ),
    "there and back": _sync(
        "two failovers; saves of two members, pushed",
        _WATCHER, _SITE, faults=2, members=2, servers=2, kills=False, may="failover", lane="by hand",
    ),
    "releases": _sync(
        "an old and a new release side by side, and `migrate` at any time",
        _WATCHER, _NEW, _WRITER, saves=1, faults=1, releases=2, kills=False, may="migrate",
    ),
    "old release pushes": _sync(
        "the new release watches, the old one saves and pushes, and `migrate` at any time",
        _NEW, _SITE, saves=1, faults=1, releases=2, kills=False, may="migrate",
    ),
    "restored table": _sync("a table restored beneath its triggers", _WATCHER, _WRITER, faults=1, may="restore"),
    "switchover": _sync(
        "a database that is switched over to its standby, in step; two watchers and two saves",
        _WATCHER, _WATCHER, _WRITER, faults=1, databases=2, is_standby=True, kills=False, may="switch", lane="slow",
    ),
    "stale standby": _sync(
        "readers ask a standby that lags, while Redis restarts from an older dump; a save, pushed",
        _WATCHER, _SITE, saves=1, faults=1, databases=2, is_standby=True, kills=False, may="crash",
    ),
    "another database": _sync(
        "the watcher of another project, with the same Redis", _WATCHER, _OTHER, _WRITER, saves=1, databases=2
    ),
    "flushes": Case(
        "two flushes, a drain and two changes", scores.Bounds(processes=(_FLUSH, _FLUSH, _DRAIN)), "slow"
    ),
    "skipped writes": Case(
        "a flush and a drain, and a trigger of the project's that skips what is written",
        scores.Bounds(processes=(_FLUSH, _DRAIN), skips=True),
    ),
    "flushes and a failover": Case(
        "a replica that lags takes over; a flush, a drain and two changes",
        scores.Bounds(servers=2, faults=1, kills=False, processes=(_FLUSH, _DRAIN, _ACCEPT)),
        "slow",
    ),
    "flushes, there and back": Case(
        "the same with two failovers",
        scores.Bounds(servers=2, faults=2, kills=False, processes=(_FLUSH, _DRAIN, _ACCEPT)),
        "by hand",
    ),
}  # fmt: skip

LOST: Final = _sync(
    "a database that fails over and loses commits",
    _WATCHER, _WRITER, saves=1, faults=1, databases=2, is_standby=True, kills=False, may="lose",
)  # fmt: skip

SHOWN_BY: Final = {
    "commit first": "rollback",
    "committed rows": "rollback",
    "mark": "rollback",
    "capture": "dropped trigger",
    "mark for all": "dropped trigger",
    "built": "emptied",
    "flush marks": "skipped writes",
    "token first": "pushes",
    "refusal": "pushes",
    "second refusal": "pushes",
    "both builds": "rebuild",
    "written since": "rebuild",
    "older tokens": "rebuild, twice",
    "marks first": "rebuild",
    "fence": "failover",
    "term": "failover of writers",
    "process": "crash",
    "history": "there and back",
    "batches": "failover",
    "owner": "another database",
    "declaration": "releases",
    "declaration of writes": "old release pushes",
    "triggers": "restored table",
    "primary database": "switchover",
    "number": "flushes",
    "one before": "flushes",
    "same term": "flushes and a failover",
    "reconcile": "flushes and a failover",
    "unknown flushes": "flushes and a failover",
}
"""By guard: the run that goes wrong without it."""

HISTORIES: Final = {
    "Rolling deploy: the old release's watcher drains the new release's mark for all members": "declaration",
    "Rolling deploy: a web process of the old release pushes": "declaration of writes",
    "A generated field gets another formula, a facet's field another type, or the time zone changes": "declaration",
    "A table restored from a dump, with its triggers": "triggers",
    "The database is switched over; an idle connection stays with the former primary, which lags": "primary database",
    "READ UNCOMMITTED: a drain applies what is rolled back": "committed rows",
    "A table fed by logical replication, whose workers fire no statement-level triggers": "capture",
    "Partitions that return to a former set: one trigger of another set counts as present": "capture",
    "Values that are equal for a trigger and different for Python leave no mark": "mark",
    "A table without transactions (MyISAM): a change stays, its mark doesn't": "mark",
    "A trigger of the project's caps what a flush writes, or skips the row": "flush marks",
    "An index that is empty or not built answers filtered reads": "built",
}
"""Ways to be wrong under HEALTHY that were found by hand, and the guard that each one's correction has added."""
