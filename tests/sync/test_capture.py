"""Capture as a part of health: what becomes of an index whose triggers are gone, whoever took them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, OperationalError, connection, connections, transaction

from django_zrank import RankIndex
from django_zrank.capture import triggers
from django_zrank.capture.dialect import PREFIX
from django_zrank.exceptions import NotBuilt, RebuildSuperseded
from django_zrank.models import Build, Mark
from django_zrank.registry import registry
from django_zrank.signals import repaired
from django_zrank.store import Store
from django_zrank.sync import rebuild as rebuilding
from django_zrank.sync.drain import drain
from django_zrank.sync.health import Status, examine, obstacle, repair
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.watch import sync
from tests.sync.capturing import connected_as, drop_by_hand, installed, migrated, only
from tests.sync.interruptions import just_before
from tests.sync.mirror import assert_mirrors
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank"),
]

INDEX = PlayerAscending.instance()


@pytest.fixture(autouse=True)
def built(zrank: Any) -> Iterator[None]:
    """Five members, and in the end every trigger where it was."""
    before = installed()
    Player.objects.bulk_create(Player(level=level) for level in range(5))
    rebuild(INDEX)
    Mark.objects.all().delete()
    yield
    if installed() != before:
        triggers.drop("default")
        migrated()
    Mark.objects.all().delete()
    assert installed() == before


def own() -> set[Any]:
    """The triggers of the index."""
    return {trigger for trigger in installed() if trigger.name.startswith(f"{PREFIX}ascending_")}


def believed() -> bool:
    """Return True if it is promised to be right: healthy, and no mark waits."""
    return examine(INDEX) is Status.HEALTHY and not Mark.objects.filter(index=INDEX.name).exists()


def command(*args: str, **options: Any) -> str:
    out = StringIO()
    call_command("capture_zrank", *args, stdout=out, **options)
    return out.getvalue()


# Health


def test_an_index_without_a_trigger_is_not_healthy_until_it_is_repaired(
    hear: Callable[..., list[Any]],
) -> None:
    told, gone = hear(repaired, "sender", "status"), min(own())
    drop_by_hand(gone)
    Player.objects.update(level=7)
    assert triggers.examine_capture(INDEX).missing == [gone]
    assert examine(INDEX) is Status.TRIGGERS_MISSING
    sync(INDEX)
    assert told == [(INDEX, Status.TRIGGERS_MISSING)]
    assert triggers.examine_capture(INDEX).missing == []
    assert believed()
    assert_mirrors(PlayerAscending)


def test_repairing_needs_not_look() -> None:
    drop_by_hand(*own())
    assert repair(INDEX, look=False) is Status.HEALTHY
    assert own() == set()
    assert repair(INDEX) is Status.TRIGGERS_MISSING
    assert own()


def test_other_indexes_are_as_they_were() -> None:
    before = installed().keys() - own()
    drop_by_hand(*own())
    sync(INDEX)
    assert before <= installed().keys()
    assert not Mark.objects.exclude(index=INDEX.name).exists()


def test_capture_by_signals_needs_no_trigger(settings: Any) -> None:
    settings.ZRANK = {"CAPTURE": "signals"}
    drop_by_hand(*own())
    assert examine(INDEX) is Status.HEALTHY
    settings.ZRANK = {}
    assert examine(INDEX) is Status.TRIGGERS_MISSING


def test_who_may_not_make_triggers_works_off_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """And says that this is not enough."""
    Player.objects.update(level=7)
    drop_by_hand(min(own()))

    def refuse(execute: Any, sql: str, *args: Any) -> Any:
        if "CREATE" in sql:
            raise DatabaseError("denied")
        return execute(sql, *args)

    with connection.execute_wrapper(refuse):
        assert sync(INDEX).marks == 5
        assert examine(INDEX) is Status.TRIGGERS_MISSING
    assert_mirrors(PlayerAscending)


@only("postgresql", "mysql")
def test_who_puts_triggers_back_waits_for_no_writer_for_long(elsewhere: Callable[..., Any]) -> None:
    """Whoever waits for a table's lock holds up all who come after."""
    drop_by_hand(*own())
    with transaction.atomic():
        Player.objects.update(level=8)
        elsewhere(sync, INDEX)
        assert elsewhere(examine, INDEX) is Status.TRIGGERS_MISSING
    sync(INDEX)
    assert believed()
    assert_mirrors(PlayerAscending)


