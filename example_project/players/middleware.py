"""An error page for an index that is unavailable."""

from __future__ import annotations

from math import ceil

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from django_zrank import IndexUnavailable
from django_zrank.conf import get_settings


class IndexUnavailableMiddleware:
    """Answers 503 with ``Retry-After`` for pages, as the REST API does."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, IndexUnavailable):
            return None
        response = render(
            request, "players/unavailable.html", {"reason": exception if settings.DEBUG else None}, status=503
        )
        response.headers["Retry-After"] = str(ceil(get_settings().retry_after))
        return response
