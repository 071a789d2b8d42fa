"""The mirror of an index with shards, each kept in step by itself."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic
from typing import Any

import pytest
import redis
from django.core.management import call_command
from django.db import connection, models
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django_redis import get_redis_connection
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from redis import Redis
from redis.crc import key_slot

from django_zrank import RankIndex, builds
from django_zrank.builds import recorded
from django_zrank.capture.triggers import install
from django_zrank.exceptions import IndexUnavailable
from django_zrank.models import SEVERAL, Batch, Build, Mark
from django_zrank.recent import Recent
from django_zrank.shards import routing
from django_zrank.signals import drained, push_failed, rebuilt
from django_zrank.store import Store
from django_zrank.sync import drain as drain_module
from django_zrank.sync.drain import drain, drain_soon
from django_zrank.sync.gauges import read_gauges
from django_zrank.sync.health import Status, examine, examine_holder, repair
from django_zrank.sync.in_step import InStep, breaker
from django_zrank.sync.leftovers import find_leftovers, prune
from django_zrank.sync.marks import waiting_marks
from django_zrank.sync.push import push, try_push
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from django_zrank.testing import disable_sync, reset, settings_for
from tests.clusters import Cluster
from tests.recoding import locked_anyway
from tests.servers import wait_for
from tests.sync.capturing import table
from tests.sync.interruptions import just_before
from tests.sync.mirror import assert_mirrors
from tests.testapp.models import Account, Club, Competitor, Guild, Player, Profile
from tests.testapp.zrank import AccountRank, CompetitorRank, PlayerAscending
from tests.writes import apply_changes, begin_write

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


def split(index: type[RankIndex], shards: int) -> RankIndex:
    """Declare a number of shards of a registered index."""
    instance = index.instance()
    index.shards = shards
    vars(instance).pop("holders", None)
    return instance


@pytest.fixture
def divide(zrank: Redis) -> Iterator[Callable[..., RankIndex]]:
    """Gives a registered index so many shards, for this test."""
    divided: list[type[RankIndex]] = []

    def declare(index: type[RankIndex], shards: int) -> RankIndex:
        divided.append(index)
        return split(index, shards)

    yield declare
    for index in divided:
        split(index, 1)


@pytest.fixture
def players(divide: Callable[..., RankIndex]) -> RankIndex:
    """Forty players, of an index in three shards."""
    index = divide(PlayerAscending, 3)
    Player.objects.bulk_create(Player(pk=pk, level=pk) for pk in range(1, 41))
    rebuild(index)
    return index


def contents(part: RankIndex) -> dict[str, float]:
    """Member -> score, as Redis holds a part."""
    store = Store(part.name)
    found: Any = store.client.zrange(store.learn().root, 0, -1, withscores=True)
    return {member.decode(): score for member, score in found}


def members_of(part: RankIndex) -> list[int]:
    """The players of a part."""
    pks = Player.objects.order_by("pk").values_list("pk", flat=True)
    return [pk for pk in pks if part.declared.holder_of(str(pk)) is part]


def lose(part: RankIndex) -> None:
    """Let the server lose all that it has of a part."""
    Store(part.name).unlink_all()


def restart(part: RankIndex) -> None:
    """Let the server of a part be another one, as far as the part knows."""
    store = Store(part.name)
    store.client.hset(store.keys.meta, "server", "another/history")


def test_each_member_is_built_into_its_own_shard(players: RankIndex) -> None:
    assert all(contents(part) for part in players.holders)
    assert_mirrors(PlayerAscending)
    assert {part.name for part in players.holders} <= set(Build.objects.values_list("index", flat=True))
    assert examine(players) is Status.HEALTHY


def test_shards_on_one_server_share_the_round_trips_of_a_push(
    players: RankIndex, round_trips: list[str]
) -> None:
    with disable_sync():
        Player.objects.update(level=50)
    assert try_push({players: set(range(1, 41))})
    assert round_trips == ["begin_write", "apply_changes"]
    assert_mirrors(PlayerAscending)


def test_a_save_is_pushed_to_its_shard(players: RankIndex) -> None:
    with_push = Player.objects.create(pk=41, level=7)
    assert contents(players.holder_of("41"))["41"] == 7
    with_push.delete()
    assert_mirrors(PlayerAscending)
    drain(players)
    assert not waiting_marks(players).exists()


def test_rows_are_read_once_for_all_shards(players: RankIndex, django_assert_num_queries: Any) -> None:
    with disable_sync():
        Player.objects.update(level=3)
    for part in players.holders:
        recorded(part)
    # Servers are asked if they still take writes.
    with django_assert_num_queries(1 if connection.vendor == "sqlite" else 2):
        push(players, range(1, 41))
    assert_mirrors(PlayerAscending)


def test_the_notes_of_all_shards_are_read_together(players: RankIndex) -> None:
    builds.forget(players)
    for part in players.holders:
        builds.forget(part)
    with CaptureQueriesContext(connection) as queries:
        push(players, range(1, 41))
    assert sum(Build._meta.db_table in query["sql"] for query in queries) == 1


def test_refused_members_of_all_shards_are_read_again_together(
    players: RankIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_zrank.sync import push as push_module

    read, readings = push_module.read, []

    def overtaken(index: RankIndex, pks: Any, *stores: Store) -> Any:
        found = list(read(index, pks, *stores))
        readings.append(len(found))
        if len(readings) == 1:
            with disable_sync():
                Player.objects.update(level=90)
            push(index, range(1, 11))
        return iter(found)

    monkeypatch.setattr(push_module, "read", overtaken)
    push(players, range(1, 41))
    assert readings == [40, 10, 10]
    assert {
        score for part in players.holders for member, score in contents(part).items() if int(member) < 11
    } == {90}


def test_marks_are_worked_off_with_a_batch_for_each_shard(
    players: RankIndex, hear: Callable[..., list[Any]]
) -> None:
    heard = hear(drained, "sender", "marks")
    with disable_sync():
        Player.objects.update(level=50)
    assert drain(players) == 40
    assert heard == [(players, 40)]
    assert_mirrors(PlayerAscending)
    for part in players.holders:
        assert sorted(int(member) for _, member in Batch.objects.get(index=part.name).marks) == members_of(
            part
        )


def test_a_mark_that_leads_to_nobody_is_worked_off(players: RankIndex) -> None:
    Mark.objects.create(index=players.name, member="no key")
    Mark.objects.create(index=players.name, member=str(2**70))
    Mark.objects.create(index=players.name, via="nothing", member="1")
    assert drain(players) == 3


def test_a_mark_of_all_members_builds_all_shards(players: RankIndex) -> None:
    Player.objects.all()._raw_delete("default")
    Mark.objects.all().delete()
    Mark.objects.create(index=players.name)
    assert drain(players) == 1
    assert_mirrors(PlayerAscending)


class TestOneShardIsAway:
    """Its keys are gone, or its server can't be asked: the others go on."""

    @pytest.fixture
    def lost(self, players: RankIndex, monkeypatch: pytest.MonkeyPatch) -> RankIndex:
        """A part whose server doesn't answer."""
        lost = players.holders[1]
        send = Store.send

        def refuse(store: Store, request: Any) -> Any:
            if store.name == lost.name and self.is_away:
                raise IndexUnavailable("no answer") from redis.ConnectionError("refused")
            return send(store, request)

        self.is_away = True
        monkeypatch.setattr(Store, "send", refuse)
        # As in a cluster: each on a node of its own.
        monkeypatch.setattr(Store, "node", lambda store: store.name)
        return lost

    def test_its_marks_wait(self, players: RankIndex, lost: RankIndex) -> None:
        with disable_sync():
            Player.objects.update(level=50)
        own = len(members_of(lost))
        assert drain(players) == 40 - own
        assert waiting_marks(players).count() == own
        assert set(contents(players.holders[0]).values()) == {50}
        self.is_away = False
        breaker.forget()
        assert drain(players) == own
        assert_mirrors(PlayerAscending)

    def test_of_marks_of_several_members_only_its_members_wait(
        self, players: RankIndex, lost: RankIndex
    ) -> None:
        Player.objects.update(level=F("level") + 100)
        Mark.objects.all().delete()
        texts = [[str(pk) for pk in range(first, first + 8)] for first in range(1, 41, 8)]
        Mark.objects.bulk_create(
            Mark(index=players.name, via=SEVERAL, member=json.dumps(own)) for own in texts
        )
        drain(players)
        drain(players)
        for part in players.holders:
            if part is not lost:
                assert contents(part) == {str(pk): pk + 100 for pk in members_of(part)}
        left = {(mark.via, mark.member) for mark in waiting_marks(players)}
        assert left == {(None, str(pk)) for pk in members_of(lost)}
        self.is_away = False
        breaker.forget()
        drain(players)
        assert_mirrors(PlayerAscending)

    def test_a_push_reaches_the_others(
        self, players: RankIndex, lost: RankIndex, hear: Callable[..., list[Any]]
    ) -> None:
        failed = hear(push_failed, "members")
        with disable_sync():
            Player.objects.update(level=50)
        assert try_push({players: set(range(1, 41))})
        assert failed == [set(members_of(lost))]
        assert try_push({players: set(range(1, 41))})
        assert len(failed) == 1  # its breaker is open
        assert not try_push({players: set(members_of(lost))})

    def test_a_push_raises_only_if_it_reaches_none(self, players: RankIndex, lost: RankIndex) -> None:
        with disable_sync():
            Player.objects.update(level=50)
        assert lost not in push(players, range(1, 41)).written
        assert set(contents(players.holders[0]).values()) == {50}
        with pytest.raises(IndexUnavailable):
            push(players, members_of(lost))

    def test_many_of_its_marks_block_no_others(
        self, players: RankIndex, lost: RankIndex, pushes: list[Any]
    ) -> None:
        Mark.objects.bulk_create(Mark(index=players.name, member=str(pk)) for pk in members_of(lost) * 100)
        with disable_sync():
            Player.objects.filter(pk__in=members_of(players.holders[0])).update(level=50)
        assert drain(players, limit=1000, batch_size=100) == len(members_of(players.holders[0]))
        assert {name for name, _ in pushes} == {players.holders[0].name}

    def test_a_mark_of_all_members_rebuilds_it_when_it_returns(
        self, players: RankIndex, lost: RankIndex, rebuilds: list[RankIndex]
    ) -> None:
        Player.objects.filter(pk__gt=20)._raw_delete("default")
        Mark.objects.all().delete()
        Mark.objects.create(index=players.name)
        assert drain(players) == 1
        assert sum(len(contents(part)) for part in players.holders if part is not lost) == sum(
            players.holder_of(str(pk)) is not lost for pk in range(1, 21)
        )
        assert drain(players) == 0
        assert len(rebuilds) == 1  # the others are not built again
        self.is_away = False
        breaker.forget()
        assert examine_holder(lost) is Status.UNKNOWN_BUILD
        sync(players)
        assert len(rebuilds) == 2
        assert_mirrors(PlayerAscending)
        assert examine(players) is Status.HEALTHY

    def test_a_build_of_it_that_began_before_such_a_mark_is_not_believed(
        self, players: RankIndex, lost: RankIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By a process that can still reach it, and whose query is older."""

        def mark_all() -> None:
            with disable_sync():
                Player.objects.update(level=50)
            Mark.objects.all().delete()
            Mark.objects.create(index=players.name)
            self.is_away = True
            assert drain(players) == 1
            self.is_away = False
            breaker.forget()

        self.is_away = False
        just_before(monkeypatch, Store, "swap_rebuilt", mark_all)
        rebuild(players, holders=[lost])
        assert set(contents(lost).values()) != {50}
        assert examine_holder(lost) is Status.UNKNOWN_BUILD
        sync(players)
        assert_mirrors(PlayerAscending)

    def test_a_save_looks_at_few_of_its_marks(
        self, players: RankIndex, lost: RankIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The next one goes on where it ended."""
        monkeypatch.setattr(drain_module, "_SHARE", 10)
        monkeypatch.setattr(drain_module, "_done", Recent())
        Mark.objects.bulk_create(Mark(index=players.name, member=str(pk)) for pk in members_of(lost) * 3)
        with disable_sync():
            Player.objects.filter(pk__in=members_of(players.holders[0])).update(level=50)
        looked: list[int] = []
        next_marks = drain_module.next_marks

        def look(*args: Any, **kwargs: Any) -> Any:
            found = next_marks(*args, **kwargs)
            looked.append(len(found))
            return found

        monkeypatch.setattr(drain_module, "next_marks", look)
        total, own = waiting_marks(players).count(), len(members_of(lost)) * 3

        def save_often() -> None:
            for _ in range(total // 10 + 3):
                drain_module._done.forget(("drain", players.name))
                drain_soon(players)

        save_often()
        assert (waiting_marks(players).count(), sum(looked)) == (own, total)
        assert set(contents(players.holders[0]).values()) == {50}
        self.is_away = False
        breaker.forget()
        save_often()
        assert not waiting_marks(players).exists()
        assert_mirrors(PlayerAscending)

    def test_a_save_starts_over_with_the_first_mark_every_minute(
        self, players: RankIndex, lost: RankIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A mark that is committed late may have a lower id than those that were looked at."""
        ahead = 0.0
        monkeypatch.setattr("django_zrank.recent.monotonic", lambda: monotonic() + ahead)
        monkeypatch.setattr(drain_module, "_done", Recent())
        member = str(members_of(players.holders[0])[0])
        late = Mark.objects.create(index=players.name, member=member)
        Mark.objects.filter(pk=late.pk).delete()
        Mark.objects.bulk_create(Mark(index=players.name, member=str(pk)) for pk in members_of(lost))

        def save() -> None:
            nonlocal ahead
            ahead += 10
            drain_module._done.forget(("drain", players.name))
            drain_soon(players)

        save()
        late.save(force_insert=True)
        for _ in range(7):
            save()
        assert waiting_marks(players).count() == len(members_of(lost))

    def test_it_is_repaired_when_it_returns(
        self, players: RankIndex, lost: RankIndex, rebuilds: list[RankIndex]
    ) -> None:
        with disable_sync():
            Player.objects.update(level=50)
        sync(players)
        gauges = read_gauges(players)
        assert (gauges.status, gauges.members, gauges.unwell) == (None, None, (lost.name,))
        self.is_away = False
        breaker.forget()
        sync(players)
        assert_mirrors(PlayerAscending)
        assert read_gauges(players).unwell == ()
        assert not rebuilds

    def test_a_rebuild_builds_the_others(self, players: RankIndex, lost: RankIndex) -> None:
        with disable_sync():
            Player.objects.update(level=50)
        with pytest.raises(IndexUnavailable):
            rebuild(players)
        assert waiting_marks(players).count() == 40
        assert set(contents(players.holders[0]).values()) == {50}
        self.is_away = False
        breaker.forget()
        sync(players)
        assert_mirrors(PlayerAscending)


@pytest.mark.skipif(connection.vendor == "postgresql", reason="its collations tell them apart")
class TestSpelledOtherwise:
    """The database finds the row "bob" by "BOB", and Redis keeps it in another shard than it would keep that."""

    @pytest.fixture
    def index(self, declare: Callable[..., type[RankIndex]]) -> Iterator[RankIndex]:
        class Loose(models.Model):
            collation = {"sqlite": "NOCASE", "mysql": "utf8mb4_general_ci"}[connection.vendor]
            key = models.CharField(max_length=9, primary_key=True, db_collation=collation)
            score = models.IntegerField()

            class Meta:
                app_label = "testapp"

        with table(Loose):
            index = declare(Loose, "-score", shards=7).instance()
            Loose.objects.bulk_create(Loose(key=key, score=1) for key in ("bob", "eve"))
            rebuild(index)
            with disable_sync():
                Loose.objects.filter(key="bob").update(score=50)
            Mark.objects.all().delete()
            Mark.objects.create(index=index.name, member="BOB")
            yield index

    def test_both_shards_are_written_and_have_a_batch(self, index: RankIndex) -> None:
        parts = {index.holder_of("bob"), index.holder_of("BOB")}
        assert len(parts) == 2
        assert drain(index) == 1
        assert contents(index.holder_of("bob")) == {"bob": 50}
        assert {batch.index for batch in Batch.objects.all()} == {part.name for part in parts}

    def test_a_mark_waits_for_the_shard_that_is_away(self, index: RankIndex) -> None:
        Mark.objects.create(index=index.name, member="eve")
        lose(index.holder_of("bob"))
        assert drain(index) == 1
        assert waiting_marks(index).get().member == "BOB"
        sync(index)
        assert contents(index.holder_of("bob")) == {"bob": 50}
        assert not waiting_marks(index).exists()


def test_marks_of_a_shard_that_goes_away_between_two_batches_wait(
    players: RankIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    with disable_sync():
        Player.objects.update(level=50)
    away, writes = players.holders[1], []
    apply = Store.applying_changes

    def refuse_the_second(store: Store, *args: Any, **how: Any) -> Any:
        writes.append(store.name)
        if store.name == away.name and writes.count(away.name) > 1:
            raise IndexUnavailable("no answer")
        return apply(store, *args, **how)

    with monkeypatch.context() as patch:
        patch.setattr("django_zrank.sync.push._BATCH", 10)
        patch.setattr(Store, "applying_changes", refuse_the_second)
        assert drain(players) == 40 - len(members_of(away))
    assert waiting_marks(players).count() == len(members_of(away))
    breaker.forget()
    drain(players)
    assert_mirrors(PlayerAscending)


def test_no_server_is_looked_for_where_a_shard_is_suspended(
    players: RankIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look for one, where no node serves its slot, would take a save as long as to wait for an answer."""
    looked: list[str] = []

    def node(store: Store) -> str:
        looked.append(store.name)
        raise IndexUnavailable("no node serves it")

    monkeypatch.setattr(Store, "node", node)
    InStep(players.holders).suspend(players.holders[1], IndexUnavailable("no answer"))
    try:
        assert not try_push({players: set(members_of(players.holders[1]))})
        assert not looked
    finally:
        breaker.forget()


def test_a_lost_shard_is_built_alone(players: RankIndex, rebuilds: list[RankIndex]) -> None:
    before = {part: recorded(part).build for part in players.holders}
    lost = players.holders[-1]
    lose(lost)
    with disable_sync():
        Player.objects.update(level=50)
    assert examine(players) is Status.EMPTY
    assert repair(players) is Status.EMPTY
    assert rebuilds == [players]
    assert {part for part in players.holders if recorded(part).build != before[part]} == {lost}
    assert waiting_marks(players).count() == 40  # those of the others are still due
    drain(players)
    assert_mirrors(PlayerAscending)


def test_a_shard_whose_server_lost_writes_is_replayed_alone(players: RankIndex) -> None:
    with disable_sync():
        Player.objects.update(level=50)
    drain(players)
    behind = players.holders[1]
    store = Store(behind.name)
    for member in map(str, members_of(behind)):  # as before the last write
        store.client.zadd(store.live.root, {member: int(member)})
    store.client.hdel(store.keys.meta, "traces")
    restart(behind)
    assert repair(players) is Status.RESTARTED
    assert sorted(int(mark.member) for mark in waiting_marks(players)) == members_of(behind)
    assert [part for part in players.holders if examine_holder(part) is Status.BEHIND] == [behind]
    drain(players, limit=1)
    assert examine_holder(behind) is Status.BEHIND  # others of its marks wait
    sync(players)
    assert_mirrors(PlayerAscending)
    assert examine(players) is Status.HEALTHY


def test_a_replay_ends_though_marks_of_another_shard_wait(
    players: RankIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its marks lie between those of the shard that is replayed."""
    with disable_sync():
        Player.objects.update(level=50)
    drain(players)
    behind, away = players.holders[:2]
    restart(behind)
    store = Store(behind.name)
    store.client.hdel(store.keys.meta, "traces")
    assert repair(players) is Status.RESTARTED
    row = Build.objects.get(index=behind.name)
    Mark.objects.create(index=players.name, member=str(members_of(away)[0]))
    Build.objects.filter(index=behind.name).update(replayed_to=row.replayed_to + 1)
    lose(away)
    drain(players)
    assert waiting_marks(players).count() == 1
    assert examine_holder(behind) is Status.HEALTHY


def test_killed_between_swaps(players: RankIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    with disable_sync():
        Player.objects.update(level=50)
    swaps: list[str] = []
    swap = Store.swap_rebuilt

    def killed(store: Store, *args: Any) -> Any:
        swaps.append(store.name)
        if len(swaps) == 2:
            raise KeyboardInterrupt
        return swap(store, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "swap_rebuilt", killed)
        with pytest.raises(KeyboardInterrupt):
            rebuild(players)
    assert waiting_marks(players).count() == 40  # not all are built
    assert examine(players) is Status.HEALTHY
    assert len({recorded(part).build for part in players.holders}) == 2
    sync(players)
    assert_mirrors(PlayerAscending)


def test_another_number_of_shards(players: RankIndex, zrank: Redis) -> None:
    before = [part.name for part in players.holders]
    for shards in (2, 1, 4):
        split(PlayerAscending, shards)
        assert examine(players) is Status.EMPTY
        install("default", [players])  # as migrate does
        sync(players)
        assert_mirrors(PlayerAscending)
        names = [part.name for part in players.holders]
        rows = Build.objects.filter(index__startswith=players.name)
        assert sorted(row.index for row in rows) == sorted(names)
        assert not Batch.objects.filter(index__in=before).exists()
        assert not any(zrank.keys(f"*{{{name}}}*") for name in before)
        before = names
    assert players.name not in find_leftovers()
    with pytest.raises(ValueError, match="is registered"):
        prune(names[0])


def test_a_rebuild_with_another_number_of_shards_removes_the_former_ones(
    players: RankIndex, zrank: Redis
) -> None:
    before = [part.name for part in players.holders]
    split(PlayerAscending, 2)
    rebuild(players)
    assert_mirrors(PlayerAscending)
    assert not any(zrank.keys(f"*{{{name}}}*") for name in before)
    assert not Build.objects.filter(index__in=before).exists()


@pytest.mark.parametrize(("before", "after"), [(3, 2), (1, 3), (3, 1)])
def test_a_release_with_another_number_works_off_no_mark(
    divide: Callable[..., RankIndex], monkeypatch: pytest.MonkeyPatch, before: int, after: int
) -> None:
    """A process of it goes on while the new shards are built, whose rows were read before."""
    index = divide(PlayerAscending, before)
    Player.objects.bulk_create(Player(pk=pk, level=pk) for pk in range(1, 21))
    rebuild(index)
    older = PlayerAscending()
    assert len(older.holders) == before
    split(PlayerAscending, after)

    def drain_older() -> None:
        with disable_sync():
            Player.objects.update(level=50)
        assert drain(older) == 0
        assert set(contents(older.holders[0]).values()) == {50}  # what it reads stays fresh
        assert examine(older) is Status.OTHER_DECLARATION

    just_before(monkeypatch, Store, "swap_rebuilt", drain_older)
    rebuild(index)
    drain(index)
    assert_mirrors(PlayerAscending)


def test_former_shards_go_though_the_new_ones_were_built_one_by_one(players: RankIndex) -> None:
    split(PlayerAscending, 2)
    for part in players.holders:
        rebuild(players, holders=[part])
    Build.objects.create(index=f"{players.name}/4:0.0")  # of a release that begins to build
    sync(players)
    rows = Build.objects.filter(index__startswith=players.name)
    names = [part.name for part in players.holders]
    assert sorted(row.index for row in rows) == sorted([*names, f"{players.name}/4:0.0"])


def test_a_shard_that_can_not_be_built_stops_no_others(players: RankIndex) -> None:
    foreign = players.holders[1]
    Build.objects.filter(index=foreign.name).update(owner="another", build="another")
    with disable_sync():
        Player.objects.update(level=50)
    with pytest.raises(IndexUnavailable, match="another database"):
        sync(players)
    assert waiting_marks(players).count() == len(members_of(foreign))


class TestLinks:
    """Marks that lead to members by a column."""

    @pytest.fixture
    def accounts(self, divide: Callable[..., RankIndex]) -> RankIndex:
        index = divide(AccountRank, 3)
        Club.objects.bulk_create(Club(pk=pk) for pk in (1, 2))
        Account.objects.bulk_create(Account(pk=pk, club_id=1 + pk % 2) for pk in range(1, 31))
        Profile.objects.bulk_create(Profile(account_id=pk, points=pk) for pk in range(1, 31))
        rebuild(index)
        return index

    def test_a_batch_for_each_shard(self, accounts: RankIndex) -> None:
        with disable_sync():
            Club.objects.filter(pk=1).update(is_open=False)
        assert drain(accounts) == 1 + 15
        assert_mirrors(AccountRank)
        for part in accounts.holders:
            own = [[None, str(pk)] for pk in range(2, 31, 2) if accounts.holder_of(str(pk)) is part]
            assert sorted(Batch.objects.get(index=part.name).marks) == sorted(own)

    def test_members_in_a_shard_that_is_away_wait_by_themselves(self, accounts: RankIndex) -> None:
        with disable_sync():
            Club.objects.filter(pk=1).update(is_open=False)
        away = accounts.holders[2]
        lose(away)
        drain(accounts)
        own = {str(pk) for pk in range(1, 31) if accounts.holder_of(str(pk)) is away and pk % 2 == 0}
        assert {(mark.via, mark.member) for mark in waiting_marks(accounts)} == {
            (None, member) for member in own
        }
        sync(accounts)
        assert_mirrors(AccountRank)
        assert not waiting_marks(accounts).exists()

    def test_marks_wait_whose_shard_has_another_term_by_now(
        self, accounts: RankIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with disable_sync():
            Club.objects.filter(pk=1).update(is_open=False)
        overtaken = Build.objects.filter(index=accounts.holders[1].name)
        just_before(monkeypatch, routing, "_unmark", lambda: overtaken.update(term=models.F("term") + 1))
        drain(accounts)
        waiting = set(waiting_marks(accounts).values_list("member", flat=True))
        assert waiting == {
            str(pk) for pk in range(2, 31, 2) if accounts.holder_of(str(pk)) is accounts.holders[1]
        }
        assert not Batch.objects.filter(index=accounts.holders[1].name).exists()
        sync(accounts)
        assert_mirrors(AccountRank)

    def test_a_replay_is_not_over_where_its_shard_goes_away_again(
        self, accounts: RankIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with disable_sync():
            Club.objects.filter(pk=1).update(is_open=False)
        drain(accounts)
        away = accounts.holders[2]
        restart(away)
        store = Store(away.name)
        store.client.hdel(store.keys.meta, "traces")
        assert repair(accounts) is Status.RESTARTED
        begin = Store.beginning_write

        def refuse(store: Store) -> Any:
            if store.name == away.name:
                raise IndexUnavailable("no answer")
            return begin(store)

        with monkeypatch.context() as patch:
            patch.setattr(Store, "beginning_write", refuse)
            assert drain(accounts) == 0
        waiting = waiting_marks(accounts).values_list("member", flat=True)
        assert {accounts.holder_of(member) for member in waiting} == {away}
        assert examine_holder(away) is Status.BEHIND
        breaker.forget()
        drain(accounts)
        assert examine(accounts) is Status.HEALTHY
        assert_mirrors(AccountRank)


class TestVerification:
    """Of all parts by one pass over the rows."""

    @pytest.fixture
    def index(self, divide: Callable[..., RankIndex]) -> RankIndex:
        index = divide(CompetitorRank, 7)
        Guild.objects.create(pk=1, slug="g")
        Competitor.objects.bulk_create(
            Competitor(pk=pk, points=pk % 5, region=f"r{pk % 3}", platform="p", guild_id=1)
            for pk in range(1, 61)
        )
        rebuild(index)
        return index

    def test_finds_and_repairs_a_member_in_a_wrong_shard(self, index: RankIndex) -> None:
        report = verify(index)
        assert (report.ok, report.rows, report.members) == (True, 60, 60)
        right = index.holder_of("7")
        wrong = next(part for part in index.holders if part is not right)
        store = Store(wrong.name, wrong.layout)
        change = ("7", 3, Store(right.name).client.hget(Store(right.name).live.memberships, "7"))
        assert apply_changes(store, begin_write(store), [change])
        report = verify(index)
        assert (report.extra.count, report.drift) == (1, 1)
        assert wrong.name in report.extra.examples[0].why
        assert verify(index, repair=True).ok
        assert verify(index).drift == 0
        assert_mirrors(CompetitorRank)

    def test_finds_and_repairs_what_is_missing_or_different(self, index: RankIndex) -> None:
        for pk, score in (("7", None), ("8", 3), ("999", 2), ("odd", 1)):
            store = Store(index.holder_of(pk).name, index.layout)
            assert apply_changes(store, begin_write(store), [(pk, score, b"\0" * 9 if score else b"")])
        report = verify(index)
        assert (report.missing.count, report.different.count, report.extra.count) == (1, 1, 2)
        assert verify(index, repair=True).ok
        assert_mirrors(CompetitorRank)


def test_commands(
    players: RankIndex, capsys: pytest.CaptureFixture[str], hear: Callable[..., list[Any]]
) -> None:
    heard = hear(rebuilt, "sender", "members")
    call_command("rebuild_zrank", players.name)
    assert heard == [(players, 40)]
    lose(players.holders[2])
    call_command("zrank_status", players.name)
    assert players.holders[2].name in capsys.readouterr().out
    call_command("sync_zrank", players.name)
    call_command("verify_zrank", players.name)
    assert "40 members, matching the database" in capsys.readouterr().out


def test_reset_builds_every_shard(divide: Callable[..., RankIndex]) -> None:
    index = divide(PlayerAscending, 3)
    reset()
    assert [contents(part) for part in index.holders] == [{}, {}, {}]
    assert examine(index) is Status.HEALTHY


OPERATIONS = st.sampled_from(
    [
        "save",
        "update",
        "delete",
        "create",
        "lost push",
        "drain",
        "rebuild",
        "lose",
        "restart",
        "repair",
        "part",
    ]
)


@pytest.mark.slow
@hypothesis_settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shards=st.sampled_from([2, 3, 7]), operations=st.lists(OPERATIONS, max_size=25), seed=st.integers())
def test_whatever_happens(
    zrank: Redis, divide: Callable[..., RankIndex], shards: int, operations: list[str], seed: int
) -> None:
    chance = random.Random(seed)
    Player.objects.all().delete()
    Mark.objects.all().delete()
    index = divide(PlayerAscending, shards)
    install("default", [index])
    zrank.flushdb()
    reset()
    Player.objects.bulk_create(Player(pk=pk, level=pk) for pk in range(1, 21))

    def some() -> Any:
        return Player.objects.filter(pk__in=[chance.randrange(1, 25) for _ in range(chance.randrange(1, 9))])

    def save() -> None:
        for player in some():
            player.level = chance.randrange(100)
            player.save()

    def create() -> None:
        Player.objects.update_or_create(pk=chance.randrange(1, 30), defaults={"level": chance.randrange(100)})

    def lost_push() -> None:
        with disable_sync():
            save()

    def part() -> None:
        rebuild(index, holders=[chance.choice(index.holders)])

    does: dict[str, Callable[[], Any]] = {
        "save": save,
        "update": lambda: some().update(level=chance.randrange(100)),
        "delete": lambda: some().delete(),
        "create": create,
        "lost push": lost_push,
        "drain": lambda: drain(index, limit=chance.randrange(1, 20)),
        "rebuild": lambda: rebuild(index),
        "lose": lambda: lose(chance.choice(index.holders)),
        "restart": lambda: restart(chance.choice(index.holders)),
        "repair": lambda: repair(index),
        "part": part,
    }
    for operation in operations:
        with suppress(IndexUnavailable):  # where each part was lost
            does[operation]()
    while sync(index).marks:
        pass
    assert examine(index) is Status.HEALTHY
    assert_mirrors(PlayerAscending)


def build_on(cluster: Cluster, settings: Any, divide: Callable[..., RankIndex]) -> RankIndex:
    """Forty players, of an index in six shards on a cluster."""
    for name, value in settings_for(cluster).items():
        setattr(settings, name, value)
    get_redis_connection("zrank").flushdb()
    index = divide(PlayerAscending, 6)
    reset()
    Player.objects.bulk_create(Player(pk=pk, level=pk) for pk in range(1, 41))
    rebuild(index)
    return index


@pytest.mark.slow
@pytest.mark.part("cluster")
class TestCluster:
    """Three nodes, with shards on each."""

    @pytest.fixture
    def index(self, three: Cluster, settings: Any, divide: Callable[..., RankIndex]) -> RankIndex:
        return build_on(three, settings, divide)

    @pytest.fixture
    def three(self, redis_binary: str) -> Iterator[Cluster]:
        with Cluster(redis_binary) as cluster:
            yield cluster

    def test_shards_lie_on_all_nodes(self, index: RankIndex) -> None:
        nodes = [Store(part.name).node() for part in index.holders]
        assert {nodes.count(node) for node in nodes} == {2}
        assert_mirrors(PlayerAscending)
        assert verify(index).ok

    def test_a_node_that_dies_takes_its_shards_alone(self, index: RankIndex, three: Cluster) -> None:
        """It comes back empty: they are built anew, the others are not."""
        dead = three.owner(key_slot(Store(index.holders[0].name).keys.meta.encode()))
        lost = [
            part
            for part in index.holders
            if three.owner(key_slot(Store(part.name).keys.meta.encode())) is dead
        ]
        before = {part: recorded(part).build for part in index.holders}
        nodes = dead.nodes()
        dead.kill()
        with disable_sync():
            Player.objects.update(level=50)
        own = [pk for part in lost for pk in members_of(part)]
        sync(index)
        assert waiting_marks(index).count() == len(own)
        assert {part.name for part in lost} == set(read_gauges(index).unwell)
        Player.objects.get(pk=members_of(index.holders[-1])[0]).save()
        dead.start(nodes=nodes)
        three.settle()
        breaker.forget()
        sync(index)
        assert {part for part in index.holders if recorded(part).build != before[part]} == set(lost)
        assert_mirrors(PlayerAscending)
        assert examine(index) is Status.HEALTHY

    def test_a_slot_moves(self, index: RankIndex, three: Cluster) -> None:
        moved = index.holders[3]
        with three.moving(key_slot(Store(moved.name).keys.meta.encode())) as (source, target):
            keys = source.ask("KEYS", f"{Store(moved.name).keys.tag}:*")
            three.migrate(source, target, *keys[: len(keys) // 2])
            with disable_sync():
                Player.objects.update(level=50)
            sync(index)
            assert waiting_marks(index).count() == len(members_of(moved))
        breaker.forget()
        sync(index)
        assert_mirrors(PlayerAscending)
        assert examine(index) is Status.HEALTHY


@pytest.mark.slow
@pytest.mark.parametrize("is_broken", [False, True], ids=["", "without the fence"])
def test_a_primary_that_is_replaced_takes_no_mark_away(
    redis_binary: str,
    settings: Any,
    divide: Callable[..., RankIndex],
    monkeypatch: pytest.MonkeyPatch,
    is_broken: bool,
) -> None:
    """It takes a write that its replica doesn't hear of, and stalls. Its successor is trusted before the drain
    that has written to it unmarks."""
    with Cluster(redis_binary, 3, 1) as cluster:
        index = build_on(cluster, settings, divide)
        if is_broken:
            monkeypatch.setattr(routing, "lock", locked_anyway)
        part = index.holders[0]
        slot = key_slot(Store(part.name).keys.meta.encode())
        primary = cluster.owner(slot)
        (_, port, _), *_ = primary.ask("ROLE")[2]
        replica = next(node for node in cluster.nodes if node.port == int(port))

        unmark = routing._unmark

        def unmark_late(*args: Any, **kwargs: Any) -> Any:
            monkeypatch.setattr(routing, "_unmark", unmark)
            primary.freeze()
            replica.thaw()
            replica.ask("CLUSTER", "FAILOVER", "TAKEOVER")
            wait_for(lambda: replica.ask("ROLE")[0] == "master", 10)
            primary.thaw()
            cluster.settle()
            breaker.forget()
            assert repair(index) is Status.RESTARTED
            return unmark(*args, **kwargs)

        replica.freeze()
        primary.ask("CLIENT", "KILL", "TYPE", "replica")
        with disable_sync():
            Player.objects.update(level=50)
        monkeypatch.setattr(routing, "_unmark", unmark_late)
        drain(index)
        while sync(index).marks:
            pass
        assert examine(index) is Status.HEALTHY
        assert (set(contents(part).values()) == {50}) is not is_broken


class TestMarksOfSeveralMembers:
    """The members of one mark are in several shards."""

    @pytest.fixture
    def marked(self, players: RankIndex) -> RankIndex:
        """Each player is in one of five marks, and has changed."""
        Player.objects.update(level=F("level") + 100)
        Mark.objects.all().delete()
        for first in range(1, 41, 8):
            texts = json.dumps([str(pk) for pk in range(first, first + 8)])
            Mark.objects.create(index=players.name, via=SEVERAL, member=texts)
        return players

    def test_all_shards_are_written_and_have_a_batch(self, marked: RankIndex) -> None:
        assert drain(marked) == 40
        for part in marked.holders:
            assert contents(part) == {str(pk): pk + 100 for pk in members_of(part)}
            assert Batch.objects.filter(index=part.name).count() == 1
        assert not Mark.objects.filter(index=marked.name).exists()

    def test_they_wait_while_one_of_their_shards_has_another_term(self, marked: RankIndex) -> None:
        changed = marked.holders[1]
        locked = routing.lock

        def lock(part: Any, *arguments: Any) -> Any:
            return None if part is changed else locked(part, *arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(routing, "lock", lock)
            drain(marked)
        assert Mark.objects.filter(index=marked.name).count() == 5
        assert drain(marked) == 40
