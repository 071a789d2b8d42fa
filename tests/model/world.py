"""What the model consists of: databases, servers and processes, at one moment."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple

from .names import Name, Term, Version, key_of

ALL: Final = -1
"""The member of a mark for all members; as a value: not loaded yet."""

Build = tuple[int, Name] | tuple[()]  # the release that made it, and its name
Identity = tuple[Name, Name] | tuple[()]  # a server's process and its replication history
Mark = tuple[Name, int]  # its id and member
Batch = tuple[
    Term, Version, tuple[int, ...], int, Name
]  # of members' marks; the flush that left them; its trace
Trace = tuple[Name, Version]  # of a write that a drain may note
Changes = frozenset[int]  # of a score, by number


class Data(NamedTuple):
    """What a server holds of the index: replicas and dumps copy it."""

    values: tuple[Name, ...]
    versions: tuple[Version, ...]
    applied: Version = 0
    live: Build = ()
    building: Build = ()
    shadow: tuple[Name, ...] = ()  # the values in the build that is being made
    is_loaded: bool = False
    started: Version = 0
    accepted: Identity = ()  # the server that was accepted last
    term: Term = 0
    owner: int = 0
    must_rebuild: bool = False
    traces: tuple[Trace, ...] = ()
    pending: Changes = frozenset()
    carried: tuple[tuple[int, Changes], ...] = ()  # by flushes, of which those up to ``settled`` are done
    taken: int = 0
    settled: int = 0
    late: Changes = frozenset()  # made while another declaration was built, which gets them from the flush


class Server(NamedTuple):
    identity: Identity
    data: Data
    is_replica: bool = False
    saved: Data | None = None  # what it comes back with after a crash


class Note(NamedTuple):
    """The database's row of the generation."""

    live: Build = ()
    building: Build = ()
    server: Identity = ()
    term: Term = 0
    triggers: Name = 0
    current: int = 0  # the release that is recorded: its triggers are to stay
    taken: bool = False  # another release replaces the build of the one that is recorded
    flushed: int = 0  # the last flush, and its term
    flushed_term: Term = 0
    traces: tuple[Name, ...] = ()  # of the batches that no later one vouches for


class Database(NamedTuple):
    rows: tuple[tuple[Name, ...], ...]  # a column for each release, which ranks by it
    note: Note = Note()
    triggers: Name = 0  # others after a table was restored
    captured: frozenset[int] = frozenset()  # the columns that triggers name: their changes leave marks
    columns: frozenset[int] = frozenset({0, 1})  # that exist
    marks: tuple[Mark, ...] = ()
    batches: tuple[Batch, ...] = ()

    def column(self, release: int) -> tuple[int, ...]:
        return tuple(row[release] for row in self.rows)

    def newest(self) -> tuple[int, int]:
        """Return the term and the version of the newest batch."""
        return max((batch[:2] for batch in self.batches), default=(0, 0))


class Process(NamedTuple):
    kind: str  # watch, flush, save, or write: a save whose process pushes nothing
    release: int = 0
    pinned: int = -1  # the server that it keeps writing to, if it follows no failover
    database: int = 0
    at: str = ""  # its next step; '' if it has ended what it did
    # What it has seen:
    todo: tuple[int, ...] = ()
    marks: tuple[Mark, ...] = ()
    token: Version = 0
    epoch: tuple[Build, Build, Term] | tuple[()] = ()
    read: tuple[Name, ...] = ()
    refusals: int = 0
    written: tuple[Build, Term, Version] | tuple[()] = ()  # first under these, and last with this version
    build: Build = ()
    note: Note | tuple[()] = ()
    term: Term = 0
    newest: tuple[Term, Version] | tuple[()] = ()
    traces: tuple[Trace, ...] = ()  # that a server has
    noted: tuple[Name, ...] = ()  # those that its server must have
    trace: Name = 0  # of its last write
    seen: Name = 0  # the last one on the server, as of the token
    identity: Identity = ()
    change: tuple[int, int, Name] | tuple[()] = ()  # in its transaction: member, column and value
    number: int = 0  # of a flush, and what it carries
    changes: Changes = frozenset()

    def to(self, at: str = "", **seen: Any) -> Process:
        """Return the process before another step, with nothing else that it has seen."""
        return Process(*self[:4], at)._replace(**seen)


