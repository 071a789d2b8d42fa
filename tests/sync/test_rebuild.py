"""A rebuild ends with what the database holds, whatever happens meanwhile; until then nothing is seen of it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from threading import Event, Thread
from time import sleep
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.db.models import F
from django.db.transaction import TransactionManagementError
from redis import Redis

from django_zrank import IndexUnavailable, RankIndex
from django_zrank.exceptions import NotBuilt, RebuildSuperseded
from django_zrank.models import Batch, Build, Mark
from django_zrank.store import LOAD_LIMIT, Change, Store
from django_zrank.sync import rebuild as module
from django_zrank.sync.marks import waiting_marks
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.watch import sync
from django_zrank.testing import disable_sync
from tests.builds import load_rows, shadow, start
from tests.dumps import dump, restore
from tests.servers import RedisServer
from tests.sync.interruptions import just_before
from tests.sync.mirror import assert_mirrors, contents, keys, ranked
from tests.sync.processes import manage
from tests.testapp.models import Account, Club, Employee, Nickname, Player, Profile, Remote, Ticket, Video
from tests.testapp.zrank import (
    AccountRank,
    ByFlag,
    ByInteger,
    ByLoose,
    ByPrice,
    ByReal,
    EmployeeRank,
    NicknameRank,
    PlayerAscending,
    PlayerRank,
    RemoteRank,
    VideoRank,
)
from tests.writes import begin_write

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank", "undrained"),
]

INDEX = NicknameRank.instance()
STORE = Store("nickname")
STALE = {"stale": 1.0}


def populate(size: int) -> None:
    """Rows that nobody has pushed, with every score twice and some missing."""
    Nickname.objects.bulk_create(
        Nickname(nick=f"n{number}", score=None if number % 7 == 3 else number * 37 % size // 2)
        for number in range(size)
    )


@pytest.fixture
def stale(zrank: Redis) -> dict[str, float]:
    """A live index that has nothing to do with the 30 rows of the table."""
    populate(30)
    zrank.zadd(STORE.live.root, STALE)
    return STALE


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The rows that are loaded from now on."""
    loaded: list[list[Any]] = []
    load_rows = Store.load_rows

    def record(store: Store, building: str, rows: Any) -> bool:
        loaded.append(list(rows))
        return load_rows(store, building, rows)

    monkeypatch.setattr(Store, "load_rows", record)
    return loaded


class Once:
    """A ``progress`` that calls a function after one batch."""

    def __init__(self, function: Callable[[], Any], *, after: int = 1) -> None:
        self.function = function
        self.left = after

    def __call__(self, rows: int) -> None:
        self.left -= 1
        if self.left == 0:
            self.function()


# What comes out


def test_the_index_holds_what_the_queryset_holds(stale: dict[str, float]) -> None:
    assert rebuild(INDEX) == len(ranked(NicknameRank)) == 26
    assert_mirrors(NicknameRank)
    assert keys(NicknameRank) == {"live", "meta"}


def test_rows_outside_the_queryset_and_without_a_score_are_left_out() -> None:
    Player.objects.bulk_create(
        [Player(pk=1, level=5), Player(pk=2, level=6, is_active=False), Player(pk=3, level=None)]
    )
    assert rebuild(PlayerRank.instance()) == 1
    assert rebuild(PlayerAscending.instance()) == 2
    assert contents(PlayerRank) == {"1": 5}
    assert contents(PlayerAscending) == {"1": 5, "2": 6}


def test_every_kind_of_index() -> None:
    with disable_sync():
        for number in range(5):
            account = Account.objects.create(club=Club.objects.create(is_open=number != 3))
            Profile.objects.create(account=account, points=number)
            Employee.objects.create(points=-number)
            Ticket.objects.create(integer=number, real=number / 3, price="1.25", flag=number % 2)
            Remote.objects.create(score=number)
    for index in (AccountRank, EmployeeRank, ByInteger, ByReal, ByFlag, ByPrice, RemoteRank):
        assert rebuild(index.instance()) == (4 if index is AccountRank else 5)
    assert_mirrors(AccountRank, EmployeeRank, ByInteger, ByReal, ByFlag, RemoteRank)
    assert set(contents(ByPrice).values()) == {125}


