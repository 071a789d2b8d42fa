"""The arena's own endpoints: recommendations and a leaderboard with the fields that a game client shows, and the path
by which a match server reports gained levels."""

from __future__ import annotations

from django.urls import include, path
from rest_framework.authentication import TokenAuthentication
from rest_framework.permissions import AllowAny, IsAdminUser
from rest_framework.routers import APIRootView, SimpleRouter
from rest_framework.serializers import ModelSerializer
from rest_framework.throttling import UserRateThrottle

from django_zrank.rest_framework import ScoreViewSet
from django_zrank.rest_framework.viewsets import LeaderboardViewSet, RecommendationViewSet

from .models import Player
from .zrank import PlayerRank


class PlayerSerializer(ModelSerializer):
    """The fields of each result beside pk, score and rank."""

    class Meta:
        model = Player
        fields = ["name", "level", "region"]


class Opponents(RecommendationViewSet):
    """``GET /api/opponents/``: ten random players near yours."""

    index = PlayerRank
    serializer_class = PlayerSerializer

    def get_queryset(self):
        return Player.objects.all()


class Players(LeaderboardViewSet):
    """``GET /api/players/``: the leaderboard, with ``me/``, ``<pk>/``, ``<pk>/around/`` and ``counts/`` below it."""

    index = PlayerRank
    serializer_class = PlayerSerializer

    def get_queryset(self):
        return Player.objects.all()


class ReportRate(UserRateThrottle):
    """The most reports of one match server."""

    rate = "500/second"


class PlayerScores(ScoreViewSet):
    """Add to the level of a player, whose rank changes at once: for match servers.

    Give each report an `Idempotency-Key` of its own, such as a UUID: sent again with the same key within a day, after a
    lost answer or a 503, it counts once.
    """

    index = PlayerRank
    authentication_classes = [TokenAuthentication]
    permission_classes = [IsAdminUser]
    throttle_classes = [ReportRate]


class Root(APIRootView):
    """The endpoints of the arena."""

    permission_classes = [AllowAny]
    api_root_dict = {
        "recommendations": "django_zrank:recommendations",
        "leaderboard": "django_zrank:leaderboard-list",
        "me": "django_zrank:leaderboard-me",
        "opponents": "opponents-list",
        "players": "players-list",
    }

    def get_view_name(self) -> str:
        return "API"


router = SimpleRouter(use_regex_path=False)  # Keys may contain dots
router.register("opponents", Opponents, basename="opponents")
router.register("players", Players, basename="players")

urlpatterns = [
    path("", Root.as_view(), name="api"),
    path("player/scores/<pk>/", PlayerScores.as_view({"post": "change"})),
    path("", include(router.urls)),
]
