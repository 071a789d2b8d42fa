"""Reads from replicas: who answers, and how old an answer may be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db.models import Q
from redis.connection import AbstractConnection
from redis.exceptions import TimeoutError

from django_zrank import RankIndex, Ranking, register
from django_zrank.exceptions import IndexUnavailable
from django_zrank.redis.keys import Keys
from django_zrank.registry import registry
from django_zrank.replicas import reading
from django_zrank.replicas.reading import NoFreshReplica, Replicas, replicas_of
from django_zrank.store import Change, Store
from django_zrank.sync.in_step import breaker
from django_zrank.testing import reset
from tests.clusters import Cluster
from tests.links import Link
from tests.populations import fill, load
from tests.sentinels import Sentinels
from tests.servers import RedisServer, wait_for
from tests.sharded import sharded
from tests.sync.conftest import use_redis
from tests.testapp.methods import KEEPING
from tests.testapp.models import Competitor, Player
from tests.testapp.zrank import PlayerAscending
from tests.without_parts.parts import PARTS
from tests.writes import apply_changes, begin_write


class Replicated(RankIndex):
    name = "replicated"
    model = Competitor
    order = ("-points", "lost")
    facets = ("region", "platform")
    ranking_method = KEEPING
    band = 9


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register(Replicated)
    yield
    registry.unregister(Replicated)
    breaker.forget()


class Pair:
    """A primary and its replica, and the wire between them."""

    def __init__(self, primary: RedisServer, replica: RedisServer, wire: Link | None = None) -> None:
        self.primary, self.replica, self.wire = primary, replica, wire

    def scripts(self, server: RedisServer) -> int:
        """The number of scripts, transactions and commands of a page that a server ran since it was asked last."""
        stats = server.ask("INFO", "commandstats")
        server.ask("CONFIG", "RESETSTAT")
        return sum(
            stats.get(f"cmdstat_{name}", {"calls": 0})["calls"]
            for name in ("eval", "evalsha", "exec", "zrange")
        )

    def answers(self, ask: Callable[[], Any]) -> tuple[Any, bool]:
        """An answer, and whether it is the replica's own alone."""
        for server in (self.primary, self.replica):
            self.scripts(server)
        answer = ask()
        asked = self.scripts(self.primary), self.scripts(self.replica)
        assert sum(asked)
        return answer, asked[0] == 0

    def catch_up(self) -> None:
        """Wait until the replica has what the primary has now."""
        now = self.primary.ask("INFO", "replication")["master_repl_offset"]
        wait_for(lambda: self.replica.ask("INFO", "replication").get("slave_repl_offset", 0) >= now, 10)


@contextmanager
def start_pair(binary: str) -> Iterator[Pair]:
    with RedisServer(binary) as primary, RedisServer(binary) as replica, Link(primary.port) as wire:
        replica.follow(wire.port)
        yield Pair(primary, replica, wire)


@pytest.fixture(scope="module")
def shared(redis_binary: str) -> Iterator[Pair]:
    """The pair of those tests that leave it as it was."""
    with start_pair(redis_binary) as pair:
        yield pair


@contextmanager
def a_pair(binary: str, settings: Any) -> Iterator[Pair]:
    with start_pair(binary) as pair:
        use_redis(settings, f"{pair.primary.url},{pair.replica.url}")
        yield pair


@contextmanager
def that_pair(pair: Pair, settings: Any) -> Iterator[Pair]:
    pair.primary.ask("FLUSHALL")
    use_redis(settings, f"{pair.primary.url},{pair.replica.url}")
    yield pair


@contextmanager
def a_watched_pair(binary: str, settings: Any) -> Iterator[Pair]:
    with a_pair(binary, settings) as pair, Sentinels(binary, pair.primary.port) as sentinels:
        pair.replica.follow(pair.primary.port)
        use_redis(settings, sentinels.url, **sentinels.options)
        yield pair


@contextmanager
def a_cluster(binary: str, settings: Any) -> Iterator[Pair]:
    with Cluster(binary, primaries=1, replicas=1) as cluster:
        use_redis(settings, cluster.url, **cluster.options)
        yield Pair(*cluster.nodes)


DEPLOYMENTS = [
    that_pair,
    pytest.param(a_watched_pair, marks=pytest.mark.slow),
    pytest.param(a_cluster, marks=pytest.mark.slow),
]


