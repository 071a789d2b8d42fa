"""``path("api/", include("django_zrank.rest_framework.urls"))``.

The short path serves the only index or the default one, the long path any index by its name.
"""

from django.urls import path

from .viewsets import RecommendationViewSet

app_name = "django_zrank"

recommendations = RecommendationViewSet.as_view({"get": "list"}, name="Recommendations")

urlpatterns = [
    path("recommendations/", recommendations, name="recommendations"),
    path("<index>/recommendations/", recommendations, name="index-recommendations"),
]
