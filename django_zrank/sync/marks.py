"""The life of marks: they wait, are deleted, and wait again if Redis has lost the writes that they led to."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.db import connections, transaction
from django.db.models import Max, Q, QuerySet
from django.db.models.functions import Now

from ..models import Batch, Generation, Mark
from .patience import PATIENCE, Busy, briefly

if TYPE_CHECKING:
    from ..index import RankIndex
    from .push import Written

__all__ = [
    "Seen",
    "Worked",
    "forget_batches",
    "newest_mark",
    "next_marks",
    "replay",
    "replayed_marks",
    "retire",
    "unmark",
    "waiting_ids",
    "waiting_marks",
]

_CHUNK: Final = 1000
"""The number of marks that one statement deletes."""

Seen = tuple[int, str | None, str | None]
"""A mark as it was read: its id, ``via`` and ``member``."""


def waiting_marks(index: RankIndex) -> QuerySet[Mark]:
    """The marks of ``index`` that wait."""
    return Mark.objects.using(index.get_using()).filter(index=index.whole.name)


def next_marks(index: RankIndex, after: int, until: int, limit: int, *, everybody: bool = True) -> list[Seen]:
    """The first marks beyond the id ``after`` that wait, up to the id ``until`` and ``limit`` of them; without
    ``everybody``, none that is for all members."""
    marks = waiting_marks(index).filter(id__gt=after, id__lte=until)
    if not everybody:
        marks = marks.filter(member__isnull=False)
    first = marks.order_by("id").values_list("id", "via", "member")[:limit]
    connection = connections[index.get_using()]
    if connection.vendor != "postgresql":
        return list(first)
    # What is known of a table that fills and empties all the time is wrong: few marks are believed to be of an index,
    # and each batch would read the whole table and sort them, in place of beginning where the last one ended.
    with transaction.atomic(connection.alias), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_sort = off")
        return list(first)


def newest_mark(index: RankIndex) -> int:
    """The highest id of the marks that wait, of any index: what is committed later may yet have a lower one."""
    return _newest_id(index)


def waiting_ids(index: RankIndex, limit: int) -> Sequence[int]:
    """The ids of the marks that wait, up to ``limit`` of them, the first ones first: 8 bytes each."""
    ids = waiting_marks(index).order_by("id").values_list("id", flat=True)[:limit]
    return array("q", ids.iterator())


class Worked(NamedTuple):
    """Marks that were worked off together."""

    marks: Sequence[Seen]

    parts: Collection[RankIndex]
    """All parts that they led to; in each the members were written."""

    others: Sequence[str] = ()
    """Members that they led to in parts that are away: to wait on, by marks of their own."""

    outdated: Collection[RankIndex] = ()
    """Parts that are away, all of whose members they led to: to be rebuilt."""


def unmark(
    index: RankIndex,
    worked: Sequence[Worked],
    written: Mapping[RankIndex, Written],
    *,
    patience: float = PATIENCE,
) -> list[Worked]:
    """Take away marks that were worked off by what was ``written`` to parts, and keep what they said: a batch for each
    part that they led to. Returns those of ``worked`` that are settled.

    Not so, with nothing changed, where the database knows of another build or term by now: a write to a server that
    was cut off and replaced must not take away a mark that its successor needs. The rows of the generations are locked:
    either ``replay()`` finds the batch, or this finds that row changed, and the marks wait on.

    Raises :exc:`~django_zrank.sync.patience.Busy` where somebody else keeps one locked.
    """
    using = index.get_using()
    concerned = {part for one in worked for part in one.parts}

    def work() -> list[Worked]:
        locked = {
            part
            for part in index.parts
            if part in concerned and _lock(part, written[part].generation, written[part].term)
        }
        settled = [one for one in worked if locked.issuperset(one.parts)]
        # Those that another drain has taken away since are in a batch of its own, and may well be in this one too.
        ids = [pk for one in settled for pk, _, _ in one.marks]
        if not sum(_delete(using, ids[start : start + _CHUNK]) for start in range(0, len(ids), _CHUNK)):
            return settled
        said: dict[RankIndex, dict[tuple[str | None, str | None], None]] = {}
        for one in settled:
            for part in one.parts:
                said.setdefault(part, {}).update(dict.fromkeys((via, member) for _, via, member in one.marks))
        Batch.objects.using(using).bulk_create(
            Batch(index=part.name, term=written[part].term, version=written[part].version, marks=list(marks))
            for part, marks in said.items()
        )
        # The database knows no build of these any more.
        outdated = {part.name for one in settled for part in one.outdated}
        if outdated:
            Generation.objects.using(using).filter(index__in=outdated).update(generation="", building="")
        others = [Mark(index=index.name, member=text) for one in settled for text in one.others]
        if others:
            Mark.objects.using(using).bulk_create(others, batch_size=_CHUNK)
        return settled

    return briefly(using, work, patience=patience)


def retire(index: RankIndex, ids: Sequence[int], builds: Mapping[RankIndex, tuple[str, int]]) -> None:
    """Delete marks that were seen before the generations of all parts were begun, and keep no batch of them: a server
    that holds one has what they led to, and one that has lost it is rebuilt. Those that others keep locked are drained.

    ``builds``: the generation of each part, and the term under which it was built."""
    using = index.get_using()
    for start in range(0, len(ids), _CHUNK):

        def work(chunk: Sequence[int] = ids[start : start + _CHUNK]) -> bool:
            return all(_lock(part, *builds[part]) for part in index.parts) and _delete(using, chunk) >= 0

        try:
            if not briefly(using, work):
                return
        except Busy:
            return


def replay(index: RankIndex, position: tuple[int, int], *, noted: Generation, server: str) -> int | None:
    """Begin the term of a server that has what was written up to ``position``, a term and a version: let marks wait
    again, under new ids, that were worked off by a write beyond it. Returns how many, or 1 where those of an earlier
    replay still wait.

    That is whatever any history took that was abandoned for this one, and what this one has lost of its own. None, with
    nothing changed, where the database knows of another build or term than was ``noted``, or where batches beyond the
    position were deleted.
    """
    using = index.get_using()
    term, version = position
    row = Generation.objects.using(using).filter(
        index=index.name, generation=noted.generation, term=noted.term
    )
    kept = Q(purged_term__lt=term) | Q(purged_term=term, purged__lte=version)
    batches = Batch.objects.using(using).filter(index=index.name)
    lost = batches.filter(Q(term__gt=term) | Q(term=term, version__gt=version))

    def work() -> int | None:
        if not row.filter(kept).update(term=noted.term + 1, server=server):
            return None
        # An unfinished replay goes on: what it set waiting is part of this one.
        unfinished = waiting_marks(index).filter(id__range=(noted.replayed_from, noted.replayed_to)).exists()
        before = _newest_id(index)
        number = 0
        for batch in lost.iterator(chunk_size=20):
            marks = [Mark(index=index.whole.name, via=via, member=member) for via, member in batch.marks]
            Mark.objects.using(using).bulk_create(marks)
            number += len(marks)
        # Flushes are told by their numbers: whatever server comes next may lack them, too.
        lost.filter(flush=None)._raw_delete(using)
        if number:
            Generation.objects.using(using).filter(index=index.name).update(
                replayed_from=noted.replayed_from if unfinished else before + 1, replayed_to=_newest_id(index)
            )
        return number or int(unfinished)

    return briefly(using, work)


def replayed_marks(index: RankIndex) -> QuerySet[Mark]:
    """The marks that wait among those that the last replay has set waiting."""
    noted = Generation.objects.using(index.get_using()).filter(index=index.name).first()
    bounds = (noted.replayed_from, noted.replayed_to) if noted else (0, 0)
    return waiting_marks(index).filter(id__range=bounds)


def forget_batches(index: RankIndex, seconds: float) -> None:
    """Delete the batches that are older than so many seconds, by the database's clock."""
    using = index.get_using()
    old = Batch.objects.using(using).filter(index=index.name, at__lt=Now() - timedelta(seconds=seconds))
    newest = old.order_by("term", "version").values_list("term", "version").last()
    if newest is None:
        return
    term, version = newest
    row = Generation.objects.using(using).filter(index=index.name)

    def work() -> None:
        noted = row.select_for_update(nowait=_can_refuse(using)).first()
        if noted is None:
            return
        purged_term, purged = max((noted.purged_term, noted.purged), newest)
        row.update(purged_term=purged_term, purged=purged)
        # Another server may have been accepted since: what is kept are the newest ones, by term and version.
        gone = Q(term__lt=term) | Q(term=term, version__lte=version)
        Batch.objects.using(using).filter(gone, index=index.name)._raw_delete(using)

    with suppress(Busy):
        briefly(using, work, patience=0)


