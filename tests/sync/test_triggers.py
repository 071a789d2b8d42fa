"""Every writer leaves exactly the marks it should, and the triggers that see to it come, change and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, connections, models, transaction
from django.db.models import Exists, F, OuterRef, Value
from django.db.models.functions import Now

from django_zrank import RankIndex
from django_zrank.capture import triggers
from django_zrank.capture.dialect import PREFIX
from django_zrank.capture.dialects import DIALECTS
from django_zrank.capture.watched_tables import watched_tables
from django_zrank.checks import check_indexes
from django_zrank.exceptions import CaptureError
from django_zrank.models import Mark
from django_zrank.registry import registry
from django_zrank.sync.rebuild import rebuild
from tests.sync.capturing import (
    connected_as,
    drop_by_hand,
    examine_all,
    forget,
    install,
    installed,
    marks,
    migrated,
    only,
    table,
    texts,
)
from tests.testapp.models import (
    Account,
    Club,
    Employee,
    Manager,
    Nickname,
    Person,
    Player,
    Profile,
    Remote,
    Ticket,
)
from tests.testapp.zrank import NicknameRank, PlayerRank

pytestmark = pytest.mark.django_db(databases=["default", "other"])

ddl = pytest.mark.django_db(transaction=True, databases=["default", "other"])
"""For tests that make or drop triggers: in MariaDB that ends a transaction."""


class Undone(Exception):
    """Raised to roll a transaction or savepoint back."""


@pytest.fixture(autouse=True)
def clean() -> None:
    """No marks from what went before: flushing the tables between two tests leaves some."""
    for alias in connections:
        Mark.objects.using(alias).all().delete()


# Django's own writers


def test_a_saved_row() -> None:
    player = Player(level=5)
    player.save()
    assert marks() == texts(player)
    player.level = 6
    player.save()
    assert marks() == texts(player)
    player.save(update_fields=["level"])
    assert marks() == []
    pk = player.pk
    player.delete()
    assert marks() == texts(pk)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="Only SQLite calls one column by four names.")
@pytest.mark.parametrize("name", ["id", "ID", "rowid", "oid", "_rowid_"])
def test_a_key_that_is_changed_under_any_of_its_names(name: str) -> None:
    player = Player.objects.create(level=5)
    marks()
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE testapp_player SET {name} = %s WHERE id = %s", [player.pk + 7, player.pk])
    assert marks() == texts(player.pk, player.pk + 7)


def test_each_index_has_its_own_mark_which_is_complete() -> None:
    player = Player.objects.create(level=5)
    found = Mark.objects.annotate(age=Now() - F("at")).order_by("index")
    assert [mark.index for mark in found] == ["ascending", "player"]
    for mark in found:
        assert (mark.member, mark.via) == (str(player.pk), None)
        assert abs(mark.age.total_seconds()) < 60
    Mark.objects.all().delete()
    Player.objects.update(is_active=False)
    assert list(Mark.objects.values_list("index", flat=True)) == ["player"]


def test_an_update_of_a_column_that_is_not_read_or_to_the_same_value() -> None:
    player = Player.objects.create(level=5)
    Player.objects.create(level=None)
    marks()
    Player.objects.update(bio="new", name="new", level=F("level"))
    Player.objects.filter(level=5).update(level=5)
    Player.objects.filter(level=None).update(level=None)
    player.refresh_from_db()
    player.bio = "newer"
    player.save()
    assert marks() == []


def test_bulk_methods() -> None:
    Player.objects.bulk_create(Player(level=level, name=str(level)) for level in (1, 2, None))
    players = list(Player.objects.order_by("name"))
    assert marks() == texts(*players)
    players[0].level, players[1].level, players[2].bio = 7, 8, "new"
    Player.objects.bulk_update(players, ["level", "bio"])
    assert marks() == texts(*players[:2])
    Player.objects.update(level=F("level") + 1)
    assert marks() == texts(*players[:2])
    pks = texts(*players)
    Player.objects.all().delete()
    assert marks() == pks


def test_bulk_create_with_conflicts() -> None:
    Nickname.objects.bulk_create([Nickname(nick="a", score=1), Nickname(nick="b", score=2)])
    marks()
    rows = [Nickname(nick="a", score=9), Nickname(nick="b", score=2), Nickname(nick="c", score=3)]
    unique = ["nick"] if connection.features.supports_update_conflicts_with_target else None
    Nickname.objects.bulk_create(rows, update_conflicts=True, update_fields=["score"], unique_fields=unique)
    assert marks("nickname") == ["a", "c"]
    Nickname.objects.bulk_create([*rows, Nickname(nick="d", score=4)], ignore_conflicts=True)
    assert marks("nickname") == ["d"]


# Other writers


def test_raw_sql() -> None:
    user = User.objects.create(username="user")
    pk = Player.objects.create(level=5, user=user).pk
    marks()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_player SET level = 6 WHERE id = %s", [pk])
        assert cursor.rowcount == 1
        assert marks() == texts(pk)
        cursor.execute("UPDATE testapp_player SET level = 7 WHERE id = %s", [pk + 1])
        assert marks() == []
        cursor.execute("DELETE FROM testapp_player")
        assert marks() == texts(pk)
    pk = Player.objects.create(level=5, user=user).pk
    marks()
    user.delete()  # a cascade of Django
    assert marks() == texts(pk)


def test_insert_select_and_replace() -> None:
    Nickname.objects.create(nick="a", score=1)
    marks()
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO testapp_nickname (nick, score) SELECT 'b', score FROM testapp_nickname")
        assert marks("nickname") == ["b"]
        if connection.vendor != "postgresql":
            cursor.execute("REPLACE INTO testapp_nickname (nick, score) VALUES ('a', 2)")
            assert set(marks("nickname")) == {"a"}


@only("postgresql")
def test_copy_merge_and_truncate_on_postgresql() -> None:
    with connection.cursor() as cursor:
        with cursor.copy("COPY testapp_nickname (nick, score) FROM STDIN") as copy:
            copy.write("a\t1\nb\t2\n")
        assert marks("nickname") == ["a", "b"]
        cursor.execute(
            "MERGE INTO testapp_nickname t USING (VALUES ('a', 5), ('c', 6)) s(nick, score) ON t.nick = s.nick"
            " WHEN MATCHED THEN UPDATE SET score = s.score WHEN NOT MATCHED THEN INSERT VALUES (s.nick, s.score)"
        )
        assert marks("nickname") == ["a", "c"]
        cursor.execute("WITH gone AS (DELETE FROM testapp_nickname RETURNING nick) SELECT count(*) FROM gone")
        assert marks("nickname") == ["a", "b", "c"]
        cursor.execute("TRUNCATE testapp_nickname")
    assert marks("nickname") == [None]


@only("postgresql", "sqlite")
@ddl
def test_a_cascade_of_the_database() -> None:
    with connection.schema_editor() as editor:
        editor.execute("CREATE TABLE house (id int PRIMARY KEY)")
        editor.execute("ALTER TABLE testapp_nickname ADD house int REFERENCES house ON DELETE CASCADE")
    try:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO house VALUES (1), (2)")
            cursor.execute("INSERT INTO testapp_nickname VALUES ('a', 1, 1), ('b', 2, 2)")
            marks()
            cursor.execute("DELETE FROM house WHERE id = 1")
        assert marks("nickname") == ["a"]
    finally:
        Nickname.objects.all().delete()
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE testapp_nickname DROP COLUMN house")
            cursor.execute("DROP TABLE house")


# Transactions


def test_what_is_rolled_back_leaves_none() -> None:
    with suppress(Undone), transaction.atomic():
        Player.objects.create(level=5)
        raise Undone
    assert marks() == []
    with transaction.atomic():
        kept = Player.objects.create(level=1)
        with suppress(Undone), transaction.atomic():
            Player.objects.create(level=2)
            raise Undone
        also = Player.objects.create(level=3)
    assert marks() == texts(kept, also)


# Primary keys


@pytest.mark.parametrize("nick", ["a", "Bob"])
def test_a_changed_primary_key(nick: str) -> None:
    """MariaDB's collation takes Bob for bob; Redis doesn't."""
    Nickname.objects.bulk_create([Nickname(nick="bob", score=1), Nickname(nick="other", score=1)])
    marks()
    Nickname.objects.filter(nick="bob").update(nick=nick)
    assert marks("nickname") == [nick, "bob"]


def test_primary_keys_that_trade_places() -> None:
    first = Player.objects.create(level=1)
    Player.objects.create(level=2, pk=first.pk + 1)
    marks()
    for step in (10, -9):
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE testapp_player SET id = id + {step}")
    assert set(texts(first.pk, first.pk + 10, first.pk + 11, first.pk + 1, first.pk + 2)) == set(marks())


@pytest.mark.parametrize(
    ("column", "value", "other"),
    [
        ("integer", 2**62, -(2**62)),
        ("real", 0.1, 0.1 + 2**-56),
        ("price", "12.30", "12.31"),
        ("flag", False, None),
        ("flag", True, False),
        ("day", "2024-02-29", "2024-03-01"),
        ("moment", "2024-02-29T12:00:00.000001Z", "2024-02-29T12:00:00.000002Z"),
        ("span", "0:00:00.000001", "0:00:00.000002"),
    ],
)
def test_every_type_of_column(column: str, value: Any, other: Any) -> None:
    parse = Ticket._meta.get_field(column).to_python
    ticket = Ticket.objects.create(**{column: parse(value)})
    marks()
    index = f"ticket-{column}"
    Ticket.objects.update(**{column: parse(value)})
    assert marks(index) == []
    Ticket.objects.update(**{column: parse(other)})
    found = marks(index)
    assert [registry.get(index).parse_pk(member) for member in found] == [ticket.pk]


# Related tables


def test_a_row_that_points_at_the_member() -> None:
    first, second = Account.objects.create(), Account.objects.create()
    marks()
    profile = Profile.objects.create(account=first, points=5)
    assert marks("account") == texts(first)
    Profile.objects.update(points=6)
    assert marks("account") == texts(first)
    Profile.objects.update(motto="new", points=6)
    assert marks("account") == []
    profile.account = second
    profile.save()
    assert marks("account") == texts(first, second)
    profile.delete()
    assert marks("account") == texts(second)


def test_a_row_that_the_member_points_at() -> None:
    """It is marked by its own key; who points at it is asked when the mark is processed."""
    club = Club.objects.create()
    pk, elsewhere = club.pk, Club.objects.create()
    # PostgreSQL checks that no member leads to a new row.
    assert marks("account", via="club_id") == (
        [] if connection.vendor == "postgresql" else texts(pk, elsewhere)
    )
    members = [Account.objects.create(club=club) for _ in range(2)]
    outsiders = [Account.objects.create(), Account.objects.create(club=elsewhere)]
    assert marks("account") == texts(*members, *outsiders)
    Club.objects.filter(pk=pk).update(is_open=False)
    assert members_of(registry.get("account"), "club_id", club) == texts(*members)
    Club.objects.filter(pk=pk).update(is_open=False)
    assert marks("account", via="club_id") == []
    club.delete()  # sets null in the accounts
    assert marks("account") == texts(*members)


def members_of(index: RankIndex, via: str, *rows: Any) -> list[str]:
    """The members to which the marks of a related table lead, which are those of ``rows``."""
    found = marks(index.name, via=via)
    assert found == texts(*rows)
    (source,) = [source for source in watched_tables(index) if source.via == via]
    assert list(source.members_at(["", "x", "1.5"], "default")) == []
    return texts(*source.members_at(found, "default"))


def test_an_inherited_column() -> None:
    manager = Manager.objects.create(points=5)  # a child of what is ranked
    assert set(marks("employee")) == set(texts(manager))
    manager.reports = 3
    manager.save()
    assert marks("employee") == []
    manager.delete()
    assert marks("employee")
    employee = Employee.objects.create(points=5)
    assert set(marks("employee")) == set(texts(employee))
    Person.objects.update(points=6)
    assert marks("employee") == texts(employee)
    Employee.objects.update(title="new")
    assert marks("employee") == []
    Employee.objects.update(points=7, title="newer")
    assert marks("employee") == texts(employee)
    pk = employee.pk
    employee.delete()
    assert set(marks("employee")) == set(texts(pk))


# Databases


@ddl
def test_marks_lie_where_the_model_lives(settings: Any) -> None:
    for alias in connections:
        assert Mark._meta.db_table in connections[alias].introspection.table_names()
        assert examine_all(alias).works
    settings.DATABASE_ROUTERS = ["tests.testapp.routers.RemoteRouter"]
    for alias in connections:
        migrated(alias)
        marks(using=alias)
    remote = Remote.objects.create(score=1)
    assert marks("remote", using="other") == texts(remote)
    assert not Mark.objects.exists()
    assert not any("remote" in trigger.name for trigger in installed())
    assert all("_remote_" in trigger.name for trigger in installed("other"))


# Declared for one test


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., RankIndex]]:
    """Puts one index in the place of all those that are registered, with its triggers."""
    registered = registry._classes
    names: set[str] = set()

    def put(model: Any, *order: str, **attributes: Any) -> RankIndex:
        attributes = {"name": "declared", **attributes, "model": model, "order": order}
        names.add(attributes["name"])
        index = type("Declared", (RankIndex,), attributes)
        monkeypatch.setattr(registry, "_classes", {index: None})
        install()
        Mark.objects.all().delete()
        return index.instance()

    yield put
    monkeypatch.setattr(registry, "_classes", registered)
    for alias in connections:
        triggers.drop(alias, names - {index.name for index in registry.all()})
        install(alias)


@ddl
@pytest.mark.parametrize("name", ["it's\"`tick`", "back\\slash", "per%cent", "$$a", "n" * 200, "日本Äé-*;--"])
def test_any_name(declare: Callable[..., RankIndex], name: str) -> None:
    declare(Nickname, "-score", name=name)
    Nickname.objects.create(nick="a", score=1)
    assert not Mark.objects.filter(index=name.upper()).exists()
    assert marks(name) == ["a"]
    Nickname.objects.update(score=2)
    assert marks(name) == ["a"]
    Nickname.objects.all().delete()
    assert marks(name) == ["a"]
    assert examine_all().works


def test_the_names_of_triggers_are_short_enough() -> None:
    dialect = DIALECTS[connection.vendor](connection, [])
    (source,) = watched_tables(PlayerRank.instance())
    for name in ("n" * 200, "日" * 200, "_", "Player"):
        unit = dialect.unit(replace(source, index=name))
        for trigger in unit.create:
            assert len(trigger.name) <= 61, trigger
            assert trigger.owner, trigger


@ddl
def test_a_table_and_a_column_with_odd_names(declare: Callable[..., RankIndex]) -> None:
    class Odd(models.Model):
        key = models.IntegerField(primary_key=True, db_column="it's the Key")
        score = models.IntegerField(null=True, db_column="Select; --")

        class Meta:
            app_label = "testapp"
            db_table = "Odd 'table"

    with table(Odd):
        declare(Odd, "-score")
        Odd.objects.create(key=7, score=1)
        assert marks("declared") == ["7"]


@ddl
def test_a_collation_that_takes_one_text_for_another(declare: Callable[..., RankIndex]) -> None:
    collations = {"sqlite": "NOCASE", "mysql": "utf8mb4_general_ci", "postgresql": "zrank_nocase"}

    class Loose(models.Model):
        key = models.CharField(max_length=9, primary_key=True, db_collation=collations[connection.vendor])
        name = models.CharField(max_length=9, db_collation=collations[connection.vendor])
        score = models.IntegerField()

        class Meta:
            app_label = "testapp"

    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            locale = "provider = icu, locale = 'und-u-ks-level2', deterministic = false"
            cursor.execute(f"CREATE COLLATION IF NOT EXISTS zrank_nocase ({locale})")
    with table(Loose):
        declare(Loose, "-score", get_queryset=lambda self: Loose.objects.filter(name__contains="a"))
        Loose.objects.create(key="bob", name="a", score=1)
        marks()
        Loose.objects.update(name="A")
        assert marks("declared") == ["bob"]
        Loose.objects.update(key="BOB")
        assert marks("declared") == ["BOB", "bob"]


@ddl
def test_a_foreign_key_two_steps_away(declare: Callable[..., RankIndex]) -> None:
    index = declare(
        Profile, "-points", get_queryset=lambda self: Profile.objects.filter(account__club__is_open=True)
    )
    club = Club.objects.create()
    profiles = [Profile.objects.create(account=Account.objects.create(club=club)) for _ in range(2)]
    Profile.objects.create(account=Account.objects.create())
    marks()
    Club.objects.update(is_open=False)
    assert members_of(index, "account__club_id", club) == texts(*profiles)
    Account.objects.filter(profile=profiles[0]).update(club=None)
    assert members_of(index, "account_id", profiles[0].account_id) == texts(profiles[0])


@ddl
def test_many_to_many(declare: Callable[..., RankIndex]) -> None:
    index = declare(
        User, "-date_joined", get_queryset=lambda self: User.objects.filter(groups__name="team").distinct()
    )
    others = [User.objects.create(username=f"user {number}") for number in range(3)]
    user, group = others.pop(), Group.objects.create(name="team")
    marks()
    user.groups.add(group)
    assert marks("declared") == texts(user)
    Group.objects.update(name="other")
    assert members_of(index, "User_groups+__group_id", group) == texts(user)
    user.groups.clear()
    assert marks("declared") == texts(user)


@ddl
def test_the_rows_that_a_row_of_the_same_table_leads_to(declare: Callable[..., RankIndex]) -> None:
    index = declare(
        Player, "-level", get_queryset=lambda self: Player.objects.filter(friends__is_active=True).distinct()
    )
    player, friend = (Player.objects.create(pk=pk, level=5) for pk in (100, 200))
    player.friends.add(friend)
    marks()
    Player.objects.filter(pk=friend.pk).update(is_active=False)
    assert members_of(index, "Player_friends+__to_player_id", friend) == texts(player)


@ddl
def test_a_row_that_two_paths_lead_to_leaves_one_mark(declare: Callable[..., RankIndex]) -> None:
    rows = Account.objects.filter(nick="a", profile__account__nick="a")
    declare(Account, "-profile__points", get_queryset=lambda self: rows.filter(profile__account__club=None))
    account = Account.objects.create(nick="a")
    assert marks("declared") == texts(account)
    Account.objects.update(nick="b")
    assert marks("declared") == texts(account)


FRIENDS = Player.objects.filter(friends=OuterRef("pk"), name=OuterRef("name"))


@ddl
@pytest.mark.parametrize(
    "rows", [Player.objects.filter(~Exists(FRIENDS)), Player.objects.extra(where=["bio <> 'banned'"])]
)
def test_a_subquery_or_raw_sql_makes_every_update_count(
    declare: Callable[..., RankIndex], rows: models.QuerySet[Player]
) -> None:
    declare(Player, "-level", get_queryset=lambda self: rows.all())
    player = Player.objects.create(level=5)
    marks()
    Player.objects.update(name="new")
    assert marks("declared") == texts(player)
    Player.objects.all().delete()
    assert marks("declared") == texts(player)


@ddl
def test_a_generated_column_stands_for_those_it_is_made_of(declare: Callable[..., RankIndex]) -> None:
    class Total(models.Model):
        won = models.IntegerField()
        bonus = models.IntegerField()
        note = models.IntegerField(default=0)
        total = models.GeneratedField(
            expression=F("won") + F("bonus") + Value(1), output_field=models.IntegerField(), db_persist=True
        )

        class Meta:
            app_label = "testapp"

    with table(Total):
        index = declare(Total, "-total")
        (source,) = watched_tables(index)
        assert {field.name for field in source.fields or ()} == {"id", "won", "bonus"}
        assert source.touched_by(frozenset({"won"}))
        row = Total.objects.create(won=1, bonus=2)
        assert marks("declared") == texts(row)
        Total.objects.update(bonus=3)
        assert marks("declared") == texts(row)
        Total.objects.update(note=3)
        assert marks("declared") == []


# Two transactions at once


@ddl
@only("postgresql")
def test_a_member_that_is_led_to_a_row_while_that_row_changes() -> None:
    """Neither transaction sees the other. Whoever commits last, its mark leads to the member."""
    club = Club.objects.create(is_open=True)
    account = Account.objects.create()
    marks()
    other = connections.create_connection("default")
    try:
        with transaction.atomic():
            Club.objects.update(is_open=False)
            with other.cursor() as cursor:
                cursor.execute("UPDATE testapp_account SET club_id = %s", [club.pk])
                cursor.execute("DELETE FROM zrank_mark")  # processed before the club's change commits
                assert cursor.rowcount == 1
        assert members_of(registry.get("account"), "club_id", club) == texts(account)
    finally:
        other.close()


@ddl
@only("mysql")
def test_statements_that_wait_for_a_row_do_not_hold_up_the_marks_of_others() -> None:
    """MariaDB locks the counter of a table until the end of some statements; not of these."""
    rows = [Player.objects.create(level=1) for _ in range(3)]
    other = connections.create_connection("default")
    try:
        with transaction.atomic(), other.cursor() as cursor:
            cursor.execute("SET innodb_lock_wait_timeout = 1")
            Player.objects.filter(pk=rows[1].pk).update(level=2)
            with pytest.raises(DatabaseError, match="Lock wait timeout"):
                # Marks the first row, then waits for the second.
                cursor.execute("UPDATE testapp_player SET level = 3 WHERE id <> %s ORDER BY id", [rows[2].pk])
            Player.objects.filter(pk=rows[2].pk).update(level=2)
    finally:
        other.close()


# Installing


def functions() -> int:
    """The number of PostgreSQL's functions, which go with their triggers."""
    if connection.vendor != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_proc WHERE starts_with(proname, %s)", [PREFIX])
        return int(cursor.fetchone()[0])


