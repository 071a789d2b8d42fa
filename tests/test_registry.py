"""The registry of indexes, and the default one."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps

from django_zrank import RankIndex, register
from django_zrank.registry import Registry
from django_zrank.registry import registry as registered
from tests.testapp import zrank as declarations
from tests.testapp.models import Club, Player


class PlayerRank(RankIndex):
    model = Player
    order = ("-level",)


class ClubRank(RankIndex):
    model = Club
    order = ("pk",)


@pytest.fixture
def registry() -> Registry:
    return Registry()


def test_indexes_come_in_the_order_of_their_registration(registry: Registry) -> None:
    assert registry.register(PlayerRank) is PlayerRank  # as a decorator
    registry.register(ClubRank)
    registry.register(PlayerRank)
    assert registry.all() == [PlayerRank.instance(), ClubRank.instance()]
    assert registry.named(["club"]) == [ClubRank.instance()]
    assert registry.named([]) == registry.all()
    with pytest.raises(LookupError):
        registry.named(["club", "team"])


@pytest.mark.parametrize("wrong", [Player, "PlayerRank", None, PlayerRank.instance()])
def test_only_indexes_can_be_registered(registry: Registry, wrong: Any) -> None:
    with pytest.raises(TypeError, match="subclass of RankIndex"):
        registry.register(wrong)
    assert registry.all() == []


def test_an_index_can_be_taken_out(registry: Registry) -> None:
    registry.register(PlayerRank)
    registry.unregister(PlayerRank)
    registry.unregister(PlayerRank)
    assert registry.all() == []


def test_an_unknown_name_is_answered_with_the_known_ones(registry: Registry) -> None:
    with pytest.raises(LookupError, match=r"no index called 'team'\. Registered: none\."):
        registry.get("team")
    registry.register(PlayerRank)
    registry.register(ClubRank)
    assert registry.get("player") is PlayerRank.instance()
    with pytest.raises(LookupError, match=r"Registered: club, player\."):
        registry.get("team")


def test_of_several_the_setting_names_the_default(registry: Registry, settings: Any) -> None:
    registry.register(PlayerRank)
    assert registry.default() is PlayerRank.instance()
    registry.register(ClubRank)
    with pytest.raises(LookupError, match="DEFAULT_INDEX"):
        registry.default()
    settings.ZRANK = {"DEFAULT_INDEX": "club"}
    assert registry.default() is ClubRank.instance()


def test_there_may_be_no_default(registry: Registry, settings: Any) -> None:
    with pytest.raises(LookupError):
        registry.default()
    registry.register(PlayerRank)
    settings.ZRANK = {"DEFAULT_INDEX": "team"}
    with pytest.raises(LookupError, match="'team'"):
        registry.default()


def test_the_zrank_module_of_every_app_is_found() -> None:
    assert apps.is_installed("tests.testapp")
    assert declarations.PlayerRank.instance() in registered.all()
    assert register == registered.register
