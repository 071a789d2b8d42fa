"""A save asks for the newest marks, and pushes only what they name: a save that changes nothing sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ipaddress import IPv6Address
from time import monotonic
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, connection, models, transaction
from django.db.models import BooleanField, Exists, OuterRef, Q
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from redis import Redis

from django_zrank import RankIndex
from django_zrank.capture import triggers
from django_zrank.capture.dialects import DIALECTS
from django_zrank.capture.triggers import drop, install
from django_zrank.codec import kinds
from django_zrank.codec.kinds import KINDS
from django_zrank.models import Mark
from django_zrank.store import Store
from django_zrank.sync import marks as marks_module
from django_zrank.sync import push as push_module
from django_zrank.sync import signal_handlers
from django_zrank.sync.drain import drain
from django_zrank.sync.marks import leave
from django_zrank.sync.push import push
from tests.sync.capturing import drop_by_hand, installed, only, table
from tests.sync.conftest import Clock
from tests.sync.mirror import assert_mirrors, contents
from tests.testapp.models import Account, Club, Host, Nickname, Player, Profile, Ticket
from tests.testapp.zrank import AccountRank, NicknameRank, PlayerAscending, PlayerRank

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank"),
]

Declare = Callable[..., type[RankIndex]]
Pushes = list[tuple[str, dict[str, Any]]]

WRITE = ["begin_write", "apply_changes"]
"""The round trips of one push."""


@pytest.fixture(autouse=True)
def nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where triggers don't tell of marks: ``test_told.py`` has the connections that they tell."""
    monkeypatch.setattr("django_zrank.capture.told.heard", lambda connection: None)
    monkeypatch.setattr("django_zrank.capture.told.listen", lambda connection: None)


@pytest.fixture(autouse=True)
def tokens_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the last push of a process were always longer ago."""
    monkeypatch.setattr(push_module, "_KEPT", 0.0)


@pytest.fixture
def watch(declare: Declare) -> Declare:
    """Declares an index whose tables have triggers, too."""

    def add(model: Any, order: str, **attributes: Any) -> type[RankIndex]:
        index = declare(model, order, **attributes)
        install("default", [index.instance()])
        Mark.objects.all().delete()
        return index

    return add


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of what is kept for a while, beyond all that was kept before."""
    clock = Clock()
    clock.advance(monotonic() + 100)
    monkeypatch.setattr("django_zrank.recent.monotonic", clock)
    return clock


@pytest.fixture
def player() -> Player:
    """A player whose changes were pushed and drained."""
    player = Player.objects.create(level=5)
    Mark.objects.all().delete()
    return player


def reads(server: Redis) -> int:
    """The number of times that a server has read from its clients, without this one."""
    return int(server.info("stats")["total_reads_processed"]) - 1


# Nothing has changed


@pytest.mark.parametrize("number", [1, 4])
def test_a_save_that_changes_nothing_is_one_statement_and_no_round_trip(
    watch: Declare, zrank: Redis, django_assert_num_queries: Any, number: int
) -> None:
    indexes = [watch(Host, "load") for _ in range(number)]
    host = Host.objects.create(address="10.0.0.1", load=5)
    Mark.objects.all().delete()
    host.save()  # the triggers are examined once a minute
    before = reads(zrank)
    for _ in range(3):
        with django_assert_num_queries(1 + 1):
            host.save()
    assert reads(zrank) - before == 1
    host.load = 6
    host.save()
    for index in indexes:
        assert contents(index) == {"10.0.0.1": 6}


@pytest.mark.usefixtures("undrained")
def test_only_the_indexes_are_pushed_that_read_what_has_changed(player: Player, pushes: Pushes) -> None:
    player.is_active = False
    player.save()
    assert [index for index, _ in pushes] == ["player"]
    assert contents(PlayerRank) == {}
    player.level = 6
    player.save()
    assert {index for index, _ in pushes[1:]} == {"player", "ascending"}
    assert_mirrors(PlayerRank, PlayerAscending)