@ddl
def test_triggers_are_dropped_and_restored() -> None:
    """Those that come late mark all members."""
    triggers.drop("default")  # with the functions that other tests have left
    install()
    Mark.objects.all().delete()
    before = installed()
    assert before
    assert install() == ([], [])
    assert (installed(), Mark.objects.count()) == (before, 0)
    functions_before = functions()
    changes = triggers.drop("default")
    assert (set(changes.dropped), installed(), functions()) == (set(before), {}, 0)
    Player.objects.create(level=5)
    assert not Mark.objects.exists()
    found = examine_all()
    assert (set(found.missing), found.outdated, found.unexpected) == (set(before), [], [])
    assert set(install().created) == set(before)
    assert (installed(), functions()) == (before, functions_before)
    assert examine_all().works
    names = Mark.objects.filter(member=None).values_list("index", flat=True)
    assert set(names) == {index.name for index in triggers.captured("default")}
    assert marks() == [None]


@ddl
def test_one_trigger_that_is_missing() -> None:
    before = installed()
    gone = next(trigger for trigger in before if trigger.name.startswith(f"{PREFIX}nickname_"))
    drop_by_hand(gone)
    assert examine_all().missing == [gone]
    assert install() == ([gone], [])
    assert installed() == before
    assert list(Mark.objects.values_list("index", "member")) == [("nickname", None)]


