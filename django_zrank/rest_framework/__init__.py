"""The REST API, on Django REST framework.

``path("api/", include("django_zrank.rest_framework.urls"))`` serves recommendations and leaderboards. Views of your own
subclass :class:`RecommendationViewSet` and :class:`LeaderboardViewSet`. :class:`ScoreViewSet` changes scores where a
project gives it a path.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .permissions import IsOwner
    from .serializers import EntrySerializer
    from .viewsets import LeaderboardViewSet, RecommendationViewSet, ScoreViewSet

__all__ = ["EntrySerializer", "IsOwner", "LeaderboardViewSet", "RecommendationViewSet", "ScoreViewSet"]


def __getattr__(name: str) -> Any:
    # Imported lazily: views can't be imported while REST framework reads its default permissions from the settings,
    # which may name this package's.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = {"IsOwner": "permissions", "EntrySerializer": "serializers"}.get(name, "viewsets")
    return getattr(import_module(f"{__name__}.{module}"), name)
