"""A project that uninstalls the app by docs/howto/upgrade.md: nothing of it is left in the database or in Redis."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from django_zrank.testing import EmbeddedServer
from tests.projects import LIVE, ROOT, SETTINGS, Project

INSTALLED = SETTINGS.replace('"django_zrank", "players"]', '*os.environ.get("APP", "").split(), "players"]')
INSTALLED += """
ZRANK = {"DEFAULT_INDEX": "player"}
"""

REMAINS = """
import json
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("SELECT type, name FROM sqlite_master WHERE name LIKE '%zrank%' AND type <> 'index'")
    found = {"schema": sorted(map(list, cursor.fetchall()))}
found["types"] = sorted(ContentType.objects.filter(app_label="zrank").values_list("model", flat=True))
codes = Permission.objects.filter(content_type__app_label="zrank").values_list("codename", flat=True)
found["permissions"] = sorted(codes)
from django.db.migrations.recorder import MigrationRecorder
found["migrations"] = MigrationRecorder.Migration.objects.filter(app="zrank").count()
from players.models import Player
Player.objects.filter(level=3).update(level=4)
Player.objects.create(level=5)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def redis() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


def commands(text: str) -> str:
    """Code that runs the commands that a part of the page names, without their questions."""
    named = re.findall(r"manage\.py ([\w -]+)", text)
    calls = [name.split() for name in named if "--dry-run" not in name and name != "sync_zrank"]
    assert calls
    return "".join(
        f"call_command(*{call!r}, skip_checks=False{', interactive=False' * call[0].startswith('remove')})\n"
        for call in calls
    )


def test_nothing_is_left(redis: EmbeddedServer, tmp_path: Path) -> None:
    project = Project(tmp_path, redis.url, {"settings.py": INSTALLED}, live=False)
    page = (ROOT / "docs/howto/upgrade.md").read_text().partition("\n## Uninstall\n")[2]
    kept, removed = page.split("\n5. ")
    start = "import django; django.setup()\nfrom django.core.management import call_command\n"
    said = project.run("-c", f"{start}{LIVE}{REMAINS}", APP="django_zrank")
    before = json.loads(said.splitlines()[0])
    assert before["permissions"] == ["rebuild_ranking", "view_ranking"]
    assert len(before["schema"]) >= 7
    with Redis.from_url(redis.url) as client:
        assert client.keys()
        (tmp_path / "players/zrank.py").unlink()
        project.run("-c", start + commands(kept), APP="django_zrank")
        assert client.keys() == []
    said = project.run("-c", f"{start}{commands(removed)}{REMAINS}", APP="")
    assert json.loads(said.splitlines()[-1]) == {
        "schema": [],
        "types": [],
        "permissions": [],
        "migrations": 0,
    }
