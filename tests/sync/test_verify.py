"""Verification finds all that is wrong and nothing else, whatever changes meanwhile."""

from __future__ import annotations

import gc
import logging
import random
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from threading import Event
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest
from django.db import connections, transaction
from django.db.models import F
from redis import Redis
from redis.exceptions import NoPermissionError

from django_zrank import IndexUnavailable, RankIndex
from django_zrank.capture.triggers import captured, drop, install
from django_zrank.models import Batch, Build, Mark
from django_zrank.signals import drift_found
from django_zrank.store import Store
from django_zrank.sync import verify as verification
from django_zrank.sync.drain import drain
from django_zrank.sync.health import Status
from django_zrank.sync.marks import waiting_marks
from django_zrank.sync.push import push
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.signal_handlers import disable_sync
from django_zrank.sync.verify import Drift, Report, verify
from tests.keyspace import held
from tests.sync.conftest import use_redis
from tests.sync.interruptions import comparing, count_steps, interrupted, just_after
from tests.sync.mirror import assert_mirrors, contents, ranked
from tests.testapp.models import Account, Club, Employee, Nickname, Player, Profile, Remote, Ticket
from tests.testapp.zrank import (
    AccountRank,
    ByFlag,
    ByInteger,
    ByLoose,
    ByReal,
    EmployeeRank,
    NicknameRank,
    PlayerAscending,
    PlayerRank,
    RemoteRank,
)

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank", "undrained"),
]

INDEX = PlayerAscending.instance()


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is read in several queries, even where rows are few."""
    monkeypatch.setattr(verification, "_PAGE", 2)


def settle(*indexes: type[RankIndex]) -> None:
    """Indexes as the database has them, and no mark."""
    for index in indexes:
        rebuild(index.instance())
        Mark.objects.using(index.instance().get_using()).all().delete()


def live(index: type[RankIndex]) -> str:
    return Store(index.instance().name).live.root


def players(number: int = 20, index: type[RankIndex] = PlayerAscending, **values: Any) -> list[int]:
    """Players at rest in an index of theirs. Returns their primary keys."""
    with disable_sync():
        Player.objects.bulk_create(Player(**{"level": level, **values}) for level in range(number))
    settle(index)
    return list(Player.objects.order_by("pk").values_list("pk", flat=True))


def counts(report: Report) -> tuple[int, int, int]:
    """Missing, extra, different."""
    return report.missing.count, report.extra.count, report.different.count


def named(drift: Drift) -> set[str]:
    return {example.member for example in drift.examples}


@pytest.fixture
def every_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report names every member that is wrong."""
    monkeypatch.setattr("django_zrank.sync.verify._EXAMPLES", 10**6)


# What is found


@pytest.mark.usefixtures("every_example")
def test_three_hundred_faults_and_nothing_else(zrank: Redis) -> None:
    pks = players(1000)
    lots = random.Random(300)
    faulty = lots.sample(pks, 200)
    missing, different = {str(pk) for pk in faulty[:100]}, {str(pk) for pk in faulty[100:]}
    extra = {str(max(pks) + number): lots.randrange(1000) for number in range(1, 101)}
    zrank.zrem(live(PlayerAscending), *missing)
    zrank.zadd(live(PlayerAscending), extra)
    for member in different:
        zrank.zincrby(live(PlayerAscending), lots.choice((-1, 1, 0.5, 10**6)), member)

    report = verify(INDEX, batch_size=150)
    assert counts(report) == (100, 100, 100)
    assert named(report.missing) == missing
    assert named(report.extra) == set(extra)
    assert named(report.different) == different
    rows = ranked(PlayerAscending)
    assert all(example.database == rows[example.member] for example in report.different.examples)
    assert (report.ok, report.repaired, report.rows, report.members) == (False, 0, 1000, 1000)
    assert not Mark.objects.exists()

    report = verify(INDEX, repair=True, batch_size=150)
    assert (report.drift, report.repaired, report.ok) == (300, 300, True)
    assert_mirrors(PlayerAscending)
    report = verify(INDEX)
    assert (report.ok, report.drift, report.waiting) == (True, 0, 0)


def test_an_empty_database(zrank: Redis) -> None:
    players(0)
    zrank.zadd(live(PlayerAscending), {str(number): number for number in range(25)})
    report = verify(INDEX, batch_size=10)
    assert counts(report) == (0, 25, 0)
    assert verify(INDEX, repair=True).repaired == 25
    assert_mirrors(PlayerAscending)


