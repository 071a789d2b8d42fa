"""Errors in facet rankings, tie bytes, memberships and counts are found, all of them and nothing else, and repaired."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from django_zrank.models import Mark
from django_zrank.store import Store
from django_zrank.sync import verify as verification
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.signal_handlers import disable_sync
from django_zrank.sync.verify import Drift, Report, verify
from tests.keyspace import everything
from tests.sync.mirror import assert_mirrors, standing
from tests.testapp.models import Competitor, Guild, Tag
from tests.testapp.zrank import CompetitorRank

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("zrank", "undrained"),
]

INDEX = CompetitorRank.instance()
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
WIDTH = INDEX.layout.width


@pytest.fixture(autouse=True)
def _all_examples_in_small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_PAGE", 2)
    monkeypatch.setattr("django_zrank.sync.verify._EXAMPLES", 10**6)


def populate(number: int) -> None:
    lots = random.Random(number)
    guilds = Guild.objects.bulk_create(Guild(slug=f"guild {n}") for n in range(9))
    tags = Tag.objects.bulk_create(Tag(word=f"tag {n % 4}") for n in range(6))
    with disable_sync():
        competitors = Competitor.objects.bulk_create(
            Competitor(
                points=lots.randrange(50),
                joined=lots.choice([None, NOON + timedelta(seconds=lots.randrange(5))]),
                region=lots.choice([None, "kantou", "kansai"]),
                platform=lots.choice(["pc", "phone"]),
                guild=lots.choice([None, *guilds]),
            )
            for _ in range(number)
        )
        between: Any = Competitor.tags.through
        between.objects.bulk_create(
            between(competitor=competitor, tag=tag)
            for competitor in competitors
            for tag in lots.sample(tags, lots.randrange(4))
        )
    rebuild(INDEX)
    Mark.objects.all().delete()


class Faults:
    """Hands on the keys in Redis."""

    def __init__(self, client: Redis) -> None:
        self.client, self.live = client, Store(INDEX.name).live.root
        self.lots = random.Random(1)
        self.members = standing(INDEX)

    def membership(self, member: str) -> tuple[bytes, list[str]]:
        membership = self.members[member][1]
        return membership[:WIDTH], membership[WIDTH:].decode().split("\0")

    def stored(self, member: str) -> bytes:
        return self.membership(member)[0] + member.encode()

    def facet(self, member: str) -> str:
        return f"{self.live}:{self.lots.choice(self.membership(member)[1])}"

    def elsewhere(self, member: str) -> str:
        names = {name for other in self.members for name in self.membership(other)[1]} - set(
            self.membership(member)[1]
        )
        return f"{self.live}:{self.lots.choice(sorted(names))}"

    # Each makes one member wrong

    def missing_in_a_facet(self, member: str) -> None:
        self.client.zrem(self.facet(member), self.stored(member))

    def extra_in_a_facet(self, member: str) -> None:
        self.client.zadd(self.elsewhere(member), {self.stored(member): self.members[member][0]})

    def wrong_score_in_a_facet(self, member: str) -> None:
        self.client.zincrby(self.facet(member), 0.5, self.stored(member))

    def wrong_ties_in_a_facet(self, member: str) -> None:
        ranking = self.facet(member)
        self.client.zrem(ranking, self.stored(member))
        self.client.zadd(ranking, {b"\7" * WIDTH + member.encode(): self.members[member][0]})

    def wrong_ties(self, member: str) -> None:
        self.client.zrem(self.live, self.stored(member))
        self.client.zadd(self.live, {b"\7" * WIDTH + member.encode(): self.members[member][0]})

    def wrong_ties_everywhere(self, member: str) -> None:
        names = self.membership(member)[1]
        self.client.hset(f"{self.live}:memberships", member, (b"\7" * WIDTH + "\0".join(names).encode()))  # type: ignore[arg-type]
        for ranking in (self.live, *(f"{self.live}:{name}" for name in names)):
            self.client.zrem(ranking, self.stored(member))
            self.client.zadd(ranking, {b"\7" * WIDTH + member.encode(): self.members[member][0]})

    def wrong_score(self, member: str) -> None:
        self.client.zincrby(self.live, -1, self.stored(member))

    def membership_lost(self, member: str) -> None:
        self.client.hdel(f"{self.live}:memberships", member)

    def membership_lost_and_moved(self, member: str) -> None:
        self.extra_in_a_facet(member)
        self.membership_lost(member)

    def membership_wrong(self, member: str) -> None:
        tie, names = self.membership(member)
        self.client.hset(f"{self.live}:memberships", member, tie + "\0".join(names[1:]).encode())  # type: ignore[arg-type]

    def missing(self, member: str) -> None:
        self.client.zrem(self.live, self.stored(member))

    def missing_everywhere(self, member: str) -> None:
        self.missing(member)
        self.client.hdel(f"{self.live}:memberships", member)
        for name in self.membership(member)[1]:
            self.client.zrem(f"{self.live}:{name}", self.stored(member))
            if not self.client.exists(f"{self.live}:{name}"):  # else it would count as evicted
                self.client.zrem(f"{self.live}:rankings", name)

    # And these members that there are not

    def stranger(self, member: str) -> None:
        self.client.zadd(self.live, {b"\3" * WIDTH + member.encode(): 7})

    def stranger_with_a_membership(self, member: str) -> None:
        self.stranger(member)
        self.client.hset(f"{self.live}:memberships", member, b"\3" * WIDTH + b"region:kantou")  # type: ignore[arg-type]
        self.client.zadd(f"{self.live}:region:kantou", {b"\3" * WIDTH + member.encode(): 7})

    def stranger_in_a_facet(self, member: str) -> None:
        self.client.zadd(f"{self.live}:region:kantou", {b"\3" * WIDTH + member.encode(): 7})

    def stranger_in_a_facet_of_its_own(self, member: str) -> None:
        self.client.zadd(f"{self.live}:region:atlantis", {b"\3" * WIDTH + member.encode(): 7})

    def membership_of_a_stranger(self, member: str) -> None:
        self.client.hset(f"{self.live}:memberships", member, b"\3" * WIDTH + b"region:kantou")  # type: ignore[arg-type]


DIFFERENT = [
    "missing_in_a_facet",
    "extra_in_a_facet",
    "wrong_score_in_a_facet",
    "wrong_ties_in_a_facet",
    "wrong_ties",
    "wrong_ties_everywhere",
    "wrong_score",
    "membership_lost",
    "membership_lost_and_moved",
    "membership_wrong",
]
MISSING = ["missing", "missing_everywhere"]
EXTRA = [
    "stranger",
    "stranger_with_a_membership",
    "stranger_in_a_facet",
    "stranger_in_a_facet_of_its_own",
    "membership_of_a_stranger",
]


def named(drift: Drift) -> set[str]:
    assert len(drift.examples) == drift.count == len({example.member for example in drift.examples})
    return {example.member for example in drift.examples}


def wrong(report: Report) -> tuple[set[str], set[str], set[str]]:
    return named(report.missing), named(report.extra), named(report.different)


@pytest.mark.slow
def test_three_hundred_faults_and_nothing_else(zrank: Redis) -> None:
    populate(1500)
    faults = Faults(zrank)
    victims = faults.lots.sample(sorted(faults.members), 200)
    missing, different = victims[:100], victims[100:]
    extra = [str(10**9 + n) for n in range(100)]
    for members, kinds in ((missing, MISSING), (different, DIFFERENT), (extra, EXTRA)):
        for number, member in enumerate(members):
            getattr(faults, kinds[number % len(kinds)])(member)
    # A member that is only missing from the whole index counts as missing; one of other ties is there.
    report = verify(INDEX, batch_size=100)
    assert wrong(report) == (set(missing), set(extra), set(different))
    assert not report.ok

    report = verify(INDEX, repair=True, batch_size=100)
    assert wrong(report) == (set(missing), set(extra), set(different))
    assert (report.ok, report.repaired) == (True, report.drift)
    assert_mirrors(CompetitorRank)
    report = verify(INDEX, batch_size=100)
    assert (report.ok, report.drift, report.waiting) == (True, 0, 0)


@pytest.mark.parametrize("kinds", [MISSING, EXTRA, DIFFERENT], ids=["missing", "extra", "different"])
def test_each_fault_by_itself(zrank: Redis, kinds: list[str]) -> None:
    populate(12)
    for kind in kinds:
        faults = Faults(zrank)
        member = "999999999" if kinds is EXTRA else min(faults.members)
        getattr(faults, kind)(member)
        report = verify(INDEX, repair=True)
        expected = [{member} if kinds is those else set() for those in (MISSING, EXTRA, DIFFERENT)]
        assert (list(wrong(report)), report.ok) == (expected, True), kind
        assert_mirrors(CompetitorRank)


def test_a_ranking_that_is_evicted_during_a_repair_is_rebuilt(
    zrank: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its push shows it."""
    populate(12)
    faults, leave = Faults(zrank), verification.leave
    member = min(faults.members)
    shared = next(name for name in faults.membership(member)[1] if zrank.zcard(f"{faults.live}:{name}") > 1)
    faults.membership_lost(member)

    def leave_and_evict(*given: Any) -> Any:
        zrank.delete(f"{faults.live}:{shared}")
        return leave(*given)

    monkeypatch.setattr(verification, "leave", leave_and_evict)
    assert verify(INDEX, repair=True).ok
    assert_mirrors(CompetitorRank)


