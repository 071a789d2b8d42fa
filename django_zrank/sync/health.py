"""Health: the comparison of what Redis holds with what the database notes, and its repair."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from enum import Enum
from typing import Final

from ..builds import RETIRED, has_all, is_trusted, lacks_deleted, noted_and_found, recorded_each
from ..capture.triggers import examine_capture, refusal, restore
from ..declaration import Index
from ..exceptions import CaptureError
from ..extension import installed
from ..models import Build
from ..signals import repaired
from ..store import Health, Store
from .in_step import InStep
from .leftovers import leave_databases
from .marks import replay
from .rebuild import note_build, rebuild
from .upkeep import is_behind

logger = logging.getLogger("django_zrank.sync")


class Status(Enum):
    """The result of ``examine()``."""

    HEALTHY = "healthy"
    BEHIND = "writes that Redis lost are being replayed"
    BUILDING = "the first build is running"
    BUILD_NOT_RECORDED = "a rebuild was killed after the swap, before the database recorded the new build"
    RESTARTED = "Redis restarted or failed over, and may have lost its newest writes"
    EMPTY = "the index was never built, or Redis was emptied"
    EVICTED = "Redis has evicted keys: set maxmemory-policy noeviction"
    OTHER_DECLARATION = "the index was built from another declaration"
    UNKNOWN_BUILD = "Redis holds a build that this database doesn't know"
    WRITES_LOST = "Redis has lost writes that are too old to be replayed (KEEP_MARKS)"
    TRIGGERS_MISSING = "triggers are missing: changes may have gone unnoticed"

    @property
    def wants_rebuild(self) -> bool:
        """True if only a rebuild helps."""
        return self in (
            Status.EMPTY,
            Status.EVICTED,
            Status.OTHER_DECLARATION,
            Status.UNKNOWN_BUILD,
            Status.WRITES_LOST,
        )


_CALM: Final = (Status.HEALTHY, Status.BEHIND, Status.BUILDING)


def examine(index: Index) -> Status:
    """Compare Redis with what the database notes, and return the worst status on a holder. Raises
    ``IndexUnavailable``."""
    return with_capture(index, worst(examine_holder(holder) for holder in index.holders))


def with_capture(index: Index, status: Status) -> Status:
    """Return the status on an index, given the worst on its holders: missing triggers count, too."""
    if status in (Status.HEALTHY, Status.BEHIND) and not examine_capture(index).works:
        return Status.TRIGGERS_MISSING
    return status


def obstacle(index: Index, status: Status) -> str:
    """Return what keeps :func:`repair` from repairing an index with this status, and what to do; '' for nothing."""
    if status.wants_rebuild:
        return refusal(index)
    return (examine_capture(index).error or "") if status is Status.TRIGGERS_MISSING else ""


def examine_holder(holder: Index) -> Status:
    """Return the status on one holder, without its triggers."""
    return _look(holder)[0]


def calm(using: str, indexes: Collection[Index]) -> set[Index]:
    """Return those of the indexes of a database that are healthy, their triggers and extensions aside: by one query,
    and one round trip to each server. Those that can't be reached are left out."""
    holders = [holder for index in indexes for holder in index.holders]
    rows = recorded_each(using, holders)  # before Redis, as in noted_and_found()
    step = InStep(holders)
    found = step.together({holder: step.stores[holder].checking_health() for holder in holders})
    healthy = {
        holder for holder, health in found.items() if _examine(holder, health, rows[holder]) is Status.HEALTHY
    }
    return {index for index in indexes if healthy.issuperset(index.holders)}


def worst(statuses: Iterable[Status]) -> Status:
    return max(statuses, key=list(Status).index)


def _look(holder: Index) -> tuple[Status, Health, Build]:
    """Return the status on a holder, the state in Redis, and the database's note of it.

    If another term began in between, or a rebuild took place, they are read again.
    """
    store = Store.of(holder)
    for _ in range(2):
        row, health = noted_and_found(holder, store)
        if health.position[0] <= row.term and health.build in ("", row.build, row.building):
            break
    return _examine(holder, health, row), health, row


