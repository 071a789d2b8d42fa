"""Mutants that no test notices, and why none has to."""

from __future__ import annotations

from typing import Final

__all__ = ["EQUIVALENT"]

EQUIVALENT: Final[dict[str, str]] = {}
"""By mutant: the reason. Those that affect only speed are measured by the benchmark that is named."""
