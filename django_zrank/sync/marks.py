"""What becomes of marks: they wait, are taken away, and wait again where Redis has lost what they led to."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from django.db import connections, transaction
from django.db.models import Max, QuerySet
from django.db.models.functions import Greatest

from ..models import Batch, Generation, Mark

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = [
    "Seen",
    "forget_batches",
    "next_marks",
    "replay",
    "retire",
    "unmark",
    "waiting_ids",
    "waiting_marks",
]

_CHUNK: Final = 1000
"""How many marks one statement deletes."""

Seen = tuple[int, str | None, str | None]
"""A mark as it was read: its id, ``via`` and ``member``."""


def waiting_marks(index: RankIndex) -> QuerySet[Mark]:
    """The marks of ``index`` that wait."""
    return Mark.objects.using(index.get_using()).filter(index=index.name)


def next_marks(index: RankIndex, after: int, limit: int, *, everybody: bool = True) -> list[Seen]:
    """The first marks beyond the id ``after`` that wait, up to ``limit`` of them; without ``everybody``, none that
    is for all members."""
    marks = waiting_marks(index).filter(id__gt=after)
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


def waiting_ids(index: RankIndex, limit: int) -> Sequence[int]:
    """The ids of the marks that wait, up to ``limit`` of them, the first ones first: 8 bytes each."""
    ids = waiting_marks(index).order_by("id").values_list("id", flat=True)[:limit]
    return array("q", ids.iterator())


def unmark(index: RankIndex, marks: Collection[Seen], place: int, *, generation: str, run: str) -> bool:
    """Take away ``marks``, which the write at ``place`` has worked off, and keep what they said.

    False, with nothing changed, where the database knows of another build or server by now: what a server took that
    was cut off and replaced must take away no mark that its successor needs. The row of the generation is locked:
    either ``replay()`` finds the batch, or this finds that row changed, and the marks wait on.
    """
    using = index.get_using()
    with transaction.atomic(using):
        if not _lock(index, generation, run):
            return False
        # Those that another drain has taken away since are in a batch of its own, and may well be in this one too.
        ids = [pk for pk, _, _ in marks]
        if sum(_delete(using, ids[start : start + _CHUNK]) for start in range(0, len(ids), _CHUNK)):
            said = dict.fromkeys((via, member) for _, via, member in marks)
            Batch.objects.using(using).create(index=index.name, place=place, marks=list(said))
    return True


def retire(index: RankIndex, ids: Sequence[int], *, generation: str, run: str) -> None:
    """Take away marks that were seen before ``generation`` was begun, for good: a server that holds it has what
    they led to, and one that has lost it is built anew."""
    using = index.get_using()
    for start in range(0, len(ids), _CHUNK):
        with transaction.atomic(using):
            if not _lock(index, generation, run):
                return
            _delete(using, ids[start : start + _CHUNK])


def replay(index: RankIndex, applied: int, *, generation: str, old: str, new: str) -> bool:
    """Let marks wait again, under new ids, that were worked off by a write beyond ``applied``, which the server
    ``new`` has not got from the server ``old``.

    False, with nothing changed, where the database knows of another build or server by now, or where marks of
    such writes have been forgotten.
    """
    using = index.get_using()
    noted = Generation.objects.using(using).filter(
        index=index.name, generation=generation, run=old, purged__lte=applied
    )
    lost = Batch.objects.using(using).filter(index=index.name, place__gt=applied)
    with transaction.atomic(using):
        if not noted.update(run=new):
            return False
        for batch in lost.iterator(chunk_size=20):
            Mark.objects.using(using).bulk_create(
                Mark(index=index.name, via=via, member=member) for via, member in batch.marks
            )
        lost._raw_delete(using)
    return True


def forget_batches(index: RankIndex, before: int) -> None:
    """Delete the batches whose place is lower than ``before``."""
    using = index.get_using()
    old = Batch.objects.using(using).filter(index=index.name, place__lt=before)
    newest = old.aggregate(newest=Max("place"))["newest"]
    noted = Generation.objects.using(using).filter(index=index.name)
    if newest is not None:
        with transaction.atomic(using):
            if noted.update(purged=Greatest("purged", newest)):
                old.filter(place__lte=newest)._raw_delete(using)


def _lock(index: RankIndex, generation: str, run: str) -> bool:
    """Lock what is noted, till the transaction ends. Whether it is this build on this server."""
    noted = Generation.objects.using(index.get_using())
    return bool(noted.filter(index=index.name, generation=generation, run=run).update(run=run))


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
