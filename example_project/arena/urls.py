"""The page, the admin and the API."""

from django.conf import settings
from django.contrib import admin
from django.templatetags.static import static
from django.urls import include, path
from django.views.generic import RedirectView

_schema = []
if settings.OPENAPI:
    from drf_spectacular.views import SpectacularJSONAPIView

    _schema = [path("api/schema/", SpectacularJSONAPIView.as_view(), name="schema")]

if settings.DEBUG:
    admin.site.login_template = "players/admin_login.html"  # with the password

urlpatterns = [
    path("", include("players.urls")),
    path("favicon.ico", RedirectView.as_view(url=static("players/icon.svg"))),  # the admin's pages name none
    path("admin/", admin.site.urls),
    path("api/", include("players.api")),
    *_schema,
    path("api/", include("django_zrank.rest_framework.urls")),
]
