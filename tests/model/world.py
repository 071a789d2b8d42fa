"""What the model of ``docs/guarantees.md`` consists of: databases, servers and processes, at one moment."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

from .search import ranked, renamed

ALL: Final = -1
"""The member of a mark for all members; as a value: not loaded yet."""

GAP: Final = 5
"""Versions and terms that lie farther apart are taken for this far apart."""

Build = tuple[int, int]
"""A build: the release that made it, and its name."""

NONE: Final[Build] = (0, 0)


class Data(NamedTuple):
    """What a server holds of the index: replicas and dumps copy it."""

    values: tuple[int, ...]
    versions: tuple[int, ...]
    applied: int = 0
    live: Build = NONE
    building: Build = NONE
    shadow: tuple[int, ...] = ()
    """The values in the build that is being made."""

    started: int = 0
    accepted: tuple[int, int] = (0, 0)
    """The process and the history of the server that was accepted last."""

    term: int = 0
    owner: int = 0
    must_rebuild: bool = False


class Server(NamedTuple):
    process: int
    history: int
    data: Data
    is_replica: bool = False
    saved: Data | None = None
    """What it comes back with after a crash."""

    @property
    def identity(self) -> tuple[int, int]:
        return self.process, self.history


class Note(NamedTuple):
    """The database's row of the generation."""

    live: Build = NONE
    building: Build = NONE
    server: tuple[int, int] = (0, 0)
    term: int = 0
    triggers: int = 0


class Database(NamedTuple):
    rows: tuple[tuple[int, ...], ...]
    """The columns of each member. A release ranks by the column of its number."""

    marks: tuple[tuple[int, int], ...] = ()
    """Id and member."""

    batches: frozenset[tuple[int, int, frozenset[int]]] = frozenset()
    """Term, version and members of the marks that were processed together."""

    note: Note = Note()
    captured: frozenset[int] = frozenset()
    """The columns whose changes leave marks."""

    last: int = 0
    """The highest id of a mark."""

    triggers: int = 1
    """Which triggers these are; others after a table was restored."""

    def marked(self, member: int) -> Database:
        return self._replace(marks=(*self.marks, (self.last + 1, member)), last=self.last + 1)

    def column(self, release: int) -> tuple[int, ...]:
        return tuple(row[release] for row in self.rows)

    def newest(self) -> tuple[int, int]:
        """Return the term and the version of the newest batch."""
        return max((batch[:2] for batch in self.batches), default=(0, 0))


