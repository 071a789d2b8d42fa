"""The protocol of ``docs/scores.md`` as a model: changes that begin in Redis reach the column, each exactly once.

There is one member, since a flush takes all that is pending of each. A score is how often it contains each change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from .search import Found, Step, ranked, renamed, search
from .world import GAP

GUARDS: Final = {
    "flush marks": "a flush leaves marks of the rows that it writes",
    "number": "a flush is noted in the transaction that writes it",
    "one before": "a flush commits only if the one before it is noted",
    "same term": "a flush commits only under the term that it was taken under",
    "reconcile": "what is pending on a server is reduced to what the column lacks before it is accepted",
    "unknown flushes": "what a server has pending of members carried by flushes unknown to it is dropped",
}

Score = tuple[int, ...]
Changes = frozenset[int]


class Server(NamedTuple):
    run: int
    """Of its process and its history, together."""

    score: Score
    pending: Changes = frozenset()
    carried: tuple[tuple[int, Changes], ...] = ()
    """By number: what flushes carried."""

    taken: int = 0
    settled: int = 0
    applied: int = 0
    """The newest version."""

    written: int = 0
    """The version of the member."""

    accepted: int = 1
    term: int = 1
    is_replica: bool = False


class Process(NamedTuple):
    kind: str
    """``flush``, ``drain`` or ``accept``."""

    at: str = "idle"
    term: int = 0
    number: int = 0
    changes: Changes = frozenset()
    version: int = 0
    marked: int = 0
    row: Score = ()
    run: int = 0


class World(NamedTuple):
    column: Score
    servers: tuple[Server, ...]
    processes: tuple[Process, ...]
    flushed: int = 0
    flushed_term: int = 1
    term: int = 1
    run: int = 1
    """The server that the database has accepted."""

    batches: frozenset[tuple[int, int, int]] = frozenset()
    """Term, version and number of each flush."""

    marked: int = 0
    """How many marks there have been, of which those up to ``drained`` are gone."""

    drained: int = 0
    lost: Changes = frozenset()
    """What Redis may have lost, as no flush had taken it."""

    leads: int = 0
    left: int = 0
    """How many changes may still be made."""

    faults: int = 0

    def serve(self, **changes: object) -> World:
        server = self.servers[self.leads]._replace(**changes)  # type: ignore[arg-type]
        return self._replace(servers=(*self.servers[: self.leads], server, *self.servers[self.leads + 1 :]))


@dataclass(frozen=True)
class Bounds:
    changes: int = 2
    faults: int = 0
    servers: int = 1
    processes: tuple[Process, ...] = ()
    kills: bool = True
    skips: bool = False
    """True if a trigger of the project's skips what is written to the column."""


