"""``manage.py`` in a process of its own, to be killed; and in a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import termios
from contextlib import redirect_stderr, suppress
from io import StringIO
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.db import connections

__all__ = ["manage", "on_terminal"]

_ROOT = Path(__file__).parents[2]


def manage(*args: str, pause: bool = False, freeze: str = "") -> subprocess.Popen[str]:
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
        [sys.executable, "-m", "django", *args], cwd=_ROOT, env=environment, text=True, **pipes
    )


def on_terminal(*args: str) -> str:
    """The few lines that a management command writes to a terminal of 120 columns, where its stderr is one."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 120))
    with os.fdopen(theirs, "w") as terminal, redirect_stderr(terminal):
        call_command(*args, stdout=StringIO())
    written = bytearray()
    with suppress(OSError), os.fdopen(ours, "rb", buffering=0) as reader:  # EIO: the other side is closed
        while piece := reader.read(4096):
            written += piece
    return written.decode()
