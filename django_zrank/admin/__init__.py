"""The admin: a page over the registered indexes, and a column of ranks for the admin of a ranked model."""

from __future__ import annotations

from django.contrib import admin

from ..jobs.models import Ranking
from .columns import RankedAdminMixin
from .rankings import RankingAdmin

__all__ = ["RankedAdminMixin", "RankingAdmin"]

admin.site.register(Ranking, RankingAdmin)
