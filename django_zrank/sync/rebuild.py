"""Build an index from the database, and swap it with the live one (blue-green)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ..exceptions import Busy, IndexUnavailable, IndexUnhealthy, RebuildSuperseded
from ..models import Generation
from ..notes import TESTS, is_accepted, noted
from ..signals import rebuilt
from ..store import LOAD_LIMIT, Store
from .flush import are_lost, reconcile
from .idle import asleep_since, write_touches
from .marks import retire, waiting_ids
from .prefetch import prefetch
from .push import forget
from .rows import encode, note_flush, select
from .transactions import refuse_transaction

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["BATCH_SIZE", "count_rows", "rebuild"]

BATCH_SIZE: Final = 2000

_RETIRED: Final = 1_000_000
"""The most marks that one rebuild makes superfluous: 8 MB of ids. What is beyond them is drained once more."""


def count_rows(index: RankIndex) -> int:
    """Return the number of rows that the database ranks."""
    return index.get_ranked().count()


def rebuild(
    index: RankIndex,
    *,
    batch_size: int = BATCH_SIZE,
    progress: Callable[[int], Any] = lambda rows: None,
    polite: bool = False,
    uncommitted: bool = False,
) -> int:
    """Build ``index`` anew beside the live one and put it in its place. Returns the number of members.

    Rows come from one query in the order of their scores, which is how a sorted set takes them fastest, and
    pass through in batches, each read while Redis takes the one before: memory does not grow with their number.
    ``progress`` is called with the rows of each batch. Members pushed meanwhile are newer than the query, and stay
    as pushed. Marks that waited when it began are taken away. Of two rebuilds the older gives way, unless the newer
    one is ``polite``.

    Raises :exc:`~django_zrank.IndexUnavailable`; ``RebuildSuperseded`` where another rebuild went first; and
    ``TransactionManagementError`` inside a transaction, whose rows may yet be rolled back (tests may:
    ``uncommitted=True``). Whatever stops it, the live index stays as it was.
    """
    if not 1 <= batch_size <= LOAD_LIMIT:
        raise ValueError(f"batch_size: expected 1 to {LOAD_LIMIT}, not {batch_size}")
    using = index.get_using()
    connection = connections[using]
    if not uncommitted:
        refuse_transaction(connection, "A rebuild")
    store, building, members = Store(index.name, index.layout, index.rule), index.new_generation(), 0
    owner, server, term = _enter(index, store, polite=polite, test=uncommitted)
    # In this order: list the marks, begin, query. Their changes are in the query, and in every write that is accepted
    # from then on.
    covered = waiting_ids(index, _RETIRED)
    asleep = asleep_since(index)
    if not store.start_rebuild(building, owner=owner, server=server, term=term, polite=polite):
        raise _superseded(index)
    try:
        rows = Generation.objects.using(using).filter(index=index.name, term=term)
        if not rows.update(building=building):
            raise _superseded(index)
        # An exception keeps its frames alive, and these an open query.
        with closing(_batches(index, store, connection, batch_size)) as batches:
            for batch, loaded in prefetch(partial(store.load_rows, building), batches):
                if not loaded:
                    raise _superseded(index)
                members += len(batch)
                progress(len(batch))
        if not store.swap_rebuilt(building, asleep):
            raise _superseded(index)
        rows.filter(building=building).update(generation=building, building="")
        forget(index)
        retire(index, covered, generation=building, term=term)
        if not uncommitted:
            with suppress(Busy):  # the next flush does
                write_touches(index)  # of those whose column said that they slept
    except BaseException:
        with suppress(IndexUnavailable):
            store.abandon_rebuild(building)
        raise
    finally:
        with suppress(IndexUnavailable):
            store.unlink_doomed()
    rebuilt.send(index, members=members)
    return members


def _enter(index: RankIndex, store: Store, *, polite: bool, test: bool) -> tuple[str, str, int]:
    """The name of this database's side, this server's identity, and the term under which it is known: a new one, above
    all that it has seen, where another server or another database's build was accepted last."""
    health, row = store.check_health(), noted(index)
    rows = Generation.objects.using(index.get_using()).filter(index=index.name)
    if polite and health.generation and health.owner != row.owner:
        raise IndexUnhealthy(
            f"Index {index.name!r}: Redis holds a build of another database. If this one is to take its place, run "
            f"rebuild_zrank {index.name}; else give it a Redis, or a KEY_PREFIX, of its own"
        )
    if row._state.adding:
        row, _ = rows.get_or_create(index=index.name, defaults={"owner": uuid4().hex})
    elif not row.owner or (row.owner == TESTS and not test):
        row.owner = uuid4().hex
        rows.update(owner=row.owner)
    is_known = is_accepted(health, row) and health.owner in ("", TESTS, row.owner)
    if is_known and not are_lost(index, store):
        return row.owner, health.server, row.term
    term = max(row.term, int(health.term or 0)) + 1
    if not rows.filter(term=row.term).update(term=term, server=health.server):
        raise _superseded(index)
    is_ours = bool(health.generation) and health.owner in ("", TESTS, row.owner)
    reconcile(index, store, health, everything=not is_ours)
    return row.owner, health.server, term


def _superseded(index: RankIndex) -> RebuildSuperseded:
    return RebuildSuperseded(f"Index {index.name!r}: another rebuild went first, or Redis restarted.")


def _batches(
    index: RankIndex, store: Store, connection: BaseDatabaseWrapper, size: int
) -> Generator[list[tuple[str, int | float, bytes]]]:
    queryset, to_text = select(index, index.ordering.first.path), index.to_text
    with _unbuffered(connection):
        rows = encode(index, note_flush(index, store, queryset.iterator(chunk_size=size)))
        while batch := [(to_text(pk), score, membership) for pk, score, membership in islice(rows, size)]:
            yield batch


@contextmanager
def _unbuffered(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Rows straight from the server. Only MySQL's drivers need to be told: theirs fetch all of them at once."""
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
