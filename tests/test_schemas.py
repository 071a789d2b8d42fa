"""Tenants in schemas of PostgreSQL, as django-tenants has them: whose tables a statement reads is decided by the
connection's ``search_path``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from redis import Redis

from django_zrank.models import Mark
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from django_zrank.testing import EmbeddedServer
from tests.projects import Project, documented
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerRank

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="schemas are PostgreSQL's"),
]

Enter = Callable[[str], AbstractContextManager[None]]


def run(sql: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall() if cursor.description else []


def prefix() -> str:
    if connection.connection is None:  # in a thread that has no connection
        return "zrank:nobody"
    ((schema,),) = run("SELECT current_schema()")
    return f"zrank:{schema}"


@contextmanager
def entered(name: str) -> Iterator[None]:
    ((before,),) = run("SHOW search_path")
    run(f"SET search_path TO {name}, public")
    try:
        yield
    finally:
        run(f"SET search_path TO {before}")


@pytest.fixture(scope="module")
def migrated(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Two schemas with all tables and triggers."""
    with django_db_blocker.unblock():
        run("DROP SCHEMA IF EXISTS one, two CASCADE")
        for name in ("one", "two"):
            run(f"CREATE SCHEMA {name}")
            run(f"SET search_path TO {name}")
            call_command("migrate", run_syncdb=True, verbosity=0)
        run("SET search_path TO public")
    yield
    with django_db_blocker.unblock():
        run("DROP SCHEMA one, two CASCADE")


@pytest.fixture
def schemas(migrated: None, zrank: Redis, settings: Any) -> Enter:
    """A function that enters a tenant, whose tables are empty."""
    settings.ZRANK = {**getattr(settings, "ZRANK", {}), "KEY_PREFIX": prefix}
    for name in ("one", "two"):
        with entered(name):
            Player.objects.all().delete()
            sync(PlayerRank.instance())
    return entered


def levels() -> dict[int, int]:
    assert PlayerRank.ranking.count() == Player.objects.count()
    return {entry.pk: entry.score for entry in PlayerRank.ranking}


def test_changes_are_marked_in_the_schema_of_their_table(schemas: Any) -> None:
    for name, level in (("one", 1), ("two", 10)):
        with schemas(name):
            Player.objects.bulk_create(Player(pk=pk, level=level * pk) for pk in (1, 2, 3))
            sync(PlayerRank.instance())
            assert levels() == {1: level, 2: 2 * level, 3: 3 * level}
    with schemas("one"):
        Player.objects.filter(pk=1).update(level=5)
        run(f"UPDATE two.{Player._meta.db_table} SET level = 40 WHERE id = 2")
        assert [mark.member for mark in Mark.objects.filter(index="player")] == ["1"]
    with schemas("two"):
        assert [mark.member for mark in Mark.objects.filter(index="player")] == ["2"]
        sync(PlayerRank.instance())
        assert levels() == {1: 10, 2: 40, 3: 30}
    with schemas("one"):
        assert levels() == {1: 1, 2: 2, 3: 3}
        sync(PlayerRank.instance())
        assert levels() == {1: 5, 2: 2, 3: 3}
        assert verify(PlayerRank.instance()).ok


def test_triggers_that_are_missing_in_one_schema_alone(schemas: Any) -> None:
    """A save there is pushed, though no mark names it."""
    for name in ("one", "two"):
        with schemas(name):
            Player.objects.bulk_create(Player(pk=pk, level=pk) for pk in (1, 2))
            sync(PlayerRank.instance())
    with schemas("one"):
        Player(pk=1, level=7).save()  # looks at the triggers of this tenant
        assert levels() == {1: 7, 2: 2}
    with schemas("two"):
        run(f"ALTER TABLE {Player._meta.db_table} DISABLE TRIGGER USER")
        try:
            Player(pk=1, level=9).save()
            assert levels() == {1: 9, 2: 2}
        finally:
            run(f"ALTER TABLE {Player._meta.db_table} ENABLE TRIGGER USER")


def test_a_save_whose_tenant_is_left_before_its_commit(schemas: Any) -> None:
    """Its push reads the row of the tenant that is entered by then, and writes that to its own index. A drain does the
    rest."""
    for name in ("one", "two"):
        with schemas(name):
            Player.objects.create(pk=1, level=1)
            sync(PlayerRank.instance())
    with schemas("one"), transaction.atomic(), schemas("two"):
        Player(pk=1, level=9).save()
    with schemas("one"):
        assert levels() == {1: 1}
    with schemas("two"):
        assert levels() == {1: 1}
        sync(PlayerRank.instance())
        assert levels() == {1: 9}


# The program of docs/howto/tenants.md, with django-tenants

