from django.contrib import admin

from django_zrank.admin import RankedAdminMixin

from .models import Player


@admin.register(Player)
class PlayerAdmin(RankedAdminMixin, admin.ModelAdmin):
    """The admin of players. Changing a level here is an ordinary ``save()``, which updates the ranking."""

    list_display = ["name", "zrank_rank", "level", "region", "is_active"]
    list_editable = ["level"]
    list_filter = ["region", "is_active"]
    search_fields = ["name"]
    autocomplete_fields = ["friends"]
    raw_id_fields = ["user"]
    show_full_result_count = False
