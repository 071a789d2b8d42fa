"""The protocol of ``docs/guarantees.md`` as a model: rows, marks, builds, servers, releases and databases.

Each method that a process stands before is one step: what happens in it happens at once, as a transaction of the
database or a script of Redis does. Whatever may come between two steps does, in every order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from .search import Found, Step, search
from .world import ALL, NONE, Build, Data, Database, Note, Process, Server, World, alike

GUARDS: Final = {
    "commit first": "a push begins after the commit",
    "committed rows": "only committed rows are read",
    "mark": "each change leaves a mark, in its transaction",
    "capture": "an index is not healthy while a trigger is missing",
    "mark for all": "triggers that are put back leave a mark for all members",
    "built": "nothing is read from an index that isn't built",
    "token first": "a push takes its token before it reads rows",
    "refusal": "a script writes no member that was written since the token was taken",
    "second refusal": "a push gives up only after two refusals",
    "both builds": "a push writes to the build that is being made, too",
    "written since": "a rebuild loads no row of a member that was written since it began",
    "older tokens": "a token from before a rebuild began is refused",
    "marks first": "a rebuild lists the marks that it will delete before it reads rows",
    "fence": "marks are deleted only if the database still notes the build and the term of the write",
    "term": "a write is refused under another term than that of its token",
    "process": "a server that has restarted is not the one that was accepted",
    "history": "a server with another replication history is not the one that was accepted",
    "batches": "marks of what a server lacks wait again before it is accepted",
    "owner": "a watcher replaces no build of another database",
    "declaration": "a release doesn't trust what another declaration built",
    "declaration of writes": "a release writes nothing to what another declaration built",
    "triggers": "a build notes the triggers under which it was made",
    "primary database": "rows are read only from the database that takes writes",
}
"""What the product does, each of which the search can leave out."""

Turn = tuple[str, World, Process]
"""What a process does, and the world and the process after it."""


@dataclass(frozen=True)
class Bounds:
    """What may happen in a run. The search knows nothing beyond it."""

    saves: int = 2
    faults: int = 0
    members: int = 1
    processes: tuple[Process, ...] = ()
    servers: int = 1
    releases: int = 1
    databases: int = 1
    is_standby: bool = False
    """True if the second database is a standby of the first; otherwise it is another project's."""

    may: frozenset[str] = frozenset()
    """The faults that may happen: ``restart``, ``crash``, ``empty``, ``failover``, ``migrate``, ``restore``, ``lapse``,
    ``switch``, ``lose``, ``rebuild``, ``drop``, ``rollback``."""

    kills: bool = True
    """True if any process may be killed before any step."""

    is_built: bool = True


