"""Settings of the test suite.

What the suite runs against is chosen from the environment:

``ZRANK_TEST_DATABASE``
    ``sqlite`` (the default), ``postgresql``, ``mariadb`` or ``mysql``.
``ZRANK_TEST_DATABASE_HOST``, ``_PORT``, ``_USER``, ``_PASSWORD``
    Where that server is and who may create databases on it. A host that begins with a slash is a Unix
    socket: its folder for PostgreSQL, the socket itself for MariaDB and MySQL.
``ZRANK_TEST_DATABASE_NAME``
    The name of the databases, if several suites share a server. Default: ``zrank``.
``ZRANK_TEST_REDIS_BINARY``
    A ``redis-server`` or ``valkey-server`` to start in place of the embedded one (see ``tests/conftest.py``).
``ZRANK_TEST_CLUSTER``
    ``1`` for a cluster of three such servers.
"""

from __future__ import annotations

import os
from typing import Any

DATABASE = os.environ.get("ZRANK_TEST_DATABASE", "sqlite")


def _on_server(engine: str, name: str, user: str) -> dict[str, Any]:
    """The database ``name`` on the server that the environment names; tests run in ``test_<name>``."""
    return {
        "ENGINE": f"django.db.backends.{engine}",
        "NAME": name,
        "HOST": os.environ.get("ZRANK_TEST_DATABASE_HOST", "127.0.0.1"),
        "PORT": os.environ.get("ZRANK_TEST_DATABASE_PORT", ""),
        "USER": os.environ.get("ZRANK_TEST_DATABASE_USER", user),
        "PASSWORD": os.environ.get("ZRANK_TEST_DATABASE_PASSWORD", ""),
    }


def _database(name: str) -> dict[str, Any]:
    match DATABASE:
        case "sqlite":
            return {
                "ENGINE": "django.db.backends.sqlite3",
                # tests/conftest.py gives it a file instead, for threads and second connections to see.
                "NAME": ":memory:",
                "OPTIONS": {
                    "timeout": 20,
                    # Take the write lock at BEGIN: a transaction that reads first can't wait for it later.
                    "transaction_mode": "IMMEDIATE",
                    # Readers go on while somebody writes. A test database need not survive a power cut.
                    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF",
                },
            }
        case "postgresql":
            return _on_server("postgresql", name, user="postgres")
        case "mariadb" | "mysql":
            return _on_server("mysql", name, user="root") | {"TEST": {"CHARSET": "utf8mb4"}}
        case _:
            raise ValueError(
                f"ZRANK_TEST_DATABASE: {DATABASE!r} is none of sqlite, postgresql, mariadb, mysql"
            )


_NAME = os.environ.get("ZRANK_TEST_DATABASE_NAME", "zrank")
DATABASES = {"default": _database(_NAME), "other": _database(f"{_NAME}_other")}
DATABASE_ROUTERS = ["tests.testapp.routers.RemoteRouter"]

CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "zrank": {
        "BACKEND": "django_redis.cache.RedisCache",
        # Nobody listens here: a test that forgets the server fixture fails and touches nobody's Redis.
        "LOCATION": "redis://127.0.0.1:1/0",
        "OPTIONS": {"SOCKET_TIMEOUT": 5, "SOCKET_CONNECT_TIMEOUT": 5},
    },
}

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "rest_framework",
    "django_zrank",
    "tests.testapp",
]
# tests.testapp has no migrations, and a table made without them can't refer to one that is made by them.
MIGRATION_MODULES = dict.fromkeys(["admin", "auth", "contenttypes", "sessions"])
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
ROOT_URLCONF = "tests.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
STATIC_URL = "static/"

SECRET_KEY = "a key for tests alone"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True

# Most of the indexes here belong to nobody.
SILENCED_SYSTEM_CHECKS = ["zrank.W005"]
