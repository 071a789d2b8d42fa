"""GET /recommendations/ as a client sees it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.exceptions import ImproperlyConfigured
from django.urls import reverse
from rest_framework.test import APIClient

from django_zrank import rest_framework
from django_zrank.registry import Registry
from django_zrank.rest_framework import viewsets
from django_zrank.testing import EmbeddedServer, sync_now
from tests.rest_framework.urls import Trained, Users
from tests.testapp.models import Player, Ticket
from tests.testapp.zrank import (
    ByDay,
    ByFlag,
    ByInteger,
    ByMoment,
    ByPrice,
    ByReal,
    BySpan,
    PlayerAscending,
    PlayerRank,
)

URL = "/api/recommendations/"


def test_the_answer(client: APIClient, me: Player) -> None:
    response = client.get(URL)
    assert response.status_code == 200
    answer = response.json()
    assert list(answer) == ["band", "candidates", "results"]
    assert answer["band"] == [10, 10]
    assert answer["candidates"] == 20
    assert len(answer["results"]) == 10
    for result in answer["results"]:
        assert list(result) == ["pk", "score", "rank"]
        player = Player.objects.get(pk=result["pk"])
        assert result["score"] == player.level
        assert result["rank"] == 121 - player.level
    ranks = [result["rank"] for result in answer["results"]]
    assert ranks == sorted(set(ranks))
    assert sum(rank < 21 for rank in ranks) == 5


def test_my_friends_are_not_offered(client: APIClient, me: Player) -> None:
    me.friends.set(Player.objects.filter(level__in=range(101, 106)))
    scores = {result["score"] for result in client.get(URL, {"n": 20}).json()["results"]}
    assert scores == {*range(90, 100), *range(106, 111)}


def test_nobody_near(client: APIClient, me: Player) -> None:
    assert client.get(URL, {"band": 0}).json() == {"band": [0, 0], "candidates": 0, "results": []}
    assert client.get("/api/opponents/", {"band": 0}).json()["results"] == []


def test_queries(client: APIClient, me: Player, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(2):  # My row, my friends
        assert client.get(URL).status_code == 200
    with django_assert_num_queries(3):  # And the rows shown
        assert len(client.get("/api/opponents/").json()["results"]) == 10
    with django_assert_num_queries(2):
        assert client.get("/linked/").status_code == 200
    with django_assert_num_queries(0):
        assert client.get(URL, {"n": 0}).status_code == 400


def test_users_who_are_ranked_are_looked_up_in_the_queryset_of_the_index(
    user: User, zrank: Any, django_assert_num_queries: Any
) -> None:
    others = User.objects.bulk_create(User(username=f"user {number}") for number in range(3))
    sync_now(Users)
    client = APIClient()
    client.force_login(user)  # by a session: request.user is wrapped
    with django_assert_num_queries(4):  # The session, the user, my row, get_excluded()
        assert client.get("/users/").json()["candidates"] == len(others)
    others[0].groups.add(shared := Group.objects.create(name="shared"))
    user.groups.add(shared)
    results = client.get("/users/").json()["results"]
    assert {result["pk"] for result in results} == {others[1].pk, others[2].pk}
    with django_assert_num_queries(3):
        assert client.get("/users/board/me/").json()["pk"] == user.pk
    User.objects.filter(pk=user.pk).update(is_staff=True)  # not in get_queryset(), but in Redis
    for url in ("/users/", "/users/board/me/", "/users/board/me/around/"):
        assert client.get(url).status_code == 404
    sync_now(Users)
    for unranked in (user, User(pk=0, username="deleted"), User(username="unsaved")):
        client.force_authenticate(unranked)
        for url in ("/users/", "/users/board/me/", "/users/board/me/around/"):
            assert client.get(url).status_code == 404


class TestTypes:
    """Each type of score, and of distances, in JSON."""

    COLUMNS = {
        "integer": (ByInteger, [2**53 - 1, 2**53 - 2], [2**53 - 1, 2**53 - 2], [10, 10]),
        "real": (ByReal, [0.25, 0.5], [0.25, 0.5], [0.5, 0.5]),
        "price": (ByPrice, [Decimal("12.34"), Decimal("12.30")], [12.34, 12.3], [1, 2]),
        "flag": (ByFlag, [True, True], [True, True], [0, 0]),
        "day": (
            ByDay,
            [date(2026, 2, 28), date(2026, 3, 1)],
            ["2026-02-28", "2026-03-01"],
            ["7 00:00:00", "7 00:00:00"],
        ),
        "moment": (
            ByMoment,
            [datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 1, 11, 59, 59, 999999, tzinfo=UTC)],
            ["2026-03-01T12:00:00Z", "2026-03-01T11:59:59.999999Z"],
            ["01:00:00", "01:00:00"],
        ),
        "span": (
            BySpan,
            [timedelta(seconds=1), timedelta(microseconds=5)],
            ["1.0", "5e-06"],
            ["00:01:30", "00:01:30"],
        ),
    }

    @pytest.mark.parametrize("column", COLUMNS)
    def test_type(self, staff: APIClient, zrank: Any, column: str) -> None:
        index, values, shown, band = self.COLUMNS[column]
        tickets = [Ticket.objects.create(**{column: value}) for value in values]
        sync_now(index)
        for asking, other, score in zip(tickets, reversed(tickets), reversed(shown), strict=True):
            answer = staff.get(f"/ticket-{column}/", {"member": str(asking.pk)}).json()
            (result,) = answer["results"]
            assert (result["pk"], result["score"]) == (str(other.pk), score)
            assert type(result["score"]) is type(score)
            assert answer["band"] == band


@pytest.mark.parametrize(
    ("index", "column", "value", "band"),
    [
        (ByMoment, "moment", datetime(2026, 3, 1, tzinfo=UTC), timedelta.max),
        (BySpan, "span", timedelta(seconds=1), timedelta.max),
        (ByReal, "real", 0.5, 1e308),
    ],
)
def test_the_widest_band_that_a_type_has(
    staff: APIClient,
    zrank: Any,
    monkeypatch: pytest.MonkeyPatch,
    index: Any,
    column: str,
    value: Any,
    band: Any,
) -> None:
    monkeypatch.setattr(index, "band", band)
    asking, other = [Ticket.objects.create(**{column: value}) for _ in range(2)]
    sync_now(index)
    answer = staff.get(f"/ticket-{column}/", {"member": str(asking.pk)})
    assert (answer.status_code, [one["pk"] for one in answer.json()["results"]]) == (200, [str(other.pk)])


class TestSerializer:
    """A project's own serializer."""

    def test_adds_its_fields(self, client: APIClient, me: Player) -> None:
        results = client.get("/api/opponents/").json()["results"]
        assert len(results) == 10
        for result in results:
            assert list(result) == ["pk", "score", "rank", "name", "asked_at"]
            assert result["name"] == f"level {result['score']}"
            assert result["asked_at"] == "/api/opponents/"
        assert [result["rank"] for result in results] == sorted(result["rank"] for result in results)

    def test_rows_that_are_gone_are_left_out(self, client: APIClient, me: Player) -> None:
        Player.objects.filter(level__lt=me.level).delete()  # Not pushed: nothing commits in this test
        results = client.get("/api/opponents/", {"n": 20}).json()["results"]
        assert [result["score"] for result in results] == list(range(110, 100, -1))

    def test_rows_come_from_the_queryset_of_the_view(self, client: APIClient, me: Player) -> None:
        scores = {result["score"] for result in client.get("/even/", {"n": 20}).json()["results"]}
        assert scores == set(range(90, 111)) - {91, 100, 101}
        names = [result["name"] for result in client.get("/named/", {"n": 20}).json()["results"]]
        assert names == ["level 103", "level 102", "level 101"]

    def test_filter_backends_apply(self, client: APIClient, me: Player) -> None:
        results = client.get("/api/opponents/", {"n": 20, "search": "10"}).json()["results"]
        assert {result["score"] for result in results} == set(range(101, 111))

    def test_filter_backends_do_not_hide_who_asks(self, client: APIClient, me: Player) -> None:
        answer = client.get("/api/opponents/", {"member": me.pk, "n": 20, "search": "98"}).json()
        assert [result["score"] for result in answer["results"]] == [98]

    def test_the_same_names_for_the_same_things(self, client: APIClient, me: Player) -> None:
        for result in client.get("/same-names/").json()["results"]:
            assert list(result) == ["pk", "score", "rank", "name"]
            assert type(result["score"]) is int
            assert result["name"] == f"level {result['score']}"

    @pytest.mark.parametrize(("url", "field"), [("/other-names/", "rank"), ("/bare/", "score")])
    def test_the_same_names_for_other_things_are_refused(
        self, client: APIClient, me: Player, url: str, field: str
    ) -> None:
        with pytest.raises(ImproperlyConfigured, match=f"'{field}'"):
            client.get(url)

    def test_of_the_entry_alone(self, client: APIClient, me: Player) -> None:
        for result in client.get("/linked/").json()["results"]:
            assert result["link"] == f"/players/{result['pk']}/"
            assert list(result) == ["pk", "score", "rank", "link"]


