"""Facets and groups as query parameters, compared with the same question put to a list."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from django_zrank.combined import filters
from django_zrank.rest_framework.viewsets import LeaderboardViewSet
from django_zrank.testing import sync_now
from tests.rest_framework.urls import Pairs, Regional
from tests.testapp.models import Player

BOARD = "/regional/board/"
DRAW = "/regional/"

FILTERS: dict[str, Callable[[Player], bool]] = {
    "": lambda player: True,
    "bio=kantou": lambda player: player.bio == "kantou",
    "bio=kantou,kansai": lambda player: player.bio in ("kantou", "kansai"),
    "bio=kantou&bio=kansai": lambda player: player.bio in ("kantou", "kansai"),
    "bio=kantou,kantou": lambda player: player.bio == "kantou",
    "bio=nowhere": lambda player: False,
    "bio=": lambda player: True,
    "bio=&bio=kantou": lambda player: player.bio == "kantou",
    "bio__not=&bio__isnull=&is_active=&user=&is_active__not=true": lambda player: not player.is_active,
    "bio__isempty=true": lambda player: player.bio == "",
    "bio__isempty=false": lambda player: player.bio != "",
    "bio__isempty=&is_active=true": lambda player: player.is_active,
    r"bio=a\,b": lambda player: player.bio == "a,b",
    r"bio=a\,b,kantou": lambda player: player.bio in ("a,b", "kantou"),
    "bio=a,b": lambda player: False,
    "bio__not=kantou": lambda player: player.bio != "kantou",
    "bio__not=kantou,kansai": lambda player: player.bio in ("touhoku", "a,b"),
    "bio=kantou,kansai&bio__not=kantou": lambda player: player.bio == "kansai",
    "bio__isnull=true": lambda player: False,
    "bio__isnull=false": lambda player: True,
    "bio=kantou&bio__isnull=true": lambda player: False,
    "is_active=true": lambda player: player.is_active,
    "is_active=False": lambda player: not player.is_active,
    "is_active=true,false": lambda player: True,
    "is_active__not=true": lambda player: not player.is_active,
    "bio=kantou&is_active=true": lambda player: player.bio == "kantou" and player.is_active,
    "bio=kantou,touhoku&is_active=false": lambda player: (
        player.bio in ("kantou", "touhoku") and not player.is_active
    ),
    "bio__not=kantou&is_active=true": lambda player: player.bio != "kantou" and player.is_active,
    "bio__not=kantou&is_active__not=true": lambda player: player.bio != "kantou" and not player.is_active,
    "user__isnull=true": lambda player: player.user_id is None,
    "user__isnull=false": lambda player: player.user_id is not None,
    "user__isnull=TRUE&bio=kantou": lambda player: player.user_id is None and player.bio == "kantou",
    "user__isnull=true&is_active=true&bio__not=kantou": lambda player: (
        player.user_id is None and player.is_active and player.bio != "kantou"
    ),
}


def ask(client: APIClient, url: str, query: str = "") -> Any:
    response = client.get(f"{url}?{query}")
    assert response.status_code == 200, response.content
    return response.json()


def pks(answer: Any) -> list[int]:
    return [result["pk"] for result in answer["results"]]


def levels(answer: Any) -> list[int]:
    return [result["score"] for result in answer["results"]]


def test_filters(client: APIClient, regions: list[Player], me: Player) -> None:
    for query in FILTERS:
        compare(client, regions, me, query)


def compare(client: APIClient, regions: list[Player], me: Player, query: str) -> None:
    """What every view answers to this query string, compared with a list."""
    passing = [player for player in regions if FILTERS[query](player)]
    answer = ask(client, BOARD, query)
    assert answer["count"] == len(passing), query
    assert pks(answer) == [player.pk for player in passing]
    assert [result["rank"] for result in answer["results"]] == list(range(1, len(passing) + 1))

    for player in (me, regions[0]):
        response = client.get(f"{BOARD}{player.pk}/?{query}")
        around = client.get(f"{BOARD}{player.pk}/around/?n=3&{query}")
        if player in passing:
            rank = passing.index(player) + 1
            entry = {"pk": player.pk, "score": player.level, "rank": rank}
            percentile = 100 if len(passing) == 1 else 100 * (len(passing) - rank) / (len(passing) - 1)
            assert response.json() == {
                **entry,
                "count": len(passing),
                "percentile": pytest.approx(percentile),
            }
            assert len(around.json()["results"]) == min(3, len(passing))
            assert entry in around.json()["results"]
        else:
            assert response.status_code == around.status_code == 404

    counts = ask(client, f"{BOARD}counts/", f"facet=bio&{query}")["results"]
    expected = {player.bio: sum(one.bio == player.bio for one in passing) for player in passing}
    assert {one["values"]["bio"]: one["count"] for one in counts} == expected

    near = [one for one in passing if 0 < abs(one.level - me.level) <= 10]
    answer = ask(client, DRAW, f"n=50&{query}")
    assert pks(answer) == [player.pk for player in near]
    assert len(pks(ask(client, DRAW, f"n=2&{query}"))) == min(2, len(near))


class TestRanks:
    """A window of ranks in place of a band."""

    def test_ranks(self, client: APIClient, regions: list[Player]) -> None:
        answer = ask(client, DRAW, "ranks=3&n=50")
        assert answer["band"] == [3, 3]
        assert [result["score"] for result in answer["results"]] == [103, 102, 101, 99, 98, 97]
        answer = ask(client, DRAW, "ranks=2,1&n=50")
        assert answer["band"] == [2, 1]
        assert [result["score"] for result in answer["results"]] == [101, 99, 98]

    def test_of_those_who_pass(self, client: APIClient, regions: list[Player]) -> None:
        answer = ask(client, DRAW, "ranks=2&n=50&bio=kantou")
        assert [result["score"] for result in answer["results"]] == [108, 104, 96, 92]

    def test_widen(self, client: APIClient, regions: list[Player]) -> None:
        answer = ask(client, DRAW, "ranks=1&widen=2&widen=3,0&n=3")
        assert answer["band"] == [2, 2]

    def test_nonsense(self, client: APIClient, regions: list[Player]) -> None:
        for value in ("", "x", "-1", "1,2,3", "1,", "9" * 21, "1e999", "٣", "inf"):
            for query, name in (({"ranks": value}, "ranks"), ({"ranks": 1, "widen": value}, "widen")):
                response = client.get(DRAW, query)
                assert response.status_code == 400, query
                assert list(response.json()) == [name]

    def test_twice(self, client: APIClient, regions: list[Player]) -> None:
        assert client.get(DRAW, {"ranks": ["1", "2"]}).json() == {"ranks": ["Give this parameter once."]}

    def test_with_a_band(self, client: APIClient, regions: list[Player]) -> None:
        """OpenAPI can't say that two parameters exclude each other, so one of them has to win."""
        answer = ask(client, DRAW, "ranks=2&band=7&n=50")
        assert answer["band"] == [2, 2]
        assert [result["score"] for result in answer["results"]] == [102, 101, 99, 98]

    def test_whatever_is_a_band_is_a_number_of_ranks(self, client: APIClient, regions: list[Player]) -> None:
        assert ask(client, DRAW, "ranks=1.5,0&widen=2.5&n=50")["band"] == [2, 2]
        assert ask(client, DRAW, "ranks=1e1&n=50")["band"] == [10, 10]

    def test_a_ceiling(self, client: APIClient, regions: list[Player]) -> None:
        assert ask(client, "/ceilings/", "ranks=9,2")["band"] == [3, 2]
        assert ask(client, "/ceilings/", "ranks=1&widen=100&n=50")["band"] == [3, 5]
        assert ask(client, DRAW, "ranks=" + "9" * 20)["band"] == [1000, 1000]


