"""The ranking method of indexes that are to have all that an index may have."""

from __future__ import annotations

from typing import Final

from django_zrank.index import methods

__all__ = ["KEEPING"]

KEEPING: Final = "dense" if "dense" in methods else "competition"
"""One that keeps something beside rankings, if its part is there."""
