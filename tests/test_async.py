"""Coroutines that ask: their connections, their loops, and what goes wrong meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import traceback
import warnings
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from datetime import timedelta
from math import inf
from typing import Any
from unittest import mock

import pytest
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, JsonResponse
from django.test import AsyncClient, override_settings
from django.urls import path
from redis import Redis

from django_zrank import IndexUnavailable, NotRanked, RankIndex, Ranking
from django_zrank.exceptions import NotBuilt
from django_zrank.queries.request import Call, Request
from django_zrank.redis import asynchronous, loops, pipelines, reader
from tests.populations import populate
from tests.servers import ONCE, RedisServer, free_port
from tests.sync.conftest import use_redis
from tests.testapp.models import Player


class Waiting(RankIndex):
    name = "waiting"
    model = Player
    order = ("level",)
    band = 10


RANKING: Ranking[Any] = Waiting.ranking


async def opponents(request: HttpRequest, pk: int) -> JsonResponse:
    """A view as docs/async.md shows it."""
    served_by.add(threading.get_ident())
    try:
        found = await RANKING.arecommend(pk, n=4)
    except NotRanked:
        return JsonResponse({}, status=404)
    return JsonResponse({"rank": await RANKING.arank(pk), "opponents": sorted(entry.pk for entry in found)})


async def nothing(request: HttpRequest) -> JsonResponse:
    return JsonResponse({})


served_by: set[int] = set()
"""Threads in which the view has run."""

urlpatterns = [path("opponents/<int:pk>/", opponents), path("nothing/", nothing)]


@pytest.fixture(autouse=True)
def waiting(zrank: Redis, settings: Any) -> Redis:
    # A busy machine is not what is tested.
    options = {"SOCKET_TIMEOUT": 10, "SOCKET_CONNECT_TIMEOUT": 10}
    use_redis(settings, settings.CACHES["zrank"]["LOCATION"], **options)
    populate(Waiting, {pk: {"level": pk} for pk in range(1, 101)})
    RANKING._reader.trust.until = 0.0
    return zrank


async def pool() -> Any:
    loop = await loops.running_loop()
    return loop.clients["zrank", 0].redis.connection_pool  # type: ignore[union-attr]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


def test_a_view() -> None:
    async def get(pk: int) -> Any:
        return await AsyncClient().get(f"/opponents/{pk}/")

    with override_settings(ROOT_URLCONF=__name__):
        response = async_to_sync(get)(3)
        assert response.json() == {"rank": 3, "opponents": response.json()["opponents"]}
        assert len(response.json()["opponents"]) == 4
        assert async_to_sync(get)(101).status_code == 404


def test_an_asgi_project_takes_no_thread_a_request() -> None:
    """Beyond the one that Django takes for each, to run its own signal handlers in."""

    async def threads(at: str) -> int:
        """Those that 100 requests at once have started."""
        started = threading.Thread.start
        with mock.patch.object(threading.Thread, "start", autospec=True, side_effect=started) as start:
            statuses = await asyncio.gather(*(request(application, at) for _ in range(100)))
        assert statuses == [200] * 100
        return start.call_count

    async def serve() -> None:
        assert await request(application, "/opponents/7/") == 200
        loop = await loops.running_loop()
        loop.until = dict.fromkeys(loop.until, inf)  # the server's health has been looked up
        served_by.clear()
        assert await threads("/opponents/7/") == await threads("/nothing/")
        assert served_by == {threading.get_ident()}

    with override_settings(ROOT_URLCONF=__name__):
        application = get_asgi_application()
        asyncio.run(serve())


async def request(application: Any, at: str) -> int:
    """The status of a response, asked for as ASGI servers do."""
    scope = {"type": "http", "http_version": "1.1", "method": "GET", "path": at}
    communicator = ApplicationCommunicator(application, {**scope, "headers": [], "query_string": b""})
    await communicator.send_input({"type": "http.request"})
    started = await communicator.receive_output(timeout=60)
    await communicator.receive_output(timeout=60)
    await communicator.wait(timeout=60)
    return int(started["status"])


def test_many_at_once_take_no_threads_and_few_connections(waiting: Redis) -> None:
    async def ask() -> tuple[set[int], int, int]:
        await RANKING.acount()
        before = threading.active_count()
        most = 0

        async def one(pk: int) -> int:
            nonlocal most
            rank = await RANKING.arank(pk)
            most = max(most, threading.active_count())
            return rank

        found = await asyncio.gather(*(one(pk) for pk in range(1, 101)), *(one(pk) for pk in range(1, 101)))
        assert found == [*range(1, 101), *range(1, 101)]
        return set(found), most - before, len((await pool())._available_connections)

    _, threads, connections = asyncio.run(ask())
    assert threads <= 0
    # Of four senders, of a request that was alone, and of the health check, if a second has passed.
    assert 1 < connections <= 6


def test_health_is_looked_up_once_for_all() -> None:
    async def ask() -> None:
        assert await asyncio.gather(*(RANKING.arank(pk) for pk in (1, 2, 3))) == [1, 2, 3]

    with mock.patch.object(reader, "may_be_believed", side_effect=reader.may_be_believed) as looked:
        asyncio.run(ask())
    assert looked.call_count == 1


def test_if_the_one_that_looks_is_cancelled_another_looks(waiting: Redis) -> None:
    async def ask() -> list[Any]:
        waiting.client_pause(60_000, all=False)  # type: ignore[no-untyped-call]
        tasks = [asyncio.create_task(RANKING.arank(pk)) for pk in (1, 2, 3)]
        loop = await loops.running_loop()
        # Not while it is being sent: up to Python 3.11, asyncio.wait_for() may swallow a cancellation, until the loop
        # has been round.
        await until(lambda: bool(loop.together) and waiting.info("clients")["blocked_clients"] > 0)
        for _ in range(10):
            await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.wait(tasks[:1])
        waiting.client_unpause()  # type: ignore[no-untyped-call]
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, *others = asyncio.run(ask())
    assert isinstance(first, asyncio.CancelledError)
    assert others == [2, 3]


@pytest.mark.part("combined")
def test_cancelled_tasks_leave_no_broken_connection(waiting: Redis) -> None:
    def blocked() -> int:
        clients: Any = waiting.info("clients")
        return int(clients["blocked_clients"])

    async def ask() -> None:
        await RANKING.acount()
        connections = await pool()
        # The first goes alone, and the others wait to be sent together; a combined filter is a write, and goes alone.
        for verb, under_way in ((RANKING.aentry, 2), (RANKING.filter(group="none").arank, 10)):
            await until(lambda: blocked() == 0)
            waiting.client_pause(60_000, all=False)  # type: ignore[no-untyped-call]
            tasks = [asyncio.create_task(verb(pk)) for pk in range(1, 11)]
            # Until then, and the loop has been round, asyncio.wait_for() of Python 3.11 may lose a cancellation.
            await until(lambda under_way=under_way: blocked() == under_way)  # type: ignore[misc]
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(connections._in_use_connections) == under_way
            for task in tasks[:5]:
                task.cancel()
            waiting.client_unpause()  # type: ignore[no-untyped-call]
            gone = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in gone[:5])
            if verb == RANKING.aentry:
                assert [one.pk for one in gone[5:]] == [6, 7, 8, 9, 10]  # type: ignore[union-attr]
            assert not connections._in_use_connections
            # Replies that nobody waits for would be taken for those of the next.
            assert await asyncio.gather(*(RANKING.arank(pk) for pk in range(50, 70))) == [*range(50, 70)]

    asyncio.run(ask())


async def entries(pks: Iterable[int]) -> list[int]:
    return [entry.pk for entry in await asyncio.gather(*(RANKING.aentry(pk) for pk in pks))]


def test_reads_at_once_are_sent_together(waiting: Redis) -> None:
    with mock.patch.object(pipelines, "_replies", side_effect=pipelines._replies) as sent:
        assert asyncio.run(entries(range(1, 101))) == [*range(1, 101)]
    sizes = [len(call.args[1]) for call in sent.call_args_list]
    assert sum(sizes) == 99  # besides the first
    assert max(sizes) == 16


def test_a_script_that_the_server_has_forgotten(waiting: Redis) -> None:
    async def ask() -> None:
        await RANKING.aentry(1)
        waiting.script_flush()
        assert await entries(range(1, 41)) == [*range(1, 41)]

    asyncio.run(ask())


def test_what_one_is_refused_the_others_are_not(waiting: Redis) -> None:
    async def ask() -> list[Any]:
        await RANKING.acount()
        asking = (asynchronous.adrive(sending(pk), RANKING._reader) for pk in range(1, 11))
        return await asyncio.gather(*asking, return_exceptions=True)

    def sending(pk: int) -> Generator[Any, Any, list[Any]]:
        keys = RANKING._reader.live
        key = keys.meta if pk == 5 else keys.root  # a hash
        return (yield Request((Call("ZRANK", (key,), (str(pk),)),)))

    found = asyncio.run(ask())
    assert isinstance(found.pop(4), IndexUnavailable)
    assert found == [[pk - 1] for pk in range(1, 11) if pk != 5]


def test_each_raises_an_error_of_its_own(server: RedisServer, settings: Any) -> None:
    """Each notes where it was raised."""
    use_redis(settings, server.url, CONNECTION_POOL_KWARGS={"retry": ONCE})
    populate(Waiting, {pk: {"level": pk} for pk in range(1, 11)})

    async def ask() -> list[Any]:
        await RANKING.acount()
        server.stop()
        return await asyncio.gather(*(RANKING.aentry(1) for _ in range(40)), return_exceptions=True)

    together = asyncio.run(ask())
    assert len({id(one.__cause__) for one in together}) == 40
    for found in (together, refusals(RANKING.acount, 40)):  # the latter wait for one that looks at the server
        assert {type(one) for one in found} == {IndexUnavailable}
        assert len(set(map(id, found))) == 40
        assert len({len(traceback.extract_tb(one.__traceback__)) for one in found}) <= 2


@pytest.mark.part("combined", "groups", "remember")
def test_what_takes_long_or_writes_goes_alone() -> None:
    async def ask() -> None:
        await RANKING.acount()
        with mock.patch.object(pipelines.Pipelines, "send", side_effect=AssertionError):
            await RANKING.atop(100)
            await RANKING.arecommend(7, n=100)
            await RANKING.arecommend(7, remember=timedelta(minutes=1))
            await RANKING.filter(group="none").acount()

    asyncio.run(ask())


def test_whoever_cancels_all_tasks_leaves_nobody_waiting(waiting: Redis) -> None:
    async def ask() -> None:
        await RANKING.acount()
        waiting.client_pause(60_000, all=False)  # type: ignore[no-untyped-call]
        asking = [asyncio.create_task(RANKING.aentry(pk)) for pk in range(1, 101)]
        senders = (await loops.running_loop()).clients["zrank", 0].pipelines._senders  # type: ignore[union-attr]
        await until(lambda: len(senders) == 4)
        for sender in senders:
            sender.cancel()
        await asyncio.wait(asking[1:], timeout=20)
        waiting.client_unpause()  # type: ignore[no-untyped-call]
        assert (await asking[0]).pk == 1
        assert all(task.cancelled() for task in asking[1:])
        assert await entries(range(1, 41)) == [*range(1, 41)]

    asyncio.run(ask())


def test_senders_that_are_cancelled_before_they_begin() -> None:
    async def ask() -> None:
        await RANKING.acount()
        asking = [asyncio.create_task(RANKING.aentry(pk)) for pk in range(1, 101)]
        senders = (await loops.running_loop()).clients["zrank", 0].pipelines._senders  # type: ignore[union-attr]
        while not senders:
            await asyncio.sleep(0)
        for task in (*senders, *asking):
            task.cancel()
        await asyncio.wait(asking, timeout=20)
        async with asyncio.timeout(20):
            assert await entries(range(1, 41)) == [*range(1, 41)]

    asyncio.run(ask())


def test_each_loop_has_its_connections_and_closes_them(waiting: Redis) -> None:
    both = threading.Barrier(2)
    pools: list[Any] = []

    async def ask() -> None:
        assert await RANKING.arank(7) == 7
        mine = await pool()
        pools.append(mine)
        await asyncio.to_thread(both.wait, 20)
        assert await RANKING.arank(8) == 8
        assert any(one.is_connected for one in mine._available_connections)

    threads = [threading.Thread(target=asyncio.run, args=(ask(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(one) for one in pools}) == 2
    assert not any(one.is_connected for each in pools for one in each._available_connections)
    assert loops._loops == {}
    asyncio.run(ask_again())


async def ask_again() -> None:
    assert await RANKING.arank(9) == 9


def test_a_forked_process_has_connections_of_its_own() -> None:
    async def ask() -> int:
        await RANKING.acount()
        parent = {id(one) for one in (await pool())._available_connections}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            status = 1
            try:
                status = asyncio.run(in_child(parent))
            finally:
                os._exit(status)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert await RANKING.arank(5) == 5
        return os.waitstatus_to_exitcode(status)

    async def in_child(parent: set[int]) -> int:
        signal.alarm(60)  # The look at the health takes asgiref's thread, which the parent has used.
        assert await RANKING.arank(4) == 4
        return int(bool(parent & {id(one) for one in (await pool())._available_connections}))

    assert asyncio.run(ask()) == 0


def test_other_settings_have_other_connections(waiting: Redis, settings: Any) -> None:
    async def ask() -> None:
        await RANKING.acount()
        before = await pool()
        settings.CACHES = {**settings.CACHES, "zrank": {**settings.CACHES["zrank"]}}
        assert await RANKING.arank(5) == 5
        assert await pool() is not before
        assert not any(one.is_connected for one in before._available_connections)

    asyncio.run(ask())


def test_a_rebuild_is_put_in_place_between_two_reads() -> None:
    async def ask() -> None:
        assert await RANKING.arank(100) == 100
        await asyncio.to_thread(populate, Waiting, {pk: {"level": pk} for pk in range(91, 101)})
        assert await RANKING.arank(100) == 10
        assert [entry.pk async for entry in RANKING] == [*range(91, 101)]

    asyncio.run(ask())


def test_a_loop_looks_at_the_server_of_its_own_connections() -> None:
    async def ask() -> None:
        assert [await RANKING.acount() for _ in range(3)] == [100, 100, 100]

    with mock.patch.object(reader, "may_be_believed", side_effect=reader.may_be_believed) as looked:
        assert RANKING.count() == 100
        asyncio.run(ask())
        assert RANKING.count() == 100
    assert looked.call_count == 2


def test_all_replicas_are_asked(settings: Any) -> None:
    use_redis(settings, "redis://there:1,redis://there:2,redis://there:3")

    async def ports() -> set[int]:
        loop = await loops.running_loop()
        found = [await loop.client("zrank", write=False) for _ in range(200)]
        return {one.redis.connection_pool.connection_kwargs["port"] for one in found}  # type: ignore[union-attr]

    assert asyncio.run(ports()) == {2, 3}


# What goes wrong


def test_a_build_of_another_declaration_that_is_put_in_place(waiting: Redis) -> None:
    async def ask() -> None:
        assert await RANKING.arank(7) == 7
        keys = RANKING._reader.keys
        live, other = RANKING._reader.live, keys.at("00000000-another")
        waiting.rename(live.root, other.root)
        waiting.hset(keys.meta, "build", other.build)
        for verb in (RANKING.arank, RANKING.aentry):
            with pytest.raises(NotBuilt):
                await verb(7)

    asyncio.run(ask())


def refusals(ask: Callable[[], Awaitable[Any]], times: int = 3) -> list[Any]:
    async def run() -> list[Any]:
        return await asyncio.gather(*(ask() for _ in range(times)), return_exceptions=True)

    return asyncio.run(run())


def test_a_server_that_is_down(settings: Any) -> None:
    use_redis(settings, f"redis://127.0.0.1:{free_port()}/0")
    assert {type(one) for one in refusals(RANKING.acount)} == {IndexUnavailable}


@pytest.mark.slow
def test_a_server_that_hangs(waiting: Redis, settings: Any) -> None:
    use_redis(settings, settings.CACHES["zrank"]["LOCATION"], SOCKET_TIMEOUT=0.1)
    waiting.client_pause(60_000, all=False)  # type: ignore[no-untyped-call]
    try:
        assert {type(one) for one in refusals(RANKING.acount)} == {IndexUnavailable}
    finally:
        waiting.client_unpause()  # type: ignore[no-untyped-call]
    assert asyncio.run(count()) == 100


async def count() -> int:
    return await RANKING.acount()


@pytest.mark.part("sql")
@pytest.mark.django_db
def test_the_database_answers_in_its_place(settings: Any) -> None:
    Player.objects.bulk_create(Player(level=level) for level in range(5))
    settings.ZRANK = {"UNHEALTHY": "database"}
    use_redis(settings, f"redis://127.0.0.1:{free_port()}/0")
    assert async_to_sync(RANKING.acount)() == 5
    assert len(async_to_sync(RANKING.atop)(3)) == 3


# The settings of the alias


@pytest.fixture
def server(waiting: Redis) -> Iterator[RedisServer]:
    with RedisServer(waiting.info("server")["executable"]) as running:
        yield running


def test_a_password(server: RedisServer, settings: Any) -> None:
    with Redis.from_url(server.url) as client:
        client.config_set("requirepass", "a secret")
    use_redis(settings, server.url)
    assert [type(one) for one in refusals(RANKING.acount, 1)] == [IndexUnavailable]
    use_redis(settings, server.url.replace("127.0.0.1", "localhost"), PASSWORD="a secret")
    populate(Waiting, {1: {"level": 1}})
    assert asyncio.run(count()) == 1


@pytest.mark.parametrize(
    ("url", "kind", "options"),
    [
        ("redis://ann:pw@there:7/2", "Connection", {"username": "ann", "password": "pw", "port": 7, "db": 2}),
        (
            "rediss://there?ssl_cert_reqs=none",
            "SSLConnection",
            {"ssl_cert_reqs": "none", "socket_timeout": 3},
        ),
        ("unix:///run/redis.sock?db=1", "UnixDomainSocketConnection", {"path": "/run/redis.sock", "db": 1}),
    ],
)
def test_connections_are_made_alike(url: str, kind: str, options: dict[str, Any], settings: Any) -> None:
    use_redis(settings, url, SOCKET_TIMEOUT=3, CONNECTION_POOL_KWARGS={"max_connections": 7})

    async def made() -> Any:
        return (await (await loops.running_loop()).client("zrank")).redis.connection_pool  # type: ignore[union-attr]

    found = asyncio.run(made())
    assert (found.connection_class.__name__, found.max_connections) == (kind, 7)
    assert {name: found.connection_kwargs[name] for name in options} == options
    found.make_connection()  # takes all of them
