"""A project's tests leave its Redis alone, and have one of their own where they want it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
import redis

from django_zrank.testing import EmbeddedServer
from tests.keyspace import whole
from tests.projects import Project, documented, is_closed
from tests.servers import wait_for
from tests.test_docs import MODELS as PAGE_MODELS
from tests.test_docs import declared

pytestmark = pytest.mark.slow

PLAIN = """
from io import StringIO
from django.test import TestCase, TransactionTestCase
from django.core.management import CommandError, call_command
from django_zrank.exceptions import NotIsolated
from django_zrank.testing import reset, sync_now
from players.models import Player
from players.zrank import PlayerRank

class Plain(TestCase):
    def test_a_row_that_is_saved_on_commit(self):
        with self.captureOnCommitCallbacks(execute=True):
            Player.objects.create(level=99)

    def test_what_would_rebuild_the_index(self):
        for call in (sync_now, reset):
            with self.assertRaisesRegex(NotIsolated, "CACHES.*TEST_LOCATION"):
                call()

    def test_what_is_not_pushed_by_a_save(self):
        with self.assertRaises(NotIsolated):
            PlayerRank.group("online").add(1)

class Committing(TransactionTestCase):
    def test_a_row_that_is_saved(self):
        player = Player.objects.create(level=99)
        Player.objects.filter(pk=player.pk).update(level=100)
        player.delete()

    def test_commands(self):
        for command in ("rebuild_zrank", "sync_zrank", "verify_zrank"):
            with self.assertRaises(CommandError):
                call_command(command, verbosity=0, stderr=StringIO())
"""

MIXED = """
import os
from pathlib import Path
from django.test import SimpleTestCase, TestCase, TransactionTestCase
from django_zrank.testing import ZRankTestMixin, sync_now
from players.models import Player
from players.zrank import PlayerRank

class Noted:
    def setUp(self):  # without super()
        port = self.zrank.connection_pool.connection_kwargs["port"]
        Path("servers", f"{os.getpid()}-{port}").touch()