class TestGroups:
    """?group=live:42, where the view allows it."""

    @pytest.fixture
    def groups(self, regions: list[Player]) -> dict[str, list[Player]]:
        groups = {"live:42": regions[::2], "a,b": regions[:15]}
        for name, members in groups.items():
            Regional.group(name).add(*members)
        return groups

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("group=live:42", lambda live, other: live),
            ("group__not=live:42", lambda live, other: not live),
            (r"group=live:42,a\,b", lambda live, other: live or other),
            (r"group=live:42&group=a\,b", lambda live, other: live or other),
            (r"group=a\,b&group__not=live:42", lambda live, other: other and not live),
            ("group=nobody", lambda live, other: False),
        ],
    )
    def test_groups(
        self,
        client: APIClient,
        regions: list[Player],
        groups: dict[str, list[Player]],
        query: str,
        expected: Callable[[bool, bool], bool],
    ) -> None:
        passing = [one for one in regions if expected(one in groups["live:42"], one in groups["a,b"])]
        assert pks(ask(client, "/allowing/board/", query)) == [player.pk for player in passing]
        kantou = [player for player in passing if player.bio == "kantou"]
        assert pks(ask(client, "/allowing/board/", f"{query}&bio=kantou")) == [one.pk for one in kantou]
        near = [one for one in passing if 0 < abs(one.level - 100) <= 10]
        assert pks(ask(client, DRAW, f"n=50&{query}")) == [player.pk for player in near]

    def test_must_be_allowed(self, client: APIClient, regions: list[Player]) -> None:
        for name in ("group", "group__not"):
            for url in (BOARD, f"{BOARD}me/", f"{BOARD}me/around/", "/api/recommendations/"):
                response = client.get(url, {name: "live:42"})
                assert response.status_code == 400
                assert response.json() == {name: ["No group can be given here."]}

    def test_nonsense(self, client: APIClient, regions: list[Player]) -> None:
        for value in ("x" * 201, "live,"):
            response = client.get(DRAW, {"group": value})
            assert response.status_code == 400, value
            assert list(response.json()) == ["group"]


