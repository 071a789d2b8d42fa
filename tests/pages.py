"""The pages of the documentation: their blocks, and a program that runs the Python ones of a page.

``python -m tests.pages docs/leaderboards.md``, in the folder of a project like that of ``tests/test_docs.py``, runs
them from top to bottom, as a reader does who copies one after the other. Conventions:

- ``…`` stands for a reader's own code; it runs as ``...``.
- A block whose first line is ``# settings.py`` consists of settings: the system checks must accept them.
- One whose first line names another file is a module, or a part of it. ``players/zrank.py`` is the project's own, and
  ``players/models.py`` is added to its own. Tests
  (``TESTS``) are run by ``tests/test_projects.py``, by the runners that they are written for.
- A block of Celery's is run where Celery is installed, and its tasks are called; elsewhere it is compiled.
- One that imports django-tenants is compiled; ``tests/test_schemas.py`` runs it where that is installed.
- Any other block may use what blocks before it have defined, and the names that a page takes for granted (``GRANTED``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final, NamedTuple

from tests.projects import LIVE, ROOT

__all__ = ["PAGES", "ROOT", "TESTS", "Block", "blocks"]

PAGES: Final = [
    *("README.md", "CONTRIBUTING.md", "SECURITY.md"),
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
    *(f"tests/{folder}/README.md" for folder in ("benchmarks", "model", "torture")),
]

TESTS: Final = {"players/tests.py", "conftest.py", "test_opponents.py"}

PROJECT: Final = {"players/models.py", "players/zrank.py"}
"""Modules that the project of a page has."""

GRANTED: Final = """
import datetime
from collections import defaultdict
from datetime import timedelta

from django.core.management import call_command
from django.db.models import F, Q
from django.urls import include, path
from django.utils import timezone
from django_zrank import RankIndex, register
from django_zrank.rest_framework import EntrySerializer, IsOwner, LeaderboardViewSet, RecommendationViewSet
from rest_framework import serializers
from rest_framework.permissions import IsAdminUser
from rest_framework.routers import DefaultRouter

from players import zrank
from players.models import Block, Guild, Player, Tag

PlayerRank = getattr(zrank, "PlayerRank", None)  # a page's project may declare another index

class PlayerSerializer(serializers.ModelSerializer):
    class Meta:
        model = Player
        fields = ["level"]

foxes = Guild.objects.create(slug="foxes")
Player.objects.filter(level__gt=10).update(guild=foxes, points=50)
newcomer = Player.objects.first()
newcomer.pk = None
player, *players = Player.objects.order_by("-level")[:5]
player.tags.set([Tag.objects.create(word=word) for word in ("early", "late")])
call_command("sync_zrank", verbosity=0)
just_seen = [players[0]]
yesterday = timezone.now() - timedelta(days=1)
router = DefaultRouter()
"""


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    @property
    def file(self) -> str:
        """The name of the file that the block's first line says it is, or an empty text."""
        match = re.match(r"# ([\w/]+\.py)\b", self.text)
        return match[1] if match else ""

    @property
    def imports(self) -> set[str]:
        """The packages that the block imports from."""
        return set(re.findall(r"^(?:from|import) (\w+)", self.text, re.MULTILINE))

    @property
    def code(self) -> str:
        """The text as Python takes it."""
        return self.text.replace("…", "...")


def blocks(page: str, language: str = "python") -> Iterator[Block]:
    """The blocks of a page that are in a language."""
    text = (ROOT / page).read_text()
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if match[1] == language:
            yield Block(page, text.count("\n", 0, match.start(2)) + 1, match[1], match[2])


def run(block: Block, names: dict[str, Any]) -> None:
    """Run a block among ``names``."""
    # Lines are counted as in the page, for tracebacks.
    code = compile("\n" * (block.line - 1) + block.code, str(ROOT / block.page), "exec", dont_inherit=True)
    if block.file == "settings.py":
        check_settings(code)
    elif block.file in PROJECT:
        names |= vars(import_module(block.file.removesuffix(".py").replace("/", ".")))
    elif "django_tenants" in block.imports:
        pass  # run by tests/test_schemas.py
    elif "celery" not in block.imports:
        exec(code, names)
    elif find_spec("celery"):
        exec(code, names)
        for task in re.findall(r"@shared_task.*\ndef (\w+)", block.text):
            names[task]()
    if block.file:  # blocks below may import from it
        name = block.file.removesuffix(".py").replace("/", ".")
        vars(sys.modules.setdefault(name, ModuleType(name))).update(names)


def check_settings(code: Any) -> None:
    """Let the system checks see settings."""
    from django.conf import settings
    from django.core.checks import run_checks
    from django.test.utils import override_settings

    own: dict[str, Any] = {}
    exec(code, own)
    del own["__builtins__"]
    own.pop("INSTALLED_APPS", None)  # without Django's own
    own["CACHES"] = settings.CACHES | own.get("CACHES", {})
    with override_settings(**own):
        found = [message for message in run_checks(tags=["zrank"]) if message.is_serious()]
    assert not found, found


def main(page: str) -> None:
    import django

    django.setup()
    names: dict[str, Any] = {"__name__": "players.page"}
    exec(LIVE, names)
    exec(GRANTED, names)
    for block in blocks(page):
        if block.file not in TESTS:
            try:
                run(block, names)
            except Exception as error:
                error.add_note(f"{page}, the block at line {block.line}")
                raise
            sys.stdout.write(f"{page}:{block.line}\n")


if __name__ == "__main__":
    main(sys.argv[1])