def test_what_a_look_costs(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(3):  # two of catalogs, and the note
        triggers.examine_capture(INDEX)


@only("mysql")
@pytest.mark.parametrize("zone", ["+05:00", "+00:00"])
def test_the_time_zone_of_a_session_does_not_matter(zone: str) -> None:
    """Seals note when the other triggers were created."""
    with connection.cursor() as cursor:
        cursor.execute("SET time_zone = %s", [zone])
    try:
        assert not triggers.examine_capture(INDEX).missing
    finally:
        connection.close()


# A release that reads more, without a migration


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., RankIndex]]:
    """Registers another release's declaration in the place of this one's."""

    def put(**attributes: Any) -> RankIndex:
        index = type("Release", (PlayerAscending,), attributes)
        monkeypatch.setattr(registry, "_classes", {index: None})
        return index.instance()

    yield put
    monkeypatch.undo()


def named(self: RankIndex) -> Any:
    return Player.objects.exclude(name="guest")


@pytest.mark.parametrize("reads", [{"get_queryset": named}, {"facets": ("name",)}], ids=["filter", "facet"])
def test_a_release_that_reads_more(release: Callable[..., RankIndex], reads: dict[str, Any]) -> None:
    index = release(**reads)
    assert examine(index) is not Status.HEALTHY
    with pytest.raises(NotBuilt, match="run migrate or rebuild_zrank"):
        sync(index)
    rebuild(index)
    assert examine(index) is Status.HEALTHY
    Player.objects.filter(level=1).update(name="guest")
    assert sync(index).marks == 1
    assert_mirrors(type(index))


