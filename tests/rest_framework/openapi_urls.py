"""The paths of the OpenAPI schema: those of the app, and a project's own views."""

from __future__ import annotations

from typing import Any

from django.urls import include, path
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter

from django_zrank.rest_framework import LeaderboardViewSet
from django_zrank.rest_framework.serializers import UnrankedSerializer
from tests.rest_framework.urls import (
    AllValues,
    Board,
    LinkedEntry,
    MusicianRank,
    Opponents,
    Regional,
    SameNames,
    Tied,
    Unranked,
    board,
    view,
)
from tests.testapp.zrank import NicknameRank


@extend_schema(tags=["mine"])
class Annotated(Board):
    """A view that the project describes itself, in part."""

    @extend_schema(summary="The best of all")
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().list(request, *args, **kwargs)


router = SimpleRouter()
router.register("opponents", Opponents, basename="opponent")
router.register("board", Board, basename="board")
router.register("annotated", Annotated, basename="annotated")

any_index = SimpleRouter()
any_index.register("board", LeaderboardViewSet, basename="any-board")

urlpatterns = [
    path("any/<index>/", include(any_index.urls)),
    path("any/<index>/draw/", view()),
    path("musicians/", board(index=MusicianRank)),
    path("odd/", board(index=NicknameRank, allow_groups=True)),
    path("api/", include("django_zrank.rest_framework.urls")),
    path("own/", include(router.urls)),
    path("own/offset/", board(pagination_class=None, serializer_class=LinkedEntry)),
    path("own/kwarg/", board(lookup_url_kwarg="player")),
    path("own/values/", board(index=Tied, serializer_class=AllValues)),
    path("own/name/", board(lookup_field="name")),
    path("own/same-names/", view(serializer_class=SameNames)),
    path("own/unranked/", view(serializer_class=UnrankedSerializer)),
    path("own/unranked-rows/", view(serializer_class=Unranked)),
    path(
        "own/linked/", view(index=Regional, serializer_class=LinkedEntry, allow_seed=True, allow_groups=True)
    ),
]
