"""The protocol of ``docs/scores.md`` as a model: changes that begin in Redis reach the column, each exactly once.

All the rest is as in ``sync.py``: marks of flushes are drained, and servers accepted. There is one member, since a
flush takes all that is pending of each. A score is how often it contains each change.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from . import sync
from .search import Step
from .sync import Turn
from .world import Changes, Data, Process, World

Score = tuple[int, ...]


class Model(sync.Model):
    def __init__(self, bounds: sync.Bounds, without: str = "") -> None:
        super().__init__(bounds, without)
        self.zero: Score = (0,) * bounds.saves

    def made(self, world: World) -> range:
        return range(self.bounds.saves - world.saves)

    def expected(self, world: World, data: Data, release: int) -> tuple[Score, ...]:
        (database,) = world.databases
        return (joined(*database.rows[0], *lacked(data, database.note.flushed)),)

    def wrong(self, world: World) -> str:
        """Return what is wrong: each change counts once, but for those that Redis may have lost."""
        data, score = world.servers[world.leads].data, world.databases[0].rows[0][0]
        if max(score) > 1:
            return "the column has a change twice"
        if (wrong := super().wrong(world)) or not self.is_settled(world):
            return wrong
        for change in self.made(world):
            if data.values[0][change] > 1:
                return "a change counts twice"
            if not data.values[0][change] and change not in world.lost:
                return "a change is lost"
        return ""

    def calm(self, world: World) -> bool:
        data, note = world.servers[world.leads].data, world.databases[0].note
        return not data.pending and data.settled == data.taken == note.flushed and super().calm(world)

    def copies(self, world: World) -> Iterator[Step[World]]:
        server, change = world.servers[world.leads], self.bounds.saves - world.saves
        if world.saves and self.takes_writes(server):
            data, new = server.data, frozenset({change})
            data = data._replace(pending=data.pending | new, values=(joined(*data.values, new),))
            after = world.serve(world.leads, data=data)._replace(saves=world.saves - 1)
            yield f"change {change + 1} is made", after, False
        yield from super().copies(world)

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
        if not self.takes_writes(world.server(me)) or data.term != note.term:
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
        if "skip" in self.bounds.may:
            after = world._replace(lost=world.lost | me.changes)
        else:
            after = world.store(me.database, rows=((joined(score, me.changes),),))
        after = after.marked(me.database, *[0] * self.has("flush marks"))
        if not self.has("number"):
            return "writes the column", after, me._replace(at="numbering")
        _, after, then = self.numbering(after, me)
        return "writes the column, and notes its number", after, then

    def numbering(self, world: World, me: Process) -> Turn:
        number = max(world.database(me).note.flushed, me.number)
        after = world.note(me, flushed=number, flushed_term=me.term)
        after = after.batched(me.database, me.term, me.token, (0,), me.number)
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
        data = world.server(me).data
        return super().applying(world, me._replace(read=(joined(*me.read, *lacked(data, me.number)),)))

    def entering(self, world: World, me: Process) -> Turn:
        """Rebuilds aren't modelled here: the note that was read is older than what Redis holds."""
        return "looks again", world, me.to()

    def replaying(self, world: World, me: Process) -> Turn:
        what, after, then = super().replaying(world, me)
        return what, after, then._replace(at=then.at and "reconciling")

    def reconciling(self, world: World, me: Process) -> Turn:
        """One script: leave no flush in flight, and pending what the column lacks."""
        server, note = world.server(me), world.database(me).note
        data, flushes = server.data, [batch for batch in world.database(me).batches if batch[3]]
        if (server.identity, data.term) != (me.identity, me.newest[0]):
            return "finds another server", world, me.to()
        then, pending = me._replace(at="adopting"), data.pending
        if not self.has("reconcile"):
            return "reconciles nothing", world, then
        is_written = note.flushed_term == data.term and note.flushed >= data.taken
        is_written |= any((term, number) == (data.term, data.taken) for term, *_, number in flushes)
        if data.settled < data.taken and not is_written:
            pending |= dict(data.carried)[data.taken]
        if self.has("unknown flushes") and any(batch[:2] > me.newest for batch in flushes):
            pending = frozenset()
        after = world.write(me, pending=pending, carried=(), taken=note.flushed, settled=note.flushed)
        return "reconciles what is pending", after, then


def joined(score: Score, *changes: Changes) -> Score:
    return tuple([count + sum(change in some for some in changes) for change, count in enumerate(score)])


def lacked(data: Data, flushed: int) -> Iterator[Changes]:
    """Return what a row lacks that was read when this flush was the last one noted."""
    return chain((changes for number, changes in data.carried if number > flushed), [data.pending])