@ddl
def test_outdated_triggers_are_replaced(declare: Callable[..., RankIndex]) -> None:
    declare(Nickname, "-score")
    before = {trigger for trigger in installed() if "_declared_" in trigger.name}
    rows = Nickname.objects.extra(where=["1 = 1"])
    attributes = {"name": "declared", "get_queryset": lambda self: rows}
    index = type("Changed", (NicknameRank,), attributes).instance()
    found = triggers.examine_triggers("default", [index])
    assert (set(found.outdated), len(found.missing)) == (set(before), len(before))
    changes = triggers.install("default", [index])
    assert set(changes.dropped) == set(before)
    assert set(changes.created) == set(found.missing) <= set(installed())
    Nickname.objects.create(nick="a", score=1)
    assert marks("declared") == [None, "a"]


@ddl
def test_triggers_of_indexes_that_are_not_registered_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another project's are such, and those of an older release that still runs."""
    before = installed()
    monkeypatch.setattr(registry, "_classes", {NicknameRank: None})
    migrated()
    assert installed() == before
    said = command("--check")
    assert "default: unexpected: zrank_capture_player_" in said
    assert "default: complete" in said
    try:
        triggers.drop("default", ["player"])
        gone = before.keys() - installed().keys()
        assert gone
        assert all("_player_" in trigger.name for trigger in gone)
    finally:
        monkeypatch.undo()
        migrated()
    assert installed() == before


