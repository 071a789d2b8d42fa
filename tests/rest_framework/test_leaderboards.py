"""GET /leaderboard/ and the paths below it, as a client sees them."""

from __future__ import annotations

from sys import float_info
from typing import Any
from unittest import mock

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from redis.connection import Connection
from rest_framework.pagination import CursorPagination, LimitOffsetPagination
from rest_framework.test import APIClient

from django_zrank.redis import reader
from django_zrank.registry import Registry
from django_zrank.rest_framework.checks import check_facet_names
from django_zrank.rest_framework.viewsets import LeaderboardPagination, get_pagination_class
from django_zrank.testing import sync_now
from tests.rest_framework.urls import MusicianRank, Pairs, Regional, Tied, TiedRanks
from tests.testapp.models import Musician, Nickname, Player
from tests.testapp.zrank import NicknameRank, PlayerAscending, PlayerRank

URL = "/api/leaderboard/"
BOARD = "/regional/board/"


def ask(client: APIClient, url: str, **query: Any) -> Any:
    response = client.get(url, query)
    assert response.status_code == 200, response.content
    return response.json()


def levels(results: Any) -> list[int]:
    return [result["score"] for result in results]


class TestPages:
    """GET /leaderboard/."""

    def test_the_answer(self, client: APIClient, me: Player) -> None:
        answer = ask(client, URL)
        assert list(answer) == ["count", "next", "previous", "results"]
        assert (answer["count"], answer["next"], answer["previous"]) == (41, None, None)
        assert levels(answer["results"]) == list(range(120, 79, -1))
        assert [result["rank"] for result in answer["results"]] == list(range(1, 42))
        assert list(answer["results"][0]) == ["pk", "score", "rank"]
        assert answer["results"][20]["pk"] == me.pk

    def test_pages(self, client: APIClient, me: Player) -> None:
        answer = ask(client, URL, page=2, page_size=10)
        assert [result["rank"] for result in answer["results"]] == list(range(11, 21))
        assert answer["next"] == "http://testserver/api/leaderboard/?page=3&page_size=10"
        assert answer["previous"] == "http://testserver/api/leaderboard/?page_size=10"
        walked = []
        url: str | None = f"{URL}?page_size=7"
        while url:
            answer = ask(client, url)
            walked += levels(answer["results"])
            url = answer["next"]
        assert walked == list(range(120, 79, -1))
        assert ask(client, URL, page="last", page_size=10)["results"][0]["rank"] == 41

    def test_no_such_page(self, client: APIClient, me: Player) -> None:
        for page in ("2", "0", "-1", "x"):
            assert client.get(URL, {"page": page}).status_code == 404
        response = client.get(URL, {"page": ""})
        assert (response.status_code, response.json()) == (400, {"page": ["A valid integer is required."]})

    def test_given_twice(self, client: APIClient, regions: Any) -> None:
        for url, names in ((URL, ("page", "page_size")), ("/offset/board/", ("limit", "offset"))):
            for name in names:
                response = client.get(url, {name: ["1", "2"]})
                assert response.status_code == 400
                assert response.json() == {name: ["Give this parameter once."]}

    def test_page_size_has_a_maximum(self, client: APIClient, me: Player) -> None:
        Player.objects.bulk_create(Player(level=level) for level in range(100))
        sync_now(PlayerRank)
        answer = ask(client, URL, page_size=10**6)
        assert (answer["count"], len(answer["results"])) == (141, 100)
        assert len(ask(client, URL)["results"]) == 50

    def test_nonsense(self, client: APIClient, regions: Any) -> None:
        """REST framework itself would answer as if nothing had been given."""
        for url, name, values in (
            (URL, "page_size", ("AAA", "", "0", "-1", "1.5", "٣")),
            ("/offset/board/", "limit", ("AAA", "0", "-1")),
            ("/offset/board/", "offset", ("AAA", "-1")),
        ):
            for value in values:
                response = client.get(url, {name: value})
                assert response.status_code == 400, (url, name, value)
                assert list(response.json()) == [name]

    def test_nobody(self, client: APIClient, zrank: Any) -> None:
        assert ask(client, URL) == {"count": 0, "next": None, "previous": None, "results": []}

    def test_queries(self, client: APIClient, regions: Any, django_assert_num_queries: Any) -> None:
        for url, queries in ((URL, 0), (BOARD, 0), ("/linked/board/", 0), ("/api/board/", 1)):
            with django_assert_num_queries(queries):
                assert client.get(url, {"page_size": 20}).status_code == 200

    def test_round_trips(
        self, client: APIClient, regions: Any, me: Player, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reader, "_TRUST", 60.0)  # A busy machine takes a second between two requests
        with mock.patch.object(
            Connection, "send_packed_command", autospec=True, side_effect=Connection.send_packed_command
        ) as sent:
            for path, trips in (
                ("?page=2&page_size=5", 2),  # The count and the page
                (f"?pk={me.pk},{regions[0].pk}", 1),
                (f"{me.pk}/", 1),
                ("me/", 1),
                ("me/around/", 1),
                ("me/gap/", 1),
                ("me/?in=bio,is_active", 1),
                ("counts/?facet=bio", 0),  # Kept
                ("?bio=kantou", 2),
                ("me/?bio=kantou", 1),
            ):
                client.get(f"{BOARD}{path}")  # Loads the script
                sent.reset_mock()
                assert client.get(f"{BOARD}{path}").status_code == 200
                assert sent.call_count == trips, path

    def test_a_page_of_the_project(self, client: APIClient, regions: Any) -> None:
        answer = ask(client, "/offset/board/")
        assert (answer["count"], levels(answer["results"])) == (41, [120, 119, 118, 117, 116])
        assert levels(ask(client, "/offset/board/", offset=39, limit=10)["results"]) == [81, 80]

    def test_a_page_that_would_take_too_long(self, client: APIClient, regions: Any) -> None:
        response = client.get("/offset/board/", {"limit": 10**6})
        assert response.status_code == 400
        assert response.json() == {"limit": ["Ensure this value is less than or equal to 500."]}

    def test_without_pages(self, client: APIClient, regions: Any, settings: Any) -> None:
        assert levels(ask(client, "/whole/board/")) == list(range(120, 79, -1))
        settings.ZRANK = {**settings.ZRANK, "MAX_N": 3}
        assert levels(ask(client, "/whole/board/")) == [120, 119, 118]

    def test_the_pagination_of_the_project(self, settings: Any) -> None:
        assert get_pagination_class() is LeaderboardPagination
        for pagination, expected in (
            (LimitOffsetPagination, LimitOffsetPagination),
            (CursorPagination, LeaderboardPagination),
        ):
            settings.REST_FRAMEWORK = {
                "DEFAULT_PAGINATION_CLASS": f"rest_framework.pagination.{pagination.__name__}"
            }
            assert get_pagination_class() is expected


