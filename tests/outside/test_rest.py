"""The REST API: hidden rows, spellings of parameters, counts, several rows of a user, and what a check says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import models
from django.db.models import QuerySet
from django.test.utils import isolate_apps
from django.urls import include, path
from redis import Redis
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.permissions import AllowAny, IsAdminUser
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.test import APIClient

from django_zrank import Entry, RankIndex
from django_zrank import rest_framework as api
from django_zrank.health import health
from django_zrank.rest_framework import IsOwner, LeaderboardViewSet, RecommendationViewSet, ScoreViewSet
from django_zrank.testing import sync_now
from tests.servers import RedisServer
from tests.testapp.models import Nickname, Player, Team, Ticket, Video, WeekResult

DOCS = Path(__file__).parents[2] / "docs"


class Visible:
    """Hides rows from everybody, whatever a request asks for."""

    def filter_queryset(self, request: Any, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        return queryset.exclude(name="hidden")


class Public:
    """The same of videos."""

    def filter_queryset(self, request: Any, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        return queryset.exclude(region="hidden")


class PlayerSerializer(serializers.ModelSerializer[Player]):
    class Meta:
        model = Player
        fields = ["name", "bio"]


class Players(RankIndex):
    name = "players"
    model = Player
    order = ("-level",)
    band = 1000
    owner = "user"
    facets = ("bio",)


class Views(RankIndex):
    name = "views"
    model = Video
    order = ("-views",)
    write_behind = "increment"


class Prices(RankIndex):
    name = "price"
    model = Video
    order = ("-price",)
    write_behind = "best"


class Weeks(RankIndex):
    name = "weeks"
    model = WeekResult
    order = ("-points",)
    band = 100
    owner = "user"
    facets = ("week", ("week", "user__is_staff"))


class Nicks(RankIndex):
    name = "nicks"
    model = Nickname
    order = ("-score",)
    band = 100


class Shown(RankIndex):
    """Facets of every kind of value whose spelling Python, Django or a database may take liberties with."""

    name = "shown"
    model = Team
    order = ("-points",)
    facets = ("goals", "founded", "is_pro", "club")


def index_of(column: str, width: Any) -> type[RankIndex]:
    """An index of tickets by one column."""
    attributes = {"name": f"by-{column}", "model": Ticket, "order": (f"-{column}",), "band": width}
    return type(f"By{column}", (RankIndex,), attributes)


KINDS = {
    column: index_of(column, width)
    for column, width in {
        "integer": 10,
        "real": 10,
        "price": 10,
        "flag": 1,
        "day": timedelta(days=10),
        "moment": timedelta(days=10),
        "span": timedelta(days=10),
    }.items()
}


def routes(name: str, **attributes: Any) -> Any:
    """The paths of a leaderboard and of recommendations with these attributes."""
    allowed = {"permission_classes": [AllowAny], "member_permission_classes": [AllowAny], "keep_counts": None}
    seen = {"allow_seed": True, "allow_near": True, "allow_groups": True}
    router = SimpleRouter()
    router.register(
        "leaderboard",
        type("Board", (LeaderboardViewSet,), {**allowed, "allow_groups": True, **attributes}),
        name,
    )
    draw = type("Draw", (RecommendationViewSet,), {**allowed, **seen, **attributes})
    return include([path("recommendations/", draw.as_view({"get": "list"})), *router.urls])


HIDING = {"index": Players, "serializer_class": PlayerSerializer, "filter_backends": [Visible]}


def change(**attributes: Any) -> Any:
    return ScoreViewSet.as_view({"post": "change"}, permission_classes=[AllowAny], **attributes)


class Greeting(LeaderboardViewSet):
    """An action of the project's own."""

    index = Players
    permission_classes = [AllowAny]
    filter_backends = [Visible]

    @action(detail=True)
    def greet(self, request: Any, pk: str) -> Response:
        return Response(f"{request.query_params['mood']} {self.get_object().name}")


