"""A server that lost writes is noticed, not believed, and repaired: replayed where possible, rebuilt where not."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import models
from redis import Redis

from django_zrank import IndexUnavailable, RankIndex, builds
from django_zrank.capture.triggers import install
from django_zrank.exceptions import IndexUnhealthy, NotBuilt, RebuildSuperseded
from django_zrank.models import Batch, Build
from django_zrank.store import Store
from django_zrank.sync.drain import drain
from django_zrank.sync.health import Status, examine, repair
from django_zrank.sync.push import push
from django_zrank.sync.rebuild import rebuild
from tests.builds import shadow, start
from tests.sync.conftest import use_redis
from tests.sync.interruptions import just_after
from tests.sync.mirror import assert_mirrors, contents, keys
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("ten_players")]

INDEX = PlayerAscending.instance()


def change(level: int) -> None:
    """A change that only a mark tells of."""
    first = Player.objects.order_by("pk").values_list("pk", flat=True)[0]
    assert Player.objects.filter(pk=first).update(level=level) == 1


def test_at_rest(rebuilds: list[RankIndex]) -> None:
    assert examine(INDEX) is repair(INDEX) is Status.HEALTHY
    assert rebuilds == []


def test_a_rebuild_after_the_note_was_read_is_not_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = builds.recorded

    def read_then_rebuild(part: RankIndex) -> Build:
        row = recorded(part)
        monkeypatch.setattr(builds, "recorded", recorded)
        rebuild(INDEX)
        return row

    monkeypatch.setattr(builds, "recorded", read_then_rebuild)
    assert examine(INDEX) is Status.HEALTHY


def test_what_is_processed_while_it_is_looked_at_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has answered; then another process drains, and leaves a batch beyond what it said."""
    change(50)
    just_after(monkeypatch, Store, "check_health", lambda: drain(INDEX))
    assert examine(INDEX) is Status.HEALTHY


def test_a_lost_suffix_is_replayed_without_a_rebuild(zrank: Redis, rebuilds: list[RankIndex]) -> None:
    """The dump was taken, then writes came, then the server restarted from the dump."""
    change(50)
    drain(INDEX)
    store = INDEX.ranking.store
    dump = {key: zrank.dump(key) for key in zrank.keys(f"{store.keys.tag}:*")}
    change(60)
    drain(INDEX)
    change(70)
    drain(INDEX)
    zrank.delete(*dump)
    for key, value in dump.items():
        zrank.restore(key, 0, value)
    zrank.hset(store.keys.meta, "server", "the server before")

    assert examine(INDEX) is Status.RESTARTED
    assert max(contents(PlayerAscending).values()) == 50
    assert repair(INDEX) is Status.RESTARTED
    assert examine(INDEX) is Status.BEHIND
    assert drain(INDEX) == 2
    assert examine(INDEX) is Status.HEALTHY
    assert rebuilds == []
    assert_mirrors(PlayerAscending)


@pytest.mark.parametrize("status", [Status.WRITES_LOST, Status.EMPTY, Status.UNKNOWN_BUILD])
def test_what_can_not_be_replayed_is_rebuilt(zrank: Redis, rebuilds: list[RankIndex], status: Status) -> None:
    """A loss older than what is kept, an emptied server, and a build of another one."""
    row = Build.objects.filter(index="ascending")
    if status is Status.WRITES_LOST:
        zrank.hset(INDEX.ranking.store.keys.meta, "server", "the server before")
        row.update(purged_term=2**53 + 1)
    elif status is Status.EMPTY:
        zrank.flushall()
    else:
        row.update(build="of another server")
    assert repair(INDEX) is status
    assert rebuilds == [INDEX]
    assert examine(INDEX) is Status.HEALTHY
    assert_mirrors(PlayerAscending)