def test_an_empty_redis(zrank: Redis) -> None:
    """Built, and nobody in it: not the same as emptied."""
    players(25)
    zrank.delete(live(PlayerAscending))
    report = verify(INDEX, batch_size=10)
    assert (report.compared, report.ok, report.status) == (False, False, Status.EVICTED)
    assert verify(INDEX, repair=True, batch_size=10).status_before is Status.EVICTED
    assert_mirrors(PlayerAscending)


IMPOSSIBLE = [b"x", b"", b"\xff\xfe", b"9" * 30, b"-" + b"9" * 19, b" 1", b"01", b"1_0", b"1.0", "१".encode()]


@pytest.mark.usefixtures("every_example")
def test_members_that_no_row_can_be(zrank: Redis) -> None:
    players(5)
    zrank.zadd(live(PlayerAscending), dict.fromkeys(IMPOSSIBLE, 3))
    report = verify(INDEX)
    assert counts(report) == (0, len(IMPOSSIBLE), 0)
    assert {r"\xff\xfe", "x", "01"} < named(report.extra)
    report = verify(INDEX, repair=True)
    assert (report.repaired, report.ok) == (len(IMPOSSIBLE), True)
    assert_mirrors(PlayerAscending)
    assert not waiting_marks(INDEX).exists()


def test_a_value_without_a_place_is_ranked_on_neither_side(
    zrank: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL, "django_zrank.sync"):
        tickets = Ticket.objects.bulk_create(Ticket(loose=number) for number in (1, 2**60, 3, None))
        settle(ByLoose)
        report = verify(ByLoose.instance())
        assert (report.ok, report.rows, report.members) == (True, 2, 2)
        zrank.zadd(live(ByLoose), {str(tickets[1].pk): 2.0**60, str(tickets[3].pk): 0})
        assert counts(verify(ByLoose.instance())) == (0, 2, 0)
        assert verify(ByLoose.instance(), repair=True).ok
        assert len(contents(ByLoose)) == 2


def test_pages_of_nothing_but_unranked_rows(zrank: Redis) -> None:
    pks = players(40)
    Player.objects.filter(pk__in=pks[:33]).update(is_active=False)
    settle(PlayerRank)
    report = verify(PlayerRank.instance(), batch_size=2)
    assert (report.ok, report.rows, report.members) == (True, 7, 7)
    zrank.zadd(live(PlayerRank), {pks[5]: 5})
    zrank.zrem(live(PlayerRank), pks[39])
    assert counts(verify(PlayerRank.instance(), batch_size=2)) == (1, 1, 0)


@pytest.mark.parametrize("number", [0, 1, 3, 4, 5, 8])
def test_every_row_is_looked_up_once(number: int) -> None:
    """Wherever the last page ends."""
    players(number)
    report = verify(INDEX, batch_size=2)
    assert (report.ok, report.rows, report.members) == (True, number, number)


@pytest.mark.usefixtures("every_example")
@pytest.mark.parametrize("index", [ByInteger, ByReal, ByFlag])
def test_uuids(zrank: Redis, index: type[RankIndex]) -> None:
    Ticket.objects.bulk_create(
        Ticket(integer=number, real=number / 3, flag=number % 2) for number in range(150)
    )
    settle(index)
    pks = [str(pk) for pk in Ticket.objects.values_list("pk", flat=True)]
    strangers = {str(uuid4()): 1, pks[0].replace("-", ""): 1, pks[1].upper(): 1, "no uuid": 1}
    zrank.zrem(live(index), pks[2], pks[3])
    zrank.zincrby(live(index), 0.25, pks[4])
    zrank.zadd(live(index), strangers)
    report = verify(index.instance(), batch_size=64)
    assert named(report.missing) == {pks[2], pks[3]}
    assert named(report.different) == {pks[4]}
    assert named(report.extra) == set(strangers)
    assert verify(index.instance(), repair=True).ok
    assert verify(index.instance()).ok


