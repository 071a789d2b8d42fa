"""check_bare.py: the installed app works without its optional dependencies, such as Django REST framework and tqdm.

Only the modules that are about them fail to import. Run it where none of them is installed, in a folder without a
checkout.
"""

import sys
import tempfile
from importlib import import_module
from pathlib import Path

import django
from django.conf import settings
from django.core.management import call_command

import django_zrank
from django_zrank.embedded import EmbeddedServer

folder = Path(tempfile.mkdtemp())
(folder / "players").mkdir()
(folder / "players/__init__.py").touch()
(folder / "players/models.py").write_text(
    "from django.db import models\n\n\nclass Player(models.Model):\n    level = models.IntegerField()\n"
)
(folder / "players/zrank.py").write_text(
    "from django_zrank import RankIndex, register\n\n\n@register\nclass PlayerRank(RankIndex):\n"
    '    model = "Player"\n    order = ("-level",)\n    band = 10\n'
)
sys.path.insert(0, str(folder))

with EmbeddedServer() as server:
    settings.configure(
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django_zrank", "players"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": folder / "db.sqlite3"}},
        CACHES={
            "zrank": {
                "BACKEND": "django_redis.cache.RedisCache",
                "LOCATION": server.url,
                "OPTIONS": {"SOCKET_TIMEOUT": 5, "SOCKET_CONNECT_TIMEOUT": 5},
            },
            "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        },
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
    )
    django.setup()
    call_command("check")
    call_command("migrate", run_syncdb=True, verbosity=0)
    from players.models import Player
    from players.zrank import PlayerRank

    Player.objects.bulk_create(Player(level=level) for level in range(20))
    for command in ("rebuild_zrank", "verify_zrank", "zrank_status"):
        call_command(command)
    assert len(PlayerRank.ranking.recommend(Player.objects.earliest("pk"), n=5)) == 5
present = {"rest_framework", "tqdm"} & set(sys.modules)
assert not present, present

package = Path(django_zrank.__file__).parent
lacking = {}
for path in sorted(package.rglob("*.py")):
    name = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
    if name.startswith("django_zrank.admin") or name.endswith(
        ".__main__"
    ):  # the admin isn't installed in this project
        continue
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        lacking[name] = error.name.partition(".")[0]
print("modules that need more:", lacking)
NEEDED = {"prometheus_client": "django_zrank.metrics", "pytest": "django_zrank.pytest_plugin"}
for name, missing in lacking.items():
    assert name.startswith(NEEDED.get(missing, "django_zrank.rest_framework")), (name, missing)
print("works without Django REST framework and tqdm")
