"""The admin: its pages, who may see them and request jobs, the column of ranks."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from html import unescape
from itertools import pairwise
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import OperationalError, connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_zrank.admin import RankedAdminMixin
from django_zrank.admin.histograms import BARS, WIDTH, draw_histogram
from django_zrank.jobs.models import Job
from django_zrank.jobs.running import jobs_of
from django_zrank.models import Build, Mark
from django_zrank.testing import EmbeddedServer, settings_for, sync_now
from tests.keyspace import whole
from tests.testapp.admin import PlayerAdmin
from tests.testapp.models import Competitor, Nickname, Player, Ticket, Video
from tests.testapp.zrank import (
    ByDay,
    ByInteger,
    ByMoment,
    ByPrice,
    ByReal,
    CompetitorRank,
    NicknameRank,
    PlayerAscending,
    PlayerRank,
    VideoRank,
)

pytestmark = [pytest.mark.django_db(databases=["default", "other"]), pytest.mark.usefixtures("zrank")]

PLAYER = PlayerRank.instance()
LIST = "/admin/zrank/ranking/"
PAGE = f"{LIST}player/change/"
JOBS = f"{LIST}player/jobs/"


@pytest.fixture
def sign_in() -> Callable[..., Client]:
    """Signs in a member of staff who has these permissions. Returns the client, which checks tokens of forms."""

    def sign_in(*codenames: str, is_staff: bool = True) -> Client:
        user = User.objects.create(username="-".join(("ann", *codenames)), is_staff=is_staff)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        client = Client(enforce_csrf_checks=True)
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def players() -> list[Player]:
    """A hundred of them, ranked: levels 0 to 99."""
    players = Player.objects.bulk_create(Player(name=f"Player {level}", level=level) for level in range(100))
    sync_now(PlayerRank)
    return players


def request_job(client: Client, kind: str) -> Any:
    """Press a button of the page, as a browser does."""
    client.get(PAGE)
    return client.post(JOBS, {"kind": kind, "csrfmiddlewaretoken": client.cookies["csrftoken"].value})


def text(answer: Any) -> str:
    """The text of a page, as a person reads it."""
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode())))


# Who may


@pytest.mark.parametrize("url", [LIST, PAGE, JOBS, f"{PAGE}?n=3"])
def test_nothing_is_shown_without_permission(url: str, sign_in: Callable[..., Client]) -> None:
    for client in (Client(), sign_in("view_ranking", is_staff=False)):
        answer = client.get(url)
        assert (answer.status_code, answer.headers["Location"].partition("?")[0]) == (302, "/admin/login/")
    for client in (sign_in(), sign_in("rebuild_ranking"), sign_in("view_build", "view_player")):
        assert client.get(url).status_code == 403


def test_nothing_is_requested_without_permission(sign_in: Callable[..., Client]) -> None:
    anonymous = Client()
    assert anonymous.post(JOBS, {"kind": "rebuild"}).status_code == 302
    for client in (sign_in(), sign_in("rebuild_ranking")):
        client.get("/admin/password_change/")  # to be given a token
        token = client.cookies["csrftoken"].value
        assert client.post(JOBS, {"kind": "rebuild", "csrfmiddlewaretoken": token}).status_code == 403
    viewer = sign_in("view_ranking")
    page = viewer.get(PAGE)
    assert b'name="kind"' not in page.content
    viewer.get("/admin/password_change/")
    token = viewer.cookies["csrftoken"].value
    assert viewer.post(JOBS, {"kind": "rebuild", "csrfmiddlewaretoken": token}).status_code == 403
    assert not Job.objects.exists()


def test_a_request_can_not_be_forged(sign_in: Callable[..., Client]) -> None:
    client = sign_in("view_ranking", "rebuild_ranking")
    assert client.post(JOBS, {"kind": "rebuild"}).status_code == 403
    assert client.get(JOBS, {"kind": "rebuild"}).status_code == 200
    assert client.get(PAGE, {"kind": "rebuild", "n": 1}).status_code == 200
    assert not Job.objects.exists()
    assert client.put(JOBS).status_code == 403
    assert request_job(client, "drop").status_code == 404
    assert not Job.objects.exists()


def test_a_get_changes_nothing(sign_in: Callable[..., Client], players: list[Player], zrank: Any) -> None:
    client = sign_in("view_ranking", "rebuild_ranking")

    def held() -> Any:
        rows = [list(model.objects.order_by("pk").values()) for model in (Build, Job, Mark, Player)]
        return rows, whole(zrank)

    before = held()
    for url in (LIST, PAGE, JOBS, f"{PAGE}?n=10&member={players[50].pk}"):
        with CaptureQueriesContext(connection) as queries:
            assert client.get(url).status_code == 200
        written = [query["sql"] for query in queries if re.match("INSERT|UPDATE|DELETE", query["sql"])]
        assert written == []
    assert held() == before


@pytest.mark.parametrize("page", ["add/", "player/", "player/delete/", "player/history/", "nobody/change/"])
def test_there_are_no_other_pages(page: str, sign_in: Callable[..., Client]) -> None:
    User.objects.create_superuser("root")
    client = Client()
    client.force_login(User.objects.get(username="root"))
    assert client.get(f"{LIST}{page}").status_code == 404


def test_the_index_of_the_admin_leads_to_it(sign_in: Callable[..., Client]) -> None:
    assert LIST.encode() in sign_in("view_ranking").get("/admin/").content
    assert LIST.encode() not in sign_in("rebuild_ranking").get("/admin/").content
    assert LIST.encode() not in sign_in("view_player").get("/admin/").content


# What is shown


def test_every_index_is_listed(sign_in: Callable[..., Client], players: list[Player]) -> None:
    page = text(sign_in("view_ranking").get(LIST))
    assert "player testapp.Player ● healthy 100 100 0 0.0 s" in page
    assert "competitors testapp.Competitor ● healthy 0 0 " in page


def test_health(sign_in: Callable[..., Client], players: list[Player]) -> None:
    client = sign_in("view_ranking")
    assert "Members in Redis 100 Rows in the database 100 Marks waiting 0" in text(client.get(PAGE))
    Player.objects.filter(pk=players[0].pk).update(is_active=False)
    page = text(client.get(PAGE))
    assert "Members in Redis 100 Rows in the database 99 Marks waiting 1, the oldest for" in page
    assert "triggers, all in place" in page
    assert re.search(
        r"Server (Valkey|Redis) \d+\.\S*, master Memory [\d.]+ [KMG]B, no limit, noeviction", page
    )


@pytest.mark.part("write_behind")
def test_scores_that_wait_to_be_flushed(sign_in: Callable[..., Client]) -> None:
    client, url = sign_in("view_ranking"), f"{LIST}{VideoRank.instance().name}/change/"
    video = Video.objects.create()
    sync_now(VideoRank)
    assert "Scores to be flushed 0 " in text(client.get(url))
    VideoRank.scores.increment(video, 3)
    assert "Scores to be flushed 1, the oldest for" in text(client.get(url))
    assert "Scores to be flushed" not in text(client.get(PAGE))


def test_an_index_that_is_lost_says_so(sign_in: Callable[..., Client], zrank: Any) -> None:
    zrank.flushall()
    client = sign_in("view_ranking")
    assert "▲ the index was never built, or Redis was emptied" in text(client.get(LIST))
    page = text(client.get(PAGE))
    assert "▲ the index was never built, or Redis was emptied" in page
    assert "No scores: the index is unavailable." in page
    assert "is not built" in text(client.get(PAGE, {"n": 1}))


def test_without_redis(sign_in: Callable[..., Client], settings: Any, players: list[Player]) -> None:
    """The pages are there, and one index alone waits for what doesn't answer."""
    client = sign_in("view_ranking", "rebuild_ranking")
    with EmbeddedServer() as server:
        for name, value in settings_for(server).items():
            setattr(settings, name, value)
    page = text(client.get(LIST))
    assert page.count("Redis can't be reached") == 1
    assert "not checked" in page
    page = text(client.get(PAGE))
    assert "Redis can't be reached" in page
    assert "Server not reached" in page
    assert "Redis can't be reached" in text(client.get(PAGE, {"n": 1}))
    assert request_job(client, "rebuild").status_code == 302