greeting = SimpleRouter()
greeting.register("", Greeting, "greeting")

urlpatterns = [
    path("hiding/", routes("hiding", **HIDING)),
    path("hiding/scores/<pk>/", change(index=Views, filter_backends=[Public])),
    path("nicks/", routes("nicks", index=Nicks)),
    path("shown/", routes("shown", index=Shown)),
    path("named/", routes("named", index=Players, lookup_field="level")),
    *(path(f"{column}/", routes(column, index=index)) for column, index in KINDS.items()),
    path("views/scores/<pk>/", change(index=Views)),
    path("price/scores/<pk>/", change(index=Prices)),
    path("weeks/", routes("weeks", index=Weeks, member_permission_classes=[IsOwner])),
    path("staffed/", routes("staffed", index=Weeks, member_permission_classes=[IsOwner | IsAdminUser])),
    path("kept/", routes("kept", index=Players, keep_counts=60)),
    path("few/", routes("few", index=Players, max_scan=1000)),
    path("greeting/", include(greeting.urls)),
    path("health/", health),
    path("api/", include("django_zrank.rest_framework.urls")),
]


@pytest.fixture(autouse=True)
def _urls(settings: Any, zrank: Redis) -> None:
    settings.ROOT_URLCONF = __name__


@pytest.fixture
def client(db: None) -> APIClient:
    """Signed in."""
    client = APIClient()
    client.force_authenticate(User.objects.create_user("ada"))
    return client


# Rows that a filter backend hides

_ROWS = [
    line.split(" | ")
    for line in (DOCS / "rest-reference.md").read_text().splitlines()
    if line.startswith("| `")
]

PARAMETERS = sorted(
    {name for row in _ROWS if row[0].startswith("| `GET ") for name in re.findall(r"`(\w+)`", row[1])}
    | {row[0].strip("|` ") for row in _ROWS if re.match(r"`\w+=", row[1])}
)
"""Every parameter that docs/rest-reference.md lists."""

SECRET, ABSENT = 987_654_321, 987_654_320
"""The id of a hidden row, and one of no row."""


def said(response: Any, pk: int) -> tuple[int, str]:
    """A response, as far as it doesn't repeat the id that was asked about."""
    return response.status_code, response.content.decode().replace(str(pk), "the id")


@pytest.fixture
def hidden(client: APIClient) -> None:
    """A hidden row among others, in the ranking."""
    user = client.handler._force_user  # type: ignore[attr-defined]
    Player.objects.bulk_create(Player(name="x", level=level, bio="b") for level in range(90, 110))
    Player.objects.create(name="me", level=100, bio="b", user=user)
    Player.objects.create(pk=SECRET, name="hidden", level=777, bio="secret")
    Video.objects.create(pk=SECRET, region="hidden", views=7)
    sync_now(Players, Views)


def test_every_route_of_every_view_is_asked_below() -> None:
    """The actions of all viewsets that the reference shows."""
    views = [getattr(api, name) for name in api.__all__ if hasattr(getattr(api, name), "get_extra_actions")]
    assert {view.__name__ for view in views} == {
        "LeaderboardViewSet",
        "RecommendationViewSet",
        "ScoreViewSet",
    }
    extra = {one.__name__ for view in views for one in view.get_extra_actions()}
    assert extra == {"me", "around", "gap", "counts"}
    assert {"member", "exclude", "near", "pk", "facet", "page", "band", "seed"} <= {*PARAMETERS}