SETTINGS = """
import os
SECRET_KEY, USE_TZ, ALLOWED_HOSTS = "-", True, ["*"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django_tenants.postgresql_backend",
        "NAME": os.environ["TENANTS_DATABASE"],
        "HOST": os.environ.get("ZRANK_TEST_DATABASE_HOST", "127.0.0.1"),
        "PORT": os.environ.get("ZRANK_TEST_DATABASE_PORT", ""),
        "USER": os.environ.get("ZRANK_TEST_DATABASE_USER", "postgres"),
        "PASSWORD": os.environ.get("ZRANK_TEST_DATABASE_PASSWORD", ""),
    }
}
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
TENANT_MODEL, TENANT_DOMAIN_MODEL = "tenants.Tenant", "tenants.Domain"
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "zrank": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": os.environ["PROJECT_REDIS"],
        "OPTIONS": {"SOCKET_TIMEOUT": 5, "SOCKET_CONNECT_TIMEOUT": 5},
    },
}
ROOT_URLCONF = "players.urls"
MIDDLEWARE = ["django_tenants.middleware.main.TenantMainMiddleware"]
"""

TENANTS = """
from django.db import models
from django_tenants.models import DomainMixin, TenantMixin

class Tenant(TenantMixin):
    auto_create_schema = auto_drop_schema = True

class Domain(DomainMixin):
    pass
"""

URLS = """
from django.http import JsonResponse
from django.urls import path
from players.models import Player
from players.zrank import PlayerRank

def top(request):
    return JsonResponse({entry.pk: entry.score for entry in PlayerRank.ranking.top(100)})

def save(request):
    player = Player.objects.get(pk=request.GET["pk"])
    player.level = request.GET["level"]
    player.save()
    return JsonResponse({"rank": PlayerRank.ranking.rank(player)})

urlpatterns = [path("top/", top), path("save/", save)]
"""

PROGRAM = """
import random, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django_tenants.utils import tenant_context
from django_zrank import IndexUnavailable

call_command("makemigrations", "tenants", "players", verbosity=0)
call_command("migrate_schemas", shared=True, verbosity=0)
from players.models import Player
from players.zrank import PlayerRank
from tenants.models import Domain, Tenant

def create(name, base):
    connection.set_schema_to_public()
    tenant = Tenant(schema_name=name)
    tenant.save(verbosity=0)
    Domain.objects.create(domain=f"{name}.test", tenant=tenant)
    with tenant_context(tenant):
        Player.objects.bulk_create(Player(level=base + pk) for pk in range(5))
    return tenant

def shown(tenant):
    answer = Client(headers={"host": f"{tenant.schema_name}.test"}, raise_request_exception=False).get("/top/")
    return {int(pk): level for pk, level in answer.json().items()} if answer.status_code == 200 else None

def stored(tenant):
    with tenant_context(tenant):
        return dict(Player.objects.values_list("pk", "level"))

def settle(*tenants):
    end = time.monotonic() + 30
    for tenant in tenants:
        while shown(tenant) != stored(tenant):
            assert time.monotonic() < end, tenant.schema_name
            time.sleep(0.05)

one, two = (create(name, base) for name, base in (("one", 0), ("two", 10_000)))
worker = subprocess.Popen([sys.executable, "-m", "django", "sync_tenants"])
try:
    settle(one, two)

    def requests(seed):
        # Each thread of requests serves both tenants.
        rng = random.Random(seed)
        for _ in range(40):
            name, base = rng.choice([("one", 0), ("two", 10_000)])
            client = Client(headers={"host": f"{name}.test"})
            level = base + rng.randrange(1000)
            assert client.get(f"/save/?pk={rng.randrange(1, 6)}&level={level}").status_code == 200
            assert all(base <= level < base + 1000 for level in client.get("/top/").json().values())
        connection.close()

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(requests, range(3)))
    settle(one, two)
    with tenant_context(one), connection.cursor() as cursor:
        cursor.execute("UPDATE two.players_player SET level = level + 5")
    settle(one, two)
    three = create("three", 20_000)
    settle(one, two, three)
    for tenant in (one, two, three):
        with tenant_context(tenant):
            call_command("verify_zrank", stdout=StringIO())
    connection.set_schema_to_public()
    try:
        PlayerRank.ranking.count()
    except IndexUnavailable:
        print("the public schema has no index")
finally:
    worker.terminate()
    assert worker.wait() == 0
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("django_tenants") is None, reason="pip install django-tenants")
def test_the_documented_program(tmp_path: Path) -> None:
    own = documented("docs/howto/tenants.md")
    (tmp_path / "tenants/management/commands").mkdir(parents=True)
    for package in ("tenants", "tenants/management", "tenants/management/commands"):
        (tmp_path / package / "__init__.py").touch()
    command = "tenants/management/commands/sync_tenants.py"
    files = {
        "settings.py": SETTINGS + own["project/settings.py"],
        "tenants/models.py": TENANTS,
        "players/urls.py": URLS,
        command: own[command],
    }
    name = f"{connection.settings_dict['NAME']}_tenants"
    run(f"DROP DATABASE IF EXISTS {name}")
    run(f"CREATE DATABASE {name}")
    try:
        with EmbeddedServer() as server:
            project = Project(tmp_path, server.url, files, live=False)
            project.environment |= {"TENANTS_DATABASE": name, "PYTHONWARNINGS": "default"}
            assert "the public schema has no index" in project.shell(PROGRAM)
    finally:
        run(f"DROP DATABASE {name} WITH (FORCE)")
