from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

__all__ = ["ZRankConfig"]


class ZRankConfig(AppConfig):
    name = "django_zrank"
    label = "zrank"
    verbose_name = "Rankings"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401 - registers the system checks
        from .sync.signal_handlers import connect_all

        autodiscover_modules("zrank")
        connect_all()
