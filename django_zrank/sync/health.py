"""Health: the comparison of what Redis holds with what the database notes, and its repair."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from enum import Enum
from typing import Final

from ..capture.triggers import examine_capture, refusal, restore
from ..declaration import Declaration
from ..exceptions import CaptureError
from ..extension import installed
from ..models import Generation
from ..redis.trust import RETIRED, has_all, is_accepted, lacks_deleted, noted_and_found, recorded_each
from ..signals import repaired
from ..store import Health, Store
from .in_step import InStep
from .leftovers import leave_databases
from .rebuild import note_build, rebuild_holders
from .terms import accept_server, is_behind

logger = logging.getLogger("django_zrank.sync")


class Verdict(Enum):
    """The result of ``examine()``."""

    HEALTHY = "healthy"
    BEHIND = "a replay is being drained"
    BUILDING = "the first build is running"
    UNNOTED = "a rebuild was put in place, and killed before the database had noted it"
    RESTARTED = "Redis restarted, failed over or began another history, and may have lost its newest writes"
    EMPTY = "Redis holds no build of it: never built, or emptied"
    EVICTED = "keys are missing that nobody removed: Redis evicted them"
    CHANGED = "the index was built from another declaration"
    FOREIGN = "Redis holds another build than the database knows"
    LOST = "Redis has lost more than marks are kept for"
    UNCAPTURED = "triggers are missing: changes may have gone unnoticed"

    @property
    def wants_rebuild(self) -> bool:
        """True if only a rebuild helps."""
        return self in (Verdict.EMPTY, Verdict.EVICTED, Verdict.CHANGED, Verdict.FOREIGN, Verdict.LOST)


_CALM: Final = (Verdict.HEALTHY, Verdict.BEHIND, Verdict.BUILDING)


def examine(index: Declaration) -> Verdict:
    """Compare Redis with what the database notes, and return the worst verdict on a holder. Raises
    ``IndexUnavailable``."""
    return with_capture(index, worst(examine_holder(holder) for holder in index.holders))


def with_capture(index: Declaration, verdict: Verdict) -> Verdict:
    """Return the verdict on an index, given the worst on its holders: missing triggers count, too."""
    if verdict in (Verdict.HEALTHY, Verdict.BEHIND) and not examine_capture(index).works:
        return Verdict.UNCAPTURED
    return verdict


def obstacle(index: Declaration, verdict: Verdict) -> str:
    """Return what keeps :func:`repair` from repairing an index with this verdict, and what to do; '' for nothing."""
    if verdict.wants_rebuild:
        return refusal(index)
    return (examine_capture(index).error or "") if verdict is Verdict.UNCAPTURED else ""


def examine_holder(holder: Declaration) -> Verdict:
    """Return the verdict on one holder, without its triggers."""
    return _look(holder)[0]


def calm(using: str, indexes: Collection[Declaration]) -> set[Declaration]:
    """Return those of the indexes of a database that are healthy, their triggers and extensions aside: by one query,
    and one round trip to each server. Those that can't be reached are left out."""
    holders = [holder for index in indexes for holder in index.holders]
    rows = recorded_each(using, holders)  # before Redis, as in noted_and_found()
    step = InStep(holders)
    found = step.together({holder: step.stores[holder].checking_health() for holder in holders})
    healthy = {
        holder
        for holder, health in found.items()
        if _examine(holder, health, rows[holder]) is Verdict.HEALTHY
    }
    return {index for index in indexes if healthy.issuperset(index.holders)}


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    return max(verdicts, key=list(Verdict).index)


def _look(holder: Declaration) -> tuple[Verdict, Health, Generation]:
    """Return the verdict on a holder, the state in Redis, and the database's note of it.

    If another term began in between, or a rebuild took place, they are read again.
    """
    store = Store.of(holder)
    for _ in range(2):
        row, health = noted_and_found(holder, store)
        if health.position[0] <= row.term and health.generation in ("", row.generation, row.building):
            break
    return _examine(holder, health, row), health, row


def _recapture(index: Declaration) -> bool:
    """Restore missing triggers, which leaves a mark for all members, and drop outdated ones. Return True if any were
    missing."""
    try:
        made = restore(index)
    except CaptureError as error:  # existing marks can still be processed
        logger.error("Index %r: %s. %s", index.name, Verdict.UNCAPTURED.value, error)
        return False
    if made:
        logger.warning("Index %r: %s. They have been put back.", index.name, Verdict.UNCAPTURED.value)
        repaired.send_robust(index, verdict=Verdict.UNCAPTURED)
    return bool(made)


def _examine(index: Declaration, health: Health, row: Generation) -> Verdict:
    if not health.generation:
        return Verdict.BUILDING if health.building and health.is_accepted else Verdict.EMPTY
    if row.generation == RETIRED:
        return Verdict.CHANGED
    if health.generation != row.generation:
        return Verdict.UNNOTED if health.generation == row.building else Verdict.FOREIGN
    if health.position[0] > row.term:  # the database was restored from a backup
        return Verdict.FOREIGN
    if not index.declares(health.generation):
        return Verdict.CHANGED
    if health.behind == "rebuild":
        return Verdict.LOST
    if health.is_evicted:
        return Verdict.EVICTED
    if not (is_accepted(health, row) and has_all(row, health)):
        return Verdict.LOST if lacks_deleted(row, health) else Verdict.RESTARTED
    return Verdict.BEHIND if health.behind else Verdict.HEALTHY


def repair(index: Declaration, *, look: bool = True) -> Verdict:
    """Repair the index as far as needed for a drain to complete it. Return the worst verdict on its holders.

    A server that lost its newest writes has their marks replayed; if that is not enough the holder is rebuilt, unless a
    rebuild is already running. ``look``: check the triggers, too. Raises ``IndexUnavailable`` if none can be reached.
    """
    recaptured = look and _recapture(index)
    step = InStep(index.holders)
    verdicts = step.each(index.holders, _repair_one)
    step.require()
    for found in dict.fromkeys(verdict for verdict in verdicts.values() if verdict not in _CALM):
        names = [repr(holder.name) for holder, verdict in verdicts.items() if verdict is found]
        logger.warning("Index %s: %s", ", ".join(names), found.value)
    if broken := [holder for holder, verdict in verdicts.items() if verdict.wants_rebuild]:
        rebuild_holders(index, broken, polite=True)
    wrong = [verdict for verdict in verdicts.values() if verdict not in _CALM]
    if look and not (wrong or step.failed or Verdict.BUILDING in verdicts.values()):
        for (
            one
        ) in installed().values():  # left over if holders were built separately, or one could not be reached
            one.replaced(index)
        leave_databases(index)
    for verdict in wrong:
        repaired.send_robust(index, verdict=verdict)
    return Verdict.UNCAPTURED if recaptured and not wrong else worst(verdicts.values())


def _repair_one(holder: Declaration) -> Verdict:
    """Repair one holder, if that doesn't take a rebuild. Return the verdict before."""
    store = Store.of(holder)
    verdict, health, row = _look(holder)
    if verdict in (Verdict.HEALTHY, Verdict.BEHIND) and is_behind(holder, store):
        verdict = Verdict.FOREIGN
    if verdict in _CALM:
        return verdict
    if verdict is Verdict.UNNOTED:
        note_build(holder, health.generation)
    elif verdict is Verdict.RESTARTED:
        accept_server(holder, store, health, row)
    return verdict