class TestPlaces:
    """GET /leaderboard/<pk>/ and /leaderboard/me/."""

    def test_anybody(self, client: APIClient, me: Player, django_assert_num_queries: Any) -> None:
        other = Player.objects.get(level=117)
        with django_assert_num_queries(1):  # The row, for permissions that look at it
            answer = ask(client, f"{URL}{other.pk}/")
        assert answer == {"pk": other.pk, "score": 117, "rank": 4, "count": 41, "percentile": 92.5}

    def test_me(self, client: APIClient, me: Player, django_assert_num_queries: Any) -> None:
        with django_assert_num_queries(1):
            answer = ask(client, f"{URL}me/")
        assert answer == {"pk": me.pk, "score": 100, "rank": 21, "count": 41, "percentile": 50.0}

    def test_with_a_serializer(self, client: APIClient, regions: Any, django_assert_num_queries: Any) -> None:
        for path, queries in ((f"{regions[3].pk}/", 1), ("me/", 2)):
            with django_assert_num_queries(queries):
                answer = ask(client, f"/api/board/{path}")
            assert list(answer) == ["pk", "score", "rank", "name", "asked_at", "count", "percentile"]
            assert answer["name"] == f"level {answer['score']}"
            assert answer["asked_at"] == f"/api/board/{path}"

    def test_nobody_there(self, client: APIClient, me: Player) -> None:
        for pk in ("0", "-1", "abc", "1.5", str(10**30), "%00"):
            assert client.get(f"{URL}{pk}/").status_code == 404, pk
            assert client.get(f"{URL}{pk}/around/").status_code == 404, pk

    def test_not_ranked(self, client: APIClient, me: Player) -> None:
        Player.objects.filter(pk=me.pk).update(is_active=False)
        sync_now(PlayerRank)
        for path in (f"{me.pk}/", f"{me.pk}/around/", "me/", "me/around/"):
            response = client.get(f"{URL}{path}")
            assert (response.status_code, response.json()) == (
                404,
                {"detail": "This member is not in the ranking.", "code": "not_ranked"},
            )

    def test_no_row_of_mine(self, staff: APIClient, me: Player) -> None:
        for path in ("me/", "me/around/"):
            response = staff.get(f"{URL}{path}")
            assert (response.status_code, response.data["detail"].code) == (404, "not_ranked")

    def test_hidden_by_the_queryset(self, client: APIClient, regions: Any, me: Player) -> None:
        Player.objects.filter(pk__in=[regions[0].pk, me.pk]).update(name="hidden")
        for path in (f"{regions[0].pk}/", f"{regions[0].pk}/around/", "me/"):
            assert client.get(f"/api/board/{path}").status_code == 404
        assert levels(ask(client, "/api/board/", page_size=3)["results"]) == [119, 118]
        assert 100 not in levels(ask(client, "/api/board/me/around/")["results"])

    def test_a_row_that_a_join_repeats(self, client: APIClient, me: Player) -> None:
        me.friends.add(*Player.objects.exclude(pk=me.pk)[:2])
        assert ask(client, f"/befriended/board/{me.pk}/")["rank"] == 21

    def test_another_key_in_the_path(self, client: APIClient, regions: Any) -> None:
        assert ask(client, f"/kwarg/board/{regions[4].pk}/")["rank"] == 5
        assert ask(client, "/name/board/level 116/")["rank"] == 5
        assert [one["rank"] for one in ask(client, "/name/board/level 116/around/", n=3)["results"]] == [
            4,
            5,
            6,
        ]
        assert len(ask(client, "/name/board/me/around/")["results"]) == 10
        assert client.get("/name/board/level 0/").status_code == 404
        Player.objects.update(name="level 116")
        with CaptureQueriesContext(connection) as queries:
            assert client.get("/name/board/level 116/").status_code == 404
        assert queries[-1]["sql"].endswith("LIMIT 21")

    def test_text_keys(self, staff: APIClient, zrank: Any) -> None:
        for score, nick in enumerate(["émile", "a b", "me"]):
            Nickname.objects.create(nick=nick, score=score)
        sync_now(NicknameRank)
        assert ask(staff, "/nickname/board/émile/") == {
            "pk": "émile",
            "score": 0.0,
            "rank": 3,
            "count": 3,
            "percentile": 0.0,
        }
        assert [one["pk"] for one in ask(staff, "/nickname/board/a b/around/")["results"]] == [
            "me",
            "a b",
            "émile",
        ]
        assert staff.get("/nickname/board/me/").status_code == 404  # Is always the user's own

    def test_a_comma_in_a_text_key(self, staff: APIClient, zrank: Any) -> None:
        for nick in ("ada", "a,b", "a", "b"):
            Nickname.objects.create(nick=nick, score=1)
        sync_now(NicknameRank)
        for exclude, left in (
            ("a\\,b", {"a", "b"}),
            ("a\\,b,a", {"b"}),
            (["b", "a\\,b"], {"a"}),
            ("a,b", {"a,b"}),
        ):
            results = ask(staff, "/nickname/", member="ada", exclude=exclude)["results"]
            assert {one["pk"] for one in results} == left

    @pytest.mark.part("dense")
    def test_ties(self, client: APIClient, regions: list[Player]) -> None:
        """With dense ranks, the percentile is still that of SQL's PERCENT_RANK()."""
        sync_now(TiedRanks)
        active = [player for player in regions if player.is_active]
        for player, rank, percentile in (
            (active[0], 1, 100),
            (next(one for one in regions if not one.is_active), 2, 100 * (1 - len(active) / 40)),
        ):
            answer = ask(client, f"/tied/board/{player.pk}/")
            assert (answer["rank"], answer["count"]) == (rank, 41)
            assert answer["percentile"] == pytest.approx(percentile)

    def test_a_view_that_shows_no_rank(self, client: APIClient, regions: list[Player], me: Player) -> None:
        """Shows nothing that a rank can be computed from."""
        for path in (f"{me.pk}/", "me/"):
            assert ask(client, f"/open/unranked/board/{path}") == {"pk": me.pk, "score": 100}

    def test_a_field_of_the_same_name(self, client: APIClient, regions: list[Player]) -> None:
        assert client.get("/counted/board/").status_code == 200
        with pytest.raises(ImproperlyConfigured, match="'count'"):
            client.get("/counted/board/me/")


