"""The page, the admin and the API."""

from django.conf import settings
from django.contrib import admin
from django.urls import include, path

_schema = []
if settings.OPENAPI:
    from drf_spectacular.views import SpectacularJSONAPIView

    _schema = [path("api/schema/", SpectacularJSONAPIView.as_view(), name="schema")]

urlpatterns = [
    path("", include("players.urls")),
    path("admin/", admin.site.urls),
    path("api/", include("players.api")),
    *_schema,
    path("api/", include("django_zrank.rest_framework.urls")),
]
