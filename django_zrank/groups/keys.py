"""Names of the keys of groups, of which the kernel knows the first."""

from __future__ import annotations

from ..redis.keys import Keys

__all__ = ["counts_key", "group_keys", "joined_key"]


def joined_key(keys: Keys, group: str) -> str:
    """Hash: member of a group that counts its members -> the names of the facet rankings by which it is counted, joined
    by NUL bytes: those that it was in when it joined."""
    return f"{keys.group(group)}:joined"


def counts_key(keys: Keys, group: str) -> str:
    """Hash: name of a facet ranking -> the number of members of a group, also expired ones, that were in it when they
    joined."""
    return f"{keys.group(group)}:counts"


def group_keys(keys: Keys, group: str) -> tuple[str, str, str]:
    """All keys of a group."""
    return keys.group(group), joined_key(keys, group), counts_key(keys, group)
