"""A view for load balancers: ``path("health/", health)``."""

from __future__ import annotations

from time import monotonic
from typing import Final

from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from .exceptions import IndexUnavailable
from .extension import fallback
from .index import RankIndex
from .queries.counts import Size
from .queries.steps import drive
from .redis import reader_of
from .registry import registry

__all__ = ["health"]


_BUDGET: Final = 1.0
"""Seconds after which no further index is asked."""


@never_cache
@require_safe
def health(request: HttpRequest) -> JsonResponse:
    """Return 200 if all indexes, or those that ``?index=`` names, can be read; otherwise 503, with the reason for each.

    Each index costs one short command and, at most once a second, a check of the server's health. If Redis hangs, no
    further index is checked after a second: the others are "not asked", and count as unreadable unless a fallback
    answers for them.
    """
    names = list(dict.fromkeys(request.GET.getlist("index")))
    try:
        indexes = registry.named(names)
    except LookupError:
        return JsonResponse({"detail": "There is no such index."}, status=404)
    until = monotonic() + _BUDGET
    states = {index.name: _state(index) if monotonic() < until else "not asked" for index in indexes}
    other = fallback()
    fine = {"ok", *([other.label, "not asked"] if other else [])}
    return JsonResponse({"indexes": states}, status=200 if fine.issuperset(states.values()) else 503)


def _state(index: RankIndex) -> str:
    reader = reader_of(index)
    try:
        drive(reader.asking(Size(), index.ranking.view, "primary"), reader.send)
    except IndexUnavailable as error:
        other = fallback()
        return other.label if other else type(error).__name__
    return "ok"