class Process(NamedTuple):
    kind: str
    """``save``, ``watch``, or ``write``: a save whose process pushes nothing."""

    release: int = 0
    pinned: int = -1
    """The server that it keeps writing to, if it follows no failover."""

    database: int = 0
    at: str = "idle"
    """Its next step. What follows is what it has seen."""

    todo: tuple[int, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    token: int = 0
    epoch: tuple[Build, Build, int] = (NONE, NONE, 0)
    read: tuple[int, ...] = ()
    refusals: int = 0
    written: tuple[Build, int, int] = (NONE, 0, 0)
    """The build and the term that were written under first, and the version of the last write."""

    build: Build = NONE
    note: Note = Note()
    newest: tuple[int, int] = (0, 0)
    identity: tuple[int, int] = (0, 0)
    change: tuple[int, ...] = ()
    """What its open transaction has changed: the member, the column and the value."""

    def rest(self) -> Process:
        return Process(self.kind, self.release, self.pinned, self.database)


class World(NamedTuple):
    databases: tuple[Database, ...]
    servers: tuple[Server, ...]
    processes: tuple[Process, ...]
    leads: int = 0
    """The server to which the address leads."""

    primary: int = 0
    """The database that takes writes, where the other one is a standby of it."""

    saves: int = 0
    faults: int = 0
    """How many may still happen."""

    def with_server(self, number: int, server: Server) -> World:
        return self._replace(servers=(*self.servers[:number], server, *self.servers[number + 1 :]))

    def with_data(self, process: Process, data: Data) -> World:
        """Replace what the server holds that the process is connected to."""
        return self.with_server(self.at(process), self.server(process)._replace(data=data))

    def with_database(self, number: int, database: Database) -> World:
        return self._replace(databases=(*self.databases[:number], database, *self.databases[number + 1 :]))

    def with_process(self, number: int, process: Process) -> World:
        return self._replace(processes=(*self.processes[:number], process, *self.processes[number + 1 :]))

    def at(self, process: Process) -> int:
        return process.pinned if process.pinned >= 0 else self.leads

    def server(self, process: Process) -> Server:
        return self.servers[self.at(process)]

    def all_data(self) -> Iterator[Data]:
        for server in self.servers:
            yield server.data
            if server.saved:
                yield server.saved

    def new_build(self) -> int:
        held = chain.from_iterable((data.live, data.building) for data in self.all_data())
        noted = chain.from_iterable((d.note.live, d.note.building) for d in self.databases)
        known = chain.from_iterable((*p.epoch[:2], p.written[0], p.build) for p in self.processes)
        return 1 + max(number for _, number in chain(held, noted, known))


# Worlds that differ in nothing that matters

_REBUILDING: Final = ("marks", "build", "note")

_NEEDED: Final = {
    "idle": (),
    "committing": ("change",),
    "asking": ("todo", "marks", "read", "written", "change"),
    "reading": ("todo", "marks", "token", "epoch", "refusals", "written", "change"),
    "applying": ("todo", "marks", "token", "epoch", "refusals", "written", "read", "change"),
    "unmarking": ("marks", "written"),
    "looking": ("note", "newest"),
    "noting": ("build",),
    "replaying": ("note", "build", "newest", "identity"),
    "adopting": ("note", "build", "newest", "identity"),
    "entering": (),
    "starting": (*_REBUILDING, "identity"),
    "noting_start": _REBUILDING,
    "querying": _REBUILDING,
    "loading": (*_REBUILDING, "read"),
    "swapping": _REBUILDING,
    "finishing": _REBUILDING,
    "retiring": _REBUILDING,
}
"""What a process that stands before this step still needs of what it has seen."""


def _needed(world: World) -> World:
    """Return the world without what no step can look at any more."""
    processes = []
    for process in world.processes:
        needed = {field: getattr(process, field) for field in _NEEDED[process.at]}
        if process.kind == "save":
            needed.pop("written", None)
        if "note" in needed and process.at not in ("looking", "replaying"):
            needed["note"] = Note(term=process.note.term)
        processes.append(process.rest()._replace(at=process.at, **needed))
    # Of the tokens of today and to come: no other version is compared with members'.
    tokens = [process.token for process in processes if process.at in ("reading", "applying")]
    lowest = min([*tokens, *(data.applied for data in world.all_data())])

    def of_data(data: Data) -> Data:
        if data.started <= lowest:
            data = data._replace(started=0)
        if data.building[1]:
            return data
        return data._replace(versions=tuple([v if v > lowest else 0 for v in data.versions]))

    servers = [
        server._replace(data=of_data(server.data), saved=server.saved and of_data(server.saved))
        for server in world.servers
    ]
    oldest = min((data.term, data.applied) for data in world.all_data())
    held = {pk for process in processes for pk, _ in process.marks}
    databases = [
        database._replace(
            batches=frozenset(batch for batch in database.batches if batch[:2] > oldest),
            last=max(held.union(pk for pk, _ in database.marks), default=0),
        )
        for database in world.databases
    ]
    return world._replace(databases=tuple(databases), servers=tuple(servers), processes=tuple(processes))


class _Names(dict[int, int]):
    """The names that occur, in this order."""

    def __missing__(self, name: int) -> int:
        self[name] = name
        return name


def alike(world: World) -> World:
    """Return one world for all that differ in names only: of values, versions, terms, builds, servers, processes."""
    world = _needed(world)
    names = [_Names() for _ in range(8)]
    _translate(world, *names)
    values, versions, terms, builds, runs, histories, marks, triggers = names
    return _translate(
        world,
        renamed(values),
        ranked(versions, gap=GAP),
        ranked(terms, gap=GAP),
        renamed(builds),
        renamed(runs),
        renamed(histories),
        ranked(marks),
        ranked(triggers),
    )


def _translate(
    world: World,
    values: Any,
    versions: Any,
    terms: Any,
    builds: Any,
    runs: Any,
    histories: Any,
    marks: Any,
    triggers: Any,
) -> World:
    def of_build(build: Build) -> Build:
        return build[0], builds[build[1]]

    def of_identity(identity: tuple[int, int]) -> tuple[int, int]:
        return runs[identity[0]], histories[identity[1]]

    def of_marks(some: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        return tuple([(marks[pk], member) for pk, member in some])

    def of_position(position: tuple[int, int]) -> tuple[int, int]:
        return terms[position[0]], versions[position[1]]

    def of_note(note: Note) -> Note:
        identity = of_identity(note.server)
        return Note(
            of_build(note.live), of_build(note.building), identity, terms[note.term], triggers[note.triggers]
        )

    def of_data(data: Data) -> Data:
        return Data(
            tuple([values[value] for value in data.values]),
            tuple([versions[version] for version in data.versions]),
            versions[data.applied],
            of_build(data.live),
            of_build(data.building),
            tuple([values[value] for value in data.shadow]),
            versions[data.started],
            of_identity(data.accepted),
            terms[data.term],
            data.owner,
            data.must_rebuild,
        )

    def of_server(server: Server) -> Server:
        saved = server.saved and of_data(server.saved)
        return Server(*of_identity(server.identity), of_data(server.data), server.is_replica, saved)

    def of_database(database: Database) -> Database:
        return Database(
            tuple([tuple([values[value] for value in row]) for row in database.rows]),
            of_marks(database.marks),
            frozenset([(*of_position(batch[:2]), batch[2]) for batch in database.batches]),
            of_note(database.note),
            database.captured,
            marks[database.last],
            triggers[database.triggers],
        )

    def of_process(process: Process) -> Process:
        if process.at == "idle":
            return process
        kind, release, pinned, database, at, todo, seen, token, epoch, read, refusals, written, *_ = process
        return Process(
            kind,
            release,
            pinned,
            database,
            at,
            todo,
            of_marks(seen),
            versions[token],
            (of_build(epoch[0]), of_build(epoch[1]), terms[epoch[2]]),
            tuple([values[value] for value in read]),
            refusals,
            (of_build(written[0]), terms[written[1]], versions[written[2]]),
            of_build(process.build),
            of_note(process.note),
            of_position(process.newest),
            of_identity(process.identity),
            process.change and (*process.change[:2], values[process.change[2]]),
        )

    return world._replace(
        databases=tuple(map(of_database, world.databases)),
        servers=tuple(map(of_server, world.servers)),
        processes=tuple(sorted(map(of_process, world.processes))),
    )