@ddl
def test_triggers_of_others_are_left_alone() -> None:
    body = {
        "postgresql": "EXECUTE FUNCTION theirs()",
        "mysql": "SET @theirs = 1",
        "sqlite": "BEGIN SELECT 1; END",
    }[connection.vendor]
    names = ["zrank_theirs", f"{PREFIX}theirs", f"{PREFIX}player_insert"]
    on = " ON testapp_nickname" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "CREATE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'"
            )
        for name in names:
            cursor.execute(f"CREATE TRIGGER {name} BEFORE INSERT ON testapp_nickname FOR EACH ROW {body}")
        try:
            assert examine_all().works
            triggers.drop("default")
            assert not installed()
        finally:
            for name in names:
                cursor.execute(f"DROP TRIGGER {name}{on}")
            if connection.vendor == "postgresql":
                cursor.execute("DROP FUNCTION theirs()")
            install()


@ddl
@only("postgresql")
def test_a_disabled_trigger_is_missing_on_postgresql() -> None:
    (trigger,) = [
        trigger
        for trigger in installed()
        if trigger.name.startswith(f"{PREFIX}nickname_") and "_update" in trigger.name
    ]
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE testapp_nickname DISABLE TRIGGER {trigger.name}")
    assert examine_all().missing == [trigger]
    install()
    assert examine_all().works
    marks()
    Nickname.objects.bulk_create([Nickname(nick="a", score=1)])
    Nickname.objects.update(score=2)
    assert marks("nickname") == ["a", "a"]