@pytest.mark.usefixtures("undrained")
def test_only_the_members_are_pushed_that_have_changed(pushes: Pushes) -> None:
    players = Player.objects.bulk_create(Player(level=level) for level in range(3))
    Mark.objects.all().delete()
    players[1].level = 7
    with transaction.atomic():
        for player in players:
            player.save()
    assert pushes == [(name, {str(players[1].pk): 7}) for name, _ in pushes]
    assert len(pushes) == 2


def test_a_change_that_is_rolled_back_is_not_pushed(player: Player, round_trips: list[str]) -> None:
    with transaction.atomic():
        player.name = "a"
        player.save()
        with transaction.atomic():
            player.level = 6
            player.save()
            transaction.set_rollback(True)
    assert round_trips == []
    with transaction.atomic():
        player.save()
        with transaction.atomic():
            Player.objects.update(level=7)
            transaction.set_rollback(True)
    assert contents(PlayerRank) == {str(player.pk): 6}


def test_a_mark_that_a_worker_has_processed_needs_no_push(
    player: Player, monkeypatch: pytest.MonkeyPatch, pushes: Pushes
) -> None:
    """Between the commit and the question."""

    def drained(using: str) -> Any:
        drain(PlayerRank.instance())
        drain(PlayerAscending.instance())
        pushes.clear()
        return marks_module.newest_marks(using)

    monkeypatch.setattr(signal_handlers, "newest_marks", drained)
    player.level = 6
    player.save()
    assert pushes == []
    assert_mirrors(PlayerRank, PlayerAscending)


# Marks that aren't plainly the save's own


@pytest.mark.usefixtures("undrained")
def test_a_long_queue_hides_marks(
    player: Player, clock: Clock, monkeypatch: pytest.MonkeyPatch, round_trips: list[str]
) -> None:
    monkeypatch.setattr(marks_module, "NEWEST", 3)
    Mark.objects.bulk_create(Mark(index="another's", member="1") for _ in range(2))
    player.save()
    assert round_trips == []
    Mark.objects.create(index="another's", member="1")
    player.save()
    assert round_trips == WRITE
    Mark.objects.all().delete()
    player.save()  # it isn't asked again at once
    assert round_trips == WRITE * 2
    clock.advance(2)
    player.save()
    assert round_trips == WRITE * 2
    player.level = 6
    with transaction.atomic():
        player.save()
        Mark.objects.bulk_create(Mark(index="another's", member="1") for _ in range(3))
    assert_mirrors(PlayerRank, PlayerAscending)


@pytest.mark.usefixtures("undrained")
def test_a_mark_for_all_members_is_one_for_each(player: Player, pushes: Pushes) -> None:
    leave(PlayerRank.instance(), [None])
    player.save()
    assert [index for index, _ in pushes] == ["player"]


@pytest.mark.usefixtures("undrained")
def test_a_related_row(round_trips: list[str]) -> None:
    account = Account.objects.create(club=Club.objects.create())
    profile = Profile.objects.create(account=account, points=5)
    Mark.objects.all().delete()
    round_trips.clear()
    for row in (account, account.club, profile):
        row.save()
    assert round_trips == []
    assert_changes_are_pushed(account, profile)


def assert_changes_are_pushed(account: Account, profile: Profile) -> None:
    """Check that saves of rows that a member is related to are pushed."""
    profile.points = 6
    profile.save()
    assert contents(AccountRank) == {str(account.pk): 6}
    account.club.is_open = False
    account.club.save()
    assert contents(AccountRank) == {}


