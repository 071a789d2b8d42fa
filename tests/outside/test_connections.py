"""Connections to Redis: calls that a signal interrupts, and calls that have to wait for a connection."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import Cluster
from tests.projects import ROOT, SETTINGS, Project
from tests.servers import RedisServer
from tests.without_parts.parts import PARTS

FILES = {
    # A signal while redis-py takes a connection out of its pool, or puts it back, costs the pool that place.
    "settings.py": f"""{SETTINGS}
CACHES["zrank"]["OPTIONS"] |= {{"SOCKET_TIMEOUT": 20, "CONNECTION_POOL_KWARGS": {{"max_connections": 5000}}}}
""",
    "players/models.py": """
from django.db import models

class Player(models.Model):
    level = models.IntegerField()
    region = models.CharField(max_length=9)
    platform = models.CharField(max_length=9)
""",
    "players/zrank.py": """
from django_zrank import RankIndex, register
from .models import Player

class Ranked(RankIndex):
    model = Player
    order = ("-level",)
    facets = ("region", "platform")
    band = 10

@register
class PlayerRank(Ranked):
    pass

@register
class ShardedRank(Ranked):
    name = "sharded"
    shards = 3
""",
}

LIVE = """
from django.core.management import call_command
from players.models import Player
call_command("migrate", run_syncdb=True, verbosity=0)
Player.objects.bulk_create(Player(level=at, region="ab"[at % 2], platform="xyz"[at % 3]) for at in range(30))
call_command("rebuild_zrank", verbosity=0)
"""

# Python runs the handler of a signal between two of its instructions. So the signal is sent before each line, one after
# the other, that runs from the first byte that a call sends until it returns. The servers stand still from before the
# call until it waits for a reply, or until after the signal the next call sends: no reply comes before that.
STRIKES = """
import asyncio, json, linecache, os, signal, sys
from django_redis import get_redis_connection
from players.zrank import PlayerRank, ShardedRank

PIDS = json.loads(os.environ["PIDS"])
SENDING = "send", "sendall", "sendmsg"

class Struck(BaseException):
    pass

def strike(*args):
    raise Struck

signal.signal(signal.SIGUSR1, strike)
IS_BLOCKING = True

def may_strike(frame):
    name = frame.f_code.co_filename
    if not IS_BLOCKING:  # an event loop, its locks and its tasks don't survive it in the middle of their own code
        return "/redis/asyncio/" in name and "async with" not in linecache.getline(name, frame.f_lineno)
    while frame and "django_zrank" not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None

class Strike:
    def __init__(self, line):
        self.line, self.lines, self.sent, self.is_frozen, self.polls = line, 0, False, False, 0

    def freeze(self, number):
        self.is_frozen = number == signal.SIGSTOP
        for pid in PIDS:
            os.kill(pid, number)

    def trace(self, frame, event, argument):
        if event == "line" and self.sent and self.line and may_strike(frame):
            self.lines += 1
            if self.lines == self.line:
                self.line = 0
                signal.raise_signal(signal.SIGUSR1)
        return self.trace

    def profile(self, frame, event, argument):
        name = getattr(argument, "__name__", "")
        if event == "c_return" and name in SENDING:
            self.sent = True
        if event != "c_call" or not self.is_frozen or not self.sent:
            return
        self.polls += not self.line and name == "poll"
        waits = name in SENDING if not self.line else name in ("recv", "recv_into", "poll")
        if waits or self.polls > 3:  # a coroutine may wait for another one's reply
            self.freeze(signal.SIGCONT)

    def __enter__(self):
        self.freeze(signal.SIGSTOP)
        sys.setprofile(self.profile)
        sys.settrace(self.trace)

    def __exit__(self, *error):
        sys.settrace(None)
        return isinstance(error[1], (Struck, asyncio.CancelledError))  # coroutines send together

    def end(self):
        sys.setprofile(None)
        if self.is_frozen:
            self.freeze(signal.SIGCONT)
        return self.line == 0

group = PlayerRank.group("guests")
spread = ShardedRank.ranking
ranking = PlayerRank.ranking
both = ranking.filter(region="a", platform="x")
CALLS = {
    "one": (lambda: ranking.rank(7), lambda: ranking.arank(7)),
    "several": (lambda: ranking.filter(region="a").count(), lambda: ranking.filter(region="a").acount()),
    "a transaction": (lambda: both.count(), lambda: both.acount()),
    "once": (lambda: group.claim(1), lambda: group.aclaim(1)),
    "a draw": (lambda: ranking.recommend(7), lambda: ranking.arecommend(7)),
    "shards": (lambda: spread.rank(7), lambda: spread.arank(7)),
}
PEERS = [
    (lambda: ranking.rank(9), lambda: ranking.arank(9), 22),
    (lambda: ranking.score(3), lambda: ranking.ascore(3), 2),
]

def peers(kind, line):
    return [[kind, line, got, expected] for call, _, expected in PEERS if (got := call()) != expected]

async def apeers(kind, line):
    return [[kind, line, got, expected] for _, call, expected in PEERS if (got := await call()) != expected]

def blocking(kinds, step, is_new=False):
    wrong, struck = [], 0
    for kind in kinds:
        call, _ = CALLS[kind]
        for line in range(1, 5000, step):
            ranking.rank(1), spread.rank(1), both.count()
            if is_new:
                disconnect()
            strike = Strike(line)
            with strike:
                call()
            try:
                wrong += peers(kind, line)
            finally:
                is_over = not strike.end()
            wrong += peers(kind, line)
            if is_over:
                break
            struck += 1
    return wrong, struck