def test_a_database_that_is_away_hides_no_other_index(
    sign_in: Callable[..., Client], players: list[Player], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> None:
        raise OperationalError("away")

    monkeypatch.setattr(VideoRank, "get_using", lambda self: "other")
    client = sign_in("view_ranking")
    with connections["other"].execute_wrapper(refuse):
        page = text(client.get(LIST))
    assert "▲ not checked" in page
    assert "● healthy" in page


def test_what_takes_long_is_not_counted(
    sign_in: Callable[..., Client], players: list[Player], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_zrank.admin.rankings._COUNTING", 0.0)
    page = text(sign_in("view_ranking").get(PAGE))
    assert (
        "Members in Redis 100 Rows in the database too many to count here; a verification counts them" in page
    )


# Histograms


def scored(rank: Any, model: Any, field: str, values: list[Any]) -> Any:
    model.objects.bulk_create(model(**{field: value}) for value in values)
    sync_now(rank)
    return draw_histogram(rank.ranking)


def check(histogram: Any, values: list[Any]) -> None:
    """Every bar counts those between its ends, and the bars are all."""
    for bar in histogram.bars:
        assert bar.members == sum(bar.low <= value <= bar.high for value in values)
    assert histogram.members == len(values)
    assert (histogram.low, histogram.high) == (min(values), max(values))
    assert 1 <= len(histogram.bars) <= BARS


@pytest.mark.parametrize(
    "levels",
    [[7], [3, 4], [-5, 0, 5, 5], list(range(40)), list(range(41)), [0, 1_000_003, 999, 999, 52]],
    ids=str,
)
def test_histograms_of_whole_numbers(levels: list[int]) -> None:
    check(scored(PlayerAscending, Player, "level", levels), levels)


@pytest.mark.parametrize(
    "skewed", [[1] * 500 + [2, 3, 5, 3500], [7], [-5, -4], [0, 2 * 10**9], [9, 9, 400]], ids=str
)
def test_histograms_on_a_logarithmic_scale(skewed: list[int]) -> None:
    scored(PlayerAscending, Player, "level", skewed)
    found = draw_histogram(PlayerAscending.ranking, is_logarithmic=True)
    assert found is not None
    check(found, skewed)
    ends = [(bar.x, bar.x + bar.width) for bar in found.bars]
    assert all(low < high for low, high in ends)
    assert all(high <= low for (_, high), (low, _) in pairwise(ends))
    assert (ends[0][0], round(ends[-1][1])) == (0, WIDTH - 1)


@pytest.mark.parametrize(
    ("levels", "is_logarithmic", "ticks"),
    [
        ([1, 100], False, [1, 100]),
        ([1, 3500], False, ["1", "881", "1,761", "2,641", "3,500"]),
        ([1, 3500], True, ["1", "8", "59", "455", "3,500"]),
    ],
)
def test_ticks_of_an_axis(levels: list[int], is_logarithmic: bool, ticks: list[Any]) -> None:
    scored(PlayerAscending, Player, "level", levels)
    found = draw_histogram(PlayerAscending.ranking, is_logarithmic=is_logarithmic)
    assert found is not None
    assert list(found.ticks) == ticks


def test_a_logarithmic_scale_shows_more_of_a_skewed_population(
    sign_in: Callable[..., Client], zrank: Any
) -> None:
    levels = [round(3500 ** (at / 999)) for at in range(1000)]
    linear = scored(PlayerRank, Player, "level", levels)
    logarithmic = draw_histogram(PlayerRank.ranking, is_logarithmic=True)
    assert logarithmic is not None
    assert linear.fullest.members > 500 > 100 > logarithmic.fullest.members
    client = sign_in("view_ranking")
    assert f"the tallest bar has {linear.fullest.members}." in text(client.get(PAGE))
    answer = client.get(PAGE, {"n": 3, "seed": "x", "scale": "log"})
    assert f"the tallest bar has {logarithmic.fullest.members}." in text(answer)
    assert b'<input type="hidden" name="scale" value="log">' in answer.content
    assert b'href="?n=3&amp;seed=x#zrank-scores"' in answer.content  # the way back


def test_histograms_of_other_scores() -> None:
    prices = [Decimal("0.01"), Decimal("12.34"), Decimal("99.99")]
    check(scored(ByPrice, Ticket, "price", prices), prices)
    days = [date(2024, 2, 28), date(2024, 3, 1), date(2024, 3, 1)]
    check(scored(ByDay, Ticket, "day", days), days)
    moments = [datetime(2024, 1, 1, 0, 0, 0, 1, UTC), datetime(2025, 1, 1, tzinfo=UTC)]
    check(scored(ByMoment, Ticket, "moment", moments), moments)


def test_histograms_of_floats() -> None:
    scores = [0.5, 1.25, 1.25, 99.5]
    Nickname.objects.bulk_create(Nickname(nick=f"n{at}", score=score) for at, score in enumerate(scores))
    sync_now(NicknameRank)
    found = draw_histogram(NicknameRank.ranking)
    assert found is not None
    counts = [bar.members for bar in found.bars]
    assert (counts[0], counts[-1], sum(counts), len(counts)) == (3, 1, 4, BARS)
    Nickname.objects.update(score=2.5)
    sync_now(NicknameRank)
    found = draw_histogram(NicknameRank.ranking)
    assert found is not None
    assert [bar.members for bar in found.bars] == [4]


@pytest.mark.parametrize("is_logarithmic", [False, True])
@pytest.mark.parametrize(
    ("index", "column", "scores"),
    [
        *(
            (ByInteger, "integer", one)
            for one in ([2**60], [2**53, 2**53 + 4], [-(2**63), 2**63 - 1], [2**62] * 2)
        ),
        *(
            (ByReal, "real", one)
            for one in (
                [1e300],
                [-1e308, 1e308],
                [1.7976931348623157e308],
                [0.0, 5e-324],
                [0.1, 0.3, 0.30000000000000004],
            )
        ),
    ],
    ids=str,
)
def test_histograms_of_extreme_scores(
    sign_in: Callable[..., Client], index: Any, column: str, scores: list[Any], is_logarithmic: bool
) -> None:
    """An axis once had no length where a score was so large that one more was the same, or an infinite one."""
    rows = Ticket.objects.bulk_create(Ticket(**{column: score}) for score in scores)
    sync_now(index)
    found = draw_histogram(index.ranking, is_logarithmic=is_logarithmic)
    assert found is not None
    assert sum(bar.members for bar in found.bars) == len(scores)
    assert all(0 <= bar.x <= WIDTH and 0 < bar.width <= WIDTH for bar in found.bars)
    asked = {"member": rows[0].pk, "n": 1, "band": "1e10", "scale": "log" if is_logarithmic else ""}
    page = sign_in("view_ranking").get(f"{LIST}{index.instance().name}/change/", asked)
    assert (page.status_code, b"nan" in page.content) == (200, False)


def test_a_histogram_takes_two_calls_and_forty_counts(players: list[Player], zrank: Any) -> None:
    draw_histogram(PlayerRank.ranking)
    Player.objects.bulk_create(Player(level=level) for level in range(100, 1000))
    sync_now(PlayerRank)
    zrank.config_resetstat()
    draw_histogram(PlayerRank.ranking)
    assert zrank.info("commandstats")["cmdstat_evalsha"]["calls"] == 2 + BARS


# Trying


def test_rows_that_the_admin_of_the_model_hides_are_not_shown(
    sign_in: Callable[..., Client], players: list[Player], monkeypatch: pytest.MonkeyPatch
) -> None:
    def even(self: PlayerAdmin, request: Any) -> Any:
        return super(PlayerAdmin, self).get_queryset(request).filter(level__in=range(0, 100, 2))

    def low(self: PlayerAdmin, request: Any, row: Any = None) -> bool:
        return row is None or row.level < 50

    client = sign_in("view_ranking", "view_player")
    asked = {"member": players[50].pk, "n": 10, "band": 5}
    assert "Player 47" in text(client.get(PAGE, asked))
    monkeypatch.setattr(PlayerAdmin, "get_queryset", even)
    monkeypatch.setattr(PlayerAdmin, "has_view_permission", low)
    answer = client.get(PAGE, asked)
    assert set(re.findall(r"Player (\d+)", text(answer))) == {"46", "48"}
    pages = re.findall(r"/testapp/player/(\d+)/change/", answer.content.decode())
    assert set(map(int, pages)) == {players[46].pk, players[48].pk}


def test_draws_near_a_member(sign_in: Callable[..., Client], players: list[Player]) -> None:
    me = players[50]
    client = sign_in("view_ranking")
    asked = {"member": me.pk, "n": 6, "band": "5,3", "seed": "x"}
    answer = client.get(PAGE, asked)
    drawn = [int(pk) for pk in re.findall(r'data-drawn="(\d+)"', answer.content.decode())]
    assert drawn == [entry.pk for entry in PlayerRank.ranking.recommend(me, n=6, band=(5, 3), seed="x")]
    assert f"6 drawn of 8 candidates for member {me.pk}, score 50, rank 50" in text(answer)
    assert (
        answer.content.count(b'class="zrank-drawn"') == 2 * 6
    )  # on the whole histogram, and on that near the member
    assert answer.content.count(b'class="zrank-own"') == 2
    assert "Player 4" not in text(answer)  # whose rows this user may not see


def test_rows_are_shown_to_those_who_may_see_them(
    sign_in: Callable[..., Client], players: list[Player]
) -> None:
    asked = {"member": players[50].pk, "n": 1, "band": 1}
    assert "Player 51" not in text(sign_in("view_ranking").get(PAGE, asked))
    answer = sign_in("view_ranking", "view_player").get(PAGE, asked)
    assert (
        f'<a href="/admin/testapp/player/{players[51].pk}/change/">Player 51</a>' in answer.content.decode()
    )


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"n": 0}, "greater than or equal to 1"),
        ({"n": 51}, "less than or equal to 50"),
        ({"n": 1, "member": "x"}, "expected a primary key of testapp.Player"),
        ({"n": 1, "member": "999999"}, "not in the index"),
        ({"n": 1, "band": "-1"}, "negative"),
        ({"n": 1, "band": "1,2,3"}, "or two with a comma"),
        ({"n": 1, "member": "\0"}, "Null characters are not allowed"),
    ],
)
def test_what_is_wrong_is_said(
    asked: dict[str, Any], error: str, sign_in: Callable[..., Client], players: list[Player]
) -> None:
    answer = sign_in("view_ranking").get(PAGE, asked)
    assert answer.status_code == 200
    assert error in text(answer)
    assert b"data-drawn" not in answer.content


