"""``path("api/", include("django_zrank.rest_framework.urls"))``.

The short paths serve the only index or the default one, the long ones an index by its name.
"""

from __future__ import annotations

from typing import Any

from django.urls import URLPattern, URLResolver, include, path
from rest_framework.routers import SimpleRouter

from ..index import RankIndex
from ..registry import registry
from .viewsets import LeaderboardViewSet, RecommendationViewSet

__all__ = ["app_name", "get_urls", "urlpatterns"]

app_name = "django_zrank"


def get_urls() -> list[URLPattern | URLResolver]:
    """Return the paths without an index, those of each registered index, and those of any name.

    With paths of its own, each index has an OpenAPI schema of its own, with its facets and types. The last ones answer
    for indexes that are registered later, and for unknown names; no schema shows them.
    """
    return [
        *_get_paths(""),
        *(
            path(f"{index.name}/", include(_get_paths("index-", index=index)), {"index": index.name})
            for index in registry.all()
            if "<" not in index.name  # The syntax of path()
        ),
        path("<index>/", include(_get_paths("index-", schema=None))),
    ]


def _get_paths(prefix: str, **attributes: RankIndex | None) -> list[URLPattern | URLResolver]:
    """The paths of both views; ``prefix``: of their names."""
    draw: Any = RecommendationViewSet.as_view({"get": "list"}, name="Recommendations", **attributes)
    documented = {"__doc__": LeaderboardViewSet.__doc__, "__module__": LeaderboardViewSet.__module__}
    board = type(LeaderboardViewSet.__name__, (LeaderboardViewSet,), {**documented, **attributes})
    router = SimpleRouter(use_regex_path=False)
    router.register("leaderboard", board, basename=f"{prefix}leaderboard")
    return [path("recommendations/", draw, name=f"{prefix}recommendations"), *router.urls]


urlpatterns = get_urls()
