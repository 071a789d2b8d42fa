"""The page, the admin and the API."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("", include("players.urls")),
    path("admin/", admin.site.urls),
    path("api/", include("players.api")),
    path("api/", include("django_zrank.rest_framework.urls")),
]