def test_filters(sign_in: Callable[..., Client]) -> None:
    rows = [Competitor(points=at, region="kanto" if at % 2 else "kansai", platform="pc") for at in range(20)]
    Competitor.objects.bulk_create(rows)
    sync_now(CompetitorRank)
    client, url = sign_in("view_ranking"), f"{LIST}competitors/change/"
    asked = {"n": 20, "band": 100, "facet_0": "kanto"}
    answer = client.get(url, asked)
    drawn = {int(pk) for pk in re.findall(r'data-drawn="(\d+)"', answer.content.decode())}
    odd = {row.pk for row in rows if row.region == "kanto"}
    assert len(odd - drawn) == 1  # the member that asked
    assert drawn <= odd
    assert "10 members" in text(answer)  # in the histogram, too
    assert "This field is required" in text(client.get(url, {"n": 1}))  # the index has no band of its own
    assert client.get(url, {"n": 1, "band": 9, "facet_1": "no number"}).status_code == 200


# Jobs


def test_jobs_are_requested_once(sign_in: Callable[..., Client]) -> None:
    ann, bob = (
        sign_in("view_ranking", "rebuild_ranking"),
        sign_in("rebuild_ranking", "view_ranking", "view_user"),
    )
    assert request_job(ann, "rebuild").headers["Location"] == f"{PAGE}#jobs"
    assert request_job(ann, "verify").status_code == 302
    assert request_job(bob, "rebuild").status_code == 302
    assert "was requested already, by ann-view_ranking-rebuild_ranking" in text(bob.get(PAGE))
    assert [(job.kind, job.is_open) for job in jobs_of(PLAYER)] == [("verify", True), ("rebuild", True)]
    assert text(bob.get(JOBS)).count("Waiting for sync_zrank --watch") == 2


