"""Marks are processed, in the order that makes it right, whatever comes between."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import DataError, InterfaceError, OperationalError, connection, transaction
from django.db.models import F
from redis import Redis

from django_zrank import IndexUnavailable
from django_zrank.builds import recorded
from django_zrank.exceptions import IndexUnhealthy, NotBuilt
from django_zrank.models import Batch, Build, Mark
from django_zrank.recent import Recent
from django_zrank.signals import drained, drift_found, rebuilt, repaired
from django_zrank.store import Health, Store
from django_zrank.sync import drain as drain_module
from django_zrank.sync import marks
from django_zrank.sync import push as push_module
from django_zrank.sync.drain import drain, drain_soon
from django_zrank.sync.health import Status, examine
from django_zrank.sync.marks import waiting_marks
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from django_zrank.testing import EmbeddedServer
from tests.sync.interruptions import just_before
from tests.sync.mirror import assert_mirrors, contents
from tests.testapp.models import Account, Club, Player, Profile
from tests.testapp.zrank import AccountRank, PlayerAscending

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank", "undrained"),
]

INDEX = PlayerAscending.instance()


@pytest.fixture(autouse=True)
def built(zrank: Redis) -> None:
    """The database knows of the build that Redis holds."""
    rebuild(INDEX)
    rebuild(AccountRank.instance())


@pytest.fixture
def due(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The drain after a push is due. Returns the time, which the test may change."""
    now = [100.0]
    monkeypatch.setattr(drain_module, "_done", Recent())
    for module in ("recent", "sync.drain"):
        monkeypatch.setattr(f"django_zrank.{module}.monotonic", lambda: now[0])
    return now


@pytest.fixture
def players(built: None) -> list[Player]:
    """Twenty players whom no signal told of, and no mark but one for each."""
    players = Player.objects.bulk_create([Player(level=level) for level in range(20)])
    Mark.objects.all().delete()
    mark(*(player.pk for player in players))
    return players


def mark(*members: Any, index: str = "ascending", via: str | None = None) -> list[Mark]:
    return [Mark.objects.create(index=index, via=via, member=str(member)) for member in members]


@pytest.fixture
def failing() -> Iterator[list[Any]]:
    """The signals that receivers have heard who raised."""
    heard: list[Any] = []

    def fail(signal: Any, **kwargs: Any) -> None:
        heard.append(signal)
        raise RuntimeError("a receiver of the project")

    signals = drained, drift_found, rebuilt, repaired
    for signal in signals:
        signal.connect(fail)
    yield heard
    for signal in signals:
        signal.disconnect(fail)


def test_receivers_that_fail_hold_nothing_up(
    players: list[Player], zrank: Redis, failing: list[Any], pushes: list[Any]
) -> None:
    """Marks that were processed were once taken for faulty, and processed again, half by half."""
    assert drain(INDEX) == 20
    assert (failing, len(pushes)) == ([drained], 1)
    Mark.objects.create(index="ascending")
    assert drain(INDEX) == 1
    assert failing == [drained, rebuilt, drained]
    zrank.flushall()
    sync(INDEX)
    zrank.zincrby(Store.of(INDEX).learn().root, 1, str(players[0].pk))
    assert verify(INDEX).different.count == 1
    assert failing[3:] == [rebuilt, repaired, drift_found]
    assert not waiting_marks(INDEX).exists()


@pytest.mark.parametrize("batch_size", [3, 5000])
def test_works_off_what_waits(players: list[Player], batch_size: int) -> None:
    assert drain(INDEX, batch_size=batch_size) == 20
    assert_mirrors(PlayerAscending)
    assert not waiting_marks(INDEX).exists()
    assert drain(INDEX) == 0


def test_a_limit(players: list[Player]) -> None:
    assert drain(INDEX, limit=7) == 7
    assert len(contents(PlayerAscending)) == 7
    assert waiting_marks(INDEX).count() == 13


def test_leaves_the_marks_of_other_indexes(players: list[Player]) -> None:
    mark(players[0].pk, index="player")
    drain(INDEX)
    assert list(Mark.objects.values_list("index", flat=True)) == ["player"]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="asks PostgreSQL")
