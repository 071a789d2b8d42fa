"""POST …/scores/<pk>/ as a client sees it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.db.models import Model
from django.urls import include, path
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from rest_framework.permissions import AllowAny
from rest_framework.test import APIClient
from rest_framework.throttling import UserRateThrottle

from django_zrank.registry import registry
from django_zrank.rest_framework import IsOwner, ScoreViewSet
from django_zrank.testing import sync_now
from django_zrank.write_behind.flush import flush
from tests.rest_framework.schemas import generate
from tests.servers import free_port
from tests.sync.conftest import use_redis
from tests.testapp.models import Player, Video
from tests.testapp.zrank import PlayerRank, VideoPrice, VideoRank


class TwicePerDay(UserRateThrottle):
    rate = "2/day"


class Owned(PlayerRank):
    name = "owned"
    facets = ()
    write_behind = "best"


def view(**attributes: Any) -> Any:
    return ScoreViewSet.as_view({"post": "change"}, **attributes)


urlpatterns = [
    path("api/video/scores/<pk>/", view(index=VideoRank)),
    path("api/prices/scores/<pk>/", view(index=VideoPrice)),
    path("api/owned/scores/<pk>/", view(index=Owned, permission_classes=[IsOwner])),
    path("throttled/<pk>/", view(index=VideoRank, throttle_classes=[TwicePerDay])),
    path("open/<index>/scores/<pk>/", view(permission_classes=[AllowAny])),
    path("api/", include("django_zrank.rest_framework.urls")),
]


@pytest.fixture(autouse=True)
def _urls(settings: Any, zrank: Any) -> None:
    settings.ROOT_URLCONF = __name__


@pytest.fixture
def video(transactional_db: None) -> Video:
    return Video.objects.create(views=10, price=5)


def post(client: APIClient, member: Model, body: Any, index: str = "video", **headers: str) -> Any:
    url = f"/api/{index}/scores/{member.pk}/"
    return client.post(
        url, body, format="json", headers={name.replace("_", "-"): headers[name] for name in headers}
    )


def test_an_increment(staff: APIClient, video: Video) -> None:
    assert post(staff, video, {"by": 3}).json() == {"pk": video.pk, "score": 13}
    assert post(staff, video, {}).json() == {"pk": video.pk, "score": 14}
    flush(VideoRank.instance())
    video.refresh_from_db()
    assert video.views == 14


def test_a_submission(staff: APIClient, video: Video) -> None:
    for value, best in ((7.25, 7.25), ("6.50", 7.25)):
        response = post(staff, video, {"value": value}, "prices")
        assert (response.status_code, response.json()) == (200, {"pk": video.pk, "score": best})


def test_a_change_that_is_sent_again_counts_once(staff: APIClient, video: Video) -> None:
    answers = [post(staff, video, {"by": 3}, Idempotency_Key="a") for _ in range(3)]
    assert [answer.json()["score"] for answer in answers] == [13, 13, 13]
    assert [answer.get("Idempotent-Replayed") for answer in answers] == [None, "true", "true"]
    answer = post(staff, video, {"by": 3}, Idempotency_Key="b")
    assert (answer.json()["score"], "Idempotent-Replayed" in answer) == (16, False)
    response = post(staff, video, {"by": 4}, Idempotency_Key="a")
    assert response.status_code == 422
    assert response.json() == {
        "detail": "This idempotency key was used for another change.",
        "code": "key_reused",
    }
    assert "Idempotent-Replayed" not in response
    assert VideoRank.ranking.score(video) == 16


def test_keys_of_others_are_apart(staff: APIClient, client: APIClient, user: Any, video: Video) -> None:
    user.is_staff = True
    assert post(staff, video, {}, Idempotency_Key="a").json()["score"] == 11
    assert post(client, video, {}, Idempotency_Key="a").json()["score"] == 12


def test_keys_are_stored_as_digests_for_a_while(
    staff: APIClient, video: Video, zrank: Any, settings: Any
) -> None:
    settings.ZRANK = {"KEEP_KEYS": 60}
    assert post(staff, video, {}, Idempotency_Key="secret" * 30).json()["score"] == 11
    (name,) = zrank.keys("*:once:*")
    assert b"secret" not in name
    assert len(name) < 64
    assert 0 < zrank.ttl(name) <= 60


def test_a_key_ends_where_the_user_does() -> None:
    """The user "a" with the key "b:c" is not the user "a:b" with the key "c"."""

    def key_of(user: str, key: str) -> str:
        view: Any = ScoreViewSet()
        view.request = SimpleNamespace(headers={"Idempotency-Key": key}, user=SimpleNamespace(pk=user))
        return str(view.get_idempotency_key())

    keys = {
        key_of("a", "b:c"),
        key_of("a:b", "c"),
        key_of("", "a:b:c"),
        key_of("1:a", "c"),
        key_of("1", "a:c"),
    }
    assert len(keys) == 5


def test_a_member_is_woken_with_atomic_requests(
    staff: APIClient, transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_now(VideoRank)
    Video.objects.bulk_create([Video(views=10)])  # without a signal
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    assert post(staff, Video.objects.get(), {}).json()["score"] == 11


@pytest.mark.parametrize(
    ("index", "body", "names"),
    [
        ("video", {"by": "many"}, ["by"]),
        ("video", {"by": 1.5}, ["by"]),
        ("video", {"by": None}, ["by"]),
        ("video", {"by": 2**53 + 1}, ["by"]),
        ("video", {"by": 2**53}, ["by"]),
        ("video", {"value": 3, "of": 1}, ["of", "value"]),
        ("video", [1], ["non_field_errors"]),
        ("prices", {}, ["value"]),
        ("prices", {"value": "1.005"}, ["value"]),
        ("prices", {"value": "NaN"}, ["value"]),
    ],
)
def test_bad_input_is_named(staff: APIClient, video: Video, index: str, body: Any, names: list[str]) -> None:
    response = post(staff, video, body, index)
    assert (response.status_code, sorted(response.json())) == (400, names)
    assert "column" not in response.content.decode()  # which is not for clients
    assert VideoRank.ranking.score(video) == 10


def test_other_bad_requests(staff: APIClient, video: Video) -> None:
    url = f"/api/video/scores/{video.pk}/"
    assert sorted(post(staff, video, {}, Idempotency_Key="a" * 256).json()) == ["Idempotency-Key"]
    response = staff.post(url, "{", content_type="application/json")
    assert (response.status_code, response.json()["code"]) == (400, "parse_error")
    response = staff.post(url, {"by": 1})  # a form
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")
    assert list(staff.post(f"{url}?by=1", {}, format="json").json()) == ["by"]
    assert staff.get(url).status_code == 405
    assert VideoRank.ranking.score(video) == 10


def test_who_is_not_ranked(staff: APIClient, video: Video) -> None:
    hidden = Video.objects.create(is_public=False)
    for member in (hidden, Video(pk=999)):
        assert post(staff, member, {}).status_code == 404
    assert staff.post("/api/video/scores/none/", {}, format="json").status_code == 404
    assert staff.post(f"/open/player/scores/{video.pk}/", {}, format="json").status_code == 404


def test_without_redis(staff: APIClient, video: Video, settings: Any) -> None:
    use_redis(settings, f"redis://127.0.0.1:{free_port()}/0")
    response = post(staff, video, {}, Idempotency_Key="a")
    assert (response.status_code, response.headers["Retry-After"]) == (503, "5")


def test_only_staff_may_unless_the_view_says_otherwise(
    client: APIClient, anonymous: APIClient, video: Video
) -> None:
    assert [post(one, video, {}).status_code for one in (client, anonymous)] == [403, 403]
    assert anonymous.post(f"/open/video/scores/{video.pk}/", {}, format="json").json()["score"] == 11
    # The paths of the app change nothing.
    assert client.post(f"/api/video/leaderboard/{video.pk}/", {}, format="json").status_code == 405


@pytest.fixture
def owned() -> Iterator[None]:
    registry.register(Owned)
    yield
    registry.unregister(Owned)


def test_owners(client: APIClient, me: Player, owned: None) -> None:
    sync_now(Owned)
    other = Player.objects.exclude(pk=me.pk).first()
    assert other is not None
    assert post(client, me, {"value": 150}, "owned").json() == {"pk": me.pk, "score": 150}
    assert post(client, other, {"value": 150}, "owned").status_code == 403


def test_bodies_that_mean_harm(staff: APIClient, video: Video) -> None:
    for body in (
        '{"\\ud800": 1}',
        "[" * 100_000,
        '{"by": ' + "[" * 100_000,
        '{"by": "\\ud800"}',
        '{"x": ' * 50_000,
    ):
        response = staff.post(f"/api/video/scores/{video.pk}/", body, content_type="application/json")
        assert response.status_code == 400, body[:20]
        assert len(response.content) < 1000
    # Unknown fields are named, but not all.
    response = post(staff, video, {"x" * 5000 + str(number): 1 for number in range(100)})
    assert response.status_code == 400
    assert len(response.content) < 3000


def test_a_blank_key(staff: APIClient, video: Video) -> None:
    for key in ("", "  "):
        response = post(staff, video, {}, Idempotency_Key=key)
        assert (response.status_code, response.json()) == (
            400,
            {"Idempotency-Key": ["This field may not be blank."]},
        )


def test_a_page_in_a_browser(staff: APIClient, video: Video) -> None:
    for index, status in (("video", 200), ("player", 404), ("nobody", 404)):
        url = f"/open/{index}/scores/{video.pk}/"
        assert staff.get(url, headers={"Accept": "text/html"}).status_code == 405
        answer = staff.post(url, {"by": 1}, format="json", headers={"Accept": "text/html"})
        assert answer.status_code == status, index
        assert b"<html" in answer.content


def test_a_throttle(staff: APIClient, video: Video) -> None:
    url = f"/throttled/{video.pk}/"
    assert [staff.post(url, {}, format="json").status_code for _ in range(3)] == [200, 200, 429]
    assert VideoRank.ranking.score(video) == 12


def test_nobody_may_be_no_user_at_all(anonymous: APIClient, video: Video, settings: Any) -> None:
    settings.REST_FRAMEWORK = {"UNAUTHENTICATED_USER": None}
    url, once = f"/open/video/scores/{video.pk}/", {"Idempotency-Key": "a"}
    answers = [anonymous.post(url, {}, format="json", headers=once).json() for _ in range(2)]
    assert [answer["score"] for answer in answers] == [11, 11]


def test_the_schema(staff: APIClient, video: Video, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        f"{__name__}.urlpatterns", urlpatterns[:-1]
    )  # Those of the app are in test_openapi.py
    settings.REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}
    schema = generate()
    for url, index in (("/api/video/scores/{id}/", "video"), ("/open/{index}/scores/{id}/", "prices")):
        operation = schema.paths[url]["post"]
        parameters = {one["name"]: one["in"] for one in operation["parameters"]}
        assert parameters.items() >= {"id": "path", "Idempotency-Key": "header"}.items()
        statuses = {"200", "400", "401", "403", "404", "415", "422", "503"}
        assert set(operation["responses"]) == statuses
        answer = post(staff, video, {"by": 1} if index == "video" else {"value": 3}, index)
        schema.validate(url, answer.json(), method="post")
    throttled = schema.paths["/throttled/{id}/"]["post"]["responses"]
    assert set(throttled) == statuses | {"429"}
    assert set(throttled["429"]["headers"]) == {"Retry-After"}
    body = schema.components["VideoChange"]
    assert body["additionalProperties"] is False
    change = body["properties"]["by"]
    assert (change["type"], change["default"], change["maximum"]) == ("integer", 1, 2**53)
    prices = schema.components["PricesChange"]
    assert prices["required"] == ["value"]
    assert prices["properties"]["value"]["multipleOf"] == 0.01


def test_the_schema_of_an_action_that_the_project_annotates(settings: Any) -> None:
    settings.REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}

    class Annotated(ScoreViewSet):
        index = VideoRank

        @extend_schema(summary="Views of a video")
        def change(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            return super().change(request, *args, **kwargs)

    views = {"plain": view(index=VideoRank), "annotated": Annotated.as_view({"post": "change"})}
    paths = [path(f"{name}/<pk>/", one) for name, one in views.items()]
    schema = SchemaGenerator(patterns=paths).get_schema(public=True)["paths"]  # type: ignore[no-untyped-call]
    plain, annotated = schema["/plain/{id}/"]["post"], schema["/annotated/{id}/"]["post"]
    assert annotated["summary"] == "Views of a video"
    assert annotated["parameters"] == plain["parameters"]
    assert annotated["responses"] == plain["responses"]