def test_an_empty_table_is_built_and_empty(zrank: Redis) -> None:
    zrank.flushall()
    with pytest.raises(NotBuilt):
        NicknameRank.ranking.count()
    assert rebuild(INDEX) == 0
    assert NicknameRank.ranking.count() == 0
    zrank.zadd(STORE.live.root, STALE)
    rebuild(INDEX)
    assert contents(NicknameRank) == {}


def test_an_unrankable_row_is_logged_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    Ticket.objects.bulk_create(Ticket(loose=number) for number in (1, 2**60, 3))
    assert rebuild(ByLoose.instance()) == 2
    assert sorted(contents(ByLoose).values()) == [1, 3]
    assert str(2**60) in caplog.text


# How it goes


@pytest.mark.parametrize("index", [PlayerRank, PlayerAscending])
def test_rows_come_in_the_order_of_their_scores(index: type[RankIndex], batches: list[list[Any]]) -> None:
    Player.objects.bulk_create(Player(level=number * 37 % 100) for number in range(100))
    rebuild(index.instance(), batch_size=7)
    scores = [score for batch in batches for _, score, _ in batch]
    assert all(first <= second for first, second in pairwise(scores))
    assert len(scores) == 100


def test_rows_come_in_batches_of_the_size_asked(batches: list[list[Any]]) -> None:
    populate(30)
    progress: list[int] = []
    rebuild(INDEX, batch_size=10, progress=progress.append)
    assert [len(batch) for batch in batches] == progress == [10, 10, 6]


def test_the_largest_batch(batches: list[list[Any]]) -> None:
    Nickname.objects.bulk_create(Nickname(nick=str(number), score=number) for number in range(LOAD_LIMIT + 1))
    rebuild(INDEX, batch_size=LOAD_LIMIT)
    assert [len(batch) for batch in batches] == [LOAD_LIMIT, 1]
    assert_mirrors(NicknameRank)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows() -> None:
    """Many times as many rows in the same memory: a few batches are what it holds."""
    few, many = (4_000, 40_000) if connection.vendor == "sqlite" else (4_000, 16_000)

    def peak(rows: int) -> int:
        Nickname.objects.all().delete()
        Nickname.objects.bulk_create(
            (Nickname(nick=str(number), score=number) for number in range(rows)), batch_size=2000
        )
        Mark.objects.all().delete()  # whose ids it remembers
        gc.collect()  # it empties Python's free lists too: what is taken from them is not counted
        tracemalloc.start()
        try:
            assert rebuild(INDEX, batch_size=500) == rows
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    with disable_sync():
        peak(10)  # what is imported and cached at the first time
        small = peak(few)
        assert peak(many) < 1.5 * small


# What readers see


def test_readers_see_the_old_index_until_the_new_one_is_complete(stale: dict[str, float]) -> None:
    seen = []
    rebuild(INDEX, batch_size=1, progress=lambda rows: seen.append(contents(NicknameRank)))
    assert seen == [STALE] * 26
    assert_mirrors(NicknameRank)


def test_no_reader_ever_finds_it_empty() -> None:
    populate(300)
    rebuild(INDEX)
    whole, seen, began, stop = contents(NicknameRank), [], Event(), Event()

    def watch() -> None:
        while not stop.is_set():
            seen.append(STORE.size())
            began.set()

    thread = Thread(target=watch)
    thread.start()
    try:
        assert began.wait(30)
        for _ in range(20):
            rebuild(INDEX, batch_size=50)
    finally:
        stop.set()
        thread.join(30)
    assert set(seen) == {len(whole)}


# What is written meanwhile


@pytest.mark.parametrize("after", [1, 2, 3], ids=lambda batch: f"after batch {batch}")
def test_members_saved_and_deleted_meanwhile_are_not_lost(after: int, elsewhere: Callable[..., Any]) -> None:
    """Lowest to highest score, each third is loaded by a batch: change some in all of them, to all of them."""
    Nickname.objects.bulk_create(Nickname(nick=f"n{number:02}", score=number) for number in range(30))

    def change() -> None:
        for number, score in [(1, 25.5), (2, None), (11, 0.5), (12, None), (13, 28.5), (21, 5.5), (22, None)]:
            Nickname(nick=f"n{number:02}", score=score).save()
        for number in (3, 14, 25):
            Nickname(nick=f"n{number:02}").delete()
        for score in (0.1, 15.1, 99):
            Nickname.objects.create(nick=f"new{score}", score=score)

    rebuild(INDEX, batch_size=10, progress=Once(lambda: elsewhere(change), after=after))
    assert_mirrors(NicknameRank)