NONSENSE = [
    ("is_active", ["maybe"]),
    ("is_active", ["true,"]),
    ("is_active__not", ["2"]),
    ("user", ["ada"]),
    ("user", ["1.5"]),
    ("user", ["1", "x"]),
    ("user", ["9" * 5000]),
    ("bio", ["a\0b"]),
    ("bio__not", ["\0"]),
    ("user__isnull", ["maybe"]),
    ("user__isnull", ["true", "true"]),
    ("bio__isempty", ["maybe"]),
    ("is_active__isempty", ["true"]),
    ("bio__isempty", ["true", "false"]),
    ("bio", [",".join(map(str, range(101)))]),
    ("bio__in", ["kantou"]),
    ("bio__gt", ["kantou"]),
    ("bio__exact", ["kantou"]),
    ("bio__not__in", ["kantou"]),
    ("is_active__", ["true"]),
    ("user__name", ["ada"]),
    ("group__in", ["live:42"]),
    ("group__isnull", ["true"]),
]


def test_nonsense(client: APIClient, regions: list[Player]) -> None:
    paths = ("", "me/", f"{regions[0].pk}/", "me/around/", "counts/?facet=bio")
    urls = (DRAW, *(f"{BOARD}{path}" for path in paths))
    for (name, values), url in product(NONSENSE, urls):
        response = client.get(f"{url}", {name: values, **({"facet": "bio"} if "counts" in url else {})})
        assert response.status_code == 400, (url, name, values)
        assert list(response.json()) == [name]
        (message,) = response.json()[name]
        assert message


def test_messages(client: APIClient, regions: list[Player]) -> None:
    query = {"is_active": "maybe", "user__isnull": "maybe", "bio__xyz": "a", "quality": "b"}
    assert client.get(BOARD, query).json() == {
        "is_active": ["“maybe” is not a value of is active."],
        "user__isnull": ["Must be a valid boolean."],
        "bio__xyz": ["There is no such parameter. Did you mean bio__not, bio__isempty?"],
        "quality": ["There is no such parameter."],
    }


UNKNOWN = {
    "bio__gt": "Did you mean bio__not",
    "boi": "Did you mean bio?",
    "BIO": "Did you mean bio?",
    "user__isnul": "Did you mean user__isnull",
    "formt": "Did you mean format?",
    "level": "There is no such parameter.",
    "name__gt": "There is no such parameter.",
    "friends": "There is no such parameter.",
    "utm_source": "There is no such parameter.",
    "x" * 5000: "There is no such parameter.",
}


