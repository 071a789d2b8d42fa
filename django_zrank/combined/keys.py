"""Names of the keys that combined filters keep beside those of an index."""

from __future__ import annotations

from hashlib import sha1

from ..redis.keys import Keys

__all__ = ["combined_key", "registry_of", "stamp_of"]


def combined_key(keys: Keys, *what: str) -> str:
    """Sorted set, kept for some seconds: the ranking of the members that match several filters; or hash, their counts
    by a facet. Until it is complete, ``<combined_filter>:new`` is filled, with ``…:new:making``, text, how far that has
    come, and ``…:new:noted``, hash, how members with tie bytes are stored in it, or the names of the rankings of those
    that were counted. ``<combined_filter>:gathered``, sorted set, within a call alone: the members of small groups that
    match."""
    digest = sha1("\0".join(what).encode(), usedforsecurity=False).hexdigest()
    return f"{keys.tag}:combined_filter:{keys.build}:{digest}"


def stamp_of(combined_filter: str) -> str:
    """Text, as long as a combined filter may be read: its size."""
    return f"{combined_filter}:stamp"


def registry_of(keys: Keys) -> str:
    """Sorted set: combined filters, kept or being made -> until when they are read, in milliseconds. Beside it,
    ``<combined_filters>:sizes``, hash, the same -> its memory in bytes; '' -> that of all; and
    ``<combined_filters>:large``, sorted set, those of more than 1 MiB -> until when they are read."""
    return f"{keys.tag}:combined_filters"
