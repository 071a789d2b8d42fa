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
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "ascending"


def verdict() -> str:
    out = StringIO()
    call_command("zrank_status", NAME, "--json", stdout=out)
    return str(json.loads(out.getvalue())[NAME]["verdict"])


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


@pytest.mark.usefixtures("rolled_back")
def test_a_server_that_was_rolled_back_is_rebuilt_though_its_identity_is_the_same() -> None:
    assert verdict() == "LOST"
    call_command("sync_zrank", NAME, verbosity=0)
    assert verdict() == "HEALTHY"
    call_command("verify_zrank", NAME, verbosity=0)
    assert PlayerAscending.ranking.top(1)[0].score == 100


@pytest.mark.usefixtures("rolled_back")
def test_it_is_not_read_and_nothing_is_pushed_that_would_hide_what_is_missing() -> None:
    wait_for(is_refused)
    player = Player.objects.earliest("pk")
    for level in range(30):
        player.level = level
        player.save()
    assert verdict() == "LOST"
    call_command("sync_zrank", NAME, verbosity=0)
    assert verdict() == "HEALTHY"
    call_command("verify_zrank", NAME, verbosity=0)


def is_refused() -> bool:
    try:
        PlayerAscending.ranking.top(3)
    except IndexUnavailable:
        return True
    return False
