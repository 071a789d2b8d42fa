"""Marks of an index, led to its shards: triggers can't tell the shard of a member, so marks name the whole index."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..builds import keep
from ..declaration import Index
from ..models import Batch, Build
from ..store import Change
from ..sync.drain import Drain, Writing, built
from ..sync.in_step import InStep
from ..sync.marks import Seen, Written, batch_of, count_named, delete, lock, note_trace
from ..sync.push import Push
from ..sync.rebuild import rebuild
from ..transactions import PATIENCE, briefly
from .declaration import ShardedIndex

__all__ = ["draining"]


def draining(index: ShardedIndex, batch_size: int, patience: float, share: int | None = None) -> Drain:
    return _Router(index, batch_size, patience, share)


class _Processed(NamedTuple):
    """Marks that were processed together."""

    marks: Sequence[Seen]

    shards: Collection[Index]
    """The shards that they led to, and to which the members were written."""


class _Push(Push):
    """A push that notes which shards have members that the database spells otherwise than they were asked for."""

    def __init__(self, step: InStep) -> None:
        super().__init__(step, noted=True)

        self.astray: set[Index] = set()
        """The shards of the members, in both spellings."""

    def find(
        self, declared: Index, pks: list[Any], found: Iterable[Sequence[Any]] | None = None
    ) -> dict[Index, list[Any]]:
        changes, asked = super().find(declared, pks, found), set(map(declared.to_text, pks))
        self.astray.update(
            shard
            for shard, own in changes.items()
            if not asked.issuperset(Change(*one).member for one in own)
        )
        return changes


class _Router(Drain):
    """A drain of all shards at once. Marks wait on whose shard can't be reached, and hold up no others."""

    index: ShardedIndex

    def write(self, named: list[tuple[Seen, Any]]) -> Writing[int]:
        index, away = self.index, self.step.failed
        shards = index.place(named, lambda pair: index.to_text(pair[1]))
        led: dict[Seen, set[Index]] = {}
        for shard, own in shards.items():
            for mark, _ in own:
                led.setdefault(mark, set()).add(shard)
        # Of marks that name several members, only those of the shards that are away are to wait.
        if away and (mixed := [mark for mark, to in led.items() if len(to) > 1 and not to.isdisjoint(away)]):
            self.spread(mixed)
            named = [pair for pair in named if pair[0] not in {*mixed}]
            return (yield from self.write(named)) if named else 0
        pks: dict[Index, set[Any]] = {
            shard: {pk for _, pk in own} for shard, own in shards.items() if shard not in away
        }
        push = _Push(self.step)
        push.write(pks)
        self.step.require()
        if not push.astray.isdisjoint(away) and len(led) > 1:  # perhaps because of one mark
            return (yield from self.process_halves([*led]))
        together: dict[frozenset[Index], list[Seen]] = {}
        for mark, to in led.items():
            together.setdefault(frozenset(to), []).append(mark)
        processed: list[_Processed] = []
        for holders, marks in together.items():
            one = _Processed(marks, holders | push.astray)
            if missing := one.shards - push.written.keys():
                self.left |= {pk: missing for pk, _, _ in one.marks}
            else:
                processed.append(one)
        return self.unmark_each(processed, push.written, sum(map(len, pks.values())))

    def rebuild(self, marks: list[Seen]) -> int:
        """A shard that can't be reached is rebuilt when it returns."""
        index, away = self.index, tuple(self.step.failed)
        shards = [shard for shard in index.holders if shard not in away]
        members = rebuild(index, holders=shards, polite=True)
        written: dict[Index, Written] = {shard: built(shard) for shard in shards}
        # Before the marks are deleted. If they are not, these shards are rebuilt without need.
        names = [shard.name for shard in away]
        Build.objects.using(index.get_using()).filter(index__in=names).update(build="", building="")
        return self.unmark_each([_Processed(marks, shards)], written, members)

    def unmark_each(
        self, processed: Sequence[_Processed], written: Mapping[Index, Written], members: int
    ) -> int:
        settled = _unmark(self.index, processed, written, patience=self.patience) if processed else []
        done = sum(count_named(one.marks) for one in settled)
        return self.announce(done, members) if done else 0


def _unmark(
    index: Index,
    processed: Sequence[_Processed],
    written: Mapping[Index, Written],
    *,
    patience: float = PATIENCE,
) -> list[_Processed]:
    """Delete marks as :func:`django_zrank.sync.marks.unmark`, of all shards in one transaction, and each behind the
    fences of all shards that it led to. Return those that are settled."""
    using = index.get_using()
    concerned = {shard for one in processed for shard in one.shards}

    def work() -> tuple[list[_Processed], dict[Index, Build]]:
        locked = {
            shard: row
            for shard in index.holders
            if shard in concerned and (row := lock(shard, written[shard].build, written[shard].term))
        }
        settled = [one for one in processed if locked.keys() >= set(one.shards)]
        # Marks that another drain has deleted meanwhile may be in both batches.
        if not delete(using, (mark for one in settled for mark in one.marks)):
            return settled, {}
        said: dict[Index, list[Seen]] = {}
        for one in settled:
            for shard in one.shards:
                if written[shard].nonce:
                    said.setdefault(shard, []).extend(one.marks)
        Batch.objects.using(using).bulk_create(
            batch_of(shard, marks, written[shard]) for shard, marks in said.items()
        )
        for shard in said:
            note_trace(shard, locked[shard], written[shard])
        return settled, {shard: locked[shard] for shard in said}

    settled, rows = briefly(using, work, patience=patience, repeatable=True)
    for shard, row in rows.items():
        keep(shard, row)
    return settled
