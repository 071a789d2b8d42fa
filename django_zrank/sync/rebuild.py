"""Build an index from the database, and swap it with the live one (blue-green)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from itertools import chain, repeat
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any, Final
from uuid import uuid4

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F
from django.template.defaultfilters import pluralize
from django.utils import timezone

from ..builds import TESTS, has_all, is_trusted, noted_and_found
from ..capture.triggers import contract, record, refusal
from ..conf import keeping_prefix
from ..declaration import Index
from ..exceptions import CaptureError, IndexUnavailable, IndexUnhealthy, NotBuilt, RebuildSuperseded
from ..extension import divisible, installed
from ..iteration import batched
from ..models import Build
from ..signals import rebuilt
from ..store import LOAD_LIMIT, BuiltRow, Store
from ..transactions import refuse_transaction, require_synced, update_briefly
from .leftovers import (
    leave_databases,
    note_databases,
    pending_elsewhere,
)
from .marks import retire, waiting_ids
from .push import forget
from .rows import encode, select
from .upkeep import is_behind

logger = logging.getLogger("django_zrank.sync")

BATCH_SIZE: Final = 3000

_MOST: Final = 24_000
"""The most rows of a batch, however many calls load it."""

_TURN: Final = 250
"""Rows that are read in one go. A rebuild with facets takes 10 to 20 % longer without turns, and a plain one 40 % with
turns of 50 rows: ``python -m tests.benchmarks.rebuild --facets --members 300000``."""

_READY: Final = 4
"""The most batches that wait for Redis, while the next rows are read."""

_RETIRED: Final = 1_000_000
"""The most marks that a rebuild deletes, with 8 MB of ids. Further ones are drained."""


def count_rows(index: Index) -> int:
    """Return the number of rows that the database ranks."""
    return index.get_ranked().count()


def rebuild(
    index: Index,
    *,
    holders: Sequence[Index] = (),
    batch_size: int = BATCH_SIZE,
    progress: Callable[[int], Any] = lambda rows: None,
    polite: bool = False,
    takes_over: bool = True,
    discard_pending: bool = False,
    uncommitted: bool = False,
) -> int:
    """Rebuild ``index`` beside the live one and swap the two (blue-green). Return the number of members.

    Rows come from one query, a snapshot read, sorted by rank, which a sorted set takes fastest, and in batches, so
    that memory doesn't grow with their number. ``progress`` is called with the number of rows of each batch.
    Members pushed meanwhile stay as pushed. Marks that waited at the beginning are deleted. Of two rebuilds the older
    gives way, unless the newer one is ``polite``. ``holders``: rebuild only what these indexes hold of the members.
    ``takes_over``: note, as ``migrate`` does, that the index belongs to this release. Without it, or with ``polite``,
    another release's build is replaced only if that is noted already. ``discard_pending``: give up scores in Redis that
    are pending for another database, or for a column that is gone.

    Raises :exc:`~django_zrank.IndexUnavailable`; ``NotBuilt`` if another release has the index; ``RebuildSuperseded``
    if another rebuild went first; and ``TransactionManagementError`` inside a transaction, whose rows may be rolled
    back (tests set ``uncommitted``). If it fails, the live index stays as it was.
    """
    if not 1 <= batch_size <= LOAD_LIMIT:
        raise ValueError(f"batch_size: expected 1 to {LOAD_LIMIT}, not {batch_size}")
    if not uncommitted:
        refuse_transaction(index.get_using(), "A rebuild")
        require_synced(index.get_using())
    takes_over = takes_over and not polite
    if not takes_over:
        _require_turn(index)
    if not (discard_pending or uncommitted):
        _require_none_pending(index)
    holders = holders or index.holders
    build = building(index, holders, polite=polite, test=uncommitted, discards=discard_pending)
    members = 0
    if not uncommitted:
        note_databases(index, build.former)
        if takes_over:
            _record(index)
    for extension in installed().values():
        extension.replacing(index)
    # Marks are listed before the query, so that it contains their changes, as does every write that is accepted later.
    covered = waiting_ids(index, _RETIRED)
    noted = {field: value for one in installed().values() for field, value in one.building(index).items()}
    try:
        build.start()
        if not takes_over:
            _require_turn(index)  # again: from here on, no other rebuild can go first
        pulse = _Pulse(build)
        # Closed at once: an exception would keep the frames alive, and with them the open query.
        with (
            timezone.override(None),  # as in a push
            running("zrank-rebuild-pulse", pulse.run, Event()),
            closing(_batches(index, build, batch_size, pulse)) as batches,
            closing(_loads(build.load, batches)) as loads,
        ):
            for loaded in loads:
                members += loaded
                progress(loaded)
        build.swap(noted)
        if all(holder in build.swapped for holder in index.holders):
            retire(index, covered, build.swapped)
            if discard_pending:
                for extension in installed().values():
                    extension.discarding(index)
            for extension in installed().values():
                extension.replaced(index)
            if not uncommitted:
                leave_databases(index)
                contract(index)
    except BaseException:
        build.abandon()
        raise
    finally:
        build.tidy()
    rebuilt.send_robust(index, members=members)
    return members


_Batch = Sequence[BuiltRow]


@divisible
def building(index: Index, holders: Sequence[Index], *, polite: bool, test: bool, discards: bool) -> Rebuild:
    """Return a :class:`Rebuild` of what these indexes hold, not begun yet. ``polite``: give way to a rebuild that is
    running. ``test``: a test makes it. ``discards``: give up what is pending that can't be written here."""
    return Rebuild(index, index.new_build(), polite=polite, test=test, discards=discards)