def _recapture(index: Index) -> bool:
    """Restore missing triggers, which leaves a mark for all members, and drop outdated ones. Return True if any were
    missing."""
    try:
        made = restore(index)
    except CaptureError as error:  # existing marks can still be processed
        logger.error("Index %r: %s. %s", index.name, Status.TRIGGERS_MISSING.value, error)
        return False
    if made:
        logger.warning("Index %r: %s. They have been restored.", index.name, Status.TRIGGERS_MISSING.value)
        repaired.send_robust(index, status=Status.TRIGGERS_MISSING)
    return bool(made)


def _examine(index: Index, health: Health, row: Build) -> Status:
    if not health.build:
        return Status.BUILDING if health.building and health.is_trusted else Status.EMPTY
    if row.build == RETIRED:
        return Status.OTHER_DECLARATION
    if health.build != row.build:
        return Status.BUILD_NOT_RECORDED if health.build == row.building else Status.UNKNOWN_BUILD
    if health.position[0] > row.term:  # the database was restored from a backup
        return Status.UNKNOWN_BUILD
    if not index.declares(health.build):
        return Status.OTHER_DECLARATION
    if health.behind == "rebuild":
        return Status.WRITES_LOST
    if health.is_evicted:
        return Status.EVICTED
    if not (is_trusted(health, row) and has_all(row, health)):
        return Status.WRITES_LOST if lacks_deleted(row, health) else Status.RESTARTED
    return Status.BEHIND if health.behind else Status.HEALTHY


def repair(index: Index, *, look: bool = True) -> Status:
    """Repair the index as far as needed for a drain to complete it. Return the worst status on its holders.

    A server that lost its newest writes has their marks replayed; if that is not enough the holder is rebuilt, unless a
    rebuild is already running. ``look``: check the triggers, too. Raises ``IndexUnavailable`` if none can be reached.
    """
    recaptured = look and _recapture(index)
    step = InStep(index.holders)
    statuses = step.each(index.holders, _repair_one)
    step.require()
    for found in dict.fromkeys(status for status in statuses.values() if status not in _CALM):
        names = [repr(holder.name) for holder, status in statuses.items() if status is found]
        logger.warning("Index %s: %s", ", ".join(names), found.value)
    if broken := [holder for holder, status in statuses.items() if status.wants_rebuild]:
        rebuild(index, holders=broken, polite=True)
    wrong = [status for status in statuses.values() if status not in _CALM]
    if look and not (wrong or step.failed or Status.BUILDING in statuses.values()):
        for (
            one
        ) in installed().values():  # left over if holders were built separately, or one could not be reached
            one.replaced(index)
        leave_databases(index)
    for status in wrong:
        repaired.send_robust(index, status=status)
    return Status.TRIGGERS_MISSING if recaptured and not wrong else worst(statuses.values())


def _repair_one(holder: Index) -> Status:
    """Repair one holder, if that doesn't take a rebuild. Return the status before."""
    store = Store.of(holder)
    status, health, row = _look(holder)
    if status in (Status.HEALTHY, Status.BEHIND) and is_behind(holder, store):
        status = Status.UNKNOWN_BUILD
    if status in _CALM:
        return status
    if status is Status.BUILD_NOT_RECORDED:
        note_build(holder, health.build)
    elif status is Status.RESTARTED:
        trust_server(holder, store, health, row)
    return status


def trust_server(index: Index, store: Store, health: Health, row: Build) -> None:
    """Trust the server of an index under a new term: marks of the writes that it lacks wait again, and extensions
    compare what they have there with the database.

    Nothing changes if the database or Redis have another state by now, or if more was lost than is kept.
    """
    # Marks come first: if the process is killed after that, they are processed once more, which does no harm.
    replayed = replay(index, health, noted=row)
    if replayed is None:
        return
    if all(one.trusting(index, health, everything=False) for one in installed().values()):
        store.adopt_server(health, row.term + 1, behind=replayed > 0)
