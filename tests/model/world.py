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

_COMPARING: Final = ("replaying", "reconciling", "adopting")
"""Steps that look at the traces that were read."""


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
    trusted: Identity = ()  # the server that was trusted last
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
    """The database's row of the build."""

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
    is_leaving: bool = (
        False  # an operation is about to drop the first, and has dropped the triggers that name it
    )
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
    relations: tuple[int, ...] = ()  # of what it has seen to what each server holds: only for the key

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

    def marked_together(self, number: int, *members: int) -> World:
        """Return the world after a database has got one mark that names several members."""
        name = self.last + 1
        marks = *self.databases[number].marks, *((name, one) for one in members)
        return self.store(number, marks=marks)._replace(last=name)

    def batched(self, number: int, *batch: Any) -> World:
        return self.store(number, batches=tuple(sorted({*self.databases[number].batches, batch})))

    def then(self, number: int, process: Process) -> World:
        return self._replace(processes=(*self.processes[:number], process, *self.processes[number + 1 :]))

    def all_data(self) -> Iterator[Data]:
        return chain.from_iterable(filter(None, (server.data, server.saved)) for server in self.servers)


_key: Final = key_of(World)


@lru_cache(100_000)  # most worlds are reached by several orders of the same steps
def key(world: World, emptied: tuple[Data, ...] = (), goes_back: bool = False) -> Any:
    """Return one key for all worlds that differ in names only, or in what no step can look at any more.

    ``emptied``: what an emptied server holds, if there may be one; ``goes_back``: servers may go back to a dump with
    their memory, or a guard is missing. Otherwise a token of an abandoned history is refused for other reasons, too.
    """
    if not world.faults:
        world = world._replace(servers=tuple([one._replace(saved=None) for one in world.servers]))
    held = [*world.all_data()]
    # No other version is compared with members' than tokens of today and to come.
    tokens = [process.token for process in world.processes if process.epoch]
    lowest = min(chain(tokens, (data.applied for data in held)))
    oldest = min((data.term, data.applied) for data in held)
    # What every server has, none can lack.
    everywhere = set.intersection(*({name for name, _ in data.traces} for data in (*held, *emptied)))

    def asked(traces: tuple[Name, ...]) -> tuple[Name, ...]:
        return tuple([name for name in traces if name not in everywhere])

    def needed(batch: Batch) -> bool:
        """Return True if a server may be found to lack a batch."""
        is_had = all(data.term > batch[0] or batch[4] in dict(data.traces) for data in held)
        return batch[:2] > oldest or batch[3] > 0 or not is_had

    def noted(note: Note) -> Note:
        return note._replace(traces=asked(note.traces))

    databases = [
        one._replace(batches=tuple(filter(needed, one.batches)), note=noted(one.note))
        for one in world.databases
    ]
    processes = []
    for one in world.processes:
        relations = []
        if goes_back and one.epoch:
            relations = [history(data, one) for data in held]
        elif one.at in _COMPARING:
            relations = [int(data.traces == one.traces) for data in held]
        trace = one.trace if one.trace not in everywhere else -1
        one = one._replace(
            seen=Name(0), trace=Name(trace), noted=asked(one.noted), relations=tuple(relations)
        )
        processes.append(one._replace(note=one.note and noted(one.note)))
    names = {batch[4] for one in databases for batch in one.batches}
    names |= {name for one in databases for name in one.note.traces}
    names |= {
        name for one in processes for name in (one.trace, *one.noted, *(one.note.traces if one.note else ()))
    }

    def told(traces: tuple[Trace, ...]) -> tuple[Trace, ...]:
        return tuple([(name, Version(0)) for name, _ in traces if name in names])

    def seen(data: Data) -> Data:
        started = data.started if data.started > lowest else 0
        versions = tuple([one if data.building or one > lowest else 0 for one in data.versions])
        return data._replace(started=started, versions=versions, traces=told(data.traces))

    servers = [
        one._replace(data=seen(one.data), saved=one.saved and seen(one.saved)) for one in world.servers
    ]
    processes = sorted(one._replace(traces=told(one.traces)) for one in processes)
    return _key(World(tuple(databases), tuple(servers), tuple(processes), *world[3:-1]))


def history(data: Data, me: Process) -> int:
    """Return how the newest trace that a process has seen stands to those of a server: -1 if it isn't there, 0 if it is
    the last one, 1 if the next one is newer than the token, 2 if it isn't."""
    names = [0, *(name for name, _ in data.traces)]
    if me.seen not in names:
        return -1
    since = data.traces[names.index(me.seen) :]
    return 0 if not since else 1 if since[0][1] > me.token else 2