def test_what_is_wrong_is_said(zrank: Redis) -> None:
    populate(12)
    faults = Faults(zrank)
    one, two, three, *_ = sorted(faults.members)
    # One that others stand in, too: a ranking that is gone counts as evicted, and may be noticed first.
    shared = next(name for name in faults.membership(one)[1] if zrank.zcard(f"{faults.live}:{name}") > 1)
    zrank.zrem(f"{faults.live}:{shared}", faults.stored(one))
    zrank.zadd(f"{faults.live}:region:atlantis", {faults.stored(two): 7})
    faults.membership_lost(three)
    why = {example.member: example.why for example in verify(INDEX).different.examples}
    assert why[one] == f"not in {shared}"
    assert why[two] == "also in region:atlantis"
    assert why[three] == "no record of its facets"


NOBODY = [
    b"",
    b"x",
    b"\0" * WIDTH,
    b"\0" * WIDTH + b"x",
    b"\xff\xfe",
    b"\0" * WIDTH + b"\xff",
    b"\0" * WIDTH + b"01",
]


def test_members_that_no_row_can_be(zrank: Redis) -> None:
    populate(12)
    live = Store(INDEX.name).live.root
    for ranking in (live, f"{live}:region:kantou", f"{live}:region:atlantis"):
        zrank.zadd(ranking, dict.fromkeys(NOBODY, 3))
    report = verify(INDEX)
    assert {"", "x", "01", "\\xff"} <= named(report.extra)
    assert report.drift - report.broken.count == report.extra.count
    assert verify(INDEX, repair=True).ok
    assert_mirrors(CompetitorRank)


