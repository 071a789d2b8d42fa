"""Users who own several rows, such as one for each week."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from django_zrank.testing import sync_now
from tests.rest_framework.urls import Alike, WeekRank
from tests.testapp.models import WeekResult


@pytest.fixture
def weeks(user: User, zrank: Any) -> dict[int, WeekResult]:
    """The user's rows by their weeks, 1 to 3, each among those of five others."""
    others = [User.objects.create_user(f"user {number}") for number in range(5)]
    WeekResult.objects.bulk_create(
        WeekResult(user=owner, week=week, points=10 * week + at)
        for week in (1, 2, 3)
        for at, owner in enumerate([user, *others])
    )
    sync_now(WeekRank, Alike)
    return {row.week: row for row in WeekResult.objects.filter(user=user)}


def test_my_rank_in_each_week(client: APIClient, weeks: dict[int, WeekResult]) -> None:
    for week, row in weeks.items():
        assert client.get("/weeks/board/me/", {"week": week}).json() == {
            "pk": row.pk,
            "score": 10 * week,
            "rank": 6,
            "count": 6,
            "percentile": 0.0,
        }
        around = client.get("/weeks/board/me/around/", {"week": week, "n": 2}).json()["results"]
        assert {one["score"] for one in around} == {10 * week, 10 * week + 1}
    assert client.get("/weeks/this/board/me/").json()["pk"] == weeks[3].pk


def test_my_newest_row_of_more_than_are_looked_at(
    client: APIClient, weeks: dict[int, WeekResult], settings: Any
) -> None:
    settings.ZRANK = {**settings.ZRANK, "MAX_N": 2}
    assert client.get("/weeks/board/me/", {"week": 3}).json()["pk"] == weeks[3].pk


def test_the_filters_must_leave_one(client: APIClient, weeks: dict[int, WeekResult]) -> None:
    for path, query, names in (
        ("board/me/", {}, ["week", "member"]),
        ("board/me/around/", {}, ["week", "member"]),
        ("board/me/gap/", {}, ["week", "member"]),
        ("board/me/", {"week": "1,2"}, ["week", "member"]),
        ("", {"week__not": 1}, ["week", "member"]),
        ("alike/board/me/", {}, ["member"]),
        ("alike/", {}, ["member"]),
    ):
        response = client.get(f"/weeks/{path}", query)
        detail = f"Several members of this ranking are yours. Choose one by {', '.join(names)}."
        assert response.status_code == 400
        assert response.json() == {"detail": detail, "code": "ambiguous_member", "parameters": names}
    for path in ("board/me/", "board/me/around/", ""):
        response = client.get(f"/weeks/{path}", {"week": 4})
        assert (response.status_code, response.json()["code"]) == (404, "not_ranked")
    assert client.get("/weeks/", {"member": weeks[2].pk}).status_code == 200
    weeks[1].delete()
    weeks[2].delete()
    sync_now(WeekRank)
    assert client.get("/weeks/board/me/").json()["pk"] == weeks[3].pk


def test_a_view_that_chooses(client: APIClient, weeks: dict[int, WeekResult]) -> None:
    """By ``get_member()``, here the newest."""
    assert client.get("/weeks/newest/board/me/").json()["pk"] == weeks[3].pk
    assert client.get("/weeks/newest/board/me/", {"week": 2}).status_code == 404
    results = client.get("/weeks/newest/", {"band": 3, "n": 50}).json()["results"]
    assert {one["score"] for one in results} == {31, 32, 33}


def test_opponents_are_of_that_week_and_others(client: APIClient, weeks: dict[int, WeekResult]) -> None:
    for week in weeks:
        answer = client.get("/weeks/", {"week": week, "n": 10, "band": 3}).json()
        assert {one["score"] for one in answer["results"]} == {10 * week + at for at in (1, 2, 3)}


def test_my_other_rows_are_no_opponents(client: APIClient, weeks: dict[int, WeekResult]) -> None:
    mine = {row.pk for row in weeks.values()}
    for url in ("/weeks/", "/weeks/newest/"):
        for parameters in ({"member": weeks[2].pk}, {"member": weeks[1].pk, "exclude": weeks[3].pk}):
            drawn = client.get(url, {"n": 50, **parameters}).json()["results"]
            assert len(drawn) == 15
            assert not mine & {one["pk"] for one in drawn}
    drawn = client.get("/weeks/newest/", {"n": 50}).json()["results"]
    assert len(drawn) == 15
    assert not mine & {one["pk"] for one in drawn}


def test_the_only_row_outside_of_the_filters(client: APIClient, weeks: dict[int, WeekResult]) -> None:
    """It may ask for members inside, as in ``recommend()``, but has no rank among them."""
    weeks[1].delete()
    weeks[2].delete()
    sync_now(WeekRank)
    inside = WeekRank.ranking.filter(week=2)
    expected = {entry.pk for entry in inside.recommend(weeks[3], 50)}
    assert expected == {entry.pk for entry in inside.top(50)}
    for query in ({"week": 2}, {"week": 2, "member": weeks[3].pk}):
        answer = client.get("/weeks/", {"n": 50, **query})
        assert {one["pk"] for one in answer.json()["results"]} == expected
    for path in ("me/", "me/around/", "me/gap/", f"{weeks[3].pk}/", f"{weeks[3].pk}/around/"):
        assert client.get(f"/weeks/board/{path}", {"week": 3}).status_code == 200
        response = client.get(f"/weeks/board/{path}", {"week": 2})
        assert (response.status_code, response.json()["code"]) == (404, "not_ranked")