@pytest.mark.parametrize("analyzed", ["while it was empty", "while it was full", "never"])
def test_each_mark_is_looked_at_a_few_times_whatever_the_statistics_say(
    analyzed: str, players: list[Player]
) -> None:
    """Those of a table that fills and empties all the time are of another time. To read all of it for each batch makes
    a drain the slower the more marks wait."""
    table, count = Mark._meta.db_table, 10_000

    def execute(sql: str) -> int:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchone()[0] if cursor.description else 0

    def looked_at() -> int:
        execute("SELECT pg_stat_force_next_flush()")
        return execute(
            f"SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = '{table}'"
        )

    Mark.objects.all().delete()
    execute(f"VACUUM {table}")
    if analyzed == "while it was empty":
        execute(f"ANALYZE {table}")
    Mark.objects.bulk_create(
        Mark(index=index, member=str(players[number % 20].pk))
        for number in range(count)
        for index in ("ascending", "player")
    )
    if analyzed == "while it was full":
        execute(f"ANALYZE {table}")
    before = looked_at()
    assert drain(INDEX, batch_size=500) == count
    # By reading and by deleting, those of the other index in between, too; and once more where nothing is left.
    assert looked_at() - before < 6 * count


def test_removes_what_is_gone(players: list[Player]) -> None:
    drain(INDEX)
    Player.objects.filter(level__lt=5)._raw_delete("default")
    mark(*(player.pk for player in players))
    drain(INDEX)
    assert_mirrors(PlayerAscending)


def test_worked_off_marks_remember_where(players: list[Player]) -> None:
    drain(INDEX, limit=10)
    drain(INDEX)
    first, second = Batch.objects.order_by("id")
    assert first.index == second.index == "ascending"
    assert first.version < second.version == int(INDEX.ranking.store.check_health().applied)
    assert first.marks == [[None, str(player.pk)] for player in players[:10]]
    assert second.marks == [[None, str(player.pk)] for player in players[10:]]


def test_marks_that_say_the_same_are_remembered_once(players: list[Player]) -> None:
    mark(*(player.pk for player in players))
    assert drain(INDEX) == 40
    assert len(Batch.objects.get().marks) == 20


def test_of_two_drains_of_the_same_marks_one_takes_them_away(
    players: list[Player], monkeypatch: pytest.MonkeyPatch
) -> None:
    just_before(monkeypatch, push_module.Push, "write", lambda: drain(INDEX))
    drain(INDEX)
    assert Batch.objects.count() == 1


def test_ids_are_never_used_twice(players: list[Player]) -> None:
    """A drain that slept must not take away a mark that came since."""
    last = waiting_marks(INDEX).latest("id").pk
    drain(INDEX)
    assert not Mark.objects.exists()
    assert mark(players[0].pk)[0].pk > last