BROKEN: dict[str, Callable[[Redis, str], Any]] = {
    "a name lost": lambda zrank, live: zrank.zrem(f"{live}:rankings", "region:kantou"),
    "a name with a score": lambda zrank, live: zrank.zadd(f"{live}:rankings", {"region:kantou": 2}),
    "a count": lambda zrank, live: zrank.hincrby(
        f"{live}:region:kantou:counts", zrank.hkeys(f"{live}:region:kantou:counts")[0]
    ),
    "a count of none": lambda zrank, live: zrank.hset(f"{live}:counts", b"\0" * WIDTH + b"123", 1),
    "a count lost": lambda zrank, live: zrank.hdel(f"{live}:counts", zrank.hkeys(f"{live}:counts")[0]),
    "a value lost": lambda zrank, live: zrank.zpopmin(f"{live}:values"),
    "all values but one lost": lambda zrank, live: zrank.zremrangebyrank(f"{live}:values", 1, -1),
    "values of nothing": lambda zrank, live: zrank.zadd(
        f"{live}:region:mu:values", {b"\0" * WIDTH + b"5": 5}
    ),
    "a key of no ranking": lambda zrank, live: zrank.zadd(f"{live}:region", {"kantou": 1}),
}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            fault, id=name, marks=[pytest.mark.part("dense")] if "count" in name or "value" in name else []
        )
        for name, fault in BROKEN.items()
    ],
)
def test_names_and_counts(zrank: Redis, fault: Callable[[Redis, str], Any]) -> None:
    populate(15)
    root = Store(INDEX.name).live.root
    whole = everything(zrank, root)
    fault(zrank, root)
    assert everything(zrank, root) != whole
    report = verify(INDEX, batch_size=10)
    assert (wrong(report), report.ok) == ((set(), set(), set()), False)
    broken = named(report.broken)
    assert broken
    report = verify(INDEX, repair=True, batch_size=10)
    assert (named(report.broken), report.ok, report.repaired) == (broken, True, len(broken))
    assert_mirrors(CompetitorRank)


def test_more_strays_than_are_remembered(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_REMEMBERED", 5)
    populate(15)
    faults = Faults(zrank)
    for member in faults.members:
        faults.extra_in_a_facet(member)
    assert verify(INDEX, repair=True, batch_size=10).ok
    assert_mirrors(CompetitorRank)