@pytest.mark.usefixtures("every_example")
def test_texts_as_primary_keys(zrank: Redis) -> None:
    nicks = [
        "Bob",
        "alice",
        "",
        "007",
        "o'hara",
        '"',
        "%s",
        "back\\slash",
        "ünïcode",
        "愛",
        "🦊",
        "a b",
        "b_b",
        "🦊🦊",
    ]
    with disable_sync():
        Nickname.objects.bulk_create(Nickname(nick=nick, score=number) for number, nick in enumerate(nicks))
    settle(NicknameRank)
    assert verify(NicknameRank.instance(), batch_size=3).ok
    assert set(contents(NicknameRank)) == set(nicks)
    zrank.zrem(live(NicknameRank), "Bob", "🦊", "back\\slash")
    zrank.zadd(live(NicknameRank), {"bob": 0, "愛愛": 1, "nul\0": 2, "ünïcode ": 8, b"\xfc": 3})
    zrank.zadd(live(NicknameRank), {"": 50, "%s": 51})
    report = verify(NicknameRank.instance(), batch_size=3)
    assert named(report.missing) == {"Bob", "🦊", "back\\slash"}
    assert named(report.extra) == {"bob", "愛愛", "nul\0", "ünïcode ", "\\xfc"}
    assert named(report.different) == {"", "%s"}
    assert verify(NicknameRank.instance(), repair=True).ok
    assert_mirrors(NicknameRank)


def test_another_database(zrank: Redis) -> None:
    with disable_sync():
        Remote.objects.bulk_create(Remote(score=number) for number in range(50))
    settle(RemoteRank)
    pks = list(Remote.objects.values_list("pk", flat=True))
    zrank.zrem(live(RemoteRank), pks[0])
    zrank.zadd(live(RemoteRank), {max(pks) + 1: 1, pks[1]: 99})
    assert counts(verify(RemoteRank.instance(), batch_size=7)) == (1, 1, 1)
    assert verify(RemoteRank.instance(), repair=True).ok
    batches = Batch.objects.using("other").filter(index="remote")
    assert sum(len(batch.marks) for batch in batches) == 3
    assert verify(RemoteRank.instance()).ok


def test_related_columns_and_inherited_ones(zrank: Redis) -> None:
    with disable_sync():
        clubs = [Club.objects.create(is_open=is_open) for is_open in (True, False)]
        for number in range(40):
            account = Account.objects.create(club=[*clubs, None][number % 3])
            Profile.objects.create(account=account, points=number)
            Employee.objects.create(points=number)
    settle(AccountRank, EmployeeRank)
    for index in (AccountRank, EmployeeRank):
        report = verify(index.instance(), batch_size=7)
        assert (report.ok, report.rows) == (True, len(ranked(index)))
        first, second, *_ = ranked(index)
        zrank.zrem(live(index), first)
        zrank.zadd(live(index), {second: -5, "1000": 4})
        assert counts(verify(index.instance(), batch_size=7)) == (1, 1, 1)
        assert verify(index.instance(), repair=True).ok


def test_rows_that_left_the_queryset(zrank: Redis) -> None:
    pks = players(10)
    settle(PlayerRank)
    Player.objects.filter(pk__in=pks[:3]).update(is_active=False, level=77)
    Player.objects.filter(pk__in=pks[3:5]).update(level=None)
    Mark.objects.all().delete()  # as if nothing had told of it
    assert counts(verify(PlayerRank.instance())) == (0, 5, 0)
    assert counts(verify(INDEX)) == (0, 2, 3)
    assert verify(INDEX, repair=True).ok
    assert verify(PlayerRank.instance(), repair=True).ok
    assert_mirrors(PlayerAscending, PlayerRank)


def test_progress(zrank: Redis) -> None:
    players(20)
    seen: list[int] = []
    verify(INDEX, batch_size=5, progress=seen.append)
    assert seen == [5] * 4


# What changes meanwhile


def test_a_mark_that_waits_is_worked_off_and_nothing_is_wrong() -> None:
    pks = players(20)
    Player.objects.filter(pk__in=pks[:5]).update(level=F("level") + 100)
    Player.objects.filter(pk__in=pks[5:8])._raw_delete("default")
    Player.objects.bulk_create([Player(level=7)])
    report = verify(INDEX)
    assert (report.ok, report.drift) == (True, 0)
    assert report.waiting == 9
    assert 0 <= report.oldest < 3000
    assert_mirrors(PlayerAscending)


def test_the_age_of_the_oldest_mark() -> None:
    players(3)
    Player.objects.update(level=F("level") + 1)
    Mark.objects.update(at=F("at") - timedelta(seconds=90))
    assert 89 < verify(INDEX).oldest < 3000