def test_waits_for_no_writer(players: list[Player], elsewhere: Callable[..., Any]) -> None:
    """A transaction that isn't over leaves marks that nobody sees, and holds them."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time.")
    patience = {"postgresql": "SET lock_timeout = '2s'", "mysql": "SET innodb_lock_wait_timeout = 2"}

    def drain_impatiently() -> int:
        with connection.cursor() as cursor:
            cursor.execute(patience[connection.vendor])
        return drain(INDEX)

    with transaction.atomic():
        mark(players[3].pk)
        assert elsewhere(drain_impatiently) == 20
    assert waiting_marks(INDEX).count() == 1


def test_marks_of_related_rows() -> None:
    club, of_nobody = Club.objects.create(), Club.objects.create()
    accounts = [Account.objects.create(club=club) for _ in range(3)]
    for points, account in enumerate(accounts):
        Profile.objects.create(account=account, points=points)
    assert len(contents(AccountRank)) == 3
    Club.objects.update(is_open=False)
    Mark.objects.all().delete()
    mark(club.pk, index="account", via="club_id")
    mark(of_nobody.pk, index="account", via="club_id")
    assert drain(AccountRank.instance()) == 2 + 3  # the first leaves one for each member
    assert contents(AccountRank) == {}
    assert not waiting_marks(AccountRank.instance()).exists()


def test_a_truncated_table(players: list[Player]) -> None:
    drain(INDEX)
    Player.objects.all()._raw_delete("default")
    Mark.objects.all().delete()
    Mark.objects.create(index="ascending", member=None)
    assert drain(INDEX) == 1
    assert contents(PlayerAscending) == {}
    assert not waiting_marks(INDEX).exists()


def test_a_push_leaves_the_rebuild_of_a_truncated_table_to_others(players: list[Player], due: Any) -> None:
    everybody = Mark.objects.create(index="ascending", member=None)
    drain_soon(INDEX)
    assert list(waiting_marks(INDEX)) == [everybody]


def test_a_mark_that_cant_be_worked_off_keeps_none_waiting(
    players: list[Player], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned = mark(players[0].pk)[0]

    def choke(index: Any, pks: Any, store: Any) -> Any:
        if players[0].pk in (pks := list(pks)):
            raise ArithmeticError("this one")
        return read(index, pks, store)

    read = push_module.read
    monkeypatch.setattr(push_module, "read", choke)
    mark(players[1].pk)
    Mark.objects.filter(member=str(players[0].pk)).exclude(pk=poisoned.pk).delete()
    with caplog.at_level(logging.ERROR, "django_zrank.sync"):
        drain(INDEX)
    assert list(waiting_marks(INDEX)) == [poisoned]
    assert "this one" in caplog.text


@pytest.mark.parametrize(
    "error", [IndexUnavailable("away"), OperationalError("away"), InterfaceError("away")]
)
def test_what_fails_all_marks_is_raised_and_blamed_on_none(
    players: list[Player], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """An outage: each half would fail, too, down to the last mark."""
    tried = []

    def fail(*args: Any, **kwargs: Any) -> Any:
        tried.append(args)
        raise error

    monkeypatch.setattr(push_module.Push, "write", fail)
    with pytest.raises(type(error), match="away"):
        drain(INDEX)
    assert len(tried) == 1
    assert "can't be processed" not in caplog.text


def test_a_value_that_the_database_refuses_is_blamed_on_its_mark(
    players: list[Player], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write, bad = push_module.Push.write, players[7].pk

    def refuse(push: Any, members: Any, **how: Any) -> Any:
        if any(bad in pks for pks in members.values()):
            raise DataError("a value")
        return write(push, members, **how)

    monkeypatch.setattr(push_module.Push, "write", refuse)
    assert drain(INDEX) == 19
    assert [one.member for one in waiting_marks(INDEX)] == [str(bad)]
    assert caplog.text.count("can't be processed") == 1


def test_a_mark_that_cant_be_processed_keeps_no_replay_from_its_end(
    players: list[Player], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, bad = Store.of(INDEX), waiting_marks(INDEX).first()
    assert bad
    Build.objects.filter(index=INDEX.name).update(replayed_from=bad.pk, replayed_to=bad.pk)
    store.client.hset(store.keys.meta, "behind", "2")
    assert store.check_health().behind == "2"

    def refuse(*args: Any, **how: Any) -> Any:
        raise ValueError("a poison row")

    with monkeypatch.context() as patch:
        patch.setattr(push_module.Push, "write", refuse)
        drain(INDEX)
    assert waiting_marks(INDEX).count() == 20
    assert not store.check_health().behind


def test_where_no_build_is_recorded_marks_and_batches_are_left(players: list[Player]) -> None:
    """A restored database may have them without the row that they belong to."""
    drain(INDEX)
    mark(*(player.pk for player in players))
    Build.objects.filter(index=INDEX.name).delete()
    build = {INDEX: (Store.of(INDEX).learn().build, 1)}
    marks.retire(INDEX, marks.waiting_ids(INDEX, 100), build)
    marks.forget_batches(INDEX, -1)
    assert waiting_marks(INDEX).count() == 20
    assert Batch.objects.filter(index=INDEX.name).count() == 1


def emptied(server: str) -> Health:
    """The state of a server that lacks every write of the database's term."""
    health = Store.of(INDEX).check_health()
    return health._replace(term=str(recorded(INDEX).term), traces="", taken="", took="", server=server)


def test_a_replay_leaves_marks_again_and_deletes_their_batches(players: list[Player]) -> None:
    drain(INDEX)
    note = recorded(INDEX)
    assert marks.replay(INDEX, emptied("another"), noted=note) == 20
    assert waiting_marks(INDEX).count() == 20
    assert not Batch.objects.filter(index=INDEX.name).exists()
    renewed = recorded(INDEX)
    assert (renewed.term, renewed.server) == (note.term + 1, "another")
    assert marks.replayed_marks(INDEX).count() == 20


def test_a_replay_for_another_note_changes_nothing(players: list[Player]) -> None:
    drain(INDEX)
    note = recorded(INDEX)
    Build.objects.filter(index=INDEX.name).update(term=F("term") + 1)
    assert marks.replay(INDEX, emptied("another"), noted=note) is None
    assert not waiting_marks(INDEX).exists()
    assert Batch.objects.filter(index=INDEX.name).count() == 1
    assert recorded(INDEX).server != "another"