@pytest.mark.usefixtures("undrained")
def test_a_mark_of_a_related_row_that_was_replaced_by_those_of_its_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A drain was killed after that, between the commit and the question."""
    account = Account.objects.create(club=Club.objects.create())
    Profile.objects.create(account=account, points=5)
    Mark.objects.all().delete()

    def replaced(using: str) -> Any:
        assert Mark.objects.filter(via="club_id").delete()[0]
        leave(AccountRank.instance(), [account.pk])
        return marks_module.newest_marks(using)

    monkeypatch.setattr(signal_handlers, "newest_marks", replaced)
    monkeypatch.setattr(signal_handlers, "_helped", Everything())
    account.club.is_open = False
    account.club.save()
    assert contents(AccountRank) == {}


@pytest.mark.usefixtures("undrained")
def test_a_mark_of_a_related_row_is_none_of_the_member_of_the_same_number(
    monkeypatch: pytest.MonkeyPatch, round_trips: list[str]
) -> None:
    monkeypatch.setattr(signal_handlers, "_helped", Everything())
    account = Account.objects.create()
    Mark.objects.all().delete()
    round_trips.clear()
    Mark.objects.create(index="account", via="club_id", member=account.pk)
    account.save()
    assert round_trips == []


KEYS: dict[type[kinds.Kind], tuple[models.Field[Any, Any], list[Any]]] = {
    kinds.Integer: (models.IntegerField(), [-(2**31), 0, 7, "8"]),
    kinds.Big: (models.BigIntegerField(), [-(2**63), 0, 2**63 - 1, "8"]),
    kinds.Boolean: (models.BooleanField(), [False, True]),
    kinds.Text: (models.CharField(max_length=40), ["A", "bob ", "ö", "日本", "a\\b'%s", "007"]),
    kinds.Identifier: (
        models.UUIDField(),
        [UUID(int=0), UUID(int=10).hex, str(UUID(int=2**128 - 1)).upper()],
    ),
    kinds.Address: (
        models.GenericIPAddressField(),
        ["10.0.0.1", "::1", "2001:DB8:0::1", "::ffff:10.0.0.2", str(IPv6Address(2**128 - 1))],
    ),
}


def test_every_kind_of_key_is_tried() -> None:
    assert [*KEYS] == [kind for kind in KINDS if kind.is_key]


@pytest.fixture
def keyed(request: pytest.FixtureRequest, watch: Declare) -> Iterator[type[RankIndex]]:
    """An index of a model with a key of this kind."""
    field, _ = KEYS[request.param]
    meta = type("Meta", (), {"app_label": "testapp"})
    key = field.clone()
    key.primary_key = True
    fields = {"key": key, "n": models.IntegerField(), "name": models.CharField(max_length=9, default="")}
    model: Any = type(
        f"By{request.param.__name__}", (models.Model,), {**fields, "Meta": meta, "__module__": __name__}
    )
    with table(model):
        yield watch(model, "n")


@pytest.mark.usefixtures("undrained")
@pytest.mark.parametrize(
    ("keyed", "kind"),
    [(kind, kind) for kind in KEYS],
    indirect=["keyed"],
    ids=[kind.__name__ for kind in KEYS],
)
def test_marks_are_recognised_by_each_kind_of_key(
    keyed: type[RankIndex], kind: Any, round_trips: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the text that the database casts them to. Only text may have other spellings there."""
    monkeypatch.setattr(signal_handlers, "_helped", Everything())
    model: Any = keyed.model
    _, values = KEYS[kind]
    for value in values:
        row = model(key=value, n=1)
        row.save()
        Mark.objects.all().delete()
        model.objects.create(key=next(other for other in values if other != value), n=1)
        round_trips.clear()
        row.name = "b"
        row.save()
        assert round_trips == (WRITE if kind is kinds.Text else [])
        row.n = 2
        row.save()
        assert 2 in contents(keyed).values()
        model.objects.all()._raw_delete("default")


class Everything:
    """A cache that has everything: the marks of others lead to no push."""

    def get(self, key: Any) -> bool:
        return True


@only("mysql")
@pytest.mark.usefixtures("undrained")
def test_a_key_in_another_spelling_than_the_database_has() -> None:
    Nickname.objects.create(nick="bob", score=1)
    Nickname(nick="BOB", score=2).save()
    assert contents(NicknameRank) == {"bob": 2}


# Triggers that may not tell of every change