def save(pk: int) -> None:
    """A change that is pushed."""
    player = Player.objects.get(pk=pk)
    player.level = (player.level or 0) + 100
    player.save()


def update(pk: int) -> None:
    """A change that only a mark tells of."""
    Player.objects.filter(pk=pk).update(level=F("level") + 100)


def update_and_drain(pk: int) -> None:
    update(pk)
    drain(INDEX)


def there_and_back(pk: int) -> None:
    """Two changes, processed one after the other: nothing looks changed."""
    update_and_drain(pk)
    Player.objects.filter(pk=pk).update(level=F("level") - 100)
    drain(INDEX)


def delete(pk: int) -> None:
    Player.objects.filter(pk=pk).delete()


def leave(pk: int) -> None:
    """The row leaves the index, and stays."""
    Player.objects.filter(pk=pk).update(level=None)


def enter(pk: int) -> None:
    """A row enters the index."""
    Player.objects.bulk_create([Player(level=50)])


def changed_at(step: int, act: Callable[[], Any], *acts: Callable[[], Any]) -> Callable[[int], None]:
    """Return what to do between the steps of a verification: once at one step, and at those that follow."""
    doing = dict(enumerate((act, *acts), step))
    return lambda at: doing.pop(at, lambda: None)()


def suspects() -> list[int]:
    """Eight players, and three suspects, so that every step is taken: one is on its way, and two are wrong."""
    Player.objects.all()._raw_delete("default")
    pks = players(8)
    update(pks[0])
    client = Store("ascending").client
    client.zrem(live(PlayerAscending), pks[6])
    client.zadd(live(PlayerAscending), {max(pks) + 1000: 3})
    return pks


@pytest.fixture
def steps() -> int:
    """The number of steps of a comparison with suspects."""
    suspects()
    return count_steps(lambda: verify(INDEX, batch_size=4), comparing)


CHANGES = [save, update, update_and_drain, there_and_back, delete, leave, enter]


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_a_change_at_any_step_is_not_drift(steps: int, change: Callable[[int], Any]) -> None:
    # Every step is taken by some of the changes.
    for step in range(1 + CHANGES.index(change) % 3, steps + 1, 3):
        pks = suspects()
        with comparing(changed_at(step, partial(change, pks[0]))):
            report = verify(INDEX, batch_size=4)
        assert (counts(report), report.unsettled) == ((1, 1, 0), 0)
        assert named(report.missing) == {str(pks[6])}
        assert named(report.extra) == {str(max(pks) + 1000)}
    verify(INDEX, repair=True)
    assert_mirrors(PlayerAscending)


@pytest.mark.parametrize(
    ("change", "every"), [(save, 3), (update, 1), (update_and_drain, 3), (there_and_back, 1)]
)
def test_a_member_that_changes_all_the_time_is_not_drift(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[int], Any], every: int
) -> None:
    pks = players(8)
    monkeypatch.setattr(verification, "_PAUSE", 0)
    update(pks[0])
    with interrupted(lambda step: step % every or change(pks[0])):
        report = verify(INDEX)
    assert report.drift == 0
    assert report.ok


def test_a_change_and_its_reverse_between_the_two_readings_of_redis(steps: int) -> None:
    """The row was read with the change, and Redis twice without it: only versions tell that it went there."""

    def back(pk: int) -> None:
        drain(INDEX)
        Player.objects.filter(pk=pk).update(level=F("level") - 100)
        drain(INDEX)

    for step in range(1, steps, 2):
        pks = suspects()
        with comparing(changed_at(step, partial(update, pks[0]), partial(back, pks[0]))):
            report = verify(INDEX)
        assert (counts(report), report.unsettled) == ((1, 1, 0), 0)


def test_a_change_of_a_related_row_is_not_drift(steps: int) -> None:
    """Its mark doesn't name the members that it moves."""
    for step in range(1, steps, 3):
        with disable_sync():
            club = Club.objects.create()
            for points in range(4):
                Profile.objects.create(account=Account.objects.create(club=club), points=points)
        settle(AccountRank)
        Profile.objects.update(points=F("points") + 100)
        close = partial(Club.objects.update, is_open=False)
        with comparing(changed_at(step, close)):
            report = verify(AccountRank.instance())
        assert (report.drift, report.unsettled) == (0, 0)
        Account.objects.all().delete()


