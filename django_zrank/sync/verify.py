"""Comparing Redis with the database, member by member, while both go on changing."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from time import sleep
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.db import connections, transaction

from ..checks import check_redis
from ..conf import get_settings
from ..exceptions import CaptureError, IndexUnavailable
from ..models import Mark
from ..signals import drift_found
from ..store import Number, Store
from .drain import drain, waiting_marks
from .gauges import read_gauges
from .health import Verdict, examine
from .push import encode, read
from .triggers import captured, status
from .watch import sync

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["Capture", "Drift", "Example", "Report", "verify"]

BATCH_SIZE: Final = 2000
_EXAMPLES: Final = 5
_ATTEMPTS: Final = 3

_LOOKS: Final = 6
"""How often a suspect that keeps changing is looked at."""

_FEW: Final = 1000
"""How many waiting marks are told apart."""


class Example(NamedTuple):
    """One member that is wrong, with its score on either side, None where it has none."""

    member: str
    database: Number | None
    redis: float | None


@dataclass
class Drift:
    """Members that are wrong in the same way."""

    count: int = 0

    examples: list[Example] = field(default_factory=list)
    """The first few of them."""

    def add(self, example: Example) -> None:
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(example)


@dataclass(frozen=True)
class Capture:
    """What writes down changes of an index, and what is amiss with it."""

    mode: str
    """``triggers`` or ``signals``."""

    missing: list[str]
    """Triggers that aren't there, or are disabled: what they should see is lost."""

    outdated: list[str]
    """Triggers that watch what an older declaration of the index asked for."""

    unexpected: list[str]
    """Triggers of ours in this database that no index asks for. They cost, and do no harm."""

    error: str | None = None
    """Why the database can't have triggers at all."""

    @property
    def works(self) -> bool:
        return not (self.missing or self.outdated or self.error)


@dataclass
class Report:
    """What ``verify()`` found."""

    index: RankIndex

    capture: Capture

    waiting: int
    """Marks that waited when it began."""

    oldest: float
    """Seconds since the oldest of them was left, by the database's clock; 0 where none waited."""

    warnings: list[str]
    """Settings of Redis that endanger the index."""

    verdict: Verdict
    """Whether the index can be believed, when it ended."""

    mended: Verdict | None = None
    """Why the index could not be believed, until it was repaired."""

    compared: bool = False
    """Whether the members were compared. What can't be believed anyway is not."""

    rows: int = 0
    """Rows that the database ranks."""

    members: int = 0
    """Members in Redis."""

    missing: Drift = field(default_factory=Drift)
    """Ranked in the database, and not in Redis."""

    extra: Drift = field(default_factory=Drift)
    """In Redis, and not ranked in the database."""

    different: Drift = field(default_factory=Drift)
    """In Redis with another score."""

    unsettled: int = 0
    """Members that changed whenever they were looked at: neither right nor wrong."""

    repaired: int = 0
    """Of the missing, extra and different ones, how many are right now."""

    @property
    def drift(self) -> int:
        """How many members were found wrong."""
        return self.missing.count + self.extra.count + self.different.count

    @property
    def ok(self) -> bool:
        """Whether the index is right, as it is now, and can be expected to stay right."""
        believed = self.compared and self.verdict is Verdict.HEALTHY and self.capture.works
        return believed and self.drift == self.repaired


def verify(
    index: RankIndex,
    *,
    repair: bool = False,
    batch_size: int = BATCH_SIZE,
    progress: Callable[[int], Any] = lambda members: None,
) -> Report:
    """Compare what Redis holds of ``index`` with what the database ranks.

    Both sides pass through in batches: memory does not grow with their number, and no query or transaction is
    long. Whoever looks wrong is looked at again, so a change that is on its way is never taken for drift; for
    that, marks that wait are worked off. ``progress`` is called with the rows, then the members, of each
    batch. ``repair``: mend the index where it isn't healthy, and leave and work off a mark for every member
    that is wrong.

    Raises :exc:`~django_zrank.IndexUnavailable`, and ``TransactionManagementError`` inside a transaction,
    where an old snapshot might be read.
    """
    if connections[index.get_using()].in_atomic_block:
        raise transaction.TransactionManagementError("An index can't be verified inside a transaction.")
    found, gauges = examine(index), read_gauges(index)
    if repair:
        sync(index)
    for _ in range(_ATTEMPTS):
        report = Report(
            index,
            capture=examine_capture(index),
            waiting=gauges.waiting,
            oldest=gauges.oldest,
            warnings=list(_warnings(index)),
            verdict=examine(index),
        )
        with suppress(_Replaced):
            if report.verdict in (Verdict.HEALTHY, Verdict.BEHIND):
                _Comparison(report, repair, batch_size, progress).run()
                report.compared = True
            break
    else:
        raise IndexUnavailable(
            f"Index {index.name!r}: rebuilds or restarts came too often for it to be verified"
        )
    report.verdict = examine(index)
    if repair and report.verdict is not found:
        report.mended = found
    if report.drift:
        drift_found.send(
            index,
            missing=report.missing.count,
            extra=report.extra.count,
            different=report.different.count,
        )
    return report


