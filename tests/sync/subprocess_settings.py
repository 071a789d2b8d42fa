"""Settings of a process of its own, on the databases and the server of the test that starts it.

:func:`tests.sync.processes.manage` sets the environment that this reads.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from threading import Event
from typing import Any

from django.apps import AppConfig

from tests.settings import *  # noqa: F403
from tests.settings import CACHES, DATABASES, INSTALLED_APPS

for alias, name in json.loads(os.environ["ZRANK_TEST_NAMES"]).items():
    DATABASES[alias]["NAME"] = name
CACHES["zrank"]["LOCATION"] = os.environ["ZRANK_TEST_REDIS_URL"]
ZRANK = json.loads(os.environ.get("ZRANK_TEST_SETTINGS", "{}"))


class Pausing(AppConfig):
    """Makes a rebuild say ``loaded`` after each batch, and wait for a line; and a watcher say ``stopping`` when it has
    received its signal."""

    name = "tests.sync"

    def ready(self) -> None:
        from django_zrank.management.commands import sync_zrank
        from django_zrank.store import Store

        load_rows = Store.load_rows

        def pause(*args: Any) -> bool:
            loaded = load_rows(*args)
            print("loaded", flush=True)  # noqa: T201
            sys.stdin.readline()
            return loaded

        Store.load_rows = pause  # type: ignore[method-assign]

        class Stop(Event):
            def set(self) -> None:
                super().set()
                os.write(1, b"stopping\n")  # in a signal handler, which may interrupt a print()

        sync_zrank.Event = Stop  # type: ignore[misc]


class Freezing(AppConfig):
    """Stops the process after it has inserted a row into a table, in the middle of the transaction."""

    name = "tests.sync"

    def ready(self) -> None:
        from django.db import connection

        def freeze(execute: Any, sql: str, *args: Any) -> Any:
            result = execute(sql, *args)
            if sql.startswith("INSERT") and os.environ["ZRANK_TEST_FREEZE"] in sql:
                os.kill(os.getpid(), signal.SIGSTOP)
            return result

        connection.execute_wrappers.append(freeze)


if "ZRANK_TEST_PAUSE" in os.environ:
    INSTALLED_APPS = [*INSTALLED_APPS, "tests.sync.subprocess_settings.Pausing"]
if "ZRANK_TEST_FREEZE" in os.environ:
    INSTALLED_APPS = [*INSTALLED_APPS, "tests.sync.subprocess_settings.Freezing"]
