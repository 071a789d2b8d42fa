"""``path("api/", include("django_zrank.rest_framework.urls"))``.

The short path serves the only index or the default one, the long path any index by its name.
"""

from django.urls import path
from rest_framework.routers import SimpleRouter

from .viewsets import LeaderboardViewSet, RecommendationViewSet

app_name = "django_zrank"

recommendations = RecommendationViewSet.as_view({"get": "list"}, name="Recommendations")

router = SimpleRouter(use_regex_path=False)
router.register("leaderboard", LeaderboardViewSet, basename="leaderboard")
router.register("<index>/leaderboard", LeaderboardViewSet, basename="index-leaderboard")

urlpatterns = [
    path("recommendations/", recommendations, name="recommendations"),
    path("<index>/recommendations/", recommendations, name="index-recommendations"),
    *router.urls,
]
