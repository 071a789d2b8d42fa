"""Histories in which two servers, two databases or two transactions could be taken for one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections
from redis import Redis

from django_zrank.builds import recorded
from django_zrank.exceptions import IndexUnavailable, RebuildSuperseded
from django_zrank.models import Batch, Build, Mark
from django_zrank.store import Store
from django_zrank.sync.drain import drain
from django_zrank.sync.health import Status, examine, repair
from django_zrank.sync.marks import next_marks, replay, unmark, waiting_marks
from django_zrank.sync.push import push
from django_zrank.sync.rebuild import rebuild
from tests.builds import load_rows
from tests.servers import RedisServer, wait_for
from tests.sync.conftest import change_all, use_redis
from tests.sync.interruptions import just_before, somebody_waits
from tests.sync.mirror import assert_mirrors
from tests.testapp.models import Competitor
from tests.testapp.zrank import CompetitorRank, PlayerAscending
from tests.writes import apply_changes, begin_write

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("ten_players"),
]

INDEX = PlayerAscending.instance()


class TestIsolation:
    """A replay reads what was committed before it had the lock, whatever level the connection is at."""

    @pytest.mark.skipif(connection.vendor == "sqlite", reason="it has one writer")
    @pytest.mark.parametrize("isolated", ["READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE"], indirect=True)
    def test_a_replay_that_waits_for_an_unmarking_finds_its_batch(self, isolated: None) -> None:
        change_all(50)
        health = Store.of(INDEX).check_health()  # of a server that lacks the next write
        written = push(INDEX, [0], noted=True).written
        marks = next_marks(INDEX, 0, 2**62, 10)
        row = recorded(INDEX)

        def unmark_while_another_waits() -> bool:
            def pause(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
                result = execute(sql, params, many, context)
                if "INSERT" in sql and "zrank_batch" in sql:
                    replaying.append(threads.submit(replay_and_close))
                    wait_for(
                        somebody_waits, 10, pause=0.15
                    )  # InnoDB renews the table once nobody has read it for 0.1 s
                return result

            with connection.execute_wrapper(pause):
                return unmark(INDEX, marks, written[INDEX])

        def replay_and_close() -> int | None:
            try:
                return replay(INDEX, health._replace(server="another"), noted=row)
            finally:
                connections.close_all()

        replaying: list[Any] = []
        with ThreadPoolExecutor(1) as threads:
            assert unmark_while_another_waits()
            assert replaying[0].result(30) == 10
        assert waiting_marks(INDEX).count() == 10


class TestRebuilds:
    def test_one_begins_on_no_other_server_than_it_has_looked_at(
        self, zrank: Redis, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A failover in between: else two servers would take writes under one term."""
        binary = zrank.info("server")["executable"]
        with RedisServer(binary) as a, RedisServer(binary) as b:
            use_redis(settings, a.url)
            rebuild(INDEX)
            b.follow(a.port)
            call_command("sync_zrank", "ascending", stdout=StringIO())
            assert examine(INDEX) is Status.HEALTHY
            term = recorded(INDEX).term

            def fail_over() -> None:
                assert a.ask("WAIT", 1, 5000) == 1
                b.promote()
                use_redis(settings, b.url)

            just_before(monkeypatch, Store, "start_rebuild", fail_over)
            with pytest.raises(RebuildSuperseded):
                rebuild(INDEX)
            health = Store(INDEX.name, INDEX.layout).check_health()
            assert (health.is_trusted, health.building) == (False, "")
            call_command("sync_zrank", "ascending", stdout=StringIO())
            assert recorded(INDEX).term > term
            assert examine(INDEX) is Status.HEALTHY

    def test_one_of_an_older_term_notes_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another server was trusted since: its index is not to be taken for another build."""
        before, row = recorded(INDEX), Build.objects.filter(index=INDEX.name)
        another = {"term": before.term + 1, "server": "another"}
        just_before(monkeypatch, Store, "start_rebuild", lambda: row.update(**another))
        with pytest.raises(RebuildSuperseded):
            rebuild(INDEX)
        after = recorded(INDEX)
        assert (after.build, after.building) == (before.build, before.building)
        assert not Store(INDEX.name, INDEX.layout).check_health().building

    def test_what_is_sent_twice_begins_once(self, zrank: Redis) -> None:
        """The client sends it again where the reply is lost."""
        store = Store(INDEX.name, INDEX.layout)
        row, building = recorded(INDEX), INDEX.new_build()
        how: dict[str, Any] = {"owner": row.owner, "server": row.server, "term": row.term, "polite": True}
        assert store.start_rebuild(building, **how)
        assert store.start_rebuild(building, **how)
        assert not zrank.sismember(store.keys.doomed, building)
        assert store.swap_rebuilt(building)


class TestAnOlderDatabase:
    """One that was restored from a backup, or that has lost its row: it knows of earlier terms than Redis does."""

    @pytest.fixture(params=["row of last week", "no row"])
    def restored(self, request: pytest.FixtureRequest, zrank: Redis) -> None:
        backup = Build.objects.get(index=INDEX.name)
        Build.objects.filter(index=INDEX.name).update(term=backup.term + 20)
        zrank.hset(INDEX.ranking.store.keys.meta, "term", backup.term + 20)
        assert examine(INDEX) is Status.HEALTHY
        change_all(50)
        drain(INDEX)
        Build.objects.filter(index=INDEX.name).delete()
        Batch.objects.all().delete()
        if request.param != "no row":
            backup.save(force_insert=True)
        change_all(10)
        Mark.objects.all().delete()

    def test_is_rebuilt_at_once(self, restored: None) -> None:
        """As docs/guarantees.md advises."""
        call_command("rebuild_zrank", "ascending", stdout=StringIO())
        assert examine(INDEX) is Status.HEALTHY
        assert_mirrors(PlayerAscending)

    def test_adopts_nothing(self, zrank: Redis) -> None:
        backup = Build.objects.get(index=INDEX.name)
        zrank.hset(INDEX.ranking.store.keys.meta, "term", backup.term + 20)
        change_all(10)
        Mark.objects.all().delete()
        assert repair(INDEX) is Status.UNKNOWN_BUILD
        assert examine(INDEX) is Status.HEALTHY
        assert_mirrors(PlayerAscending)

    def test_another_database_takes_its_place_under_a_term_of_its_own(self, zrank: Redis) -> None:
        """Whatever term both are at: what the other one pushes belongs nowhere any more."""
        theirs = begin_write(INDEX.ranking.store)
        Build.objects.filter(index=INDEX.name).update(owner="this one", build="x")
        rebuild(INDEX)
        assert int(begin_write(INDEX.ranking.store).term) > int(theirs.term)


class TestEviction:
    """Keys that go in the middle of something, and would be made anew by what comes next."""

    def test_versions(self, zrank: Redis) -> None:
        """A write that read before another was written is refused, although nothing says whose row that one wrote."""
        store, keys = Store(INDEX.name, INDEX.layout), INDEX.ranking.store.keys
        early, late = begin_write(store), begin_write(store)
        assert apply_changes(store, late, [("1", 2, b"")])
        assert zrank.unlink(keys.recent) == 1
        assert apply_changes(store, early, [("1", 1, b"")]) is None
        assert apply_changes(store, begin_write(store), [("2", 2, b"")])
        assert apply_changes(store, early, [("1", 1, b"")]) is None
        assert zrank.zscore(store.live.root, "1") == 2

    @pytest.mark.parametrize("write", [False, True], ids=["unnoticed", "noticed by a write"])
    @pytest.mark.parametrize("gone", ["recent", "shadow"])
    def test_what_a_rebuild_stands_on(self, zrank: Redis, gone: str, write: bool) -> None:
        store, keys = Store(INDEX.name, INDEX.layout), INDEX.ranking.store.keys
        row, building = recorded(INDEX), INDEX.new_build()
        assert store.start_rebuild(building, owner=row.owner, server=row.server, term=row.term)
        assert load_rows(store, building, [("1", 1, b"")])
        assert apply_changes(store, begin_write(store), [("2", 20, b"")])
        assert zrank.unlink(keys.recent if gone == "recent" else keys.at(building).root) == 1
        if write:
            apply_changes(store, begin_write(store), [("3", 3, b"")])
        assert not load_rows(store, building, [("2", 2, b"")])
        assert gone == "recent" or not store.swap_rebuilt(building)

    @pytest.mark.parametrize("comes", [True, False], ids=["comes", "goes"])
    def test_the_ranking_of_a_facet_in_which_somebody_comes_or_goes(self, zrank: Redis, comes: bool) -> None:
        Competitor.objects.bulk_create(
            Competitor(points=points, region="kantou", platform="pc") for points in range(9)
        )
        away = Competitor.objects.create(points=1, region="kinki", platform="pc")
        index = CompetitorRank.instance()
        rebuild(index)
        assert zrank.unlink(index.ranking.store.live.ranking("region:kantou")) == 1
        if comes:
            Competitor.objects.filter(pk=away.pk).update(region="kantou")
        else:
            Competitor.objects.filter(region="kantou").earliest("pk").delete()
        drain(index)
        assert examine(index) is Status.WRITES_LOST
        call_command("sync_zrank", index.name, stdout=StringIO())
        assert examine(index) is Status.HEALTHY
        assert_mirrors(CompetitorRank)


def test_a_planned_failover_leaves_the_connections_of_other_threads_alone(own_server: RedisServer) -> None:
    """Each thread finds out by itself that its connection leads to a replica."""
    store, client = INDEX.ranking.store, Redis.from_url(own_server.url)
    client.replicaof("127.0.0.1", 1)

    def block() -> Any:
        return store.guard(lambda used: used.xread({"nothing": "$"}, block=60_000))

    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(block)
        wait_for(lambda: client.info("clients")["blocked_clients"] == 1, 10)
        with pytest.raises(IndexUnavailable):
            begin_write(store)
        (blocked,) = (each["id"] for each in client.client_list() if each["cmd"] == "xread")
        client.client_unblock(blocked)
        assert not waiting.result(10)
