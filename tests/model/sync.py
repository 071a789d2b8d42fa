"""The protocol of ``docs/protocol.md`` as a model: rows, marks, builds, servers, releases and databases.

Each method that a process stands before is one step: what happens in it happens at once, as a transaction of the
database or a script of Redis does. Whatever may come between two steps does, in every order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from .names import Name, Version
from .search import Found, Step, search
from .world import ALL, Batch, Data, Database, Note, Process, Server, World, history, key

Turn = tuple[str, World, Process]
"""What a process does, and the world and the process after it."""

_WRITES: Final = frozenset({"unmarking", "noting", "replaying", "entering", "noting_start", "contracting"})
"""Steps that write to the database."""

_ROWS: Final = frozenset({"reading", "noting_start", "querying"})
"""Steps for which a release's column must exist."""

_DUMPED: Final = frozenset({"crash", "rewind"})
"""Faults for which a server's data is copied."""

_NAMES: Final = {"watch": "a watcher", "flush": "a flush", "save": "the site", "write": "the site"}


@dataclass(frozen=True)
class Bounds:
    """What may happen in a run. The search knows nothing beyond it."""

    saves: int = 2  # or changes of a score
    faults: int = 0
    members: int = 1
    processes: tuple[Process, ...] = ()
    servers: int = 1
    releases: int = 1
    databases: int = 1
    is_standby: bool = False  # the second database is a standby of the first, not another project's
    # Faults, as faults() names them; migrate; rebuild: watchers may, without need; lapse: a live one is taken for dead;
    # rollback: transactions may roll back; skip: a trigger of the project's skips what a flush writes; stop: the old
    # release's watchers may be stopped for good; command: somebody runs rebuild_zrank, with any release; several: a
    # change of all members leaves one mark.
    may: frozenset[str] = frozenset()
    kills: bool = True  # any process may be killed before any step
    is_built: bool = True