class TestFriends:
    """GET /leaderboard/?pk=…: some members, as they rank among all."""

    def test_friends(self, client: APIClient, regions: list[Player], django_assert_num_queries: Any) -> None:
        some = [regions[7], regions[2], regions[30]]
        query = f"{some[0].pk},{some[1].pk}"
        with django_assert_num_queries(0):
            answer = ask(client, BOARD, pk=[query, str(some[2].pk), "0", str(10**30), str(some[2].pk)])
        assert [(one["pk"], one["rank"]) for one in answer["results"]] == [
            (regions[2].pk, 3),
            (regions[7].pk, 8),
            (regions[30].pk, 31),
        ]
        assert (answer["count"], answer["next"]) == (3, None)
        assert ask(client, BOARD, pk="0")["results"] == []

    def test_pages(self, client: APIClient, regions: list[Player]) -> None:
        query = ",".join(str(player.pk) for player in regions[:9:2])
        answer = ask(client, BOARD, pk=query, page=2, page_size=2)
        assert [one["rank"] for one in answer["results"]] == [5, 7]
        assert (answer["count"], "pk=" in answer["next"]) == (5, True)
        assert [one["rank"] for one in ask(client, "/offset/board/", pk=query, offset=3)["results"]] == [7, 9]
        assert [one["rank"] for one in ask(client, "/whole/board/", pk=query)] == [1, 3, 5, 7, 9]

    def test_filters(self, client: APIClient, regions: list[Player]) -> None:
        kansai = [player for player in regions if player.bio == "kansai"]
        query = f"{kansai[3].pk},{regions[0].pk},{kansai[1].pk}"
        answer = ask(client, BOARD, pk=query, bio="kansai")
        assert [(one["pk"], one["rank"]) for one in answer["results"]] == [
            (kansai[1].pk, 2),
            (kansai[3].pk, 4),
        ]

    def test_rows(self, client: APIClient, regions: list[Player]) -> None:
        Player.objects.filter(pk=regions[1].pk).update(name="hidden")
        answer = ask(client, "/api/board/", pk=f"{regions[1].pk},{regions[3].pk}")
        assert [one["name"] for one in answer["results"]] == [f"level {regions[3].level}"]

    def test_hidden_rows_are_not_counted(self, client: APIClient, regions: list[Player]) -> None:
        """The count once told a member that is hidden from one that isn't ranked."""
        hidden, shown = regions[1], regions[3]
        Player.objects.filter(pk=hidden.pk).update(name="hidden")
        url = "/api/board/"
        assert ask(client, url, pk=str(hidden.pk)) == ask(client, url, pk="0")
        assert ask(client, url, pk=f"{hidden.pk},{shown.pk}")["count"] == 1
        assert ask(client, url, pk=f"{hidden.pk},{shown.pk}", page_size=1)["next"] is None

    def test_text_keys(self, staff: APIClient, zrank: Any) -> None:
        for score, nick in enumerate(["ada", "a,b", "b"]):
            Nickname.objects.create(nick=nick, score=score)
        sync_now(NicknameRank)
        answer = ask(staff, "/nickname/board/", pk="a\\,b,ada")
        assert {one["pk"]: one["rank"] for one in answer["results"]} == {"a,b": 2, "ada": 3}

    def test_nonsense(self, client: APIClient, regions: Any, django_assert_num_queries: Any) -> None:
        for value in ("", "x", "1,", "1,,2", "1.5", "\0", ",".join(map(str, range(101)))):
            with django_assert_num_queries(0):
                response = client.get(BOARD, {"pk": value})
            assert (response.status_code, list(response.json())) == (400, ["pk"]), value
        assert client.get(f"{BOARD}me/", {"pk": "1"}).status_code == 400  # A parameter of the list alone