class Model:
    def __init__(self, bounds: Bounds, without: str = "") -> None:
        assert not without or without in GUARDS
        self.bounds, self.without = bounds, without

    def has(self, guard: str) -> bool:
        return guard != self.without

    def run(self) -> Found[World]:
        bounds, zero = self.bounds, (0,) * self.bounds.changes
        servers = [Server(1, zero), *[Server(1, zero, is_replica=True)] * (bounds.servers - 1)]
        first = World(zero, tuple(servers), bounds.processes, left=bounds.changes, faults=bounds.faults)
        return search(first, self.steps, wrong=self.wrong, calm=self.calm, alike=alike)

    def is_healthy(self, world: World) -> bool:
        server = world.servers[world.leads]
        return server.run == server.accepted == world.run and server.term == world.term

    def wrong(self, world: World) -> str:
        """Return what is wrong, '' if nothing is: each change counts once, but for those that Redis may have lost."""
        if max(world.column) > 1:
            return "the column has a change twice"
        server = world.servers[world.leads]
        if not self.is_healthy(world) or world.marked > world.drained:
            return ""
        whole = joined(world.column, *lacked(server, world.flushed))
        if server.score != whole:
            return "healthy, no mark waits, and Redis doesn't rank the column's value with what is pending"
        made = range(self.bounds.changes - world.left)
        for change in made:
            if whole[change] > 1:
                return "a change counts twice"
            if not whole[change] and change not in world.lost:
                return "a change is lost"
        return ""

    def calm(self, world: World) -> bool:
        server = world.servers[world.leads]
        is_done = not server.pending and server.settled == server.taken == world.flushed
        return is_done and self.is_healthy(world) and world.marked == world.drained

    # Steps

    def steps(self, world: World) -> Iterator[Step[World]]:
        server = world.servers[world.leads]
        if world.left and server.run == server.accepted:
            change = self.bounds.changes - world.left
            after = world.serve(
                pending=server.pending | {change}, score=joined(server.score, frozenset({change}))
            )
            yield f"change {change + 1} is made", after._replace(left=world.left - 1), False
        for number, process in enumerate(world.processes):
            who = {"flush": f"flush {number + 1}", "drain": "a drain", "accept": "a watcher"}[process.kind]
            turn = getattr(self, f"{process.kind}_{process.at}")(world, process)
            if turn:
                what, after, then = turn
                yield f"{who} {what}", _put(after, number, then), False
            if process.at != "idle" and self.bounds.kills:
                yield f"{who} is killed", _put(world, number, Process(process.kind)), True
        yield from self.failovers(world)

    def failovers(self, world: World) -> Iterator[Step[World]]:
        if len(world.servers) == 1:
            return
        other, server = world.servers[1 - world.leads], world.servers[world.leads]
        copy = server._replace(is_replica=True)
        if other != copy:
            what = "replicates" if other.is_replica else "becomes a replica"
            copied = world._replace(leads=1 - world.leads).serve(**copy._asdict())
            yield f"server {2 - world.leads} {what}", copied._replace(leads=world.leads), True
        if world.faults and other.is_replica:
            fresh = 1 + max(world.run, *(s.run for s in world.servers), *(s.accepted for s in world.servers))
            after = world._replace(leads=1 - world.leads, faults=world.faults - 1).serve(
                run=fresh, is_replica=False
            )
            is_lost = [not count for count in world.column]
            gone = frozenset(
                change for change in range(self.bounds.changes - world.left) if is_lost[change]
            ).difference(other.pending, *(changes for _, changes in other.carried))
            yield f"server {2 - world.leads} takes over", after._replace(lost=world.lost | gone), True

    def flush_idle(self, world: World, process: Process) -> tuple[str, World, Process] | None:
        """One script: take what is pending, or what is in flight."""
        server = world.servers[world.leads]
        if server.run != server.accepted or server.term != world.term:
            return None
        then = process._replace(at="writing", term=server.term)
        if server.settled < server.taken and world.flushed < server.taken:
            carried = dict(server.carried)[server.taken]
            found = then._replace(number=server.taken, changes=carried, version=server.applied)
            return "goes on with what is in flight", world, found
        if not server.pending:
            if server.settled < server.taken:
                return "finds it written", world.serve(settled=server.taken), process
            return None
        number = max(server.taken, world.flushed) + 1
        version = server.applied + 1
        after = world.serve(
            pending=frozenset(),
            carried=(*server.carried, (number, server.pending)),
            taken=number,
            settled=number - 1,
            applied=version,
        )
        return (
            "takes what is pending",
            after,
            then._replace(number=number, changes=server.pending, version=version),
        )

    def flush_writing(self, world: World, process: Process) -> tuple[str, World, Process]:
        """One transaction: write the column and note the number, if the one before it is noted under this term."""
        is_next = world.flushed == process.number - 1 or not self.has("one before")
        if not is_next or (world.term != process.term and self.has("same term")):
            then = process._replace(at="settling") if world.term == process.term else Process(process.kind)
            return "finds it superseded", world, then
        marked = world.marked + self.has("flush marks")
        after = world._replace(column=joined(world.column, process.changes), marked=marked)
        if self.bounds.skips:
            after = after._replace(column=world.column, lost=world.lost | process.changes)
        if not self.has("number"):
            return "writes the column", after, process._replace(at="numbering")
        return self.flush_numbering(after, process)

    def flush_numbering(self, world: World, process: Process) -> tuple[str, World, Process]:
        batches = world.batches | {(process.term, process.version, process.number)}
        after = world._replace(
            flushed=max(world.flushed, process.number), flushed_term=process.term, batches=batches
        )
        what = "writes the column, and notes its number" if self.has("number") else "notes its number"
        return what, after, process._replace(at="settling")

    def flush_settling(self, world: World, process: Process) -> tuple[str, World, Process]:
        server = world.servers[world.leads]
        is_its = (server.term, server.taken) == (process.term, process.number)
        if is_its and server.run == server.accepted:
            world = world.serve(settled=process.number)
        return "settles", world, Process(process.kind)

    def drain_idle(self, world: World, process: Process) -> tuple[str, World, Process] | None:
        """Take a token."""
        server = world.servers[world.leads]
        if world.marked == world.drained or not self.is_healthy(world):
            return None
        then = process._replace(at="reading", version=server.applied, term=server.term, marked=world.marked)
        return "selects marks, and takes a token", world, then

    def drain_reading(self, world: World, process: Process) -> tuple[str, World, Process]:
        then = process._replace(at="applying", row=world.column, number=world.flushed)
        return "reads the row and the number of the last flush", world, then

    def drain_applying(self, world: World, process: Process) -> tuple[str, World, Process]:
        server = world.servers[world.leads]
        is_own = server.run == server.accepted and server.term == process.term
        if not is_own or server.written > process.version:
            return "is refused", world, Process(process.kind)
        score = joined(process.row, *lacked(server, process.number))
        after = world.serve(score=score, applied=server.applied + 1, written=server.applied + 1)
        return "writes to Redis", after, process._replace(at="unmarking")

    def drain_unmarking(self, world: World, process: Process) -> tuple[str, World, Process]:
        if world.term == process.term:
            world = world._replace(drained=max(world.drained, process.marked))
        return "deletes the marks", world, Process(process.kind)

    def accept_idle(self, world: World, process: Process) -> tuple[str, World, Process] | None:
        """One transaction: a new term, and the marks that the server lacks wait again."""
        server = world.servers[world.leads]
        if self.is_healthy(world):
            return None
        then = process._replace(at="reconciling", run=server.run, term=server.term, version=server.applied)
        after = world._replace(term=world.term + 1, run=server.run, marked=world.marked + 1)
        return "begins a term", after, then

    def accept_reconciling(self, world: World, process: Process) -> tuple[str, World, Process]:
        """One script: leave no flush in flight, and pending what the column lacks."""
        server = world.servers[world.leads]
        if (server.run, server.term) != (process.run, process.term):
            return "finds another server", world, Process(process.kind)
        if not self.has("reconcile"):
            return "reconciles nothing", world, process._replace(at="adopting")
        pending = server.pending
        of_flight = {number for term, _, number in world.batches if term == server.term}
        is_written = server.taken in of_flight or (
            world.flushed_term == server.term and world.flushed >= server.taken
        )
        if server.settled < server.taken and not is_written:
            pending |= dict(server.carried)[server.taken]
        position = server.term, server.applied
        if self.has("unknown flushes") and any(
            (term, version) > position for term, version, _ in world.batches
        ):
            pending = frozenset()
        after = world.serve(pending=pending, carried=(), taken=world.flushed, settled=world.flushed)
        return "reconciles what is pending", after, process._replace(at="adopting")

    def accept_adopting(self, world: World, process: Process) -> tuple[str, World, Process]:
        server = world.servers[world.leads]
        if (server.run, server.term, server.applied) != (process.run, process.term, process.version):
            return "finds another server", world, Process(process.kind)
        return (
            "accepts the server",
            world.serve(accepted=server.run, term=world.term),
            Process(process.kind),
        )


