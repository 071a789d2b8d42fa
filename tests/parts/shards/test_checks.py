"""What ``manage.py check`` says about ``shards``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.test_checks import Case, assert_found, assert_starts, declaring

DECLARATIONS = [
    *(
        declaring("zrank.E039", f"shards {shards!r}", f"Wrong.shards can't be {shards!r}", shards=shards)
        for shards in (0, 1025, -1, 2.0, True, "16", None)
    ),
    declaring("zrank.E040", "long names of shards", "of a shard is too long", name="x" * 250, shards=2),
]


@pytest.mark.parametrize("case", DECLARATIONS)
def test_what_is_wrong_is_found(case: Case, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(case, settings, monkeypatch)


@pytest.mark.filterwarnings("ignore:coroutine 'never' was never awaited:RuntimeWarning")
@pytest.mark.parametrize("case", DECLARATIONS)
def test_what_is_wrong_stops_no_start(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_starts(case, monkeypatch)