def examine_capture(index: RankIndex) -> Capture:
    """Whether the triggers that ``index`` asks for are there."""
    using, mode = index.get_using(), get_settings().capture
    missing: list[str] = []
    outdated: list[str] = []
    try:
        if mode == "triggers":
            own = status(using, [index])
            missing, outdated = list(map(str, own.missing)), list(map(str, own.outdated))
        unexpected = status(using, captured(using)).unexpected
    except CaptureError as error:
        return Capture(mode, [], [], [], error=str(error))
    return Capture(mode, missing, outdated, list(map(str, unexpected)))


def _warnings(index: RankIndex) -> Iterator[str]:
    yield from (str(message.msg) for message in check_redis(None) if message.id == "zrank.W001")
    policy = None
    with suppress(IndexUnavailable):
        policy = Store(index.name).eviction_policy()
    if policy is None:
        yield "Redis's maxmemory-policy could not be read: make sure that it is none of allkeys-…"
    elif policy.startswith("allkeys"):
        yield f"Redis evicts keys when its memory is full (maxmemory-policy {policy}): use noeviction."


class _Replaced(Exception):
    """Another generation, or another server, has taken the place of what was being compared."""


class _Balance:
    """Whether Redis has members that were not found to be in both, as far as a few megabytes can tell.

    A hash of each member is added to one of a million cells when it is found in both, and subtracted when it
    is met in Redis. Where a cell is not zero again, it takes a closer look.
    """

    _CELLS: Final = 1 << 20
    _WRAP: Final = (1 << 64) - 1

    def __init__(self) -> None:
        self.cells = array("Q", bytes(8 * self._CELLS))

    def add(self, members: Iterable[bytes], sign: int = 1) -> None:
        cells, last, wrap = self.cells, self._CELLS - 1, self._WRAP
        for member in members:
            number = hash(member)
            cells[number & last] = (cells[number & last] + sign * number) & wrap

    def subtract(self, members: Iterable[bytes]) -> None:
        self.add(members, -1)

    def doubtful(self, members: Iterable[bytes]) -> list[bytes]:
        """Those of ``members`` whose cell isn't even."""
        cells, last = self.cells, self._CELLS - 1
        return [member for member in members if cells[hash(member) & last]]

    def __bool__(self) -> bool:
        return any(self.cells)


