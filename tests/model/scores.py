"""The protocol of ``docs/protocol.md`` as a model: write-behind changes reach the column, each exactly once.

All the rest is as in ``sync.py``: marks of flushes are drained, and servers trusted. There is one member, since a
flush takes all that is pending of each. A score is how often it contains each change; where the best one is kept, which
is the one with the lowest number, it contains no other. Where changes take each other back, two of them do.

Releases rank by the same column, and the triggers of both are there; the newer one has migrated. One of them may
declare no ``write_behind``: it doesn't look at what is pending, and makes no changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import sync
from .search import Step
from .sync import Turn
from .world import ALL, Build, Changes, Data, Database, Note, Process, Server, World

Score = tuple[int, ...]


class Model(sync.Model):
    def __init__(self, bounds: sync.Bounds, without: str = "") -> None:
        super().__init__(bounds, without)
        self.zero: Score = (0,) * bounds.saves
        self.without_scores = 0 if "adds" in self.bounds.may else 1 if "removes" in self.bounds.may else -1
        """The release that declares no ``write_behind``."""

    def first(self) -> World:
        first, captured = super().first(), frozenset(range(self.bounds.releases))
        note = first.databases[0].note._replace(current=max(captured))
        return first.store(0, rows=((self.zero,),), captured=captured, note=note)

    def made(self, world: World) -> range:
        return range(self.bounds.saves - world.saves)

    def expected(self, world: World, data: Data, release: int) -> tuple[Score, ...]:
        (database,) = world.databases
        score, lacked = database.rows[0][0], self.lacked(data, database.note.flushed, data.live[0])
        late = {change for change in data.late if not data.values[0][change]}
        return (self.joined(score, *(changes - late for changes in lacked)),)

    def rows(self, world: World, me: Process, members: tuple[int, ...]) -> tuple[Any, ...]:
        return world.database(me).rows[0]

    def joined(self, score: Score, *changes: Changes) -> Score:
        counts = tuple([count + sum(one in some for some in changes) for one, count in enumerate(score)])
        if "best" in self.bounds.may and any(counts):
            best = next(one for one, count in enumerate(counts) if count)
            return tuple([int(one == best) for one in range(len(counts))])
        return counts

    def lacked(self, data: Data, flushed: int, release: int) -> list[Changes]:
        """Return what a row lacks that was read when this flush was the last one noted; a release that declares no
        ``write_behind`` doesn't look."""
        if release == self.without_scores:
            return []
        return [*(changes for number, changes in data.carried if number > flushed), data.pending]

    def known(self, release: int, live: Build) -> int:
        """Return the release as which another one's build is examined."""
        is_other = live and self.without_scores >= 0 and not self.has("write_behind")
        return live[0] if is_other else release

    def status(self, database: Database, server: Server, release: int, seen: Any = None) -> str:
        return super().status(database, server, self.known(release, server.data.live), seen)

    def has_all(self, data: Data, note: Note) -> bool:
        return super().has_all(data, note) and self.has_flushes(data, note)

    def has_flushes(self, data: Data, note: Note) -> bool:
        """Return True unless a server lacks a flush of its term."""
        return not self.has("flushes") or note.flushed_term != data.term or note.flushed <= data.taken

    def asking(self, world: World, me: Process) -> Turn:
        release = self.known(me.release, world.server(me).data.live)
        what, after, then = super().asking(world, me._replace(release=release))
        return what, after, then._replace(release=me.release)

    def wrong(self, world: World) -> str:
        """Return what is wrong: each change counts once, but for those that Redis may have lost."""
        data, score = world.servers[world.leads].data, world.databases[0].rows[0][0]
        if max(score) > 1:
            return "the column has a change twice"
        if wrong := super().wrong(world):
            return wrong
        # The release whose build is live ranks what is pending, unless it declares no write_behind.
        if not data.live or data.live[0] == self.without_scores or not self.is_settled(world, data.live[0]):
            return ""
        lacked = self.lacked(data, world.databases[0].note.flushed, data.live[0])
        counted = world.lost | data.late & frozenset().union(*lacked)
        for change in self.made(world):
            if data.values[0][change] > 1:
                return "a change counts twice"
            better = range(change if "best" not in self.bounds.may else 0, change + 1)
            if not any(data.values[0][one] or one in counted for one in better):
                return "a change is lost"
        return ""

    def calm(self, world: World) -> bool:
        data, note = world.servers[world.leads].data, world.databases[0].note
        return not data.pending and data.settled == data.taken == note.flushed and super().calm(world)

    def copies(self, world: World) -> Iterator[Step[World]]:
        server, change = world.servers[world.leads], self.bounds.saves - world.saves
        # By a process of the release whose build is live; without the rule, of any that declares write_behind.
        is_declared = server.data.live[:1] != (self.without_scores,) or not self.has("write_behind")
        if world.saves and self.takes_writes(server) and server.data.live and is_declared:
            data = self.changed(server.data, frozenset({change}))
            after = world.serve(world.leads, data=data)._replace(saves=world.saves - 1)
            yield f"change {change + 1} is made", after, False
        yield from super().copies(world)

    def changed(self, data: Data, new: Changes) -> Data:
        """One script: change the score in the live build, and in one that is made if it is stored in the same way."""
        (value,), pending, is_no_better = data.values, data.pending | new, False
        if "best" in self.bounds.may:
            if self.has("merge"):
                value = self.joined(value, data.pending)
            if is_no_better := self.joined(value, new) == value:
                pending = data.pending
            elif not self.has("merge"):
                pending = new
        shadow, late = data.shadow, data.late
        if data.building and data.building[0] != data.live[0]:
            late |= new
        elif shadow and shadow[0] != ALL and not (is_no_better and self.has("no better")):
            shadow = (self.joined(*shadow, new),)
        return data._replace(values=(self.joined(value, new),), pending=pending, shadow=shadow, late=late)

    def faults(self, world: World) -> Iterator[Step[World]]:
        for what, after, is_fault in super().faults(world):
            data, score = after.servers[after.leads].data, after.databases[0].rows[0][0]
            held = data.pending.union(*dict(data.carried).values())
            gone = {change for change in self.made(world) if not score[change]} - held
            yield what, after._replace(lost=after.lost | gone), is_fault

    # A flush

    def flush(self, world: World, me: Process) -> list[Turn]:
        """One script: take what is pending, or what is in flight."""
        data, note = world.server(me).data, world.database(me).note
        if (
            not self.takes_writes(world.server(me))
            or data.term != note.term
            or not self.has_flushes(data, note)
        ):
            return []
        is_in_flight, then = data.settled < data.taken, me.to("writing", term=data.term)
        if is_in_flight and note.flushed < data.taken:
            then = then._replace(number=data.taken, changes=dict(data.carried)[data.taken])
            return [("goes on with what is in flight", world, then._replace(token=data.applied))]
        if not data.pending:
            return [("finds it written", world.write(me, settled=data.taken), me)] if is_in_flight else []
        number, version = max(data.taken, note.flushed) + 1, data.applied + 1
        carried = (*data.carried, (number, data.pending))
        after = world.write(
            me, pending=frozenset(), carried=carried, taken=number, settled=number - 1, applied=version
        )
        then = then._replace(number=number, changes=data.pending, token=version)
        return [("takes what is pending", after, then)]

    def writing(self, world: World, me: Process) -> Turn:
        """One transaction: write the column and note the number, if the one before it is noted under this term."""
        note, score = world.database(me).note, world.database(me).rows[0][0]
        is_next = note.flushed == me.number - 1 or not self.has("one before")
        if not is_next or (note.term != me.term and self.has("same term")):
            is_superseded = note.term == me.term
            return "finds it superseded", world, me._replace(at="settling") if is_superseded else me.to()
        is_skipped, is_same = "skip" in self.bounds.may, "reverse" in self.bounds.may and len(me.changes) == 2
        if is_skipped:
            after = world._replace(lost=world.lost | me.changes)
        else:
            after = world.store(me.database, rows=((self.joined(score, me.changes),),))
        is_fired = not (is_skipped or is_same)
        after = after.marked(me.database, *[0] * (self.has("flush marks") or is_fired))
        if not self.has("number"):
            return "writes the column", after, me._replace(at="numbering")
        _, after, then = self.numbering(after, me)
        return "writes the column, and notes its number", after, then

    def numbering(self, world: World, me: Process) -> Turn:
        number = max(world.database(me).note.flushed, me.number)
        after = world.note(me, flushed=number, flushed_term=me.term)
        after = after.batched(me.database, me.term, self.position(me.token), (0,), me.number, 0)
        return "notes its number", after, me._replace(at="settling")

    def settling(self, world: World, me: Process) -> Turn:
        server = world.server(me)
        is_its = (server.data.term, server.data.taken) == (me.term, me.number)
        after = world.write(me, settled=me.number) if is_its and self.takes_writes(server) else world
        return "settles", after, me.to()

    # A watcher

    def reading(self, world: World, me: Process) -> Turn:
        """Read the number of the last flush, too."""
        what, after, then = super().reading(world, me)
        return what, after, then._replace(number=world.database(me).note.flushed)

    def applying(self, world: World, me: Process) -> Turn:
        return super().applying(world, self.with_lacked(world, me))

    def with_lacked(self, world: World, me: Process) -> Process:
        lacked = self.lacked(world.server(me).data, me.number, me.release)
        return me._replace(read=(self.joined(*me.read, *lacked),))

    def entering(self, world: World, me: Process) -> Turn:
        """With one release, rebuilds are modelled only where nothing is lost: the note that was read is older than what
        Redis holds."""
        may_rebuild = self.bounds.releases > 1 or "rebuild" in self.bounds.may
        return super().entering(world, me) if may_rebuild else ("looks again", world, me.to())

    def querying(self, world: World, me: Process) -> Turn:
        what, after, then = super().querying(world, me)
        return what, after, then._replace(number=world.database(me).note.flushed)

    def loading(self, world: World, me: Process) -> Turn:
        return super().loading(world, self.with_lacked(world, me))

    def replaying(self, world: World, me: Process) -> Turn:
        what, after, then = super().replaying(world, me)
        return what, after, then._replace(at=then.at and "reconciling")

    def reconciling(self, world: World, me: Process) -> Turn:
        """One script: leave no flush in flight, and pending what the column lacks."""
        server, note = world.server(me), world.database(me).note
        data, flushes = server.data, [batch for batch in world.database(me).batches if batch[3]]
        if (server.identity, data.term, data.taken) != (me.identity, me.newest[0], me.number):
            return "finds the server changed", world, me.to()
        then, pending = me._replace(at="adopting"), data.pending
        if not self.has("reconcile"):
            return "reconciles nothing", world, then
        is_written = note.flushed_term == data.term and note.flushed >= data.taken
        is_written |= any((term, number) == (data.term, data.taken) for term, *_, number in flushes)
        if data.settled < data.taken and not is_written:
            pending |= dict(data.carried)[data.taken]
        if self.has("unknown flushes") and any(self.is_lacking(batch, me) for batch in flushes):
            pending = frozenset()
            if "rewind" in self.bounds.may:  # what was changed since then
                (score,) = world.database(me).rows[0]
                world = world._replace(lost=world.lost | {one for one in data.pending if not score[one]})
        after = world.write(me, pending=pending, carried=(), taken=note.flushed, settled=note.flushed)
        return "reconciles what is pending", after, then
