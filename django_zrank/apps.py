from __future__ import annotations

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate, pre_migrate
from django.utils.module_loading import autodiscover_modules

from .redis.isolation import note_project

__all__ = ["ZRankConfig"]


class ZRankConfig(AppConfig):
    name = "django_zrank"
    label = "zrank"
    verbose_name = "Rankings"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Not before the models are loaded.
        from . import checks  # noqa: F401 - registers the system checks
        from .capture.migrating import guard
        from .capture.triggers import renew
        from .extension import installed
        from .sync.signal_handlers import connect_all

        note_project()
        autodiscover_modules("zrank")
        installed()  # imported now, and not by the first call, which may be one on an event loop
        connect_all()
        # Both are sent once for each app. Listen to one, and install after all that others do.
        *_, last = (config for config in apps.get_app_configs() if config.models_module is not None)
        pre_migrate.connect(guard, sender=last, dispatch_uid="django_zrank.capture.triggers")
        post_migrate.connect(renew, sender=last, dispatch_uid="django_zrank.capture.triggers")