@pytest.mark.parametrize(
    "route",
    ["<pk>/", "<pk>/around/", "<pk>/gap/", "me/", "me/around/", "me/gap/", "", "counts/", "recommendations/"],
)
def test_a_hidden_row_is_nowhere_shown_or_told_from_none(client: APIClient, hidden: None, route: str) -> None:
    url = f"/hiding/{route}" if route == "recommendations/" else f"/hiding/leaderboard/{route}"
    needed = {"facet": "bio"} if route == "counts/" else {"seed": 7} if route == "recommendations/" else {}
    for name in ["", *PARAMETERS]:
        answers = []
        for pk in (SECRET, ABSENT):
            value = {name: pk} if name else {}
            response = client.get(url.replace("<pk>", str(pk)), {**needed, **value})
            answers.append(said(response, pk))
            results = response.json().get("results", [response.json()])
            assert not [one for one in results if one.get("pk") == SECRET or one.get("score") == 777], name
            assert "hidden" not in response.content.decode(), name
        # The others are numbers, and ids that are left out of a draw.
        if name in ("", "member", "pk", "facet"):
            assert answers[0] == answers[1], name


def test_a_score_of_a_hidden_row_is_not_changed(client: APIClient, hidden: None) -> None:
    answers = [
        said(client.post(f"/hiding/scores/{pk}/", {"by": 1}, format="json"), pk) for pk in (SECRET, ABSENT)
    ]
    assert answers[0] == answers[1]
    assert answers[0][0] == 404
    assert Views.ranking.score(SECRET) == 7


def test_a_shown_row_is_found_as_before(client: APIClient, hidden: None) -> None:
    pk = Player.objects.get(name="me").pk
    for url in (f"leaderboard/{pk}/", f"leaderboard/{pk}/around/", f"recommendations/?member={pk}"):
        assert client.get(f"/hiding/{url}").status_code == 200
    assert client.get("/hiding/leaderboard/", {"pk": f"{pk},{SECRET}"}).json()["count"] == 1


def test_an_action_of_the_project_finds_rows_in_the_same_way(client: APIClient, hidden: None) -> None:
    pk = Player.objects.get(name="me").pk
    assert client.get(f"/greeting/{pk}/greet/", {"mood": "happy"}).json() == "happy me"
    assert client.get(f"/greeting/{SECRET}/greet/", {"mood": "happy"}).status_code == 404


# Spellings


def misspelt(value: str) -> Iterator[str]:
    """Other texts that Python or Django may read as the same value."""
    for zero in (0x0660, 0xFF10, 0x0966):  # Arabic, fullwidth and Devanagari digits
        yield value.translate({ord(str(digit)): zero + digit for digit in range(10)})
    yield re.sub(r"(\d)(\d)", r"\1_\2", value, count=1)
    for space in (" ", "\t", "\n", "\u00a0", "\u2003"):
        yield space + value
        yield value + space
    yield f"+{value}"
    yield f"{value}\0"


KEY = UUID(int=10)
MOMENT = datetime(2026, 11, 12, tzinfo=UTC)
CURSOR = Players.ranking.cursor(Entry(12, 12, 1, (12,)))