class Rebuild:
    """An index that is built. Each step raises ``RebuildSuperseded`` if another rebuild went first."""

    def __init__(self, index: Index, name: str, *, polite: bool, test: bool, discards: bool) -> None:
        self.index, self.name, self.polite = index, name, polite
        self.store = Store.of(index)
        self.owner, self.server, self.term, former = _enter(
            index, self.store, polite=polite, test=test, discards=discards
        )
        self.rows = Build.objects.using(index.get_using()).filter(index=index.name, term=self.term)
        self.has_begun = False

        self.former: Collection[str] = {former} - {""}
        """The owner of the build that it replaces, if that is another database."""

        self.swapped: dict[Index, tuple[str, int]] = {}
        """The names of live builds, and the terms, by the indexes that hold them."""

    def encode(self, rows: Iterable[Sequence[Any]]) -> Iterator[BuiltRow]:
        """Yield those of the rows of ``select()`` that are built, as they are loaded."""
        return encode(self.index, rows, [self.store])

    def start(self) -> None:
        self.require(
            self.store.start_rebuild(
                self.name, owner=self.owner, server=self.server, term=self.term, polite=self.polite
            )
        )
        self.has_begun = True
        self.require(update_briefly(self.rows, building=self.name))

    def load(self, rows: _Batch) -> None:
        self.require(self.store.load_rows(self.name, rows))

    def swap(self, noted: Mapping[str, Any]) -> None:
        """Make it the live build."""
        self.require(self.store.swap_rebuilt(self.name, noted))
        note_build(self.index, self.name, term=self.term)
        forget(self.index)
        self.swapped[self.index] = self.name, self.term

    def keep_alive(self) -> None:
        """Note that the rebuild is alive. It may be called in another thread."""
        Store.of(self.index).keep_alive(self.name)

    def abandon(self) -> None:
        """Abandon it, unless it was swapped."""
        if self.has_begun:
            with suppress(IndexUnavailable):
                self.store.abandon_rebuild(self.name)

    def tidy(self) -> None:
        """Unlink what was replaced, or abandoned."""
        with suppress(IndexUnavailable):
            self.store.unlink_doomed()

    def require(self, done: object) -> None:
        if not done:
            raise _superseded(self.index)


@contextmanager
def running(name: str, run: Callable[[Event], None], stop: Event) -> Iterator[None]:
    """Call ``run(stop)`` in a thread, and set ``stop`` at the end of the block."""

    def run_and_close() -> None:
        try:
            run(stop)
        finally:
            connections.close_all()

    thread = Thread(target=keeping_prefix(run_and_close), name=name)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class _Pulse:
    """Keeps a build alive while rows come, and for ``Store.LEASE`` seconds after the last one: the database may take
    long to find the first. If none comes for longer, the connection hangs, and others needn't wait for this rebuild."""

    def __init__(self, build: Rebuild) -> None:
        self.build = build
        self.beat()

    def beat(self) -> None:
        """Note that rows have come."""
        self.at = monotonic()

    def run(self, ended: Event) -> None:
        while not ended.wait(Store.LEASE / 20):
            if monotonic() > self.at + Store.LEASE:
                continue
            with suppress(Exception):
                self.build.keep_alive()


def _loads(load: Callable[[_Batch], None], batches: Iterable[_Batch]) -> Generator[int]:
    """Yield the number of rows of each batch once it is loaded, in another thread: Redis works while this one reads the
    next one.

    The other thread uses no database, as Django's connections belong to the thread that opened them.
    """
    made: deque[tuple[_Batch, Future[None]]] = deque()
    load = keeping_prefix(load)
    thread = ThreadPoolExecutor(max_workers=1)
    try:
        for batch in chain(batches, repeat(None)):
            if batch:
                made.append((batch, thread.submit(load, batch)))
            elif not made:
                return
            if not batch or len(made) > _READY:
                done, future = made.popleft()
                future.result()
                yield len(done)
    finally:
        thread.shutdown(cancel_futures=True)