def joined(score: Score, *changes: Changes) -> Score:
    return tuple([count + sum(change in some for some in changes) for change, count in enumerate(score)])


def lacked(server: Server, flushed: int) -> Iterable[Changes]:
    """Return what a row lacks that was read when this flush was the last one noted."""
    return (*(changes for number, changes in server.carried if number > flushed), server.pending)


def alike(world: World) -> World:
    """Return one world for all that differ in names only."""
    servers, processes = world.servers, world.processes
    runs = renamed(
        [world.run, *(p.run for p in processes), *(n for s in servers for n in (s.run, s.accepted))]
    )
    of_batches = [position for *position, _ in world.batches]
    terms = ranked(
        [
            world.term,
            world.flushed_term,
            *(held.term for held in (*servers, *processes)),
            *(t for t, _ in of_batches),
        ]
    )
    versions = ranked(
        [
            *(n for s in servers for n in (s.applied, s.written)),
            *(p.version for p in processes),
            *(v for _, v in of_batches),
        ],
        gap=GAP,
    )
    return world._replace(
        term=terms[world.term],
        run=runs[world.run],
        flushed_term=terms[world.flushed_term],
        batches=frozenset(
            (terms[term], versions[version], number) for term, version, number in world.batches
        ),
        marked=world.marked - world.drained,
        drained=0,
        servers=tuple(
            s._replace(
                run=runs[s.run],
                accepted=runs[s.accepted],
                term=terms[s.term],
                applied=versions[s.applied],
                written=versions[s.written],
            )
            for s in servers
        ),
        processes=tuple(
            p._replace(
                term=terms[p.term],
                run=runs[p.run],
                version=versions[p.version],
                marked=max(0, p.marked - world.drained),
            )
            for p in processes
        ),
    )


def _put(world: World, number: int, process: Process) -> World:
    return world._replace(processes=(*world.processes[:number], process, *world.processes[number + 1 :]))