SPELLINGS: list[tuple[str, str, str]] = [
    # A path, the name of a parameter ("" for a part of the path) and a value; {} is the value in a path.
    *(("hiding/recommendations/", name, "12") for name in ("n", "ranks", "widen", "band", "near", "seed")),
    ("hiding/recommendations/", "member", "{player}"),
    ("hiding/recommendations/", "exclude", "12"),
    ("hiding/leaderboard/", "pk", "12"),
    ("hiding/leaderboard/", "page", "01"),
    ("hiding/leaderboard/", "page_size", "12"),
    ("hiding/leaderboard/me/around/", "n", "12"),
    *(("hiding/leaderboard/me/around/", name, CURSOR) for name in ("after", "before")),
    ("hiding/leaderboard/me/", "member", "{player}"),
    ("hiding/leaderboard/counts/?facet=bio", "n", "12"),
    ("hiding/leaderboard/{}/", "", "{player}"),
    ("hiding/leaderboard/{}/around/", "", "{player}"),
    ("named/leaderboard/{}/", "", "1000"),
    ("shown/leaderboard/", "goals", "12"),
    ("shown/leaderboard/", "goals__not", "12"),
    ("shown/leaderboard/", "goals__isnull", "false"),
    ("shown/leaderboard/", "founded", "2026-11-12"),
    ("shown/leaderboard/", "is_pro", "true"),
    ("shown/leaderboard/", "club", "12"),
    ("integer/leaderboard/{}/", "", str(KEY)),
    ("integer/leaderboard/", "pk", str(KEY)),
    ("integer/leaderboard/{}/", "", KEY.hex),
    *((f"{kind}/recommendations/", "member", str(KEY)) for kind in KINDS),
    ("integer/recommendations/", "near", "12"),
    ("real/recommendations/", "near", "12"),
    ("real/recommendations/", "near", "12.5"),
    ("real/recommendations/", "near", "1.5e+03"),
    ("price/recommendations/", "near", "12.50"),
    ("flag/recommendations/", "near", "true"),
    ("day/recommendations/", "near", "2026-11-12"),
    ("moment/recommendations/", "near", "2026-11-12T13:14:15.123456Z"),
    ("moment/recommendations/", "near", "2026-11-12 13:14:15"),
    ("moment/recommendations/", "near", "2026-11-12T13:14:15.1234567+05:30"),  # as .NET writes it
    ("span/recommendations/", "near", "12:13:14"),
    ("span/recommendations/", "near", "P12D"),
    ("real/recommendations/?near=1", "band", "12.5"),
    ("price/recommendations/?near=1", "band", "12,34"),
    ("day/recommendations/?near=2026-11-12", "band", "12"),
    ("day/recommendations/?near=2026-11-12", "band", "P12D"),
    ("moment/recommendations/?near=2026-11-12", "band", "12:13:14"),
    ("span/recommendations/?near=P1D", "widen", "PT12H"),
    ("views/scores/{}/", "", "12"),
    ("views/scores/12/", "by", "12"),
    ("price/scores/12/", "value", "12.50"),
]


def ask(client: APIClient, url: str, name: str, value: str) -> int:
    """The status of an answer."""
    url = f"/{url.replace('{}', quote(value))}"
    if "scores" in url:
        return int(client.post(url, {name: value} if name else {}, format="json").status_code)
    path, _, query = url.partition("?")
    given = dict(pair.split("=") for pair in query.split("&") if pair) | ({name: value} if name else {})
    return int(client.get(path, given).status_code)


@pytest.fixture
def rows(client: APIClient) -> Player:
    """A row for each value of ``SPELLINGS``."""
    player = Player.objects.create(pk=1234, level=1000, user=client.handler._force_user)  # type: ignore[attr-defined]
    Video.objects.create(pk=12)
    Team.objects.create(points=1, goals=12, founded=date(2026, 11, 12))
    Ticket.objects.create(
        pk=KEY, integer=12, real=12.5, price=12, flag=True, day=MOMENT, moment=MOMENT, span=timedelta(days=12)
    )
    sync_now(Players, Views, Prices, Shown, *KINDS.values())
    return player


def test_each_value_has_one_spelling(client: APIClient, rows: Player) -> None:
    wrong = []
    for url, name, value in SPELLINGS:
        given = value.replace("{player}", str(rows.pk))
        if (status := ask(client, url, name, given)) != 200:
            wrong.append((url, name, given, status))
        for other in misspelt(given):
            # Between the ids of a list there may be spaces; a line break ends no path.
            is_list = name in ("exclude", "pk") and other.strip(" ") == given
            if other == given or is_list:
                continue
            if (status := ask(client, url, name, other)) != (400 if name else 404):
                wrong.append((url, name, other, status))
    assert not wrong, "\n".join(map(repr, wrong))


def test_every_parameter_has_a_spelling() -> None:
    assert {name for _, name, _ in SPELLINGS} >= {*PARAMETERS} - {"facet", "in"}  # one of a list of names


