"""A server that was rolled back with its memory: the same process, with the same history, and older data."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db.models import F
from redis import Redis

from django_zrank import IndexUnavailable
from tests.dumps import dump, restore
from tests.servers import wait_for
from tests.testapp.models import Player, Video
from tests.testapp.zrank import PlayerAscending, VideoRank

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "ascending"


def status() -> str:
    out = StringIO()
    call_command("zrank_status", NAME, "--json", stdout=out)
    return str(json.loads(out.getvalue())[NAME]["status"])


@pytest.fixture
def rolled_back(zrank: Redis, settings: Any) -> Any:
    """A server that lacks a write whose batch is deleted by now, and an erasure that deletes it."""
    settings.ZRANK = {"KEEP_MARKS": 0}
    Player.objects.bulk_create(Player(level=level) for level in range(10))
    call_command("rebuild_zrank", NAME, verbosity=0)
    call_command("sync_zrank", NAME, verbosity=0)
    held = dump(zrank)
    Player.objects.update(level=F("level") + 100)
    call_command("sync_zrank", NAME, verbosity=0)
    # Which also deletes what is kept for replays.
    call_command("erase_zrank", NAME, "12345", verbosity=0)
    restore(zrank, held)


@pytest.mark.part("erase")
@pytest.mark.usefixtures("rolled_back")
def test_a_server_that_was_rolled_back_is_rebuilt_though_its_identity_is_the_same() -> None:
    assert status() == "WRITES_LOST"
    call_command("sync_zrank", NAME, verbosity=0)
    assert status() == "HEALTHY"
    call_command("verify_zrank", NAME, verbosity=0)
    assert PlayerAscending.ranking.top(1)[0].score == 100


@pytest.mark.part("erase")
@pytest.mark.usefixtures("rolled_back")
def test_it_is_not_read_and_nothing_is_pushed_that_would_hide_what_is_missing() -> None:
    wait_for(is_refused)
    player = Player.objects.earliest("pk")
    for level in range(30):
        player.level = level
        player.save()
    assert status() == "WRITES_LOST"
    call_command("sync_zrank", NAME, verbosity=0)
    assert status() == "HEALTHY"
    call_command("verify_zrank", NAME, verbosity=0)


def is_refused() -> bool:
    try:
        PlayerAscending.ranking.top(3)
    except IndexUnavailable:
        return True
    return False


@pytest.mark.part("write_behind")
def test_flushed_scores_are_not_counted_again(zrank: Redis) -> None:
    """What was flushed is pending again. Further changes hide that the server is behind."""
    videos = Video.objects.bulk_create(Video(views=5) for _ in range(3))
    call_command("rebuild_zrank", "video", verbosity=0)
    call_command("sync_zrank", "video", verbosity=0)
    VideoRank.scores.increment(videos[0], 100)
    held = dump(zrank)
    call_command("sync_zrank", "video", verbosity=0)
    restore(zrank, held)
    for views in range(10, 20):
        videos[1].views = views
        videos[1].save()
    for _ in range(2):
        call_command("sync_zrank", "video", verbosity=0)
    assert Video.objects.get(pk=videos[0].pk).views == 105
    assert VideoRank.ranking.score(videos[0]) == 105
    call_command("verify_zrank", "video", verbosity=0)


def test_what_is_saved_afterwards_hides_no_lost_write(zrank: Redis) -> None:
    """Batches are kept: what the server lacks is replayed."""
    players = Player.objects.bulk_create(Player(level=level) for level in range(10))
    call_command("rebuild_zrank", NAME, verbosity=0)
    call_command("sync_zrank", NAME, verbosity=0)
    held = dump(zrank)
    for n, player in enumerate(players[:3]):
        Player.objects.filter(pk=player.pk).update(level=1000 + n)
        call_command("sync_zrank", NAME, verbosity=0)
    restore(zrank, held)
    for level in range(50, 60):
        players[5].level = level
        players[5].save()
    assert status() != "HEALTHY"
    call_command("sync_zrank", NAME, verbosity=0)
    assert status() == "HEALTHY"
    call_command("verify_zrank", NAME, verbosity=0)
    assert [PlayerAscending.ranking.score(player) for player in players[:3]] == [1000, 1001, 1002]


def test_a_drain_notes_nothing_on_a_server_that_lacks_writes(zrank: Redis) -> None:
    """Its marks wait for the replay, after which they are processed."""
    players = Player.objects.bulk_create(Player(level=level) for level in range(3))
    call_command("rebuild_zrank", NAME, verbosity=0)
    call_command("sync_zrank", NAME, verbosity=0)
    held = dump(zrank)
    Player.objects.filter(pk=players[0].pk).update(level=1000)
    call_command("sync_zrank", NAME, verbosity=0)
    restore(zrank, held)
    for level in range(50, 60):  # each save processes marks, too
        Player.objects.filter(pk=players[1].pk).update(level=level)
        players[2].level = level
        players[2].save()
    assert status() != "HEALTHY"
    call_command("sync_zrank", NAME, verbosity=0)
    assert status() == "HEALTHY"
    call_command("verify_zrank", NAME, verbosity=0)


def test_a_server_that_lacks_nothing_stays_healthy(zrank: Redis) -> None:
    """Marks wait for what it has lost."""
    players = Player.objects.bulk_create(Player(level=level) for level in range(3))
    call_command("rebuild_zrank", NAME, verbosity=0)
    Player.objects.filter(pk=players[0].pk).update(level=1000)
    call_command("sync_zrank", NAME, verbosity=0)
    held = dump(zrank)
    Player.objects.filter(pk=players[1].pk).update(level=2000)
    restore(zrank, held)
    assert status() == "HEALTHY"
    call_command("sync_zrank", NAME, verbosity=0)
    assert PlayerAscending.ranking.score(players[1]) == 2000
