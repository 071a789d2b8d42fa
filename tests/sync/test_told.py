"""PostgreSQL's triggers tell a connection that it has left marks, so that a save which has left none asks nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.db.models.signals import post_save
from django.test.utils import CaptureQueriesContext

from django_zrank.capture import told
from django_zrank.models import Mark
from django_zrank.sync import signal_handlers
from django_zrank.sync.watch import sync
from django_zrank.testing import disable_sync
from tests.sync.conftest import Clock, execute
from tests.sync.mirror import assert_mirrors
from tests.sync.test_newest_marks import assert_changes_are_pushed
from tests.testapp.models import Account, Club, Player, Profile
from tests.testapp.zrank import PlayerAscending, PlayerRank

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank", "undrained", "lately_asked"),
    pytest.mark.skipif(
        "connection.vendor != 'postgresql'", reason="triggers of other databases tell nothing"
    ),
]

Count = Callable[[Callable[[], Any]], int]


@pytest.fixture
def player() -> Player:
    """A player whose changes were pushed and drained, on a connection that hears of marks."""
    connection.close()
    player = Player.objects.create(level=5)
    Mark.objects.all().delete()
    for _ in range(3):
        player.save()
    assert was_told() is False
    return player


@pytest.fixture
def lately_asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if another save had just asked for the marks that wait."""
    signal_handlers._asked.keep("default", True, 1000.0)
    yield
    signal_handlers._asked.clear()


def was_told() -> bool | None:
    return told.take(connection, told.last_taken(connection, None))


def statements(write: Callable[[], Any]) -> list[str]:
    with CaptureQueriesContext(connection) as queries:
        write()
    return [query["sql"] for query in queries if not query["sql"].startswith(("BEGIN", "COMMIT"))]


def test_a_save_that_changes_nothing_is_one_statement(player: Player, round_trips: list[str]) -> None:
    round_trips.clear()
    (only,) = statements(player.save)
    assert only.startswith("UPDATE")
    assert round_trips == []


def test_a_change_is_pushed_without_a_look(player: Player) -> None:
    player.level = 6
    assert not any(Mark._meta.db_table in sql for sql in statements(player.save))
    assert_mirrors(PlayerRank, PlayerAscending)
    assert len(statements(player.save)) == 1


def test_in_a_transaction_one_change_is_enough(player: Player) -> None:
    others = Player.objects.bulk_create([Player(level=1), Player(level=2)])
    with transaction.atomic():
        for level, each in enumerate((player, *others), 1):
            each.level = 10 * level
            each.save()
            each.save()
    assert_mirrors(PlayerRank, PlayerAscending)


def test_a_change_before_a_savepoint_that_is_rolled_back(player: Player) -> None:
    with transaction.atomic():
        Player.objects.update(level=F("level") + 1)
        with transaction.atomic():
            player.level = 7
            player.save()
            transaction.set_rollback(True)
        player.level = 8
        player.save()
    assert_mirrors(PlayerRank, PlayerAscending)


def test_a_hook_that_saves_takes_nothing_from_others(player: Player) -> None:
    other = Player.objects.create(level=3)
    with transaction.atomic():
        transaction.on_commit(other.save)
        player.level = 9
        player.save()
    assert_mirrors(PlayerRank, PlayerAscending)


def test_a_receiver_that_saves_takes_nothing_from_the_save_that_it_is_part_of(player: Player) -> None:
    other = Player.objects.create(level=3)
    other.save()

    def save_another(instance: Player, **kwargs: Any) -> None:
        if instance is player:
            other.save()

    post_save.connect(save_another, sender=Player)
    receivers = post_save.receivers
    try:
        receivers.insert(0, receivers.pop())  # as of an app that is installed before
        player.level = 9
        player.save()
    finally:
        post_save.disconnect(save_another, sender=Player)
    assert_mirrors(PlayerRank, PlayerAscending)


def test_what_is_changed_between_a_save_and_the_commit(player: Player) -> None:
    """By a receiver that is called later, and by a trigger that waits for the commit."""
    table = connection.ops.quote_name(Player._meta.db_table)
    Player.objects.update(name="")
    with transaction.atomic():
        player.save()
        Player.objects.update(level=F("level") + 1)
    assert_mirrors(PlayerRank, PlayerAscending)
    execute(
        "CREATE FUNCTION raise_level() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN UPDATE {table} SET level = level + 1 WHERE level < 100; RETURN NULL; END $$",
        f"CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION raise_level()",
    )
    try:
        player.name = "changed"
        with transaction.atomic():
            player.save(update_fields=["name"])
            player.save()
    finally:
        execute(f"DROP TRIGGER late ON {table}", "DROP FUNCTION raise_level")
    assert player.level < Player.objects.get().level
    assert_mirrors(PlayerRank, PlayerAscending)


def test_what_a_hook_changes_before_the_push(player: Player) -> None:
    with transaction.atomic():
        transaction.on_commit(lambda: Player.objects.update(level=F("level") + 1) and None)
        player.save()
    assert_mirrors(PlayerRank, PlayerAscending)


def test_a_save_that_is_rolled_back_takes_nothing_from_others(player: Player) -> None:
    other = Player.objects.create(level=3)
    other.save()
    with transaction.atomic():
        Player.objects.filter(pk=player.pk).update(level=9)
        with transaction.atomic():
            other.save()
            transaction.set_rollback(True)
        player.refresh_from_db()
        player.save()
    assert_mirrors(PlayerRank, PlayerAscending)


