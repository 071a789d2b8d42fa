"""Names of parameters. This imports nothing of REST framework, as every ``manage.py`` command loads it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

__all__ = ["RESERVED", "filter_name"]

RESERVED: Final = frozenset(
    [
        *("n", "band", "ranks", "widen", "exclude", "seed", "member", "facet"),
        *("page", "page_size", "limit", "offset", "format"),
    ]
)
"""Names that no filter has by default: parameters of this app's views, of pages and of renderers."""


def filter_name(path: str, taken: Collection[str], paths: Collection[str]) -> str:
    """The parameter that filters by the facet at ``path``: its own name, or ``facet_band`` if ``band`` is ``taken``.
    ``paths``: those of all facets."""
    name = path
    while name in taken or (name != path and name in paths):
        name = f"facet_{name}"
    return name