def test_jobs_in_every_state(sign_in: Callable[..., Client]) -> None:
    client = sign_in("view_ranking")
    job = Job.objects.create(index="player", kind="rebuild", requested_by="ann")
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    for state, shown in (
        ({}, "Waiting for"),
        ({"runner": "x", "heartbeat_at": datetime(2999, 1, 1, tzinfo=UTC)}, "Started."),
        ({"done": 1234, "total": 5000}, "1,234 of about 5,000 rows"),
        ({"heartbeat_at": long_ago}, "Stale. No heartbeat"),
        ({"is_open": None, "ok": True, "outcome": "All <b> ranked."}, "Done . All <b> ranked."),
        ({"ok": False}, "Failed"),
    ):
        Job.objects.filter(pk=job.pk).update(**state)
        assert shown.replace(" .", ".") in text(client.get(JOBS)).replace(" .", ".")
        assert (b"data-open" in client.get(JOBS).content) is ("is_open" not in state and "ok" not in state)


# The column


@pytest.fixture
def show(rf: Any) -> Callable[..., str]:
    """The change list of players, as a superuser sees it."""
    root = User.objects.create_superuser("root")

    def show(model_admin: admin.ModelAdmin[Any], **asked: Any) -> str:
        request = rf.get("/", asked)
        request.user = root
        changes = model_admin.get_changelist_instance(request)
        shown = [
            tuple(admin.utils.lookup_field(name, row, model_admin)[2] for name in ("name", "zrank_rank"))
            for row in changes.result_list
        ]
        return ", ".join(f"{name}: {rank}" for name, rank in shown)

    return show