class _Comparison:
    """One pass over both sides."""

    def __init__(self, report: Report, repair: bool, batch_size: int, progress: Callable[[int], Any]) -> None:
        self.report = report
        self.repair = repair
        self.size = batch_size
        self.progress = progress
        self.index = report.index
        self.using = self.index.get_using()
        self.store = Store(self.index.name)
        self.generation = self.store.check_health().generation
        self.suspects: dict[bytes, Any] = {}

    def run(self) -> None:
        balance = _Balance()
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

    def look_up_rows(self, balance: _Balance) -> None:
        """Every row of the database in Redis: finds what is missing or different there."""
        for rows in self.pages():
            found = dict(zip(rows, self.store.scores(rows), strict=True))
            self.suspects.update((member, pk) for member, (pk, score) in rows.items() if found[member] != score)
            balance.add(member for member, score in found.items() if score is not None)
            self.report.rows += len(rows)
            self.settle(at_least=self.size)
        self.settle()

    def look_up_members(self, balance: _Balance) -> None:
        """Every doubtful member of Redis in the database: finds what is extra."""
        for members in self.store.scan(self.size):
            pks = {member: self.pk_of(member) for member in balance.doubtful(members)}
            expected = self.expected(pks)
            self.suspects.update((member, pk) for member, pk in pks.items() if expected.get(member) is None)
            self.settle(at_least=self.size)
        self.settle()

    def pages(self) -> Iterator[dict[bytes, tuple[Any, Number]]]:
        """Member -> (primary key, score), batch by batch, in the order of primary keys.

        Each batch is a query of its own: a long one would keep the database from clearing away old rows, and
        on some no other can run meanwhile.
        """
        rows = self.index.get_ranked().order_by("pk").values_list("pk", *self.index.ordering.paths)
        page = list(rows[: self.size])
        while page:
            yield {self.index.to_text(pk).encode(): (pk, score) for pk, score in encode(self.index, page)}
            self.progress(len(page))
            page = list(rows.filter(pk__gt=page[-1][0])[: self.size])

    def pk_of(self, member: bytes) -> Any:
        """The primary key of the row that ``member`` stands for; None where no row can have it."""
        try:
            pk = self.index.parse_pk(member.decode())
        except ValueError:
            return None
        if isinstance(pk, int) and pk.bit_length() > 63:  # which not every database takes in a query
            return None
        return pk if self.index.to_text(pk).encode() == member else None  # 007 is not 7

    def expected(self, pks: dict[bytes, Any]) -> dict[bytes, Number | None]:
        """The score of each member in the database now, None for what has no rank."""
        possible = (pk for pk in pks.values() if pk is not None)
        limit = min(self.size, connections[self.using].features.max_query_params or self.size)
        scores: dict[bytes, Number | None] = {}
        while chunk := list(islice(possible, limit)):
            scores.update((text.encode(), score) for text, score in read(self.index, chunk))
        return scores

    # Suspects

    def settle(self, at_least: int = 1) -> None:
        """Judge the suspects, if there are so many."""
        if len(self.suspects) < at_least:
            return
        pending, self.suspects = self.suspects, {}
        before: dict[bytes, Example] = {}
        for look in range(_LOOKS):
            if look:
                sleep(0.02 * 2**look)
            wrong, moving = self.look(pending)
            if not self.is_certain:
                # Nothing tells of a change that is on its way: who stays wrong for a while is wrong.
                moving |= {member for member, example in wrong.items() if before.get(member) != example}
                before = wrong
            self.count(
                {member: example for member, example in wrong.items() if member not in moving}, pending
            )
            pending = {member: pending[member] for member in moving}
            if not pending:
                return
        self.report.unsettled += len(pending)

    @property
    def is_certain(self) -> bool:
        """Whether every change leaves a mark with its commit."""
        return self.report.capture.mode == "triggers" and self.report.capture.works

    def look(self, suspects: dict[bytes, Any]) -> tuple[dict[bytes, Example], set[bytes]]:
        """Which ones are wrong, and which are just changing.

        Marks drained, Redis, database, marks, Redis again: the order is the proof. If no mark of a member
        waits after its row was read, what the row holds was written to Redis before; by the second reading of
        Redis at the latest. If no write came between the two readings of Redis, what it holds was read from
        the database before the row was. So both are of the same moment, and if they differ, one is wrong.
        """
        drain(self.index)
        before = self.read_redis(suspects)
        expected = self.expected(suspects)
        in_flight = self.in_flight(suspects)
        wrong: dict[bytes, Example] = {}
        moving: set[bytes] = set()
        for member, old, new in zip(suspects, before, self.read_redis(suspects), strict=True):
            score, _ = new
            if score == expected.get(member):
                continue
            if old != new or member in in_flight:
                moving.add(member)
            else:
                wrong[member] = Example(member.decode(errors="backslashreplace"), expected.get(member), score)
        return wrong, moving

    def read_redis(self, members: Iterable[bytes]) -> list[tuple[float | None, float | None]]:
        found = self.store.read_members(self.generation, members)
        if found is None:
            raise _Replaced
        return found

    def in_flight(self, suspects: Collection[bytes]) -> Collection[bytes]:
        """Members that a waiting mark is about, or may be."""
        marks = list(waiting_marks(self.index).order_by("id")[: _FEW + 1])
        if len(marks) > _FEW or any(mark.member is None or mark.via is not None for mark in marks):
            return suspects
        members: set[bytes] = set()
        for mark in marks:
            with suppress(ValueError):  # one that can't be worked off
                members.add(self.index.to_text(self.index.parse_pk(mark.member)).encode())
        return members

    def count(self, wrong: dict[bytes, Example], pks: dict[bytes, Any]) -> None:
        """Report members that are wrong, and mend them if that is wanted."""
        if not wrong:
            return
        for example in wrong.values():
            if example.redis is None:
                self.report.missing.add(example)
            elif example.database is None:
                self.report.extra.add(example)
            else:
                self.report.different.add(example)
        if self.repair:
            self.mend({member: pks[member] for member in wrong})
            still_wrong, _ = self.look({member: pks[member] for member in wrong})
            self.report.repaired += len(wrong) - len(still_wrong)

    def mend(self, wrong: dict[bytes, Any]) -> None:
        """Leave a mark for each. What no row can have is taken out: no mark could tell of it."""
        marks = [
            Mark(index=self.index.name, member=self.index.to_text(pk))
            for pk in wrong.values()
            if pk is not None
        ]
        Mark.objects.using(self.using).bulk_create(marks)
        impossible = [(member, None) for member, pk in wrong.items() if pk is None]
        if impossible and self.store.apply_changes(self.store.begin_write(), impossible) is None:
            raise _Replaced