class TestCaches:
    """Cache-Control, Vary and ETag."""

    def test_what_is_mine_is_not_kept(
        self, client: APIClient, staff: APIClient, regions: list[Player]
    ) -> None:
        for path in ("me/", "me/around/", "me/?bio=nowhere", "me/around/?n=x"):
            assert client.get(f"{BOARD}{path}")["Cache-Control"] == "private, no-store"
            assert staff.get(f"/open/board/{path}")["Cache-Control"] == "private, no-store"
        for path in ("", f"{regions[0].pk}/", f"{regions[0].pk}/around/", "counts/?facet=bio"):
            response = client.get(f"/open/board/{path}")
            assert ("Cache-Control" in response, "ETag" in response) == (False, False)

    def test_what_anybody_may_see(self, anonymous: APIClient, regions: list[Player]) -> None:
        for board in ("/open/board/", "/open/rows/board/"):
            for path in ("", "?page=2&page_size=3", f"{regions[0].pk}/", "counts/?facet=bio"):
                response = anonymous.get(f"{board}{path}")
                assert response.status_code == 200
                assert response["Cache-Control"] == "max-age=5"
                assert {"Accept", "Cookie", "Authorization"} <= set(response["Vary"].split(", "))
                etag = response["ETag"]
                again = anonymous.get(f"{board}{path}", headers={"If-None-Match": f'"x", {etag}'})
                assert (again.status_code, again.content) == (304, b"")
                assert {name: again[name] for name in ("ETag", "Cache-Control", "Vary")} == {
                    name: response[name] for name in ("ETag", "Cache-Control", "Vary")
                }
                assert anonymous.head(f"{board}{path}")["Cache-Control"] == "max-age=5"
        Player.objects.filter(pk=regions[0].pk).update(level=500)
        sync_now(Regional)
        again = anonymous.get("/open/board/", headers={"If-None-Match": etag})
        assert (again.status_code, again.json()["results"][0]["score"]) == (200, 500)

    def test_what_is_not_kept(self, anonymous: APIClient, regions: list[Player], zrank: Any) -> None:
        html = anonymous.get("/open/board/", headers={"Accept": "text/html"})  # Has a CSRF token
        assert "max-age" not in html.get("Cache-Control", "")
        for url in ("/unkept/board/", "/open/board/?n=x", "/open/board/0/", "/api/leaderboard/"):
            response = anonymous.get(url)
            assert ("Cache-Control" in response, "ETag" in response) == (False, False), url
        zrank.flushall()
        response = anonymous.get("/open/board/")
        assert (response.status_code, "Cache-Control" in response) == (503, False)