@ddl
@only("postgresql")
def test_a_schema_of_its_own_on_postgresql(declare: Callable[..., RankIndex]) -> None:
    with connection.cursor() as cursor:
        cursor.execute('CREATE SCHEMA "Other one"')
        cursor.execute('CREATE TABLE "Other one".testapp_nickname (LIKE public.testapp_nickname)')
        cursor.execute('SET search_path = "Other one", public')
        try:
            declare(Nickname, "-score")
            cursor.execute("SET search_path = public")
            cursor.execute("""INSERT INTO "Other one".testapp_nickname VALUES ('a', 1)""")
            cursor.execute("INSERT INTO public.testapp_nickname VALUES ('b', 1)")
            assert marks("declared") == ["a"]
            # Seen from here the other schema is another project's.
            assert not any(trigger.table.startswith('"Other') for trigger in installed())
        finally:
            cursor.execute("SET search_path = public")
            cursor.execute('DROP SCHEMA "Other one" CASCADE')
    Nickname.objects.all().delete()


# Migrations


@ddl
def test_a_table_that_is_altered_keeps_its_capture() -> None:
    """On SQLite Django makes a new table, and the triggers go with the old one."""
    field = Player._meta.get_field("name")
    longer = models.CharField(max_length=80, default="")
    longer.set_attributes_from_name("name")
    before = installed()
    with connection.schema_editor() as editor:
        editor.alter_field(Player, field, longer)
    try:
        if connection.vendor == "sqlite":
            assert set(installed()) < set(before)
        migrated()
        assert installed() == before
        assert marks() == ([None] if connection.vendor == "sqlite" else [])
        player = Player.objects.create(level=5)
        assert marks() == texts(player)
    finally:
        with connection.schema_editor() as editor:
            editor.alter_field(Player, longer, field)
        migrated()