def test_triggers_come_before_a_build_reads(
    release: Callable[..., RankIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = release(facets=("name",))
    seen: list[Any] = []
    just_before(
        monkeypatch, rebuilding, "select", lambda: seen.append(triggers.examine_capture(index).missing)
    )
    rebuild(index)
    assert seen == [[]]


def test_a_release_that_is_never_started(release: Callable[..., RankIndex]) -> None:
    """It has migrated. The one whose build is live goes on, but restores no trigger before somebody says so: the other
    may be about to drop its columns."""
    before = own()
    release(get_queryset=named)
    migrated()
    both = own()
    assert examine(INDEX) is Status.HEALTHY
    triggers.TriggerSet(INDEX.get_using(), []).drop(before)
    sync(INDEX)
    assert own() == both - before
    assert examine(INDEX) is Status.TRIGGERS_MISSING
    assert "or run capture_zrank with this one" in obstacle(INDEX, Status.TRIGGERS_MISSING)
    triggers.install(INDEX.get_using(), [INDEX])  # as capture_zrank does
    sync(INDEX)
    assert own() == before
    assert examine(INDEX) is Status.HEALTHY


def test_two_releases_at_once(release: Callable[..., RankIndex]) -> None:
    """The newer one migrates while the older one runs; and may be rolled back. Both have their triggers until the newer
    build is live, and then one of them."""
    before = own()
    newer = release(get_queryset=named)
    migrated()
    both = own()
    assert before < both
    for index in (INDEX, newer):
        assert triggers.examine_capture(index).missing == []
    sync(INDEX)
    assert own() == both, "the older release changes no trigger"
    assert examine(INDEX) is Status.HEALTHY
    sync(newer)
    assert own() == both - before
    assert examine(newer) is Status.HEALTHY
    with pytest.raises(NotBuilt, match="its build belongs to another release"):
        sync(INDEX)
    assert own() == both - before
    assert examine(newer) is Status.HEALTHY
    rebuild(INDEX)  # rolled back, without a migration
    assert own() == before
    assert examine(INDEX) is Status.HEALTHY
    assert_mirrors(PlayerAscending)


@pytest.mark.parametrize("moment", ["before it begins", "once it has begun"])
def test_a_worker_that_rebuilds_while_another_release_takes_the_index(
    release: Callable[..., RankIndex],
    monkeypatch: pytest.MonkeyPatch,
    elsewhere: Callable[..., Any],
    moment: str,
) -> None:
    """It had found that it may. It ends where the other build went first, and otherwise keeps that one out."""
    newer = release(get_queryset=named)
    statuses: list[Status] = []

    def take() -> None:
        migrated()
        with suppress(RebuildSuperseded):
            sync(newer)
        statuses.append(examine(newer))

    if moment == "before it begins":
        just_before(monkeypatch, rebuilding.Rebuild, "start", lambda: elsewhere(take))
        with pytest.raises(NotBuilt, match="its build belongs to another release"):
            rebuild(INDEX, polite=True)
        assert statuses == [Status.HEALTHY]
    else:
        just_before(monkeypatch, rebuilding, "select", lambda: elsewhere(take))
        rebuild(INDEX, polite=True)
        assert statuses == [Status.OTHER_DECLARATION]
        sync(newer)
    assert examine(newer) is Status.HEALTHY


class Stopped(Exception):
    """Raised where a rebuild reads."""


def test_a_rebuild_of_an_older_release_that_ends_early(
    release: Callable[..., RankIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index belongs to it from its beginning, as after ``migrate``. The live build goes on until it is replaced."""
    newer = release(get_queryset=named)
    migrated()
    sync(newer)
    after = own()

    def stop() -> None:
        raise Stopped

    just_before(monkeypatch, rebuilding, "select", stop)
    with pytest.raises(Stopped):
        rebuild(INDEX)
    both = own()
    assert both > after
    sync(newer)
    assert own() == both
    assert examine(newer) is Status.HEALTHY
    sync(INDEX)
    assert own() == both - after
    assert examine(INDEX) is Status.HEALTHY


def test_triggers_of_a_build_that_is_being_made_stay(
    release: Callable[..., RankIndex], monkeypatch: pytest.MonkeyPatch, elsewhere: Callable[..., Any]
) -> None:
    newer = release(get_queryset=named)
    migrated()
    sync(newer)
    just_before(monkeypatch, rebuilding, "select", lambda: elsewhere(triggers.contract, newer))
    rebuild(INDEX)
    assert triggers.examine_capture(INDEX).missing == []
    assert triggers.examine_capture(INDEX).outdated == []
    assert examine(INDEX) is Status.HEALTHY


# Two aliases of one database


@contextmanager
def alias(name: str, **changes: Any) -> Iterator[str]:
    """Another way to the database: by way of a pooler, or as an account that only reads."""
    connections.settings[name] = {**connections.settings["default"], **connection.settings_dict, **changes}
    other = connections[name]

    def ensure_connection() -> None:
        """Django's tests let nobody connect to an alias that they weren't told of."""
        if other.connection is None:
            with other.wrap_database_errors:
                other.connect()

    other.ensure_connection = ensure_connection  # type: ignore[method-assign]
    try:
        yield name
    finally:
        other.close()
        del connections.settings[name]
        delattr(connections._connections, name)


def test_migrating_by_way_of_another_alias_drops_nothing_and_installs() -> None:
    before = installed()
    with alias("direct"):
        migrated("direct")
        assert installed() == before
        command()
        command("--database=direct")
        assert installed() == before
        assert command("--check").count("complete") == 3
        assert "unexpected" not in command("--check")
        drop_by_hand(*own())
        migrated("direct")
    assert installed() == before
    assert Mark.objects.filter(index=INDEX.name, member=None).exists()


def test_another_database_is_no_alias() -> None:
    """Even one that is called the same."""
    assert triggers.sharing("other") == []
    with alias("direct"):
        names = {index.name for index in triggers.sharing("direct")}
        assert names == {index.name for index in triggers.captured("default")}


@only("postgresql", "mysql")
def test_an_alias_that_can_not_be_reached_now(release: Callable[..., RankIndex]) -> None:
    before = installed()
    with alias("away", HOST="/nowhere/at/all"):
        release(using="away")
        migrated()
        assert installed() == before


@contextmanager
def read_only() -> Iterator[None]:
    database = connection.settings_dict["NAME"]
    if connection.vendor == "postgresql":
        with alias("reader", OPTIONS={"options": "-c default_transaction_read_only=on"}):
            yield
    elif connection.vendor == "sqlite":
        with alias("reader", NAME=f"file:{database}?mode=ro", OPTIONS={"uri": True}):
            yield
    else:
        with connection.cursor() as cursor:
            cursor.execute("CREATE USER zrank_reader@localhost IDENTIFIED BY 'secret'")
            cursor.execute(f"GRANT SELECT ON {database}.* TO zrank_reader@localhost")
        try:
            with alias("reader", USER="zrank_reader", PASSWORD="secret"):
                yield
        finally:
            with connection.cursor() as cursor:
                cursor.execute("DROP USER zrank_reader@localhost")


def test_an_alias_that_only_reads_is_no_cause_for_alarm() -> None:
    with read_only():
        assert "reader: complete" in command("--check")
        command()


# A table that was swapped for another one


@pytest.mark.parametrize("kept", [True, False])
def test_a_table_that_takes_the_place_of_another_one(kept: bool) -> None:
    """As pt-online-schema-change and gh-ost do."""
    like = {
        "postgresql": "CREATE TABLE swap_new (LIKE testapp_player INCLUDING ALL)",
        "mysql": "CREATE TABLE swap_new LIKE testapp_player",
        "sqlite": "CREATE TABLE swap_new AS SELECT * FROM testapp_player",
    }[connection.vendor]
    swap = ["ALTER TABLE testapp_player RENAME TO swap_old", "ALTER TABLE swap_new RENAME TO testapp_player"]
    back = ["ALTER TABLE testapp_player RENAME TO swap_new", "ALTER TABLE swap_old RENAME TO testapp_player"]
    if connection.vendor == "mysql":
        swap = ["RENAME TABLE testapp_player TO swap_old, swap_new TO testapp_player"]
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA legacy_alter_table = ON" if connection.vendor == "sqlite" else "SELECT 1")
        cursor.execute(like)
        if connection.vendor != "sqlite":
            cursor.execute("INSERT INTO swap_new SELECT * FROM testapp_player")
        for statement in swap:
            cursor.execute(statement)
        try:
            if not kept:
                drop_by_hand(*(trigger for trigger in installed() if "swap_old" in trigger.table))
            cursor.execute("UPDATE testapp_player SET level = level + 10")
            assert not believed()
            sync(INDEX)
            assert believed()
            assert_mirrors(PlayerAscending)
            cursor.execute("UPDATE testapp_player SET level = level + 10")
            assert sync(INDEX).marks == 5
            assert_mirrors(PlayerAscending)
        finally:
            for statement in back:
                cursor.execute(statement)
            cursor.execute("DROP TABLE swap_new")
            cursor.execute("PRAGMA legacy_alter_table = OFF" if connection.vendor == "sqlite" else "SELECT 1")
        # The former table has missed what happened to the other one.
        assert not believed()
        sync(INDEX)
        assert_mirrors(PlayerAscending)


# Killed while it installs


class Killed(BaseException):
    """The process ends here."""


def test_an_install_that_is_killed_anywhere(elsewhere: Callable[..., Any]) -> None:
    """Others write, and process what marks they see, after each of its statements."""
    # Elsewhere a transaction holds the table, or is the only one to write.
    eager = connection.vendor == "mysql"

    last = max(Player.objects.values_list("pk", flat=True))

    def others() -> None:
        with connection.cursor() as cursor:  # one row: what happened to the rest is for the install to tell
            cursor.execute("UPDATE testapp_player SET level = level + 1 WHERE id = %s", [last])
        drain(INDEX)

    count = 0
    while not installs_before(count := count + 1, others if eager else lambda: None, elsewhere):
        try:
            assert_mirrors(PlayerAscending)
        except AssertionError:
            assert not believed(), f"killed after {count} statements"
        sync(INDEX)
        assert believed()
        assert_mirrors(PlayerAscending)
    assert count > 3


def installs_before(last: int, others: Callable[[], None], elsewhere: Callable[..., Any]) -> bool:
    """Return True if triggers are installed in less than ``last`` statements, after each of which others act."""
    drop_by_hand(*own())
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_player SET level = level + 1")
    done = 0

    def kill(execute: Any, sql: str, *args: Any) -> Any:
        nonlocal done
        result = execute(sql, *args)
        if "zrank" in sql and not sql.startswith("SELECT"):
            elsewhere(others)
            done += 1
            if done == last:
                raise Killed
        return result

    try:
        with connection.execute_wrapper(kill):
            triggers.install("default", [INDEX])
    except Killed:
        return False
    return True


# Accounts that are gone (MariaDB and MySQL)


@contextmanager
def made_by_another() -> Iterator[str]:
    """Triggers that another account has made. Inside, it is still there."""
    database = connection.settings_dict["NAME"]
    triggers.drop("default")
    with connected_as(f"ALL ON {database}.*") as user:
        migrated()
        connection.close()
        connection.settings_dict.update(USER=os.environ["ZRANK_TEST_DATABASE_USER"], PASSWORD="")
        sync(INDEX)
        Mark.objects.all().delete()
        yield user


def save() -> None:
    with transaction.atomic():
        Player.objects.update(level=9)


@only("mysql")
def test_triggers_of_another_account_are_in_force_while_it_is_there() -> None:
    with made_by_another():
        save()
        assert triggers.examine_capture(INDEX).missing == []
        assert command("--check").count("complete") == 2


@only("mysql")
@pytest.mark.parametrize("how", [sync, lambda index: command(), lambda index: migrated()])
def test_triggers_of_an_account_that_is_gone_are_replaced(how: Callable[[RankIndex], Any]) -> None:
    with made_by_another():
        pass
    with pytest.raises(DatabaseError, match="1449"):
        save()
    assert examine(INDEX) is Status.TRIGGERS_MISSING
    with pytest.raises(CommandError):
        command("--check")
    how(INDEX)
    if how is not sync:
        command("--check")
    for index in triggers.captured("default"):
        sync(index)
    save()
    sync(INDEX)
    assert believed()
    assert_mirrors(PlayerAscending)


@only("mysql")
@pytest.mark.parametrize("number", [1290, 1205])
def test_what_can_not_be_told_is_no_cause_for_alarm(number: int) -> None:
    """A server that is read-only for a moment, and a lock that somebody else holds."""

    def refuse(execute: Any, sql: str, *args: Any) -> Any:
        if sql.startswith("INSERT INTO `zrank_build`"):
            raise OperationalError(number, "refused")
        return execute(sql, *args)

    with made_by_another(), connection.execute_wrapper(refuse):
        assert triggers.examine_capture(INDEX).missing == []


@only("mysql")
def test_triggers_of_an_account_that_may_leave_no_marks() -> None:
    with made_by_another() as user:
        with connection.cursor() as cursor:
            cursor.execute(f"REVOKE ALL PRIVILEGES, GRANT OPTION FROM {user}@localhost")
        with pytest.raises(DatabaseError, match="denied"):
            save()
        assert examine(INDEX) is Status.TRIGGERS_MISSING
        for index in triggers.captured("default"):
            sync(index)
        save()


@only("mysql")
def test_outdated_triggers_of_an_account_that_is_gone_fail_no_save(release: Callable[..., RankIndex]) -> None:
    with made_by_another():
        pass
    index = release(get_queryset=named)
    migrated()
    sync(index)
    dead = [
        trigger for trigger, active in installed().items() if not active and "_ascending_" in trigger.name
    ]
    assert dead == []


def test_triggers_that_were_dropped_by_another_setting_are_missed(settings: Any) -> None:
    """Whoever migrates with CAPTURE = "signals" drops them. The worker puts them back."""
    before = own()
    settings.ZRANK = {"CAPTURE": "signals"}
    migrated()
    assert own() == set()
    settings.ZRANK = {}
    assert examine(INDEX) is Status.TRIGGERS_MISSING
    sync(INDEX)
    assert own() == before
    assert examine(INDEX) is Status.HEALTHY


@pytest.mark.part("shards")
def test_releases_of_another_number_of_shards_take_no_turns(release: Callable[..., RankIndex]) -> None:
    newer = release(shards=2)
    migrated()
    sync(newer)
    assert examine(newer) is Status.HEALTHY
    with pytest.raises(NotBuilt, match="its build belongs to another release"):
        sync(INDEX)
    assert examine(newer) is Status.HEALTHY
    rebuild(INDEX)  # rolled back
    assert examine(INDEX) is Status.HEALTHY
    with pytest.raises(NotBuilt, match="its build belongs to another release"):
        sync(newer)
    assert examine(INDEX) is Status.HEALTHY


@pytest.mark.part("shards")
def test_nobody_takes_turns_while_a_build_of_another_number_of_shards_begins(
    release: Callable[..., RankIndex], monkeypatch: pytest.MonkeyPatch, elsewhere: Callable[..., Any]
) -> None:
    """Without ``migrate``: the former shards are retired before any new one has a build."""
    newer = release(shards=2)
    refused: list[BaseException] = []

    def look() -> None:
        with pytest.raises(NotBuilt, match="its build belongs to another release") as raised:
            sync(INDEX)
        refused.append(raised.value)

    just_before(monkeypatch, rebuilding, "select", lambda: elsewhere(look))
    rebuild(newer)
    assert len(refused) == 1
    assert examine(newer) is Status.HEALTHY


def test_a_worker_builds_an_index_that_no_release_has_built(release: Callable[..., RankIndex]) -> None:
    """Although another one has migrated, and may never be started. That one takes it when it is."""
    newer = release(get_queryset=named)
    migrated()
    Store.of(INDEX).unlink_all()
    Build.objects.filter(index=INDEX.name).delete()
    sync(INDEX)
    assert examine(INDEX) is Status.HEALTHY
    sync(newer)
    assert examine(newer) is Status.HEALTHY
    with pytest.raises(NotBuilt, match="its build belongs to another release"):
        sync(INDEX)
