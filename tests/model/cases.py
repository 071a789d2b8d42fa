"""The runs of the model: what may happen in each, and which guards each shows to be needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from . import scores, sync
from .sync import Bounds
from .world import Process

_WATCHER, _WRITER, _SITE = Process("watch"), Process("write"), Process("save")
_NEW, _OLD_SERVER = Process("watch", release=1), Process("watch", pinned=0)
_OTHER = Process("watch", database=1)
_FLUSH = Process("flush")


@dataclass(frozen=True)
class Case:
    """A run: what it is about, and its bounds."""

    about: str
    bounds: Bounds
    lane: str = "tests"
    """Where it runs: ``tests``, ``slow``, ``by hand`` if it takes minutes; or ``too large`` to be searched to its end:
    it only shows which guard is needed."""

    def model(self, without: str = "") -> sync.Model:
        has_scores = _FLUSH in self.bounds.processes
        return (scores if has_scores else sync).Model(self.bounds, without)


def _case(about: str, *processes: Process, may: str = "", lane: str = "tests", **bounds: int) -> Case:
    faults = frozenset(may.split())
    return Case(about, Bounds(processes=processes, may=faults, **bounds), lane)


CASES: Final = {
    "rollback": _case(
        "a watcher, and somebody who changes rows twice, commits or rolls back, and then pushes",
        _WATCHER, _SITE, may="rollback",
    ),
    "dropped trigger": _case(
        "a trigger that is dropped; a watcher and two saves", _WATCHER, _WRITER, faults=1, may="drop"
    ),
    "pushes": _case("two watchers, and somebody who saves twice", _WATCHER, _WATCHER, _WRITER),
    "bulk changes": _case(
        "a watcher, and two changes of two members each, of which each leaves one mark",
        _WATCHER, _WRITER, members=2, may="several",
    ),
    "bulk changes and a crash": _case(
        "the same with a server that restarts from an older dump, and one change",
        _WATCHER, _WRITER, saves=1, faults=1, members=2, kills=False, may="several crash",
    ),
    "kept token": _case(
        "a watcher, and somebody who saves three times, and pushes under the token of the push before",
        _WATCHER, _SITE, saves=3,
    ),
    "kept token and rebuild": _case(
        "the same with two saves and a watcher that rebuilds", _WATCHER, _SITE,
        faults=1, kills=False, may="rebuild",
    ),
    "kept token and two watchers": _case(
        "two watchers, and somebody who saves and pushes twice", _WATCHER, _WATCHER, _SITE, lane="by hand"
    ),
    "rebuild": _case(
        "two watchers, of which one rebuilds, and a save",
        _WATCHER, _WATCHER, _WRITER, saves=1, faults=1, may="rebuild", lane="slow",
    ),
    "rebuild, twice": _case(
        "the same with two saves", _WATCHER, _WATCHER, _WRITER, faults=1, may="rebuild", lane="by hand"
    ),
    "first build": _case(
        "two watchers that build an index, each taken for dead at any time, and a save",
        _WATCHER, _WATCHER, _WRITER, saves=1, is_built=False, kills=False, may="lapse", lane="slow",
    ),
    "restart": _case(
        "a server that restarts with all it had; two saves, pushed",
        _WATCHER, _SITE, faults=1, may="restart", lane="slow",
    ),
    "emptied": _case(
        "a server that restarts empty; a save, pushed",
        _WATCHER, _SITE, saves=1, faults=1, kills=False, may="empty",
    ),
    "crash": _case(
        "a server that restarts from an older dump; saves of two members, pushed",
        _WATCHER, _SITE, faults=1, members=2, kills=False, may="crash", lane="slow",
    ),
    "rolled back": _case(
        "a server that goes back to an older dump with its memory, as the same process; saves of two members",
        _WATCHER, _WRITER, faults=1, members=2, kills=False, may="rewind",
    ),
    "rolled back, and pushes": _case(
        "the same with saves that are pushed",
        _WATCHER, _SITE, faults=1, members=2, kills=False, may="rewind", lane="slow",
    ),
    "rolled back with kills": _case(
        "the same with one member, of which one save isn't pushed",
        _WATCHER, _SITE, _WRITER, faults=1, may="rewind", lane="too large",
    ),
    "rolled back while rebuilding": _case(
        "the same with a watcher that rebuilds, and a save",
        _WATCHER, _WRITER, saves=1, faults=2, kills=False, may="rewind rebuild",
    ),
    "failover": _case(
        "a replica that lags takes over; two watchers, and a save",
        _WATCHER, _WATCHER, _WRITER, saves=1, faults=1, servers=2, kills=False, may="failover", lane="slow",
    ),
    "failover with kills": _case(
        "the same with one watcher", _WATCHER, _WRITER, saves=1, faults=1, servers=2, may="failover", lane="slow"
    ),
    "rebuild and crash": _case(
        "a server that restarts from an older dump; a watcher that rebuilds, and a save",
        _WATCHER, _WRITER, saves=1, faults=2, kills=False, may="crash rebuild",
    ),
    "rebuild and failover": _case(
        "a replica that lags takes over; a watcher that rebuilds, and a save",
        _WATCHER, _WRITER, saves=1, faults=2, servers=2, kills=False, may="failover rebuild",
    ),
    "partition": _case(
        "a replica takes over, and one of two watchers stays with the old server",
        _WATCHER, _OLD_SERVER, _WRITER, saves=1, faults=1, servers=2, kills=False, may="failover", lane="slow",
    ),
    "there and back": _case(
        "two failovers; two saves, pushed",
        _WATCHER, _SITE, faults=2, servers=2, kills=False, may="failover", lane="slow",
    ),
    "there and back, two members": _case(
        "the same with saves of two members",
        _WATCHER, _SITE, faults=2, members=2, servers=2, kills=False, may="failover", lane="by hand",
    ),
    "releases": _case(
        "an old and a new release side by side, and `migrate` and `rebuild_zrank` at any time",
        _WATCHER, _NEW, _WRITER, saves=1, faults=2, releases=2, kills=False, may="migrate command", lane="slow",
    ),
    "old release pushes": _case(
        "the new release watches, the old one saves and pushes, and `migrate` at any time",
        _NEW, _SITE, saves=1, faults=1, releases=2, kills=False, may="migrate",
    ),
    "column dropped": _case(
        "two releases, of which the old one is stopped; `migrate`, an operation that drops the old one's column, and "
        "`rebuild_zrank`",
        _WATCHER, _NEW, saves=0, faults=2, releases=2, kills=False, may="migrate column stop command",
    ),
    "column dropped, and a save": _case(
        "the same with a save", _WATCHER, _NEW, _WRITER,
        saves=1, faults=2, releases=2, kills=False, may="migrate column stop command", lane="slow",
    ),
    "restored table": _case("a table restored beneath its triggers", _WATCHER, _WRITER, faults=1, may="restore"),
    "switchover": _case(
        "a database that is switched over to its standby, in step; two watchers and two saves",
        _WATCHER, _WATCHER, _WRITER, faults=1, databases=2, is_standby=True, kills=False, may="switch", lane="slow",
    ),
    "switchover and rebuild": _case(
        "the same with one save, and rebuilds",
        _WATCHER, _WATCHER, _WRITER,
        saves=1, faults=2, databases=2, is_standby=True, kills=False, may="switch rebuild", lane="slow",
    ),
    "fenced primary": _case(
        "a primary that is fenced, and lags behind the standby that took over; two watchers and two saves",
        _WATCHER, _WATCHER, _WRITER, faults=1, databases=2, is_standby=True, kills=False, may="fence", lane="slow",
    ),
    "fenced primary, and pushes": _case(
        "the same with one watcher, and a save by somebody else between two that are pushed",
        _WATCHER, _SITE, _WRITER,
        saves=3, faults=1, databases=2, is_standby=True, kills=False, may="fence", lane="slow",
    ),
    "stale standby": _case(
        "readers ask a standby that lags, while Redis restarts from an older dump; a save, pushed",
        _WATCHER, _SITE, saves=1, faults=1, databases=2, is_standby=True, kills=False, may="crash",
    ),
    "another database": _case(
        "the watcher of another project, with the same Redis", _WATCHER, _OTHER, _WRITER, saves=1, databases=2
    ),
    "flushes": _case("two flushes, a watcher and two changes", _WATCHER, _FLUSH, _FLUSH, lane="slow"),
    "skipped writes": _case(
        "a flush and a watcher, and a trigger of the project's that skips what is written", _WATCHER, _FLUSH, may="skip"
    ),
    "skipped best changes": _case(
        "the same with a change that isn't as good as the one before, and a watcher that rebuilds",
        _WATCHER, _FLUSH, faults=1, may="best skip rebuild", lane="slow",
    ),
    "changes that take each other back": _case(
        "the new release watches and rebuilds; a flush, and two changes of which one takes the other back",
        _NEW, _FLUSH, releases=2, kills=False, may="reverse",
    ),
    "best changes": _case(
        "the same with a change that isn't as good as the one before", _NEW, _FLUSH, releases=2, kills=False, may="best"
    ),
    "write_behind is removed": _case(
        "the same, where the new release declares no `write_behind`; two changes",
        _NEW, _FLUSH, releases=2, kills=False, may="removes",
    ),
    "write_behind is added": _case(
        "the old release declares no `write_behind`, and watches, too; a flush and a change, and `rebuild_zrank`",
        _WATCHER, _NEW, _FLUSH, saves=1, faults=1, releases=2, kills=False, may="adds command", lane="slow",
    ),
    "flushes and a restart": _case(
        "a server that restarts with all it had; a flush, a watcher and a change",
        _WATCHER, _FLUSH, saves=1, faults=1, may="restart",
    ),
    "flushes and two watchers": _case(
        "the same with two watchers", _WATCHER, _WATCHER, _FLUSH,
        saves=1, faults=1, kills=False, may="restart", lane="by hand",
    ),
    "flushes and a crash": _case(
        "a server that restarts from an older dump; a flush, a watcher and a change",
        _WATCHER, _FLUSH, saves=1, faults=1, kills=False, may="crash",
    ),
    "flushes, rolled back": _case(
        "a server that goes back to an older dump with its memory; a flush, a watcher and two changes",
        _WATCHER, _FLUSH, faults=1, kills=False, may="rewind", lane="slow",
    ),
    "flushes and a failover": _case(
        "a replica that lags takes over; a flush, a watcher and two changes",
        _WATCHER, _FLUSH, faults=1, servers=2, kills=False, may="failover", lane="slow",
    ),
    "flushes, there and back": _case(
        "the same with two failovers",
        _WATCHER, _FLUSH, faults=2, servers=2, kills=False, may="failover", lane="by hand",
    ),
}  # fmt: skip

LOST: Final = _case(
    "a database that fails over and loses commits",
    _WATCHER, _WRITER, saves=1, faults=1, databases=2, is_standby=True, kills=False, may="lose",
)  # fmt: skip

GUARDS: Final = {
    "commit first": ("rollback", "a push begins after the commit"),
    "committed rows": ("rollback", "only committed rows are read"),
    "mark": ("rollback", "each change leaves a mark, in its transaction"),
    "capture": ("dropped trigger", "an index is not healthy while a trigger is missing"),
    "mark for all": ("dropped trigger", "triggers that are put back leave a mark for all members"),
    "built": ("emptied", "nothing is read from an index that isn't built"),
    "flush marks": ("changes that take each other back", "a flush marks every member that it carried"),
    "merge": ("best changes", "a better score is compared with what is pending, too"),
    "no better": (
        "skipped best changes",
        "a change that is no better than the live score doesn't enter a build that is being made",
    ),
    "write_behind": ("write_behind is removed", "a release trusts no build of another `write_behind`"),
    "token first": ("pushes", "a push takes its token before it reads rows"),
    "refusal": ("pushes", "a script writes no member that was written since the token was taken"),
    "second refusal": ("pushes", "a push gives up only after two refusals"),
    "both builds": ("rebuild", "a push writes to the build that is being made, too"),
    "written since": ("rebuild", "a rebuild loads no row of a member that was written since it began"),
    "older tokens": ("rebuild, twice", "a token from before a rebuild began is refused"),
    "marks first": ("rebuild", "a rebuild lists the marks that it will delete before it reads rows"),
    "fence": (
        "failover",
        "marks are deleted only if the database still notes the build and the term of the write",
    ),
    "term": ("failover", "a write is refused under another term than that of its token"),
    "history": (
        "flushes, there and back",
        "a server with another replication history is not the trusted one",
    ),
    "lost": (
        "rebuild and failover",
        "a build is not trusted once a rebuild has begun on a server that may lack writes",
    ),
    "traces": (
        "rolled back",
        "a server is not healthy, and no drain writes to it, while it lacks the trace of a write that was noted",
    ),
    "pieces": (
        "rolled back, and pushes",
        "a write of several pieces goes on only where the trace of the piece before is",
    ),
    "abandoned": (
        "rolled back with kills",
        "a token is refused where the newest trace of its time is missing, or is followed by one that is no newer",
    ),
    "loaded": (
        "rolled back while rebuilding",
        "a build is put in place only if Redis has counted as many rows as were loaded",
    ),
    "flushes": (
        "flushes, rolled back",
        "a flush is taken only from a server that has taken the one noted before under its term",
    ),
    "batches": ("failover", "marks of what a server lacks wait again before it is trusted"),
    "owner": ("another database", "a watcher replaces no build of another database"),
    "declaration": ("releases", "a release doesn't trust what another declaration built"),
    "declaration of writes": (
        "old release pushes",
        "a release writes nothing to what another declaration built",
    ),
    "expand": ("column dropped", "`migrate` adds triggers, and drops none"),
    "columns": ("column dropped", "a migration that drops a column drops the triggers that name it"),
    "contract": (
        "column dropped",
        "once the build of the recorded release is live, triggers of others are dropped",
    ),
    "current": ("column dropped", "triggers of the recorded release are left, before its build is live, too"),
    "same note": (
        "column dropped",
        "triggers are dropped only if the same release is still recorded, and no other build is being made",
    ),
    "recorded builds": (
        "column dropped",
        "workers leave the build of the recorded release alone, whoever is alive",
    ),
    "looks again": (
        "column dropped",
        "a worker looks again who is recorded once its rebuild has begun",
    ),
    "recorded adds": (
        "column dropped",
        "workers create only the triggers of the recorded release",
    ),
    "triggers": ("restored table", "a build notes the triggers under which it was made"),
    "primary database": ("switchover", "rows are read only from the database that takes writes"),
    "fenced primary": (
        "fenced primary",
        "rows aren't read from a primary that takes no writes, either",
    ),
    "late reads": (
        "fenced primary, and pushes",
        "a push reads rows where some may be old only under a token from before its commit",
    ),
    "idle watcher": (
        "fenced primary",
        "a watcher that finds nothing to do asks whether its database takes writes",
    ),
    "number": ("flushes", "a flush is noted in the transaction that writes it"),
    "one before": ("flushes", "a flush commits only if the one before it is noted"),
    "same term": ("flushes and a failover", "a flush commits only under the term that it was taken under"),
    "reconcile": (
        "flushes and a failover",
        "what is pending on a server is reduced to what the column lacks before it is trusted",
    ),
    "unknown flushes": (
        "flushes and a failover",
        "what a server has pending of members carried by flushes unknown to it is dropped",
    ),
}
"""What the product does, each of which the search can leave out: the run that goes wrong without it, and the rule."""

HISTORIES: Final = {
    "Rolling deploy: the old release's watcher drains the new release's mark for all members": "declaration",
    "Rolling deploy: a web process of the old release pushes": "declaration of writes",
    "A generated field gets another formula, a facet's field another type, or the time zone changes": "declaration",
    "`migrate` drops the triggers of the release that still runs": "expand",
    "A deploy by the book: triggers of both releases stay, and each change leaves two marks": "contract",
    "Rolling deploy: workers of two releases rebuild in turns, as neither sees the other": "recorded builds",
    "A column dropped in two deploys, while triggers of the release before name it": "columns",
    "A table restored from a dump, with its triggers": "triggers",
    "The database is switched over; an idle connection stays with the former primary, which lags": "primary database",
    "A primary that is fenced, and no replica, answers a connection that stayed open": "fenced primary",
    "A primary is fenced between a save's commit and its push, which then reads there": "late reads",
    "SQLite: a save shares the snapshot of a loop over rows, and reads its row there": "late reads",
    "READ UNCOMMITTED: a drain applies what is rolled back": "committed rows",
    "A table fed by logical replication, whose workers fire no statement-level triggers": "capture",
    "Partitions that return to a former set: one trigger of another set counts as present": "capture",
    "Values that are equal for a trigger and different for Python leave no mark": "mark",
    "A table without transactions (MyISAM): a change stays, its mark doesn't": "mark",
    "A trigger of the project's caps what a flush writes, or skips the row": "flush marks",
    "Like and un-like across a rebuild of another declaration: the flush changes no row": "flush marks",
    "Rolling deploy: a lower score after one that a rebuild has missed takes its place": "merge",
    "A trigger caps a best score, and a lower one is submitted to a rebuild that has the capped one": "no better",
    "Rolling deploy: a release removes `write_behind`, and pushes rows without what is pending": "write_behind",
    "A machine is rolled back with its memory, and later writes hide what Redis lacks": "traces",
    "A machine is rolled back with its memory while a rebuild loads rows": "loaded",
    "A machine is rolled back with its memory, and what was flushed is pending again": "flushes",
    "An index that is empty or not built answers filtered reads": "built",
}
"""Ways to be wrong under HEALTHY that were found by hand, and the guard that each one's correction has added."""

SHOWN_BY: Final = {"A trigger of the project's caps what a flush writes, or skips the row": "skipped writes"}
"""Runs that show a history, where the one of its guard shows another."""
