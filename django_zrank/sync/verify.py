"""Comparing Redis with the database, member by member, while both go on changing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from time import sleep
from typing import TYPE_CHECKING, Any, Final, TypeVar

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
from .overlap import ahead, overlap
from .push import begin, read
from .report import CaptureState, Example, Report
from .rows import Row, encode, select
from .sources import every_row
from .transactions import refuse_transaction
from .triggers import status
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

_MANY: Final = 100_000
"""How many members that stand where they shouldn't are remembered, to be told of together with what else is wrong."""

Found = TypeVar("Found")

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
            if report.verdict in (Verdict.HEALTHY, Verdict.BEHIND, Verdict.UNCAPTURED):
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
        own = status(using, [index])
    except CaptureError as error:
        return CaptureState(mode, error=str(error))
    return CaptureState(
        mode, list(map(str, own.missing)), list(map(str, own.outdated)), list(map(str, own.unexpected))
    )


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

    Where members have entries, Redis is first compared with itself: who stands in a ranking that the entry
    doesn't tell of is a stray. Every row is looked up in Redis: that finds what is missing or different. A
    :class:`Balance` of what was found there with what is there tells whether anything is extra; if so, it is looked
    for in the database.
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
        # Member -> the places where it stands against its entry: the name of a ranking, and the stored member.
        self.strays: dict[bytes, set[tuple[str, bytes]]] = {}

    def run(self) -> None:
        balance, layout = Balance(), self.store.layout
        if layout.entries:
            self.look_for_strays()
        self.look_up_rows(balance)
        for stored in ahead(self.store.scan(self.size)):
            members = list(map(self.member_of, stored)) if layout.entries else stored
            balance.subtract(members)
            self.report.members += len(members)
            self.progress(len(members))
        if balance:
            self.look_up_members(balance)
        if layout.entries:
            self.look_up_entries()
            self.accuse_strays()
        if layout.entries or layout.dense:
            self.check_rankings()
        health = self.store.check_health()
        if health.generation != self.generation or not health.is_accepted:
            raise _Replaced

    def look_up_rows(self, balance: Balance) -> None:
        for rows, standings in overlap(self.look_up, self.batches()):
            found: Iterable[bytes] = rows
            if standings is not None:
                pairs = list(zip(rows.items(), standings, strict=True))
                wrong = (
                    (member, pk)
                    for (member, (pk, score, entry)), standing in pairs
                    if not _stands(standing, (score, entry))
                )
                self.suspects.update(wrong)
                found = (member for (member, _), standing in pairs if standing.score is not None)
            balance.add(found)
            self.report.rows += len(rows)
            self.settle(at_least=self.size)
            self.progress(len(rows))
        self.settle()

    def look_up(self, rows: Mapping[bytes, Row]) -> list[Standing] | None:
        """Where the members of these rows stand. None where their scores are all there is, and right: nearly always."""
        if not self.store.layout.entries:
            scores = self.store.scores(rows)
            if scores == [score for _, score, _ in rows.values()]:
                return None
            return [Standing(score, None) for score in scores]
        return self.read_redis(rows, places=False)

    def batches(self) -> Iterator[dict[bytes, Row]]:
        """Each member that there should be, with its row."""
        to_text = self.index.to_text
        for page in self.pages():
            ranked = encode(self.index, page)
            while rows := {to_text(row[0]).encode(): row for row in islice(ranked, self.size)}:
                yield rows

    def pages(self) -> Iterator[list[tuple[Any, ...]]]:
        """Primary key and criteria of each row, some batches at a time, in the order of primary keys.

        Each page is a query of its own: a long one would keep the database from clearing away old rows, and
        with some drivers none could be asked meanwhile. Keys bound it at both ends: with a LIMIT, PostgreSQL
        joins other tables from their beginning each time. And it is larger than a batch, where it takes what it
        joins for small enough to be read whole each time.
        """
        rows = select(self.index)
        keys = every_row(self.index.model, self.using).order_by("pk").values_list("pk", flat=True)
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
        for stored in self.store.scan(self.size):
            members = map(self.member_of, stored)
            pks = {member: self.pk_of(member) for member in balance.uneven(members)}
            rows = self.read_database(pks)
            self.suspects.update((member, pk) for member, pk in pks.items() if member not in rows)
            self.settle(at_least=self.size)
        self.settle()

    # Redis against itself

    def look_for_strays(self) -> None:
        """Find who stands where the entry doesn't tell."""
        for name in ("", *self.names()):
            for stored in self.store.scan(self.size, name):
                places = [(name, each) for each in stored]
                for place, score in zip(places, self.find_strays(places), strict=True):
                    if score is not None:
                        self.strays.setdefault(self.member_of(place[1]), set()).add(place)
                if len(self.strays) > _MANY:
                    self.accuse_strays()

    def accuse_strays(self) -> None:
        """Those that no row has led to yet: they are otherwise right, or no row can be theirs."""
        for member in list(self.strays):
            self.suspects[member] = self.pk_of(member)
            self.settle(at_least=self.size)
        self.settle()
        self.strays.clear()

    def look_up_entries(self) -> None:
        """Find the entries of nobody: rows have not led to them."""
        for members in self.store.scan_entries(self.size):
            found = zip(members, self.read_redis(members, places=False), strict=True)
            pks = {member: self.pk_of(member) for member, standing in found if standing.score is None}
            rows = self.read_database(pks)
            self.suspects.update((member, pk) for member, pk in pks.items() if member not in rows)
            self.settle(at_least=self.size)
        self.settle()

    def check_rankings(self) -> None:
        """Names and counts. Each is judged by the script that looks at it, in one step: nothing comes between."""
        names = self.names()
        for start in range(0, len(names), self.size):
            batch = [name.encode() for name in names[start : start + self.size]]
            for name in self.believed(self.store.check_names(self.generation, batch, mend=self.repair)):
                self.tell_broken(Example(name.decode(), None, None, "name of a facet ranking"))
        for ranking in ("", *names) if self.store.layout.dense else ():
            told: set[bytes] = set()  # a value is met among members, counts and values
            for texts in self.store.scan(self.size, ranking):
                self.check_counts(ranking, texts, told, members=True)
            for texts in self.store.scan_values(self.size, ranking):
                self.check_counts(ranking, texts, told, members=False)

    def check_counts(self, ranking: str, texts: list[bytes], told: set[bytes], *, members: bool) -> None:
        found = self.store.check_counts(
            self.generation, texts, ranking=ranking, members=members, mend=self.repair
        )
        for value, right, counted in self.believed(found):
            if value not in told:
                label = f"{ranking} {value.decode(errors='backslashreplace')}".strip()
                self.tell_broken(
                    Example(label, right, int(counted) if counted.isdigit() else None, "count of a value")
                )
            if len(told) < _MANY:
                told.add(value)

    def tell_broken(self, example: Example) -> None:
        self.report.broken.add(example)
        self.report.repaired += self.repair

    def names(self) -> list[str]:
        """Of all facet rankings: those that there should be, that there are, and of which there are traces."""
        names = set(chain.from_iterable(self.store.scan_names(self.size)))
        return sorted(name.decode(errors="replace") for name in names)

    def member_of(self, stored: bytes) -> bytes:
        """The primary key in a stored member."""
        return self.store.layout.split(stored)[1]

    def find_strays(self, places: Sequence[tuple[str, bytes]], mend: bool = False) -> list[float | None]:
        return self.believed(self.store.find_strays(self.generation, places, mend=mend))

    @staticmethod
    def believed(found: list[Found] | None) -> list[Found]:
        """What the server says, if it still holds what is compared."""
        if found is None:
            raise _Replaced
        return found

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

    def read_database(self, pks: Mapping[bytes, Any]) -> dict[bytes, tuple[Number, bytes]]:
        """The score and the entry of each member that is ranked now."""
        asked = (pk for pk in pks.values() if pk is not None)
        limit = min(self.size, connections[self.using].features.max_query_params or self.size)
        rows: dict[bytes, tuple[Number, bytes]] = {}
        while chunk := list(islice(asked, limit)):
            found = read(self.index, chunk)
            rows.update((text.encode(), (score, entry)) for text, score, entry in found if score is not None)
        return rows

    def read_redis(self, members: Iterable[bytes], *, places: bool = True) -> list[Standing]:
        """Where each member stands; without ``places``, cheaper where members have no entries."""
        if not places and not self.store.layout.entries:
            return [Standing(score, None) for score in self.store.scores(members)]
        return self.believed(self.store.read_members(self.generation, members))

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
        rows = self.read_database(suspects)
        in_flight = self.in_flight(suspects)
        after = self.read_redis(suspects)
        places = [place for member in suspects for place in self.strays.get(member, ())]
        stray = dict(zip(places, self.find_strays(places), strict=True)) if places else {}
        wrong: dict[bytes, Example] = {}
        moving: set[bytes] = set()
        for member, first, second in zip(suspects, before, after, strict=True):
            expected = rows.get(member)
            astray = {
                name: score
                for place in self.strays.get(member, ())
                for name, score in [(place[0], stray[place])]
                if score is not None
            }
            if _stands(second, expected) and not astray:
                continue
            if first != second or member in in_flight:
                moving.add(member)
            else:
                wrong[member] = _example(member, expected, second, astray, self.store.layout.width)
        return wrong, moving

    def judge(self, guilty: Mapping[bytes, Any], examples: Mapping[bytes, Example]) -> None:
        """Report what is wrong, and mend it where that is wanted."""
        for member in guilty:
            self.report.add(examples[member])
        if guilty and self.repair:
            self.mend(guilty)
            self.report.repaired += len(guilty) - len(self.look(guilty)[0])
        for member in guilty:
            self.strays.pop(member, None)

    def mend(self, guilty: Mapping[bytes, Any]) -> None:
        """Leave a mark for each; but what no row can have is taken out: no mark could tell of it.

        Once the marks are worked off, entries are right: who stands elsewhere is taken out of there.
        """
        texts = (self.index.to_text(pk) for pk in guilty.values() if pk is not None)
        Mark.objects.using(self.using).bulk_create(Mark(index=self.index.name, member=text) for text in texts)
        impossible = [(member, None, b"") for member, pk in guilty.items() if pk is None]
        if impossible and self.store.apply_changes(begin(self.index, self.store), impossible) is None:
            raise _Replaced
        places = [place for member in guilty for place in self.strays.get(member, ())]
        if places:
            drain(self.index)
            self.find_strays(places, mend=True)


