"""Users who own several rows, such as one for each week."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from django_zrank.testing import sync_now
from tests.rest_framework.urls import WeekRank
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
    sync_now(WeekRank)
    return {row.week: row for row in WeekResult.objects.filter(user=user)}


def test_my_rank_in_each_week(client: APIClient, weeks: dict[int, WeekResult]) -> None:
    for week, row in weeks.items():
        assert client.get("/weeks/board/me/", {"week": week}).json() == {
            "pk": row.pk,
            "score": 10 * week,
            "rank": 6,
        }
        around = client.get("/weeks/board/me/around/", {"week": week, "n": 2}).json()["results"]
        assert {one["score"] for one in around} == {10 * week, 10 * week + 1}
    assert client.get("/weeks/board/me/", {"week": 4}).status_code == 404
    assert client.get("/weeks/board/me/").json()["pk"] == weeks[1].pk
    assert client.get("/weeks/this/board/me/").json()["pk"] == weeks[3].pk


def test_opponents_are_of_that_week_and_others(client: APIClient, weeks: dict[int, WeekResult]) -> None:
    for week in weeks:
        answer = client.get("/weeks/", {"week": week, "n": 10, "band": 3}).json()
        assert {one["score"] for one in answer["results"]} == {10 * week + at for at in (1, 2, 3)}


def test_my_other_rows_are_no_opponents(client: APIClient, weeks: dict[int, WeekResult]) -> None:
    mine = {row.pk for row in weeks.values()}
    for parameters in ({}, {"member": weeks[2].pk}, {"exclude": weeks[3].pk}):
        drawn = client.get("/weeks/", {"n": 50, **parameters}).json()["results"]
        assert len(drawn) == 15
        assert not mine & {one["pk"] for one in drawn}