def note_build(index: Index, build: str, **conditions: Any) -> int:
    """Note that a build of ``index`` is live that was noted as being built. Return 0 if it isn't noted any more, or if
    its row doesn't meet ``conditions``."""
    rows = Build.objects.using(index.get_using()).filter(index=index.name, building=build, **conditions)
    return update_briefly(rows, build=build, building="")


def _require_none_pending(index: Index) -> None:
    pending, alias = pending_elsewhere(index)
    if pending:
        former = f"the database {alias!r}" if alias else "another database"
        raise IndexUnhealthy(
            f"Index {index.name!r}: the scores of {pending} member{pluralize(pending)} are pending for {former}, and a "
            f"build from {index.get_using()!r} would lose them. Write them by sync_zrank of the release that uses "
            f"{former}; or give them up: rebuild_zrank {index.name} --discard-pending"
        )


def _require_turn(index: Index) -> None:
    if reason := refusal(index):
        raise NotBuilt(reason)


def _record(index: Index) -> None:
    """Note that the index belongs to this release, and create the triggers that it needs before it reads rows."""
    try:
        record(index)
    except CaptureError as error:  # the index will not be healthy
        logger.error("Index %r: triggers are missing. %s", index.name, error)


def _enter(
    index: Index, store: Store, *, polite: bool, test: bool, discards: bool
) -> tuple[str, str, int, str]:
    """Return the owner of this database's builds, the server's identity, and its term: a new one if another server, or
    another database's build, was trusted last, or if it lost writes. Also return the owner
    of that other build; "" if there is none."""
    row, health = noted_and_found(index, store)
    rows = Build.objects.using(index.get_using()).filter(index=index.name)
    if polite and health.build and health.owner != row.owner:
        raise IndexUnhealthy(
            f"Index {index.name!r}: Redis holds a build of another database. To replace it, run rebuild_zrank "
            f"{index.declared.name}; otherwise use another Redis or another KEY_PREFIX"
        )
    if row._state.adding:
        row, _ = rows.get_or_create(index=index.name, defaults={"owner": uuid4().hex})
    elif not row.owner or (row.owner == TESTS and not test):
        row.owner = uuid4().hex
        update_briefly(rows, owner=row.owner)
    former = "" if health.owner in ("", TESTS, row.owner) else health.owner
    is_given_up = discards and any(one.is_stranded(index, store) for one in installed().values())
    is_known = is_trusted(health, row) and not (former or is_given_up)
    if is_known and has_all(row, health) and not is_behind(index, store):
        return row.owner, health.server, row.term, former
    term = max(row.term, int(health.term or 0)) + 1
    if not update_briefly(rows.filter(term=row.term), term=term, server=health.server, traces=""):
        raise _superseded(index)
    # What has come since there was nothing pending for another database is written to this one.
    is_kept = bool(health.build) and not (is_given_up or (former and (discards or test)))
    if not all(one.trusting(index, health, everything=not is_kept) for one in installed().values()):
        raise _superseded(index)
    return row.owner, health.server, term, former


def _superseded(index: Index) -> RebuildSuperseded:
    return RebuildSuperseded(f"Index {index.name!r}: another rebuild was faster, or Redis restarted.")


def _batches(index: Index, build: Rebuild, size: int, pulse: _Pulse) -> Generator[_Batch]:
    """Yield the rows that are built, about ``size`` of them for each index that holds the members."""
    order = index.ordering.ascending(map(F, index.ordering.paths))
    with _unbuffered(connections[index.get_using()]):
        rows = build.encode(select(index, *order).iterator(chunk_size=size))
        yield from batched(_in_turns(rows, pulse), min(size * len(index.holders), _MOST))


def _in_turns(rows: Iterable[BuiltRow], pulse: _Pulse) -> Iterator[BuiltRow]:
    """Yield rows, and let the thread that loads go on after every ``_TURN`` of them. Otherwise it would wait for the
    interpreter after each reply of Redis, up to ``sys.getswitchinterval()``."""
    for some in batched(rows, _TURN):
        pulse.beat()
        sleep(0)
        yield from some


@contextmanager
def _unbuffered(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Stream rows from the server in this block. By default, MySQL's drivers fetch all of them at once."""
    if connection.vendor != "mysql":
        yield
        return
    connection.ensure_connection()
    driver: Any = connection.connection
    buffered = driver.cursorclass
    driver.cursorclass = import_module(f"{type(driver).__module__.partition('.')[0]}.cursors").SSCursor
    try:
        yield
    finally:
        driver.cursorclass = buffered