ROWS = [(pk, pk // 2, pk % 3, "rs"[pk % 2], "xy"[pk % 2]) for pk in range(1, 41)]


@pytest.fixture(params=DEPLOYMENTS)
def pair(
    request: pytest.FixtureRequest, redis_binary: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Pair]:
    settings.ZRANK = (
        {**settings.ZRANK, "REPLICA_LAG": 3600.0} if hasattr(settings, "ZRANK") else {"REPLICA_LAG": 3600.0}
    )
    at = request.getfixturevalue("shared") if request.param is that_pair else redis_binary
    with request.param(at, settings) as pair:
        reset()
        for shards in (1, 3):
            load(sharded(Replicated, shards), ROWS)
        fill(PlayerAscending, {pk: pk for pk in range(1, 9)})
        pair.catch_up()
        # Looks at the primary are no part of the answers: there is one, here, however slow the machine is.
        monkeypatch.setattr(reading, "_LOOK", 3600.0)
        replicas_of.cache_clear()
        for index in (Replicated, sharded(Replicated, 3), PlayerAscending):
            index.ranking.using("replica").top(1)
        yield pair


on_a_pair = pytest.mark.parametrize("pair", [that_pair], indirect=True)
on_its_own = pytest.mark.parametrize("pair", [a_pair], indirect=True)


READS: list[Callable[[Ranking], Any]] = [
    lambda ranking: ranking.recommend(7, 3, seed=1),
    lambda ranking: next(iter(ranking.recommend_many([7, 8], 3)))[0],
    lambda ranking: ranking.top(3),
    lambda ranking: ranking.around(7, 2),
    lambda ranking: ranking.entry(7),
    lambda ranking: ranking.by("competition").rank(7),
    lambda ranking: ranking.between(2, 5),
    lambda ranking: ranking.counts("region"),
    lambda ranking: ranking.filter(region="r").top(3),
    lambda ranking: ranking.reversed().rank_of_score(3),
]
OVER_SHARDS = READS[2:]  # what is drawn is drawn otherwise
if PARTS["combined"].is_there:
    READS.append(lambda ranking: ranking.filter(region="r", platform="x").recommend(7, 3, seed=1))


def test_what_writes_nothing_is_asked_of_a_replica(pair: Pair) -> None:
    for number, ask in enumerate(READS):
        answer, from_replica = pair.answers(lambda ask=ask: ask(Replicated.ranking.using("replica")))  # type: ignore[misc]
        assert from_replica, number
        again, from_replica = pair.answers(lambda ask=ask: ask(Replicated.ranking))  # type: ignore[misc]
        assert not from_replica
        assert answer == again


@pytest.mark.parametrize("pair", [that_pair, DEPLOYMENTS[-1]], indirect=True)
def test_shards_are_asked_of_replicas(pair: Pair) -> None:
    ranking = sharded(Replicated, 3).ranking
    for number, ask in enumerate(OVER_SHARDS):
        answer, from_replica = pair.answers(lambda ask=ask: ask(ranking.using("replica")))  # type: ignore[misc]
        assert from_replica, number
        assert answer == ask(ranking) == ask(Replicated.ranking)


@pytest.mark.part("shards")
@pytest.mark.parametrize("pair", [that_pair, DEPLOYMENTS[-1]], indirect=True)
def test_ranks_of_members_drawn_are_asked_of_replicas(pair: Pair) -> None:
    ranking = sharded(Replicated, 3).ranking
    drawn, from_replica = pair.answers(lambda: ranking.using("replica").recommend(7, 5))
    assert from_replica
    ranks, from_replica = pair.answers(lambda: {entry.pk: entry.rank for entry in drawn})
    assert from_replica
    assert ranks == ranking.ranks(ranks)


@on_its_own
def test_shards_that_are_behind_are_asked_of_the_primary(pair: Pair) -> None:
    """One is enough: what this process has just written to it must not be missed."""
    assert pair.wire is not None
    index = sharded(Replicated, 3)
    part = index.instance().holder_of("7")
    store = Store(part.name, part.layout)
    pair.wire.freeze()
    try:
        assert apply_changes(store, begin_write(store), [Change("7", None)])
        answer, from_replica = pair.answers(lambda: index.ranking.using("replica").counts("region"))
    finally:
        pair.wire.thaw()
    assert not from_replica
    assert sum(answer.values()) == len(ROWS) - 1


@pytest.mark.part("statistics")
@on_a_pair
def test_a_snapshot_is_asked_of_the_primary(pair: Pair) -> None:
    """Of two replicas, one may be behind, and answer for the same page both times."""
    ranking = Replicated.ranking.using("replica")
    members, from_replica = pair.answers(lambda: list(ranking.snapshot()))
    assert not from_replica
    assert members == list(ranking)


@on_a_pair
def test_plain_commands_are_asked_of_a_replica(pair: Pair) -> None:
    assert PlayerAscending.ranking.using("replica").rank(3) == 3
    assert pair.replica.ask("INFO", "commandstats")["cmdstat_zrank"]["calls"] == 1


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(
            lambda ranking: ranking.recommend(7, 3, remember=timedelta(1)), marks=pytest.mark.part("remember")
        ),
        pytest.param(
            lambda ranking: ranking.filter(region="r", platform="x").count(),
            marks=pytest.mark.part("combined"),
        ),
        pytest.param(
            lambda ranking: ranking.filter(group="seen").recommend(7, 3), marks=pytest.mark.part("combined")
        ),
    ],
    ids=["remember", "combined_filter", "group"],
)
@pytest.mark.slow
@on_a_pair
@pytest.mark.part("combined", "groups")
def test_what_writes_is_asked_of_the_primary(pair: Pair, ask: Callable[[Ranking], Any]) -> None:
    Replicated.group("seen").add(8, 9)
    expected, _ = pair.answers(lambda: ask(Replicated.ranking))
    answer, from_replica = pair.answers(lambda: ask(Replicated.ranking.using("replica")))
    assert not from_replica
    assert type(answer) is type(expected)


