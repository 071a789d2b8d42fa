"""The watcher: drains, repairs and does the work of extensions until the process ends."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from threading import Event
from time import monotonic
from typing import Any, Final, NamedTuple

from django.db import OperationalError, connections
from django.template.defaultfilters import pluralize

from ..declaration import Index
from ..exceptions import IndexUnavailable, RebuildSuperseded
from ..extension import declared, installed
from ..store import Store
from ..transactions import PATIENCE, require_writable, retry, retry_steps
from .drain import Writing, alone, drain_steps, take_together
from .health import Status, calm, repair
from .in_step import InStep, is_down
from .marks import newest_marks
from .upkeep import is_due, rest, work_again

logger = logging.getLogger("django_zrank.sync")

_LONGEST_PAUSE: Final = 30.0
"""Seconds between two attempts at what fails for another reason than the next: it may be a long rebuild."""

_LONGEST_OUTAGE: Final = 5.0
"""Seconds between two attempts while Redis or the database is away. Once it is back, readers wait for as long."""

_SHORTEST_NAP: Final = 0.02

_LOOK: Final = 10.0
"""Seconds between two looks at the triggers of an index."""

_SHARE: Final = 20_000
"""Marks of an index that are processed in a turn."""

_TURN: Final = 100_000
"""Marks of all indexes of a database that are processed before SIGTERM is handled: about a second."""

_NOTED: Final = 3.0
"""Seconds after which a watcher that was killed is missed."""

_STEPS: Final = 4
"""The most steps of a repair: a missing note, a restart, and another restart meanwhile."""


class Synced(NamedTuple):
    """The result of ``sync()``."""

    marks: int
    rebuilt: bool

    worked: Counter[str] = Counter()
    """The numbers of members that extensions have worked on, by their names."""

    def __str__(self) -> str:
        parts = ["rebuilt"] if self.rebuilt else []
        parts += [f"{self.marks:,} mark{pluralize(self.marks)} processed"] if self.marks or not parts else []
        parts += [one.report(self.worked[name]) for name, one in installed().items() if name in self.worked]
        return ", ".join(parts)


def sync(
    index: Index | type[Index],
    *,
    look: bool = True,
    limit: int | None = None,
    due: Callable[[Index, str], bool] = lambda index, name: True,
) -> Synced:
    """Bring ``index`` up to date with its database, as ``sync_zrank`` does: repair it if needed, do the work of
    extensions, and process marks.

    ``look``: also check its triggers, and that the database takes writes. ``limit``: the most marks to process.
    ``due``: a function that decides whether to do the work of an extension, given by its name, now.

    Raises :exc:`~django_zrank.IndexUnavailable`; ``RebuildSuperseded`` if another process is repairing the index;
    :exc:`~django_zrank.exceptions.Busy` if rows stay locked; ``OperationalError`` if the database takes no writes; and
    ``TransactionManagementError`` inside a transaction.
    """
    return alone(index.instance(), sync_steps(index.instance(), look=look, limit=limit, due=due))


def sync_steps(
    index: Index, *, look: bool, limit: int | None, due: Callable[[Index, str], bool]
) -> Writing[Synced]:
    """The steps of :func:`sync`."""
    if look:  # a former primary, where no mark waits, looks like one that is up to date
        require_writable(index.get_using())
    before = _live_builds(index)
    failure: Exception | None = None
    for _ in range(_STEPS):
        try:
            status = retry(partial(repair, index, look=look))
        except (IndexUnavailable, RebuildSuperseded) as error:
            if len(index.holders) == 1:
                raise
            failure = error  # of a holder: process the marks of the others before it is raised
            break
        if status in (Status.HEALTHY, Status.BEHIND, Status.BUILDING):
            break
    worked = Counter[str]()
    for name, one in installed().items():
        # An earlier release may have declared what this one doesn't.
        if due(index, name) or (look and not one.is_declared(index)):
            # With a limit, rows that are locked have their turn the next time.
            work = partial(one.work, index, limit=limit, patience=PATIENCE, skip_locked=limit is not None)
            began = monotonic()
            try:
                members = retry(work)
                rest(index, name, monotonic() - began)
                if members:
                    worked[name] = members
                    if limit is not None and members >= limit:
                        work_again(index, name)
            except Exception as error:  # noqa: BLE001 - raised after the work of the others, and the drain
                failure = failure or error
    marks = yield from retry_steps(partial(drain_steps, index, limit=limit))
    if failure:
        raise failure
    now = {holder: Store.of(holder).live.build for holder in before}
    return Synced(marks, now != before, worked)


def _live_builds(index: Index) -> dict[Index, str]:
    """Return the live builds of the holders that can be reached."""
    step = InStep(index.holders)
    found = step.each(index.holders, lambda holder: Store.of(holder).learn().build)
    step.require()
    return found


def watch(
    indexes: Sequence[Index],
    *,
    interval: float,
    stop: Event,
    report: Callable[[Index, Synced], Any] = lambda index, done: None,
) -> None:
    """Keep ``indexes`` in step until ``stop`` is set.

    While marks keep coming it polls every 20 milliseconds. The pause doubles with each poll that finds none, up to
    ``interval`` seconds; up to five seconds while Redis or the database is away; and up to half a minute after other
    errors. On SQLite, it always waits for ``interval`` seconds, unless more marks wait than fit in a turn.
    """
    pauses = dict.fromkeys(indexes, 0.0)
    looked = dict.fromkeys(indexes, -_LOOK)
    logged: defaultdict[Index, set[Any]] = defaultdict(set)  # each failure once an outage, not each attempt
    noted: dict[Index, float] = {}
    due = dict.fromkeys(indexes, 0.0)
    nap = _SHORTEST_NAP
    while not stop.is_set():
        nap = min(2 * nap, interval)
        looks = [index for index in indexes if pauses[index] or monotonic() >= looked[index] + _LOOK]
        resting = _resting([index for index in indexes if index not in looks])
        _note(resting, noted, interval)
        turn = [index for index in indexes if index not in resting and monotonic() >= due[index]]
        for index, done, share in _take_turns(turn, looks, stop):
            look = index in looks
            if isinstance(done, RebuildSuperseded):
                logger.info("%s", done)
            elif isinstance(done, Exception):  # drivers raise errors of their own; no error may end this
                error = done
                is_away = is_down(error) or isinstance(error, OperationalError)
                pauses[index] = min(
                    _LONGEST_OUTAGE if is_away else _LONGEST_PAUSE, 2 * pauses[index] or interval
                )
                due[index] = monotonic() + pauses[index]
                said = str(error).removeprefix(f"Index {index.name!r}: ")
                level = logging.DEBUG if (kind := _kind(error)) in logged[index] else logging.WARNING
                logger.log(level, "Index %r is not up to date, retrying. %s", index.name, said)
                logged[index].add(kind)
                disconnect(index.get_using())
            else:
                pauses[index] = 0.0
                if logged.pop(index, None):
                    logger.info("Index %r is up to date again", index.name)
                _note([index], noted, interval)
                if look:
                    looked[index] = monotonic()
                if any(done):
                    # Each commit here fails a transaction of SQLite that has read, and is about to write.
                    if connections[index.get_using()].vendor != "sqlite" or done.marks >= share:
                        nap = min(_SHORTEST_NAP, interval)
                    report(index, done)
        stop.wait(max(nap, min(pauses.values())))
    _note_each(noted, 0)


def _take_turns(
    indexes: Iterable[Index], looks: Collection[Index], stop: Event
) -> Iterator[tuple[Index, Synced | Exception, int]]:
    """Bring indexes up to date, those of a database in step. Yield each with the result, or what it has raised, and the
    number of marks that it could have processed."""
    by_database: defaultdict[str, list[Index]] = defaultdict(list)
    for index in indexes:
        by_database[index.get_using()].append(index)
    for own in by_database.values():
        share = max(min(_SHARE, _TURN // len(own)), 1)

        def steps(index: Index, share: int = share) -> Writing[Synced | None]:
            if stop.is_set():  # those before it may have been rebuilt
                return None
            return (yield from sync_steps(index, look=index in looks, limit=share, due=is_due))

        for index, done in take_together({index: steps(index) for index in own}).items():
            if done is not None:
                yield index, done, share


def _kind(error: Exception) -> tuple[type, type]:
    """Return what an outage's errors have in common: their texts may name ports, times and indexes."""
    return type(error), type(error.__cause__)