def test_a_text_key_may_end_with_a_space(client: APIClient) -> None:
    for score, nick in enumerate(["a", "b ", " c", "d"]):
        Nickname.objects.create(nick=nick, score=score)
    sync_now(Nicks)
    drawn = client.get("/nicks/recommendations/", {"member": "a", "exclude": "b ,d"}).json()
    assert [one["pk"] for one in drawn["results"]] == [" c"]
    drawn = client.get("/nicks/recommendations/", {"member": "a", "exclude": ["d", " c"]}).json()
    assert [one["pk"] for one in drawn["results"]] == ["b "]
    assert client.get("/nicks/leaderboard/", {"pk": "b , c,d"}).json()["count"] == 3
    assert client.get("/nicks/leaderboard/b%20/").json()["pk"] == "b "


# Several rows of a user


@pytest.fixture
def weeks(client: APIClient) -> list[WeekResult]:
    """Two rows of the user in one week, and one in another; and one of somebody else."""
    user, other = client.handler._force_user, User.objects.create_user("eve")  # type: ignore[attr-defined]
    found = WeekResult.objects.bulk_create(
        WeekResult(user=owner, week=week, points=points)
        for owner, week, points in ((user, 1, 10), (user, 1, 20), (user, 2, 30), (other, 1, 15))
    )
    sync_now(Weeks)
    return found


def test_a_row_that_no_filter_chooses_is_named(client: APIClient, weeks: list[WeekResult]) -> None:
    first, second, later, foreign = weeks
    for route in ("leaderboard/me/", "leaderboard/me/around/", "recommendations/"):
        url = f"/weeks/{route}"
        for query, names in (({}, ["week", "member"]), ({"week": 1}, ["member"])):
            response = client.get(url, query)
            assert response.status_code == 400
            assert (response.json()["code"], response.json()["parameters"]) == ("ambiguous_member", names)
        for row in (first, second, later):
            answer = client.get(url, {"member": row.pk}).json()
            assert answer.get("pk", row.pk) == row.pk
            if route.endswith("around/"):
                assert row.pk in {one["pk"] for one in answer["results"]}
        assert client.get(url, {"member": foreign.pk}).status_code == 403
        assert client.get(url, {"member": 10**6}).status_code == 404
        assert client.get(url, {"member": "x"}).status_code == 400
        assert APIClient().get(url, {"member": first.pk}).status_code in (401, 403)
    standing = client.get("/weeks/leaderboard/me/", {"member": first.pk, "week": 1}).json()
    assert (standing["rank"], standing["count"]) == (3, 3)
    assert client.get("/weeks/leaderboard/me/", {"member": later.pk, "week": 1}).status_code == 404
    assert "no-store" in client.get("/weeks/leaderboard/me/", {"member": first.pk})["Cache-Control"]
    # The path names the member already.
    assert client.get(f"/weeks/leaderboard/{first.pk}/around/", {"member": first.pk}).status_code == 400
    assert client.get(f"/weeks/leaderboard/{first.pk}/", {"member": first.pk}).status_code == 400


def test_a_view_may_let_others_ask(client: APIClient, weeks: list[WeekResult]) -> None:
    *_, foreign = weeks
    url = "/staffed/leaderboard/me/"
    assert client.get(url, {"member": foreign.pk}).status_code == 403
    client.handler._force_user.is_staff = True  # type: ignore[attr-defined]
    assert client.get(url, {"member": foreign.pk}).json()["pk"] == foreign.pk


with isolate_apps("tests.testapp"):

    class Character(models.Model):
        user = models.ForeignKey(User, models.CASCADE, related_name="+")
        region = models.CharField(max_length=9, unique=False)
        realm = models.CharField(max_length=9)

        class Meta:
            app_label = "testapp"
            unique_together = [("user", "realm")]

    class Result(models.Model):
        character = models.ForeignKey(Character, models.CASCADE, related_name="+")
        week = models.IntegerField()
        points = models.IntegerField()

        class Meta:
            app_label = "testapp"
            constraints = [
                models.UniqueConstraint(fields=["character", "week"], name="one"),
                models.UniqueConstraint(fields=["week"], condition=models.Q(points=0), name="some"),
            ]