def test_ranks_cost_one_round_trip_a_page(
    show: Callable[..., str], players: list[Player], zrank: Any
) -> None:
    model_admin = PlayerAdmin(Player, admin.site)
    show(model_admin)  # connections and trust
    zrank.config_resetstat()
    shown = show(model_admin, o="2", p=2)
    assert shown.startswith("Player 30: 70, Player 31: 69, ")
    assert len(shown.split(", ")) == 30
    calls = {
        name: stat["calls"]
        for name, stat in zrank.info("commandstats").items()
        if name in ("cmdstat_evalsha", "cmdstat_eval")
    }
    assert calls == {"cmdstat_evalsha": 1}


def test_the_column_comes_last_unless_it_is_named(rf: Any) -> None:
    model_admin = PlayerAdmin(Player, admin.site)
    assert model_admin.get_list_display(rf.get("/")) == ["name", "level", "zrank_rank"]
    model_admin.list_display = ("zrank_rank", "name")
    assert model_admin.get_list_display(rf.get("/")) == ("zrank_rank", "name")


def test_rows_without_a_rank_and_no_redis(
    show: Callable[..., str], players: list[Player], zrank: Any
) -> None:
    model_admin = PlayerAdmin(Player, admin.site)
    Player.objects.exclude(pk__in=[players[0].pk, players[99].pk]).delete()
    Player.objects.create(name="Idle", is_active=False)
    sync_now(PlayerRank)
    assert show(model_admin, o="1") == "Idle: None, Player 0: 2, Player 99: 1"
    zrank.flushall()
    PlayerRank.ranking._reader.trust.until = 0
    assert show(model_admin, o="1") == "Idle: None, Player 0: None, Player 99: None"


