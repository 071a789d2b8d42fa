"""Drains, which process marks: of changes that were committed and not pushed, or that Redis has lost."""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from itertools import accumulate, chain, groupby, islice
from time import monotonic
from typing import Any, Final, TypeAlias, TypeVar

from django.db import DatabaseError, DataError, InterfaceError, OperationalError, connections

from ..capture.triggers import examine_capture
from ..capture.watched_tables import watched_tables
from ..conf import get_settings
from ..declaration import Index
from ..exceptions import Busy, ZRankError
from ..extension import divisible
from ..models import SEVERAL, Mark
from ..recent import Recent
from ..redis.keys import Keys
from ..signals import drained
from ..store import Store
from ..transactions import PATIENCE, holds_snapshot, refuse_transaction, without_waiting
from .in_step import InStep
from .marks import (
    OF_MEMBERS,
    Seen,
    Written,
    count_named,
    discard,
    forget_batches,
    leave,
    named_by,
    newest_mark,
    next_marks,
    replayed_marks,
    require_declared,
    spread,
    unmark,
)
from .push import Push
from .rebuild import rebuild
from .rows import key_parser

logger = logging.getLogger("django_zrank.sync")

BATCH_SIZE: Final = 5000

_SHARE: Final = 1000
"""The most marks that a process reads, and members that it writes, after a push, because a request waits."""

_REST: Final = 20
"""Back-off: 20 times the last drain's duration, at most 60 s."""


Result = TypeVar("Result")

Writing: TypeAlias = Generator[Collection[Any], Push, Result]
"""Steps that yield the primary keys of members to be written to an index, and get the push that has written them."""


def drain(
    index: Index, *, limit: int | None = None, batch_size: int = BATCH_SIZE, patience: float = PATIENCE
) -> int:
    """Process the marks of ``index`` that wait now, about ``limit`` at most. Return their number; a mark that names
    several members counts as so many.

    Marks of related rows are replaced by marks of the members that they lead to. The members of marks are pushed (see
    :func:`~django_zrank.sync.push.push`), and then the marks are deleted. If it is killed in between, the marks still
    wait. Any number of drains may run at once. A mark for all members (of a table
    that was truncated) takes a rebuild. A mark that can't be processed doesn't keep others waiting.

    Raises :exc:`~django_zrank.IndexUnavailable`; :exc:`~django_zrank.exceptions.Busy` if the row of the build
    stays locked for longer than ``patience`` seconds; and ``TransactionManagementError`` inside a transaction, where
    an old snapshot might be read.
    """
    return alone(index, drain_steps(index, limit=limit, batch_size=batch_size, patience=patience))


def drain_steps(
    index: Index, *, limit: int | None = None, batch_size: int = BATCH_SIZE, patience: float = PATIENCE
) -> Writing[int]:
    """The steps of :func:`drain`."""
    refuse_transaction(index.get_using(), "Draining")
    return (yield from draining(index, batch_size, patience).steps(limit))


def alone(index: Index, steps: Writing[Result]) -> Result:
    """Return the result of steps, or raise what they raise."""
    (outcome,) = take_together({index: steps}).values()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def take_together(several: Mapping[Index, Writing[Result]]) -> dict[Index, Result | Exception]:
    """Take the steps of several indexes of a database together: what they yield is written by one push, so that rows
    that several indexes rank are read once. Return the result of each, or what it has raised."""
    done: dict[Index, Result | Exception] = {}
    outcomes: dict[Index, Any] = dict.fromkeys(several)
    while outcomes:
        asked: dict[Index, Collection[Any]] = {}
        for index, outcome in outcomes.items():
            go_on = several[index].throw if isinstance(outcome, Exception) else several[index].send
            try:
                asked[index] = go_on(outcome)
            except StopIteration as end:
                done[index] = end.value
            except Exception as error:  # noqa: BLE001 - of one index
                done[index] = error
        outcomes = _written(asked)
    return done


def _written(members: Mapping[Index, Collection[Any]]) -> dict[Index, Push | Exception]:
    """Return the push that has written members to each index, or the reason why it couldn't."""
    if not members:
        return {}
    try:
        push = Push(InStep(members), noted=True)
        push.write(members)
    except Exception as error:  # noqa: BLE001 - perhaps of one declaration: the others are written without it
        if len(members) == 1:
            return dict.fromkeys(members, error)
        return {index: _written({index: own})[index] for index, own in members.items()}
    return {index: push.step.failed.get(index, push) for index in members}


@divisible
def draining(index: Index, batch_size: int, patience: float, share: int | None = None) -> Drain:
    """Return a :class:`Drain`."""
    return Drain(index, batch_size, patience, share)