def test_a_rebuild_killed_after_its_swap_is_noted(rebuilds: list[RankIndex]) -> None:
    build = INDEX.ranking.store.check_health().build
    Build.objects.filter(index="ascending").update(build="the one before", building=build)
    assert repair(INDEX) is Status.BUILD_NOT_RECORDED
    assert examine(INDEX) is Status.HEALTHY
    assert rebuilds == []


def test_a_running_rebuild_is_left_alone(zrank: Redis) -> None:
    zrank.flushall()
    start(INDEX.ranking.store, "running", owner=Build.objects.get(index="ascending").owner)
    assert repair(INDEX) is Status.BUILDING
    zrank.hset(INDEX.ranking.store.keys.meta, "build", "foreign")
    with pytest.raises(RebuildSuperseded):
        repair(INDEX)


def test_a_first_build_that_was_killed_is_done_again(zrank: Redis, rebuilds: list[RankIndex]) -> None:
    """Though no mark waits that would tell of it, and nobody saves."""
    zrank.flushall()
    store = INDEX.ranking.store
    start(store, "killed")
    zrank.hincrby(store.keys.meta, "heartbeat", -601 * 10**6)
    assert repair(INDEX) is Status.EMPTY
    assert rebuilds == [INDEX]
    assert examine(INDEX) is Status.HEALTHY


def test_a_rebuild_of_a_server_that_lost_writes_that_dies_leaves_it_unbelieved(zrank: Redis) -> None:
    zrank.hset(INDEX.ranking.store.keys.meta, "server", "the server before")
    start(INDEX.ranking.store, "dies")
    INDEX.ranking.store.abandon_rebuild("dies")
    assert examine(INDEX) is Status.WRITES_LOST
    repair(INDEX)
    assert examine(INDEX) is Status.HEALTHY


def test_a_rebuild_that_is_needed_is_not_forgotten_at_the_next_restart(zrank: Redis) -> None:
    """Later writes have raised the place that was reached beyond what was lost: a replay would miss it."""
    meta = INDEX.ranking.store.keys.meta
    zrank.hset(meta, "server", "the server before")
    start(INDEX.ranking.store, "dies")
    INDEX.ranking.store.abandon_rebuild("dies")
    change(50)
    drain(INDEX)
    zrank.hset(meta, "server", "the server between")
    assert examine(INDEX) is Status.WRITES_LOST


