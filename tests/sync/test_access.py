"""Accounts of Redis with few rights, as docs/deploy.md says under TLS, passwords, users."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from django_zrank import IndexUnavailable
from django_zrank.sync.health import Status, examine
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from tests.servers import RedisServer
from tests.sync.conftest import use_redis
from tests.sync.mirror import contents
from tests.testapp.models import Competitor, Player
from tests.testapp.zrank import CompetitorRank, PlayerAscending

pytestmark = pytest.mark.django_db(transaction=True)

INDEX = PlayerAscending.instance()
SAFE = ["+@all", "-@dangerous"]


def log_in(settings: Any, server: RedisServer, commands: list[str]) -> None:
    """Keep the indexes on ``server``, as an account that may use these commands."""
    with Redis.from_url(server.url) as client:
        client.acl_setuser("app", enabled=True, passwords=["+secret"], keys="*", commands=commands)
    use_redis(settings, server.url.replace("redis://", "redis://app:secret@"))


@pytest.mark.part("combined", "groups")
def test_an_account_without_dangerous_commands_needs_info(own_server: RedisServer, settings: Any) -> None:
    log_in(settings, own_server, [*SAFE, "+info"])
    Player.objects.bulk_create(Player(level=level) for level in range(20))
    rebuild(INDEX)
    player = Player.objects.create(level=100)  # is pushed
    assert PlayerAscending.ranking.rank(player) == 21
    PlayerAscending.group("online").add(player)
    assert PlayerAscending.ranking.filter(group="online").count() == 1
    Player.objects.filter(pk=player.pk).update(level=-1)
    assert sync(INDEX).marks
    assert PlayerAscending.ranking.rank(player) == 1
    assert verify(INDEX).ok
    assert examine(INDEX) is Status.HEALTHY


def test_without_info_it_is_refused(own_server: RedisServer, settings: Any) -> None:
    log_in(settings, own_server, SAFE)
    with pytest.raises(IndexUnavailable, match=r"(?i)permission|can't run this command"):
        rebuild(INDEX)


@pytest.mark.parametrize("command", ["zadd", "zrem"])
def test_a_write_that_would_be_refused_half_way_changes_nothing(
    own_server: RedisServer, settings: Any, command: str
) -> None:
    """A script would end at the first command that its account may not use, with what it has written until then."""
    log_in(settings, own_server, ["+@all"])
    rows = [Competitor(points=at, region="ab"[at % 2]) for at in range(20)]
    Competitor.objects.bulk_create(rows)
    sync(CompetitorRank)
    log_in(settings, own_server, ["+@all", f"-{command}"])
    rows[0].points, rows[0].region = 100, "c"
    held = contents(CompetitorRank)
    rows[0].save()
    assert contents(CompetitorRank) == held
    assert examine(CompetitorRank.instance()) is Status.HEALTHY
    log_in(settings, own_server, ["+@all"])
    sync(CompetitorRank)
    assert examine(CompetitorRank.instance()) is Status.HEALTHY
    assert verify(CompetitorRank.instance()).ok
