"""A project without an app that a part of this one is for: commands, checks and pages work, in any combination."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from django_zrank.testing import EmbeddedServer
from tests.projects import SETTINGS, Project

pytestmark = pytest.mark.slow

# Each app needs those before it.
CONTRIB = (
    (),
    ("contenttypes",),
    ("contenttypes", "auth"),
    ("contenttypes", "auth", "sessions", "messages", "admin"),
)
API = ((), ("rest_framework",), ("rest_framework", "drf_spectacular"))

CHOSEN = f"""{SETTINGS}
CHOSEN = os.environ["CHOSEN"].split()
INSTALLED_APPS = [*CHOSEN, "django_zrank", "players"]
DATABASES["default"]["NAME"] = os.environ["FILE"]
ROOT_URLCONF = "urls"
ALLOWED_HOSTS = ["testserver"]
MIDDLEWARE = []
TEMPLATES = [{{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}}]
ZRANK = {{"KEY_PREFIX": "p" + os.environ["FILE"].partition(".")[0]}}
REST_FRAMEWORK = {{
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
}}
if "django.contrib.auth" not in CHOSEN:
    REST_FRAMEWORK["UNAUTHENTICATED_USER"] = None
if "drf_spectacular" in CHOSEN:
    REST_FRAMEWORK["DEFAULT_SCHEMA_CLASS"] = "drf_spectacular.openapi.AutoSchema"
if "django.contrib.admin" in CHOSEN:
    MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ]
    names = "request", "auth", "messages"
    modules = "django.template", "django.contrib.auth", "django.contrib.messages"
    TEMPLATES[0]["OPTIONS"] = {{
        "context_processors": [f"{{module}}.context_processors.{{name}}" for module, name in zip(modules, names)]
    }}
"""

URLS = """
from django.conf import settings
from django.urls import include, path

urlpatterns = []
if "rest_framework" in settings.CHOSEN:
    urlpatterns.append(path("api/", include("django_zrank.rest_framework.urls")))
if "drf_spectacular" in settings.CHOSEN:
    from drf_spectacular.views import SpectacularAPIView
    urlpatterns.append(path("schema/", SpectacularAPIView.as_view()))
if "django.contrib.admin" in settings.CHOSEN:
    from django.contrib import admin
    urlpatterns.append(path("admin/", admin.site.urls))
"""

MODELS = """
from django.db import models

class Player(models.Model):
    level = models.IntegerField()
    page = models.IntegerField(default=1)
"""

INDEX = """
import os
from django_zrank import RankIndex, register
from .models import Player

@register
class PlayerRank(RankIndex):
    model = Player
    order = ("-level",)
    band = 10
    owner = os.environ.get("OWNER")
    facets = ("page",)  # a parameter of the REST API, too
"""

EDGES = {"rest_framework", "admin", "metrics", "testing", "health"}

USE = f"""
import json, sys
from io import StringIO
import django
django.setup()
from django.apps import apps
from django.core.management import call_command
from django.core.checks import run_checks
loaded = sorted({EDGES!r} & {{name.split(".")[1] for name in sys.modules if name.startswith("django_zrank.")}})
# First: Django's own checks load the URLconf, too.
tagged = sorted(str(message.id) for message in run_checks(tags=["zrank"]))
messages = sorted(str(message.id) for message in run_checks())
call_command("migrate", run_syncdb=True, verbosity=0)
from players.models import Player
Player.objects.bulk_create(Player(level=level) for level in range(30))
call_command("rebuild_zrank", verbosity=0)
call_command("verify_zrank", verbosity=0)
from django.conf import settings
from django.test import Client
client, pages = Client(raise_request_exception=False), {{}}
paths = []
if "rest_framework" in settings.CHOSEN:
    paths += ["leaderboard/", "leaderboard/me/", "leaderboard/3/", "recommendations/", "recommendations/?member=3"]
    paths = ["/api/" + path for path in paths]
if "drf_spectacular" in settings.CHOSEN:
    paths.append("/schema/")
if "django.contrib.admin" in settings.CHOSEN:
    from django.contrib.auth.models import User
    client.force_login(User.objects.create_superuser("admin"))
    paths += ["/admin/zrank/ranking/", "/admin/zrank/ranking/player/change/"]
pages = {{path: client.get(path).status_code for path in paths}}
print(json.dumps({{"loaded": loaded, "messages": messages, "tagged": tagged, "pages": pages}}))
"""


@pytest.fixture(scope="module")
def redis() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


@pytest.fixture(scope="module")
def project(redis: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Project:
    files = {"settings.py": CHOSEN, "urls.py": URLS, "players/models.py": MODELS, "players/zrank.py": INDEX}
    return Project(tmp_path_factory.mktemp("site"), redis.url, {**files, "use.py": USE}, live=False)


@pytest.mark.parametrize("api", API, ids=" ".join)
@pytest.mark.parametrize("contrib", CONTRIB, ids=" ".join)
def test_a_project_without_an_app(project: Project, contrib: tuple[str, ...], api: tuple[str, ...]) -> None:
    apps = [*(f"django.contrib.{name}" for name in contrib), *api]
    file = f"{len(contrib)}-{len(api)}.sqlite3"
    found = json.loads(project.run("use.py", CHOSEN=" ".join(apps), FILE=file))
    # What isn't used isn't loaded. Checks of the REST API come with its views, and need no app of users.
    assert found["loaded"] == (["admin"] if "admin" in contrib else [])
    ids = []
    if api:
        ids = ["zrank.W005", "zrank.W050"] if "auth" in contrib else ["zrank.W050"]
    assert [one for one in found["messages"] if one.startswith("zrank")] == ids
    assert found["tagged"] == ids
    assert all(status < 500 for status in found["pages"].values()), found["pages"]
    assert found["pages"].get("/api/leaderboard/", 200) == 200
    assert found["pages"].get("/api/leaderboard/me/", 403) == 403
    assert found["pages"].get("/schema/", 200) == 200
    assert found["pages"].get("/admin/zrank/ranking/player/change/", 200) == 200


def test_an_owner_in_a_project_without_users(project: Project) -> None:
    code = "from django.core.checks import run_checks; print([message.id for message in run_checks()])"
    said = project.run(
        "-c",
        f"import django; django.setup()\n{code}",
        CHOSEN="",
        FILE="none.sqlite3",
        OWNER="page",
    )
    assert said == "['zrank.E017']\n"