def test_a_hook_that_connects_anew(player: Player) -> None:
    """What was heard on one connection says nothing about another, which may have heard less."""

    def connect_anew() -> None:
        connection.close()
        for _ in range(3):
            other.save()
        assert was_told() is False

    other = Player.objects.create(level=3)
    with transaction.atomic():
        player.level = 9
        player.save()
        connection.run_on_commit.insert(0, (set(), connect_anew, True))
    assert_mirrors(PlayerRank, PlayerAscending)


def test_what_is_saved_without_a_push_is_pushed_by_the_next_save(player: Player) -> None:
    """Once more than it had to be, but never less."""
    player.level = 4
    with disable_sync():
        player.save()
    player.save()
    assert_mirrors(PlayerRank, PlayerAscending)


def test_with_new_and_deleted_rows(player: Player) -> None:
    with transaction.atomic():
        player.save()
        other = Player.objects.create(level=4)
    assert_mirrors(PlayerRank, PlayerAscending)
    with transaction.atomic():
        player.save()
        other.delete()
    assert_mirrors(PlayerRank, PlayerAscending)
    with transaction.atomic():
        player.delete()
        Player.objects.create(level=2).save()
    assert_mirrors(PlayerRank, PlayerAscending)


def test_a_related_row(player: Player) -> None:
    account = Account.objects.create(club=Club.objects.create())
    profile = Profile.objects.create(account=account, points=5)
    Mark.objects.all().delete()
    for row in (account, account.club, profile):
        row.save()  # what was told of the rows before
    for row in (account, account.club, profile):
        assert len(statements(row.save)) <= 2  # with its parent's
    assert_changes_are_pushed(account, profile)


def test_each_second_one_save_asks(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a worker, it drains the marks of others."""
    clock = Clock()
    clock.advance(monotonic() + 10_000)
    monkeypatch.setattr("django_zrank.recent.monotonic", clock)
    player.save()
    looks = []
    monkeypatch.setattr(signal_handlers, "newest_marks", lambda using: looks.append(using) or [])
    for later in (0, 0, 0.9, 0.2, 0):
        clock.advance(later)
        player.save()
    assert looks == ["default"]


def test_a_large_statement_and_an_emptied_table(player: Player) -> None:
    Player.objects.bulk_create([Player(level=1)] * 300)
    was_told()
    Player.objects.update(name="changed")
    assert was_told() is False
    Player.objects.update(level=F("level") + 1)
    assert was_told() is True
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {connection.ops.quote_name(Player._meta.db_table)} CASCADE")
    assert was_told() is True


def test_a_session_whose_settings_are_reset_leaves_its_changes_to_the_worker(player: Player) -> None:
    with connection.cursor() as cursor:
        cursor.execute("RESET ALL")
    try:
        player.level = 6
        player.save()
        assert Mark.objects.exists()
        for index in (PlayerRank, PlayerAscending):
            sync(index)
        assert_mirrors(PlayerRank, PlayerAscending)
    finally:
        connection.close()


# Connections that aren't told


def test_a_connection_that_serves_one_save_asks_for_nothing() -> None:
    player = Player.objects.create(level=5)
    connection.close()
    with connection.cursor() as cursor:
        player.save()
        cursor.execute("SELECT coalesce(current_setting('zrank.tells', true), '')")
        assert cursor.fetchone() == ("",)
    assert was_told() is None


def test_behind_a_pooler_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells clients another number of the session."""
    connection.close()
    player = Player.objects.create(level=5)
    monkeypatch.setattr("psycopg._connection_info.ConnectionInfo.backend_pid", 1)
    for _ in range(4):
        player.save()
    assert was_told() is None
    player.level = 6
    player.save()
    assert_mirrors(PlayerRank, PlayerAscending)


def test_a_pool_that_lends_other_objects_in_place_of_connections(player: Player) -> None:
    """SQLAlchemy's, a new one each time: what listens to it would stay with the session."""

    class Lent:
        def __init__(self, driver: Any) -> None:
            self.driver = driver

        def __getattr__(self, name: str) -> Any:
            return getattr(self.driver, name)

    session = connection.connection
    handlers = len(session._notice_handlers)
    try:
        connection.connection = Lent(session)
        for _ in range(3):
            told.listen(connection)
        assert was_told() is None
    finally:
        connection.connection = session
    assert len(session._notice_handlers) == handlers


def test_a_pool_that_resets_its_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    connection.close()
    Player.objects.create(level=5)
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "OPTIONS", {"pool": {"reset": print}})
        for _ in range(3):
            told.listen(connection)
    assert was_told() is None


def test_with_autocommit_off_nobody_begins_to_listen() -> None:
    """A rollback would take the setting back, and what is changed afterwards would pass for unchanged."""
    connection.close()
    Player.objects.create(level=5)
    transaction.set_autocommit(False)
    try:
        for _ in range(3):
            told.listen(connection)
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)
    assert was_told() is None


def test_in_a_transaction_nobody_begins_to_listen() -> None:
    connection.close()
    Player.objects.create(level=5)
    with transaction.atomic():
        for _ in range(3):
            told.listen(connection)
    assert was_told() is None


def test_other_sessions_get_no_messages(player: Player) -> None:
    other = connection.copy()
    try:
        messages: list[Any] = []
        with other.cursor() as cursor:
            other.connection.add_notice_handler(messages.append)
            table = connection.ops.quote_name(Player._meta.db_table)
            cursor.execute(f"UPDATE {table} SET level = level + 1")
        assert messages == []
    finally:
        other.close()
    assert Mark.objects.exists()
