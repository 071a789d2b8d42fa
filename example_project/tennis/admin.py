from django.contrib import admin

from .models import TennisPlayer


@admin.register(TennisPlayer)
class TennisPlayerAdmin(admin.ModelAdmin):
    list_display = ["name", "country", "points"]
    list_filter = ["country"]
    search_fields = ["name"]
    ordering = ["-points"]
