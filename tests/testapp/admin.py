from __future__ import annotations

from django.contrib import admin

from django_zrank.admin import RankedAdminMixin

from .models import Player
from .zrank import PlayerRank


@admin.register(Player)
class PlayerAdmin(RankedAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["name", "level"]
    list_editable = ["level"]
    list_per_page = 30
    ordering = ["pk"]
    rank_index = PlayerRank
