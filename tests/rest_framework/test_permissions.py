"""Permissions: to ask at all, and to ask as another member."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.permissions import IsAuthenticated
from rest_framework.test import APIClient

from django_zrank.rest_framework.permissions import get_permission_classes
from django_zrank.testing import sync_now
from tests.rest_framework.urls import Active, Regional, Trained
from tests.testapp.models import Player

URL = "/api/recommendations/"

NOBODY = {"detail": "Authentication credentials were not provided.", "code": "not_authenticated"}


@pytest.fixture
def other(me: Player) -> Player:
    """The player of another user."""
    other = Player.objects.get(level=90)
    other.user = User.objects.create_user("bob")
    other.save(update_fields=["user"])
    return other


def test_nobody_signed_in(anonymous: APIClient, me: Player, other: Player) -> None:
    for query in ({}, {"member": me.pk}, {"n": 0}):
        response = anonymous.get(URL, query)
        assert response.status_code == 403
        assert response.json() == NOBODY
        response = anonymous.get("/basic/", query)
        assert response.status_code == 401
        assert response["WWW-Authenticate"] == 'Basic realm="api"'


def test_nobody_signed_in_where_nobody_must(anonymous: APIClient, me: Player) -> None:
    assert anonymous.get("/open/").status_code == 403
    assert anonymous.get("/open/", {"member": me.pk}).status_code == 403
    assert anonymous.get("/open/own-region/").status_code == 403
    assert anonymous.get("/open-to-all/", {"member": me.pk}).status_code == 200
    assert anonymous.get("/either/").status_code == 403
    for member in (me, Player.objects.get(level=95)):  # Nobody is not the owner of what nobody owns
        assert anonymous.get("/either/", {"member": member.pk}).status_code == 403


def test_as_myself(client: APIClient, me: Player, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(3):  # The row asked as, whether it is mine, my friends
        assert client.get(URL, {"member": me.pk, "n": 20}).json()["candidates"] == 20


def test_as_somebody_else(client: APIClient, me: Player, other: Player) -> None:
    for url in (URL, "/api/player/recommendations/", "/api/opponents/", "/even/"):
        for member in (other, Player.objects.get(level=95)):  # Whether or not a user owns it
            response = client.get(url, {"member": member.pk})
            assert response.status_code == 403, url
            assert response.json() == {
                "detail": "You can't ask as somebody else.",
                "code": "permission_denied",
            }


def test_there_is_no_way_round(client: APIClient, me: Player, other: Player) -> None:
    for members in ([me.pk, other.pk], [other.pk, me.pk], [f"{me.pk},{other.pk}"]):
        assert client.get(URL, {"member": members}).status_code == 400
    mine = client.get(URL, {"n": 20}).json()["results"]
    for name in ("Member", "member[]", "member_id", "user", "pk", "owner", "index"):
        assert client.get(URL, {name: other.pk, "n": 20}).status_code == 400
        assert client.get("/lenient/", {name: other.pk, "n": 20}).json()["results"] == mine
    for text, status in ((f" {other.pk}", 400), (f"+{other.pk}", 400), (f"0{other.pk}", 403)):
        assert client.get(URL, {"member": text}).status_code == status


def test_a_user_without_a_row(client: APIClient, me: Player, other: Player) -> None:
    Player.objects.filter(pk=me.pk).update(user=None)
    assert client.get(URL, {"member": other.pk}).status_code == 403
    assert client.get(URL, {"member": me.pk}).status_code == 403


def test_an_index_without_owner_is_nobodys(client: APIClient, me: Player) -> None:
    response = client.get("/api/ascending/recommendations/", {"member": me.pk, "band": 1})
    assert response.status_code == 403


def test_hidden_rows_look_like_missing_ones(client: APIClient, staff: APIClient, me: Player) -> None:
    hidden, *_ = Player.objects.exclude(pk=me.pk)
    Player.objects.filter(pk=hidden.pk).update(is_active=False)
    sync_now(Active)
    for asked in (client, staff):
        for pattern in ("/active/board/{}/", "/active/board/{}/around/", "/active/?member={}"):
            answers = [asked.get(pattern.format(pk)) for pk in (hidden.pk, 10**6)]
            assert [answer.status_code for answer in answers] == [404, 404]
            assert answers[0].json() == answers[1].json()


def test_nobody_there(client: APIClient, staff: APIClient, me: Player) -> None:
    for pk in (0, -1, 10**6, 10**30):
        assert client.get(URL, {"member": pk}).status_code == 404
        assert staff.get("/staff/", {"member": pk}).status_code == 404
        assert staff.get("/staff/employee/", {"member": pk, "band": 1}).status_code == 404


@pytest.mark.parametrize("url", ["/authenticated/", "/staff-may/"])
def test_permission_classes_open_nothing_to_who_asks_as_another(
    client: APIClient, staff: APIClient, me: Player, other: Player, url: str
) -> None:
    """``permission_classes = [IsAuthenticated]`` used to let every user ask as any member."""
    assert client.get(url).status_code == 200
    assert client.get(url, {"member": me.pk}).status_code == 200
    assert client.get(url, {"member": other.pk}).status_code == 403
    assert staff.get(url, {"member": other.pk}).status_code == 403


def test_both_kinds_of_permissions_are_asked(client: APIClient, staff: APIClient, me: Player) -> None:
    """Of the member, and of the request: ``IsAdminUser`` says nothing about a member."""
    assert client.get("/admins-as-others/", {"member": me.pk}).status_code == 403
    assert staff.get("/admins-as-others/", {"member": me.pk}).status_code == 200
    assert client.get("/admins-as-others/").status_code == 200


class TestPermissionsOfTheProject:
    """``DEFAULT_PERMISSION_CLASSES``."""

    def test_are_the_default(self, settings: Any) -> None:
        assert get_permission_classes() == [IsAuthenticated]
        for classes in ([], ["AllowAny"], ["IsAdminUser"], ["IsAuthenticated", "IsAdminUser"]):
            settings.REST_FRAMEWORK = {
                "DEFAULT_PERMISSION_CLASSES": [f"rest_framework.permissions.{name}" for name in classes]
            }
            assert [one.__name__ for one in get_permission_classes()] == classes

    def test_are_those_of_the_views(self) -> None:
        """Of views that are imported later, and of a class whose module imports the app's."""
        name = "tests.rest_framework.permissions.IsNobody"
        program = (
            "from django.conf import settings\n"
            "import tests.settings\n"
            "values = {name: getattr(tests.settings, name) for name in dir(tests.settings) if name.isupper()}\n"
            f"settings.configure(**values, REST_FRAMEWORK={{'DEFAULT_PERMISSION_CLASSES': [{name!r}]}})\n"
            "import django; django.setup()\n"
            "from django_zrank.rest_framework import viewsets\n"
            "views = (viewsets.RecommendationViewSet, viewsets.LeaderboardViewSet)\n"
            "print({one.__name__ for view in views for one in view.permission_classes})\n"
        )
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert (run.stdout, run.stderr) == ("{'IsNobody'}\n", "")


