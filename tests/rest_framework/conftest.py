"""A population, and clients who ask about it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from rest_framework.test import APIClient

from django_zrank.testing import sync_now
from tests.rest_framework.urls import Regional
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerRank


@pytest.fixture(autouse=True)
def _settings(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.rest_framework.urls"
    settings.ZRANK = {"DEFAULT_INDEX": "player"}
    cache.clear()  # The throttles' counts


@pytest.fixture
def django_assert_num_queries(django_assert_num_queries: Any, settings: Any) -> Any:
    """Count what every request costs: not the look at the health of the index, once a second."""
    settings.ZRANK = {**settings.ZRANK, "UNHEALTHY": "serve_stale"}
    return django_assert_num_queries


@pytest.fixture
def user(db: None) -> User:
    return User.objects.create_user("ada", password="a")


@pytest.fixture
def me(zrank: Any, user: User) -> Player:
    """The player of ``user``: level 100 among the levels 80 to 120. In the default band stand 20 others."""
    Player.objects.bulk_create(
        Player(name=f"level {level}", level=level, user=user if level == 100 else None)
        for level in range(80, 121)
    )
    sync_now(PlayerRank)
    return Player.objects.get(user=user)


REGIONS = ("kantou", "kansai", "touhoku", "a,b")


@pytest.fixture
def regions(me: Player) -> list[Player]:
    """The same players, best first, by region and activity. The region of level 100 is ``kantou``."""
    players = list(Player.objects.order_by("-level"))
    for player in players:
        player.bio, player.is_active = REGIONS[player.level % 4], player.level % 3 > 0
    Player.objects.bulk_update(players, ["bio", "is_active"])
    sync_now(Regional)
    return players


@pytest.fixture
def client(user: User) -> APIClient:
    """Signed in as ``user``, with no query for it."""
    client = APIClient()
    client.force_authenticate(user)
    return client


@pytest.fixture
def staff(db: None) -> APIClient:
    """Signed in as a member of the staff, who has no player."""
    client = APIClient()
    client.force_authenticate(User.objects.create_user("root", is_staff=True))
    return client


@pytest.fixture
def anonymous() -> APIClient:
    return APIClient()