def test_a_table_truncated_meanwhile_is_not_drift(steps: int) -> None:
    """Its mark names nobody."""

    def truncate() -> None:
        with transaction.atomic():
            Player.objects.all()._raw_delete("default")
            waiting_marks(INDEX).delete()
            Mark.objects.create(index="ascending", member=None)

    for step in range(2, steps, 3):
        players(4)
        Player.objects.update(level=F("level") + 100)
        with comparing(changed_at(step, truncate)):
            report = verify(INDEX)
        assert (report.drift, report.unsettled) == (0, 0)
        drain(INDEX)
        assert contents(PlayerAscending) == ranked(PlayerAscending)


def test_writers_during_the_verification(zrank: Redis, elsewhere: Callable[..., Any]) -> None:
    """Other connections save, update, delete, insert and roll back; nothing of it is drift, and faults are found."""
    pks = players(1000)
    faults = pks[:10]
    zrank.zrem(live(PlayerAscending), *faults)
    done, rounds = Event(), [0, 0]

    def write(number: int) -> None:
        lots = random.Random(1)
        while not done.is_set():
            some = lots.sample(pks[10:], 5)
            save(some[0])
            update(some[1])
            Player.objects.filter(pk=some[2]).update(level=None, is_active=False)
            Player.objects.filter(pk=some[2]).update(level=lots.randrange(1000), is_active=True)
            new = Player.objects.bulk_create([Player(level=5), Player(level=6)])
            Player.objects.create(level=7)
            Player.objects.filter(pk=new[0].pk).delete()
            with transaction.atomic():
                update(some[3])
                transaction.set_rollback(True)
            rounds[number] += 1
        connections.close_all()

    reports = []
    with ThreadPoolExecutor(2) as threads:
        writers = [threads.submit(write, number) for number in range(2)]
        try:
            while len(reports) < 4 or min(rounds) < 10:  # however slow a writer is
                assert not any(writer.done() for writer in writers)
                reports.append(verify(INDEX, batch_size=100))
        finally:
            done.set()
        for writer in writers:
            writer.result(timeout=60)
    assert {counts(report) for report in reports} == {(10, 0, 0)}
    assert verify(INDEX, repair=True).ok
    assert_mirrors(PlayerAscending)


def test_a_rebuild_meanwhile(steps: int) -> None:
    """Reads of the old build say nothing of the new one: verified again."""
    builds: list[int] = []
    tried = range(1, steps, 2)  # the first verification may take a step more
    for step in tried:
        suspects()
        with comparing(changed_at(step, lambda: builds.append(rebuild(INDEX)))):
            report = verify(INDEX, batch_size=4)
        assert (report.rows, report.members, report.drift) == (8, 8, 0)
    assert len(builds) == len(tried)


def test_rebuilds_without_end() -> None:
    players(5)
    with pytest.raises(IndexUnavailable, match="rebuilt too often to be verified"):
        verify(INDEX, progress=lambda rows: rebuild(INDEX))


@pytest.mark.parametrize(
    ("status", "interrupt"),
    [(Status.EMPTY, interrupted), (Status.RESTARTED, comparing)],
    ids=["EMPTY", "RESTARTED"],
)
def test_redis_lost_meanwhile(zrank: Redis, status: Status, interrupt: Callable[..., Any]) -> None:
    """At each step, and at every other one with a change of all members."""
    suspects()
    steps = count_steps(lambda: verify(INDEX, batch_size=4), interrupt)

    def lose(mark: bool) -> None:
        if status is Status.EMPTY:
            zrank.flushall()
        else:
            zrank.hset(Store("ascending").keys.meta, "server", "another server")
        if mark:
            Player.objects.update(level=F("level") + 1)

    for step in range(1, steps + 1, 3):
        pks = suspects()
        with interrupt(changed_at(step, partial(lose, step % 2 == 0))):
            report = verify(INDEX, batch_size=4)
        assert not report.ok
        if report.compared:  # all was read by then
            assert step > steps / 2
            assert counts(report) == (1, 1, 0)
        else:
            assert (report.status, report.drift) == (status, 0)
        Mark.objects.filter(member=str(pks[0])).delete()


