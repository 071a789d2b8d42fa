from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from redis import Redis

from django_zrank.redis import scripts


@pytest.fixture
def run(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that runs Lua with some libraries: their names, the code, KEYS and ARGV."""
    read = scripts._read

    def run(uses: str, code: str, keys: Sequence[str] = (), args: Sequence[Any] = ()) -> Any:
        text = f"-- uses: {uses}\n{code}"
        monkeypatch.setattr(scripts, "_read", lambda name: text if name == "test" else read(name))
        return zrank.eval(scripts.Script("test").source, len(keys), *keys, *args)

    return run