def _stands(found: Standing, expected: tuple[Number, bytes] | None) -> bool:
    """Whether a member stands where it should: ``expected`` is its score and entry, None if it isn't ranked."""
    if expected is None:
        return found.score is None and not found.entry
    return (found.score, found.entry) == expected and not found.absent


def _example(
    member: bytes,
    expected: tuple[Number, bytes] | None,
    found: Standing,
    astray: Mapping[str, float],
    width: int,
) -> Example:
    """A member that is wrong, and how."""
    score, entry = expected or (None, b"")
    tie, said = _names(entry, width)
    found_tie, names = _names(found.entry, width)
    stands = (names - set(found.absent.split(b"\0"))) | {name.encode() for name in astray if name}
    why = []
    if (found.score is not None and expected and tie != found_tie) or "" in astray:
        why.append("other tie bytes")
    if entry and not found.entry:
        why.append("no entry")
    if expected and (lacking := said - stands):
        why.append(f"not in {_list(lacking)}")
    if surplus := stands - said:
        why.append(f"also in {_list(surplus)}")
    there = found.score if found.score is not None else next(iter(astray.values()), None)
    return Example(member.decode(errors="backslashreplace"), score, there, "; ".join(why))


def _names(entry: bytes, width: int) -> tuple[bytes, set[bytes]]:
    """The tie bytes of an entry, and the names of its facet rankings."""
    length = width or (9 if entry.startswith(b"\0") else 0)
    return entry[:length], set(filter(None, entry[length:].split(b"\0")))


def _list(names: Iterable[bytes]) -> str:
    return ", ".join(sorted(name.decode(errors="backslashreplace") for name in names))