def test_unknown_parameters(client: APIClient, regions: list[Player]) -> None:
    urls = (BOARD, DRAW, f"{BOARD}me/", f"{BOARD}me/around/", f"{BOARD}{regions[0].pk}/")
    for name, url in product(UNKNOWN, urls):
        response = client.get(url, {name: "kantou"})
        assert response.status_code == 400, (name, url)
        assert UNKNOWN[name] in response.json()[name][0]


def test_what_is_no_filter_of_the_index(client: APIClient, regions: list[Player]) -> None:
    for query in ("bio=kantou", "club__slug=foo", "titel=GM", "bio__gt=1"):
        for url in ("/api/leaderboard/", "/api/leaderboard/me/", "/api/recommendations/"):
            response = client.get(f"{url}?{query}")
            assert response.status_code == 400, (url, query)
            assert list(response.json()) == [query.partition("=")[0]]


def test_many_unknown_parameters_are_cheap(client: APIClient, regions: list[Player]) -> None:
    response = client.get(BOARD, {f"unknown_parameter_{number}": number for number in range(900)})
    assert response.status_code == 400
    assert {message for (message,) in response.json().values()} == {"There is no such parameter."}


def test_parameters_of_the_view(client: APIClient, regions: list[Player]) -> None:
    for query, status in (
        ("utm_source=x", 200),
        ("bio=kantou&utm_source=x&utm_source=y", 200),
        ("utm=x", 400),
        ("format=json", 200),
        ("page=1&page_size=3", 200),
        ("limit=3", 400),
        ("search=level", 400),
    ):
        assert client.get(f"/tracked/board/?{query}").status_code == status, query
    assert client.get("/tracked/board/me/?page=1").status_code == 400
    assert client.get("/offset/board/?limit=3&offset=2").status_code == 200
    assert client.get("/offset/board/?page=1").status_code == 400
    assert ask(client, "/lenient/board/", "level=3&name__gt=4&utm_source=x&bio=kantou")["count"] == 11
    assert client.get("/lenient/board/?user__isnull=maybe").status_code == 400


def test_parameters_of_filter_backends(client: APIClient, regions: list[Player]) -> None:
    """They are taken where the backends are applied: where results show rows."""
    for path, status in (("", 200), ("me/around/", 200), ("me/", 200), (f"{regions[0].pk}/", 200)):
        assert client.get(f"/searched/board/{path}?search=level").status_code == status, path
    assert client.get("/searched/board/counts/?facet=bio&search=level").status_code == 400
    assert client.get("/searched/board/?ordering=level").status_code == 400
    assert (
        client.get("/searched/numbers/?search=level").status_code == 400
    )  # Shows the ranking's values alone
    assert [one["name"] for one in ask(client, "/searched/board/", "search=level 11")["results"]] == [
        f"level {level}" for level in range(119, 109, -1)
    ]


def test_parameters_of_django_filter(client: APIClient, regions: list[Player]) -> None:
    board, fields = "/django-filter/board/", "/django-filter/fields/"
    assert levels(ask(client, board, "level_max=90&name__startswith=level"))[0] == 90
    assert levels(ask(client, fields, "name=level 100")) == [100]
    assert client.get(f"{board}me/?level_max=90").status_code == 404
    for url, query in ((board, "level_mx=90"), (board, "level=90"), (fields, "level_max=90")):
        assert client.get(f"{url}?{query}").status_code == 400, (url, query)


def test_a_backend_that_names_no_parameters(client: APIClient, regions: list[Player]) -> None:
    assert ask(client, "/undescribed/board/")["count"] == 41
    assert client.get("/undescribed/board/?without=x").status_code == 400  # Until extra_parameters names it


def test_a_parameter_of_versions(client: APIClient, regions: list[Player]) -> None:
    assert client.get("/versioned/board/?v=1").status_code == 200
    assert client.get("/versioned/board/?version=1").status_code == 400


def test_names_of_the_view(client: APIClient, regions: list[Player]) -> None:
    kantou = [player.pk for player in regions if player.bio == "kantou"]
    assert pks(ask(client, "/api/board/", "region=kantou")) == kantou
    assert client.get("/api/board/", {"bio": "kantou"}).json().keys() == {"bio"}
    assert client.get("/api/board/", {"region__gt": 1}).json().keys() == {"region__gt"}