@on_a_pair
def test_scores_that_begin_in_redis_are_read_from_the_primary(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranking = PlayerAscending.ranking.using("replica")
    assert pair.answers(lambda: ranking.top(3))[1]
    monkeypatch.setitem(vars(PlayerAscending.instance()), "rule", "sum")
    assert not pair.answers(lambda: ranking.top(3))[1]


@on_a_pair
def test_the_setting_says_who_is_asked(pair: Pair, settings: Any) -> None:
    settings.ZRANK = {**settings.ZRANK, "READS": "replica"}
    assert pair.answers(lambda: Replicated.ranking.top(3))[1]
    assert not pair.answers(lambda: Replicated.ranking.using("primary").top(3))[1]


@pytest.mark.django_db
@on_a_pair
def test_conditions_that_only_the_database_tests(pair: Pair) -> None:
    """The replica deals, the database tests, and the replica deals again."""
    Player.objects.bulk_create(
        Player(pk=pk, level=pk, name="yes" if pk == 5 else "no") for pk in range(1, 41)
    )
    drawn, from_replica = pair.answers(
        lambda: PlayerAscending.ranking.using("replica").recommend(3, 1, band=99, where=Q(name="yes"))
    )
    assert from_replica
    assert [entry.pk for entry in drawn] == [5]


@on_a_pair
def test_coroutines_ask_replicas_too(pair: Pair) -> None:
    async def ask() -> Any:
        ranking = PlayerAscending.ranking.using("replica")
        return await ranking.atop(2), await ranking.arecommend(3, 2, band=9)

    answer, from_replica = pair.answers(lambda: asyncio.run(ask()))
    assert from_replica
    assert [entry.pk for entry in answer[0]] == [1, 2]


def put(member: str, score: int) -> None:
    """A write of this process."""
    store = Store(PlayerAscending.instance().name)
    assert apply_changes(store, begin_write(store), [Change(member, score)])


def best() -> Any:
    return PlayerAscending.ranking.using("replica").top(1)[0].pk


@pytest.fixture
def behind(pair: Pair) -> Iterator[Pair]:
    """The pair, its replica out of step."""
    assert pair.wire
    pair.wire.freeze()
    yield pair
    pair.wire.thaw()


class TestAge:
    @on_a_pair
    def test_a_process_reads_what_it_has_written(self, behind: Pair) -> None:
        put("5", -1)
        answer, from_replica = behind.answers(best)
        assert (answer, from_replica) == (5, False)
        assert behind.wire
        behind.wire.thaw()
        behind.catch_up()
        answer, from_replica = behind.answers(best)
        assert (answer, from_replica) == (5, True)

    @pytest.mark.slow
    @on_a_pair
    def test_others_may_be_behind(self, behind: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading, "_written", {})
        put("5", -1)
        reading._written.clear()  # as in another process
        assert behind.answers(best) == (1, True)

    @on_a_pair
    def test_within_a_bound(self, behind: Pair, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading, "_written", {})
        settings.ZRANK = {**settings.ZRANK, "REPLICA_LAG": 0.2}
        put("5", -1)
        reading._written.clear()
        wait_for(lambda: best() == 5, 10)
        assert behind.answers(best) == (5, False)

    @pytest.mark.slow
    @on_a_pair
    def test_a_build_that_has_not_arrived(self, behind: Pair) -> None:
        fill(PlayerAscending, {8: 1})
        assert behind.answers(best) == (8, False)

    @pytest.mark.slow
    @on_its_own
    def test_while_the_primary_is_away(self, pair: Pair) -> None:
        pair.primary.kill()
        PlayerAscending.ranking._reader.trust.until = 0.0
        assert best() == 1
        with pytest.raises(IndexUnavailable):
            PlayerAscending.ranking.using("primary").top(1)

    @pytest.mark.slow
    @on_its_own
    def test_not_for_long(self, pair: Pair, settings: Any) -> None:
        pair.primary.kill()
        settings.ZRANK = {**settings.ZRANK, "REPLICA_LAG": 0.2}

        def is_refused() -> bool:
            try:
                return best() != 1
            except IndexUnavailable:
                return True

        wait_for(is_refused, 10)

    @pytest.mark.slow
    @on_its_own
    def test_the_primary_answers_for_a_replica_that_is_away(self, pair: Pair) -> None:
        pair.replica.kill()
        assert best() == 1

    @pytest.mark.slow
    @on_a_pair
    def test_the_primary_answers_for_a_replica_that_hangs(self, pair: Pair, settings: Any) -> None:
        pair.replica.freeze()
        try:
            assert best() == 1
            assert replicas_of(PlayerAscending.ranking._reader).until  # which is not asked again at once
            assert best() == 1
        finally:
            pair.replica.thaw()


@pytest.mark.slow
@on_a_pair
def test_both_that_hang_cost_two_timeouts(pair: Pair, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    use_redis(settings, f"{pair.primary.url},{pair.replica.url}", SOCKET_TIMEOUT=0.2)
    monkeypatch.setattr(reading, "_LOOK", 0.0)
    waited, read = [], AbstractConnection.read_response

    def count(connection: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return read(connection, *args, **kwargs)
        except TimeoutError:
            waited.append(connection.port)
            raise

    monkeypatch.setattr(AbstractConnection, "read_response", count)
    PlayerAscending.ranking._reader.trust.until = 0.0
    pair.primary.freeze()
    pair.replica.freeze()
    try:
        with pytest.raises(IndexUnavailable, match="Timeout"):
            best()
    finally:
        pair.primary.thaw()
        pair.replica.thaw()
    assert waited == [pair.primary.port, pair.replica.port]


def test_a_build_that_no_look_has_found() -> None:
    mine = Replicas(PlayerAscending.ranking._reader)
    others = Keys.of("zrank", "of-another-declaration").at("00000000-another")
    state = [b"00000000-another", None, b"1", b"9"]
    mine.note(monotonic(), "11111111-mine", (1, 5))
    with pytest.raises(NoFreshReplica):
        mine._require_fresh(others, state)
    mine.note(monotonic(), others.build, (1, 5))
    mine._require_fresh(others, state)


def test_a_cache_that_names_no_replicas(settings: Any) -> None:
    settings.CACHES = {
        **settings.CACHES,
        "zrank": {**settings.CACHES["zrank"], "LOCATION": "redis://node:1/0"},
    }
    settings.ZRANK = {"READS": "replica"}
    assert [one.msg for one in run_checks(tags=["zrank"]) if one.id == "zrank.W007"] == [
        "ZRANK['READS'] is 'replica', and CACHES['zrank'] names no replicas: all reads go to the primary."
    ]
    settings.CACHES["zrank"]["LOCATION"] = "redis://node:1/0,redis://node:2/0"
    assert not [one for one in run_checks(tags=["zrank"]) if one.id == "zrank.W007"]


def test_only_two_kinds_of_servers() -> None:
    with pytest.raises(ValueError, match="expected 'primary' or 'replica'"):
        PlayerAscending.ranking.using("default")
    assert repr(PlayerAscending.ranking.using("replica")).endswith(".using('replica')>")
