"""Health: the comparison of what Redis holds with what the database notes, and its repair."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final

from ..exceptions import CaptureError
from ..models import Generation
from ..notes import RETIRED, has_all, is_accepted, newest_batch, noted
from ..signals import repaired
from ..store import Health, Store
from .flush import are_lost
from .other_shards import unlink_other_shards
from .reach import Reach
from .rebuild import rebuild
from .terms import accept_server
from .triggers import gaps, restore

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["Verdict", "examine", "examine_part", "repair", "with_capture", "worst"]

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


def examine(index: RankIndex) -> Verdict:
    """Compare what Redis holds with what the database knows: the worst of what is found of its parts. Raises
    ``IndexUnavailable``."""
    return with_capture(index, worst(examine_part(part) for part in index.parts))


def with_capture(index: RankIndex, verdict: Verdict) -> Verdict:
    """Return the verdict on an index, given that on its parts: triggers that are missing count, too."""
    return Verdict.UNCAPTURED if verdict in (Verdict.HEALTHY, Verdict.BEHIND) and _gaps(index) else verdict


def examine_part(part: RankIndex) -> Verdict:
    """Return the verdict on one part, which doesn't include triggers."""
    return _examine(part, *_look(part))


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several verdicts."""
    order = list(Verdict)
    return max(verdicts, key=order.index)


def _look(index: RankIndex) -> tuple[Health, Generation, tuple[int, int]]:
    """Return the state in Redis, the database's note of it, and the newest batch.

    The note is read before the state: a rebuild that ends meanwhile is known as the one that was running, and a repair
    meanwhile is noticed. If another term was begun in between, both are read again. The batch is read first, because
    drains go on.
    """
    store = Store(index.name, index.layout)
    for _ in range(2):
        newest = newest_batch(index)
        row = noted(index)
        health = store.check_health()
        if not _is_later(health, row):
            break
    return health, row, newest


def _is_later(health: Health, row: Generation) -> bool:
    """Return True if Redis knows a later term than the database, where terms begin: the database was restored."""
    return int(health.term or 0) > row.term


def _gaps(index: RankIndex) -> bool:
    """Return True if changes may go unnoticed."""
    try:
        return bool(gaps(index))
    except CaptureError:
        return True


def _recapture(index: RankIndex) -> bool:
    """Put back the triggers that are missing, which leaves a mark for all members. Return true if there were any."""
    try:
        made = restore(index)
    except CaptureError as error:  # what marks there are can be worked off still
        logger.error("Index %r: %s. %s", index.name, Verdict.UNCAPTURED.value, error)
        return False
    if made:
        logger.warning("Index %r: %s. They have been put back.", index.name, Verdict.UNCAPTURED.value)
        repaired.send(index, verdict=Verdict.UNCAPTURED)
    return bool(made)


def _examine(index: RankIndex, health: Health, row: Generation, newest: tuple[int, int]) -> Verdict:
    if not health.generation:
        return Verdict.BUILDING if health.building and health.is_accepted else Verdict.EMPTY
    if row.generation == RETIRED:
        return Verdict.CHANGED
    if health.generation != row.generation:
        return Verdict.UNNOTED if health.generation == row.building else Verdict.FOREIGN
    if _is_later(health, row):
        return Verdict.FOREIGN
    if not index.declares(health.generation):
        return Verdict.CHANGED
    if health.behind == "rebuild":  # whatever has happened since
        return Verdict.LOST
    if health.intact == "0":
        return Verdict.EVICTED
    if not (is_accepted(health, row) and has_all(health, newest)):
        purged = row.purged_term, row.purged
        return Verdict.LOST if health.position < purged else Verdict.RESTARTED
    return Verdict.BEHIND if health.behind else Verdict.HEALTHY


def repair(index: RankIndex, *, look: bool = True) -> Verdict:
    """Do what it takes for draining to make the index right. Returns the worst that was found of its parts.

    A server loses the newest of its writes and never one from the middle, and nothing of the terms before its own: so
    of the marks that were worked off, only those wait again whose term and version lie beyond its own. Where that is
    not enough the part is rebuilt, unless a rebuild is running already. ``look``: at the triggers, too, before rows
    are read. Raises ``IndexUnavailable`` where no part can be reached.
    """
    recaptured = look and _recapture(index)
    reach = Reach(index)
    verdicts = reach.each(index.parts, _repair_part)
    reach.require()
    if broken := [part for part, verdict in verdicts.items() if verdict.wants_rebuild]:
        rebuild(index, parts=broken, polite=True)
    wrong = [verdict for verdict in verdicts.values() if verdict not in _CALM]
    if look and not (wrong or reach.failed or Verdict.BUILDING in verdicts.values()):
        unlink_other_shards(index)  # where shards were built one by one, or one of them could not be reached
    for verdict in wrong:
        repaired.send(index, verdict=verdict)
    return Verdict.UNCAPTURED if recaptured and not wrong else worst(verdicts.values())


def _repair_part(part: RankIndex) -> Verdict:
    """Repair one part, if that doesn't take a rebuild. Returns what was found."""
    store, using = Store(part.name, part.layout, part.rule), part.get_using()
    health, row, newest = _look(part)
    verdict = _examine(part, health, row, newest)
    if verdict in (Verdict.HEALTHY, Verdict.BEHIND) and are_lost(part, store):
        verdict = Verdict.FOREIGN
    if verdict in _CALM:
        return verdict
    logger.warning("Index %r: %s", part.name, verdict.value)
    if verdict is Verdict.UNNOTED:
        Generation.objects.using(using).filter(index=part.name, building=health.generation).update(
            generation=health.generation, building=""
        )
    elif verdict is Verdict.RESTARTED:
        accept_server(part, store, health, row)
    return verdict
