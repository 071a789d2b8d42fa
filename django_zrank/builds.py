"""Rows of builds: the build of each index that the database knows, and trust in a server that agrees with it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from django.core.exceptions import SynchronousOnlyOperation
from django.db import Error
from django.db.models import Q, QuerySet

from .declaration import Index
from .models import Batch, Build
from .recent import Recent

if TYPE_CHECKING:
    from .store import Health, Store

TESTS: Final = "tests"
"""The owner of a build that a test has made. The database may know nothing of it."""

RETIRED: Final = "retired"
"""The build noted for an index once others hold its members. Writes to it, under the build that its row notes as
``building``, no longer process marks."""

_read: Recent[Build] = Recent()

_MOMENT: Final = 0.1
"""Seconds for which the rows of the other holders are kept: the same call needs them next."""

_beside: Recent[Build] = Recent()
"""Rows that were read together with that of another holder: each is used once, within ``_MOMENT``."""


def recorded(index: Index) -> Build:
    """Return what the database knows of the build of ``index``."""
    using = index.get_using()
    return _read.keep((index.name, using), _rows(using, [index.name])[index.name])


def noted_and_found(index: Index, store: Store) -> tuple[Build, Health]:
    """Return what the database knows of the build of ``index``, and then the state in Redis.

    What is noted of a write was in Redis before. In the other order, a write in between would seem to be lacking there.
    """
    row = recorded(index)
    return row, store.check_health()


def recorded_each(using: str, indexes: Collection[Index]) -> dict[Index, Build]:
    """Return what a database knows of the builds of indexes, read in one query."""
    rows = _rows(using, [index.name for index in indexes])
    return {index: _read.keep((index.name, using), rows[index.name]) for index in indexes}


def prefetch(indexes: Collection[Index]) -> None:
    """Read the rows of indexes of one database in one query, for :func:`recorded_as`, unless they were read lately."""
    due = [index for index in indexes if _read.get((index.name, index.get_using())) is None]
    if len(due) > 1:
        using = due[0].get_using()
        for name, row in _rows(using, [index.name for index in due]).items():
            _read.keep((name, using), row)


def _recorded_together(index: Index) -> Build:
    """Return what the database knows of the build of ``index``. The rows of all holders are read in one query, as
    the others are needed next."""
    declared, using = index.declared, index.get_using()
    if declared is index:
        return recorded(index)
    row = _beside.get((index.name, using))
    if row is None:
        rows = _rows(using, [holder.name for holder in declared.holders])
        for name, beside in rows.items():
            _beside.keep((name, using), beside, _MOMENT)
        row = rows[index.name]
    _beside.forget((index.name, using))  # the next call reads it again
    return row


def _rows(using: str, names: Collection[str]) -> dict[str, Build]:
    """Return the rows of builds by the names of their indexes, read in one query; an empty one where there is none."""
    found = Build.objects.using(using).in_bulk(names)
    return {name: found.get(name) or Build(index=name) for name in names}


def recorded_as(index: Index, build: str, building: str, term: str) -> Build | None:
    """Return the row of ``index``, if the database knows this build, or this one that is being built, under this term;
    otherwise None. A row that was read within the last second is enough if it agrees."""
    state = build, building, term
    known = _read.get((index.name, index.get_using()))
    if known is None or not _agrees(known, *state):
        known = recorded(index)
    return known if _agrees(known, *state) else None


def keep(index: Index, row: Build) -> None:
    """Keep a row that was read, and written, elsewhere."""
    _read.keep((index.name, index.get_using()), row)


def _agrees(known: Build, build: str, building: str, term: str) -> bool:
    if str(known.term) != term:
        return False
    if build:
        return build in (known.build, known.building)
    return building == known.building


def is_trusted(health: Health, row: Build) -> bool:
    """Return True if a server is the trusted one: as it says itself, and as the database notes."""
    return health.is_trusted and (health.term, health.server) == (str(row.term), row.server)


def has_all(row: Build, health: Health) -> bool:
    """Return True unless a server lacks writes that were noted under its own term. Its identity doesn't matter: a
    machine may be rolled back with its memory. ``row``: read before the server answered, as drains go on."""
    if health.position[0] != row.term:
        return True
    if row.flushed_term == row.term and row.flushed > int(health.taken or 0):
        return False
    traces = {*health.traces.split()}
    return all(trace in traces or _version_of(trace) <= health.dropped for trace in row.traces.split())


def _version_of(trace: str) -> int:
    return int(trace.partition(".")[0])


def lacks_deleted(row: Build, health: Health) -> bool:
    """Return True if a server that may lack writes lacks some whose batches were deleted."""
    return health.noted < (row.purged_term, row.purged)


def lacked_batches(index: Index, health: Health) -> QuerySet[Batch]:
    """Return the batches of writes that a server lacks: those of later terms, and of its own what isn't among its
    traces, or has a higher number than its last flush."""
    term, _ = health.position
    had = Q(version__lte=health.dropped)
    for trace in health.traces.split()[1:]:
        version, _, nonce = trace.partition(".")
        had |= Q(version=version, nonce=nonce)
    lacked = Q(flush__gt=int(health.taken or 0)) | Q(flush=None) & ~had
    batches = Batch.objects.using(index.get_using()).filter(index=index.name)
    return batches.filter(Q(term__gt=term) | Q(term=term) & lacked)


def forget(index: Index) -> None:
    """Read the row again when it is next asked for."""
    _read.forget((index.name, index.get_using()))


def may_be_believed(index: Index, health: Health, before: Build | None = None) -> tuple[bool, Build | None]:
    """Return True if what a server says of itself and what the database notes agree. Also return the row that was read;
    None if there is none to compare with. ``before``: one that was read before the server answered.

    A write that was noted after the server has answered seems to be lacking. So if this returns False, let the server
    answer once more, and pass the row. If the database can't be queried, the server is believed: reads don't depend on
    the database.
    """
    if health.behind or health.is_evicted or not (health.is_trusted or _began_a_history(health)):
        return False, None
    try:
        row = None if health.owner == TESTS else _recorded_together(index)
    except (Error, SynchronousOnlyOperation):
        return health.is_trusted, None
    return _knows(row, health, before), row


def may_be_written(index: Index, health: Health, before: Build | None = None) -> tuple[bool, Build | None]:
    """Return True if scores may begin on a server: it is the trusted one, with a build that the database knows. The
    rest is as for :func:`may_be_believed`."""
    try:
        row = None if health.owner == TESTS else recorded(index)
    except (Error, SynchronousOnlyOperation):
        row = None
    return health.is_trusted and _knows(row, health, before), row


def _knows(row: Build | None, health: Health, before: Build | None) -> bool:
    """Return True if the database knows the build of a server, and it lacks no write that was noted. A rebuild that was
    just put in place is still noted as being built. ``row``: None if there is nothing to compare with."""
    return row is None or (
        health.term == str(row.term)
        and health.build in (row.build, row.building)
        and has_all(before or row, health)
    )


def _began_a_history(health: Health) -> bool:
    """Return True if the server began another history only because it is followed for the first time, and lost nothing.

    Its process is the same, and its history has no predecessor. Writes are refused until the history is trusted, so if
    it has every write that was noted, as :func:`_knows` requires, it has lost none.
    """
    process = health.server.partition("/")[0]
    return health.is_first and process == health.trusted.partition("/")[0]
