"""Something that is done to servers."""

from __future__ import annotations

import random
from collections.abc import Callable

__all__ = ["Strike"]

Strike = Callable[[random.Random], bool]
"""Does it, and returns true; or returns false where it can't be done now."""
