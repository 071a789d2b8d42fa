"""Comparing Redis with the database, member by member, while both go on changing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from django.db import connections

from ..checks import check_redis
from ..conf import get_settings
from ..exceptions import CaptureError, IndexUnavailable, IndexUnhealthy, NotBuilt, RebuildSuperseded
from ..models import Mark
from ..signals import drift_found
from ..store import Number, Standing, Store
from .balance import Balance
from .drain import drain
from .gauges import read_gauges
from .health import Verdict, examine
from .marks import waiting_marks
from .push import encode, read
from .report import CaptureState, Example, Report
from .transactions import refuse_transaction
from .triggers import captured, status
from .watch import sync

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["verify"]

BATCH_SIZE: Final = 2000

_PAGE: Final = 10
"""How many batches one query of the database makes."""

_ATTEMPTS: Final = 3
"""How often a verification begins again, if a rebuild has come in between."""

_LOOKS: Final = 6
"""How often a suspect that keeps changing is looked at."""

_PAUSE: Final = 0.1
"""Seconds before the second look; before each further one, so many more."""

_FEW: Final = 1000
"""How many waiting marks are told apart."""


def verify(
    index: RankIndex,
    *,
    repair: bool = False,
    batch_size: int = BATCH_SIZE,
    progress: Callable[[int], Any] = lambda members: None,
) -> Report:
    """Compare what Redis holds of ``index`` with what the database ranks.

    Both sides pass through in batches: memory doesn't grow with their number, and no query or transaction is
    long. Whoever looks wrong is looked at again, so that a change on its way is not taken for drift; for that,
    marks that wait are worked off. ``progress`` is called with the number of rows, and then of members, of each
    batch. ``repair``: mend an index that isn't healthy, leave a mark for each member that is wrong, and work the
    marks off.

    Raises :exc:`~django_zrank.IndexUnavailable`; ``RebuildSuperseded`` where ``repair`` takes a rebuild and another
    one runs; and ``TransactionManagementError`` inside a transaction, where an old snapshot might be read.
    """
    refuse_transaction(connections[index.get_using()], "A verification")
    found, gauges = examine(index), read_gauges(index)
    if repair:
        sync(index)
    for _ in range(_ATTEMPTS):
        report = Report(
            index,
            capture=_examine_capture(index),
            waiting=gauges.waiting,
            oldest=gauges.oldest,
            warnings=list(_warnings(index)),
            verdict=examine(index),
        )
        with suppress(_Replaced, IndexUnhealthy, NotBuilt, RebuildSuperseded):
            if report.verdict in (Verdict.HEALTHY, Verdict.BEHIND):
                _Comparison(report, repair, batch_size, progress).run()
                report.compared = True
            break
    else:
        raise IndexUnavailable(f"Index {index.name!r}: rebuilds came too often for it to be verified")
    report.verdict = examine(index)
    if repair and found is not Verdict.HEALTHY and report.verdict is Verdict.HEALTHY:
        report.mended = found
    if report.drift:
        drift_found.send(
            index,
            missing=report.missing.count,
            extra=report.extra.count,
            different=report.different.count,
        )
    return report


def _examine_capture(index: RankIndex) -> CaptureState:
    using, mode = index.get_using(), get_settings().capture
    try:
        unexpected = list(map(str, status(using, captured(using)).unexpected))
        if mode != "triggers":
            return CaptureState(mode, unexpected=unexpected)
        own = status(using, [index])
    except CaptureError as error:
        return CaptureState(mode, error=str(error))
    return CaptureState(mode, list(map(str, own.missing)), list(map(str, own.outdated)), unexpected)


def _warnings(index: RankIndex) -> Iterator[str]:
    yield from (str(message.msg) for message in check_redis(None) if message.id == "zrank.W001")
    policy = None
    with suppress(IndexUnavailable):
        policy = Store(index.name, index.layout).eviction_policy()
    if policy is None:
        yield "Redis's maxmemory-policy could not be read: make sure that it is none of allkeys-*."
    elif policy.startswith("allkeys"):
        yield f"Redis throws away any key when its memory is full (maxmemory-policy {policy}): set noeviction."


class _Replaced(Exception):
    """Another generation, or another server, took the place of the one that was being compared."""


class _Comparison:
    """One pass over both sides.

    Every row is looked up in Redis: that finds what is missing or different. A :class:`Balance` of what was found
    there with what is there tells whether anything is extra; if so, it is looked for in the database.
    """

    def __init__(self, report: Report, repair: bool, size: int, progress: Callable[[int], Any]) -> None:
        self.report = report
        self.repair = repair
        self.size = size
        self.progress = progress
        self.index = report.index
        self.using = self.index.get_using()
        self.store = Store(self.index.name, self.index.layout)
        self.generation = self.store.check_health().generation
        # Member as Redis stores it -> its primary key, None where no row can have it.
        self.suspects: dict[bytes, Any] = {}

    def run(self) -> None:
        balance = Balance()
        self.look_up_rows(balance)
        for members in self.store.scan(self.size):
            balance.subtract(members)
            self.report.members += len(members)
            self.progress(len(members))
        if balance:
            self.look_up_members(balance)
        health = self.store.check_health()
        if health.generation != self.generation or not health.same_server:
            raise _Replaced

    def look_up_rows(self, balance: Balance) -> None:
        for page in self.pages():
            ranked = encode(self.index, page)
            while rows := {
                self.index.to_text(pk).encode(): (pk, score) for pk, score in islice(ranked, self.size)
            }:
                scores = dict(zip(rows, self.store.scores(rows), strict=True))
                wrong = ((member, pk) for member, (pk, score) in rows.items() if scores[member] != score)
                self.suspects.update(wrong)
                balance.add(member for member, score in scores.items() if score is not None)
                self.report.rows += len(rows)
                self.settle(at_least=self.size)
                self.progress(len(rows))
        self.settle()

    def pages(self) -> Iterator[list[tuple[Any, ...]]]:
        """Primary key and criteria of each row, some batches at a time, in the order of primary keys.

        Each page is a query of its own: a long one would keep the database from clearing away old rows, and
        with some drivers none could be asked meanwhile. Keys bound it at both ends: with a LIMIT, PostgreSQL
        joins other tables from their beginning each time. And it is larger than a batch, where it takes what it
        joins for small enough to be read whole each time.
        """
        rows = self.index.get_ranked().order_by().values_list("pk", *self.index.ordering.paths)
        keys = self.index.model._base_manager.using(self.using).order_by("pk").values_list("pk", flat=True)
        size = self.size * _PAGE
        bounds: dict[str, Any] = {}
        while True:
            # The last of as many keys; none where there are fewer.
            ends = list(keys.filter(**bounds)[size - 1 : size])
            yield list(rows.filter(**bounds, **({"pk__lte": ends[0]} if ends else {})))
            if not ends:
                break
            bounds = {"pk__gt": ends[0]}

    def look_up_members(self, balance: Balance) -> None:
        for members in self.store.scan(self.size):
            pks = {member: self.pk_of(member) for member in balance.uneven(members)}
            scores = self.read_database(pks)
            self.suspects.update((member, pk) for member, pk in pks.items() if scores.get(member) is None)
            self.settle(at_least=self.size)
        self.settle()

    def pk_of(self, member: bytes) -> Any:
        """The primary key of the row that ``member`` stands for, None where no row can have it."""
        try:
            pk = self.index.parse_pk(member.decode())
        except ValueError:
            return None
        if isinstance(pk, int) and pk.bit_length() > 63:  # SQLite can't even be asked for it
            return None
        return pk if self.index.to_text(pk).encode() == member else None  # 007 is not 7

    # Both sides, of some members

    def read_database(self, pks: Mapping[bytes, Any]) -> dict[bytes, Number]:
        """The score of each member that is ranked now."""
        asked = (pk for pk in pks.values() if pk is not None)
        limit = min(self.size, connections[self.using].features.max_query_params or self.size)
        scores: dict[bytes, Number] = {}
        while chunk := list(islice(asked, limit)):
            found = read(self.index, chunk)
            scores.update((text.encode(), score) for text, score, _ in found if score is not None)
        return scores

    def read_redis(self, members: Iterable[bytes]) -> list[Standing]:
        """Where each member stands."""
        found = self.store.read_members(self.generation, members)
        if found is None:
            raise _Replaced
        return found

    def in_flight(self, suspects: Collection[bytes]) -> Collection[bytes]:
        """Those that a waiting mark is about, or may be."""
        marks = list(waiting_marks(self.index).order_by("id")[: _FEW + 1])
        if len(marks) > _FEW or any(mark.member is None or mark.via is not None for mark in marks):
            return suspects
        members: set[bytes] = set()
        for mark in marks:
            with suppress(ValueError):  # one that can't be worked off
                members.add(self.index.to_text(mark.member).encode())
        return members

    # Suspects

    def settle(self, at_least: int = 1) -> None:
        """Judge the suspects, if there are so many."""
        if len(self.suspects) < at_least:
            return
        pending, self.suspects = self.suspects, {}
        # Where every change leaves a mark, that tells what is on its way. Else what stays wrong a while is wrong.
        certain = self.report.capture.mode == "triggers" and self.report.capture.works
        before: dict[bytes, Example] = {}
        for look in range(_LOOKS):
            sleep(_PAUSE * look)
            wrong, moving = self.look(pending)
            if not certain:
                moving |= {member for member, example in wrong.items() if before.get(member) != example}
                before = wrong
            self.judge(
                {member: pk for member, pk in pending.items() if member in wrong.keys() - moving}, wrong
            )
            pending = {member: pk for member, pk in pending.items() if member in moving}
            if not pending:
                break
        self.report.unsettled += len(pending)

    def look(self, suspects: Mapping[bytes, Any]) -> tuple[dict[bytes, Example], set[bytes]]:
        """Which of the suspects are wrong, and which are just changing.

        Redis, the row, marks, Redis again: the order is the proof. Take a member that no mark waits for. The
        last change that its row had when it was read was worked off by then, and what was written to Redis had it.
        If nothing was written to Redis between the two readings of it, then what stands there was read from the
        database before the row was, and has that change too. So nothing came between: if they differ, one is wrong.
        """
        drain(self.index)
        before = self.read_redis(suspects)
        scores = self.read_database(suspects)
        in_flight = self.in_flight(suspects)
        after = self.read_redis(suspects)
        wrong: dict[bytes, Example] = {}
        moving: set[bytes] = set()
        for member, first, second in zip(suspects, before, after, strict=True):
            expected, found = scores.get(member), second.score
            if found == expected:
                continue
            if first != second or member in in_flight:
                moving.add(member)
            else:
                wrong[member] = Example(member.decode(errors="backslashreplace"), expected, found)
        return wrong, moving

    def judge(self, guilty: Mapping[bytes, Any], examples: Mapping[bytes, Example]) -> None:
        """Report what is wrong, and mend it where that is wanted."""
        for member in guilty:
            self.report.add(examples[member])
        if guilty and self.repair:
            self.mend(guilty)
            self.report.repaired += len(guilty) - len(self.look(guilty)[0])

    def mend(self, guilty: Mapping[bytes, Any]) -> None:
        """Leave a mark for each; but what no row can have is taken out: no mark could tell of it."""
        texts = (self.index.to_text(pk) for pk in guilty.values() if pk is not None)
        Mark.objects.using(self.using).bulk_create(Mark(index=self.index.name, member=text) for text in texts)
        impossible = [(member, None, b"") for member, pk in guilty.items() if pk is None]
        if impossible and self.store.apply_changes(self.store.begin_write(), impossible) is None:
            raise _Replaced