class World(NamedTuple):
    databases: tuple[Database, ...]
    servers: tuple[Server, ...]
    processes: tuple[Process, ...]
    leads: int = 0  # the server to which the address leads
    primary: int = 0  # the database that takes writes, where the other one is a standby of it
    saves: int = 0  # how many may still happen
    faults: int = 0
    lost: Changes = frozenset()  # what Redis may have lost, as no flush had taken it
    last: int = 0  # the name that was given last

    def server(self, process: Process) -> Server:
        return self.servers[process.pinned if process.pinned >= 0 else self.leads]

    def database(self, process: Process) -> Database:
        return self.databases[process.database]

    def serve(self, number: int, **changes: Any) -> World:
        server = self.servers[number]._replace(**changes)
        return self._replace(servers=(*self.servers[:number], server, *self.servers[number + 1 :]))

    def write(self, process: Process, **changes: Any) -> World:
        """Change what the server holds that the process is connected to."""
        number = process.pinned if process.pinned >= 0 else self.leads
        return self.serve(number, data=self.servers[number].data._replace(**changes))

    def store(self, number: int, **changes: Any) -> World:
        database = self.databases[number]._replace(**changes)
        return self._replace(databases=(*self.databases[:number], database, *self.databases[number + 1 :]))

    def note(self, process: Process, **changes: Any) -> World:
        return self.store(process.database, note=self.database(process).note._replace(**changes))

    def marked(self, number: int, *members: int) -> World:
        """Return the world after a database has got marks of members."""
        marks = [*self.databases[number].marks, *((self.last + at, one) for at, one in enumerate(members, 1))]
        return self.store(number, marks=tuple(marks))._replace(last=self.last + len(members))

    def batched(self, number: int, *batch: Any) -> World:
        return self.store(number, batches=tuple(sorted({*self.databases[number].batches, batch})))

    def then(self, number: int, process: Process) -> World:
        return self._replace(processes=(*self.processes[:number], process, *self.processes[number + 1 :]))

    def all_data(self) -> Iterator[Data]:
        return chain.from_iterable(filter(None, (server.data, server.saved)) for server in self.servers)


_key: Final = key_of(World)


@lru_cache(100_000)  # most worlds are reached by several orders of the same steps
def key(world: World) -> Any:
    """Return one key for all worlds that differ in names only, or in what no step can look at any more."""
    # No other version is compared with members' than tokens of today and to come.
    tokens = [process.token for process in world.processes if process.at in ("reading", "applying")]
    lowest = min(chain(tokens, (data.applied for data in world.all_data())))
    oldest = min((data.term, data.applied) for data in world.all_data())

    def seen(data: Data) -> Data:
        started = data.started if data.started > lowest else 0
        versions = tuple([one if data.building or one > lowest else 0 for one in data.versions])
        return data._replace(started=started, versions=versions, traces=tuple(told(data.traces)))

    def told(traces: tuple[Trace, ...]) -> Iterator[Trace]:
        for at, (name, version) in enumerate(traces, 1):
            before = {0, *dict(traces[: at - 1])}
            is_newer = goes_back and any(one.token >= version and one.seen in before for one in pushing)
            if name in asked or is_newer or (at == len(traces) and goes_back):
                yield name, version

    def needed(batch: Batch) -> bool:
        is_had = all(data.term > batch[0] or batch[4] in dict(data.traces) for data in world.all_data())
        return batch[:2] > oldest or batch[3] > 0 or not is_had

    databases = [one._replace(batches=tuple(filter(needed, one.batches))) for one in world.databases]
    # Without a dump to go back to, tokens are refused for other reasons.
    goes_back = any(one.saved for one in world.servers)
    if not goes_back:
        world = world._replace(processes=tuple(one._replace(seen=Name(0)) for one in world.processes))
    pushing = [process for process in world.processes if process.at in ("reading", "applying")]
    asked = {name for process in world.processes for name in (process.trace, process.seen, *process.noted)}
    asked |= {name for one in databases for name in (*one.note.traces, *(batch[4] for batch in one.batches))}
    asked |= {name for one in world.processes if one.note for name in one.note.traces}
    servers = [one._replace(data=seen(one.data)) for one in world.servers]
    servers = [one._replace(saved=one.saved and seen(one.saved)) for one in servers]
    processes = tuple(sorted(world.processes))
    return _key(World(tuple(databases), tuple(servers), processes, *world[3:-1]))