def test_what_is_saved_during_the_first_build_of_all(zrank: Redis, elsewhere: Callable[..., Any]) -> None:
    zrank.flushall()
    populate(10)

    def change() -> None:
        Nickname(nick="n1", score=99).save()
        assert contents(NicknameRank) == {}

    rebuild(INDEX, batch_size=4, progress=Once(lambda: elsewhere(change)))
    assert_mirrors(NicknameRank)


def test_what_is_saved_meanwhile_is_seen_at_once(elsewhere: Callable[..., Any]) -> None:
    Nickname.objects.create(nick="a", score=1)

    def change() -> None:
        Nickname(nick="a", score=2).save()
        assert contents(NicknameRank) == {"a": 2}

    rebuild(INDEX, progress=Once(lambda: elsewhere(change)))
    assert contents(NicknameRank) == {"a": 2}


# What stops it


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_stopped_by_an_error_it_leaves_the_live_index_and_nothing_else(
    error: type[BaseException], stale: dict[str, float]
) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(error):
        rebuild(INDEX, batch_size=10, progress=Once(fail, after=2))
    assert contents(NicknameRank) == STALE
    assert keys(NicknameRank) == {"live", "meta"}
    Nickname(nick="n1", score=5).save()
    assert contents(NicknameRank) == {**STALE, "n1": 5}


