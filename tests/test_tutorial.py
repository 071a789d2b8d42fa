"""The tutorial, followed: its files and its commands in an empty folder, in the order of the page."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.pages import ROOT
from tests.projects import is_closed
from tests.servers import free_port, wait_for

pytestmark = pytest.mark.slow

PAGE = "docs/tutorial.md"
ELSEWHERE = ("python3 -m venv", ". .venv", "pip install", ".venv/bin/python -m", "python manage.py shell\n")
"""Commands that are stood in for: a virtual environment that has the package, the server, a terminal."""


class Reader:
    """Somebody who does what the page says."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("DJANGO", "PYTEST"))},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }

    def follow(self) -> None:
        text = (ROOT / PAGE).read_text()
        for language, block in re.findall(r"^```(python|sh)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            if language == "python":
                self.type_in(block)
            elif not block.startswith(ELSEWHERE):
                self.run(block)
            elif "django-admin" in block:
                self.run(block[block.index("django-admin") :])

    def type_in(self, block: str) -> None:
        named = re.match(r"# ([\w/]+\.py)\n", block)
        if named is None:
            self.shell(block)
        elif named[1].endswith("settings.py"):
            with (self.folder / named[1]).open("a") as file:
                file.write(block.replace("redis://127.0.0.1:6399/0", self.url))
        else:
            (self.folder / named[1]).write_text(block)

    def run(self, block: str) -> None:
        for line in block.splitlines():
            if "runserver" in line or "--watch" in line or line.startswith("curl"):
                continue  # test_the_endpoint, test_the_watcher
            self.call(shlex.split(line))

    def call(self, words: list[str], **options: Any) -> str:
        if words[0] == "python":
            words = [sys.executable, *words[1:]]
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            **options,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def shell(self, code: str) -> str:
        return self.call([sys.executable, "manage.py", "shell"], input=code)

    @contextmanager
    def started(self, *words: str) -> Iterator[None]:
        process = subprocess.Popen(
            [sys.executable, "manage.py", *words], cwd=self.folder, env=self.environment
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    (command,) = re.findall(r"^\.venv/bin/python (.+) 6399$", (ROOT / PAGE).read_text(), re.MULTILINE)
    words = [sys.executable, *command.split(), str(free_port())]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            reader = Reader(tmp_path_factory.mktemp("tutorial"), server.stdout.readline().strip())
            reader.follow()
            yield reader
        finally:
            server.terminate()


def test_what_the_shell_says(reader: Reader) -> None:
    said = reader.shell(
        "from players.zrank import PlayerRank; from players.models import Player\n"
        "ann = Player.objects.get(name='Ann')\n"
        "better = Player.objects.filter(level__gt=ann.level).count()\n"
        "assert ann.level == 150\n"
        "assert better < PlayerRank.ranking.rank(ann) <= better + Player.objects.filter(level=150).count()\n"
        "assert len(PlayerRank.ranking.recommend(ann, n=10).objects()) == 10\n"
        "print(PlayerRank.ranking.count())"
    )
    assert said.split()[-1] == "5001"


def test_the_endpoint(reader: Reader) -> None:
    text = (ROOT / PAGE).read_text()
    asked = re.findall(r'^curl -u (\S+) "http://127.0.0.1:8000(\S+)"$', text, re.MULTILINE)
    assert len(asked) == 2
    port = free_port()
    with reader.started("runserver", "--noreload", str(port)):
        wait_for(lambda: not is_closed(port))
        for account, path in asked:
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
            request.add_header("Authorization", f"Basic {base64.b64encode(account.encode()).decode()}")
            answer = json.load(urllib.request.urlopen(request, timeout=20))
            if "results" in answer:
                assert answer["band"] == [10, 10]
                assert len(answer["results"]) == 3
            else:
                assert answer["score"] == 150


def test_the_watcher(reader: Reader) -> None:
    ask = (
        "from players.zrank import PlayerRank; from players.models import Player\n"
        "ann = Player.objects.get(name='Ann')\n"
    )
    with reader.started("sync_zrank", "--watch"):
        reader.shell(f"{ask}Player.objects.filter(pk=ann.pk).update(level=9999)")
        wait_for(lambda: reader.shell(f"{ask}print(PlayerRank.ranking.rank(ann))").split()[-1] == "1")