@pytest.fixture
def told(settings: Any) -> Any:
    """Runs a command, and returns what it says of views; ``check --deploy`` by default."""

    def run(*views: Any, command: str = "check", **options: Any) -> str:
        settings.ROOT_URLCONF = tuple(
            path(f"{at}/", view.as_view({"post" if hasattr(view, "change") else "get": "list"}))
            for at, view in enumerate(views)
        )
        out = StringIO()
        call_command(command, stdout=out, stderr=out, **(options or {"deploy": True}))
        return " ".join(out.getvalue().split())

    return run


def served(facets: Any, base: Any = LeaderboardViewSet, **attributes: Any) -> Any:
    """A view of an index of results with these facets."""
    declared = {"name": "results", "model": Result, "order": ("-points",), "owner": "character__user"}
    index = type("ResultRank", (RankIndex,), {**declared, "facets": facets})
    return type("Results", (base,), {"index": index, **attributes})


@pytest.mark.django_db(databases=["default", "other"])
@pytest.mark.parametrize(
    ("facets", "is_told"),
    [
        ((), True),
        (("week",), True),
        (("week", "character__region"), True),
        ((("week", "character__region"),), True),
        (("character",), True),
        (("character", "week"), False),
        ((("week", "character__realm"),), False),
        (("week", "character__realm"), False),
        (("id",), False),
    ],
    ids=str,
)
def test_facets_that_may_not_choose_one_row(told: Any, facets: Any, is_told: bool) -> None:
    said = told(served(facets))
    assert ("zrank.W012" in said) == is_told
    if is_told:
        assert "ResultRank" in said
        assert "get_member(self)" in said
        assert "get_member(self, user)" in said
        assert "member=" in said


@pytest.mark.django_db(databases=["default", "other"])
def test_who_chooses_the_row_itself_is_not_warned(told: Any) -> None:
    own = {"get_member": lambda self: None}
    assert "zrank.W012" in told(served(("week",), RecommendationViewSet))
    for view in (
        served(("week",), **own),
        served(("week",), get_ranking=lambda self: self.served.ranking),
        served(("week",), ScoreViewSet),
    ):
        assert "zrank.W012" not in told(view)
    view = served(("week",))
    view.index.get_member = lambda self, user: None
    assert "zrank.W012" not in told(view)
    assert "zrank.W012" not in told()  # No view


@pytest.mark.django_db(databases=["default", "other"])
def test_other_commands_do_not_repeat_it(told: Any) -> None:
    view = served(("week",))
    assert "zrank.W012" in told(view)
    assert "zrank.W012" not in told(view, command="zrank_status", skip_checks=False)
    assert "zrank.W012" not in told(view, deploy=False)


# The health view


@pytest.mark.django_db
def test_health_promises_what_reads_keep_while_redis_hangs(
    client: APIClient, settings: Any, redis_binary: str
) -> None:
    """No index is asked once a second is over. SQL answers for those, too."""
    settings.ZRANK = {"UNHEALTHY": "database"}
    with RedisServer(redis_binary) as server:
        options = {"SOCKET_TIMEOUT": 0.6, "SOCKET_CONNECT_TIMEOUT": 0.6}
        alias = {**settings.CACHES["zrank"], "LOCATION": server.url, "OPTIONS": options}
        settings.CACHES = {**settings.CACHES, "zrank": alias}
        server.freeze()
        try:
            health = client.get("/health/", {"index": ["player", "ascending", "nickname"]})
            read = client.get("/api/nickname/leaderboard/")
        finally:
            server.kill()
    assert (read.status_code, health.status_code) == (200, 200)
    assert health.json()["indexes"] == {"player": "by SQL", "ascending": "by SQL", "nickname": "not asked"}


