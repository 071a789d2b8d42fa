"""A site for one machine: SQLite and an embedded Valkey, both in ``var/``.

Environment: ``ARENA_VAR`` is another folder for what the site stores, ``ARENA_VALKEY_PORT`` another port for
its Valkey. ``ARENA_DEBUG=0`` switches DEBUG and "play as" off, ``ARENA_AUTO_SYNC=0`` the push after each save, to
show an index that falls behind.
"""

import os
from importlib.util import find_spec
from pathlib import Path

from arena.server import recorded_port

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = Path(os.environ.get("ARENA_VAR") or BASE_DIR / "var").resolve()
VAR_DIR.mkdir(parents=True, exist_ok=True)

SECRET_KEY = "for the example on localhost only"
DEBUG = os.environ.get("ARENA_DEBUG", "1") != "0"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

# The OpenAPI schema at /api/schema/, where drf-spectacular is installed: it is an extra.
OPENAPI = find_spec("drf_spectacular") is not None

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.humanize",
    "django.contrib.staticfiles",
    "players",  # before REST framework, to override its template
    "rest_framework",
    "rest_framework.authtoken",  # for match servers, which report what players have gained
    "django_zrank",
    "tennis",
    *(["drf_spectacular"] if OPENAPI else []),
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "players.middleware.IndexUnavailableMiddleware",
]

ROOT_URLCONF = "arena.urls"
WSGI_APPLICATION = "arena.wsgi.application"

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

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": VAR_DIR / "arena.sqlite3",
        # WAL: a write doesn't block reads.
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    },
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# The embedded server's port. If it is in use, another one is taken and recorded in the folder, where every command
# finds it.
VALKEY_DIR = VAR_DIR / "valkey"
VALKEY_PORT = int(os.environ.get("ARENA_VALKEY_PORT") or 16390)

CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "zrank": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": f"redis://127.0.0.1:{recorded_port(VALKEY_DIR) or VALKEY_PORT}/0",
        "OPTIONS": {"SOCKET_TIMEOUT": 1, "SOCKET_CONNECT_TIMEOUT": 1},
    },
}

# There are several indexes: the short path /api/recommendations/ serves this one.
ZRANK = {
    "REDIS_ALIAS": "zrank",
    "DEFAULT_INDEX": "player",
    "AUTO_SYNC": os.environ.get("ARENA_AUTO_SYNC", "1") != "0",
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.SessionAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
}
if OPENAPI:
    REST_FRAMEWORK["DEFAULT_SCHEMA_CLASS"] = "drf_spectacular.openapi.AutoSchema"
SPECTACULAR_SETTINGS = {"TITLE": "Arena", "VERSION": "1", "SERVE_INCLUDE_SCHEMA": False}

# No user is a tennis professional, so the tennis indexes have no owner.
SILENCED_SYSTEM_CHECKS = ["zrank.W005"]

AUTHENTICATION_BACKENDS = ["players.accounts.DemoBackend"]
LOGIN_URL = "arena"
STATIC_URL = "static/"
LANGUAGE_CODE = "en-gb"
USE_I18N = False
TIME_ZONE = "UTC"
USE_TZ = True
