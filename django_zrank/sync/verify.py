"""Comparison of Redis with the database, member by member, while both change.

By inclusion and cardinality: every row stands in Redis, with its score, in each ranking that its membership names; and
no ranking has more members than that. So both sides are equal, and nothing is remembered of members that are right.
If members were written meanwhile, sizes prove nothing: one may have left while another was too many. Then rankings are
read, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import sleep
from typing import Any, Final, NamedTuple, TypeVar

from django.utils import timezone

from ..codec.units import Number
from ..conf import get_settings
from ..exceptions import IndexUnavailable, IndexUnhealthy, NotBuilt, RebuildSuperseded
from ..index import RankIndex
from ..members import batched
from ..queries.query import Query, drive, together
from ..queries.request import Call, Request
from ..redis.isolation import sharing
from ..signals import drift_found
from ..store import Replaced, Store
from .drain import drain
from .gauges import read_gauges
from .health import Verdict, examine
from .idle import sweep
from .marks import leave, waiting_marks
from .push import read
from .rebuild import rebuild
from .rows import encode, parse_key, select
from .transactions import refuse_transaction
from .triggers import Status, examine_capture
from .watch import sync
from .watched_tables import every_row

__all__ = ["Drift", "Example", "Report", "verify"]

BATCH_SIZE: Final = 1000
"""Rows, or members, that are compared in one round trip; a quarter of that where members stand in facet rankings."""

_PAGE: Final = 10
"""The number of batches that one query of the database reads."""

_ATTEMPTS: Final = 3
"""The most attempts at a verification that rebuilds interrupt."""

_REMEMBERED: Final = 5000
"""The most members that wait for their second look. One of so many may be reported twice."""

_PUSHED: Final = 1000
"""The most wrong members that a repair pushes; of more, it makes a new build."""

_BATCH: Final = 500
"""Members whose rows one statement reads: SQLite may take no more than 999 parameters."""

_FEW: Final = 1000
"""The most waiting marks that are matched with members."""

_KEYS: Final = 250
"""The number of keys that are looked up in one round trip."""

_TOGETHER: Final = 10
"""The number of members that are looked at in one round trip: each may stand in ``MAX_VALUES`` rankings."""

_LOOKS: Final = 6
"""The most looks at a member that keeps changing."""

_PAUSE: Final = 0.1
"""Seconds before the second look; the pause grows by as much for each further look."""

_EXAMPLES: Final = 5

_MERGED: Final[Mapping[str, Callable[[Any, int], Any]]] = {
    "sum": lambda score, change: score + change,
    "max": max,
    "min": min,
    "last": lambda score, change: change,
}
"""A score after a pending change, by the rule of the index, as in ``lib/pending.lua``."""

_Answer = TypeVar("_Answer")

Place = tuple[bytes, bytes]
"""The name of a facet ranking, empty for the whole index, and a stored member."""

SortKeyed = tuple[Number, bytes]
"""The score and the membership that a row gives its member."""

_Suspect = tuple["_Shard", bytes]
"""A member, and the shard in which it looks wrong."""


class Example(NamedTuple):
    """A wrong member with its scores on both sides, None for no score; or another error, with its counts."""

    member: str
    database: Number | None
    redis: float | None

    why: str = ""
    """Other errors, such as facet rankings that it is missing from, or wrongly in."""


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


@dataclass
class Report:
    """The comparison of an index with its database."""

    index: RankIndex
    capture: Status

    waiting: int
    """Marks that waited at the beginning."""

    oldest: float
    """Age of the oldest in seconds, by the database's clock; 0 if none waited."""

    warnings: Sequence[str]
    """Settings of Redis that endanger the index."""

    verdict: Verdict
    verdict_before: Verdict | None = None

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
    """In Redis with another score, other tie bytes, or in other facet rankings."""

    broken: Drift = field(default_factory=Drift)
    """Names of facet rankings, and counts of distinct values, that are inconsistent within Redis."""

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
        is_trusted = self.compared and self.verdict is Verdict.HEALTHY
        return is_trusted and self.capture.works and self.drift == self.repaired

    def add(self, example: Example) -> None:
        if example.database is None:
            self.extra.add(example)
        elif example.redis is None:
            self.missing.add(example)
        else:
            self.different.add(example)