@pytest.mark.usefixtures("undrained")
def test_an_index_without_triggers_is_pushed_as_ever(
    declare: Declare, player: Player, pushes: Pushes
) -> None:
    index = declare(Player, "level").instance()
    player.save()
    Mark.objects.create(index="another's", member="1")
    player.save()
    assert [name for name, _ in pushes] == [index.name] * 2


@pytest.mark.usefixtures("undrained")
@pytest.mark.parametrize("how", ["here", "elsewhere"])
def test_triggers_that_are_dropped_are_missed_within_a_minute(
    watch: Declare, clock: Clock, round_trips: list[str], how: str
) -> None:
    """By this process, at once."""
    index = watch(Ticket, "integer")
    ticket = Ticket.objects.create(integer=5)
    ticket.save()
    if how == "here":
        drop("default", [index.instance().name])
    else:
        drop_by_hand(*(one for one in installed() if "declared" in one.name))
        clock.advance(61)
    Mark.objects.all().delete()
    ticket.integer = 6
    ticket.save()
    assert contents(index) == {str(ticket.pk): 6}
    install("default", [index.instance()])
    Mark.objects.all().delete()
    round_trips.clear()
    ticket.save()
    assert round_trips == []  # triggers that are created are seen at once, too


def test_triggers_are_examined_once_a_minute(watch: Declare, clock: Clock) -> None:
    for _ in range(4):
        watch(Ticket, "integer")
    ticket = Ticket.objects.create(integer=5)
    Mark.objects.all().delete()

    def statements() -> int:
        with CaptureQueriesContext(connection) as queries:
            ticket.save()
        return len(queries)

    for _ in range(2):
        assert 2 < statements() < 10  # for all indexes together
        assert [statements() for _ in range(3)] == [2] * 3
        clock.advance(61)