def test_a_replay_that_is_not_finished_is_part_of_the_next(players: list[Player]) -> None:
    drain(INDEX)
    note = recorded(INDEX)
    marks.replay(INDEX, emptied("another"), noted=note)
    first = recorded(INDEX)
    # Nothing else was lost, but what waits still belongs to a replay.
    assert marks.replay(INDEX, emptied("a third"), noted=first) == 1
    assert marks.replayed_marks(INDEX).count() == 20
    waiting_marks(INDEX).delete()
    last = recorded(INDEX)
    assert marks.replay(INDEX, emptied("a fourth"), noted=last) == 0


def test_a_drain_unlinks_builds_that_were_replaced(players: list[Player], due: list[float]) -> None:
    store = Store.of(INDEX)
    store.client.sadd(store.keys.doomed, "a")
    store.client.zadd(store.keys.at("a").root, {"1": 1})
    drain(INDEX)
    assert not store.client.exists(store.keys.doomed, store.keys.at("a").root)
    store.client.sadd(store.keys.doomed, "b")
    drain(INDEX)  # once a minute
    assert store.client.exists(store.keys.doomed)


def test_whoever_pushes_reads_one_batch(
    players: list[Player], monkeypatch: pytest.MonkeyPatch, due: list[float]
) -> None:
    """The others have their turn later: a request waits."""
    monkeypatch.setattr(drain_module, "_SHARE", 5)
    drain_soon(INDEX)
    assert waiting_marks(INDEX).count() == 15


def test_whoever_pushes_inside_a_transaction_drains_nothing(players: list[Player], due: list[float]) -> None:
    """Its snapshot may be older than the marks, and the rows that it would write may be rolled back."""
    with transaction.atomic():
        drain_soon(INDEX)
    assert waiting_marks(INDEX).count() == 20
    drain_soon(INDEX)
    assert not waiting_marks(INDEX).exists()


@pytest.fixture
def poison(players: list[Player], monkeypatch: pytest.MonkeyPatch, due: list[float]) -> set[int]:
    """The first five players, who can't be written as long as they are in the set. Who pushes reads five marks."""
    poison = {player.pk for player in players[:5]}
    read = push_module.read

    def choke(index: Any, pks: Any, *stores: Any) -> Any:
        if poison.intersection(pks := list(pks)):
            raise ArithmeticError("these")
        return read(index, pks, *stores)

    monkeypatch.setattr(push_module, "read", choke)
    monkeypatch.setattr(drain_module, "_SHARE", 5)
    return poison


def test_whoever_pushes_goes_on_beyond_marks_that_stay(poison: set[int], due: list[float]) -> None:
    """From the first mark each time, it would never reach the others."""
    for left in (20, 15, 15, 10, 10, 5, 5):
        drain_soon(INDEX)
        assert waiting_marks(INDEX).count() == left
        due[0] += 1


def test_whoever_pushes_starts_over_after_a_minute(
    players: list[Player], poison: set[int], due: list[float]
) -> None:
    """Where some of each batch stay, it would never return to the first ones."""
    drain_soon(INDEX)
    poison.clear()
    due[0] += 60
    drain_soon(INDEX)
    left = set(waiting_marks(INDEX).values_list("member", flat=True))
    assert left == {str(player.pk) for player in players[5:]}


def test_whoever_pushes_begins_with_the_first_mark_unless_some_stay(
    players: list[Player], due: list[float]
) -> None:
    """A transaction that is committed late leaves marks with lower ids."""
    drain_soon(INDEX)
    assert not waiting_marks(INDEX).exists()
    Mark.objects.create(id=1, index=INDEX.name, member=str(players[0].pk))
    due[0] += 1
    drain_soon(INDEX)
    assert not waiting_marks(INDEX).exists()


def test_marks_of_related_rows_are_left_to_the_declaration_that_is_built() -> None:
    """They may lead to other members by that, and are replaced by marks of these only once."""
    club = Club.objects.create()
    Profile.objects.create(account=Account.objects.create(club=club), points=1)
    Mark.objects.all().delete()
    related = mark(club.pk, index="account", via="club_id")
    Build.objects.filter(index="account").update(build="ffffffff-another")
    with pytest.raises(NotBuilt):
        drain(AccountRank.instance())
    assert list(Mark.objects.all()) == related