def _newest_id(index: RankIndex) -> int:
    newest: int | None = Mark.objects.using(index.get_using()).aggregate(newest=Max("id"))["newest"]
    return newest or 0


def _lock(index: RankIndex, generation: str, term: int) -> bool:
    """Lock the row of the generation until the transaction ends; fail where it is locked. Return true if it is of this
    build, under this term."""
    using = index.get_using()
    noted = Generation.objects.using(using).filter(index=index.name)
    if _can_refuse(using):
        found = noted.select_for_update(nowait=True).first()
        return found is not None and (found.generation, found.term) == (generation, term)
    return bool(noted.filter(generation=generation, term=term).update(term=term))


def _can_refuse(using: str) -> bool:
    return connections[using].features.has_select_for_update_nowait


def _delete(using: str, ids: Collection[int]) -> int:
    """Delete the marks of these ids, and wait for no other. Returns how many there were."""
    connection = connections[using]
    table = connection.ops.quote_name(Mark._meta.db_table)
    parameters: list[Any]
    if connection.vendor == "postgresql":
        # One parameter: to bind a thousand takes longer than to delete. Only the ends may be looked up by the key:
        # to look up each of so many is believed to cost more than to read the whole table.
        sql = f"DELETE FROM {table} WHERE id BETWEEN %s AND %s AND id + 0 = ANY(%s::bigint[])"  # noqa: S608
        parameters = [min(ids), max(ids), f"{{{','.join(map(str, ids))}}}"]
    elif connection.vendor == "mysql":
        # Where most of a table goes, InnoDB would rather read it from end to end, and wait for every mark whose
        # writer has not committed yet. A join looks each up by its key.
        union = " UNION ALL ".join(["SELECT %s AS id", *["SELECT %s"] * (len(ids) - 1)])
        sql, parameters = f"DELETE m FROM ({union}) x STRAIGHT_JOIN {table} m ON m.id = x.id", list(ids)
    else:
        return Mark.objects.using(using).filter(pk__in=ids)._raw_delete(using)
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return int(cursor.rowcount)