class Drain:
    """One pass over the marks that wait when it begins. ``share``: skip marks for all members, and those that lead to
    so many members; and read no further batch."""

    def __init__(self, index: Index, batch_size: int, patience: float, share: int | None = None) -> None:
        self.index, self.batch_size, self.patience, self.share = index, batch_size, patience, share
        self.step = InStep(index.holders)

        self.left: dict[int, Collection[Index]] = {}
        """Marks that wait on, with the indexes that they wait for; none if they can't be processed."""

        self.has_expanded = False
        """True if marks were replaced by others: those of related rows, or of several members, by one for each."""

        self.read, self.last = 0, 0
        """The number of marks that were processed or left, and the id of the last one."""

    def run(self, limit: int | None, last: int = 0) -> int:
        """Process the marks beyond the id ``last``, about ``limit`` at most. Return their number."""
        return alone(self.index, self.steps(limit, last))

    def steps(self, limit: int | None, last: int = 0) -> Writing[int]:
        """The steps of :meth:`run`."""
        behind = self.begin()
        self.last, done = last, 0
        for _ in range(2):  # the second time for marks that have replaced others
            until = newest_mark(self.index)
            while limit is None or done < limit:
                size = self.batch_size if limit is None else min(self.batch_size, limit - done)
                marks = next_marks(self.index, self.last, until, size, everybody=self.share is None)
                if not marks:
                    break
                for some in _pieces(marks, size):
                    self.last, self.read = some[-1][0], self.read + count_named(some)
                    # Those of related rows first.
                    for is_named in (False, True):
                        if own := [mark for mark in some if (mark[1] in OF_MEMBERS) is is_named]:
                            done += yield from self.process(own)
                    if self.share is not None or (limit is not None and done >= limit):
                        break
                if self.share is not None:
                    break
            if not self.has_expanded:
                break
        self.finish(behind)
        return done

    def begin(self) -> dict[Index, str]:
        """Return the terms of unfinished replays, by the indexes that can be reached."""
        healths = self.step.each(self.index.holders, lambda index: self.step.stores[index].check_health())
        self.step.require()
        return {index: health.behind for index, health in healths.items()}

    def finish(self, behind: Mapping[Index, str]) -> None:
        """End the replay of each index of which no mark waits; and purge old batches and builds."""
        self.step.each(behind, lambda index: self.finish_one(index, behind[index]))
        self.step.require()

    def finish_one(self, index: Index, behind: str) -> None:
        store = self.step.stores[index]
        if behind not in ("", "rebuild"):
            ids = replayed_marks(index).values_list("id", flat=True)
            if not any(index in self.left.get(pk, (index,)) for pk in ids.iterator()):
                store.finish_replay(behind)
        if _due("purge", index, _PURGE_EVERY):
            store.unlink_doomed()
            forget_batches(index, get_settings().keep_marks)

    def process(self, marks: list[Seen]) -> Writing[int]:
        """Process marks of one kind. If one of its marks is at fault, the batch is halved until that one is alone: then
        it is logged and left."""
        try:
            return (yield from self.apply(marks))
        except Exception as raised:  # whatever a declaration or a value raises
            is_of_all = isinstance(raised, (ZRankError, DatabaseError, InterfaceError))
            if is_of_all and not isinstance(raised, DataError):
                raise
            error = raised
        if len(marks) > 1:
            return (yield from self.process_halves(marks))
        pk, via, member = marks[0]
        if via == SEVERAL:
            return self.spread(marks)
        mark = Mark(index=self.index.name, via=via, member=member)
        logger.error("Index %r: mark %d (%s) can't be processed", self.index.name, pk, mark, exc_info=error)
        self.left[pk] = ()
        return 0

    def process_halves(self, marks: list[Seen]) -> Writing[int]:
        half = len(marks) // 2
        done = yield from self.process(marks[:half])
        return done + (yield from self.process(marks[half:]))

    def apply(self, marks: list[Seen]) -> Writing[int]:
        """Write the members of ``marks``, and unmark. Return the number of marks. Those that fail the fence (see
        ``unmark()``) wait on."""
        if marks[0][1] not in OF_MEMBERS:
            return (yield from self.expand(marks))
        if None in [member for _, _, member in marks]:  # a truncated table: any member may have been in it
            return self.rebuild(marks)
        parse = key_parser(self.index)
        texts = {mark: named_by(*mark[1:]) for mark in marks}
        pks = {text: parse(text) for text in set(chain.from_iterable(texts.values()))}  # marks repeat members
        named = [(mark, pk) for mark, own in texts.items() for text in own if (pk := pks[text]) is not None]
        nobody = [*texts.keys() - dict(named).keys()]
        done = discard(self.index, nobody, patience=self.patience) if nobody else 0
        return done + ((yield from self.write(named)) if named else 0)

    def write(self, named: list[tuple[Seen, Any]]) -> Writing[int]:
        """Write members, given with the marks that name them, and unmark."""
        pks = {pk for _, pk in named}
        push = yield pks
        return self.unmark([*dict(named)], push.written[self.index], len(pks))

    def spread(self, marks: list[Seen]) -> int:
        """Replace marks of several members by one for each member. Return 0: these wait."""
        self.has_expanded = bool(spread(self.index, marks, patience=self.patience)) or self.has_expanded
        return 0

    def expand(self, marks: list[Seen]) -> Writing[int]:
        """Replace marks of related rows by marks of the members that they lead to. Return their number.

        If it is killed in between, members have more marks than they need. No replay has left these, as batches name
        members only.
        """
        index, using = self.index, self.index.get_using()
        require_declared(index)
        sources = {source.via: source for source in reversed(watched_tables(index))}
        unknown = {pk: () for pk, via, _ in marks if via not in sources}
        # Another release's triggers left them. This one's tell of the same changes, unless they are missing.
        if unknown and not examine_capture(index).is_complete:
            self.left |= unknown
            marks = [mark for mark in marks if mark[0] not in unknown]
        owners: dict[str | None, set[str]] = {}
        for _, via, member in marks:
            owners.setdefault(via, set()).add(str(member))
        found: Iterable[Any] = chain.from_iterable(
            sources[via].members_at(own, using, limit=self.share)
            for via, own in owners.items()
            if via in sources
        )
        if self.share is not None:
            found = list(islice(found, self.share))
            if len(found) >= self.share:  # there may be more
                return (yield from self.process_halves(marks)) if len(marks) > 1 else 0
        self.has_expanded = bool(leave(index, found, patience=self.patience)) or self.has_expanded
        return discard(index, marks, patience=self.patience)

    def rebuild(self, marks: list[Seen]) -> int:
        """Rebuild the index for marks for all members."""
        # A rebuild that is already running may have read its rows before these marks.
        members = rebuild(self.index, polite=True)
        return self.unmark(marks, built(self.index), members)

    def unmark(self, marks: list[Seen], written: Written, members: int) -> int:
        """Delete marks, and announce that. Return their number; 0 if they wait on."""
        is_done = unmark(self.index, marks, written, patience=self.patience)
        return self.announce(count_named(marks), members) if is_done else 0

    def announce(self, marks: int, members: int) -> int:
        drained.send_robust(self.index, marks=marks, members=members)
        return marks


