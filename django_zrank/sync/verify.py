"""Comparison of Redis with the database, member by member, while both change.

By inclusion and cardinality: every row stands in Redis, with its score, in each ranking that its membership names; and
no ranking has more members than that. So both sides are equal, and nothing is remembered of members that are right.
If members were written meanwhile, sizes prove nothing: one may have left while another was too many. Then rankings are
read, too. What looks wrong is looked at again, as a push does it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from time import sleep
from typing import Any, Final, NamedTuple

from django.utils import timezone

from ..capture.triggers import TriggerReport, examine_capture
from ..capture.watched_tables import every_row
from ..codec.units import Number
from ..conf import get_settings
from ..declaration import Index
from ..exceptions import IndexUnavailable, IndexUnhealthy, NotBuilt, RebuildSuperseded
from ..extension import installed, timed
from ..iteration import batched
from ..queries.request import Call
from ..redis.isolation import sharing
from ..signals import drift_found
from ..store import BuiltRow, Replaced, Store
from ..transactions import PATIENCE, refuse_transaction
from .drain import drain
from .gauges import read_gauges
from .health import Status, examine
from .marks import leave, waiting_marks
from .push import read
from .rebuild import rebuild
from .rows import encode, key_parser, select
from .watch import sync

BATCH_SIZE: Final = 1000
"""Rows, or members, that are compared in one round trip; a quarter of that where members stand in facet rankings."""

_PAGE: Final = 10
"""The number of batches that one query of the database reads."""

_ATTEMPTS: Final = 3
"""The most attempts at a verification that rebuilds interrupt."""

_REMEMBERED: Final = 5000
"""The most members that wait for their second look. One of so many may be reported twice."""

_FEW: Final = 1000
"""The most wrong members that a repair pushes, and the most waiting marks that are matched with members."""

_BATCH: Final = 500
"""Members whose rows one statement reads, as SQLite may take no more than 999 parameters; rankings whose sizes are read
in one round trip."""

_TOGETHER: Final = 10
"""The number of members that are looked at in one round trip: each may stand in ``MAX_VALUES`` rankings."""

_LOOKS: Final = 6
"""The most looks at a member that keeps changing."""

_PAUSE: Final = 0.1
"""Seconds before the second look; the pause grows by as much for each further look."""

_EXAMPLES: Final = 5

_MEMBERSHIPS: Final = b"memberships"
"""Names the hash of memberships among the rankings. Those of facets have a colon; the whole index is called ``b""``."""

_Place = tuple[bytes, bytes]
"""The name of a ranking, and a stored member."""

_Row = tuple[Number, bytes]
"""The score and the membership that a row gives its member."""


class Example(NamedTuple):
    """A wrong member with its scores on both sides, None for no score; or another error, with its counts."""

    member: str
    database: Number | None = None
    redis: float | None = None

    why: str = ""
    """Other errors, such as facet rankings that it is missing from, or wrongly in."""


@dataclass
class Drift:
    """Members that are wrong in the same way, and the first few of them."""

    count: int = 0
    examples: list[Example] = field(default_factory=list)

    def add(self, example: Example) -> None:
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(example)


@dataclass
class Report:
    """The comparison of an index with its database."""

    index: Index
    capture: TriggerReport

    waiting: int
    """Marks that waited at the beginning."""

    oldest: float
    """Age of the oldest in seconds, by the database's clock; 0 if none waited."""

    warnings: Sequence[str]
    """Settings of Redis that endanger the index."""

    status: Status
    status_before: Status | None = None

    compared: bool = False
    """True if members were compared, which takes an index that can be trusted."""

    rows: int = 0
    """Rows that the database ranks."""

    members: int = 0
    """Members in Redis."""

    missing: Drift = field(default_factory=Drift)
    """Ranked in the database, and not in Redis."""

    extra: Drift = field(default_factory=Drift)
    """In Redis, and not ranked in the database."""

    different: Drift = field(default_factory=Drift)
    """In Redis with another score, other tie bytes or attached values, or in other facet rankings."""

    broken: Drift = field(default_factory=Drift)
    """Names of facet rankings, and what is kept beside rankings, that are inconsistent within Redis."""

    repaired: int = 0
    """The number of these that were repaired."""

    unsettled: int = 0
    """Members that changed each time they were compared."""

    @property
    def drifts(self) -> dict[str, Drift]:
        """The errors found, by their kind."""
        return {kind: getattr(self, kind) for kind in ("missing", "extra", "different", "broken")}

    @property
    def drift(self) -> int:
        """The number of errors found."""
        return sum(drift.count for drift in self.drifts.values())

    @property
    def ok(self) -> bool:
        """True if the index is right now, and can be expected to stay right."""
        is_trusted = self.compared and self.status is Status.HEALTHY
        return is_trusted and self.capture.works and self.drift == self.repaired


