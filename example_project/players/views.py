"""The arena: ten opponents near the player, a match, an audience, an outage; and the leaderboard.

Every form works without JavaScript. With it, htmx sends the same forms, and swaps the part of the page that changed.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model, login, logout
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.core.paginator import InvalidPage, Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from django_zrank import IndexUnavailable, NotRanked
from django_zrank.conf import get_settings

from . import audience as house
from . import outage as disaster
from .forms import RollForm
from .models import Player, Region
from .report import change_line
from .rolls import compare, roll
from .showcase import NEWCOMER, PLAYABLE, change_level, lines_of, play_match, rank_of
from .zrank import PlayerRank

PAGE = 20
"""Players on a page of the leaderboard."""


@never_cache
@require_GET
def arena(request: HttpRequest) -> HttpResponse:
    """The page; for htmx, only the roll."""
    return _show(request, RollForm(request.GET))


def _show(request: HttpRequest, form: RollForm, said: str = "") -> HttpResponse:
    own = _player(request)
    player, error = own or _stand_in(request), None
    try:
        rolled = roll(player, form) if player else None
    except NotRanked:
        rolled = None
    except IndexUnavailable as unavailable:
        rolled, error = None, unavailable
    context = {"player": player, "own": own, "roll": rolled, "form": form, "error": error, "said": said}
    if _is_htmx(request):
        is_cast = own is not None and request.user.get_username() in PLAYABLE and settings.DEBUG
        return render(request, "players/show.html", context | {"is_swapped": True, "is_cast": is_cast})
    context |= {"cast": _cast(), "is_demo": settings.DEBUG, **_house(request, error), **_outage()}
    response = render(request, "players/arena.html", context, status=503 if error else 200)
    if error:
        response.headers["Retry-After"] = str(ceil(get_settings().retry_after))
    return response


@never_cache
@require_GET
def comparison(request: HttpRequest) -> HttpResponse:
    """The time that the roll takes, and SQL for the same. The arena's page loads it after the roll."""
    player = _player(request) or _stand_in(request)
    if player is None:
        raise Http404
    try:
        compared = compare(player, RollForm(request.GET))
    except (IndexUnavailable, NotRanked):
        compared = None
    name = "race" if _is_htmx(request) else "comparison"
    return render(request, f"players/{name}.html", {"comparison": compared})


@never_cache
@require_GET
def leaderboard(request: HttpRequest) -> HttpResponse:
    """The leaderboard, of all players or of a region, twenty a page."""
    region = request.GET.get("region", "")
    if region and region not in Region:
        raise Http404
    player, ranking = _player(request), PlayerRank.ranking
    counts = ranking.counts("region")
    if region:
        ranking = ranking.filter(region=region)
    try:
        page = Paginator(ranking, PAGE).page(request.GET.get("page", 1))
    except InvalidPage:
        raise Http404 from None
    lines = lines_of(page.object_list)
    own_rank = rank_of(player, ranking) if player else None
    return render(
        request,
        "players/leaderboard.html",
        {
            "player": player,
            "page": page,
            "lines": lines,
            "podium": lines[:3] if page.number == 1 and len(lines) > 3 else [],
            "own_rank": own_rank,
            "own_page": own_rank and ceil(own_rank / PAGE),
            "region": region,
            "region_name": Region(region).label if region else "",
            "regions": [(value, label, counts.get(value, 0)) for value, label in Region.choices],
        },
    )


@login_required
@require_POST
def level_up(request: HttpRequest) -> HttpResponse:
    """Gain a level. The next page shows the new rank."""
    player = get_object_or_404(Player, user=request.user)
    return _done(request, change_line(change_level(player, by=1)))


@login_required
@require_POST
def match(request: HttpRequest, pk: int) -> HttpResponse:
    """A match against another player: the winner gains levels, the loser drops one."""
    player = get_object_or_404(Player, user=request.user)
    return _done(request, play_match(player, get_object_or_404(Player.objects.exclude(pk=player.pk), pk=pk)))


@never_cache
@require_http_methods(["GET", "POST"])
def audience(request: HttpRequest) -> HttpResponse:
    """Make people join or leave. Requires a login, except on a developer's machine."""
    if request.method == "POST":
        if not _may_gather(request):
            raise PermissionDenied
        act = {"join": house.join, "leave": house.leave}.get(request.POST.get("action", ""))
        if act is None:
            raise Http404
        try:
            said = act()
        except IndexUnavailable as error:
            said = str(error)
        if not _is_htmx(request):
            messages.success(request, said)
            return redirect("arena")
        return render(
            request, "players/audience.html", {"said": said, "is_swapped": True, **_house(request, None)}
        )
    if _is_htmx(request):
        return render(request, "players/audience.html", {"is_swapped": True, **_house(request, None)})
    return redirect("arena")


@never_cache
@require_http_methods(["GET", "POST"])
def outage(request: HttpRequest) -> HttpResponse:
    """Kill Redis, save players, and restart it: only on a developer's machine."""
    if not settings.DEBUG:
        raise Http404
    said = ""
    if request.method == "POST":
        acts = {"kill": disaster.kill, "save": disaster.save_some, "start": disaster.start}
        act = acts.get(request.POST.get("action", ""))
        if act is None or disaster.stage.server is None:
            raise Http404
        said = act()
        if not _is_htmx(request):
            messages.success(request, said)
    if not _is_htmx(request):
        return redirect("arena")
    return render(request, "players/outage.html", {"outage_said": said, "is_swapped": True, **_outage()})


@require_POST
def play_as(request: HttpRequest, role: str) -> HttpResponse:
    """Sign in as one of the demo's players, without a password: on a developer's machine only."""
    if not settings.DEBUG or role not in PLAYABLE:
        raise Http404
    login(request, get_object_or_404(get_user_model(), username=role, player__isnull=False))
    return redirect("arena")


@require_POST
def leave(request: HttpRequest) -> HttpResponse:
    """Sign out."""
    logout(request)
    return redirect("arena")


def _done(request: HttpRequest, said: str) -> HttpResponse:
    """The response after a change: a new roll, or the whole page."""
    if _is_htmx(request):
        return _show(request, RollForm(request.POST), said)
    messages.success(request, said)
    return redirect("arena")


def _is_htmx(request: HttpRequest) -> bool:
    return request.headers.get("HX-Request") == "true"


def _player(request: HttpRequest) -> Player | None:
    return Player.objects.filter(user=request.user).first() if request.user.is_authenticated else None


def _stand_in(request: HttpRequest) -> Player | None:
    """The player whose opponents a visitor sees before signing in."""
    if request.user.is_authenticated or not settings.DEBUG:
        return None
    return Player.objects.filter(user__username=NEWCOMER).first()


def _may_gather(request: HttpRequest) -> bool:
    return settings.DEBUG or request.user.is_authenticated


def _house(request: HttpRequest, error: Exception | None) -> dict[str, Any]:
    may_gather = _may_gather(request)
    try:
        return {"house": None if error else house.count(), "may_gather": may_gather}
    except IndexUnavailable:
        return {"house": None, "may_gather": may_gather}


def _outage() -> dict[str, Any]:
    return {"outage": disaster.look() if settings.DEBUG else None}


def _cast() -> list[Player]:
    """The players that a visitor can play as, in the order of :data:`PLAYABLE`."""
    if not settings.DEBUG:
        return []
    players = Player.objects.filter(user__username__in=PLAYABLE).select_related("user")
    return sorted(players, key=lambda player: PLAYABLE.index(player.user.username))