class TestAround:
    """GET /leaderboard/<pk>/around/."""

    def test_n(self, client: APIClient, me: Player) -> None:
        for path in ("me/", f"{me.pk}/"):
            for query, n in (({}, 10), ({"n": 5}, 5), ({"n": 1}, 1), ({"n": 500}, 41)):
                answer = ask(client, f"{URL}{path}around/", **query)
                assert list(answer) == ["next", "previous", "results"]
                assert (answer["next"], answer["previous"]) == (None, None) or n < 41
                ranks = [result["rank"] for result in answer["results"]]
                assert len(ranks) == n
                assert 21 in ranks
                assert ranks == list(range(ranks[0], ranks[0] + n))
        assert [one["rank"] for one in ask(client, f"{URL}me/around/", n=5)["results"]] == [
            19,
            20,
            21,
            22,
            23,
        ]

    def test_ends(self, client: APIClient, me: Player) -> None:
        for level, expected in ((120, [120, 119, 118]), (80, [82, 81, 80])):
            pk = Player.objects.get(level=level).pk
            assert levels(ask(client, f"{URL}{pk}/around/", n=3)["results"]) == expected

    def test_pages_up_and_down(self, client: APIClient, regions: list[Player], me: Player) -> None:
        for path in ("me/", f"{me.pk}/"):
            first = ask(client, f"{BOARD}{path}around/", n=3)
            assert levels(first["results"]) == [101, 100, 99]
            for link, expected in (("next", range(98, 79, -1)), ("previous", range(102, 121))):
                found, page = [], first
                while url := page[link]:
                    page = client.get(url).json()
                    some = levels(page["results"])
                    found += some if link == "next" else some[::-1]
                    assert [one["rank"] for one in page["results"]] == [121 - level for level in some]
                assert found == [*expected]
            following = client.get(first["next"]).json()
            assert levels(client.get(following["previous"]).json()["results"]) == [101, 100, 99]

    def test_pages_with_filters(self, client: APIClient, regions: list[Player], me: Player) -> None:
        page = ask(client, f"{BOARD}me/around/", bio="kantou", n=2)
        found = levels(page["results"])
        while page["next"]:
            assert "bio=kantou" in page["next"]
            page = client.get(page["next"]).json()
            found += levels(page["results"])
        kantou = [one.level for one in regions if one.bio == "kantou"]
        assert found == kantou[kantou.index(100) - 1 :]

    def test_a_page_while_scores_change(self, client: APIClient, regions: list[Player], me: Player) -> None:
        page = ask(client, f"{BOARD}me/around/", n=3)
        regions[0].level = 50  # From above to below
        regions[0].save()
        regions[-1].level = 150
        regions[-1].save()
        assert levels(client.get(page["next"]).json()["results"]) == [98, 97, 96]
        assert levels(client.get(page["previous"]).json()["results"]) == [104, 103, 102]
        Player.objects.get(level=99).delete()
        assert levels(client.get(page["next"]).json()["results"]) == [98, 97, 96]

    def test_hidden_members_have_no_cursor(
        self, client: APIClient, regions: list[Player], me: Player, django_assert_num_queries: Any
    ) -> None:
        """Pages of hidden members alone are passed over."""
        shown = [120, 110, 105, 100, 90]
        Player.objects.exclude(level__in=shown).update(name="hidden")
        url = "/searched/board/me/around/?search=level&n=2"
        first = page = client.get(url).json()
        found = levels(page["results"])
        while page["next"]:
            page = client.get(page["next"]).json()
            found += levels(page["results"])
        assert found == [100, 90]
        page, found = first, []
        while page["previous"]:
            page = client.get(page["previous"]).json()
            found += levels(page["results"])
        assert found == [110, 105, 120]
        assert (
            client.get(first["previous"])
            .json()["previous"]
            .endswith(f"before={Regional.ranking.cursor(Regional.ranking.at_rank(11))}&n=2&search=level")
        )

    def test_short_pages_reach_across_many_hidden_members(
        self, client: APIClient, regions: list[Player]
    ) -> None:
        """Not only as many members as the pages passed over have: null would say that nobody follows."""
        Player.objects.exclude(level__in=(120, 119, 81, 80)).update(name="hidden")
        page = ask(client, f"/searched/board/{regions[0].pk}/around/", search="level", n=1)
        found = levels(page["results"])
        while page["next"]:
            page = client.get(page["next"]).json()
            found += levels(page["results"])
        assert found == [120, 119, 81, 80]
        page = ask(client, f"/searched/board/{regions[-1].pk}/around/", search="level", n=1)
        found = levels(page["results"])
        while page["previous"]:
            page = client.get(page["previous"]).json()
            found += levels(page["results"])
        assert found == [80, 81, 119, 120]

    def test_invalid_cursors(self, client: APIClient, me: Player, django_assert_num_queries: Any) -> None:
        good = PlayerRank.ranking.cursor(PlayerRank.ranking.entry(me))
        assert levels(ask(client, f"{URL}me/around/", after=good, n=1)["results"]) == [99]
        for name in ("after", "before"):
            for values in (["x"], [""], [good[:-1]], [f"{good}="], [good, good], ["A" * 9000], ["é"]):
                with django_assert_num_queries(0):
                    response = client.get(f"{URL}me/around/", {name: values})
                assert (response.status_code, list(response.json())) == (400, [name]), values
        response = client.get(f"{URL}me/around/", {"after": good, "before": good})
        assert (response.status_code, list(response.json())) == (400, ["before"])

    def test_queries(self, client: APIClient, regions: Any, django_assert_num_queries: Any) -> None:
        with django_assert_num_queries(1):
            ask(client, f"{BOARD}me/around/")
        with django_assert_num_queries(2):  # My row, theirs
            results = ask(client, "/api/board/me/around/")["results"]
        assert [result["name"] for result in results] == [f"level {level}" for level in levels(results)]

    def test_nonsense(self, client: APIClient, me: Player, django_assert_num_queries: Any) -> None:
        for values in (["0"], ["-1"], ["x"], [""], ["501"], ["5", "6"], ["1.5"]):
            with django_assert_num_queries(0):
                response = client.get(f"{URL}me/around/", {"n": values})
            assert response.status_code == 400, values
            assert list(response.json()) == ["n"]


