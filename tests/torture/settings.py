"""Settings of the driver's processes: those of the suite, with a database and a Redis of the driver's own."""

import json
import os

from tests.settings import *  # noqa: F403
from tests.settings import CACHES, DATABASE, DATABASES

_FOLDER = os.environ["ZRANK_TORTURE_FOLDER"]
_NAME = f"zrank_torture_{os.environ['ZRANK_TORTURE_NAME']}"

# A database that indexes name which are not written to.
_OTHER = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
DATABASES = {"default": DATABASES["default"], "other": _OTHER}
DATABASES["default"]["TEST"] = {
    **DATABASES["default"].get("TEST", {}),
    "NAME": f"{_FOLDER}/{_NAME}.sqlite3" if DATABASE == "sqlite" else _NAME,
}
_CACHE = json.loads(os.environ["ZRANK_TORTURE_REDIS"])
_OPTIONS = {**CACHES["zrank"]["OPTIONS"], **_CACHE.get("OPTIONS", {})}
CACHES = {**CACHES, "zrank": {**CACHES["zrank"], **_CACHE, "OPTIONS": _OPTIONS}}
# Times that fit a run of seconds. Marks are kept so shortly that a dump can be too old to be replayed.
ZRANK = {"RETRY_AFTER": 0.3, "KEEP_MARKS": float(os.environ["ZRANK_TORTURE_KEEP_MARKS"])}
