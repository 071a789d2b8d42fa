"""Names of groups, and of their keys."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from ..redis.keys import Keys

__all__ = ["counts_key", "group_key", "group_keys", "joined_key", "quote_group"]


def quote_group(name: Any) -> str:
    """Return the name of a group, quoted as in keys. Raises ``ValueError``."""
    try:
        quoted = quote(name, safe="")
    except (TypeError, UnicodeEncodeError):  # lone surrogates
        quoted = ""
    if not quoted or not isinstance(name, str):
        raise ValueError(f"group: expected the name of a group, not {name!r}")
    return quoted


def group_key(keys: Keys, group: str) -> str:
    """Sorted set: members of a group -> until when they belong to it, in microseconds."""
    return keys.beside("group", group)


def joined_key(keys: Keys, group: str) -> str:
    """Hash: member of a group that counts its members -> the names of the facet rankings by which it is counted, joined
    by NUL bytes: those that it was in when it joined."""
    return f"{group_key(keys, group)}:joined"


def counts_key(keys: Keys, group: str) -> str:
    """Hash: name of a facet ranking -> the number of members of a group, also expired ones, that were in it when they
    joined."""
    return f"{group_key(keys, group)}:counts"


def group_keys(keys: Keys, group: str) -> tuple[str, str, str]:
    """All keys of a group."""
    return group_key(keys, group), joined_key(keys, group), counts_key(keys, group)
