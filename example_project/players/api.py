"""The arena's own endpoints: recommendations and a leaderboard with the fields that a game client shows."""

from __future__ import annotations

from django.urls import include, path
from rest_framework.routers import SimpleRouter
from rest_framework.serializers import ModelSerializer

from django_zrank.rest_framework.viewsets import LeaderboardViewSet, RecommendationViewSet

from .models import Player
from .zrank import PlayerRank

__all__ = ["Opponents", "PlayerSerializer", "Players", "urlpatterns"]


class PlayerSerializer(ModelSerializer):
    """The fields of each result beside pk, score and rank."""

    class Meta:
        model = Player
        fields = ["name", "level", "region"]


class Opponents(RecommendationViewSet):
    """``GET /api/opponents/``: ten random players near me."""

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


router = SimpleRouter(use_regex_path=False)  # A key with a dot is looked for, too
router.register("opponents", Opponents, basename="opponents")
router.register("players", Players, basename="players")

urlpatterns = [path("", include(router.urls))]