def verify(
    index: RankIndex,
    *,
    repair: bool = False,
    batch_size: int = BATCH_SIZE,
    progress: Callable[[int], Any] = lambda members: None,
) -> Report:
    """Compare what Redis holds of ``index`` with what the database ranks.

    Rows are read in batches: memory doesn't grow with their number, and no query, transaction or call to Redis is long.
    Members that look wrong are checked again, so that a change on its way isn't reported as drift; for that, marks that
    wait are drained. ``progress`` is called with the number of rows of each batch. ``repair``: repair an index that
    isn't healthy; mark and drain the members that are wrong, or rebuild the index if that is not enough.

    Raises :exc:`~django_zrank.IndexUnavailable`; ``RebuildSuperseded`` if ``repair`` takes a rebuild and another one
    is running; and ``TransactionManagementError`` inside a transaction, where an old snapshot might be read.
    """
    refuse_transaction(index.get_using(), "A verification")
    found, gauges = examine(index), read_gauges(index)
    former = {store: store.learn().generation for store in map(Store.of, index.parts)} if repair else {}
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
        # A health check looks at some facet rankings only: this one may find what an earlier one missed.
        if repair and report.verdict is Verdict.EVICTED:
            found = report.verdict
            rebuild(index, polite=True)
            continue
        with timezone.override(None), suppress(Replaced, IndexUnhealthy, NotBuilt, RebuildSuperseded):
            if report.verdict in (Verdict.HEALTHY, Verdict.BEHIND, Verdict.UNCAPTURED):
                _Comparison(report, batch_size, progress).run(repair=repair)
                report.compared = True
            break
    else:
        raise IndexUnavailable(f"Index {index.name!r} was rebuilt too often to be verified")
    if report.compared:  # otherwise the verdict is the reason why they were not
        if repair and examine(index).wants_rebuild:  # the repair has shown that a key was evicted
            sync(index)
        report.verdict = examine(index)
    for store, generation in former.items():
        if generation and store.learn().generation != generation:
            store.unlink_all(generation)  # keys that nothing names
    if repair and found is not Verdict.HEALTHY and report.verdict is Verdict.HEALTHY:
        report.verdict_before = found
    if report.drift:
        drift_found.send(
            index,
            missing=report.missing.count,
            extra=report.extra.count,
            different=report.different.count,
        )
    return report


def _warnings(index: RankIndex) -> Iterator[str]:
    if warning := sharing(get_settings().redis_alias):
        yield warning
    policy = None
    with suppress(IndexUnavailable):
        policy = Store.of(index).eviction_policy()
    if policy is None:
        yield "Redis's maxmemory-policy could not be read: make sure that it is none of allkeys-*."
    elif policy.startswith("allkeys"):
        yield f"Redis evicts any key when its memory is full (maxmemory-policy {policy}): set noeviction."


