"""Redis's own doings: it evicts keys when memory is short, and its clock may jump."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from redis import Redis

from django_zrank import RankIndex
from django_zrank.exceptions import IndexUnavailable
from django_zrank.models import Batch, Mark
from django_zrank.sync.drain import drain
from django_zrank.sync.health import Status, examine
from django_zrank.sync.marks import waiting_marks
from django_zrank.sync.rebuild import rebuild
from tests.sync.conftest import refused_within
from tests.sync.mirror import assert_mirrors
from tests.sync.processes import manage
from tests.testapp.models import Competitor, Player
from tests.testapp.zrank import CompetitorRank, PlayerAscending

pytestmark = pytest.mark.django_db(transaction=True)

INDEX, FACETED = PlayerAscending.instance(), CompetitorRank.instance()

_YEAR = 365 * 24 * 3600


@pytest.fixture(autouse=True)
def built(zrank: Redis) -> None:
    Player.objects.bulk_create([Player(level=level) for level in range(10)])
    Competitor.objects.bulk_create(
        Competitor(points=points % 3, region="kantou", platform="pc") for points in range(10)
    )
    Mark.objects.all().delete()
    rebuild(INDEX)
    rebuild(FACETED)


def sync(index: str) -> None:
    call_command("sync_zrank", index, stdout=StringIO(), stderr=StringIO())


def key_of(client: Redis, index: str, part: str = "") -> str:
    """The key of a live index that ends with ``part``: by default the set of all members, which begins all others."""
    found = [key.decode() for key in client.keys(f"*{{{index}}}*")]
    root = min((key for key in found if not key.endswith((":meta", ":recent"))), key=len)
    assert root + part in found
    return root + part


class TestEviction:
    """allkeys-lru: any key may go, at any time."""

    @pytest.mark.parametrize(
        ("index", "part"), [(INDEX, ""), (FACETED, ""), (FACETED, ":memberships"), (FACETED, ":rankings")]
    )
    def test_a_key_of_an_index(self, zrank: Redis, index: RankIndex, part: str) -> None:
        assert zrank.unlink(key_of(zrank, index.name, part)) == 1
        assert examine(index) is not Status.HEALTHY
        sync(index.name)
        assert examine(index) is Status.HEALTHY
        assert_mirrors(type(index))

    def test_the_ranking_of_a_facet(self, zrank: Redis) -> None:
        """There may be any number of them, so not each is looked for at each look."""
        assert zrank.unlink(key_of(zrank, "competitors", ":region:kantou")) == 1
        for _ in range(5):
            with suppress(CommandError):  # noticed at the end of it
                sync("competitors")
        assert_mirrors(CompetitorRank)

    def test_it_is_noticed_though_somebody_wrote_since(self, zrank: Redis) -> None:
        """A push makes the set anew, with one member."""
        zrank.unlink(key_of(zrank, "ascending"))
        Player.objects.earliest("pk").save()
        drain(INDEX)
        assert examine(INDEX) is not Status.HEALTHY
        sync("ascending")
        assert_mirrors(PlayerAscending)

    def test_readers_notice_within_a_second(self, zrank: Redis) -> None:
        assert len(PlayerAscending.ranking.top(10)) == 10
        zrank.unlink(key_of(zrank, "ascending"))
        assert refused_within(2, PlayerAscending, IndexUnavailable)

    def test_an_index_that_became_empty_is_healthy(self, rebuilds: list[RankIndex]) -> None:
        """Redis holds no empty sets: that nobody is ranked is no reason to build it anew."""
        Player.objects.update(level=None)
        Competitor.objects.all().delete()
        for _ in range(2):
            sync("ascending")
            sync("competitors")
        assert rebuilds == []
        assert examine(INDEX) is examine(FACETED) is Status.HEALTHY
        assert list(PlayerAscending.ranking.top(3)) == []
        assert_mirrors(PlayerAscending, CompetitorRank)


class TestClock:
    """The server's clock was a year ahead once, and is right again."""

    @pytest.fixture
    def was_ahead(self, zrank: Redis) -> Callable[[str], None]:
        """Move what the server has noted by its clock, in microseconds, to a year later."""

        def later(number: Any) -> int | None:
            is_time = str(number).isdigit() and abs(int(number) / 1e6 - time.time()) < _YEAR / 12
            return int(number) + _YEAR * 10**6 if is_time else None

        def move(index: str) -> None:
            for key in zrank.keys(f"*{{{index}}}*"):
                if key.endswith(b":meta"):
                    for field, value in zrank.hgetall(key).items():
                        if moved := later(value.decode()):
                            zrank.hset(key, field, moved)
                elif key.endswith(b":recent"):
                    for member, score in zrank.zrange(key, 0, -1, withscores=True):
                        if moved := later(int(score)):
                            zrank.zadd(key, {member: moved})

        return move

    @pytest.mark.slow
    def test_batches_are_purged(self, was_ahead: Callable[[str], None], settings: Any) -> None:
        """By another clock. A process of its own purges at its first drain."""
        was_ahead("ascending")
        Player.objects.update(level=50)
        drain(INDEX)
        assert Batch.objects.filter(index="ascending").exists()
        settings.ZRANK = {"KEEP_MARKS": 0.1}
        time.sleep(1)  # SQLite's clock goes by seconds
        with manage("sync_zrank", "ascending") as process:
            said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert not Batch.objects.filter(index="ascending").exists()

    def test_writes_go_on(self, was_ahead: Callable[[str], None]) -> None:
        Player.objects.update(level=50)
        drain(INDEX)
        was_ahead("ascending")
        player = Player.objects.earliest("pk")
        for level in (60, 70):
            player.level = level
            player.save()
            assert PlayerAscending.ranking.score(player.pk) == level
        sync("ascending")
        assert not waiting_marks(INDEX).exists()
        assert_mirrors(PlayerAscending)

    def test_a_rebuild_that_died_blocks_nobody(self, was_ahead: Callable[[str], None], zrank: Redis) -> None:
        zrank.flushall()
        with manage("rebuild_zrank", "ascending", pause=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "loaded\n"
            process.kill()
        assert examine(INDEX) is Status.BUILDING
        was_ahead("ascending")
        sync("ascending")
        assert examine(INDEX) is Status.HEALTHY
        assert_mirrors(PlayerAscending)