@ddl
def test_migrating_to_zero_and_back(zrank: Any) -> None:
    before = installed()
    rebuild(PlayerRank.instance())
    call_command("migrate", "zrank", "zero", verbosity=0)
    try:
        assert installed() == {}
        Player.objects.create(level=5).delete()
        missing = examine_all().missing
        assert {trigger.owner for trigger in missing} == {trigger.owner for trigger in before}
        migrated()
        assert installed() == {}
    finally:
        call_command("migrate", "zrank", verbosity=0)
    assert installed() == before
    Player.objects.create(level=5)
    assert len(marks()) == 2  # and the one that says that some may be missing


@ddl
def test_a_table_that_is_not_there_yet(declare: Callable[..., RankIndex]) -> None:
    class Later(models.Model):
        score = models.IntegerField()

        class Meta:
            app_label = "testapp"

    try:
        declare(Later, "-score")
        assert examine_all().missing
        with connection.schema_editor() as editor:
            editor.execute("CREATE TABLE testapp_later (id integer)")  # and not yet the column
        migrated()
        assert examine_all().missing
        with connection.schema_editor() as editor:
            editor.execute("ALTER TABLE testapp_later ADD score integer")
        migrated()
        assert examine_all().works
    finally:
        with connection.schema_editor() as editor:
            editor.execute("DROP TABLE testapp_later")
        forget(Later)