def _pieces(marks: list[Seen], size: int) -> Iterator[list[Seen]]:
    """Yield marks in pieces that name about ``size`` members: a mark may name many."""
    if SEVERAL not in [via for _, via, _ in marks]:
        yield marks
        return
    so_far = accumulate(count_named([mark]) for mark in marks)
    for _, piece in groupby(zip(so_far, marks, strict=True), lambda one: (one[0] - 1) // size):
        yield [mark for _, mark in piece]


def built(index: Index) -> Written:
    """Return the state in which a build of an index is live."""
    health = Store.of(index).check_health()
    return Written(health.build, *health.position)


_WALKED: Final = 60.0
"""Seconds after which a process starts over with the first mark."""

_walked: dict[Keys, int] = {}
"""By the keys of an index: the id of the last mark that this process has read, if marks wait for what can't be
reached."""

_PURGE_EVERY: Final = 60.0
_done: Recent[bool] = Recent()
"""By action and index: what this process has done lately."""


def _due(what: str, index: Index, seconds: float) -> bool:
    """Return True if ``seconds`` have passed since this process did this for ``index``."""
    return not _done.get((what, index.name)) and _done.keep((what, index.name), True, seconds)


def drain_soon(index: Index) -> None:
    """Process a batch after a push, at most once a second, without waiting for a lock.

    The next one comes later if this one takes long, as with millions of marks of another index that nobody drains.
    """
    connection = connections[index.get_using()]
    if connection.in_atomic_block or not _due("drain", index, 1.0) or holds_snapshot(connection):
        return
    began, keys = monotonic(), Store.of(index).keys
    if _due("start over", index, _WALKED):  # a mark that is committed late may have a lower id
        _walked.pop(keys, None)
    try:
        with without_waiting(connection):
            share = draining(index, _SHARE, 0.0, share=_SHARE)
            done = share.run(None, _walked.get(keys, 0))
            # From the first mark again, unless some wait on.
            _walked[keys] = share.last if share.step.failed or done < share.read else 0
    except (Busy, OperationalError) as error:  # the marks wait for the next one
        logger.debug("Index %r: not drained. %s", index.name, error)
    taken = monotonic() - began
    _done.keep(("drain", index.name), True, max(1.0 - taken, min(60.0, _REST * taken)))