class _Shard:
    """A part of the index, while Redis holds the same generation as at the beginning."""

    def __init__(self, part: RankIndex) -> None:
        self.part, self.store, self.layout = part, Store.of(part), part.layout
        health = self.store.check_health()
        self.generation, self.applied = health.generation, health.applied
        self.keys = self.store.keys.at(self.generation)

        self.tally: Counter[bytes] = Counter()
        """Members that rows have led to, by the ranking that they stand in."""

        self.memberships = 0
        """Members that rows have led to, and that have a membership."""

    def ranking(self, name: bytes, part: bytes = b"") -> Any:
        """Return the key of a ranking, or of what is beside it: ``values`` or ``counts``. In bytes, as names are found
        that are no text."""
        return b":".join(filter(None, (self.keys.root.encode(), name, part)))

    def places(self, member: bytes, membership: bytes) -> Iterator[Place]:
        """Yield where a member stands that has this membership."""
        tie, names = self.layout.split(membership)
        yield b"", tie + member
        for name in filter(None, names.split(b"\0")):
            yield name, tie + member

    def was_written(self) -> bool:
        """Return True if any member was written since the beginning."""
        return self.store.check_health().applied != self.applied

    def require_same(self) -> None:
        """Raise ``Replaced`` if another generation or server took its place."""
        health = self.store.check_health()
        if health.generation != self.generation or not health.is_accepted:
            raise Replaced

    def state(self, member: bytes) -> list[Call]:
        """Return the calls that show if a member is written: the version of its newest write, and its membership."""
        newest = Call("ZMSCORE", (self.keys.recent,), (member,))
        return [self.flushes(), newest, Call("HMGET", (self.keys.memberships,), (member,))]

    def read_state(self, member: bytes) -> Query[list[Any]]:
        found: list[Any] = yield Request(self.state(member))
        return found

    # Pending scores

    def flushes(self) -> Call:
        """Return the call that reads which flushes are kept, and the rule of what is pending."""
        return Call("HMGET", (self.keys.meta,), ("taken", "kept", "rule"))

    def pending(self, flushes: Sequence[bytes | None], members: Sequence[bytes]) -> list[Call] | None:
        """Return the calls that read the changes which the rows lack that were read last; None if they are not kept."""
        flushed = self.store.flushed or 0
        taken, kept = (int(number or 0) for number in flushes[:2])
        if not self.store.rule or not members:
            return []
        if flushed + 1 < kept:
            return None
        carried = (self.keys.carried(number) for number in range(flushed + 1, taken + 1))
        return [Call("HMGET", (key,), members) for key in (*carried, self.keys.pending)]

    def with_pending(
        self,
        rows: Mapping[bytes, SortKeyed],
        flushes: Sequence[bytes | None],
        found: Iterable[Sequence[bytes | None]],
    ) -> dict[bytes, SortKeyed]:
        """Return rows with the pending changes that were found of each. No change leads to a score that needs tie bytes
        to be exact."""
        merge = _MERGED.get((flushes[2] or b"").decode() or self.store.rule)
        merged = dict(rows)
        for changes in found:
            for member, change in zip(rows, changes, strict=True):
                score, membership = merged[member]
                if merge and change is not None and membership[:1] != b"\0":
                    merged[member] = merge(score, int(change)), membership
        return merged