class Model:
    """The protocol within bounds, whole or ``without`` one of its guards."""

    def __init__(self, bounds: Bounds, without: str = "") -> None:
        assert not without or without in GUARDS
        self.bounds, self.without = bounds, without

    def has(self, guard: str) -> bool:
        return guard != self.without

    def run(self) -> Found[World]:
        return search(self.first(), self.steps, wrong=self.wrong, calm=self.calm, alike=alike)

    def first(self) -> World:
        bounds = self.bounds
        empty, build, note = (0,) * bounds.members, (0, 1), Note()
        data = Data(empty, empty)
        if bounds.is_built:
            data = Data(empty, empty, 1, build, started=1, accepted=(1, 1), term=1, owner=1)
            note = Note(build, NONE, (1, 1), 1, 1)
        first = Database(((0,) * bounds.releases,) * bounds.members, note=note, captured=frozenset({0}))
        other = first if bounds.is_standby else first._replace(note=Note())
        replicas = [Server(2, 1, data, is_replica=True)] * (bounds.servers - 1)
        return World(
            (first, other)[: bounds.databases],
            (Server(1, 1, data, saved=data if "crash" in bounds.may else None), *replicas),
            bounds.processes,
            saves=bounds.saves,
            faults=bounds.faults,
        )

    # Properties

    def wrong(self, world: World) -> str:
        """Return what is wrong, '' if nothing is. Wrong is what readers should never get; and where an index is
        healthy and no mark waits, that Redis doesn't hold what the database does."""
        database = world.databases[world.primary]
        # Readers may ask a standby that lags.
        asked = world.databases if self.bounds.is_standby else (database,)
        for number, server in enumerate(world.servers):
            data = server.data
            if server.is_replica:
                continue
            if not data.live[1] and not self.has("built"):
                return "readers get an index that isn't built"
            if not self.bounds.is_standby and len(world.databases) > 1 and data.owner != 1:
                return "a watcher has replaced another database's build"
            for release in range(self.bounds.releases):
                if all(self.verdict(each, server, release) != "healthy" for each in asked):
                    continue
                if ALL in data.values:
                    return f"readers of server {number + 1} get a build that isn't complete"
                if not database.marks and data.values != database.column(release):
                    whom = f" for release {release + 1}" if self.bounds.releases > 1 else ""
                    where = f" on server {number + 1}" if len(world.servers) > 1 else ""
                    return (
                        f"healthy{whom}{where}, no mark waits, and Redis doesn't hold what the database does"
                    )
        return ""

    def calm(self, world: World) -> bool:
        """Return True if all is as it should be, for the newest release that has been deployed."""
        database, server = world.databases[world.primary], world.servers[world.leads]
        release = max(database.captured, default=0)
        is_healthy = self.verdict(database, server, release) == "healthy"
        return is_healthy and not database.marks and server.data.values == database.column(release)

    def verdict(
        self,
        database: Database,
        server: Server,
        release: int,
        seen: tuple[Note, tuple[int, int]] | None = None,
    ) -> str:
        """As ``examine()``. ``seen``: the note and the position of the newest batch, if they were read before."""
        data, (note, (term, version)) = server.data, seen or (database.note, database.newest())
        if not data.live[1]:
            return "empty"
        if data.live != note.live:
            return "unnoted" if data.live == note.building else "foreign"
        if data.term > note.term:
            return "foreign"
        if self.has("declaration") and data.live[0] != release:
            return "changed"
        if data.must_rebuild:
            return "lost"
        if not self.is_accepted(server, note) or (term == data.term and version > data.applied):
            return "restarted"
        return "healthy" if self.is_captured(database, note, release) else "uncaptured"

    def is_captured(self, database: Database, note: Note, release: int) -> bool:
        is_known = note.triggers == database.triggers or not self.has("triggers")
        return (release in database.captured or not self.has("capture")) and is_known

    def same(self, one: tuple[int, int], other: tuple[int, int]) -> bool:
        """Return True if two identities of servers are taken for the same."""
        is_process = one[0] == other[0] or not self.has("process")
        return is_process and (one[1] == other[1] or not self.has("history"))

    def is_accepted(self, server: Server, note: Note) -> bool:
        is_term = server.data.term == note.term or not self.has("term")
        return is_term and all(
            self.same(server.identity, other) for other in (server.data.accepted, note.server)
        )

    def may_write(self, world: World, process: Process) -> bool:
        """Return True if its connection leads to a database that takes writes."""
        return not self.bounds.is_standby or process.database == world.primary

    def owner(self, process: Process) -> int:
        return 1 if self.bounds.is_standby else process.database + 1

    # Steps

    def steps(self, world: World) -> Iterator[Step[World]]:
        for number, process in enumerate(world.processes):
            who = _name(world, number)
            turns: list[Turn] = []
            if process.at == "committing":
                turns += self.committing(world, process)
            elif process.at != "idle":
                turns.append(getattr(self, process.at)(world, process))
            elif process.kind == "watch":
                turns += self.watch(world, process)
            elif world.saves:
                turns += self.save(world, process)
            for what, after, then in turns:
                yield f"{who} {what}", after.with_process(number, then), False
            if process.at != "idle" and self.bounds.kills:
                yield f"{who} is killed", world.with_process(number, process.rest()), True
        yield from self.copies(world)
        if world.faults:
            yield from self.faults(world._replace(faults=world.faults - 1))

    def copies(self, world: World) -> Iterator[Step[World]]:
        """Yield what nobody does: copies for a replica, a dump or a standby, and rebuilds that are taken for dead."""
        may, primary = self.bounds.may, world.servers[world.leads]
        for number, server in enumerate(world.servers):
            if server.is_replica:
                if server.data != primary.data:
                    copy = server._replace(data=primary.data, history=primary.history)
                    yield f"server {number + 1} replicates", world.with_server(number, copy), True
                continue
            if "crash" in may and server.saved != server.data:
                dumped = server._replace(saved=server.data)
                yield f"server {number + 1} writes a dump", world.with_server(number, dumped), True
            building = server.data.building
            is_alive = any(process.build == building for process in world.processes)
            if building[1] and ("lapse" in may or not is_alive):
                lapsed = server._replace(data=server.data._replace(building=NONE, shadow=()))
                yield "the rebuild is taken for dead", world.with_server(number, lapsed), is_alive
            if "failover" in may and number != world.leads:
                follows = server._replace(history=primary.history, data=primary.data, is_replica=True)
                yield f"server {number + 1} becomes a replica", world.with_server(number, follows), True
        if self.bounds.is_standby and world.databases[0] != world.databases[1]:
            both = (world.databases[world.primary],) * 2
            yield "the standby catches up", world._replace(databases=both), False

    def faults(self, world: World) -> Iterator[Step[World]]:
        """Yield what happens at most as often as the bounds say."""
        may, leads = self.bounds.may, world.leads
        server, database = world.servers[leads], world.databases[world.primary]
        fresh = 1 + max(chain.from_iterable(other.identity for other in world.servers))
        if "restart" in may:
            after = server._replace(process=fresh)
            yield "the server restarts with all it had", world.with_server(leads, after), True
        if "crash" in may and server.saved:
            after = server._replace(process=fresh, data=server.saved)
            yield "the server restarts from its dump", world.with_server(leads, after), True
        if "empty" in may:
            nothing = Data((0,) * self.bounds.members, (0,) * self.bounds.members)
            after = Server(fresh, fresh + 1, nothing, saved=server.saved and nothing)
            yield "the server restarts empty", world.with_server(leads, after), True
        if "failover" in may:
            other = 1 - leads
            after = world.servers[other]._replace(history=fresh, is_replica=False)
            yield (
                f"server {other + 1} takes over",
                world.with_server(other, after)._replace(leads=other),
                True,
            )
        if "drop" in may:
            without = database._replace(captured=frozenset())
            yield "a trigger is dropped", world.with_database(world.primary, without), True
        newest = self.bounds.releases - 1
        if "migrate" in may and newest not in database.captured:
            # Triggers of the older release stay, as it still runs.
            both = database._replace(captured=database.captured | {newest}).marked(ALL)
            yield "migrate installs triggers of release 2", world.with_database(world.primary, both), False
        if "restore" in may:
            rows = tuple((0,) * len(row) for row in database.rows)
            restored = database._replace(rows=rows, triggers=database.triggers + 1)
            yield "the table is restored", world.with_database(world.primary, restored), True
        if world.primary == 0 and "switch" in may:
            copies = (database, database)
            yield "the standby takes over, in step", world._replace(databases=copies, primary=1), True
        if world.primary == 0 and "lose" in may:
            yield "the standby takes over, and lacks commits", world._replace(primary=1), True
        if "rebuild" in may:
            for number, process in enumerate(world.processes):
                if (process.kind, process.at) == ("watch", "idle"):
                    after = process._replace(at="entering")
                    yield f"{_name(world, number)} is to rebuild", world.with_process(number, after), True

    # A transaction commits, with its mark; then it may be pushed

    def save(self, world: World, process: Process) -> Iterator[Turn]:
        values = chain.from_iterable(world.databases[world.primary].rows)
        if "rollback" in self.bounds.may:  # a value that was rolled back is not used again
            values = chain(values, *(data.values for data in world.all_data()))
        fresh, left = 1 + max(values), world._replace(saves=world.saves - 1)
        for member in range(self.bounds.members):
            for column in range(self.bounds.releases):
                what = f" column {column + 1} of" if self.bounds.releases > 1 else ""
                then = process._replace(at="committing", change=(member, column, fresh))
                if "rollback" not in self.bounds.may:
                    yield f"saves{what} member {member + 1}", *self.committed(left, then)
                elif self.has("commit first"):
                    yield f"changes{what} member {member + 1}", left, then
                else:
                    yield (
                        f"changes{what} member {member + 1}",
                        left,
                        then._replace(at="asking", todo=(member,)),
                    )

    def committing(self, world: World, process: Process) -> Iterator[Turn]:
        after, then = self.committed(world, process)
        yield "commits", after, then if self.has("commit first") else process.rest()
        yield "rolls back", world, process.rest()

    def committed(self, world: World, process: Process) -> tuple[World, Process]:
        """Return the world after a commit, and the process before its push."""
        database, (member, column, value) = world.databases[world.primary], process.change
        row = list(database.rows[member])
        row[column] = value
        rows = (*database.rows[:member], tuple(row), *database.rows[member + 1 :])
        database = database._replace(rows=rows)
        if column in database.captured and self.has("mark"):
            database = database.marked(member)
        then = process.rest()
        if process.kind == "save":
            then = then._replace(at="asking", todo=(member,), database=world.primary)
        return world.with_database(world.primary, database), then

    def asking(self, world: World, process: Process) -> Turn:
        """Take a token: the version of the newest write."""
        server, note = world.server(process), world.databases[process.database].note
        data = server.data
        is_known = (
            not server.is_replica
            and self.same(data.accepted, server.identity)
            and (data.term == note.term or not self.has("term"))
            and (
                data.live in (note.live, note.building)
                if data.live[1]
                else data.building == note.building != NONE
            )
            and all(self.declares(process, build) for build in (data.live, data.building))
        )
        if not is_known:
            return "gives up", world, process.rest()
        if not self.has("token first") and not process.read:
            return "reads rows", world, process._replace(read=self.rows(world, process, process.todo))
        then = process._replace(
            at="reading", token=data.applied, epoch=(data.live, data.building, data.term), refusals=0
        )
        return "takes a token", world, then if self.has("token first") else then._replace(at="applying")

    def declares(self, process: Process, build: Build) -> bool:
        return not build[1] or build[0] == process.release or not self.has("declaration of writes")

    def reading(self, world: World, process: Process) -> Turn:
        if not self.may_write(world, process) and self.has("primary database"):
            return "connects again", world, process.rest()._replace(database=world.primary)
        return (
            "reads rows",
            world,
            process._replace(at="applying", read=self.rows(world, process, process.todo)),
        )

    def rows(self, world: World, process: Process, members: tuple[int, ...]) -> tuple[int, ...]:
        """Return the values of rows. A transaction sees its own, too."""
        column = list(world.databases[process.database].column(process.release))
        for other in world.processes:
            if other.change and (other == process or not self.has("committed rows")):
                column[other.change[0]] = other.change[2]
        return tuple(column[member] for member in members)

    def applying(self, world: World, process: Process) -> Turn:
        """One script: write each member, unless it was written since the token was taken."""
        server, (live, building, term) = world.server(process), process.epoch
        data = server.data
        is_epoch = (data.live, data.building) == (live, building)
        is_term = data.term == term or not self.has("term")
        is_fit = process.token >= data.started or not self.has("older tokens")
        is_own = self.same(data.accepted, server.identity) and not server.is_replica
        if not (is_epoch and is_term and is_fit and is_own):
            return "is refused, and begins again", world, process._replace(at="asking", read=())
        values, versions, shadow = list(data.values), list(data.versions), list(data.shadow)
        version, refused = data.applied + 1, []
        for member, value in zip(process.todo, process.read, strict=True):
            if versions[member] > process.token and self.has("refusal"):
                refused.append(member)
                continue
            versions[member], values[member] = version, value
            if shadow and self.has("both builds"):
                shadow[member] = value
        data = data._replace(
            values=tuple(values), versions=tuple(versions), shadow=tuple(shadow), applied=version
        )
        first = process.written if process.written[2] else (live, term, 0)
        then = process._replace(refusals=process.refusals + 1, written=(first[0], first[1], version))
        if refused and then.refusals < (2 if self.has("second refusal") else 1):
            then = then._replace(at="reading", todo=tuple(refused), token=version)
            return "writes what it may, and reads again", world.with_data(process, data), then
        if process.kind == "watch":
            then = then._replace(at="unmarking")
        else:
            at = "committing" if process.change else "idle"
            then = process.rest()._replace(at=at, change=process.change)
        return "writes to Redis", world.with_data(process, data), then

    def unmarking(self, world: World, process: Process) -> Turn:
        """One transaction: delete the marks, and keep them as a batch, if the database notes that build and term."""
        if not self.may_write(world, process):
            then = process.rest()._replace(database=world.primary)
            return "may not write, and connects again", world, then
        live, term, version = process.written
        database = world.databases[process.database]
        if (database.note.live, database.note.term) != (live, term) and self.has("fence"):
            return "leaves the marks", world, process.rest()
        left = tuple(mark for mark in database.marks if mark not in process.marks)
        if left != database.marks:
            batch = term, version, frozenset(member for _, member in process.marks)
            after = database._replace(marks=left, batches=database.batches | {batch})
            world = world.with_database(process.database, after)
        return "deletes the marks", world, process.rest()

    # A watcher: repair, then drain

    def watch(self, world: World, process: Process) -> Iterator[Turn]:
        """Look at the database's note, then at Redis; the order matters, as others go on."""
        database, server = world.databases[process.database], world.server(process)
        if server.is_replica:
            return
        if self.may_write(world, process) and not self.is_captured(database, database.note, process.release):
            note = database.note._replace(triggers=database.triggers)
            after = database._replace(note=note, captured=database.captured | {process.release})
            if self.has("mark for all"):
                after = after.marked(ALL)
            yield "puts triggers back", world.with_database(process.database, after), process
        elif database.marks or self.verdict(database, server, process.release) != "healthy":
            then = process._replace(at="looking", note=database.note, newest=database.newest())
            yield "looks at the database", world, then

    def looking(self, world: World, process: Process) -> Turn:
        server, database, rest = world.server(process), world.databases[process.database], process.rest()
        if server.is_replica:
            return "finds a replica", world, rest
        data, seen = server.data, (process.note, process.newest)
        verdict = self.verdict(database, server, process.release, seen)
        if verdict == "restarted":
            then = process._replace(
                at="replaying", build=data.live, newest=(data.term, data.applied), identity=server.identity
            )
            return "finds that the server may lack writes", world, then
        if verdict == "unnoted":
            return "finds a build that isn't noted", world, rest._replace(at="noting", build=data.live)
        if verdict not in ("healthy", "uncaptured"):
            return f"finds it {verdict}", world, rest._replace(at="entering")
        if any(member == ALL for _, member in database.marks):
            rest = rest._replace(at="entering")
        elif database.marks:
            todo = tuple(sorted({member for _, member in database.marks}))
            rest = rest._replace(at="asking", marks=database.marks, todo=todo)
        return "finds it healthy, and reads marks", world, rest

    def noting(self, world: World, process: Process) -> Turn:
        if not self.may_write(world, process):
            return "may not write", world, process.rest()
        return "notes the build", self.noted(world, process), process.rest()

    def noted(self, world: World, process: Process) -> World:
        database = world.databases[process.database]
        if database.note.building != process.build:
            return world
        note = database.note._replace(live=process.build, building=NONE)
        return world.with_database(process.database, database._replace(note=note))

    def replaying(self, world: World, process: Process) -> Turn:
        """One transaction: a new term, and the marks of later batches wait again."""
        database, seen = world.databases[process.database], process.note
        note = database.note
        if (note.live, note.term) != (seen.live, seen.term) or not self.may_write(world, process):
            return "finds another note", world, process.rest()
        note = note._replace(term=note.term + 1, server=process.identity)
        lost = {batch for batch in database.batches if batch[:2] > process.newest}
        after = database._replace(note=note, batches=database.batches - lost)
        if self.has("batches"):
            for member in sorted({member for *_, members in lost for member in members}):
                after = after.marked(member)
        then = process._replace(at="adopting", note=note)
        return "begins a term", world.with_database(process.database, after), then

    def adopting(self, world: World, process: Process) -> Turn:
        server = world.server(process)
        data = server.data
        found = data.live, (data.term, data.applied), server.identity
        if found != (process.build, process.newest, process.identity):
            return "finds the server changed", world, process.rest()
        data = data._replace(accepted=server.identity, term=process.note.term, building=NONE, shadow=())
        return "accepts the server", world.with_data(process, data), process.rest()

    # A rebuild

    def entering(self, world: World, process: Process) -> Turn:
        """Begin a term if the server isn't the one that is known, and list the marks that wait."""
        server, database = world.server(process), world.databases[process.database]
        data, note, owner = server.data, database.note, self.owner(process)
        if server.is_replica or not self.may_write(world, process):
            return "gives up", world, process.rest()
        if self.has("owner") and data.live[1] and data.owner not in (0, owner):
            return "finds another database's build", world, process.rest()
        if not self.is_accepted(server, note) or data.owner not in (0, owner):
            note = note._replace(term=max(note.term, data.term) + 1, server=server.identity)
            world = world.with_database(process.database, database._replace(note=note))
        build = process.release, world.new_build()
        then = process._replace(
            at="starting", marks=database.marks, build=build, identity=server.identity, note=note
        )
        return "begins a rebuild", world, then

    def starting(self, world: World, process: Process) -> Turn:
        server, term = world.server(process), process.note.term
        data = server.data
        is_same = self.same(data.accepted, server.identity) and data.term == term
        is_other = server.is_replica or server.identity != process.identity or data.term > term
        if is_other or (data.building[1] and is_same):
            return "gives way", world, process.rest()
        data = data._replace(
            versions=(0,) * self.bounds.members,
            building=process.build,
            shadow=(ALL,) * self.bounds.members,
            started=data.applied + 1,
            applied=data.applied + 1,
            accepted=server.identity,
            term=term,
            owner=self.owner(process),
            must_rebuild=data.must_rebuild or bool(data.live[1] and not is_same),
        )
        return "starts a build in Redis", world.with_data(process, data), process._replace(at="noting_start")

    def noting_start(self, world: World, process: Process) -> Turn:
        database = world.databases[process.database]
        if database.note.term != process.note.term or not self.may_write(world, process):
            return "finds another term", world, process.rest()
        note = database.note._replace(building=process.build)
        after = world.with_database(process.database, database._replace(note=note))
        return "notes that it builds", after, process._replace(at="querying")

    def querying(self, world: World, process: Process) -> Turn:
        read = self.rows(world, process, tuple(range(self.bounds.members)))
        return "reads all rows", world, process._replace(at="loading", read=read)

    def is_building(self, world: World, process: Process) -> bool:
        server = world.server(process)
        return server.data.building == process.build and self.same(server.data.accepted, server.identity)

    def loading(self, world: World, process: Process) -> Turn:
        if not self.is_building(world, process):
            return "gives way", world, process.rest()
        data = world.server(process).data
        shadow = tuple(
            shown if version and self.has("written since") else value
            for shown, version, value in zip(data.shadow, data.versions, process.read, strict=True)
        )
        then = process._replace(at="swapping", read=())
        return "loads the rows", world.with_data(process, data._replace(shadow=shadow)), then

    def swapping(self, world: World, process: Process) -> Turn:
        if not self.is_building(world, process):
            return "gives way", world, process.rest()
        data = world.server(process).data
        data = data._replace(
            values=data.shadow,
            shadow=(),
            live=process.build,
            building=NONE,
            applied=data.applied + 1,
            must_rebuild=False,
        )
        return "swaps the builds", world.with_data(process, data), process._replace(at="finishing")

    def finishing(self, world: World, process: Process) -> Turn:
        if not self.may_write(world, process):
            return "may not write", world, process.rest()
        database = world.databases[process.database]
        marks = process.marks if self.has("marks first") else database.marks
        if database.note.term == process.note.term:
            world = self.noted(world, process)
        return "notes the build", world, process._replace(at="retiring", marks=marks)

    def retiring(self, world: World, process: Process) -> Turn:
        """One transaction: delete the marks that were listed, if the database notes this build."""
        database = world.databases[process.database]
        known = database.note.live, database.note.term
        if known == (process.build, process.note.term) and self.may_write(world, process):
            left = tuple(mark for mark in database.marks if mark not in process.marks)
            world = world.with_database(process.database, database._replace(marks=left))
        return "deletes marks", world, process.rest()


def _name(world: World, number: int) -> str:
    """Return how a story calls a process."""
    process = world.processes[number]
    alike = [at for at, other in enumerate(world.processes) if other.kind == process.kind]
    what = "a watcher" if process.kind == "watch" else "the site"
    if len(alike) == 1:
        return what
    order = alike.index(number) + 1
    return f"watcher {order}" if process.kind == "watch" else f"process {order} of the site"