async def coroutines(kinds, step):
    global IS_BLOCKING
    IS_BLOCKING = False
    wrong, struck = [], 0
    for kind in kinds:
        _, call = CALLS[kind]
        for line in range(1, 5000, step):
            await ranking.arank(1), await spread.arank(1), await both.acount()
            strike = Strike(line)
            with strike:
                await call()
            try:
                wrong += await apeers(kind, line)
            finally:
                is_over = not strike.end()
            wrong += await apeers(kind, line)
            if is_over:
                break
            struck += 1
    return wrong, struck

def disconnect():
    get_redis_connection("zrank").connection_pool.disconnect()
"""
if not PARTS["combined"].is_there:
    STRIKES = STRIKES.replace(', platform="x")', ")")


def strikes(folder: Path, url: str, pids: list[int], run: str, **files: str) -> Any:
    project = Project(folder, url, {**FILES, **files}, live=False)
    project.environment |= {"PIDS": json.dumps(pids), "PYTHONWARNINGS": "ignore"}
    project.shell(LIVE)
    said = project.shell(f"{STRIKES}\nprint('', json.dumps({run}), sep='<reply>')")
    return json.loads(
        said.rpartition("<reply>")[2].splitlines()[0]
    )  # Python also reports those in finalizers


@pytest.mark.parametrize(
    "run",
    [
        "blocking(['one', 'a transaction', 'once'], 4)",
        "asyncio.run(coroutines(['one', 'several', 'once'], 20))",
        pytest.param("blocking(CALLS, 1)", marks=pytest.mark.slow),
        pytest.param("blocking(CALLS, 3, is_new=True)", marks=pytest.mark.slow),
        pytest.param("asyncio.run(coroutines(['one', 'several', 'once'], 3))", marks=pytest.mark.slow),
    ],
)
def test_no_signal_gives_a_call_the_reply_to_another(run: str, redis_binary: str, tmp_path: Path) -> None:
    """Celery's soft time limit and Ctrl-C raise between the sending of a command and the reading of its reply."""
    with RedisServer(redis_binary) as server:
        pid = server.ask("INFO", "server")["process_id"]
        wrong, struck = strikes(tmp_path, server.url.removesuffix("0") + "5", [pid], run)
    assert wrong == []
    assert struck > 30


CLUSTERED = f"""{SETTINGS}
CACHES["zrank"]["OPTIONS"] |= {{
    "CONNECTION_FACTORY": "django_zrank.cluster.ConnectionFactory",
    "CONNECTION_POOL_KWARGS": {{"max_connections": 5000}},
}}
"""


@pytest.mark.slow
@pytest.mark.part("cluster")
def test_no_signal_gives_a_call_of_a_cluster_the_reply_to_another(three: Cluster, tmp_path: Path) -> None:
    pids = [node.ask("INFO", "server")["process_id"] for node in three.nodes]
    wrong, struck = strikes(tmp_path, three.url, pids, "blocking(CALLS, 3)", **{"settings.py": CLUSTERED})
    assert wrong == []
    assert struck > 100


WAITING = """
from threading import Barrier
from concurrent.futures import ThreadPoolExecutor
from django_redis import get_redis_connection
from players.zrank import PlayerRank

def ask(number):
    start.wait()
    return PlayerRank.ranking.rank(number)

PlayerRank.ranking.rank(1)
start = Barrier(12)
with ThreadPoolExecutor(12) as threads:
    get_redis_connection("zrank").execute_command("CLIENT", "PAUSE", 200, "ALL")
    print(sorted(threads.map(ask, range(1, 13))))
"""


def test_threads_wait_for_a_connection_of_a_pool_that_blocks(redis_binary: str, tmp_path: Path) -> None:
    """The settings of docs/async.md."""
    (text,) = re.findall(r"```python\n(CACHES = .*?)```", (ROOT / "docs/async.md").read_text(), re.DOTALL)
    options = f"{SETTINGS}\n{text}\nCACHES['zrank']['LOCATION'] = os.environ['PROJECT_REDIS']\n"
    options = options.replace('"max_connections": 50', '"max_connections": 2')
    with RedisServer(redis_binary) as server:
        project = Project(tmp_path, server.url, {**FILES, "settings.py": options}, live=False)
        project.shell(LIVE)
        assert project.shell(WAITING).strip() == str(list(range(19, 31)))


IMPORTS = """
import asyncio, sys
from players.zrank import PlayerRank

class Finder:
    def find_spec(self, name, *args):
        if asyncio._get_running_loop() is not None:
            imported.append(name)

imported = []
sys.meta_path.insert(0, Finder())

async def ask():
    return await asyncio.gather(*(call() for call in CALLS))

replies = asyncio.run(ask())
print(replies, [name for name in imported if "redis" in name or "zrank" in name])
"""


@pytest.mark.parametrize(
    "calls", ["PlayerRank.ranking.acount, PlayerRank.ranking.acount", "PlayerRank.group('guests').acount"]
)
def test_no_client_is_imported_on_the_event_loop(calls: str, redis_binary: str, tmp_path: Path) -> None:
    with RedisServer(redis_binary) as server:
        project = Project(tmp_path, server.url, FILES, live=False)
        project.shell(LIVE)
        project.environment["PYTHONWARNINGS"] = (
            "ignore"  # a thread that ends leaves its database connection to Python
        )
        said = project.shell(IMPORTS.replace("CALLS", f"[{calls}]"))
    assert said.strip() in ("[30, 30] []", "[0] []")