def test_several_rows_of_mine(client: APIClient, me: Player, other: Player) -> None:
    sync_now(Trained)
    trained = Player.objects.filter(level__in=[85, 115])
    me.friends.set(trained)
    for member in trained:
        answer = client.get("/trained/", {"member": member.pk, "band": 1}).json()
        assert {result["score"] for result in answer["results"]} == {member.level - 1, member.level + 1}
    assert client.get("/trained/", {"member": other.pk}).status_code == 403


def test_staff_where_a_permission_says_so(
    staff: APIClient, client: APIClient, me: Player, other: Player
) -> None:
    for url in ("/staff/", "/either/", "/staff/player/"):
        answer = staff.get(url, {"member": other.pk, "band": 1}).json()
        assert {result["score"] for result in answer["results"]} == {89, 91}
        assert staff.get(url).status_code == 404  # Has no player
    assert staff.get(URL, {"member": other.pk}).status_code == 403
    assert client.get("/staff/").status_code == 403
    assert client.get("/staff/", {"member": me.pk}).status_code == 403
    assert client.get("/either/", {"member": me.pk}).status_code == 200
    assert client.get("/either/", {"member": other.pk}).status_code == 403


def test_staff_asking_for_themselves(staff: APIClient, me: Player) -> None:
    Player.objects.filter(level=105).update(user=User.objects.get(username="root"))
    answer = staff.get("/staff/", {"band": 1}).json()
    assert {result["score"] for result in answer["results"]} == {104, 106}


def test_members_asked_as_come_from_the_queryset_of_the_view(
    staff: APIClient, client: APIClient, me: Player
) -> None:
    hidden = Player.objects.get(level=101)
    assert client.get("/even/", {"member": hidden.pk}).status_code == 404


def test_nobody_signed_in_learns_which_members_there_are(anonymous: APIClient, me: Player) -> None:
    """Where IsOwner stands alone, as in the documentation: the row is not looked up."""
    for pk in (me.pk, 10**9):
        response = anonymous.get(f"/owners-alone/board/{pk}/")
        assert (response.status_code, response.json()) == (
            403,
            NOBODY,
        )


def test_a_number_is_spelled_in_one_way(staff: APIClient, me: Player) -> None:
    sync_now(Regional)
    assert staff.get(f"/open/board/{me.pk}/").status_code == 200
    for spelled in ("1_0", "\u0661", "+7", "%207", "7%20"):
        assert staff.get(f"/open/board/{spelled}/").status_code == 404, spelled
        assert staff.get(f"{URL}?member={spelled.replace('+', '%2B')}").status_code == 400, spelled