# The setting


@ddl
def test_capture_by_signals_has_no_triggers(settings: Any) -> None:
    before = installed()
    settings.ZRANK = {"CAPTURE": "signals"}
    migrated()
    assert installed() == {}
    settings.ZRANK = {}
    migrated()
    assert installed() == before


# Restricted accounts


@ddl
@only("postgresql")
def test_a_writer_without_rights_on_the_marks_on_postgresql() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE zrank_writer")
        try:
            cursor.execute(
                "GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON testapp_nickname TO zrank_writer"
            )
            cursor.execute("CREATE SCHEMA trap AUTHORIZATION zrank_writer")
            cursor.execute("SET ROLE zrank_writer")
            cursor.execute(
                "CREATE FUNCTION trap.pg_notify(text, text) RETURNS void LANGUAGE plpgsql"
                " AS 'BEGIN RAISE EXCEPTION ''trapped as %'', current_user; END'"
            )
            # Nothing that the writer puts in the way of a name is used.
            cursor.execute("SET search_path = pg_temp, trap, pg_catalog, public")
            cursor.execute('CREATE TEMP TABLE zrank_mark ("index" text, member text)')
            cursor.execute("INSERT INTO testapp_nickname VALUES ('a', 1), ('b', 2)")
            cursor.execute("UPDATE testapp_nickname SET score = 3 WHERE nick = 'a'")
            cursor.execute("DELETE FROM testapp_nickname WHERE nick = 'b'")
            with pytest.raises(DatabaseError, match="permission denied"):
                cursor.execute("SELECT * FROM public.zrank_mark")
            cursor.execute("TRUNCATE testapp_nickname")
        finally:
            cursor.execute("RESET ROLE")
            cursor.execute("RESET search_path")
            cursor.execute("DROP TABLE pg_temp.zrank_mark")
            cursor.execute("DROP OWNED BY zrank_writer")
            cursor.execute("DROP ROLE zrank_writer")
    found = list(Mark.objects.order_by("id").values_list("member", flat=True))
    assert found == ["a", "b", "a", "b", None]