def _resting(indexes: Iterable[Index]) -> set[Index]:
    """Return the indexes for which there is nothing to do. They cost two queries of each database and a round trip to
    each server, whatever their number. If one of these fails, all have a turn of their own."""
    resting: set[Index] = set()
    by_database: dict[str, list[Index]] = {}
    for index in indexes:
        if not declared(index):  # extensions know by themselves if there is something to do
            by_database.setdefault(index.get_using(), []).append(index)
    for using, own in by_database.items():
        with suppress(Exception):
            if (newest := newest_marks(using)) is not None:
                marked = {name for name, _, _ in newest}
                resting |= calm(using, [index for index in own if index.name not in marked])
    return resting


def _note(indexes: Iterable[Index], noted: dict[Index, float], interval: float) -> None:
    """Note once a second that saves need not process marks; not if it would look for them less often than saves."""
    now = monotonic()
    due = [index for index in indexes if interval <= 1 and now >= noted.get(index, 0) + 1]
    _note_each(due, _NOTED)
    noted |= dict.fromkeys(due, now)


def _note_each(indexes: Iterable[Index], seconds: float) -> None:
    step = InStep(holder for index in indexes for holder in index.holders)
    step.together({holder: step.stores[holder].noting_watcher(seconds) for holder in step.indexes})


def disconnect(using: str) -> None:
    """Close the connection to the database, so that the next try opens a new one. Closing a broken one may fail."""
    with suppress(Exception):
        connections[using].close()
