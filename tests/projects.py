"""Projects of their own, run as their developers run them."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from copy import copy
from pathlib import Path

__all__ = ["INDEX", "LIVE", "ROOT", "SETTINGS", "Project", "documented", "is_closed"]

ROOT = Path(__file__).parents[1]

SETTINGS = """
import os
SECRET_KEY = "-"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "rest_framework", "django_zrank", "players"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "live.sqlite3"}}
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "zrank": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": os.environ["PROJECT_REDIS"],
        "OPTIONS": {"SOCKET_TIMEOUT": 1, "SOCKET_CONNECT_TIMEOUT": 1},
    },
}
ZRANK = {"TEST_LOCATION": os.environ["TEST_REDIS"]} if "TEST_REDIS" in os.environ else {}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
"""

MODELS = """
from django.db import models

class Player(models.Model):
    level = models.IntegerField()
"""

INDEX = """
from django_zrank import RankIndex, register
from .models import Player

@register
class PlayerRank(RankIndex):
    model = Player
    order = ("-level",)
    band = 10
"""

LIVE = """
from django.core.management import call_command
from players.models import Player
call_command("migrate", run_syncdb=True, verbosity=0)
Player.objects.bulk_create(Player(level=level) for level in range(30))
call_command("rebuild_zrank", verbosity=0)
"""


def documented(page: str) -> dict[str, str]:
    """The Python files of a page, by the names that its blocks begin with. Several blocks may be parts of one file."""
    files: dict[str, str] = {}
    for text, name in re.findall(r"```python\n(# ([\w/]+\.py).*?)```", (ROOT / page).read_text(), re.DOTALL):
        files[name] = files.get(name, "") + text
    return files


class Project:
    """A project in a folder, whose site is live: thirty players, ranked in its Redis."""

    def __init__(
        self, folder: Path, url: str, files: dict[str, str] | None = None, *, live: bool = True
    ) -> None:
        """``live=False`` leaves it to the first process of the project to run ``LIVE``."""
        self.folder = folder
        self.environment = {
            **{
                name: value for name, value in os.environ.items() if not name.startswith(("DJANGO", "PYTEST"))
            },
            "DJANGO_SETTINGS_MODULE": "settings",
            "PROJECT_REDIS": url,
            "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
            "PYTHONWARNINGS": "error",
        }
        (folder / "players").mkdir()
        (folder / "servers").mkdir()
        for name, text in {
            "settings.py": SETTINGS,
            "players/__init__.py": "",
            "players/models.py": MODELS,
            "players/zrank.py": INDEX,
            **(files or {}),
        }.items():
            (folder / name).write_text(text)
        if live:
            self.shell(LIVE)

    def copy(self, folder: Path) -> Project:
        project = copy(self)
        project.folder = shutil.copytree(self.folder, folder)
        project.environment = {**self.environment, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
        return project

    def run(self, *args: str, given: str | None = None, **environment: str) -> str:
        """Run Python with these arguments, to its end; ``given``: what it reads. Return what it writes."""
        done = subprocess.run(
            [sys.executable, *args],
            cwd=self.folder,
            env={**self.environment, **environment},
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def shell(self, code: str, given: str | None = None) -> str:
        return self.run("-c", f"import django; django.setup()\n{code}", given=given)

    def start(self, code: str) -> subprocess.Popen[str]:
        """Start a process that runs some code beside others."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        code = f"import django; django.setup()\n{code}"
        return subprocess.Popen(
            [sys.executable, "-c", code], cwd=self.folder, env=self.environment, text=True, **pipes
        )

    def test(self, text: str, *args: str) -> str:
        """Run a module of tests by Django's own runner."""
        (self.folder / "players" / "tests.py").write_text(text)
        return self.run("-m", "django", "test", *args)

    def pytest(self, *args: str) -> str:
        return self.run(
            "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={self.folder}", "--ds=settings", *args
        )

    def servers(self) -> dict[int, int]:
        """The ports of the servers that tests had, by the process."""
        pairs = (path.name.split("-") for path in (self.folder / "servers").iterdir())
        return {int(pid): int(port) for pid, port in pairs}


def is_closed(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