@pytest.mark.usefixtures("undrained")
def test_with_signals_nothing_is_asked(
    player: Player, settings: Any, round_trips: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    monkeypatch.setattr(signal_handlers, "newest_marks", looks.append)
    settings.ZRANK = {"CAPTURE": "signals"}
    player.save()
    assert (round_trips, looks) == (WRITE, [])


@pytest.mark.usefixtures("undrained")
@pytest.mark.parametrize("model", [Player, Mark])
def test_a_table_that_triggers_cannot_watch(
    player: Player, model: Any, round_trips: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {model._meta.db_table: "has the engine MyISAM"}
    monkeypatch.setattr(DIALECTS[connection.vendor], "problems", lambda dialect: found)
    player.save()
    assert round_trips == WRITE


@only("postgresql")
@pytest.mark.usefixtures("undrained")
def test_at_the_level_serializable_nothing_is_asked(player: Player, round_trips: list[str]) -> None:
    """A question would make the transactions of writers fail."""
    triggers._examined.clear()
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_isolation = 'serializable'")
    try:
        player.save()
    finally:
        connection.close()
    assert round_trips == WRITE


@pytest.mark.usefixtures("undrained")
@pytest.mark.parametrize(
    "condition",
    [
        Q(moment__lt=Now()),
        Q(integer__in=Nickname.objects.values("score")),
        Exists(Nickname.objects.filter(score=OuterRef("integer"))),
        RawSQL("testapp_ticket.integer = (SELECT max(score) FROM testapp_nickname)", [], BooleanField()),
    ],
    ids=["time", "in", "exists", "raw"],
)
def test_a_save_still_pushes_a_member_that_moves_without_a_write(
    watch: Declare, round_trips: list[str], condition: Any
) -> None:
    watch(Ticket, "integer", get_queryset=lambda self: Ticket.objects.filter(condition))
    ticket = Ticket.objects.create(integer=5)
    Mark.objects.all().delete()
    round_trips.clear()
    ticket.save()
    assert round_trips == WRITE


@pytest.mark.usefixtures("undrained")
def test_a_save_still_pushes_a_member_of_an_index_with_extensions(
    player: Player, monkeypatch: pytest.MonkeyPatch, pushes: Pushes
) -> None:
    """It returns idle members, and flushes write-behind scores."""
    monkeypatch.setattr(signal_handlers, "declared", lambda index: index.name == "ascending")
    player.save()
    assert [name for name, _ in pushes] == ["ascending"]


# Others


@pytest.mark.usefixtures("undrained")
def test_if_the_database_refuses_everything_is_pushed(
    player: Player, clock: Clock, round_trips: list[str]
) -> None:
    """It isn't asked again for a minute."""
    player.save()
    refused: list[str] = []

    def refuse(execute: Any, sql: str, *args: Any) -> Any:
        if "ORDER BY id DESC" in sql:
            refused.append(sql)
            raise OperationalError("permission denied")
        return execute(sql, *args)

    round_trips.clear()
    with connection.execute_wrapper(refuse):
        for _ in range(3):
            player.save()
        assert (round_trips, len(refused)) == (WRITE * 3, 1)
        clock.advance(61)
        player.save()
    assert len(refused) == 2


@pytest.mark.usefixtures("undrained")
def test_after_two_slow_looks_nothing_is_asked_for_a_while(
    player: Player, clock: Clock, monkeypatch: pytest.MonkeyPatch, round_trips: list[str]
) -> None:
    monkeypatch.setattr(marks_module, "_REST", 1e9)
    for slow, sent in ((0.0, []), (60.0, []), (0.0, []), (0.0, []), (60.0, WRITE)):
        round_trips.clear()
        monkeypatch.setattr(marks_module, "_SLOW", slow)
        player.save()
        assert round_trips == sent
    clock.advance(61)
    round_trips.clear()
    player.save()
    assert round_trips == []


def test_without_a_worker_a_save_drains_what_others_left(
    player: Player, clock: Clock, round_trips: list[str]
) -> None:
    """Here a save that changes nothing drains what an update has left."""
    clock.advance(1)
    other = Player.objects.bulk_create([Player(level=1)])[0]
    player.save()
    assert_mirrors(PlayerRank, PlayerAscending)
    assert not Mark.objects.exists()
    Player.objects.filter(pk=other.pk).update(level=2)
    round_trips.clear()
    player.save()
    assert round_trips == []
    clock.advance(61)  # longer than any back-off of drains
    player.save()
    assert_mirrors(PlayerRank, PlayerAscending)


def test_with_a_worker_a_save_learns_of_it_once_a_second(
    player: Player, clock: Clock, round_trips: list[str]
) -> None:
    for index in (PlayerRank, PlayerAscending):
        Store(index.instance().name).note_watcher(60)
    Player.objects.bulk_create([Player(level=1)])
    round_trips.clear()
    for later in (0, 0, 0.9, 0.2):
        clock.advance(later)
        player.save()
    assert round_trips == WRITE * 2
    assert Mark.objects.count() == 2


@pytest.mark.usefixtures("undrained")
def test_new_and_deleted_rows_are_pushed_without_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """They leave marks."""
    looks: list[str] = []
    monkeypatch.setattr(signal_handlers, "newest_marks", looks.append)
    player = Player.objects.create(level=5)
    assert_mirrors(PlayerRank, PlayerAscending)
    player.delete()
    assert_mirrors(PlayerRank, PlayerAscending)
    assert looks == []
    player = Player.objects.create(level=5)
    with transaction.atomic():
        Player.objects.create(level=6)
        player.save()
        Player.objects.create(level=7)
    assert looks == ["default"]


@pytest.mark.usefixtures("undrained")
def test_a_save_that_names_a_column_that_is_read_is_pushed_without_a_look(
    player: Player, round_trips: list[str]
) -> None:
    player.level = 6
    with CaptureQueriesContext(connection) as queries:
        player.save(update_fields=["level"])
    assert not [one for one in queries if "ORDER BY id DESC" in one["sql"]]
    assert round_trips == WRITE
    player.save(update_fields=["name"])
    assert round_trips == WRITE
    assert_mirrors(PlayerRank, PlayerAscending)


@pytest.mark.usefixtures("undrained")
def test_a_call_of_push_asks_nothing(player: Player, round_trips: list[str]) -> None:
    push(PlayerRank.instance(), [player.pk])
    assert round_trips == WRITE
