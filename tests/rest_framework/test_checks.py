"""Checks of the REST API: an owner is missed where a view asks for it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.urls import include, path

from django_zrank.rest_framework import checks as rest_checks
from django_zrank.rest_framework.viewsets import LeaderboardViewSet
from tests.testapp.zrank import NicknameRank, PlayerAscending, PlayerRank


class OwnBoard(LeaderboardViewSet):
    index = NicknameRank


class TellsWho(LeaderboardViewSet):
    def get_member(self) -> Any:
        return None


@pytest.mark.parametrize(
    ("urls", "names"),
    [
        ((), set()),
        ("nowhere.urls", set()),
        ((path("", lambda request: None),), set()),
        ((path("x/", LeaderboardViewSet.as_view({"get": "list"}, index=PlayerAscending)),), {"ascending"}),
        ((path("x/", include([path("y/", OwnBoard.as_view({"get": "list"}))])),), {"nickname"}),
        ((path("x/", LeaderboardViewSet.as_view({"get": "list"}, index=PlayerRank)),), set()),
        ((path("x/", TellsWho.as_view({"get": "list"})),), set()),
    ],
    ids=[
        "none",
        "broken",
        "others",
        "an argument",
        "an attribute",
        "with an owner",
        "who finds the row itself",
    ],
)
def test_an_owner_is_missed_only_where_a_view_asks_for_it(settings: Any, urls: Any, names: set[str]) -> None:
    settings.ROOT_URLCONF = urls
    assert {message.obj.instance().name for message in rest_checks.check_owners(None)} == names


def test_a_default_path_may_ask_of_every_index(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.urls"
    messages: list[Any] = rest_checks.check_owners(None)
    assert {message.id for message in messages} == {"zrank.W005"}
    assert all(" has no owner, so the REST API can't look up the user's row." in one.msg for one in messages)
    names = {message.obj.instance().name for message in messages}
    assert {"ascending", "nickname", "competitors"} <= names
    assert "player" not in names


def test_every_id_has_a_case() -> None:
    elsewhere = {"zrank.W012", "zrank.W050"}  # tests/outside/test_rest.py and test_leaderboards.py
    text = Path(rest_checks.__file__).read_text()
    assert {"zrank.W005"} | elsewhere == set(re.findall(r'"(zrank\.[EW]\d+)"', text))