class TestStandings:
    """GET /leaderboard/<pk>/?in=."""

    def test_in(self, client: APIClient, regions: list[Player], me: Player) -> None:
        kantou = [one for one in regions if one.bio == "kantou"]
        active = [one for one in regions if one.is_active]
        both = [one for one in kantou if one.is_active]
        assert me.pk in [one.pk for one in both]

        def standing(members: list[Player], **values: Any) -> dict[str, Any]:
            at = [one.pk for one in members].index(me.pk)
            percentile = pytest.approx(100 * (1 - at / (len(members) - 1)))
            return {"values": values, "rank": at + 1, "count": len(members), "percentile": percentile}

        in_region, if_active = standing(kantou, bio="kantou"), standing(active, is_active=True)
        in_both = standing(both, bio="kantou", is_active=True)
        for path in ("me/", f"{me.pk}/"):
            without = ask(client, f"{BOARD}{path}")
            for given, expected in (
                ("bio", [in_region]),
                ("is_active", [if_active]),
                ("bio,is_active", [in_region, if_active, in_both]),
            ):
                assert ask(client, f"{BOARD}{path}", **{"in": given}) == {**without, "standings": expected}
        repeated = client.get(f"{BOARD}me/?in=is_active&in=bio").json()
        assert repeated["standings"] == [in_region, if_active, in_both]

    def test_filters(self, client: APIClient, regions: list[Player], me: Player) -> None:
        """Of a ranking that is filtered, those of the facets that are declared with the filter's columns."""
        answer = ask(client, f"{BOARD}me/", **{"in": "is_active", "bio": "kantou"})
        both = ask(client, f"{BOARD}me/", bio="kantou", is_active="true")
        assert answer == {
            **ask(client, f"{BOARD}me/", bio="kantou"),
            "standings": [
                {
                    "values": {"bio": "kantou", "is_active": True},
                    **{name: both[name] for name in ("rank", "count", "percentile")},
                }
            ],
        }
        sync_now(Pairs)
        assert ask(client, "/pairs/board/me/", **{"in": "is_active,bio"})["standings"] == answer["standings"]

    def test_invalid(self, client: APIClient, regions: list[Player], me: Player) -> None:
        for url, query in (
            (BOARD, {"in": "region"}),
            (BOARD, {"in": ""}),
            (BOARD, {"in": "bio,bi"}),
            (BOARD, {"in": "bio,is_active,user,bio"}),  # More than there are
            (BOARD, {"in": "user", "bio": "kantou"}),  # No facet of both
            (BOARD, {"in": "user", "bio": "kantou,kansai"}),
            (BOARD, {"in": "user", "bio__not": "kansai"}),
            ("/pairs/board/", {"in": "bio"}),  # Only part of a facet
            (URL, {"in": "bio"}),  # No facets
            ("/open/unranked/board/", {"in": "bio"}),  # No ranks
        ):
            for path in ("me/", f"{me.pk}/"):
                response = client.get(f"{url}{path}", query)
                assert (response.status_code, list(response.json())) == (400, ["in"]), (url, query)
        assert client.get(f"{BOARD}me/around/", {"in": "bio"}).status_code == 400
        assert client.get(f"{BOARD}me/gap/", {"in": "bio"}).status_code == 400


class TestGap:
    """GET /leaderboard/<pk>/gap/."""

    def test_who_is_above(self, client: APIClient, regions: list[Player], me: Player) -> None:
        above = regions[regions.index(me) - 1]
        for path in ("me/", f"{me.pk}/"):
            assert ask(client, f"{URL}{path}gap/") == {
                "pk": me.pk,
                "score": 100,
                "rank": 21,
                "above": {"pk": above.pk, "score": 101, "rank": 20},
                "gap": 1,
            }
        best = ask(client, f"{BOARD}{regions[0].pk}/gap/")
        assert (best["rank"], best["above"], best["gap"]) == (1, None, None)

    def test_filters(self, client: APIClient, regions: list[Player], me: Player) -> None:
        level = min(one.level for one in regions if one.bio == "kantou" and one.level > 100)
        answer = ask(client, f"{BOARD}me/gap/", bio="kantou")
        assert (answer["above"]["score"], answer["gap"]) == (level, level - 100)
        assert client.get(f"{BOARD}me/gap/", {"bio": "kansai"}).status_code == 404

    def test_rows(
        self, client: APIClient, regions: list[Player], me: Player, django_assert_num_queries: Any
    ) -> None:
        with django_assert_num_queries(2):  # My row, both
            answer = ask(client, "/api/board/me/gap/")
        assert (answer["name"], answer["above"]["name"], answer["gap"]) == ("level 100", "level 101", 1)

    def test_one_above_that_the_view_hides(
        self, client: APIClient, regions: list[Player], me: Player
    ) -> None:
        answer = ask(client, "/searched/board/me/gap/", search="100")
        assert (answer["name"], answer["above"], answer["gap"]) == ("level 100", None, None)
        assert client.get("/searched/board/me/gap/", {"search": "101"}).status_code == 404

    def test_floats_further_apart_than_any_float(self, client: APIClient, me: Player) -> None:
        """JSON has no infinity."""
        Nickname.objects.bulk_create(
            Nickname(nick=nick, score=score) for nick, score in [("a", 1e308), ("b", -1e308)]
        )
        sync_now(NicknameRank)
        answer = ask(client, "/api/nickname/leaderboard/b/gap/")
        assert (answer["score"], answer["above"]["score"], answer["gap"]) == (-1e308, 1e308, float_info.max)