class Model:
    """The protocol within bounds, whole or ``without`` one of its guards."""

    zero: Any = 0  # the value of a row that nobody has changed

    def __init__(self, bounds: Bounds, without: str = "") -> None:
        self.bounds, self.without = bounds, without
        asks = self.has("fenced primary") if "fence" in bounds.may else self.has("primary database")
        self.on_primary = _WRITES | ({"reading"} if asks else set())
        if "fence" in bounds.may and self.has("idle watcher"):
            self.on_primary |= {"watch"}

    def has(self, guard: str) -> bool:
        return guard != self.without

    def run(self) -> Found:
        return search(self.first(), self.steps, wrong=self.wrong, calm=self.calm, key=self.key)

    def key(self, world: World) -> Any:
        emptied = (self.nothing(),) if "empty" in self.bounds.may else ()
        return key(world, emptied, "rewind" in self.bounds.may or bool(self.without))

    def position(self, version: Version) -> Version:
        """Return what is noted of a version: without traces, a server is judged by it."""
        return Version(0) if self.has("traces") else version

    def first(self) -> World:
        """Return a world in which all is well, with names from 1 to 5."""
        bounds, zeros = self.bounds, (0,) * self.bounds.members
        data, note = self.nothing(), Note()
        if bounds.is_built:
            values = (self.zero,) * bounds.members
            data = Data(values, zeros, 1, (0, 4), started=1, trusted=(1, 2), term=1, owner=1)
            note = Note((0, 4), server=(1, 2), term=1, triggers=5)
        database = Database(((self.zero,) * bounds.releases,) * bounds.members, note, 5, frozenset({0}))
        databases = database, database if bounds.is_standby else database._replace(note=Note())
        saved = data if bounds.may & _DUMPED else None
        servers = Server((1, 2), data, saved=saved), Server((3, 2), data, is_replica=True)
        world = World(databases[: bounds.databases], servers[: bounds.servers], bounds.processes, last=5)
        return world._replace(saves=bounds.saves, faults=bounds.faults)

    def nothing(self) -> Data:
        """Return what an empty server holds."""
        return Data((ALL,) * self.bounds.members, (0,) * self.bounds.members)

    # Properties

    def wrong(self, world: World) -> str:
        """Return what is wrong, '' if nothing is. Wrong is a build that isn't complete, as readers don't wait for a
        status; and where an index is healthy and no mark waits, that Redis doesn't hold what the database does."""
        database, bounds = world.databases[world.primary], self.bounds
        if database.captured - database.columns:
            return "every save fails, as a trigger names a column that is gone"
        if not self.is_watched(database) and "drop" not in bounds.may:
            return "changes go unnoticed, as triggers are gone"
        if database.note.taken:
            return "a release replaces the build of the one that is recorded"
        # Readers may ask a standby that lags.
        asked = world.databases if bounds.is_standby else (database,)
        for number, server in enumerate(world.servers, 1):
            data = server.data
            if server.is_replica:
                continue
            if (data.live or not self.has("built")) and ALL in data.values:
                return f"readers of server {number} get a build that isn't complete"
            if not bounds.is_standby and bounds.databases > 1 and data.owner != 1:
                return "a watcher has replaced another database's build"
            for release in range(bounds.releases):
                if all(self.status(each, server, release) != "healthy" for each in asked):
                    continue
                if not database.marks and data.values != self.expected(world, data, release):
                    whom = f" for release {release + 1}" if bounds.releases > 1 else ""
                    where = f" on server {number}" if bounds.servers > 1 else ""
                    wrong = "no mark waits, and Redis doesn't hold what the database does"
                    return f"healthy{whom}{where}, {wrong}"
        return ""

    def calm(self, world: World) -> bool:
        """Return True if all is as it should be for the release that is recorded, if it runs, or else for another one;
        and no other triggers are left."""
        data, database = world.servers[world.leads].data, world.databases[world.primary]
        running = self.running(world)
        release = database.note.current if database.note.current in running else max(running, default=0)
        if database.captured - {release} and database.note.current == release:
            return False
        return self.is_settled(world, release) and data.values == self.expected(world, data, release)

    def running(self, world: World) -> set[int]:
        """Return the releases whose watchers run."""
        watchers = [one for one in world.processes if one.kind == "watch" and one.at != "stopped"]
        return {one.release for one in watchers}

    def is_settled(self, world: World, release: int = 0) -> bool:
        database, server = world.databases[world.primary], world.servers[world.leads]
        return not database.marks and self.status(database, server, release) == "healthy"

    def expected(self, world: World, data: Data, release: int) -> tuple[Any, ...]:
        """Return the values that a server should hold."""
        return world.databases[world.primary].column(release)

    def status(self, database: Database, server: Server, release: int, seen: Any = None) -> str:
        """As ``examine()``. ``seen``: the note and the position of the newest batch, if they were read before."""
        data, (note, (term, version)) = server.data, seen or (database.note, database.newest())
        if not data.live:
            return "empty"
        if data.live != note.live:
            return "unnoted" if data.live == note.building else "foreign"
        if data.term > note.term:
            return "foreign"
        if self.has("declaration") and data.live[0] != release:
            return "changed"
        if data.must_rebuild:
            return "lost"
        has_newest = (
            self.has_all(data, note) if self.has("traces") else (data.term, data.applied) >= (term, version)
        )
        if not (self.is_trusted(server, note) and (has_newest or term != data.term)):
            return "restarted"
        return "healthy" if self.is_captured(database, note, release) else "uncaptured"

    def has_all(self, data: Data, note: Note) -> bool:
        """Return True unless a server lacks a write of its term that was noted."""
        return data.term != note.term or set(note.traces) <= dict(data.traces).keys()

    def is_captured(self, database: Database, note: Note, release: int) -> bool:
        is_known = note.triggers == database.triggers or not self.has("triggers")
        return is_known and (release in database.captured or not self.has("capture"))

    def is_watched(self, database: Database) -> bool:
        """Return True if there are triggers for the live build, and for the one that is to replace it."""
        needed = {database.note.current, *database.note.live[:1]}
        if database.is_leaving:  # changes of its column are lost with it
            needed -= {0}
        return (needed & database.columns) <= database.captured

    def may_add(self, database: Database, release: int) -> bool:
        note = database.note
        own = (note.current, *(() if self.has("recorded adds") else note.live[:1]))
        return release in database.columns and release in own

    def may_build(self, database: Database, release: int) -> bool:
        """Return True unless another release's build is live, and this one isn't recorded."""
        note = database.note
        return note.current == release or note.live[:1] in ((), (release,)) or not self.has("recorded builds")

    def outdated(self, database: Database, release: int) -> frozenset[int]:
        """Return the triggers that a release drops, once its build is live."""
        note = database.note
        is_current = note.current == release or not self.has("current")
        is_its = note.live[:1] == (release,) and is_current and self.has("contract")
        return database.captured - {release} if is_its else frozenset()

    def is_same(self, server: Server, other: Any) -> bool:
        """Return True if a server is taken for the one with this identity: its process, and its history."""
        process, history = other or (0, 0)
        is_history = server.identity[1] == history or not self.has("history")
        return server.identity[0] == process and is_history

    def is_trusted(self, server: Server, note: Note) -> bool:
        is_term = server.data.term == note.term or not self.has("term")
        return is_term and self.is_same(server, server.data.trusted) and self.is_same(server, note.server)

    def takes_writes(self, server: Server) -> bool:
        return not server.is_replica and self.is_same(server, server.data.trusted)

    def may_write(self, world: World, me: Process) -> bool:
        """Return True if the process is connected to a database that takes writes."""
        return not self.bounds.is_standby or me.database == world.primary

    def is_early(self, me: Process) -> bool:
        """Return True for a push under a token from before its commit: what its connection can't see was written later,
        and refuses it."""
        return me.kind == "save" and me.at == "reading" and (me.refusals < 0 or not self.has("late reads"))

    # Steps

    def steps(self, world: World) -> Iterator[Step[World]]:
        kinds, names = [process.kind for process in world.processes], []
        for number, me in enumerate(world.processes):
            who = _NAMES[me.kind]
            if me.kind == "write" and "save" in kinds:
                who = "somebody else"
            if kinds.count(me.kind) > 1:
                who = f"{who.split()[1]} {kinds[: number + 1].count(me.kind)}"
            names.append(who)
            for what, after, then in self.turns(world, me):
                yield f"{who} {what}", after.then(number, then), False
            if me.at not in ("", "stopped") and self.bounds.kills:
                yield f"{who} is killed", world.then(number, me.to()), True
            if "stop" in self.bounds.may and me.kind == "watch" and me.release == 0 and me.at != "stopped":
                yield f"{who} is stopped", world.then(number, me.to("stopped")), True
        yield from self.copies(world)
        yield from self.commands(world)
        if world.faults:
            world = world._replace(faults=world.faults - 1, last=world.last + 2)  # two names are given here
            yield from self.faults(world)
            for number, me in enumerate(world.processes if "rebuild" in self.bounds.may else ()):
                if me.kind == "watch" and not me.at:
                    yield f"{names[number]} is to rebuild", world.then(number, me.to("entering")), True

    def turns(self, world: World, me: Process) -> list[Turn]:
        """Call the method that a process stands before; or that of its kind, if it is to begin something."""
        if (me.at or me.kind) in self.on_primary and not (self.may_write(world, me) or self.is_early(me)):
            return [("may not write, and connects again", world, me.to()._replace(database=world.primary))]
        if me.at in _ROWS and me.release not in world.database(me).columns:
            return [("finds that its column is gone", world, me.to())]
        turns: list[Turn] | Turn = getattr(self, me.at or me.kind)(world, me)
        return turns if isinstance(turns, list) else [turns]

    def copies(self, world: World) -> Iterator[Step[World]]:
        """Yield what nobody does: copies for a replica, a dump or a standby, and rebuilds that are taken for dead."""
        may, primary = self.bounds.may, world.servers[world.leads]
        for number, server in enumerate(world.servers):
            data = server.data
            copy = {"data": primary.data, "identity": (server.identity[0], primary.identity[1])}
            if server.is_replica:
                if data != primary.data:
                    yield f"server {number + 1} replicates", world.serve(number, **copy), True
                continue
            if may & _DUMPED and world.faults and server.saved != data:
                yield f"server {number + 1} writes a dump", world.serve(number, saved=data), True
            is_alive = any(process.build == data.building for process in world.processes)
            if data.building and ("lapse" in may or not is_alive):
                lapsed = data._replace(building=(), shadow=())
                yield "the rebuild is taken for dead", world.serve(number, data=lapsed), is_alive
            if "failover" in may and number != world.leads:
                follows = world.serve(number, is_replica=True, **copy)
                yield f"server {number + 1} becomes a replica", follows, True
        is_fenced = "fence" in may and world.primary == 1  # it follows nobody
        if self.bounds.is_standby and world.databases[0] != world.databases[1] and not is_fenced:
            both = (world.databases[world.primary],) * 2
            yield "the standby catches up", world._replace(databases=both), False
        if world.databases[world.primary].is_leaving:
            after = world.store(world.primary, columns=frozenset({1}), is_leaving=False)
            yield "the operation drops column 1", after, False

    def commands(self, world: World, *, is_fault: bool = False) -> Iterator[Step[World]]:
        """Yield rebuilds by hand, which record the release. Somebody can be counted on where no worker builds an index:
        each says which command to run."""
        database, running = world.databases[world.primary], self.running(world)
        may = [release for release in running if self.may_build(database, release)]
        for number, me in enumerate(world.processes):
            if me.kind == "watch" and not me.at and (is_fault or not may):
                note = database.note._replace(current=me.release)
                after = self.expanded(world, world.primary, me.release).store(world.primary, note=note)
                what = f"rebuild_zrank of release {me.release + 1} is run"
                yield what, after.then(number, me.to("entering")), is_fault

    def faults(self, world: World) -> Iterator[Step[World]]:
        """Yield what happens at most as often as the bounds say."""
        leads, primary, new, serve, store = world.leads, world.primary, world.last, world.serve, world.store
        database, other = world.databases[primary], len(world.servers) - 1 - leads
        (_, history), saved = world.servers[leads].identity, world.servers[leads].saved
        nothing = self.nothing()
        rows, copies = tuple((0,) * len(row) for row in database.rows), (database, database)
        taken_over = serve(other, identity=(world.servers[other].identity[0], new), is_replica=False)
        after = {
            "restart": ("the server restarts with all it had", serve(leads, identity=(new, history))),
            "crash": ("the server restarts from its dump", serve(leads, identity=(new, history), data=saved)),
            "rewind": ("the server goes back to its dump, with its memory", serve(leads, data=saved)),
            "empty": ("the server restarts empty", serve(leads, identity=(new, new - 1), data=nothing)),
            "failover": (f"server {other + 1} takes over", taken_over._replace(leads=other)),
            "drop": ("a trigger is dropped", store(primary, captured=frozenset())),
            "restore": ("the table is restored", store(primary, rows=rows, triggers=new)),
            "switch": ("the standby takes over, in step", world._replace(databases=copies, primary=1)),
            "fence": (
                "the primary is fenced, and the standby takes over",
                world._replace(databases=copies, primary=1),
            ),
            "lose": ("the standby takes over, and lacks commits", world._replace(primary=1)),
        }
        if "migrate" in self.bounds.may and database.note.current != 1:
            after_it = self.expanded(world, primary, 1)
            if not self.has("expand"):
                after_it = after_it.store(primary, captured=frozenset({1}))
            current = database.note._replace(current=1)
            yield "migrate installs triggers of release 2", after_it.store(primary, note=current), True
        is_there = 0 in database.columns and not database.is_leaving
        if "column" in self.bounds.may and database.note.current == 1 and is_there:
            left = database.captured - {0} if self.has("columns") else database.captured
            yield "an operation drops triggers", store(primary, captured=left, is_leaving=True), True
        if "command" in self.bounds.may:
            yield from self.commands(world, is_fault=True)
        for fault in sorted(after.keys() & self.bounds.may):
            yield *after[fault], True

    # A transaction commits, with its mark; then it may be pushed

    def save(self, world: World, me: Process) -> list[Turn]:
        turns: list[Turn] = []
        may_roll_back, new = "rollback" in self.bounds.may, world.last + 1
        begun = world._replace(saves=world.saves - 1, last=new)
        for member in range(self.bounds.members if world.saves else 0):
            for column in sorted(world.databases[world.primary].columns & set(range(self.bounds.releases))):
                what = f" column {column + 1} of" if self.bounds.releases > 1 else ""
                then = me.to("committing", change=(member, column, new))
                for how, kept in (("", then), *self.with_kept_token(me, then)):
                    if not may_roll_back:  # it commits at once
                        _, after, it = self.committing(begun, kept)[0]
                        turns.append((f"saves{what} member {member + 1}{how}", after, it))
                        continue
                    it = kept if self.has("commit first") else kept._replace(at="asking", todo=(member,))
                    turns.append((f"changes{what} member {member + 1}{how}", begun, it))
        return turns

    write = save  # committing() tells them apart

    def with_kept_token(self, me: Process, then: Process) -> list[tuple[str, Process]]:
        """Return the process if it is to push under the token that its last push has left, if it has one."""
        kept = then._replace(epoch=me.epoch, token=me.token, seen=me.seen, term=me.term)
        return [(", and keeps its token", kept)] if me.epoch else []

    def committing(self, world: World, me: Process) -> list[Turn]:
        primary, (member, column, value) = world.primary, me.change
        rows = [list(row) for row in world.databases[primary].rows]
        rows[member][column] = value
        after = world.store(primary, rows=tuple(map(tuple, rows)))
        is_marked = column in world.databases[primary].captured and self.has("mark")
        if "several" in self.bounds.may:
            for row in rows:
                row[column] = value
            everyone = range(self.bounds.members)
            after = world.store(primary, rows=tuple(map(tuple, rows)))
            after = after.marked_together(primary, *everyone) if is_marked else after
        elif is_marked:
            after = after.marked(primary, member)
        then = me.to()
        if me.kind == "save" and self.has("commit first"):
            then = me.to("asking", todo=(member,))._replace(database=primary)
            if me.epoch:  # a refusal under a kept token is none of the two
                then = me._replace(at="reading", todo=(member,), change=(), refusals=-1, database=primary)
        return [("commits", after, then), ("rolls back", world, me.to())]

    def asking(self, world: World, me: Process) -> Turn:
        """Take a token: the version of the newest write."""
        server, note = world.server(me), world.database(me).note
        data = server.data
        builds = {data.live, data.building} - {()}
        is_foreign = any(release != me.release for release, _ in builds) and self.has("declaration of writes")
        is_recorded = data.live in (note.live, note.building) if data.live else data.building == note.building
        is_term = data.term == note.term or not self.has("term")
        if not (builds and is_recorded and not is_foreign and is_term and self.takes_writes(server)):
            return "gives up", world, me.to()
        if not self.has("token first") and not me.read:
            return "reads rows", world, me._replace(read=self.rows(world, me, me.todo))
        epoch = data.live, data.building, data.term
        at = "reading" if self.has("token first") else "applying"
        seen = data.traces[-1][0] if data.traces else Name(0)
        noted = () if not me.marks else me.noted if me.term == note.term else note.traces
        then = me._replace(at=at, token=data.applied, epoch=epoch, seen=seen, noted=noted, term=note.term)
        return "takes a token", world, then

    def reading(self, world: World, me: Process) -> Turn:
        return "reads rows", world, me._replace(at="applying", read=self.rows(world, me, me.todo))

    def rows(self, world: World, me: Process, members: tuple[int, ...]) -> tuple[int, ...]:
        """Return the values of rows. A transaction sees its own, too."""
        column = list(world.database(me).column(me.release))
        for other in world.processes:
            if other.change and (other == me or not self.has("committed rows")):
                column[other.change[0]] = other.change[2]
        return tuple(column[member] for member in members)

    def applying(self, world: World, me: Process) -> Turn:
        """One script: write each member, unless it was written since the token was taken."""
        server, (live, building, term) = world.server(me), me.epoch
        data = server.data
        is_epoch = (data.live, data.building) == (live, building)
        is_term = data.term == term or not self.has("term")
        is_fit = me.token >= data.started or not self.has("older tokens")
        is_fit &= self.is_of_this_history(data, me) or not self.has("abandoned")
        if not (is_epoch and is_term and is_fit and self.takes_writes(server)):
            then = me.to("asking", todo=me.todo, marks=me.marks, written=me.written, change=me.change)
            then = then._replace(noted=me.noted, term=me.term, trace=me.trace)
            return "is refused, and begins again", world, then
        needed = {*me.noted, *[me.trace] * bool(me.trace and self.has("pieces"))}
        if self.has("traces") and not needed <= dict(data.traces).keys():
            return "finds that writes are lacking", world, me.to()
        values, versions, shadow = map(list, (data.values, data.versions, data.shadow))
        version, refused = data.applied + 1, []
        for member, value in zip(me.todo, me.read, strict=True):
            if versions[member] > me.token and self.has("refusal"):
                refused.append(member)
                continue
            versions[member], values[member] = version, value
            if shadow and self.has("both builds"):
                shadow[member] = value
        after = world.write(
            me, values=tuple(values), versions=tuple(versions), shadow=tuple(shadow), applied=version
        )
        if me.marks:
            trace = Name(world.last + 1)
            after = after.write(me, traces=(*data.traces, (trace, version)))._replace(last=trace)
            me = me._replace(trace=trace)
        me = me._replace(
            seen=after.server(me).data.traces[-1][0] if after.server(me).data.traces else Name(0)
        )
        first = me.written[:2] or (live, term)
        written = (*first, self.position(version) or 1) if me.marks else ()
        if refused and me.refusals + 1 < (2 if self.has("second refusal") else 1):
            then = me._replace(at="reading", todo=tuple(refused), token=version, read=(), written=written)
            return "writes what it may, and reads again", after, then._replace(refusals=me.refusals + 1)
        if me.marks:
            then = me.to("unmarking", marks=me.marks, written=written)
            return "writes to Redis", after, then._replace(noted=me.noted, trace=me.trace)
        then = me.to("committing" if me.change else "", change=me.change)
        if me.kind == "save" and not me.change:
            then = then._replace(epoch=me.epoch, token=version, seen=me.seen, term=me.term)
        return "writes to Redis", after, then

    def is_of_this_history(self, data: Data, me: Process) -> bool:
        """Return False if a token was taken in a history that was abandoned, and a drain has written since."""
        return history(data, me) in (0, 1)

    def unmarking(self, world: World, me: Process) -> Turn:
        """One transaction: delete the marks, if the database notes that build and term. Those that a write has
        processed are kept as a batch."""
        (live, term, version), database = me.written, world.database(me)
        if (database.note.live, database.note.term) != (live, term) and self.has("fence"):
            return "leaves the marks", world, me.to()
        left = tuple(mark for mark in database.marks if mark not in me.marks)
        if left != database.marks:
            world = world.store(me.database, marks=left)
            if version:
                members = tuple(sorted({member for _, member in me.marks}))
                left = tuple(trace for trace in database.note.traces if trace not in me.noted)
                world = world.note(me, traces=(*left, me.trace))
                world = world.batched(me.database, term, self.position(version), members, 0, me.trace)
        return "deletes the marks", world, me.to()

    # A watcher: repair, then drain

    def watch(self, world: World, me: Process) -> list[Turn]:
        """Look at the database's note, then at Redis; the order matters, as others go on."""
        database, server = world.database(me), world.server(me)
        note, newest = database.note, database.newest()
        if server.is_replica:
            return []
        is_missing = self.may_add(database, me.release) and not self.is_captured(database, note, me.release)
        if is_missing and self.may_write(world, me):
            after = world.store(me.database, captured=database.captured | {me.release})
            after = after.note(me, triggers=database.triggers)
            return [("puts triggers back", after.marked(me.database, *[ALL] * self.has("mark for all")), me)]
        is_healthy = self.status(database, server, me.release) == "healthy"
        if not database.marks and is_healthy and not self.outdated(database, me.release):
            return []
        turns = [("looks at the database", world, me.to("looking", note=note, newest=newest))]
        names = [name for name, _ in database.marks]
        if name := next((name for name in names if names.count(name) > 1), None):
            left = tuple(mark for mark in database.marks if mark[0] != name)
            members = [member for other, member in database.marks if other == name]
            after = world.store(me.database, marks=left).marked(me.database, *members)
            turns.append(("replaces a mark of several members by one for each", after, me))
        return turns

    def looking(self, world: World, me: Process) -> Turn:
        server, marks = world.server(me), world.database(me).marks
        data, members = server.data, {member for _, member in marks}
        if server.is_replica:
            return "finds a replica", world, me.to()
        status = self.status(world.database(me), server, me.release, (me.note, me.newest))
        if status == "restarted":
            then = me.to("replaying", build=data.live, term=me.note.term, identity=server.identity)
            found = "finds that the server may lack writes"
            then = then._replace(
                newest=(data.term, self.position(data.applied)), traces=data.traces, number=data.taken
            )
            return found, world, then
        if status == "unnoted":
            return "finds a build that isn't noted", world, me.to("noting", build=data.live)
        if status not in ("healthy", "uncaptured"):
            if not self.may_build(world.database(me), me.release):
                return f"finds it {status}, and leaves it to another release", world, me.to()
            return f"finds it {status}", world, me.to("entering")
        then = me.to("asking", marks=marks, todo=tuple(sorted(members))) if members else me.to()
        if members:
            then = then._replace(noted=me.note.traces, term=me.note.term)
        is_built = data.building == me.note.building and data.building[:1] not in ((), (me.release,))
        is_left = is_built and self.has("same note")
        if (
            self.outdated(world.database(me), me.release)
            and not members
            and status == "healthy"
            and not is_left
        ):
            then = me.to("contracting", note=me.note)
        return "finds it healthy, and reads marks", world, me.to("entering") if ALL in members else then

    def contracting(self, world: World, me: Process) -> Turn:
        """One transaction: drop the triggers of other releases, if the note is still what it was before Redis was
        asked whether a build is being made."""
        database = world.database(me)
        if database.note._replace(traces=()) != me.note._replace(traces=()) and self.has("same note"):
            return "finds another note", world, me.to()
        left = database.captured - self.outdated(database._replace(note=me.note), me.release)
        return "drops outdated triggers", world.store(me.database, captured=left), me.to()

    def expanded(self, world: World, number: int, release: int) -> World:
        """Return the world after the triggers of a release were added, with a mark for all members."""
        database = world.databases[number]
        if release in database.captured or release not in database.columns:
            return world
        after = world.store(number, captured=database.captured | {release})
        return after.marked(number, *[ALL] * self.has("mark for all"))

    def stopped(self, world: World, me: Process) -> list[Turn]:
        return []

    def replaying(self, world: World, me: Process) -> Turn:
        """One transaction: a new term, and the marks of later batches wait again."""
        note, batches = world.database(me).note, world.database(me).batches
        if (note.live, note.term) != (me.build, me.term):
            return "finds another note", world, me.to()
        lost = [batch for batch in batches if self.is_lacking(batch, me)]
        # Batches of flushes are kept: the next server may lack them, too.
        kept = tuple(batch for batch in batches if batch not in lost or batch[3])
        after = world.store(me.database, batches=kept)
        after = after.note(me, term=note.term + 1, server=me.identity, traces=())
        if self.has("batches"):
            after = after.marked(me.database, *sorted({member for batch in lost for member in batch[2]}))
        return "begins a term", after, me._replace(at="adopting", term=note.term + 1)

    def is_lacking(self, batch: Batch, me: Process) -> bool:
        """Return True if the server that a watcher has looked at lacks a batch."""
        if batch[0] != me.newest[0] or not self.has("traces"):
            return batch[:2] > me.newest
        return batch[3] > me.number if batch[3] else batch[4] not in dict(me.traces)

    def adopting(self, world: World, me: Process) -> Turn:
        identity, data = world.server(me)[:2]
        position, before = (data.traces, me.traces) if self.has("traces") else (data.applied, me.newest[1])
        if (data.live, data.term, position, identity) != (me.build, me.newest[0], before, me.identity):
            return "finds the server changed", world, me.to()
        after = world.write(me, trusted=identity, term=me.term, building=(), shadow=())
        return "trusts the server", after, me.to()

    # A rebuild

    def entering(self, world: World, me: Process) -> Turn:
        """Begin a term if the server isn't the one that is known, and list the marks that wait."""
        server, database = world.server(me), world.database(me)
        data, note, term = server.data, database.note, database.note.term
        is_other = data.owner not in (0, self.owner(me))
        if server.is_replica:
            return "gives up", world, me.to()
        if self.has("owner") and data.live and is_other:
            return "finds another database's build", world, me.to()
        has_all = self.has_all(data, note) or not self.has("traces")
        if not (self.is_trusted(server, note) and has_all) or is_other:
            term = max(term, data.term) + 1
            world = world.note(me, term=term, server=server.identity, traces=())
        build = me.release, world.last + 1
        then = me.to("starting", marks=database.marks, build=build, identity=server.identity, term=term)
        return "begins a rebuild", world._replace(last=build[1]), then

    def owner(self, me: Process) -> int:
        return 1 if self.bounds.is_standby else me.database + 1

    def starting(self, world: World, me: Process) -> Turn:
        server, data = world.server(me), world.server(me).data
        is_known = self.is_same(server, data.trusted) and data.term == me.term
        is_other = server.is_replica or server.identity != me.identity or data.term > me.term
        if is_other or (data.building and is_known):
            return "gives way", world, me.to()
        may_lack = bool(data.live) and not is_known and self.has("lost")
        lost, version = data.must_rebuild or may_lack, data.applied + 1
        after = world.write(me, trusted=me.identity, term=me.term, owner=self.owner(me), must_rebuild=lost)
        after = after.write(me, building=me.build, shadow=(ALL,) * self.bounds.members, is_loaded=False)
        after = after.write(me, versions=(0,) * self.bounds.members, started=version, applied=version)
        return "starts a build in Redis", after, me._replace(at="noting_start", identity=())

    def noting_start(self, world: World, me: Process) -> Turn:
        note = world.database(me).note
        if note.term != me.term:
            return "finds another term", world, me.to()
        if self.has("looks again") and not self.may_build(world.database(me), me.release):
            return "leaves it to another release", world, me.to()
        is_taken = note.live[:1] == (note.current,) and me.release != note.current
        after = world.note(me, building=me.build, taken=is_taken)
        return "notes that it builds", after, me._replace(at="querying")

    def querying(self, world: World, me: Process) -> Turn:
        read = self.rows(world, me, tuple(range(self.bounds.members)))
        return "reads all rows", world, me._replace(at="loading", read=read)

    def loading(self, world: World, me: Process) -> Turn:
        data = world.server(me).data
        if data.building != me.build or not self.takes_writes(world.server(me)):
            return "gives way", world, me.to()
        is_guarded, members = self.has("written since"), zip(data.shadow, data.versions, me.read, strict=True)
        shadow = tuple(shown if version and is_guarded else value for shown, version, value in members)
        after = world.write(me, shadow=shadow, is_loaded=True)
        return "loads the rows", after, me._replace(at="swapping", read=())

    def swapping(self, world: World, me: Process) -> Turn:
        data = world.server(me).data
        if data.building != me.build or not self.takes_writes(world.server(me)):
            return "gives way", world, me.to()
        if not data.is_loaded and self.has("loaded"):
            return "gives way", world, me.to()
        after = world.write(me, values=data.shadow, shadow=(), live=me.build, building=())
        after = after.write(me, applied=data.applied + 1, must_rebuild=False)
        return "swaps the builds", after, me._replace(at="noting")

    def noting(self, world: World, me: Process) -> Turn:
        """Note the build; a rebuild does so only under its term, and deletes the marks that it has listed."""
        note = world.database(me).note
        marks = me.marks if self.has("marks first") else world.database(me).marks
        if note.building == me.build and me.term in (0, note.term):
            world = world.note(me, live=me.build, building=())
        if not me.term:  # a watcher that has found this build, and made none
            return "notes the build", world, me.to()
        return "notes the build", world, me.to("unmarking", marks=marks, written=(me.build, me.term, 0))