class InATransaction(Noted, ZRankTestMixin, TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.player = Player.objects.create(level=5)

    def test_what_was_set_up_is_ranked(self):
        self.assertEqual(PlayerRank.ranking.rank(self.player), 1)
        better = Player.objects.create(level=6)
        sync_now()
        self.assertEqual(PlayerRank.ranking.rank(self.player), 2)

    def test_nothing_is_left_of_another_test(self):
        with self.captureOnCommitCallbacks(execute=True):
            Player.objects.create(level=7)
        self.assertEqual(PlayerRank.ranking.count(), 2)

class Committed(Noted, ZRankTestMixin, TransactionTestCase):
    def test_what_is_saved_is_pushed(self):
        player = Player.objects.create(level=5)
        self.assertEqual(PlayerRank.ranking.rank(player), 1)
        self.assertEqual(PlayerRank.ranking.count(), 1)

    def test_nothing_is_left_of_another_test(self):
        self.assertEqual(PlayerRank.ranking.count(), 0)

class SetUpByItsClass(Noted, ZRankTestMixin, TransactionTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        Player.objects.bulk_create([Player(level=5)])  # sends no signal

    def test_what_was_set_up_is_ranked(self):
        self.assertEqual(PlayerRank.ranking.count(), 1)

class WithoutDatabase(Noted, ZRankTestMixin, SimpleTestCase):
    def test_an_empty_ranking(self):
        PlayerRank.group("online").add(1)
        self.assertEqual(PlayerRank.group("online").count(), 1)
"""


SAVED = """
import pytest
from players.models import Player
from players.zrank import PlayerRank

@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("level", [5, 6])
def test_a_saved_player_is_first(zrank, zrank_server, level):
    assert str(zrank.connection_pool.connection_kwargs["port"]) in zrank_server.url
    player = Player.objects.create(level=level)
    assert PlayerRank.ranking.rank(player) == PlayerRank.ranking.count() == 1
"""


@pytest.fixture(scope="module")
def live() -> Iterator[EmbeddedServer]:
    """The Redis of a project's site."""
    with EmbeddedServer() as server:
        yield server


@pytest.fixture(scope="module")
def site(live: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("site"), live.url)


@pytest.fixture
def project(site: Project, live: EmbeddedServer, tmp_path: Path) -> Iterator[Project]:
    """A copy of the site's folder, to run tests in. Its Redis must hold at the end what it held at the beginning."""
    with redis.Redis.from_url(live.url) as client:
        before = whole(client)
        assert len(before) >= 2
        yield site.copy(tmp_path / "copy")
        assert whole(client) == before


# By Django's own runner


def test_plain_tests_write_nothing_into_the_redis_of_the_project(project: Project) -> None:
    said = project.test(PLAIN)
    assert "Ran 5 tests" in said
    assert "zrank.W021" in said


def test_the_mixin(project: Project) -> None:
    said = project.test(MIXED)
    assert "Ran 6 tests" in said
    assert "zrank.W0" not in said
    (port,) = set(project.servers().values())
    wait_for(lambda: is_closed(port))


def test_every_process_has_a_server_of_its_own_that_ends_with_it(project: Project) -> None:
    """Django kills its workers: nothing in them can clear up."""
    copies = "".join(f"\nclass More{number}(InATransaction): pass\n" for number in range(6))
    project.test(MIXED + copies, "--parallel=2")
    servers = project.servers()
    assert len(servers) == len(set(servers.values())) == 2
    wait_for(lambda: all(map(is_closed, servers.values())))


def test_a_redis_that_the_settings_name_for_tests(project: Project, live: EmbeddedServer) -> None:
    """Another database of the same server, say. Keys of others in there are left alone."""
    url = live.url.removesuffix("/0") + "/1"
    with redis.Redis.from_url(url) as client:
        client.set("other", "1")
        project.environment["TEST_REDIS"] = url
        copies = "".join(f"\nclass More{number}(InATransaction): pass\n" for number in range(6))
        project.test(MIXED + copies, "--parallel=2")
        assert set(project.servers().values()) == {int(live.url.split(":")[2].split("/")[0])}
        blocks = documented("docs/testing.md")
        for name in ("conftest.py", "test_opponents.py"):
            (project.folder / name).write_text(blocks[name])
        assert "1 passed" in project.pytest()
        assert client.exists("other")
        assert not client.keys("zrank:*")
        client.flushdb()


# By pytest


def test_plain_tests_by_pytest(project: Project) -> None:
    (project.folder / "test_plain.py").write_text(PLAIN)
    assert "5 passed" in project.pytest("test_plain.py")


def test_the_documents_by_pytest(project: Project) -> None:
    blocks = documented("docs/testing.md")
    for name in ("conftest.py", "test_opponents.py"):
        (project.folder / name).write_text(blocks[name])
    (project.folder / "test_players.py").write_text(blocks["players/tests.py"])
    (project.folder / "test_saved.py").write_text(SAVED)
    assert "4 passed" in project.pytest()


def test_the_mixin_by_pytest(project: Project) -> None:
    (project.folder / "test_mixed.py").write_text(MIXED)
    assert "6 passed" in project.pytest("-n2")
    servers = project.servers()
    assert len(servers) == len(set(servers.values()))
    wait_for(lambda: all(map(is_closed, servers.values())))


def test_the_documents_by_django(project: Project) -> None:
    said = project.test(documented("docs/testing.md")["players/tests.py"])
    assert "Ran 1 test" in said
    assert "OK" in said


# Outside of tests


def test_what_is_for_tests_does_nothing_in_a_shell(project: Project) -> None:
    project.shell(
        dedent("""
            from django_zrank.exceptions import NotIsolated
            from django_zrank.testing import own_redis, reset, sync_now
            for call in (sync_now, reset, own_redis().__enter__):
                try:
                    call()
                except NotIsolated as error:
                    assert "is for tests" in str(error), error
                else:
                    raise AssertionError(call)
        """)
    )


OVERTAKEN = """
import random
from django_zrank.sync.watch import sync
from players.models import Compared, Overtaking, Player
from players.zrank import PlayerRank
import players.overtaken

rng = random.Random(5)
pks = list(Player.objects.values_list("pk", flat=True))
for pk in pks:
    Player.objects.filter(pk=pk).update(points=rng.randrange(40))
Compared.objects.bulk_create(Compared(player=player, points=player.points) for player in Player.objects.all())
sync(PlayerRank)
assert not Overtaking.objects.exists()
found = 0
for step in range(30):
    before = dict(Player.objects.values_list("pk", "points"))
    changed = rng.sample(pks, rng.choice([1, 1, 2, 9]))
    if len(changed) == 1:
        player = Player.objects.get(pk=changed[0])
        player.points += rng.randrange(-5, 20)
        player.save()
    else:
        for pk in changed:
            Player.objects.filter(pk=pk).update(points=rng.randrange(60))
    if len(changed) > 1 or step % 2:
        sync(PlayerRank)
    now = dict(Player.objects.values_list("pk", "points"))
    expected = {
        (winner, loser) for winner in pks for loser in pks if before[winner] < now[loser] < now[winner]
    }
    assert sorted(Overtaking.objects.values_list("winner", "loser")) == sorted(expected)
    assert dict(Compared.objects.values_list("pk", "points")) == now
    found += len(expected)
    Overtaking.objects.all().delete()
print("overtaken", found)
"""


@pytest.mark.parametrize("shards", [1, 3])
def test_who_overtook_whom(shards: int, tmp_path: Path) -> None:
    """The program of docs/howto/overtaken.md against all pairs of rows."""
    own = documented("docs/howto/overtaken.md")
    files = {
        "players/models.py": f"{PAGE_MODELS}\n{own['players/models.py']}",
        "players/zrank.py": f"{own['players/zrank.py']}\n    shards = {shards}\n",
        "players/overtaken.py": own["players/overtaken.py"],
    }
    with EmbeddedServer() as server:
        said = Project(tmp_path, server.url, files).shell(OVERTAKEN)
    assert int(said.removeprefix("overtaken ")) > 50


MATCHING = """
import random, time
from concurrent.futures import ThreadPoolExecutor
from django.contrib.auth.models import User
from django_zrank.sync.watch import sync
from players.models import Player
from players import matchmaking, pairing

rng = random.Random(3)
Player.objects.all().delete()
users = User.objects.bulk_create(User(username=f"player {number}") for number in range(300))
Player.objects.bulk_create(Player(user=user, level=rng.randrange(100)) for user in users)
from players.zrank import PlayerRank
sync(PlayerRank)
players = list(Player.objects.order_by("pk"))
matches, times = [], []

def play(own):
    for player in own:
        matchmaking.join(player)
        began = time.monotonic()
        # The threads see to all who wait: those who are left over wait for somebody to come.
        while time.monotonic() - began < 5 and player.pk in matchmaking.waiting:
            found = matchmaking.match(player, 4 * (time.monotonic() - began))
            if found:
                matches.append(found)
            time.sleep(0.01)
        times.append(time.monotonic() - began)

with ThreadPoolExecutor(10) as threads:
    list(threads.map(play, [players[at:200:10] for at in range(10)]))
played = [pk for pair in matches for pk in pair]
assert len(played) == len(set(played)), "somebody is in two matches"
assert len(played) == 200 - matchmaking.waiting.count() > 180
times.sort()
print(f"seconds to a match: median {times[100]:.2f}, 95 % {times[190]:.2f}, longest {times[-1]:.2f}")

matchmaking.waiting.clear()
assert matchmaking.match(players[0], 60) is None
for player in players[200:]:
    matchmaking.join(player)
four = matchmaking.match(players[200], 60, size=4)
assert len(four) == len(set(four)) == 4 and players[200].pk in four
assert not matchmaking.leave(players[200])
assert matchmaking.leave(next(player for player in players[200:] if player.pk not in four))
pairs = list(pairing.match_everybody(100))
paired = [pk for pair in pairs for pk in pair]
assert len(paired) == len(set(paired)) > 60
assert not set(paired) & set(four)
assert matchmaking.waiting.count() == 100 - 5 - len(paired)

banned, late = players[0], players[1]
matchmaking.waiting.clear()
matchmaking.join(banned)
PlayerRank.model.objects.filter(pk=banned.pk).delete()
assert matchmaking.match(banned, 60) is None
assert banned.pk not in matchmaking.waiting
matchmaking.join(late)
matchmaking.join(banned)
assert matchmaking.match(late, 60) is None
assert late.pk in matchmaking.waiting

import json
from django.test import RequestFactory
from players import games
from players.models import Game

def play(player):
    request = RequestFactory().post("/play/")
    request.user = player.user if player else User.objects.create(username="no player")
    response = games.play(request)
    return response.status_code, json.loads(response.content).get("game")

matchmaking.waiting.clear()
one, two, three, four = Player.objects.select_related("user").order_by("level", "pk")[:4]
assert play(one) == (200, None)
assert one.pk in matchmaking.waiting
status, game = play(two)
assert game and status == 200
assert play(one) == play(two) == (200, game)
assert not {one.pk, two.pk} & {*matchmaking.waiting}
assert play(None) == (404, None)
matchmaking.join(one)  # its browser had not heard of the game
assert play(three) == (200, None)
assert Game.objects.count() == 1
assert one.pk not in matchmaking.waiting
assert play(three) == (200, None)
assert play(four)[1] not in (None, game)
assert play(three) == play(four)
print("matched", len(matches), "in a batch", len(pairs))
"""


def sharded(module: str, shards: int) -> str:
    """A module that declares ``PlayerRank`` among others, with so many shards for this one."""
    head, line, rest = module.partition("class PlayerRank(RankIndex):\n")
    assert line
    return f"{head}{line}    shards = {shards}\n{rest}"


@pytest.mark.parametrize("shards", [1, 3])
def test_matchmaking(shards: int, tmp_path: Path) -> None:
    """The programs of docs/howto/matchmaking.md: 200 players in 10 threads, none of them twice."""
    own = documented("docs/howto/matchmaking.md")
    files = {
        "players/models.py": f"{PAGE_MODELS}\n{own['players/models.py']}",
        "players/zrank.py": sharded(
            declared("docs/leaderboards.md").replace("    band =", '    owner = "user"\n    band ='), shards
        ),
        "players/matchmaking.py": own["players/matchmaking.py"],
        "players/games.py": own["players/games.py"],
        "players/pairing.py": own["players/pairing.py"],
    }
    with EmbeddedServer() as server:
        sys.stdout.write(Project(tmp_path, server.url, files).shell(MATCHING))  # shown by pytest -s


PARTIES = """
import random
from django_zrank.sync.watch import sync
from datetime import timedelta
from players import parties
from players.models import Party, Player
from players.zrank import PartyRank

parties.STAY = timedelta(hours=1)  # however busy the machine is
rng = random.Random(5)
Player.objects.all().delete()
Player.objects.bulk_create(Player(level=rng.randrange(60)) for number in range(900))
players = sorted(Player.objects.all(), key=lambda player: player.level + rng.random() * 9)  # friends are alike
formed = []
while players:
    size = min(len(players), rng.choice([1, 1, 1, 2, 2, 3, 4, 5]))
    formed.append(parties.form(players[:size]))
    players = players[size:]
sync(PartyRank)
rng.shuffle(formed)
for party in formed:
    assert party.size == party.seats.count()
    assert PartyRank.ranking.score(party) == sum(seat.player.level for seat in party.seats.all()) / party.size
    parties.join(party)
print(len(formed))
"""

PARTY_WORKER = """
import json, os, random
from datetime import timedelta
from players import parties
from players.models import Party

parties.STAY = timedelta(hours=1)
put_back = 0
add = type(parties.waiting).add
def counting(self, members, **how):
    global put_back
    put_back += 1
    return add(self, members, **how)
type(parties.waiting).add = counting

everybody, matches = list(Party.objects.all()), []
print("ready", flush=True)
input()  # until all workers are there
for waited in (0, 10, 20, 30):
    random.Random(os.getpid()).shuffle(everybody)
    for party in everybody:
        if party.pk in parties.waiting and (teams := parties.match(party, waited)):
            matches.append((waited, teams))
print(json.dumps([matches, put_back]))
"""

PARTIES_LEFT = """
import json, random, sys
from django_zrank.sync.watch import sync
from django.utils import timezone
from datetime import timedelta
from players import parties
from players.models import Party
from players.zrank import PartyRank

parties.STAY = timedelta(hours=1)
by_pk, outcomes = Party.objects.in_bulk(), json.loads(sys.stdin.read())
reach = {0: 3, 10: 6, 20: 12, 30: 25}
played, matches = [], [match for found, _ in outcomes for match in found]
for waited, teams in matches:
    first = by_pk[teams[0][0]]
    for team in teams:
        assert sum(by_pk[pk].size for pk in team) == 5, teams
        assert all(abs(by_pk[pk].level - first.level) <= reach[waited] for pk in team)
        played += team
assert len(played) == len(set(played)), "a party is in two matches"
seats = [seat.player_id for pk in played for seat in by_pk[pk].seats.all()]
assert len(seats) == len(set(seats)) == 10 * len(matches)
waiting = set(parties.waiting)
assert waiting | set(played) == set(by_pk), "a party is lost"
assert not waiting & set(played)

# Nobody who is left could have been matched: compared with all ways to choose among those in reach.
def fills(sizes, *free):
    found = {(0,) * len(free)}
    for size in sizes:
        found |= {(*one[:at], one[at] + size, *one[at + 1 :]) for one in found for at in range(len(free))}
    return free in found

def in_reach(there, level, reach):
    return [by_pk[pk].size for pk in there if abs(by_pk[pk].level - level) <= reach]

rng = random.Random(6)
now, moment = timezone.now, timezone.now()
Party.objects.update(queued_at=moment - timedelta(seconds=25))
timezone.now = lambda: moment  # however busy the machine is
for size in range(7, 67, 3):
    parties.waiting.clear()
    waiting = set(rng.sample(sorted(by_pk), size))
    for pk in waiting:
        parties.stay(by_pk[pk])
    more = True
    while more:
        ways = [fills(in_reach(waiting - {pk}, by_pk[pk].level, 12), 5 - by_pk[pk].size, 5) for pk in waiting]
        more, left = parties.match_everybody()
        assert bool(more) == any(ways)
        waiting -= {pk for teams in more for team in teams for pk in team}
        assert {party.pk for party in left} == waiting
        assert all(waited == 25 for waited in left.values())
    assert waiting
timezone.now = now

# Places of matches that run.
for _ in range(60):
    parties.waiting.clear()
    there = rng.sample(sorted(by_pk), 12)
    for pk in there:
        parties.stay(by_pk[pk])
    level, free = rng.randrange(60), rng.randrange(1, 6)
    waited = rng.choice([0, 30])
    found = parties.backfill(level, free, waited)
    assert (found is not None) == fills(in_reach(there, level, reach[waited]), free)
    if found:
        assert sum(by_pk[pk].size for pk in found) == free
        assert set(there) - set(parties.waiting) == set(found)

# Those that change or are deleted between the draw and the claim.
five, other, alone = (Party.objects.create(level=200, size=size) for size in (5, 5, 1))
sync(PartyRank)
claim = type(parties.waiting).claim
parties.waiting.clear()
for change, left in (
    (lambda: Party.objects.filter(pk=other.pk).update(size=4), {five.pk, other.pk}),
    (lambda: Party.objects.filter(pk=other.pk).delete(), {five.pk}),
    (lambda: parties.leave(other), {five.pk}),
):
    Party(pk=other.pk, level=200, size=5).save()
    sync(PartyRank)
    parties.waiting.add(five, other)
    def changing(self, *members):
        type(self).claim = claim
        change()
        sync(PartyRank)
        return claim(self, *members)
    type(parties.waiting).claim = changing
    assert parties.match(five, 0) is None
    assert set(parties.waiting) == left
    parties.waiting.clear()
parties.stay(five)
five.delete()
sync(PartyRank)
assert parties.match(Party(pk=max(by_pk) + 1, level=200, size=5), 0) is None
print(f"{len(matches)} matches by {len(outcomes)} workers,", sum(back for _, back in outcomes), "claims put back;")
"""


@pytest.mark.parametrize("shards", [1, 3])
def test_parties(shards: int, tmp_path: Path) -> None:
    """The program of docs/howto/parties.md: three processes match at once, and no party plays twice or is lost."""
    own = documented("docs/howto/parties.md")
    index = own["players/zrank.py"].rstrip()
    files = {
        "players/models.py": f"{PAGE_MODELS}\n{own['players/models.py']}",
        "players/zrank.py": f"{index}\n    shards = {shards}\n",
        "players/parties.py": own["players/parties.py"],
    }
    with EmbeddedServer() as server:
        project = Project(tmp_path, server.url, files)
        assert int(project.shell(PARTIES)) > 300
        workers = [project.start(PARTY_WORKER) for _ in range(3)]
        assert {worker.stdout.readline() for worker in workers} == {"ready\n"}
        for worker in workers:
            worker.stdin.write("begin\n")
            worker.stdin.flush()
        outcomes = [worker.communicate(timeout=120) for worker in workers]
        assert not any(worker.returncode for worker in workers), outcomes
        found = f"[{','.join(said for said, _ in outcomes)}]"
        sys.stdout.write(project.shell(PARTIES_LEFT, found))  # shown by pytest -s