class TestCounts:
    """GET /leaderboard/counts/."""

    def test_one_facet(self, client: APIClient, regions: Any) -> None:
        answer = ask(client, f"{BOARD}counts/", facet="bio")
        assert answer == {
            "count": 4,
            "results": [
                {"values": {"bio": "kantou"}, "count": 11},
                {"values": {"bio": "a,b"}, "count": 10},
                {"values": {"bio": "kansai"}, "count": 10},
                {"values": {"bio": "touhoku"}, "count": 10},
            ],
        }

    def test_of_several_columns(self, client: APIClient, regions: Any) -> None:
        expected: dict[Any, int] = {}
        for player in regions:
            expected[player.bio, player.is_active] = expected.get((player.bio, player.is_active), 0) + 1
        for facet in ("bio,is_active", "is_active,bio"):
            answer = ask(client, f"{BOARD}counts/", facet=facet)
            assert answer["count"] == len(expected) == 8
            found = {
                (one["values"]["bio"], one["values"]["is_active"]): one["count"] for one in answer["results"]
            }
            assert found == expected

    def test_null(self, client: APIClient, regions: Any, user: User) -> None:
        assert ask(client, f"{BOARD}counts/", facet="user")["results"] == [
            {"values": {"user": None}, "count": 40},
            {"values": {"user": user.pk}, "count": 1},
        ]

    def test_n(self, client: APIClient, regions: Any) -> None:
        answer = ask(client, f"{BOARD}counts/", facet="bio", n=1)
        assert answer == {"count": 4, "results": [{"values": {"bio": "kantou"}, "count": 11}]}

    def test_names_of_the_view(self, client: APIClient, regions: Any) -> None:
        answer = ask(client, "/api/board/counts/", facet="region", n=1)
        assert answer["results"] == [{"values": {"region": "kantou"}, "count": 11}]
        answer = ask(client, "/api/board/counts/", facet="region,active", n=1)
        assert list(answer["results"][0]["values"]) == ["region", "active"]
        assert client.get("/api/board/counts/", {"facet": "bio"}).status_code == 400

    def test_nonsense(self, client: APIClient, regions: Any) -> None:
        for values in ([], [""], ["level"], ["bio,user"], ["bio,bio"], ["bio,"], ["bio", "user"]):
            response = client.get(f"{BOARD}counts/", {"facet": values})
            assert response.status_code == 400, values
            assert list(response.json()) == ["facet"]
        (message,) = client.get(f"{BOARD}counts/", {"facet": "level"}).json()["facet"]
        assert message == "“level” is not a facet. There are: bio; is_active; user; bio,is_active."
        (message,) = client.get("/braces/board/counts/", {"facet": "{level}"}).json()["facet"]
        assert message == "“{level}” is not a facet. There are: {name}."

    def test_without_facets(self, client: APIClient, me: Player) -> None:
        assert client.get(f"{URL}counts/", {"facet": "bio"}).status_code == 400


class TestPermissions:
    """Whoever has signed in sees everybody's place, unless the project says otherwise."""

    PATHS = ("", "me/", "1/", "1/around/", "me/around/", "1/gap/", "me/gap/", "counts/?facet=bio")

    def test_nobody_signed_in(self, anonymous: APIClient, regions: Any) -> None:
        for path in self.PATHS:
            for url in (URL, BOARD, "/api/player/leaderboard/"):
                assert anonymous.get(f"{url}{path}").status_code == 403

    def test_where_nobody_must(self, anonymous: APIClient, regions: Any) -> None:
        assert ask(anonymous, "/open/board/")["count"] == 41
        assert ask(anonymous, f"/open/board/{regions[0].pk}/")["rank"] == 1
        for path in ("me/", "me/around/"):
            assert anonymous.get(f"/open/board/{path}").status_code == 403

    def test_of_the_member(self, client: APIClient, regions: Any, me: Player) -> None:
        for path in ("", "around/", "gap/"):
            assert client.get(f"/owners/board/{me.pk}/{path}").status_code == 200
            assert client.get(f"/owners/board/{regions[0].pk}/{path}").status_code == 403
            assert client.get(f"{BOARD}{regions[0].pk}/{path}").status_code == 200
        assert client.get("/owners/board/me/").status_code == 200

    def test_reads_only(self, client: APIClient, regions: Any) -> None:
        for path in self.PATHS:
            for method in ("post", "put", "patch", "delete"):
                assert getattr(client, method)(f"{BOARD}{path}").status_code == 405


class TestIndexes:
    """The index of a request."""

    def test_by_name(self, client: APIClient, me: Player) -> None:
        sync_now(PlayerAscending)
        assert levels(ask(client, "/api/ascending/leaderboard/", page_size=2)["results"]) == [80, 81]
        assert ask(client, f"/api/ascending/leaderboard/{me.pk}/")["rank"] == 21
        assert ask(client, "/api/player/leaderboard/me/")["rank"] == 21
        assert len(ask(client, "/api/player/leaderboard/me/around/", n=3)["results"]) == 3
        assert client.get("/api/ascending/leaderboard/me/").status_code == 404  # Has no owner

    def test_unknown(self, client: APIClient, me: Player, settings: Any) -> None:
        for path in TestPermissions.PATHS:
            assert client.get(f"/api/nothing/leaderboard/{path}").status_code == 404
        settings.ZRANK = {}
        for path in TestPermissions.PATHS:
            assert client.get(f"{URL}{path}").status_code == 404

    def test_names_of_the_urls(self) -> None:
        assert reverse("django_zrank:leaderboard-list") == URL
        assert reverse("django_zrank:leaderboard-around", args=[7]) == f"{URL}7/around/"
        named = reverse("django_zrank:index-leaderboard-counts", kwargs={"index": "player"})
        assert named == "/api/player/leaderboard/counts/"


