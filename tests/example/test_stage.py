"""The watcher that the demo runs beside the site, begun anew by requests."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from time import sleep
from typing import Any

import pytest

from tests.example.conftest import ROOT


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stage of its own, whose watchers only wait, and take a moment to end."""
    monkeypatch.syspath_prepend(ROOT / "example_project")
    stage = import_module("arena.stage").Stage()

    def wait(stop: threading.Event) -> None:
        assert stop.wait(20)
        sleep(0.05)

    monkeypatch.setattr(stage, "_watch", wait)
    return stage


def test_of_watchers_begun_at_once_none_is_left(stage: Any) -> None:
    with stage.watching(), ThreadPoolExecutor(4) as threads:
        for begun in [threads.submit(stage.watch) for _ in range(4)]:
            begun.result()
    assert not [thread for thread in threading.enumerate() if thread.name == "watcher"]