def test_stopped_by_the_database(stale: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Iterator[Any]:
        yield ("n1", 1, b"")
        raise DatabaseError("gone away")

    monkeypatch.setattr(module, "encode", fail)
    with pytest.raises(DatabaseError):
        rebuild(INDEX)
    assert contents(NicknameRank) == STALE
    assert keys(NicknameRank) == {"live", "meta"}


def test_stopped_by_redis(own_server: RedisServer) -> None:
    populate(30)
    with pytest.raises(IndexUnavailable):
        rebuild(INDEX, batch_size=10, progress=Once(own_server.stop))
    with pytest.raises(IndexUnavailable):
        rebuild(INDEX)


def test_a_redis_that_restarted_meanwhile_has_lost_what_was_loaded(own_server: RedisServer) -> None:
    populate(30)
    with pytest.raises(RebuildSuperseded):
        rebuild(
            INDEX, batch_size=10, progress=Once(own_server.restart, after=3)
        )  # no batch is on its way any more
    assert keys(NicknameRank) == set()


def test_killed_it_leaves_the_live_index_and_the_next_one_clears_up(stale: dict[str, float]) -> None:
    process = manage("rebuild_zrank", "nickname", "--batch-size=10", pause=True)
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "loaded\n"
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "loaded\n"
        process.kill()
    assert contents(NicknameRank) == STALE
    assert "shadow" in keys(NicknameRank)  # what it left
    Nickname(nick="n1", score=5).save()
    assert contents(NicknameRank) == {**STALE, "n1": 5}
    call_command("rebuild_zrank", "nickname", verbosity=0)
    assert_mirrors(NicknameRank)
    assert keys(NicknameRank) == {"live", "meta"}


# Two of them


def test_superseded_by_another_one_that_ended(stale: dict[str, float], elsewhere: Callable[..., Any]) -> None:
    with pytest.raises(RebuildSuperseded, match="'nickname': another rebuild"):
        rebuild(INDEX, batch_size=10, progress=Once(lambda: elsewhere(rebuild, INDEX)))
    assert_mirrors(NicknameRank)
    assert keys(NicknameRank) == {"live", "meta"}


@pytest.mark.parametrize("after", [1, 3], ids=["before a batch", "before the swap"])
def test_superseded_by_another_one_that_is_running(after: int, stale: dict[str, float], zrank: Redis) -> None:
    def another() -> None:
        start(STORE, "another")
        load_rows(STORE, "another", [Change("theirs", 7)])

    with pytest.raises(RebuildSuperseded):
        rebuild(INDEX, batch_size=10, progress=Once(another, after=after))
    assert contents(NicknameRank) == STALE
    assert zrank.hget(STORE.keys.meta, "building") == b"another"
    assert STORE.swap_rebuilt("another")
    assert contents(NicknameRank) == {"theirs": 7}


def test_superseded_by_a_machine_that_is_rolled_back_with_its_memory(
    stale: dict[str, float], zrank: Redis
) -> None:
    """Rows that were loaded since are gone, while the build has the same name."""
    held: list[Any] = []

    def go_back(rows: int) -> None:
        held.append(None if held else dump(zrank))
        if len(held) == 20:  # batches, of which few were loaded before the first was told of
            restore(zrank, held[0])

    with pytest.raises(RebuildSuperseded):
        rebuild(INDEX, batch_size=1, progress=go_back)
    assert contents(NicknameRank) == STALE


# A dead one


def silence(client: Redis) -> None:
    """Let the running rebuild have been silent for longer than its lease."""
    seen = client.hget(STORE.keys.meta, "heartbeat")
    client.hset(STORE.keys.meta, "heartbeat", int(seen or 0) - 601 * 1_000_000)


def test_what_a_dead_one_left_is_cleared_by_a_push(zrank: Redis) -> None:
    start(STORE, "dead")
    load_rows(STORE, "dead", [Change("theirs", 7)])
    Nickname.objects.create(nick="a", score=1)
    assert zrank.zscore(shadow(STORE, "dead"), "a") == 1  # it may be alive
    silence(zrank)
    Nickname.objects.create(nick="b", score=2)
    assert contents(NicknameRank) == {"a": 1, "b": 2}
    STORE.unlink_doomed()
    assert not zrank.exists(shadow(STORE, "dead"))
    assert not zrank.hexists(STORE.keys.meta, "building")


def test_taken_for_dead_it_gives_way_when_it_comes_back(
    stale: dict[str, float], zrank: Redis, elsewhere: Callable[..., Any]
) -> None:
    def sleep() -> None:
        while zrank.hexists(STORE.keys.meta, "building"):  # a piece that is under way says that it is alive
            silence(zrank)
            elsewhere(Nickname(nick="n1", score=5).save)

    with pytest.raises(RebuildSuperseded):
        rebuild(INDEX, batch_size=10, progress=Once(sleep))
    assert contents(NicknameRank) == {**STALE, "n1": 5}


# Where it refuses


@pytest.fixture
def rebuild_slowly(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Rebuilds an index by a query that takes longer than the lease, and calls a function before its first row."""
    monkeypatch.setattr(Store, "LEASE", 1)

    def rebuild_slowly(index: type[RankIndex], act: Callable[[], Any]) -> None:
        came: list[Any] = []

        def execute(run: Callable[..., Any], sql: str, *args: Any) -> Any:
            table = index.instance().model._meta.db_table
            if sql.startswith(("SELECT", "DECLARE")) and table in sql and not came:
                sleep(1.4)
                came.append(act())
            return run(sql, *args)

        with connection.execute_wrapper(execute):
            rebuild(index.instance())
        assert came
        assert_mirrors(index)

    return rebuild_slowly


def test_a_query_that_takes_longer_than_the_lease(
    rebuild_slowly: Callable[..., None], elsewhere: Callable[..., Any]
) -> None:
    """A watcher that comes by leaves it alone, though no row has come yet."""

    def come_by() -> None:
        with pytest.raises(RebuildSuperseded):
            elsewhere(rebuild, INDEX, polite=True)

    populate(10)
    rebuild_slowly(NicknameRank, come_by)


@pytest.mark.part("write_behind")
def test_heartbeats_where_scores_were_flushed(rebuild_slowly: Callable[..., None]) -> None:
    """What is flushed by no row that has come is no reason to refuse them."""
    from django_zrank.write_behind.flush import flush

    video, index = Video.objects.create(views=1), VideoRank.instance()
    for _ in range(14):
        VideoRank.scores.increment(video)
        flush(index)
    rebuild_slowly(VideoRank, lambda: begin_write(Store.of(index)))


def test_inside_a_transaction_it_refuses(round_trips: list[str]) -> None:
    with transaction.atomic(), pytest.raises(TransactionManagementError):
        rebuild(INDEX)
    assert round_trips == []


def test_a_transaction_in_another_database_does_not_matter() -> None:
    with transaction.atomic(using="other"):
        rebuild(INDEX)


def test_without_autocommit_it_refuses() -> None:
    """Rows that were read may be rolled back, as inside ``atomic()``."""
    transaction.set_autocommit(False)
    try:
        with pytest.raises(TransactionManagementError):
            rebuild(INDEX)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


# Marks


def mark(*members: str | None) -> None:
    Mark.objects.bulk_create(Mark(index="nickname", member=member) for member in members)


@pytest.fixture
def unmarked(stale: dict[str, float]) -> None:
    """No mark but those that the test leaves."""
    Mark.objects.all().delete()


def test_marks_that_it_covers_are_taken_away_for_good(unmarked: None) -> None:
    mark(None, *(f"n{number}" for number in range(1500)))
    Mark.objects.create(index="player", member="1")
    rebuild(INDEX)
    assert list(Mark.objects.values_list("index", flat=True)) == ["player"]
    assert not Batch.objects.exists()


def test_after_the_first_build_there_is_nothing_to_do(unmarked: None, batches: list[Any]) -> None:
    """The triggers of a new index leave a mark for all members."""
    mark(None)
    rebuild(INDEX)
    batches.clear()
    assert sync(INDEX).marks == 0
    assert batches == []


def test_a_mark_that_came_meanwhile_waits_on(unmarked: None, elsewhere: Callable[..., Any]) -> None:
    mark("n1")
    rebuild(INDEX, batch_size=7, progress=Once(lambda: elsewhere(mark, "n2")))
    assert list(waiting_marks(INDEX).values_list("member", flat=True)) == ["n2"]


def test_one_that_is_superseded_takes_no_mark_away(unmarked: None) -> None:
    mark("n1")
    with pytest.raises(RebuildSuperseded):
        rebuild(INDEX, batch_size=7, progress=Once(lambda: start(STORE, "another")))
    assert waiting_marks(INDEX).count() == 1


def test_one_whose_server_was_replaced_takes_no_mark_away(
    unmarked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was put in place; then another server took over; then the database notes it."""
    mark("n1")
    row = Build.objects.filter(index="nickname")
    just_before(monkeypatch, module, "retire", lambda: row.update(term=F("term") + 1))
    rebuild(INDEX)
    assert waiting_marks(INDEX).count() == 1


def test_marks_beyond_so_many_are_left_to_the_drain(unmarked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETIRED", 2)
    mark("n1", "n2", "n3")
    rebuild(INDEX)
    assert list(waiting_marks(INDEX).values_list("member", flat=True)) == ["n3"]


@pytest.mark.parametrize("where", ["load_rows", "progress"])
def test_the_connection_can_be_used_where_a_rebuild_failed(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """An exception keeps frames alive, and those must hold no query open: MySQL takes no other meanwhile."""
    Player.objects.bulk_create(Player(level=level) for level in range(50))

    def fail(*args: Any) -> Any:
        raise IndexUnavailable("out of reach")

    if where == "load_rows":
        monkeypatch.setattr(Store, "load_rows", fail)
    with pytest.raises(IndexUnavailable) as failure:
        rebuild(
            PlayerAscending.instance(),
            batch_size=10,
            progress=fail if where == "progress" else lambda rows: None,
        )
    assert failure.value.__traceback__
    assert Player.objects.count() >= 50


# A server without memory


@pytest.fixture
def exhaust(zrank: Redis) -> Iterator[Callable[[], Any]]:
    """Leave the server without memory, until the test ends."""
    yield lambda: zrank.config_set("maxmemory", 1)
    zrank.config_set("maxmemory", 0)


def test_a_rebuild_that_runs_out_of_memory_frees_what_it_built(
    stale: dict[str, float], exhaust: Callable[[], Any]
) -> None:
    with pytest.raises(Exception, match="command not allowed when used memory"):
        rebuild(INDEX, batch_size=5, progress=Once(exhaust))
    assert keys(NicknameRank) == {"live", "meta"}
    assert contents(NicknameRank) == stale


def test_without_memory_a_rebuild_frees_what_a_killed_one_left(
    stale: dict[str, float], exhaust: Callable[[], Any]
) -> None:
    start(STORE, "killed")
    load_rows(STORE, "killed", [("1", 1.0, b"")])
    exhaust()
    with pytest.raises(Exception, match="command not allowed when used memory"):
        rebuild(INDEX)
    assert keys(NicknameRank) == {"live", "meta"}
    assert contents(NicknameRank) == stale