def test_a_rebuild_that_ends_while_a_reader_looks_turns_nobody_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has answered; then another process puts a build in place and notes it."""
    INDEX.ranking._reader.trust.until = 0.0
    just_after(monkeypatch, Store, "check_health", lambda: rebuild(INDEX))
    assert len(INDEX.ranking.top(10)) == 10


class TestReads:
    @pytest.fixture(autouse=True)
    def distrust(self, zrank: Redis, ten_players: None) -> None:
        """The server restarted, and this process has not looked for a second."""
        zrank.hset(INDEX.ranking.store.keys.meta, "server", "the server before")
        INDEX.ranking._reader.trust.until = 0.0

    def test_raise(self) -> None:
        with pytest.raises(IndexUnhealthy):
            INDEX.ranking.count()

    def test_serve_stale(self, settings: Any) -> None:
        settings.ZRANK = {"UNHEALTHY": "serve_stale"}
        assert INDEX.ranking.count() == 10

    def test_are_believed_again_only_when_the_replay_is_done(self) -> None:
        term = Build.objects.get(index="ascending").term
        Batch.objects.create(index="ascending", term=term, version=10**9, marks=[[None, "1"]])
        repair(INDEX)
        with pytest.raises(IndexUnhealthy):
            INDEX.ranking.count()
        drain(INDEX)
        assert INDEX.ranking.count() == 10


@pytest.mark.parametrize("loss", ["restart from a dump", "restart empty"])
def test_a_real_server_that_is_killed(
    settings: Any, tmp_path: Any, loss: str, rebuilds: list[RankIndex]
) -> None:
    from django_zrank.testing import EmbeddedServer

    server = EmbeddedServer(data_dir=tmp_path)
    server.start()
    port = int(server.url.rpartition(":")[2].partition("/")[0])
    use_redis(settings, server.url)
    client = INDEX.ranking.store.client
    rebuild(INDEX)
    change(50)
    drain(INDEX)
    if loss == "restart from a dump":
        client.save()
    change(60)
    drain(INDEX)
    server.kill()
    with pytest.raises(IndexUnavailable):
        examine(INDEX)
    with EmbeddedServer(port=port, data_dir=tmp_path):
        rebuilds.clear()
        repair(INDEX)
        drain(INDEX)
        assert examine(INDEX) is Status.HEALTHY
        assert_mirrors(PlayerAscending)
        assert rebuilds == ([] if loss == "restart from a dump" else [INDEX])
        assert keys(PlayerAscending) <= {"live", "meta", "recent"}


class Redeclared(PlayerAscending):
    """The declaration of the same index in the next release."""

    order = ("level", "-is_active")


def test_a_changed_declaration_is_rebuilt_once_its_release_has_migrated(
    zrank: Redis, rebuilds: list[RankIndex]
) -> None:
    first, after = Player.objects.order_by("pk")[0], Redeclared.instance()
    assert examine(after) is Status.OTHER_DECLARATION
    with pytest.raises(NotBuilt, match="built from another declaration"):
        Redeclared.ranking.top(3)
    with pytest.raises(NotBuilt, match="another declaration"):
        push(after, [first.pk])
    with pytest.raises(NotBuilt, match="run migrate"):
        repair(after)
    install("default", [after])
    assert repair(after) is Status.OTHER_DECLARATION
    assert rebuilds == [after]
    assert examine(after) is Status.HEALTHY
    assert_mirrors(after)
    assert Redeclared.ranking.top(1)[0].values == (0, True)
    with pytest.raises(NotBuilt, match="another declaration"):  # the old release, still running
        push(INDEX, [first.pk])
    assert_mirrors(after)


def test_the_old_release_writes_nothing_into_the_rebuild_of_the_new_one(zrank: Redis) -> None:
    after = Redeclared.instance()
    store, building = after.ranking.store, after.new_build()
    assert start(store, building)
    with pytest.raises(NotBuilt):
        push(INDEX, [Player.objects.order_by("pk")[0].pk])
    assert not zrank.exists(shadow(store, building))


@pytest.mark.parametrize(
    ("attributes", "same"),
    [
        ({"order": ("-level",)}, True),
        ({"ranking_method": "competition"}, True),
        ({"band": 3, "owner": "user"}, True),
        pytest.param({"ranking_method": "dense"}, False, marks=pytest.mark.part("dense")),
        ({"order": ("level", "is_active")}, False),
        ({"order": ("pk",)}, False),
        ({"facets": ("is_active",)}, False),
    ],
)
def test_what_makes_a_declaration_another(attributes: dict[str, Any], same: bool) -> None:
    index = type("Another", (PlayerAscending,), attributes).instance()
    assert index.declares(INDEX.new_build()) is same
    assert index.declares("a build of an earlier release of this app")


def test_each_criterion_is_part_of_the_declaration() -> None:
    """Directions and the places of nulls, where there are several criteria."""
    orders = [
        ("level", "is_active"),
        ("-level", "is_active"),
        ("level", "-is_active"),
        ("is_active", "level"),
        ("is_active", models.F("level").asc(nulls_first=True)),
    ]
    declared = {
        type("Another", (RankIndex,), {"model": Player, "order": order}).instance().declaration
        for order in orders
    }
    assert len(declared) == len(orders)


def test_stale_answers_are_of_the_same_declaration(settings: Any) -> None:
    settings.ZRANK = {"UNHEALTHY": "serve_stale"}

    class Again(Redeclared):  # nobody has looked at its health yet
        pass

    with pytest.raises(NotBuilt, match="built from another declaration"):
        Again.ranking.top(3)