def test_the_column_sorts_by_the_order_of_the_index(show: Callable[..., str], rf: Any) -> None:
    Player.objects.bulk_create(Player(name=f"Player {level}", level=level) for level in (3, 1, 2))
    sync_now(PlayerRank)
    model_admin = PlayerAdmin(Player, admin.site)
    assert show(model_admin, o="3") == "Player 3: 1, Player 2: 2, Player 1: 3"
    assert show(model_admin, o="-3") == "Player 1: 3, Player 2: 2, Player 3: 1"
    assert show(model_admin, o="1.3") == show(model_admin, o="1")
    # Ties are broken as the index breaks them: by the primary key as text.
    Player.objects.update(level=7)
    Player.objects.bulk_create(Player(name="Player 7", level=7) for _ in range(20))
    sync_now(PlayerRank)
    ranks = [int(one.rpartition(" ")[2]) for one in show(model_admin, o="3").split(", ")]
    assert ranks == list(range(1, 24))
    ranks = [int(one.rpartition(" ")[2]) for one in show(model_admin, o="-3").split(", ")]
    assert ranks == list(range(23, 0, -1))


def test_the_column_sorts_by_several_criteria_and_nulls(rf: Any) -> None:
    class CompetitorAdmin(RankedAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]
        pass

    days = [datetime(2024, 1, 2, tzinfo=UTC), None, datetime(2024, 1, 1, tzinfo=UTC)]
    Competitor.objects.bulk_create(
        Competitor(points=points, joined=day) for points in (5, 7, None) for day in days
    )
    sync_now(CompetitorRank)
    request, ranks = rf.get("/", {"o": "2"}), {}
    request.user = User.objects.create_superuser("root")
    for way in ("2", "-2"):
        request.GET = request.GET.copy()
        request.GET["o"] = way
        rows = CompetitorAdmin(Competitor, admin.site).get_changelist_instance(request).result_list
        ranks[way] = [row._zrank_rank for row in rows]
    assert ranks["2"] == [1, 2, 3, 4, 5, 6, None, None, None]
    assert ranks["-2"] == [6, 5, 4, 3, 2, 1, None, None, None]


def test_an_index_must_be_named_where_there_are_several() -> None:
    class Unnamed(PlayerAdmin):
        rank_index = None

    assert PlayerAdmin(Player, admin.site).check() == []
    assert [error.id for error in Unnamed(Player, admin.site).check()] == ["zrank.E036"]


def test_the_only_index_needs_no_name(show: Callable[..., str]) -> None:
    class CompetitorAdmin(RankedAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]
        pass

    model_admin = CompetitorAdmin(Competitor, admin.site)
    assert model_admin.check() == []
    assert model_admin._index() is CompetitorRank.instance()