def verify(
    index: Index,
    *,
    repair: bool = False,
    batch_size: int = BATCH_SIZE,
    progress: Callable[[int], Any] = lambda members: None,
) -> Report:
    """Compare what Redis holds of ``index`` with what the database ranks.

    Rows are read in batches: memory doesn't grow with their number, and no query, transaction or call to Redis is long.
    Members that look wrong are checked again, so that a change on its way isn't reported as drift; for that, marks that
    wait are drained, and changes that began in Redis are written to their rows. ``progress`` is called with the number
    of rows of each batch.
    ``repair``: repair an index that isn't healthy; mark and drain the members that are wrong, or rebuild the index if
    that is not enough.

    Raises :exc:`~django_zrank.IndexUnavailable`; ``RebuildSuperseded`` if ``repair`` takes a rebuild and another one
    is running; and ``TransactionManagementError`` inside a transaction, where an old snapshot might be read.
    """
    refuse_transaction(index.get_using(), "A verification")
    found, gauges = examine(index), read_gauges(index)
    former = {store: store.learn().build for store in map(Store.of, index.holders)} if repair else {}
    if repair:
        sync(index)
    for _ in range(_ATTEMPTS):
        report = Report(
            index,
            capture=examine_capture(index),
            waiting=gauges.waiting,
            oldest=gauges.oldest,
            warnings=list(_warnings(index)),
            status=examine(index),
        )
        # A health check looks at some facet rankings only: this one may find what an earlier one missed.
        if repair and report.status is Status.EVICTED:
            found = report.status
            rebuild(index, polite=True)
            continue
        with timezone.override(None), suppress(Replaced, IndexUnhealthy, NotBuilt, RebuildSuperseded):
            if report.status in (Status.HEALTHY, Status.BEHIND, Status.TRIGGERS_MISSING):
                _compare(report, batch_size, progress, repair=repair)
                report.compared = True
            break
    else:
        raise IndexUnavailable(f"Index {index.name!r} was rebuilt too often to be verified")
    if report.compared:  # otherwise the status is the reason why they were not
        if repair and examine(index).wants_rebuild:  # a push has shown that a ranking was evicted meanwhile
            sync(index)
        report.status = examine(index)
    for store, build in former.items():
        if build and store.learn().build != build:
            store.unlink_all(build)  # keys that nothing names
    if repair and found is not Status.HEALTHY and report.status is Status.HEALTHY:
        report.status_before = found
    if report.drift:
        members = {kind: report.drifts[kind].count for kind in ("missing", "extra", "different")}
        drift_found.send_robust(index, **members)
    return report


def _warnings(index: Index) -> Iterator[str]:
    if warning := sharing(get_settings().redis_alias):
        yield warning
    policy = None
    with suppress(IndexUnavailable):
        policy = Store.of(index).eviction_policy()
    if policy is None:
        yield "Redis's maxmemory-policy could not be read: make sure that it is none of allkeys-*."
    elif policy.startswith("allkeys"):
        yield f"Redis evicts any key when its memory is full (maxmemory-policy {policy}): set noeviction."