def test_unavailable(client: APIClient, regions: Any, zrank: Any) -> None:
    zrank.flushall()
    for path in ("", "me/", f"{regions[0].pk}/", "me/around/", "counts/?facet=bio"):
        response = client.get(f"{BOARD}{path}")
        assert response.status_code == 503, path
        assert response["Retry-After"] == "5"
        assert response.json() == {
            "detail": "The ranking is unavailable at the moment.",
            "code": "index_unavailable",
        }


def test_the_browsable_api(client: APIClient, regions: Any) -> None:
    for path, shown in (
        ("", "<h1>Board List</h1>"),
        ("me/", "<h1>Your rank</h1>"),
        ("me/around/", "<h1>Around</h1>"),
        ("counts/?facet=bio", "<h1>Counts</h1>"),
        ("counts/", "This field is required."),
        ("?page_size=5", "page=2"),
    ):
        response = client.get(f"{BOARD}{path}", headers={"accept": "text/html"})
        assert shown in response.content.decode(), path


class TestNamesOfParameters:
    """Facets that are called like a parameter."""

    @pytest.fixture
    def musicians(self, user: User, zrank: Any) -> list[Musician]:
        musicians = [
            Musician.objects.create(
                level=level, band=band, page=page, facet_page=page * 2, user=user if level == 1 else None
            )
            for level, (band, page) in enumerate([("abba", 1), ("queen", 2), ("abba", 2)])
        ]
        sync_now(MusicianRank)
        return musicians

    def test_have_another_name(self, client: APIClient, musicians: Any) -> None:
        board, draw = "/musicians/board/", "/musicians/"
        assert levels(ask(client, board, facet_band="abba")["results"]) == [2, 0]
        assert levels(ask(client, board, facet_page="2", page=1)["results"]) == [0]
        assert levels(ask(client, board, facet_facet_page="2", page=1)["results"]) == [2, 1]
        assert levels(ask(client, board, facet_page="4")["results"]) == [2, 1]
        assert client.get(board, {"band": "abba"}).status_code == 400
        assert levels(ask(client, draw, facet_band="abba", band=1)["results"]) == [2, 0]
        assert ask(client, f"{board}me/", facet_band__not="abba")["rank"] == 1
        counts = ask(client, f"{board}counts/", facet="facet_band")["results"]
        assert counts[0] == {"values": {"facet_band": "abba"}, "count": 2}

    def test_choices(self, client: APIClient, musicians: list[Musician]) -> None:
        """A value that isn't among the choices of a field is refused, as the schema says; rows may have it."""
        for genre in ("", "jazz"):
            Musician.objects.create(level=5, genre=genre)
        sync_now(MusicianRank)
        board = "/musicians/board/"
        for query, count in (
            ("genre=pop", 3),
            ("genre=", 5),
            ("genre__isempty=true", 1),
            ("genre=pop,", 4),
            ("genre__not=rock", 5),
        ):
            assert client.get(f"{board}?{query}").json()["count"] == count
        for query in ("genre=jazz", "genre__not=jazz", "genre=Pop", "genre=pop,jazz"):
            response = client.get(f"{board}?{query}")
            assert response.status_code == 400
            assert "is not a value of genre" in next(iter(response.json().values()))[0]
        counts = ask(client, f"{board}counts/", facet="genre")["results"]
        assert {one["values"]["genre"]: one["count"] for one in counts} == {"pop": 3, "": 1, "jazz": 1}

    def test_check_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        only = Registry()
        monkeypatch.setattr("django_zrank.rest_framework.checks.registry", only)
        for index in (PlayerRank, Regional):
            only.register(index)
        assert check_facet_names(None) == []
        only.register(MusicianRank)
        assert [(one.id, one.msg) for one in check_facet_names(None)] == [
            (
                "zrank.W050",
                f"MusicianRank.facets: {name} is a parameter of the REST API, so the filter is called {new} there.",
            )
            for name, new in (("'band'", "'facet_band'"), ("'page'", "'facet_facet_page'"))
        ]

    def test_names_of_the_view_must_differ(self, client: APIClient, regions: Any) -> None:
        assert client.get("/clash/board/").status_code == 200  # Has no n
        with pytest.raises(ImproperlyConfigured, match="'n'"):
            client.get("/clash/board/me/around/")


def test_several_criteria(client: APIClient, regions: list[Player], me: Player) -> None:
    sync_now(Tied)
    expected = sorted(regions, key=lambda player: (not player.is_active, player.level))
    answer = ask(client, "/values/board/")
    assert [one["values"] for one in answer["results"]] == [[one.is_active, one.level] for one in expected]
    assert [one["score"] for one in answer["results"]] == [one.is_active for one in expected]
    kantou = [player for player in expected if player.bio == "kantou"]
    place = ask(client, "/values/board/me/", bio="kantou")
    assert (place["rank"], place["values"]) == (kantou.index(me) + 1, [True, 100])
    around = ask(client, "/values/board/me/around/", n=3)["results"]
    rank = expected.index(me) + 1
    assert [one["rank"] for one in around] == [rank - 1, rank, rank + 1]


def test_a_ranking_that_the_view_narrows(client: APIClient, regions: Any, me: Player) -> None:
    kansai = [player for player in regions if player.bio == "kansai"]
    answer = ask(client, "/kansai/board/")
    assert levels(answer["results"]) == [player.level for player in kansai]
    assert client.get(f"/kansai/board/{me.pk}/").status_code == 404
    assert ask(client, f"/kansai/board/{kansai[1].pk}/")["rank"] == 2
