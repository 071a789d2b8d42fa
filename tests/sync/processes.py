"""``manage.py`` in a process of its own: to be killed, or to write to a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connections

__all__ = ["manage", "on_terminal"]

_ROOT = Path(__file__).parents[2]


def manage(*args: str, pause: bool = False, freeze: str = "", **options: Any) -> subprocess.Popen[str]:
    """Start a management command on the databases and the Redis of the current test.

    ``pause``: make a rebuild wait for a line after each batch. ``freeze``: stop the process, as SIGSTOP does, after
    it has inserted a row into this table.
    """
    names = {alias: str(connections[alias].settings_dict["NAME"]) for alias in connections}
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.sync.subprocess_settings",
        "ZRANK_TEST_NAMES": json.dumps(names),
        "ZRANK_TEST_REDIS_URL": settings.CACHES["zrank"]["LOCATION"],
        "ZRANK_TEST_SETTINGS": json.dumps(getattr(settings, "ZRANK", {})),
        **({"ZRANK_TEST_PAUSE": "1"} if pause else {}),
        **({"ZRANK_TEST_FREEZE": freeze} if freeze else {}),
    }
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(
        [sys.executable, "-m", "django", *args], cwd=_ROOT, env=environment, text=True, **pipes | options
    )


def on_terminal(*args: str) -> str:
    """The output of a management command in a terminal of 120 columns."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 120))
    with manage(*args, stderr=theirs) as process:
        os.close(theirs)
        written = bytearray()
        try:
            while piece := os.read(ours, 4096):
                written += piece
        except OSError:  # Linux says so when the other side is closed
            pass
        finally:
            os.close(ours)
    assert process.returncode == 0
    return written.decode()