def test_parts_of_a_composite_facet(client: APIClient, regions: list[Player], caplog: Any) -> None:
    sync_now(Pairs)
    expected = [player.pk for player in regions if player.bio == "kantou" and player.is_active]
    assert pks(ask(client, "/pairs/board/", "bio=kantou&is_active=true")) == expected
    for query, named in (
        ("bio=kantou", "bio"),
        ("is_active=true", "is_active"),
        ("bio=kantou&is_active__not=false", "bio"),
        ("is_active__not=true", "is_active__not"),
    ):
        response = client.get(f"/pairs/board/?{query}")
        assert response.status_code == 400
        assert list(response.json()) == [named], query
        assert response.json()[named] == ["Members can't be filtered by this alone."]
        assert "declare facets" in caplog.text  # for the site's developers


def test_values_that_make_too_many_combinations(
    client: APIClient, regions: list[Player], caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_now(Pairs)
    monkeypatch.setattr(filters, "MOST_RANKINGS", 4)
    assert client.get("/pairs/board/?bio=a,b&is_active=true,false").status_code == 200
    for query in ("bio=a,b,c&is_active=true,false", "bio=a,b,c,d,e&is_active=true"):
        response = client.get(f"/pairs/board/?{query}")
        assert (response.status_code, response.json()["code"]) == (400, "filter_too_large")
        assert "combinations" in caplog.text  # for the site's developers


def test_a_combined_filter_that_is_too_large(
    client: APIClient, regions: list[Player], settings: Any, caplog: Any
) -> None:
    settings.ZRANK = {**settings.ZRANK, "MAX_SCAN": 3}
    response = client.get(BOARD, {"is_active": "true", "user__isnull": "true"})
    assert response.status_code == 400
    assert response.json() == {
        "detail": "Too many members pass these filters for them to be combined.",
        "code": "filter_too_large",
    }
    assert "facets = (('is_active', 'user'),)" in caplog.text  # for the site's developers
    # What a declared facet covers has no bound.
    assert ask(client, BOARD, "is_active=true&bio=kantou")["count"] > 3


def test_a_view_bounds_combined_filters(
    client: APIClient, regions: list[Player], monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    query = {"is_active": "true", "user__isnull": "true"}
    monkeypatch.setattr(LeaderboardViewSet, "max_scan", 3)
    assert client.get(BOARD, query).status_code == 400
    assert client.get("/regional/board/counts/", {"facet": "bio"}).status_code == 400  # of more values
    monkeypatch.setattr(LeaderboardViewSet, "max_scan", None)
    assert client.get(BOARD, query).status_code == 200
    settings.ZRANK = {**settings.ZRANK, "MAX_COMBINED_FILTER_BYTES": 1}
    response = client.get(BOARD, {"is_active": "true", "user__isnull": "false"})
    assert (response.status_code, response.json()["code"]) == (503, "filter_not_ready")
    assert int(response.headers["Retry-After"]) >= 1
    assert client.get(BOARD, query).status_code == 200  # is there


def test_empty_text_is_a_value(client: APIClient, regions: list[Player]) -> None:
    """``?bio=``, as a form sends it, is no filter, so the value has a parameter of its own."""
    empty = {player.pk for player in regions[::3]}
    Player.objects.filter(pk__in=empty).update(bio="")
    sync_now(Regional)
    for query, passes in (
        ("bio__isempty=true", lambda player: player.pk in empty),
        ("bio__isempty=false", lambda player: player.pk not in empty),
        ("bio=kantou,", lambda player: player.pk in empty or player.bio == "kantou"),
        ("bio=", lambda player: True),
    ):
        expected = [player.pk for player in regions if passes(player)]
        assert pks(ask(client, BOARD, query)) == expected, query
    counts = ask(client, f"{BOARD}counts/", "facet=bio")["results"]
    assert {"values": {"bio": ""}, "count": len(empty)} in counts


def test_a_filter_of_several_by_relation(client: APIClient, regions: list[Player], user: User) -> None:
    assert ask(client, BOARD, f"user={user.pk}")["count"] == 1
    assert ask(client, f"{BOARD}me/", f"user={user.pk},0")["rank"] == 1
