"""Saves and deletes of every sort, and the index after the commit."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core import serializers
from django.core.management import call_command
from django.db import DatabaseError, connection, models, transaction
from django.db.models import F, FilteredRelation, Q
from hypothesis import given, settings
from hypothesis import strategies as st

from django_zrank import RankIndex
from django_zrank.capture.watched_tables import WatchedTable
from django_zrank.redis import isolation
from django_zrank.sync import signal_handlers
from django_zrank.sync.drain import drain
from django_zrank.testing import disable_sync
from tests.sync.capturing import table
from tests.sync.mirror import assert_mirrors, contents
from tests.testapp.models import (
    Account,
    Club,
    Employee,
    Manager,
    Nickname,
    Person,
    Player,
    PlayerProxy,
    Profile,
    Remote,
)
from tests.testapp.zrank import (
    AccountRank,
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

WRITE = ["begin_write", "apply_changes"]
"""The round trips of one push of one index."""


class Undone(Exception):
    """Raised to roll a transaction or savepoint back."""


@contextmanager
def rolled_back(using: str = "default") -> Iterator[None]:
    """A transaction, or a savepoint inside one, that an error rolls back."""
    with suppress(Undone), transaction.atomic(using):
        yield
        raise Undone


# One row


def test_what_the_database_holds_is_pushed_not_what_the_instance_holds() -> None:
    player = Player.objects.create(level=5)
    with transaction.atomic():
        player.level = 6
        player.save()
        Player.objects.filter(pk=player.pk).update(level=7)
    assert contents(PlayerRank) == {str(player.pk): 7}
    player.level = F("level") + 1
    player.save()
    assert contents(PlayerRank) == {str(player.pk): 8}


Changed = dict[str, Any]


@pytest.mark.parametrize(
    ("first", "then", "fields"),
    [
        ({"level": 5}, {"level": 6}, None),
        ({"level": None}, {"level": 5}, ["level"]),
        ({"level": 5}, {"level": None}, ["bio", "level"]),
        ({"level": 5}, {"is_active": False}, ["is_active"]),
        ({"level": 5, "is_active": False}, {"is_active": True}, None),
    ],
    ids=repr,
)
def test_a_row_is_ranked_as_it_was_saved(first: Changed, then: Changed, fields: list[str] | None) -> None:
    player = Player.objects.create(**first)
    assert_mirrors(PlayerRank, PlayerAscending)
    vars(player).update(then)
    player.save(update_fields=fields)
    assert_mirrors(PlayerRank, PlayerAscending)
    player.delete()
    assert contents(PlayerRank) == contents(PlayerAscending) == {}


# Which saves matter


@pytest.mark.parametrize("fields", [["name", "bio"], ["user"], []])
def test_a_save_without_a_ranked_field_costs_no_round_trip(fields: list[str], round_trips: list[str]) -> None:
    player = Player.objects.create(level=5)
    manager = Manager.objects.create(points=5)
    round_trips.clear()
    player.level = 6
    player.save(update_fields=fields)
    Player.objects.only("name").get(pk=player.pk).save()
    manager.save(update_fields=["title", "reports"])
    assert round_trips == []


def test_only_the_indexes_that_read_the_field_are_pushed(pushes: list[tuple[str, Any]]) -> None:
    player = Player.objects.create(level=5)
    pushes.clear()
    player.save(update_fields=["is_active"])
    assert [name for name, _ in pushes] == ["player"]


@pytest.mark.parametrize("field", ["club", "club_id"])
def test_a_foreign_key_may_be_named_either_way(field: str) -> None:
    account = Account.objects.create(club=Club.objects.create(is_open=False))
    Profile.objects.create(account=account, points=5)
    assert contents(AccountRank) == {}
    account.club = None
    account.save(update_fields=[field])
    assert contents(AccountRank) == {str(account.pk): 5}


def test_a_deferred_other_field_does_not_keep_a_save_from_being_pushed() -> None:
    pk = Player.objects.create(level=5).pk
    player = Player.objects.defer("bio", "is_active").get(pk=pk)
    player.level = 6
    player.save()
    assert contents(PlayerRank) == {str(pk): 6}


# Transactions


def test_a_transaction_is_pushed_once(round_trips: list[str], pushes: list[tuple[str, Any]]) -> None:
    with transaction.atomic():
        for score in range(50):
            with transaction.atomic():
                Nickname.objects.create(nick=str(score), score=score)
        Nickname.objects.get(nick="7").delete()
        assert len(connection.run_on_commit) == 1
        assert round_trips == []
    assert round_trips == WRITE
    assert len(pushes) == 1
    assert_mirrors(NicknameRank)


def test_savepoints_made_by_hand() -> None:
    begin = getattr(transaction, "savepoint_create", transaction.savepoint)  # renamed in Django 6.1
    with transaction.atomic():
        savepoint = begin()
        Nickname.objects.create(nick="a", score=1)
        transaction.savepoint_rollback(savepoint)
        Nickname.objects.create(nick="b", score=1)
        transaction.savepoint_commit(begin())
    assert contents(NicknameRank) == {"b": 1}


@st.composite
def blocks(draw: Any, depth: int = 3) -> tuple[str, list[Any]]:
    """A transaction or savepoint: how it ends, and its saves (nick, score), deletes (nick, None) and blocks."""
    step: Any = st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 9))
    if depth:
        step |= blocks(depth=depth - 1)
    return draw(st.sampled_from(["commit", "rollback"])), draw(st.lists(step, max_size=4))


def run(block: tuple[str, list[Any]]) -> None:
    end, steps = block
    with rolled_back() if end == "rollback" else transaction.atomic():
        for step in steps:
            match step:
                case ("commit" | "rollback", list()):
                    run(step)
                case (nick, None):
                    Nickname.objects.filter(nick=nick).delete()
                case (nick, score):
                    Nickname(nick=nick, score=score).save()


@pytest.mark.parametrize("examples", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_any_nesting_of_transactions_ends_with_both_sides_equal(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(st.lists(blocks(), min_size=1, max_size=3))
    def check(transactions: list[Any]) -> None:
        Nickname.objects.all().delete()
        for block in transactions:
            run(block)
            assert_mirrors(NicknameRank)

    check()


def test_without_autocommit_a_save_does_not_fail(round_trips: list[str]) -> None:
    """What is saved in an atomic block is pushed once autocommit is back; all else waits for a drain."""
    transaction.set_autocommit(False)
    try:
        Nickname.objects.create(nick="a", score=1)
        transaction.rollback()
        Nickname.objects.create(nick="b", score=1)
        with transaction.atomic():
            Nickname.objects.create(nick="c", score=1)
        transaction.commit()
        assert round_trips == []
    finally:
        transaction.set_autocommit(True)
    assert contents(NicknameRank) == {"c": 1}
    Nickname.objects.get(nick="b").save()
    assert contents(NicknameRank) == {"b": 1, "c": 1}


# Primary keys


def test_a_row_saved_under_another_key_is_a_second_member() -> None:
    nickname = Nickname.objects.create(nick="old", score=1)
    nickname.nick = "new"
    nickname.save()
    assert contents(NicknameRank) == {"old": 1, "new": 1}
    with transaction.atomic():
        Nickname.objects.get(nick="old").delete()
        Nickname.objects.create(nick="third", score=1)
    assert contents(NicknameRank) == {"new": 1, "third": 1}


def test_a_member_is_written_as_the_database_spells_its_key() -> None:
    """A collation may hold that BOB is bob: then this save changes the row bob."""
    Nickname.objects.create(nick="bob", score=1)
    Nickname(nick="BOB", score=2).save()
    assert_mirrors(NicknameRank)


def test_a_key_given_as_text_is_the_same_member() -> None:
    Player(pk="7", level=5).save()
    assert contents(PlayerRank) == {"7": 5}


# Deletes


def test_a_deleted_queryset_leaves_the_index_in_one_push(pushes: list[tuple[str, Any]]) -> None:
    for level in range(5):
        Player.objects.create(level=level)
    pushes.clear()
    Player.objects.filter(level__lt=4).delete()
    assert sorted(name for name, _ in pushes) == ["ascending", "player"]
    assert_mirrors(PlayerRank, PlayerAscending)


def test_a_cascade_takes_the_member_along_unless_it_is_rolled_back() -> None:
    user = User.objects.create(username="ada")
    player = Player.objects.create(level=5, user=user)
    with rolled_back():
        user.delete()
    assert contents(PlayerRank) == {str(player.pk): 5}
    User.objects.get().delete()
    assert contents(PlayerRank) == {}


# Proxies and inheritance


def test_a_proxy_is_its_row(declare: Callable[..., type[RankIndex]]) -> None:
    index = declare(PlayerProxy, "-level")
    player = Player.objects.create(level=5)
    proxy = PlayerProxy.objects.create(level=6)
    assert contents(index) == contents(PlayerRank) == {str(player.pk): 5, str(proxy.pk): 6}
    proxy.delete()
    player.delete()
    assert contents(index) == contents(PlayerRank) == {}


def test_rows_of_parents_and_children(declare: Callable[..., type[RankIndex]]) -> None:
    index = declare(Manager, "-points")
    Person.objects.create(points=1)  # no member
    employee, manager = Employee.objects.create(points=5), Manager.objects.create(points=5)
    assert_mirrors(EmployeeRank, index)
    employee.points = 6
    employee.save(update_fields=["points"])
    Person(pk=manager.pk, points=7).save()
    assert contents(EmployeeRank) == {str(employee.pk): 6, str(manager.pk): 7}
    assert contents(index) == {str(manager.pk): 7}
    manager.delete()
    assert contents(index) == {}
    Person.objects.get(pk=employee.pk).delete()
    assert contents(EmployeeRank) == {}
    Employee.objects.create(points=6).delete(keep_parents=True)
    assert contents(EmployeeRank) == {}


def test_a_child_with_a_key_of_its_own(declare: Callable[..., type[RankIndex]]) -> None:
    class Trainee(Person):
        number = models.IntegerField(primary_key=True)
        person = models.OneToOneField(Person, models.CASCADE, parent_link=True)

        class Meta:
            app_label = "testapp"

    with table(Trainee):
        index = declare(Person, "-points")
        trainee = Trainee.objects.create(number=10**6, points=5)
        assert contents(index) == {str(trainee.person_id): 5}
        trainee.delete()
        assert contents(index) == {}


# Related tables


@pytest.fixture
def account() -> Account:
    """Ranked with 5 points, in an open club."""
    account = Account.objects.create(club=Club.objects.create())
    Profile.objects.create(account=account, points=5)
    assert contents(AccountRank) == {str(account.pk): 5}
    return account


def test_a_related_row_changes_and_is_deleted(account: Account, round_trips: list[str]) -> None:
    account.profile.save(update_fields=["motto"])
    assert round_trips == []
    account.profile.points = 6
    account.profile.save()
    assert contents(AccountRank) == {str(account.pk): 6}
    account.profile.delete()
    assert contents(AccountRank) == {}


def test_a_related_row_moves_to_another_member(account: Account) -> None:
    other = Account.objects.create()
    account.profile.account = other
    account.profile.save()
    assert contents(AccountRank) == {str(account.pk): 5, str(other.pk): 5}
    drain(AccountRank.instance())  # only the trigger knows whose it was before
    assert contents(AccountRank) == {str(other.pk): 5}


def test_a_related_filter_takes_members_out_and_in_again(account: Account) -> None:
    club = account.club
    assert club is not None
    club.is_open = False
    club.save()
    assert contents(AccountRank) == {}
    club.is_open = True
    club.save(update_fields=["is_open"])
    assert contents(AccountRank) == {str(account.pk): 5}


def test_a_related_row_that_is_deleted_lets_its_members_in(account: Account) -> None:
    club = Club.objects.create(is_open=False)
    account.club = club
    account.save()
    assert contents(AccountRank) == {}
    club.delete()
    assert contents(AccountRank) == {str(account.pk): 5}
    account.delete()
    assert contents(AccountRank) == {}


@pytest.fixture
def fewest_parameters() -> Iterator[None]:
    """As few parameters in a query as Django says that the database takes. Here SQLite may take more."""
    if connection.vendor != "sqlite":
        yield
        return
    connection.ensure_connection()
    limit = connection.features.max_query_params
    before = connection.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, limit)
    yield
    connection.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, before)


@pytest.mark.usefixtures("fewest_parameters")
def test_more_related_rows_in_a_transaction_than_a_query_takes() -> None:
    clubs = Club.objects.bulk_create(Club(pk=pk, is_open=False) for pk in range(1, 1101))
    accounts = Account.objects.bulk_create(Account(pk=club.pk, club=club) for club in clubs)
    Profile.objects.bulk_create(Profile(account=account, points=1) for account in accounts)
    with transaction.atomic():
        for club in clubs:
            club.is_open = True
            club.save()
    assert len(contents(AccountRank)) == signal_handlers.LIMIT


def test_a_filter_through_a_many_to_many(declare: Callable[..., type[RankIndex]]) -> None:
    team = Player.objects.filter(user__groups__name="team").distinct()
    index = declare(Player, "-level", get_queryset=lambda self: team.all())
    group = Group.objects.create(name="others")
    user = User.objects.create(username="ada")
    user.groups.add(group)
    player = Player.objects.create(level=5, user=user)
    assert contents(index) == {}
    group.name = "team"
    group.save()
    assert contents(index) == {str(player.pk): 5}
    group.delete()
    assert contents(index) == {}


def test_a_filter_through_the_same_model(declare: Callable[..., type[RankIndex]]) -> None:
    friends = Player.objects.filter(friends__level__gt=9).distinct()
    index = declare(Player, "-level", get_queryset=lambda self: friends.all())
    player, friend = (Player.objects.create(level=5) for _ in range(2))
    player.friends.add(friend)
    assert contents(index) == {}
    friend.level = 10
    friend.save()
    assert contents(index) == {str(player.pk): 5}


def test_a_column_read_only_in_the_condition_of_a_join(declare: Callable[..., type[RankIndex]]) -> None:
    joined = Account.objects.annotate(named=FilteredRelation("profile", condition=Q(profile__motto="go")))
    index = declare(Account, "-profile__points", get_queryset=lambda self: joined.filter(named__points__gt=0))
    account = Account.objects.create()
    profile = Profile.objects.create(account=account, points=5)
    profile.motto = "go"
    profile.save(update_fields=["motto"])
    assert contents(index) == {str(account.pk): 5}


# Several databases


def test_a_copy_saved_in_another_database_is_no_member(round_trips: list[str]) -> None:
    player = Player(pk=7, level=5)
    player.save(using="other")
    Player.objects.using("other").get(pk=7).delete()
    assert round_trips == []


def test_each_database_commits_for_itself() -> None:
    with rolled_back("default"):
        Player.objects.create(level=5)
        remote = Remote.objects.create(score=5)
        assert contents(RemoteRank) == {str(remote.pk): 5}
    with rolled_back("other"):
        player = Player.objects.create(level=6)
        Remote.objects.create(score=6)
    assert contents(RemoteRank) == {str(remote.pk): 5}
    assert contents(PlayerRank) == {str(player.pk): 6}


# Fixtures


def load(folder: Path, rows: list[models.Model]) -> None:
    """Serialize rows, delete them, and load them as ``manage.py loaddata`` does."""
    fixture = folder / "rows.json"
    fixture.write_text(serializers.serialize("json", rows))
    for model in {type(row) for row in rows}:
        model._base_manager.all().delete()
    call_command("loaddata", str(fixture), verbosity=0)


def test_loaded_fixtures_are_ranked(tmp_path: Path, pushes: list[tuple[str, Any]]) -> None:
    """Those of children, too; and a related row may come before its member."""
    rows = [Nickname.objects.create(nick=nick, score=5) for nick in "abc"]
    account, employee = Account.objects.create(), Employee.objects.create(points=5)
    profile, manager = Profile.objects.create(account=account, points=5), Manager.objects.create(points=6)
    pushes.clear()
    load(tmp_path, [*rows, profile, account, *Person.objects.all(), *Employee.objects.all(), manager])
    assert ("nickname", {"a": 5, "b": 5, "c": 5}) in pushes
    assert contents(NicknameRank) == {"a": 5, "b": 5, "c": 5}
    assert contents(AccountRank) == {str(account.pk): 5}
    assert contents(EmployeeRank) == {str(employee.pk): 5, str(manager.pk): 6}


# What fails


@pytest.fixture
def broken(declare: Callable[..., type[RankIndex]], monkeypatch: pytest.MonkeyPatch) -> type[RankIndex]:
    """An index whose queryset raises, beside those that work."""

    def fail(self: RankIndex) -> Any:
        raise RuntimeError("broken queryset")

    index = declare(Player, "-level")
    # First in line: what comes after it must not suffer.
    routes = signal_handlers._routes[Player]
    routes.insert(0, routes.pop())
    monkeypatch.setattr(index, "get_queryset", fail)
    return index


@pytest.mark.parametrize("block", [nullcontext, transaction.atomic])
def test_an_error_in_one_index_is_logged_and_fails_neither_the_save_nor_the_others(
    block: Callable[[], Any], broken: type[RankIndex], caplog: pytest.LogCaptureFixture
) -> None:
    with block():
        player = Player.objects.create(level=5)
    assert contents(PlayerRank) == contents(PlayerAscending) == {str(player.pk): 5}
    assert [record.name for record in caplog.records if record.exc_info] == ["django_zrank.sync"]


def test_an_error_in_looking_up_related_members_fails_neither_the_save_nor_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any) -> Any:
        raise DatabaseError("no such column")

    club = Club.objects.create()
    monkeypatch.setattr(WatchedTable, "members_at", fail)
    club.is_open = False
    with transaction.atomic():
        club.save()
        player = Player.objects.create(level=5)
    assert contents(PlayerRank) == {str(player.pk): 5}
    assert "no such column" in caplog.text


def test_an_alias_that_does_not_exist_fails_no_save(
    settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(isolation, "is_testing", lambda: False)  # tests are not told
    settings.ZRANK = {"REDIS_ALIAS": "nowhere"}
    Nickname.objects.create(nick="a", score=1)
    assert "nowhere" in caplog.text


# Switched off


def test_disable_sync_as_a_block_and_as_a_decorator(
    round_trips: list[str], elsewhere: Callable[..., Any]
) -> None:
    """Until the block ends, with an error or without, inside a transaction or around it; not in other threads."""

    @disable_sync()
    def delete(nickname: Nickname) -> None:
        nickname.delete()

    with disable_sync():
        nickname = Nickname.objects.create(nick="a", score=1)
    delete(nickname)
    with pytest.raises(Undone), disable_sync():
        raise Undone
    assert round_trips == []
    with transaction.atomic():
        Nickname.objects.create(nick="b", score=1)
        with disable_sync():
            Nickname.objects.create(nick="c", score=1)
    assert round_trips == WRITE
    with disable_sync():
        elsewhere(Nickname.objects.create, nick="theirs", score=1)
    assert contents(NicknameRank) == {"b": 1, "theirs": 1}


def test_disable_sync_leaves_other_tasks_alone() -> None:
    async def quiet(ours: asyncio.Event, theirs: asyncio.Event) -> None:
        with disable_sync():
            ours.set()
            await theirs.wait()
            await Nickname.objects.acreate(nick="mine", score=1)

    async def loud(ours: asyncio.Event, theirs: asyncio.Event) -> None:
        await ours.wait()
        await Nickname.objects.acreate(nick="theirs", score=1)
        theirs.set()

    async def both() -> None:
        events = asyncio.Event(), asyncio.Event()
        await asyncio.gather(quiet(*events), loud(*events))

    from asgiref.sync import async_to_sync

    async_to_sync(both)()
    assert contents(NicknameRank) == {"theirs": 1}


def test_auto_sync_off_pushes_nothing(
    settings: Any, round_trips: list[str], declare: Callable[..., type[RankIndex]]
) -> None:
    """And an index that is not connected is left alone."""
    settings.ZRANK = {"AUTO_SYNC": False}
    Nickname.objects.create(nick="a", score=1).delete()
    assert round_trips == []
    settings.ZRANK = {}
    index = declare(Player, "-level")
    signal_handlers.disconnect(index.instance())
    player = Player.objects.create(level=5)
    assert contents(index) == {}
    assert contents(PlayerRank) == {str(player.pk): 5}


# Connecting


def test_models_that_no_index_reads_keep_their_fast_deletes() -> None:
    signals = (models.signals.pre_delete, models.signals.post_delete, models.signals.post_save)
    assert not any(signal.has_listeners(Permission) for signal in signals)


def test_a_quiet_run_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="django_zrank")
    Player.objects.create(level=5).delete()
    assert caplog.records == []