@ddl
@only("mysql")
def test_a_writer_without_rights_on_the_marks_on_mariadb() -> None:
    database = connection.settings_dict["NAME"]
    rights = f"SELECT, INSERT, UPDATE, DELETE ON {database}.testapp_nickname"
    with connected_as(rights), connection.cursor() as cursor:
        cursor.execute("INSERT INTO testapp_nickname VALUES ('a', 1), ('b', 2)")
        cursor.execute("UPDATE testapp_nickname SET score = 3 WHERE nick = 'a'")
        cursor.execute("DELETE FROM testapp_nickname WHERE nick = 'b'")
        with pytest.raises(DatabaseError, match="denied"):
            cursor.execute("SELECT * FROM zrank_mark")
    assert marks("nickname") == ["a", "a", "b", "b"]


@contextmanager
def forbidden() -> Iterator[None]:
    """Be one who may not make triggers."""
    if connection.vendor == "mysql":
        rights = f"SELECT, INSERT, CREATE, ALTER ON {connection.settings_dict['NAME']}.*"
        with connected_as(rights):
            yield
        return
    begin, end = {
        "postgresql": ("SET ROLE zrank_limited", "RESET ROLE"),
        "sqlite": ("PRAGMA query_only = 1", "PRAGMA query_only = 0"),
    }[connection.vendor]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("CREATE ROLE zrank_limited")
            cursor.execute("GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO zrank_limited")
            cursor.execute("GRANT CREATE ON SCHEMA public TO zrank_limited")
        cursor.execute(begin)
        try:
            yield
        finally:
            cursor.execute(end)
            if connection.vendor == "postgresql":
                cursor.execute("DROP OWNED BY zrank_limited")
                cursor.execute("DROP ROLE zrank_limited")


@ddl
def test_a_database_that_forbids_triggers() -> None:
    triggers.drop("default")
    try:
        with forbidden(), pytest.raises(CaptureError) as caught:
            triggers.install("default", [PlayerRank.instance()])
        message = str(caught.value)
        assert "Database 'default'" in message
        assert "testapp_player" in message
        assert str(caught.value.__cause__).strip() in message
        assert '{"CAPTURE": "signals"}' in message
        assert isinstance(caught.value.__cause__, DatabaseError)
        with forbidden(), pytest.raises(CommandError, match="CAPTURE"):
            command("--database", "default")
        assert installed() == {}
    finally:
        migrated()


@ddl
def test_a_database_that_has_no_triggers_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "vendor", "oracle")
    with pytest.raises(CaptureError, match="CAPTURE"):
        triggers.install("default", [PlayerRank.instance()])
    assert triggers.install("default", []) == ([], [])


# Checks


def test_a_router_that_keeps_the_marks_away(settings: Any) -> None:
    class Keeps:
        def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
            return db == "other" if app_label == "zrank" else None

    settings.DATABASE_ROUTERS = [Keeps()]
    found = check_indexes(None)
    assert {message.id for message in found} == {"zrank.E022"}
    assert all("remote" not in str(message.msg) for message in found)


# The command


def command(*args: str) -> str:
    out = StringIO()
    call_command("capture_zrank", *args, stdout=out)
    return out.getvalue()


@ddl
def test_the_command() -> None:
    before = installed()
    assert command("--check") == "default: complete\nother: complete\n"
    assert (
        command("--drop", "--database", "default") == f"default: 0 triggers created, {len(before)} dropped\n"
    )
    assert installed() == {}
    with pytest.raises(CommandError, match="default"):
        command("--check")
    assert command("--check", "--database", "other") == "other: complete\n"
    assert command("--database", "default", "--verbosity=0") == ""
    assert installed() == before
    assert command("--database", "default") == "default: 0 triggers created, 0 dropped\n"
    trigger = next(iter(before))
    drop_by_hand(trigger)
    out = StringIO()
    with pytest.raises(CommandError, match="default"):
        call_command("capture_zrank", "--check", stdout=out)
    assert f"default: missing: {trigger}" in out.getvalue()
    assert command("--database", "default") == "default: 1 trigger created, 0 dropped\n"
    assert installed() == before