def _compare(report: Report, size: int, progress: Callable[[int], Any], *, repair: bool) -> None:
    index = report.index
    comparisons = {holder: _Comparison(holder, report) for holder in index.holders}
    for rows in _rows(index, size):
        for holder, own in index.place(rows).items():
            comparisons[holder].include({member: rows[member] for member in own})
        report.rows += len(rows)
        progress(len(rows))
    for one in comparisons.values():
        one.check_names()
        one.settle()
    for one in comparisons.values():
        one.require_same()
    if not (repair and report.drift):
        return
    # Push the members that are wrong, if they are few; make a new build of many, or of what no push repairs.
    pks = [one.pk_of(member) for one in comparisons.values() for member in one.wrong if one.is_own(member)]
    is_repaired = False
    if len(pks) == report.drift <= _FEW and None not in pks:
        leave(index, pks)
        looks = [one.look(one.wrong) for one in comparisons.values() if one.wrong]
        is_repaired = all(wrong.keys() <= moving for wrong, moving in looks)
    if not is_repaired:
        rebuild(index, polite=True)
    report.repaired = report.drift


def _rows(index: Index, size: int) -> Iterator[dict[bytes, _Row]]:
    """Yield the members that there should be, in batches. Those of a page that stand in the same facet rankings come
    together: a batch asks few of these, by one command each, and many commands would take most of the time.

    Each page is a query of its own: a long one would keep the database from removing old rows, and some drivers allow
    no other query meanwhile. Keys bound it at both ends: with a LIMIT, PostgreSQL joins other tables from their
    beginning each time. And it is larger than a batch, for which PostgreSQL would read each joined table whole, because
    it expects it to be small.
    """
    selected, page = select(index), size * _PAGE
    keys = every_row(index.model, index.get_using()).order_by("pk").values_list("pk", flat=True)
    layout = index.layout
    size = max(1, size // 4) if layout.memberships else size
    bounds: dict[str, Any] = {}
    while True:
        # The last key of a full page; none if there are fewer.
        ends = list(keys.filter(**bounds)[page - 1 : page])
        rows = selected.filter(**bounds, **({"pk__lte": ends[0]} if ends else {}))
        built: Iterable[BuiltRow] = encode(index, list(rows))
        if layout.memberships:
            built = sorted(built, key=lambda row: layout.names_of(row[2]))
        for batch in batched(built, size):
            yield {text.encode(): (score, membership) for text, score, membership in batch}
        if not ends:
            break
        bounds = {"pk__gt": ends[0]}


class _Comparison:
    """The comparison of what an index holds, while Redis holds the same build as at the beginning."""

    def __init__(self, holder: Index, report: Report) -> None:
        self.holder, self.index, self.report = holder, report.index, report
        self.store, self.layout = Store.of(holder), holder.layout
        health = self.store.check_health()
        self.build, self.applied = health.build, health.applied
        self.keys = self.store.keys.at(self.build)
        self.parse_key = key_parser(self.index)

        self.tally: Counter[bytes] = Counter()
        """Members that rows have led to, by the ranking that they stand in."""

        self.suspects: dict[bytes, set[_Place]] = {}
        """Members that look wrong, with places where they were found and shouldn't be."""

        self.wrong: dict[bytes, set[_Place]] = {}
        """The first of those that are."""

    def require_same(self) -> None:
        """Raise ``Replaced`` if another build or server took its place."""
        health = self.store.check_health()
        if health.build != self.build or not health.is_trusted:
            raise Replaced

    def was_written(self) -> bool:
        """Return True if any member was written since the beginning."""
        return self.store.check_health().applied != self.applied

    def call(self, command: str, name: bytes, *members: bytes) -> Call:
        """Return a call about a ranking, or about memberships by the command of a hash. Keys are bytes, because names
        are found that are no text."""
        if name == _MEMBERSHIPS:
            command = {"ZMSCORE": "HMGET", "ZCARD": "HLEN"}[command]
        key: Any = b":".join(filter(None, (self.keys.root.encode(), name)))
        return Call(command, (key,), members)

    def scan(self, name: bytes) -> Iterator[list[bytes]]:
        (key,) = self.call("ZCARD", name).keys
        return self.store.scan("HSCAN" if name == _MEMBERSHIPS else "ZSCAN", key)

    def places(
        self, member: bytes, score: Any, membership: bytes | None
    ) -> Iterator[tuple[bytes, bytes, Any]]:
        """Yield where a member stands that has this score and membership: the ranking, the stored member, the value."""
        if not self.layout.memberships:
            yield b"", member, score
            return
        tie, _ = self.layout.split(membership or b"")
        stored, names = tie + member, self.layout.names_of(membership or b"")
        yield _MEMBERSHIPS, member, membership or None
        yield b"", stored, score
        if names:
            for name in names.split(b"\0"):
                yield name, stored, score

    def all_places(self, rows: Mapping[bytes, _Row]) -> Mapping[bytes, tuple[list[bytes], list[Any]]]:
        """Return the :meth:`places` of all these members: by ranking, the stored members and their values. Of members
        that stand in the same facet rankings, one after the other, these are looked up once."""
        if not self.layout.memberships:
            return {b"": ([*rows], [score for score, _ in rows.values()])} if rows else {}
        split, names_of = self.layout.split, self.layout.names_of
        found: defaultdict[bytes, tuple[list[bytes], list[Any]]] = defaultdict(lambda: ([], []))
        for names, group in groupby(rows.items(), lambda item: names_of(item[1][1])):
            own = list(group)
            stored = [split(membership)[0] + member for member, (_, membership) in own]
            scores = [score for _, (score, _) in own]
            own_places: dict[bytes, tuple[list[bytes], list[Any]]] = dict.fromkeys(
                [b"", *filter(None, names.split(b"\0"))], (stored, scores)
            )
            memberships = [membership or None for _, (_, membership) in own]
            own_places[_MEMBERSHIPS] = [member for member, _ in own], memberships
            for name, (each, values) in own_places.items():
                all_stored, all_values = found[name]
                all_stored += each
                all_values += values
        return found

    # The first look

    def include(self, rows: Mapping[bytes, _Row]) -> None:
        """Count the members that stand where their rows say, and suspect the others."""
        wanted = self.all_places(rows)
        replies = self.store.read([self.call("ZMSCORE", name, *each) for name, (each, _) in wanted.items()])
        for (name, (each, values)), found in zip(wanted.items(), replies, strict=True):
            self.tally[name] += len(found) - found.count(None)
            if found != values:
                for stored, value, there in zip(each, values, found, strict=True):
                    if value != there:
                        self.suspect(self.member_of(name, stored))

    def check_names(self) -> None:
        """Compare the sizes of all rankings: registered, that rows have led to, or found as keys. Report those that are
        registered without a ranking, or the other way round, and keys of nothing."""
        names, below = {b"", *self.tally}, self.keys.below.encode()
        if self.layout.memberships:
            names.add(_MEMBERSHIPS)
            suffixes = {*map(str.encode, self.layout.keeper.suffixes)}
            for registered in self.store.scan("ZSCAN", self.keys.rankings):
                names.update(registered)
            for key in (key for keys in self.store.scan_keys(self.keys.below) for key in keys):
                # Values have no plain colon, so what follows a second one is beside the ranking.
                name = key.removeprefix(below)
                ranking, _, beside = name.rpartition(b":")
                if name.count(b":") == 1:
                    names.add(name)
                elif b":" + beside in suffixes:
                    names.add(ranking)
                elif name not in (_MEMBERSHIPS, b"rankings"):
                    self.report.broken.add(Example(_text(name), why="key of no ranking"))
        for piece in batched(sorted(names), _BATCH):
            calls = [
                Call("ZMSCORE", (self.keys.rankings,), piece),
                *(self.call("ZCARD", name) for name in piece),
            ]
            registered, *sizes = self.store.read(calls, atomic=True)
            was_written = self.was_written()
            for name, score, size in zip(piece, registered, sizes, strict=True):
                if score != (0 if size and name not in (b"", _MEMBERSHIPS) else None):
                    self.report.broken.add(Example(_text(name), why="name of a facet ranking"))
                if was_written or size != self.tally[name]:
                    for page in self.scan(name):
                        self.suspect_strays(name, page)
                if name == b"":
                    self.report.members += size
                if name != _MEMBERSHIPS:
                    self.check_beside(name, size)

    def suspect_strays(self, name: bytes, page: list[bytes]) -> None:
        """Suspect those in a page of a ranking whose membership doesn't name it, or who have neither that nor a row;
        of the memberships, those without a row."""
        members = [self.member_of(name, stored) for stored in page]
        plain = members
        if self.layout.memberships and name != _MEMBERSHIPS and members:
            plain = []
            (memberships,) = self.store.read([self.call("ZMSCORE", _MEMBERSHIPS, *members)])
            for member, stored, membership in zip(members, page, memberships, strict=True):
                if (name, stored, 0) not in self.places(member, 0, membership):
                    self.suspect(member, (name, stored))
                elif not membership:
                    plain.append(member)
        rows = self.read_rows(plain)
        for member in plain:
            if member not in rows:
                self.suspect(member)

    def check_beside(self, name: bytes, size: int) -> None:
        """Report what is kept wrongly beside a ranking, for its ranks."""
        check = self.layout.keeper.check
        for what, right, kept, why in check(self.store, self.build, name, size, self.was_written):
            label = f"{_text(name)} {_text(what)}".strip()
            self.report.broken.add(Example(label, right, kept, why))

    # The second look

    def suspect(self, member: bytes, place: _Place | None = None) -> None:
        places = self.suspects.setdefault(member, set())
        if place:
            places.add(place)
        if len(self.suspects) * len(self.index.holders) >= _REMEMBERED:
            self.settle()

    def settle(self) -> None:
        """Look at the suspects again, and report those that are wrong."""
        suspects, self.suspects = self.suspects, {}
        # With triggers, marks tell which changes are on their way. Otherwise, and where ranks depend on the time, what
        # stays wrong for a while is wrong.
        capture = self.report.capture
        certain = capture.mode == "triggers" and capture.works and not timed(self.index)
        for batch in batched(suspects.items(), _BATCH):
            waiting, before = dict(batch), dict[bytes, Example]()
            for look in range(_LOOKS):
                sleep(_PAUSE * look)
                wrong, moving = self.look(waiting)
                if not certain:
                    moving |= {member for member in wrong if before.get(member) != wrong[member]}
                    before = wrong
                for member in [member for member in wrong if member not in moving]:
                    self.add(wrong[member])
                    if len(self.wrong) <= _FEW:
                        self.wrong[member] = waiting[member]
                waiting = {member: waiting[member] for member in moving}
                if not waiting:
                    break
            self.report.unsettled += len(waiting)

    def look(self, suspects: Mapping[bytes, set[_Place]]) -> tuple[dict[bytes, Example], set[bytes]]:
        """Return the suspects that are wrong, and those of them that are just changing.

        The order of the reads matters: Redis, the row, marks, Redis again. If no mark waits for a member, every change
        in its row has been written to Redis; if none is on its way, so has every change
        that began in Redis to the row; and if it wasn't written between the two reads of Redis, both sides are of the
        same state of the row.
        """
        for one in installed().values():
            one.work(self.index, limit=None, patience=PATIENCE, skip_locked=True)
        drain(self.index)
        before = dict(
            zip(suspects, self.states(self.store.read(self.state(suspects)), len(suspects)), strict=True)
        )
        rows, marked = self.read_rows(suspects), self.marked(suspects)
        wrong, moving = dict[bytes, Example](), set[bytes]()
        for few in batched(suspects, _TOGETHER):
            wanted: dict[bytes, dict[_Place, Any]] = {}
            for member in few:
                _, membership, *_ = before[member]
                row = self.places(member, *rows[member]) if member in rows else ()
                named = [(name, stored) for name, stored, _ in self.places(member, None, membership)]
                wanted[member] = dict.fromkeys([*named, *suspects[member]])
                wanted[member] |= {(name, stored): value for name, stored, value in row}
            lookups = [self.call("ZMSCORE", *place) for each in wanted.values() for place in each]
            replies = self.store.read([*lookups, *self.state(few)], atomic=True)
            values = iter(replies[: len(lookups)])
            found = {member: {place: next(values)[0] for place in each} for member, each in wanted.items()}
            states = self.states(replies[len(lookups) :], len(few))
            for member, state in zip(few, states, strict=True):
                if found[member] != wanted[member]:
                    wrong[member] = self.example(member, rows.get(member), wanted[member], found[member])
                    if before[member] != state or None in state[2:] or member in marked:
                        moving.add(member)
        return wrong, moving

    def state(self, members: Iterable[bytes]) -> list[Call]:
        """Return the calls that show if members are written: the versions of their newest writes, their memberships,
        and what extensions need to tell if changes are on their way."""
        keys, members = self.keys, list(members)
        return [
            Call("ZMSCORE", (keys.recent,), members),
            Call("HMGET", (keys.memberships,), members),
            *(call for one in installed().values() for call in one.state(keys, members)),
        ]

    def states(self, replies: Sequence[Any], members: int) -> list[tuple[Any, ...]]:
        """Return the state of each of so many members, from the replies to :meth:`state`. Beyond the first two values,
        it has a None if changes of the member are on their way."""
        versions, memberships, *others = replies
        further: list[list[Any]] = []
        for one in installed().values():
            size = len(one.state(self.keys, ()))
            further.append(one.settled(others[:size], members))
            del others[:size]
        return list(zip(versions, memberships, *further, strict=True))

    def member_of(self, name: bytes, stored: bytes) -> bytes:
        return stored if name == _MEMBERSHIPS else self.layout.split(stored)[1]

    def is_own(self, member: bytes) -> bool:
        """Return True if a member is held here."""
        return self.index.holder_of(member) is self.holder

    def pk_of(self, member: bytes) -> Any:
        """Return the primary key of a member's row, None if no row can have it."""
        with suppress(UnicodeDecodeError):
            pk = self.parse_key(member.decode())
            if pk is not None and self.index.to_text(pk).encode() == member:  # 007 is not 7
                return pk
        return None

    def read_rows(self, members: Iterable[bytes]) -> dict[bytes, _Row]:
        """Return the score and the membership of each of these members that are held here, and that the database ranks
        now."""
        pks = (pk for member in members if self.is_own(member) and (pk := self.pk_of(member)) is not None)
        return {
            text.encode(): (score, membership)
            for batch in batched(pks, _BATCH)
            for text, score, membership in read(self.index, batch)
            if score is not None
        }

    def marked(self, members: Collection[bytes]) -> Collection[bytes]:
        """Return the members that a waiting mark may lead to."""
        marks = waiting_marks(self.index).order_by("id").values_list("via", "member")[: _FEW + 1]
        named = [None if via is not None else member for via, member in marks]
        if len(named) > _FEW or None in named:
            return members
        pks = map(self.parse_key, named)  # None for one that can't be processed
        return {self.index.to_text(pk).encode() for pk in pks if pk is not None}

    def add(self, example: Example) -> None:
        report = self.report
        is_missing = report.missing if example.redis is None else report.different
        (report.extra if example.database is None else is_missing).add(example)

    def example(
        self, member: bytes, row: _Row | None, expected: Mapping[_Place, Any], there: Mapping[_Place, Any]
    ) -> Example:
        """Return what is wrong with a member, given the values that were expected, and found, at places."""
        ranked = {
            place: value for place, value in there.items() if value is not None and place[0] != _MEMBERSHIPS
        }
        surplus = {place: value for place, value in ranked.items() if expected[place] is None}
        # Its score in the whole index, perhaps with other tie bytes; otherwise one of a place where it shouldn't be.
        whole = [ranked[place] for place in sorted(ranked, key=surplus.__contains__) if not place[0]]
        score = next(iter([*whole, *surplus.values()]), None)
        lacking = {
            place[0]
            for place, value in expected.items()
            if value is not None and (score is None or ranked.get(place) != score)
        } - {b"", _MEMBERSHIPS}
        also = {name for name, _ in surplus}
        reasons = []
        if not self.is_own(member):
            reasons.append(f"in {self.holder.name}, which doesn't hold it")
        if row and also & {*lacking, b""}:
            reasons.append("other tie-breakers")
        if row and row[1]:
            held, attachment_of = there[_MEMBERSHIPS, member], self.layout.attachment_of
            if held is None:
                reasons.append("no record of its facets")
            elif attachment_of(held) != attachment_of(row[1]):
                reasons.append("other attached values")
        for what, names in (("not in", lacking - also), ("also in", also - lacking - {b""})):
            if names:
                reasons.append(f"{what} {', '.join(sorted(map(_text, names)))}")
        return Example(_text(member), row and row[0], score, "; ".join(reasons))


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")
