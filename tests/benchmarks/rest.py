"""``GET /recommendations/`` over an empty view that asks who you are, and where the time goes.

``python -m tests.benchmarks.rest [--players N] [--rounds N] [--seconds S] [--database NAME] [--json FILE]``

All views authenticate by the session, Django's default, kept in the database: two queries. The only middleware is that
of sessions and users. The database is a file of SQLite, or a private server (``--database postgresql``, ``mariadb``);
connections to it stay open. Everybody has 20 friends, who are not offered.

Rivals, in turns: the empty view; recommendations as ``pk``, ``score`` and ``rank``; the same hydrated by a serializer
of the model; a view written by hand that makes the queries of the hydrated one, with a ``ZRANDMEMBER`` in place of the
draw; a view that serialises ten rows, whose keys it is given, as nothing but REST framework would; the first page of
the leaderboard, ten members as ``pk``, ``score`` and ``rank``; and the same by hand: REST framework's pages of a
``ZCARD`` and a ``ZRANGE``.

*In process*: requests go straight into the WSGI application, with no client or server around it.

*Over HTTP*: latency as a client sees it that connects to one gunicorn worker of the kind ``sync``, and how many
requests a second such a worker answers while two clients ask; the views in turns.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import random
import socket
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from http.client import HTTPConnection
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter, process_time
from types import ModuleType
from typing import Any

import django
from django.conf import settings
from django.db import connection, connections
from django.test import RequestFactory
from django.test.utils import override_settings

from tests.benchmarks.options import parse_options
from tests.benchmarks.pyramid import by_level
from tests.benchmarks.rounds import compare, figures, report, save
from tests.benchmarks.servers import redis_server, tables
from tests.torture.databases import DATABASES

USERS = 200
FRIENDS = 20
TURNS = 5
"""Times that each view is asked for some seconds."""

EMPTY, ENTRIES, HYDRATED = "empty", "recommendations", "recommendations, hydrated"
BY_HAND, ROWS = "the same queries by hand", "ten rows"
BOARD, BOARD_BY_HAND = "leaderboard", "leaderboard by hand"
PATHS = {
    EMPTY: "/empty/",
    ENTRIES: "/recommendations/",
    HYDRATED: "/hydrated/",
    BY_HAND: "/by-hand/",
    ROWS: "/rows/",
    BOARD: "/leaderboard/",
    BOARD_BY_HAND: "/leaderboard-by-hand/",
}
GOAL, BOARD_GOAL = 2.0, 1.1

Get = Callable[[], Any]


def main() -> None:
    options = parse_options(__doc__, players=100_000, rounds=2000, seconds=2.0, database="sqlite")

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zrank-bench-")))
        folder.chmod(0o755)  # a server of a database runs as another user
        database = DATABASES[options.database](folder)
        database.start()
        stack.callback(database.stop)
        os.environ.update(database.environment)
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
        django.setup()
        _, name = stack.enter_context(redis_server())
        stack.enter_context(tables())
        stack.enter_context(override_settings(ROOT_URLCONF=urls(), ALLOWED_HOSTS=["*"]))
        cookies = populate(options.players)
        same = [json.loads(get(PATHS[view], cookies)())["results"] for view in (BOARD, BOARD_BY_HAND)]
        assert same[0] == same[1]
        print(f"{name}, {connection.display_name}, {options.players:,} players, {options.rounds:,} rounds")

        views = {view: get(path, cookies) for view, path in PATHS.items()}
        found: dict[str, Any] = {"in process": compared("latency in process", views, options.rounds)}
        title = "processor time of this process, whatever else the machine does"
        found["processor"] = compared(title, views, options.rounds, process_time)
        if port := stack.enter_context(worker()):
            views = {view: http_get(port, path, cookies) for view, path in PATHS.items()}
            found["HTTP"] = compared("latency over HTTP, one worker", views, options.rounds)
            found["requests a second"] = requests_a_second(port, cookies, options.seconds)
        save(options, server=name, vendor=connection.display_name, **found)


def compared(
    title: str, views: dict[str, Get], rounds: int, clock: Callable[[], float] = perf_counter
) -> dict[str, dict[str, float]]:
    print(f"\n{title}")
    seconds = compare(views, rounds, clock=clock)
    ratios = report(seconds, EMPTY)
    print(f"{HYDRATED}: {ratios[HYDRATED]:.2f} of {EMPTY}, at most {GOAL} wanted")
    board = ratios[BOARD] / ratios[BOARD_BY_HAND]
    print(f"{BOARD}: {board:.2f} of {BOARD_BY_HAND}, at most {BOARD_GOAL} wanted", flush=True)
    return figures(seconds, EMPTY)


def populate(size: int) -> list[str]:
    """Players of the pyramid in the database and in the index; the cookies of some who have signed in."""
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.auth.models import User
    from django.contrib.sessions.backends.db import SessionStore

    from django_zrank.sync.rebuild import rebuild
    from django_zrank.testing import disable_sync
    from tests.testapp.models import Player
    from tests.testapp.zrank import PlayerRank

    levels = [level for _, level in by_level(size)]
    rng = random.Random(1)
    rng.shuffle(levels)
    users = User.objects.bulk_create(User(username=f"user {number}") for number in range(USERS))
    # Where ten are near: up there many would have to widen the band.
    levels[:USERS] = rng.choices(range(11, 21), k=USERS)
    owners = users + [None] * (size - USERS)
    rows = (Player(name=f"player {n}", level=levels[n], user=owners[n]) for n in range(size))
    with disable_sync():
        players = Player.objects.bulk_create(rows, batch_size=500)
        for player in players[:USERS]:
            player.friends.set(rng.sample(players[USERS:], FRIENDS))
    rebuild(PlayerRank.instance())
    with connection.cursor() as cursor:
        cursor.execute({"mysql": "ANALYZE TABLE testapp_player"}.get(connection.vendor, "ANALYZE"))
    cookies = []
    for user in users:
        session = SessionStore()
        session[SESSION_KEY] = str(user.pk)
        session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
        session[HASH_SESSION_KEY] = user.get_session_auth_hash()
        session.save()
        cookies.append(f"{settings.SESSION_COOKIE_NAME}={session.session_key}")
    return cookies


def urls() -> Any:
    """The views."""
    from django.urls import path
    from django_redis import get_redis_connection
    from rest_framework import serializers
    from rest_framework.pagination import PageNumberPagination
    from rest_framework.permissions import IsAuthenticated
    from rest_framework.renderers import JSONRenderer
    from rest_framework.response import Response
    from rest_framework.views import APIView

    from django_zrank.rest_framework.viewsets import LeaderboardViewSet, RecommendationViewSet
    from tests.testapp.models import Player
    from tests.testapp.zrank import PlayerRank

    class PlayerSerializer(serializers.ModelSerializer[Player]):
        class Meta:
            model = Player
            fields = ["name", "level", "bio", "is_active"]

    class Empty(APIView):
        permission_classes = [IsAuthenticated]
        renderer_classes = [JSONRenderer]

        def get(self, request: Any) -> Response:
            return Response({})

    class Rows(Empty):
        keys = cycle(range(1, 1001))

        def get(self, request: Any) -> Response:
            players = Player.objects.in_bulk(list(islice(self.keys, 10)))
            return Response(PlayerSerializer(players.values(), many=True).data)

    @cache
    def root() -> str:
        return PlayerRank.ranking.store.live.root

    class ByHand(Empty):
        def get(self, request: Any) -> Response:
            me = Player.objects.get(is_active=True, level__isnull=False, user=request.user.pk)
            friends = set(me.friends.values_list("pk", flat=True))
            drawn = map(int, get_redis_connection("zrank").zrandmember(root(), 10))
            players = Player.objects.in_bulk([pk for pk in drawn if pk not in friends]).values()
            shown = PlayerSerializer(players, many=True).data
            results = [
                {"pk": player.pk, "score": player.level, **one}
                for player, one in zip(players, shown, strict=True)
            ]
            return Response({"results": results})

    class Members:
        """The sorted set as the list that a paginator slices."""

        def __init__(self) -> None:
            self.redis = get_redis_connection("zrank")

        def count(self) -> int:
            size: int = self.redis.zcard(root())
            return size

        def __getitem__(self, page: slice) -> list[Any]:
            found = self.redis.zrange(root(), page.start, page.stop - 1, desc=True, withscores=True)
            ranked = enumerate(found, page.start + 1)
            return [{"pk": int(pk), "score": int(score), "rank": rank} for rank, (pk, score) in ranked]

    class Ten(PageNumberPagination):
        page_size = 10

    class BoardByHand(Empty):
        def get(self, request: Any) -> Response:
            paginator = Ten()
            page: Any = paginator.paginate_queryset(Members(), request, self)  # type: ignore[arg-type]
            return paginator.get_paginated_response(page)

    class Board(LeaderboardViewSet):
        index = PlayerRank
        renderer_classes = [JSONRenderer]
        pagination_class = Ten

    class Entries(RecommendationViewSet):
        index = PlayerRank
        renderer_classes = [JSONRenderer]

    class Hydrated(Entries):
        serializer_class = PlayerSerializer

    module: Any = ModuleType("tests.benchmarks.rest_urls")
    module.urlpatterns = [
        path("empty/", Empty.as_view()),
        path("by-hand/", ByHand.as_view()),
        path("rows/", Rows.as_view()),
        path("recommendations/", Entries.as_view({"get": "list"})),
        path("hydrated/", Hydrated.as_view({"get": "list"})),
        path("leaderboard/", Board.as_view({"get": "list"})),
        path("leaderboard-by-hand/", BoardByHand.as_view()),
    ]
    return module


def get(path: str, cookies: list[str]) -> Get:
    """A request by somebody else with every call."""
    from django.core.wsgi import get_wsgi_application

    application, whose = get_wsgi_application(), cycle(cookies)
    base = RequestFactory(HTTP_ACCEPT="application/json").get(path).environ

    def ask() -> bytes:
        said: list[str] = []
        environ = {**base, "HTTP_COOKIE": next(whose), "wsgi.input": io.BytesIO()}
        answer = application(environ, lambda status, headers: said.append(status))
        body = b"".join(answer)
        answer.close()
        if said != ["200 OK"]:
            raise SystemExit(f"{path}: {said}, {body!r}")
        return body

    return ask


# Over HTTP


@contextmanager
def worker() -> Iterator[int | None]:
    """The port of a server with one worker. Without gunicorn it says so, and there is none."""
    try:
        from gunicorn.app.base import BaseApplication
    except ImportError:
        print("\nWithout latency over HTTP and requests a second: pip install gunicorn")
        yield None
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    class Worker(BaseApplication):  # type: ignore[misc, unused-ignore]
        def load_config(self) -> None:
            self.cfg.set("bind", f"127.0.0.1:{port}")
            self.cfg.set("workers", 1)
            self.cfg.set("loglevel", "error")
            if "control_socket_disable" in self.cfg.settings:  # of newer versions
                self.cfg.set("control_socket_disable", True)

        def load(self) -> Any:
            from django.core.wsgi import get_wsgi_application

            return get_wsgi_application()

    connections.close_all()
    # By fork: it has the settings and the views that are here.
    server = multiprocessing.get_context("fork").Process(target=lambda: Worker().run())
    server.start()
    try:
        _await(port)
        yield port
    finally:
        server.terminate()
        server.join()


def requests_a_second(port: int, cookies: list[str], seconds: float) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {view: [] for view in PATHS}
    for _ in range(TURNS):
        for view, path in PATHS.items():
            rates[view].append(_rate(port, path, cookies, seconds))
    print(f"\nrequests a second, one worker\n{'':26} {'median':>7} {'min':>7} {'max':>7}  ratio")
    base = statistics.median(rates[EMPTY])
    for view, each in rates.items():
        middle = statistics.median(each)
        print(f"{view:26} {middle:7.0f} {min(each):7.0f} {max(each):7.0f} {middle / base:6.2f}")
    return rates


def http_get(port: int, path: str, cookies: list[str]) -> Get:
    whose = cycle(cookies)
    return lambda: _request(port, path, next(whose))


def _await(port: int) -> None:
    deadline = perf_counter() + 20
    while True:
        try:
            _request(port, PATHS[EMPTY], "")
        except OSError:
            if perf_counter() > deadline:
                raise
            threading.Event().wait(0.05)  # the port opens when it opens
        else:
            return


def _request(port: int, path: str, cookie: str) -> int:
    http = HTTPConnection("127.0.0.1", port, timeout=20)
    http.request("GET", path, headers={"Cookie": cookie, "Accept": "application/json"})
    response = http.getresponse()
    response.read()
    http.close()
    return response.status


def _rate(port: int, path: str, cookies: list[str], seconds: float) -> float:
    """Two clients keep the worker busy: while one reads an answer, another's request waits."""
    ended, counts = perf_counter() + seconds, [0, 0]

    def ask(number: int) -> None:
        for cookie in islice(cycle(cookies), number * USERS // 2, None):
            if perf_counter() > ended:
                break
            if (status := _request(port, path, cookie)) != 200:
                raise RuntimeError(f"{path}: {status}")
            counts[number] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
    began = perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (perf_counter() - began)


if __name__ == "__main__":
    main()