def test_redis_lost_after_the_comparison(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was compared is right, and no longer there."""
    players(5)
    just_after(monkeypatch, verification, "_compare", zrank.flushall)
    report = verify(INDEX)
    assert (report.status, report.compared, report.drift, report.ok) == (Status.EMPTY, True, 0, False)


def test_refuses_inside_a_transaction() -> None:
    players(1)
    with pytest.raises(transaction.TransactionManagementError), transaction.atomic():
        verify(INDEX)


# Where marks don't tell


@pytest.fixture
def signals(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Capture by signals, no trigger left, and no patience."""
    settings.ZRANK = {"CAPTURE": "signals"}
    monkeypatch.setattr(verification, "_PAUSE", 0.01)
    drop("default")
    yield
    settings.ZRANK = {}
    install("default", captured("default"))
    Mark.objects.all().delete()


@pytest.mark.usefixtures("signals")
def test_capture_by_signals_finds_and_mends(zrank: Redis) -> None:
    pks = players(50)
    update(pks[0])  # of which nothing tells
    zrank.zrem(live(PlayerAscending), pks[1])
    report = verify(INDEX)
    assert (counts(report), report.capture.mode, report.capture.works) == ((1, 0, 1), "signals", True)
    report = verify(INDEX, repair=True)
    assert (report.repaired, report.ok) == (2, True)
    assert verify(INDEX).drift == 0


@pytest.mark.usefixtures("signals")
def test_without_marks_what_is_wrong_once_is_not_yet_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed, and pushed a moment later."""
    pks = players(50)
    update(pks[0])
    looks: list[int] = []

    def late(seconds: float) -> None:
        looks.append(1)
        if len(looks) == 2:  # before the second look
            push(INDEX, [pks[0]])

    monkeypatch.setattr(verification, "sleep", late)
    assert verify(INDEX).drift == 0
    assert len(looks) == 2


# Triggers


@pytest.fixture
def triggers() -> Iterator[None]:
    """Puts back what a test takes away."""
    yield
    install("default", captured("default"))
    Mark.objects.all().delete()


@pytest.mark.usefixtures("triggers")
def test_missing_triggers() -> None:
    pks = players(5)
    drop("default")
    report = verify(INDEX)
    assert len(report.capture.missing) in (3, 4)
    assert all("zrank_capture_ascending" in trigger.name for trigger in report.capture.missing)
    assert (report.status, report.drift, report.ok) == (Status.TRIGGERS_MISSING, 0, False)
    update(pks[0])
    assert counts(verify(INDEX)) == (0, 0, 1)
    report = verify(INDEX, repair=True)  # which leaves a mark for all members
    assert (report.drift, report.capture.missing) == (0, [])
    assert (report.status_before, report.ok) == (Status.TRIGGERS_MISSING, True)
    assert_mirrors(PlayerAscending)


def test_triggers_of_another_declaration(declare: Callable[..., type[RankIndex]]) -> None:
    index = declare(Player, "level").instance()
    install("default", captured("default"))
    rebuild(index)
    assert verify(index).ok
    try:
        rows = {"get_queryset": lambda self: Player.objects.exclude(name="guest")}
        report = verify(type("Changed", (type(index),), rows).instance())
        assert report.capture.missing or report.capture.outdated
        assert not report.ok
    finally:
        drop("default", [index.name])
        Mark.objects.all().delete()


def test_a_database_without_triggers(monkeypatch: pytest.MonkeyPatch) -> None:
    players(5)
    monkeypatch.setattr("django_zrank.capture.triggers.DIALECTS", {})
    report = verify(INDEX)
    assert report.capture.error is not None
    assert "CAPTURE" in report.capture.error
    assert not report.ok


# Health


def note(**values: Any) -> None:
    Build.objects.filter(index="ascending").update(**values)


def put(field: str, value: str) -> None:
    Store("ascending").client.hset(Store("ascending").keys.meta, field, value)


DAMAGES: dict[Status, Callable[[], Any]] = {
    Status.EMPTY: lambda: Store("ascending").client.flushall(),
    Status.UNKNOWN_BUILD: lambda: note(build="another"),
    Status.RESTARTED: lambda: put("server", "another server"),
    Status.BEHIND: lambda: put("behind", "1"),
    Status.BUILD_NOT_RECORDED: lambda: note(building=F("build"), build="before"),  # MySQL: from left to right
}


@pytest.mark.parametrize("status", DAMAGES, ids=lambda status: status.name)
def test_an_index_that_is_not_healthy(status: Status) -> None:
    """It is not compared, unless it is what marks lead to, and repaired."""
    pks = players(5)
    DAMAGES[status]()
    compared = status is Status.BEHIND
    if not compared:  # to process a mark would end the replay
        Player.objects.filter(pk=pks[0]).update(level=50)
    report = verify(INDEX)
    assert (report.status, report.compared, report.drift, report.ok) == (status, compared, 0, False)
    report = verify(INDEX, repair=True)
    assert (report.status, report.status_before, report.ok) == (Status.HEALTHY, status, True)
    assert_mirrors(PlayerAscending)


# Settings of Redis


@pytest.fixture
def policy(zrank: Redis) -> Iterator[Callable[[str], Any]]:
    before: Any = zrank.config_get("maxmemory-policy")
    yield lambda policy: zrank.config_set("maxmemory-policy", policy)
    zrank.config_set("maxmemory-policy", before["maxmemory-policy"])


@pytest.mark.parametrize("name", ["allkeys-lru", "allkeys-random", "noeviction", "volatile-lru"])
def test_a_policy_that_evicts_the_index_is_a_warning(policy: Callable[[str], Any], name: str) -> None:
    """One that evicts only what expires is none."""
    players(5)
    policy(name)
    report = verify(INDEX)
    assert [name in warning for warning in report.warnings] == [True] * name.startswith("allkeys")
    assert report.ok


def test_where_config_is_forbidden_info_tells(
    policy: Callable[[str], Any], settings: Any, zrank: Redis
) -> None:
    players(5)
    policy("allkeys-lru")
    zrank.acl_setuser("managed", enabled=True, nopass=True, keys="*", commands=["+@all", "-config"])
    url = settings.CACHES["zrank"]["LOCATION"].replace("redis://", "redis://managed:x@")
    use_redis(settings, url)
    try:
        with pytest.raises(NoPermissionError):
            Store("ascending").client.config_get("maxmemory-policy")
        assert "allkeys-lru" in verify(INDEX).warnings[0]
    finally:
        zrank.acl_deluser("managed")


@pytest.mark.parametrize(
    "info",
    [{"side_effect": NoPermissionError("no permissions")}, {"return_value": {"used_memory": 1}}],
    ids=["forbidden", "without a policy"],
)
def test_settings_that_can_not_be_read_are_said_to_be(info: dict[str, Any]) -> None:
    players(5)
    with mock.patch.object(Redis, "info", **info):
        report = verify(INDEX)
    assert ["could not be read" in warning for warning in report.warnings] == [True]
    assert report.ok


# What is said, and what it costs


def test_the_signal(zrank: Redis, hear: Callable[..., list[Any]]) -> None:
    heard, pks = hear(drift_found, "sender", "missing", "extra", "different"), players(20)
    verify(INDEX)
    assert heard == []
    zrank.zrem(live(PlayerAscending), *pks[:3])
    zrank.zadd(live(PlayerAscending), {pks[4]: 50, pks[5]: 60, max(pks) + 1: 1})
    verify(INDEX)
    verify(INDEX, repair=True)
    verify(INDEX)
    assert heard == [(INDEX, 3, 1, 2)] * 2


def test_verifying_writes_nothing_where_nothing_waits(zrank: Redis) -> None:
    pks = players(20)
    zrank.zrem(live(PlayerAscending), pks[0])
    keys: Any = zrank.keys()
    before = {key: held(zrank, key) for key in keys}
    verify(INDEX)
    assert {key: held(zrank, key) for key in keys} == before
    assert zrank.dbsize() == len(keys)
    assert not Mark.objects.exists()


def peak(function: Callable[[], Any]) -> int:
    """The most bytes that ``function`` held at a time."""
    gc.collect()
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["none", "all missing", "all extra", "all different"])
def test_memory_does_not_grow_with_rows(zrank: Redis, fault: str) -> None:
    peaks = []
    for number in (11_000, 40_000 if fault == "none" else 22_000):
        Player.objects.all()._raw_delete("default")
        players(number)
        if fault == "all missing":
            zrank.delete(live(PlayerAscending))
        elif fault == "all extra":
            Player.objects.all()._raw_delete("default")
            Mark.objects.all()._raw_delete("default")
        elif fault == "all different":
            zrank.zunionstore(live(PlayerAscending), {live(PlayerAscending): 2, live(PlayerRank): 1})
        peaks.append(peak(lambda: verify(INDEX, batch_size=500)))
    assert peaks[1] < 1.1 * peaks[0]