class TestProtocol:
    """Features of REST framework itself."""

    def test_every_answer_is_uncacheable(self, client: APIClient, anonymous: APIClient, me: Player) -> None:
        for response in (client.get(URL), client.get(URL, {"n": 0}), anonymous.get(URL)):
            assert response["Cache-Control"] == "private, no-store"
        assert client.get("/api/opponents/")["Cache-Control"] == "private, no-store"

    def test_reads_only(self, client: APIClient, me: Player) -> None:
        for method in ("post", "put", "patch", "delete"):
            response = getattr(client, method)(URL)
            assert response.status_code == 405
            assert response["Allow"] == "GET, HEAD, OPTIONS"
        response = client.head(URL)
        assert response.status_code == 200

    def test_options(self, client: APIClient, me: Player) -> None:
        for url, name in ((URL, "Recommendations"), ("/api/opponents/", "Opponents List")):
            response = client.options(url)
            assert response.status_code == 200
            assert response.json()["name"] == name
        assert "exclude" in client.options(URL).json()["description"]
        assert client.options("/api/nothing/recommendations/").status_code == 200

    def test_negotiation(self, client: APIClient, me: Player) -> None:
        assert client.get(URL, {"format": "json"})["Content-Type"] == "application/json"
        assert client.get(URL, {"format": "nothing"}).status_code == 404
        assert client.get(URL, headers={"accept": "image/png"}).status_code == 406
        assert client.get("/api/opponents.json").status_code == 200

    def test_is_not_paginated(self, client: APIClient, me: Player) -> None:
        assert client.get("/api/opponents/", {"page": 2}).status_code == 400
        answer = client.get("/api/opponents/", {"n": 20}).json()
        assert list(answer) == ["band", "candidates", "results"]
        assert len(answer["results"]) == 20

    @pytest.mark.parametrize("debug", [True, False])
    def test_too_many_parameters(self, client: APIClient, me: Player, settings: Any, debug: bool) -> None:
        """More than Django reads: a page of its own, or a 500 while debugging."""
        settings.DEBUG = debug
        query = "&".join(f"exclude={number}" for number in range(1001))
        response = client.get(f"{URL}?{query}")
        assert response.status_code == 400
        assert response.json() == {
            "detail": "There are too many parameters.",
            "code": "too_many_parameters",
        }

    def test_throttles(self, client: APIClient, me: Player) -> None:
        statuses = [client.get("/throttled/").status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        assert int(client.get("/throttled/")["Retry-After"]) > 80_000


class TestBrowsable:
    """The browsable API shows every kind of answer."""

    @staticmethod
    def page(client: APIClient, url: str, status: int) -> str:
        response = client.get(url, headers={"accept": "text/html"})
        assert response.status_code == status
        assert response["Content-Type"] == "text/html; charset=utf-8"
        return response.content.decode()

    def test_answers(self, client: APIClient, me: Player) -> None:
        page = self.page(client, URL, 200)
        assert "<h1>Recommendations</h1>" in page
        assert "Random members of a ranking" in page
        assert "&quot;candidates&quot;: 20" in page
        assert "level 10" in self.page(client, "/api/opponents/", 200)

    @pytest.mark.parametrize("markdown", [True, False])
    def test_descriptions(
        self, client: APIClient, me: Player, monkeypatch: pytest.MonkeyPatch, markdown: bool
    ) -> None:
        """They read well as Markdown, and as plain text where that is not installed."""
        if not markdown:
            monkeypatch.setattr("rest_framework.utils.formatting.apply_markdown", None)
        for url, shown in (
            (URL, ["n: the number of members.", "or __isnull=true to select"]),
            ("/api/leaderboard/", ["The members of a ranking, best first, in pages.", "Append __not to"]),
            ("/api/leaderboard/me/around/", ["n: the number of members."]),
        ):
            page = self.page(client, url, 200)
            described = page[page.index('<div class="pull-left">') : page.index('<div class="request-info"')]
            assert all(text in described for text in shown)
            assert not set("`*") & set(described)
            assert described.count("<br />") == 2 * described.count("<br /><br />")

    def test_errors(self, client: APIClient, anonymous: APIClient, staff: APIClient, me: Player) -> None:
        assert "Ensure this value is" in self.page(client, f"{URL}?n=0", 400)
        assert "credentials were not provided" in self.page(anonymous, URL, 403)
        self.page(anonymous, "/basic/", 401)
        assert "somebody else" in self.page(client, f"{URL}?member={me.pk + 1}", 403)
        assert "not in the ranking" in self.page(staff, URL, 404)
        assert "no index called" in self.page(client, "/api/nothing/recommendations/", 404)
        assert "Ensure this value is" in self.page(client, "/api/opponents/?n=0", 400)
        assert "no index called" in self.page(staff, "/staff/nothing/", 404)

    def test_unavailable(self, client: APIClient, me: Player, zrank: Any) -> None:
        zrank.flushall()
        for url in (URL, "/api/opponents/"):
            assert "unavailable" in self.page(client, url, 503)


class TestUnavailable:
    """503, with a time to try again."""

    def test_not_built(self, client: APIClient, me: Player, zrank: Any, settings: Any, caplog: Any) -> None:
        settings.ZRANK = {**settings.ZRANK, "RETRY_AFTER": 2.1}
        zrank.flushall()
        response = client.get(URL)
        assert response.status_code == 503
        assert response.json() == {
            "detail": "The ranking is unavailable at the moment.",
            "code": "index_unavailable",
        }
        assert response["Retry-After"] == "3"
        assert "rebuild_zrank" in caplog.text

    def test_no_server(self, client: APIClient, me: Player, settings: Any) -> None:
        with EmbeddedServer() as server:
            location = server.url
        settings.CACHES = {**settings.CACHES, "zrank": {**settings.CACHES["zrank"], "LOCATION": location}}
        response = client.get(URL)
        assert response.status_code == 503
        assert response["Retry-After"] == "5"
        assert "redis" not in response.content.decode().lower()

    def test_retry_after_is_never_nothing(
        self, client: APIClient, me: Player, zrank: Any, settings: Any
    ) -> None:
        settings.ZRANK = {**settings.ZRANK, "RETRY_AFTER": 0}
        zrank.flushall()
        assert client.get(URL)["Retry-After"] == "1"


class TestNotRanked:
    """404 where I have no rank."""

    def test_without_a_row(self, client: APIClient, me: Player) -> None:
        Player.objects.filter(pk=me.pk).update(user=None)
        response = client.get(URL)
        assert response.status_code == 404
        assert response.json() == {"detail": "This member is not in the ranking.", "code": "not_ranked"}

    def test_with_a_row_that_is_not_ranked(self, client: APIClient, me: Player) -> None:
        for unranked in ({"is_active": False}, {"is_active": True, "level": None}):
            Player.objects.filter(pk=me.pk).update(**unranked)
            sync_now(PlayerRank)
            assert client.get(URL).status_code == 404
            assert client.get(URL, {"member": me.pk}).status_code == 404

    def test_without_an_owner(self, client: APIClient, me: Player, caplog: Any) -> None:
        for url in ("recommendations/?band=3", "leaderboard/me/", "leaderboard/me/around/"):
            response = client.get(f"/api/ascending/{url}")
            assert response.status_code == 404
            assert response.json() == {
                "detail": "Members of this ranking don't belong to users.",
                "code": "no_owner",
            }
            assert "'ascending' declares no owner" in caplog.text  # for the site's developers


class TestIndexes:
    """The index of a request."""

    def test_by_name(self, staff: APIClient, me: Player) -> None:
        sync_now(PlayerAscending)
        for name, ranks in (("player", {101: 20, 99: 22}), ("ascending", {99: 20, 101: 22})):
            answer = staff.get(f"/staff/{name}/", {"member": me.pk, "band": 1}).json()
            assert {result["score"]: result["rank"] for result in answer["results"]} == ranks

    def test_by_name_in_the_urls_of_the_app(self, client: APIClient, me: Player) -> None:
        assert client.get("/api/player/recommendations/").json()["candidates"] == 20

    def test_unknown(self, client: APIClient, me: Player) -> None:
        response = client.get("/api/nothing/recommendations/")
        assert response.status_code == 404
        assert response.json() == {
            "detail": "There is no index called “nothing”.",
            "code": "no_index",
        }

    def test_no_default(self, client: APIClient, me: Player, settings: Any, caplog: Any) -> None:
        """Clients are told what they can do; that a setting is missing is for the log."""
        for configured in ({}, {"DEFAULT_INDEX": "nothing"}):
            settings.ZRANK = configured
            viewsets._warn.cache_clear()
            caplog.clear()
            client.get(URL)
            response = client.get(URL)
            assert response.status_code == 404
            assert response.json() == {
                "detail": "No ranking is served here. Name an index in the path.",
                "code": "no_index",
            }
            (message,) = [record.getMessage() for record in caplog.records if "django_zrank" in record.name]
            assert message.startswith("django_zrank: RecommendationViewSet has no index.")
            assert ("DEFAULT_INDEX" if not configured else "nothing") in message

    def test_the_only_one(self, client: APIClient, me: Player, settings: Any, monkeypatch: Any) -> None:
        only = Registry()
        only.register(PlayerRank)
        monkeypatch.setattr("django_zrank.rest_framework.viewsets.registry", only)
        settings.ZRANK = {}
        assert client.get(URL).json()["candidates"] == 20

    @pytest.mark.parametrize("url", ["/trained/", "/trained-instance/"])
    def test_of_the_view(self, client: APIClient, me: Player, url: str) -> None:
        sync_now(Trained)
        assert client.get(url).status_code == 404
        me.friends.add(Player.objects.get(level=85))
        answer = client.get(url, {"band": 1}).json()
        assert [result["score"] for result in answer["results"]] == [86, 84]

    def test_names_of_the_urls(self) -> None:
        assert reverse("django_zrank:recommendations") == URL
        named = reverse("django_zrank:index-recommendations", kwargs={"index": "player"})
        assert named == "/api/player/recommendations/"


def test_numbers_are_numbers(client: APIClient, me: Player) -> None:
    content = client.get(URL, {"n": 1, "band": 1}).content
    (result,) = json.loads(content)["results"]
    assert f'"pk":{result["pk"]},"score":{result["score"]},"rank":{result["rank"]}'.encode() in content
    assert type(result["pk"]) is type(result["score"]) is int


def test_a_session(user: Any, me: Player, django_assert_num_queries: Any) -> None:
    client = APIClient()
    assert client.login(username="ada", password="a")
    with django_assert_num_queries(4):  # The session, the user, my row, my friends
        assert client.get(URL).status_code == 200


def test_names_of_the_package() -> None:
    """``from django_zrank.rest_framework import RecommendationViewSet``, as the README has it."""
    assert rest_framework.RecommendationViewSet is viewsets.RecommendationViewSet
    assert all(getattr(rest_framework, name).__name__ == name for name in rest_framework.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        rest_framework.Nothing  # noqa: B018
