"""The tables that triggers watch, and the indexes that they watch them for."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.db import DatabaseError, connections

from ..index import RankIndex
from ..registry import registry
from .dialects import DIALECTS, Capture
from .watched_tables import union, watched_tables

__all__ = ["captured", "captures_of", "sharing"]


def captured(using: str) -> list[RankIndex]:
    """Return the registered indexes whose models live in this database."""
    return [index for index in registry.all() if index.get_using() == using]


def sharing(using: str) -> list[RankIndex]:
    """Return the registered indexes whose models live in the same database under another alias, such as a pooler's."""
    own, found = connections[using], []
    # A service's settings may leave out databases that it doesn't use.
    for alias in {index.get_using() for index in registry.all()}.intersection(connections) - {using}:
        other = connections[alias]
        names = {str(connection.settings_dict["NAME"]) for connection in (own, other)}
        if other.vendor in DIALECTS and other.vendor == own.vendor and len(names) == 1:
            with suppress(DatabaseError):  # unreachable: skip it
                one, two = (DIALECTS[own.vendor](connection, []).identity() for connection in (own, other))
                if one == two:
                    found += captured(alias)
    return found


def captures_of(index: RankIndex) -> list[Capture]:
    """Return a capture for each table that ``index`` reads and each path to it."""
    watched: dict[Any, Any] = {}
    for source in watched_tables(index):
        key = source.model, source.via, source.column, source.is_referenced
        watched[key] = union(watched[key], source.fields) if key in watched else source.fields
    return [
        Capture(index.name, model, via, column, fields, is_referenced)
        for (model, via, column, is_referenced), fields in watched.items()
    ]