class _Comparison:
    """One comparison. What looks wrong is remembered, and looked at again as a push does it."""

    def __init__(self, report: Report, size: int, progress: Callable[[int], Any]) -> None:
        self.report, self.index, self.progress = report, report.index, progress
        self.using, self.layout = self.index.get_using(), self.index.layout
        self.shards = {part: _Shard(part) for part in self.index.parts}
        self.stores = [shard.store for shard in self.shards.values()]
        self.size = max(1, size // 4) if self.layout.memberships else size
        self.page = size * _PAGE

        self.suspects: dict[_Suspect, set[Place]] = {}
        """Members that look wrong in a shard, with places where they were found and shouldn't be."""

        self.wrong: dict[_Suspect, set[Place]] = {}
        """The first of those that are."""

    def run(self, *, repair: bool) -> None:
        for rows in self.rows():
            for part, own in self.index.split(rows).items():
                self.include(self.shards[part], {member: rows[member] for member in own})
            self.report.rows += len(rows)
            self.progress(len(rows))
        for shard in self.shards.values():
            names = self.check_names(shard)
            self.check_sizes(shard, names)
            if self.layout.dense:
                for name in names:
                    self.check_counts(shard, name)
        self.settle()
        for shard in self.shards.values():
            shard.require_same()
        if repair and self.report.drift:
            self.repair()

    # Inclusion

    def rows(self) -> Iterator[dict[bytes, SortKeyed]]:
        """Yield the members that there should be, in batches.

        Each page is a query of its own: a long one would keep the database from removing old rows, and some drivers
        allow no other query meanwhile. Keys bound it at both ends: with a LIMIT, PostgreSQL joins other tables from
        their beginning each time. And it is larger than a batch, for which PostgreSQL would read each joined table
        whole, because it expects it to be small.
        """
        selected, to_text = select(self.index), self.index.to_text
        keys = every_row(self.index.model, self.using).order_by("pk").values_list("pk", flat=True)
        bounds: dict[str, Any] = {}
        while True:
            # The last key of a full page; none if there are fewer.
            ends = list(keys.filter(**bounds)[self.page - 1 : self.page])
            page = selected.filter(**bounds, **({"pk__lte": ends[0]} if ends else {}))
            for batch in batched(encode(self.index, list(page), self.stores), self.size):
                yield {to_text(pk).encode(): (score, membership) for pk, score, membership in batch}
            if not ends:
                break
            bounds = {"pk__gt": ends[0]}

    def include(self, shard: _Shard, rows: dict[bytes, SortKeyed]) -> None:
        """Count the members that stand where their rows say, and suspect the others."""
        if self.index.rule:
            (flushes,) = shard.store.read([shard.flushes()])
            calls = shard.pending(flushes, list(rows))
            rows = shard.with_pending(rows, flushes, shard.store.read(calls or []))
        stored: defaultdict[bytes, list[bytes]] = defaultdict(list)
        scores: defaultdict[bytes, list[float]] = defaultdict(list)
        for member, (score, membership) in rows.items():
            for name, place in shard.places(member, membership) if membership else ((b"", member),):
                stored[name].append(place)
                scores[name].append(score)
        named = {member: membership for member, (_, membership) in rows.items() if membership}
        calls = [Call("ZMSCORE", (shard.ranking(name),), members) for name, members in stored.items()]
        calls += [Call("HMGET", (shard.keys.memberships,), list(named))] if named else []
        replies = shard.store.read(calls)
        for (name, members), found in zip(stored.items(), replies, strict=False):
            shard.tally[name] += len(found) - found.count(None)
            if found != scores[name]:
                for place, score, there in zip(members, scores[name], found, strict=True):
                    if score != there:
                        self.suspect(shard, self.layout.split(place)[1])
        if named:
            shard.memberships += len(named) - replies[-1].count(None)
            for member, there in zip(named, replies[-1], strict=True):
                if there != named[member]:
                    self.suspect(shard, member)

    # Cardinality

    def check_names(self, shard: _Shard) -> list[bytes]:
        """Return the names of all rankings: registered, named by rows, or found as keys. Report those that are
        registered without a ranking, or the other way round, and keys of nothing."""
        names = {b"", *shard.tally}
        if not self.layout.memberships:
            return sorted(names)
        found, parts = set[bytes](), {b"memberships", b"rankings"}
        below = shard.keys.below.encode()
        for keys in shard.store.scan_keys(shard.keys.below):
            for key in (key.removeprefix(below) for key in keys):
                # Values have no plain colon, so what follows a second one is beside the ranking.
                ranking, _, beside = key.rpartition(b":") if key.count(b":") != 1 else (key, b"", b"")
                if beside in (b"values", b"counts") and self.layout.dense:
                    names.add(ranking)
                elif key.count(b":") == 1:
                    found.add(key)
                elif key not in parts:
                    self.report.broken.add(Example(_text(key), None, None, "key of no ranking"))
        for registered in shard.store.scan("ZSCAN", shard.keys.rankings):
            names.update(registered)
        names |= found
        for piece in batched(sorted(names - {b""}), _KEYS):
            calls = [Call("ZMSCORE", (shard.keys.rankings,), piece)]
            calls += [Call("EXISTS", (shard.ranking(name),)) for name in piece]
            scores, *exist = shard.store.read(calls, atomic=True)
            for name, score, exists in zip(piece, scores, exist, strict=True):
                if score != (0 if exists else None):
                    self.report.broken.add(Example(_text(name), None, None, "name of a facet ranking"))
        return sorted(names)

    def check_sizes(self, shard: _Shard, names: Sequence[bytes]) -> None:
        """Read the rankings that have more members than rows have led to, and suspect those that shouldn't be there."""
        for piece in batched(names, _KEYS):
            sizes = shard.store.read([Call("ZCARD", (shard.ranking(name),)) for name in piece])
            was_written = shard.was_written()
            for name, size in zip(piece, sizes, strict=True):
                self.report.members += 0 if name else size
                if was_written or size != shard.tally[name]:
                    for stored in shard.store.scan("ZSCAN", shard.ranking(name)):
                        self.suspect_strays(shard, name, stored)
        if self.layout.memberships:
            (size,) = shard.store.read([Call("HLEN", (shard.keys.memberships,))])
            if size != shard.memberships or shard.was_written():
                for members in shard.store.scan("HSCAN", shard.keys.memberships):
                    self.suspect_rowless(shard, members)

    def suspect_strays(self, shard: _Shard, name: bytes, stored: list[bytes]) -> None:
        """Suspect those stored members of a ranking whose membership doesn't name it, or who have neither that nor a
        row."""
        members = [self.layout.split(each)[1] for each in stored]
        memberships: list[bytes | None] = [None] * len(members)
        if self.layout.memberships and members:
            (memberships,) = shard.store.read([Call("HMGET", (shard.keys.memberships,), members)])
        plain = []
        for member, each, membership in zip(members, stored, memberships, strict=True):
            if (name, each) not in shard.places(member, membership or b""):
                self.suspect(shard, member, (name, each))
            elif not membership:
                plain.append(member)
        self.suspect_rowless(shard, plain)

    def suspect_rowless(self, shard: _Shard, members: list[bytes]) -> None:
        """Suspect those of these members that the database doesn't rank in this shard."""
        rows = self.read_rows(member for member in members if self.is_own(shard, member))
        for member in members:
            if member not in rows:
                self.suspect(shard, member)

    def check_counts(self, shard: _Shard, name: bytes) -> None:
        """Report the distinct values of a ranking that are counted wrongly. Those that are listed are counted; if these
        are not as many members, or values, as there are, so are the values of all members, or of all counts."""
        store, ranking, broken = shard.store, shard.ranking(name), dict[bytes, Example]()
        total = 0

        def check(values: Iterable[bytes]) -> None:
            nonlocal total
            for value, right, counted, is_right in store.check_counts(shard.generation, name, list(values)):
                total += right
                if not is_right and value not in broken and len(broken) < _REMEMBERED:
                    label = f"{_text(name)} {_text(value)}".strip()
                    number = int(counted) if counted.isdigit() else None
                    broken[value] = Example(label, right, number, "count of a value")

        for values in store.scan("ZSCAN", shard.ranking(name, b"values")):
            check(values)
        counts = shard.ranking(name, b"counts")
        calls = (
            Call("ZCARD", (ranking,)),
            Call("ZCARD", (shard.ranking(name, b"values"),)),
            Call("HLEN", (counts,)),
        )
        size, listed, counted = store.read(calls, atomic=True)
        was_written = shard.was_written()
        if was_written or total != size:
            for members in store.scan("ZSCAN", ranking):
                (scores,) = store.read([Call("ZMSCORE", (ranking,), members)]) if members else ((),)
                check(
                    {
                        self.layout.split(member)[0] + b"%.17g" % score
                        for member, score in zip(members, scores, strict=True)
                        if score is not None
                    }
                )
        if was_written or listed != counted:
            for values in store.scan("HSCAN", counts):
                check(values)
        for example in broken.values():
            self.report.broken.add(example)

    # The second look

    def suspect(self, shard: _Shard, member: bytes, place: Place | None = None) -> None:
        places = self.suspects.setdefault((shard, member), set())
        if place:
            places.add(place)
        if len(self.suspects) >= _REMEMBERED:
            self.settle()

    def settle(self) -> None:
        """Look at the suspects again, and report those that are wrong."""
        suspects, self.suspects = self.suspects, {}
        # With triggers, marks tell which changes are on their way. Otherwise, and where members fall asleep, what stays
        # wrong for a while is wrong.
        capture = self.report.capture
        certain = capture.mode == "triggers" and capture.works and self.index.awake is None
        for batch in batched(suspects.items(), _BATCH):
            waiting, before = dict(batch), dict[_Suspect, Example]()
            for look in range(_LOOKS):
                sleep(_PAUSE * look)
                wrong, moving = self.look(waiting)
                if not certain:
                    moving |= {
                        suspect for suspect, example in wrong.items() if before.get(suspect) != example
                    }
                    before = wrong
                for suspect in [suspect for suspect in wrong if suspect not in moving]:
                    self.report.add(wrong[suspect])
                    if len(self.wrong) <= _PUSHED:
                        self.wrong[suspect] = waiting[suspect]
                waiting = {suspect: waiting[suspect] for suspect in moving}
                if not waiting:
                    break
            self.report.unsettled += len(waiting)

    def look(self, suspects: Mapping[_Suspect, set[Place]]) -> tuple[dict[_Suspect, Example], set[_Suspect]]:
        """Return the suspects that are wrong, and those that are just changing.

        The order of the reads matters: Redis, the row, marks, Redis again. If no mark waits for a member, every change
        in its row has been written to Redis; and if it wasn't written between the two reads of Redis, both sides are of
        the same state of the row.
        """
        sweep(self.index)
        drain(self.index)
        before = self.ask({(shard, member): shard.read_state(member) for shard, member in suspects})
        members = {member for _, member in suspects}
        rows, in_flight = self.read_rows(members), self.in_flight(members)
        own = {member for shard, member in suspects if self.is_own(shard, member)}
        found = self.ask(
            {
                (shard, member): self.compare(
                    shard, member, rows.get(member) if member in own else None, places, before[shard, member]
                )
                for (shard, member), places in suspects.items()
            }
        )
        wrong = {suspect: example for suspect, (example, _) in found.items() if example}
        moving = {
            suspect for suspect in wrong if found[suspect][1] != before[suspect] or suspect[1] in in_flight
        }
        return wrong, moving

    def ask(self, queries: Mapping[_Suspect, Query[_Answer]]) -> dict[_Suspect, _Answer]:
        """Return the answers to queries about suspects. A few members of a shard share a round trip."""
        answers: dict[_Suspect, _Answer] = {}
        for shard in self.shards.values():
            for few in batched((suspect for suspect in queries if suspect[0] is shard), _TOGETHER):
                found = drive(together([queries[suspect] for suspect in few]), shard.store.send)
                answers.update(zip(few, found, strict=True))
        return answers

    def compare(
        self,
        shard: _Shard,
        member: bytes,
        row: SortKeyed | None,
        places: Collection[Place],
        before: Sequence[Any],
    ) -> Query[tuple[Example | None, Sequence[Any] | None]]:
        """Return what is wrong with a member, None if nothing is; and its state, None if changes that the row lacks are
        not kept any more. All of one moment."""
        flushes, _, (named,) = before
        expected = set(shard.places(member, row[1])) if row else set()
        places = [*expected.union(places, shard.places(member, named or b""))]
        pending = shard.pending(flushes, [member] if row else [])
        scores = [Call("ZMSCORE", (shard.ranking(name),), (stored,)) for name, stored in places]
        replies = yield Request([*shard.state(member), *scores, *(pending or [])], atomic=True)
        *state, (there,) = replies[:3]
        found = {place: score for place, (score,) in zip(places, replies[3:], strict=False)}
        if row:
            row = shard.with_pending({member: row}, flushes, replies[3 + len(places) :])[member]
        is_right = (there or b"") == (row[1] if row else b"") and all(
            score == (row[0] if row and place in expected else None) for place, score in found.items()
        )
        why = "" if self.is_own(shard, member) else f"in the shard {shard.part.name}, which isn't its own"
        example = None if is_right else _example(member, row, there or b"", found, expected, why)
        return example, None if pending is None else [*state, [there]]

    def is_own(self, shard: _Shard, member: bytes) -> bool:
        """Return True if a member belongs to a shard."""
        return self.index.part_of(member) is shard.part

    def pk_of(self, member: bytes) -> Any:
        """Return the primary key of a member's row, None if no row can have it."""
        with suppress(UnicodeDecodeError):
            pk = parse_key(self.index, member.decode())
            if pk is not None and self.index.to_text(pk).encode() == member:  # 007 is not 7
                return pk
        return None

    def read_rows(self, members: Iterable[bytes]) -> dict[bytes, SortKeyed]:
        """Return the score and the membership of each of these members that the database ranks now."""
        pks = (pk for member in members if (pk := self.pk_of(member)) is not None)
        return {
            text.encode(): (score, membership)
            for batch in batched(pks, _BATCH)
            for text, score, membership in read(self.index, batch, *self.stores)
            if score is not None
        }

    def in_flight(self, members: Collection[bytes]) -> Collection[bytes]:
        """Return the members that a waiting mark may lead to."""
        marks = list(waiting_marks(self.index).order_by("id")[: _FEW + 1])
        if len(marks) > _FEW or any(mark.member is None or mark.via is not None for mark in marks):
            return members
        found: set[bytes] = set()
        for mark in marks:
            with suppress(ValueError):  # one that can't be drained
                found.add(self.index.to_text(mark.member).encode())
        return found

    # Repair

    def repair(self) -> None:
        """Push the members that are wrong, if they are few; make a new build of many, or of what no push repairs."""
        pks = {member: self.pk_of(member) for shard, member in self.wrong if self.is_own(shard, member)}
        if len(pks) == self.report.drift <= _PUSHED and None not in pks.values():
            leave(self.index, pks.values())
            looks = [self.look(dict(batch)) for batch in batched(self.wrong.items(), _BATCH)]
            if all(wrong.keys() <= moving for wrong, moving in looks):
                self.report.repaired = self.report.drift
                return
        rebuild(self.index, polite=True)
        self.report.repaired = self.report.drift


def _example(
    member: bytes,
    row: SortKeyed | None,
    membership: bytes,
    found: Mapping[Place, float | None],
    expected: Collection[Place],
    why: str,
) -> Example:
    """Return what is wrong with a member, given where it was found."""
    there = {place: score for place, score in found.items() if score is not None}
    # Its score in the whole index, perhaps with other tie bytes; otherwise one of a place where it shouldn't be.
    first = sorted(there, key=lambda place: (place[0] != b"", place not in expected))
    score = next((there[place] for place in first if not place[0] or place not in expected), None)
    lacking = {place[0] for place in expected if place[0] and (score is None or there.get(place) != score)}
    surplus = {place[0] for place in there if place not in expected}
    reasons = [why] if why else []
    if row and surplus & (lacking | {b""}):
        reasons.append("other tie bytes")
    if row and row[1] and not membership:
        reasons.append("no membership")
    if missing := lacking - surplus - {b""}:
        reasons.append(f"not in {_list(missing)}")
    if also := surplus - lacking - {b""}:
        reasons.append(f"also in {_list(also)}")
    return Example(_text(member), row[0] if row else None, score, "; ".join(reasons))


def _list(names: Iterable[bytes]) -> str:
    return ", ".join(sorted(map(_text, names)))


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")
