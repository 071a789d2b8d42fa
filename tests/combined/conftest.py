from __future__ import annotations

from tests.lua.lib.conftest import run

__all__ = ["run"]
