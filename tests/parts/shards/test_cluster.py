"""Shards on the nodes of a cluster: all are asked at once, and one that is away takes along its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.core.management import call_command
from redis.connection import AbstractConnection
from redis.crc import key_slot
from redis.exceptions import TimeoutError

from django_zrank import RankIndex
from django_zrank.cluster.client import Cluster as ClusterClient
from django_zrank.exceptions import IndexUnavailable
from django_zrank.models import Mark
from django_zrank.queries.request import Request
from django_zrank.queries.steps import drive
from django_zrank.redis import reader_of, sending
from django_zrank.registry import registry
from django_zrank.store import Store
from django_zrank.sync.rebuild import rebuild
from django_zrank.testing import reset
from tests.clusters import Cluster
from tests.parts.shards.test_sharded import REGIONS, forget_trust, in_regions
from tests.servers import RedisServer, wait_for
from tests.test_cluster import use
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerRank
from tests.without_parts.parts import PARTS

pytestmark = pytest.mark.slow

SHARDS = 7


@pytest.fixture
def index(three: Cluster, settings: Any) -> type[RankIndex]:
    """People in five regions, in seven shards on three nodes."""
    use(settings, three, SOCKET_TIMEOUT=0.5)
    index = in_regions(SHARDS)
    index.group("few").add(*range(1, 51))
    forget_trust(index)
    for node in three.nodes:
        node.ask("SCRIPT", "FLUSH")
        node.ask("CONFIG", "RESETSTAT")
    return index


def narrowed(index: type[RankIndex]) -> Any:
    """Counts of a facet among the members of a group: computed in transactions."""
    return index.ranking.filter(group="few").counts("region")


def plainly(index: type[RankIndex]) -> Any:
    return index.ranking.counts("region")


QUESTIONS = {
    plainly: Counter(REGIONS.values()),
    narrowed: Counter(region for pk, region in REGIONS.items() if pk <= 50),
}
if not PARTS["combined"].is_there:
    del QUESTIONS[narrowed]


def scripts(node: RedisServer) -> int:
    """The number of scripts that a node knew and ran since its statistics were reset."""
    return int(node.ask("INFO", "commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])


def test_heavy_calls_go_to_each_node_one_by_one(
    index: type[RankIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = index.ranking.ranks(range(1, 51))
    trips = []
    send_request = ClusterClient.send_request

    def send(client: Any, request: Request[Any]) -> Any:
        trips.append(Counter(client.server_of(call.keys[0]) for call in request.calls if call.cost))
        return send_request(client, request)

    monkeypatch.setattr(ClusterClient, "send_request", send)
    monkeypatch.setattr(sending, "_MOST", 1)
    assert index.ranking.ranks(range(1, 51)) == ranks
    assert {max(trip.values()) for trip in trips} == {1}
    assert max(map(len, trips)) > 1


@pytest.mark.parametrize("ask", QUESTIONS)
def test_scripts_that_no_node_knows(three: Cluster, index: type[RankIndex], ask: Callable[..., Any]) -> None:
    assert ask(index) == ask(index) == QUESTIONS[ask]
    assert all(scripts(node) for node in three.nodes)


def test_coroutines_are_answered(index: type[RankIndex]) -> None:
    assert asyncio.run(index.ranking.acount()) == len(REGIONS)


@pytest.mark.parametrize("number", range(3))
def test_a_node_that_hangs(three: Cluster, index: type[RankIndex], number: int) -> None:
    """It is asked once, with all others, which answer what is theirs; nothing that comes late is taken for another
    answer."""
    plainly(index)
    node, *others = three.nodes[number], *three.nodes[:number], *three.nodes[number + 1 :]
    own = [part for part in index.instance().holders if three.owner(slot(part)) is node]
    for one in three.nodes:
        one.ask("CONFIG", "RESETSTAT")
    node.freeze()
    try:
        with pytest.raises(IndexUnavailable, match="Timeout"):
            plainly(index)
        assert sum(map(scripts, others)) == SHARDS - len(own)
        for pk in REGIONS:
            part = index.instance().holder_of(str(pk))
            if part not in own:
                drive(reader_of(part).requiring_healthy_server(), reader_of(part).send)
                assert index.ranking.score(pk) == pk
    finally:
        node.thaw()
    three.settle()
    assert scripts(node) == len(own)
    assert plainly(index) == QUESTIONS[plainly]


def test_two_nodes_that_hang_cost_one_timeout(
    three: Cluster, index: type[RankIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    plainly(index)
    client, waited = Store("any").client, []
    monkeypatch.setattr(client.nodes_manager, "initialize", lambda **how: None)
    read = AbstractConnection.read_response

    def count(connection: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return read(connection, *args, **kwargs)
        except TimeoutError:
            waited.append(connection)
            raise

    monkeypatch.setattr(AbstractConnection, "read_response", count)
    for node in three.nodes[:2]:
        node.freeze()
    try:
        with pytest.raises(IndexUnavailable, match="Timeout"):
            plainly(index)
    finally:
        for node in three.nodes[:2]:
            node.thaw()
    assert len(waited) == 1
    three.settle()
    assert plainly(index) == QUESTIONS[plainly]


def slot(part: RankIndex) -> int:
    return key_slot(Store(part.name).keys.meta.encode())


@pytest.mark.parametrize("ask", QUESTIONS)
def test_a_slot_that_moves_to_another_node(
    three: Cluster, index: type[RankIndex], ask: Callable[..., Any]
) -> None:
    """The shard is away while some of its keys have moved, and its answer is never wrong."""
    ask(index)
    with three.moving(slot(index.instance().holders[3])) as (source, target):
        assert tried(ask, index) in (None, QUESTIONS[ask])
        name, *names = source.ask("CLUSTER", "GETKEYSINSLOT", slot(index.instance().holders[3]), 100)
        three.migrate(source, target, name)
        assert tried(ask, index) in (None, QUESTIONS[ask])
        three.migrate(source, target, *names)
        assert tried(ask, index) in (None, QUESTIONS[ask])
    # Its new owner is another server than the one that was trusted.
    trust(index.instance().holders[3])
    assert ask(index) == QUESTIONS[ask]


def tried(ask: Callable[..., Any], index: type[RankIndex]) -> Any:
    """The answer, None for none."""
    try:
        return ask(index)
    except IndexUnavailable as error:
        return str(error) if "non local key" in str(error) else None


def trust(part: RankIndex) -> None:
    store = Store(part.name)
    health = store.check_health()
    assert store.adopt_server(health, int(health.term), behind=False)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_node_that_is_lost_for_good(redis_binary: str, settings: Any) -> None:
    """Without a replica its slots are given to another node, empty: the shards that were there are rebuilt."""
    settings.ZRANK = {"CAPTURE": "signals"}  # no triggers are created for it
    index = registry.register(type("Losing", (PlayerRank,), {"name": "losing", "shards": SHARDS}))
    try:
        with Cluster(redis_binary) as cluster:
            use(settings, cluster, SOCKET_TIMEOUT=0.5)
            reset()
            Player.objects.bulk_create(Player(name=str(level), level=level) for level in range(60))
            rebuild(index.instance())
            Mark.objects.all().delete()
            lost, *others = reversed(cluster.nodes)
            parts = index.instance().holders
            gone = {part for part in parts if cluster.owner(slot(part)) is lost}
            built = {part: reader_of(part).learn().build for part in parts}
            name = lost.ask("CLUSTER", "MYID")
            ((first, last),) = [
                (first, last)
                for first, last, primary, *_ in lost.ask("CLUSTER", "SLOTS")
                if primary[1] == lost.port
            ]
            lost.kill()
            with pytest.raises(IndexUnavailable):
                index.ranking.count()
            for node in others:
                node.ask("CLUSTER", "FORGET", name)
            others[0].ask("CLUSTER", "ADDSLOTSRANGE", first, last)
            cluster.settle()
            with pytest.raises(IndexUnavailable):
                index.ranking.count()
            call_command("sync_zrank", "losing")
            assert [entry.score for entry in index.ranking.top(60)] == list(reversed(range(60)))
            now = {part: reader_of(part).learn().build for part in parts}
            assert {part for part in parts if now[part] != built[part]} == gone
            assert 0 < len(gone) < SHARDS
    finally:
        registry.unregister(index)


@pytest.mark.part("replicas")
def test_replicas_of_all_nodes_are_asked(redis_binary: str, settings: Any) -> None:
    settings.ZRANK = {"REPLICA_LAG": 3600.0}
    with Cluster(redis_binary, primaries=3, replicas=1) as cluster:
        use(settings, cluster)
        index = in_regions(SHARDS)
        forget_trust(index)
        ranking = index.ranking.using("replica")
        plainly(index)
        cluster.settle()
        wait_for(lambda: asked_of(cluster.nodes[:3], lambda: ranking.counts("region")) == 0, 10)
        assert ranking.counts("region") == QUESTIONS[plainly]
        assert {ranking.score(pk) == pk for pk in REGIONS} == {True}
        for replica in cluster.nodes[3:]:
            replica.kill()
        assert ranking.counts("region") == QUESTIONS[plainly]


def asked_of(nodes: list[RedisServer], ask: Callable[[], Any]) -> int:
    """The number of scripts that nodes ran for a question."""
    for node in nodes:
        node.ask("CONFIG", "RESETSTAT")
    ask()
    return sum(map(scripts, nodes))


@pytest.mark.parametrize("run", [False, True], ids=["blocking", "coroutine"])
@pytest.mark.parametrize("number", range(3))
@pytest.mark.part("groups")
def test_a_claim_keeps_what_it_got_from_other_shards(
    three: Cluster, index: type[RankIndex], number: int, run: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Of shards in order: those before one that hangs are claimed, those after it stay."""
    group, members, node = index.group("few"), range(1, 51), three.nodes[number]
    parts = index.instance().holders
    shard = {pk: parts.index(index.instance().holder_of(str(pk))) for pk in members}
    away = min(at for at in set(shard.values()) if three.owner(slot(parts[at])) is node)
    before = [pk for pk in members if shard[pk] < away]
    node.freeze()
    try:
        claim = partial(asyncio.run, group.aclaim(members)) if run else partial(group.claim, members)
        if before:
            assert claim() == before
            (record,) = [one for one in caplog.records if "the reply to a claim" in one.message]
            named = record.message.partition("left it: ")[2].split(", ")
            assert named == [str(pk) for pk in members if shard[pk] == away]
        else:
            with pytest.raises(IndexUnavailable):
                claim()
    finally:
        node.thaw()
    three.settle()
    left = set(group)
    assert left >= {pk for pk in members if shard[pk] > away}
    assert left.isdisjoint(before)


@pytest.mark.part("erase")
@pytest.mark.django_db(transaction=True)
def test_an_erasure_scans_each_node_once(three: Cluster, index: type[RankIndex]) -> None:
    rebuild(index.instance())
    for node in three.nodes:
        node.ask("CONFIG", "RESETSTAT")
    for part in index.instance().holders:  # as if it were shown to one of each shard
        store = Store.of(part)
        store.client.zadd(store.keys.beside("remembered", "x"), {"1": 2**60, "2": 2**60})
    assert index.erase(1).removed == {"group": 1, "remembered": SHARDS}
    for part in index.instance().holders:
        store = Store.of(part)
        assert store.client.zrange(store.keys.beside("remembered", "x"), 0, -1) == [b"2"]
    assert 1 not in index.group("few")
    assert 2 in index.group("few")
    assert {node.ask("INFO", "commandstats")["cmdstat_scan"]["calls"] for node in three.nodes} == {1}
