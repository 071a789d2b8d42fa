"""Two pages: who I am with ten opponents near me, and the leaderboard."""

from __future__ import annotations

import re

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model, login, logout
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from django_zrank import NotRanked

from .models import Player, Region
from .report import change_line
from .showcase import CAST, Scene, change_level, page_of, show
from .zrank import PlayerRank

__all__ = ["arena", "leaderboard", "leave", "level_up", "play_as"]


@never_cache
@require_GET
def arena(request: HttpRequest) -> HttpResponse:
    """Ten opponents for whoever is signed in, others at every call."""
    player = _player(request)
    scene = _scene(player) if player else None
    return render(
        request,
        "players/arena.html",
        {
            "player": player,
            "scene": scene,
            "ladder": scene and scene.ladder(),
            "total": PlayerRank.ranking.count(),
            "cast": _cast(),
        },
    )


@never_cache
@require_GET
def leaderboard(request: HttpRequest) -> HttpResponse:
    """The best, of all or of a region, twenty to a page."""
    region, number = request.GET.get("region", ""), request.GET.get("page", "1")
    if (region and region not in Region) or not re.fullmatch("[1-9][0-9]{0,8}", number):
        raise Http404
    player = _player(request)
    counts = PlayerRank.ranking.counts("region")
    return render(
        request,
        "players/leaderboard.html",
        {
            "player": player,
            "page": page_of(region, int(number), player),
            "region": region,
            "regions": [(value, label, counts.get(value, 0)) for value, label in Region.choices],
        },
    )


@login_required
@require_POST
def level_up(request: HttpRequest) -> HttpResponse:
    """One level more. The page that follows shows the new rank."""
    player = get_object_or_404(Player, user=request.user)
    messages.success(request, change_line(change_level(player, by=1)))
    return redirect("arena")


@require_POST
def play_as(request: HttpRequest, role: str) -> HttpResponse:
    """Sign in as one of the demo's three players, without a password: on a developer's machine only."""
    if not settings.DEBUG or role not in CAST:
        raise Http404
    login(request, get_object_or_404(get_user_model(), username=role, player__isnull=False))
    return redirect("arena")


@require_POST
def leave(request: HttpRequest) -> HttpResponse:
    """Sign out."""
    logout(request)
    return redirect("arena")


def _player(request: HttpRequest) -> Player | None:
    return Player.objects.filter(user=request.user).first() if request.user.is_authenticated else None


def _scene(player: Player) -> Scene | None:
    try:
        return show("", player)
    except NotRanked:
        return None


def _cast() -> list[Player]:
    """Whom one can play as, in the order of :data:`CAST`."""
    if not settings.DEBUG:
        return []
    players = Player.objects.filter(user__username__in=CAST).select_related("user")
    return sorted(players, key=lambda player: CAST.index(player.user.username))
