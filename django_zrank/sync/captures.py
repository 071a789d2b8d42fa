"""The tables of a database that are watched, and the indexes that they are watched for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from django.db import DatabaseError, connections

from ..registry import registry
from .dialects import DIALECTS, Capture
from .watched_tables import watched_tables

if TYPE_CHECKING:
    from ..index import RankIndex

__all__ = ["captured", "captures_of", "sharing"]


def captured(using: str) -> list[RankIndex]:
    """The registered indexes whose models live in this database."""
    return [index for index in registry.all() if index.get_using() == using]


def sharing(using: str) -> list[RankIndex]:
    """The registered indexes whose models live in the same database under another alias, through a pooler, say."""
    own, found = connections[using], []
    # Settings for a single service may leave out the database of an index that it has nothing to do with.
    for alias in {index.get_using() for index in registry.all()}.intersection(connections) - {using}:
        other = connections[alias]
        if other.vendor in DIALECTS and (other.vendor, _name(alias)) == (own.vendor, _name(using)):
            identities = []
            with suppress(DatabaseError):  # one that can't be asked now is left alone
                identities = [DIALECTS[own.vendor](connection, []).identity() for connection in (own, other)]
            if len(set(identities)) == 1:
                found += captured(alias)
    return found


def _name(alias: str) -> str:
    return str(connections[alias].settings_dict["NAME"])


def captures_of(index: RankIndex) -> list[Capture]:
    """Each table that ``index`` reads, once for each way that leads to it."""
    captures: dict[object, Capture] = {}
    for source in watched_tables(index):
        capture = Capture(index.name, source.model, source.via, source.column, source.fields)
        same = captures.get(key := (source.model, source.via, source.column))
        if same is not None:
            either = None if None in (same.watched, capture.watched) else same.watched | capture.watched  # type: ignore[operator]
            capture = replace(capture, watched=either)
        captures[key] = capture
    return list(captures.values())