def test_a_mark_of_what_no_rows_key_can_be_is_worked_off(players: list[Player]) -> None:
    """A row that points at rows of several models leaves such marks, with the keys of others."""
    mark("no primary key", 2**63, -(2**63) - 1, 10**30)
    mark(players[0].pk)
    assert drain(INDEX) == 25
    assert not waiting_marks(INDEX).exists()
    assert_mirrors(PlayerAscending)


def test_refuses_inside_a_transaction() -> None:
    with pytest.raises(transaction.TransactionManagementError), transaction.atomic():
        drain(INDEX)


@pytest.mark.parametrize(
    ("known", "error"),
    [
        ({"build": "of its successor"}, IndexUnhealthy),
        ({"term": F("term") + 1}, IndexUnhealthy),  # a replica that took over holds the same build
        ({}, IndexUnavailable),
    ],
    ids=["replaced", "replaced by its own copy", "not built"],
)
def test_a_server_that_is_another_one_eats_no_marks(
    zrank: Redis, players: list[Player], known: dict[str, Any], error: type[Exception]
) -> None:
    """Partitioned away, it still takes writes; but the database knows of a newer one by now."""
    if known:
        Build.objects.filter(index="ascending").update(**known)
    else:
        zrank.flushall()
    with pytest.raises(error):
        drain(INDEX)
    assert waiting_marks(INDEX).count() == 20


def test_a_server_that_is_down_keeps_its_marks(players: list[Player], own_server: EmbeddedServer) -> None:
    own_server.stop()
    with pytest.raises(IndexUnavailable):
        drain(INDEX)
    assert waiting_marks(INDEX).count() == 20


def test_old_marks_are_purged_and_it_is_noted(
    players: list[Player], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_module, "_done", Recent())
    drain(INDEX)
    assert Batch.objects.filter(index="ascending").exists()  # kept, to be replayed
    settings.ZRANK = {"KEEP_MARKS": 1e-6}
    monkeypatch.setattr(drain_module, "_done", Recent())
    mark(players[0].pk)
    drain(INDEX, limit=1)
    assert not Batch.objects.filter(index="ascending").exists()
    assert Build.objects.get(pk="ascending").purged == int(INDEX.ranking.store.check_health().applied)
    assert examine(INDEX) is Status.HEALTHY


def test_says_what_it_did(players: list[Player], hear: Callable[..., list[Any]]) -> None:
    heard = hear(drained, "sender", "marks", "members")
    mark(players[0].pk)
    drain(INDEX)
    assert heard == [(INDEX, 21, 20)]


def test_whoever_pushes_drains_at_most_once_a_second(players: list[Player], due: list[float]) -> None:
    drain_soon(INDEX)
    assert not waiting_marks(INDEX).exists()
    mark(players[0].pk)
    drain_soon(INDEX)
    assert waiting_marks(INDEX).count() == 1
    due[0] += 1
    drain_soon(INDEX)
    assert not waiting_marks(INDEX).exists()


def test_whoever_pushes_drains_the_later_the_longer_it_takes(
    due: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    drained = []

    def slow(*args: Any, **options: Any) -> int:
        drained.append(due[0])
        due[0] += 1
        return 0

    monkeypatch.setattr(drain_module.Drain, "run", slow)
    for _ in range(50):
        drain_soon(INDEX)
        due[0] += 1
    assert drained == [100.0, 121.0, 142.0]


@pytest.mark.parametrize("members", [49, 50, 60])
def test_whoever_pushes_leaves_a_mark_that_leads_to_too_many(
    monkeypatch: pytest.MonkeyPatch, due: Any, members: int
) -> None:
    """A league's name: a save must not wait until all of its players are written. Other marks are processed."""
    index = AccountRank.instance()
    club = Club.objects.create()
    accounts = Account.objects.bulk_create(Account(club=club) for _ in range(members))
    Profile.objects.bulk_create(Profile(account=account, points=1) for account in accounts)
    rebuild(index)
    Mark.objects.all().delete()
    alone = Account.objects.bulk_create([Account()])[0]
    Profile.objects.bulk_create([Profile(account=alone, points=5)])
    Club.objects.filter(pk=club.pk).update(is_open=False)
    monkeypatch.setattr(drain_module, "_SHARE", 50)
    drain_soon(index)
    assert str(alone.pk) in contents(AccountRank)
    left = set(waiting_marks(index).values_list("via", "member"))
    assert left == ({("club_id", str(club.pk))} if members >= 50 else set())
    drain(index)
    assert not waiting_marks(index).exists()
    assert_mirrors(AccountRank)