# Counts

VALUES = 1200


@pytest.fixture
def values(client: APIClient, settings: Any) -> None:
    """A player for each of many values."""
    settings.ZRANK = {"UNHEALTHY": "serve_stale"}  # No look at the database, once a second
    Player.objects.bulk_create(Player(level=at, bio=f"value {at % VALUES}") for at in range(VALUES + 1))
    sync_now(Players)
    Players.ranking.count()


def calls(zrank: Redis) -> dict[str, int]:
    """How often each command was called since the last time."""
    stats: Any = zrank.info("commandstats")
    zrank.config_resetstat()
    return {name.removeprefix("cmdstat_"): one["calls"] for name, one in stats.items()}


@pytest.mark.usefixtures("values")
def test_values_are_counted_once_whoever_asks(client: APIClient, zrank: Redis) -> None:
    most = {"count": VALUES, "results": [{"values": {"bio": "value 0"}, "count": 2}]}
    calls(zrank)
    with ThreadPoolExecutor(8) as pool:
        asked = {"facet": "bio", "n": 1}
        answers = list(pool.map(lambda _: client.get("/kept/leaderboard/counts/", asked).json(), range(24)))
    assert answers == [most] * 24
    assert calls(zrank)["zcard"] == VALUES
    for n in (1, 2, 500):
        answer = client.get("/kept/leaderboard/counts/", {"facet": "bio", "n": n}).json()
        assert (answer["count"], len(answer["results"])) == (VALUES, n)
    assert "zcard" not in calls(zrank)
    # What is counted is kept, and nothing else: a filter, and a build.
    found = client.get("/kept/leaderboard/counts/", {"facet": "bio", "bio": "value 0"}).json()
    assert found == {"count": 1, "results": most["results"]}
    Player.objects.filter(bio="value 1").update(bio="value 0")
    sync_now(Players)
    found = client.get("/kept/leaderboard/counts/", {"facet": "bio", "n": 1}).json()
    assert (found["count"], found["results"][0]["count"]) == (VALUES - 1, 3)


@pytest.mark.usefixtures("values")
def test_no_call_counts_many_values(client: APIClient, zrank: Redis) -> None:
    """500 at a time, and none if there are more than the view allows."""
    calls(zrank)
    assert client.get("/hiding/leaderboard/counts/", {"facet": "bio"}).status_code == 200
    counted = calls(zrank)
    assert counted["zcard"] == VALUES
    assert counted["evalsha"] >= VALUES / 500
    answer = client.get("/few/leaderboard/counts/", {"facet": "bio", "n": 1})
    assert (answer.status_code, answer.json()["code"]) == (400, "filter_too_large")
    assert "zcard" not in calls(zrank)


def test_counts_are_kept_for_a_second_unless_the_view_says_otherwise() -> None:
    assert LeaderboardViewSet.keep_counts == 1.0


# Types


@pytest.mark.slow
def test_the_views_of_the_page_are_typed(tmp_path: Path) -> None:
    """``mypy --strict`` accepts the examples of docs/rest.md that set permissions."""
    pytest.importorskip("mypy")
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "rest.md").read_text(), re.DOTALL)
    chosen = [block for block in blocks if "permission_classes =" in block]
    assert len(chosen) == 2
    module = tmp_path / "views.py"
    module.write_text("\n".join(["from tests.testapp.zrank import PlayerRank", *chosen]))
    arguments = ["--strict", "--config-file=pyproject.toml", f"--cache-dir={tmp_path}", str(module)]
    found = subprocess.run(
        [sys.executable, "-m", "mypy", *arguments],
        cwd=DOCS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not re.findall(r"^.*views\.py:.*$", found.stdout, re.MULTILINE)
    assert "checked 1 source file" in found.stdout or "Success" in found.stdout, found.stdout + found.stderr
