from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from redis import Redis

from django_zrank.redis import scripts


@pytest.fixture
def run(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that runs Lua with some libraries: their names, the code, KEYS and ARGV, and their package."""
    read = scripts._read

    def run(
        uses: str,
        code: str,
        keys: Sequence[str] = (),
        args: Sequence[Any] = (),
        package: str = scripts.KERNEL,
    ) -> Any:
        def read_test(name: str, package: str) -> str:
            return f"-- uses: {uses}\n{code}" if name == "test" else read(name, package)

        monkeypatch.setattr(scripts, "_read", read_test)
        return zrank.eval(scripts.Script("test", package).source, len(keys), *keys, *args)

    return run
