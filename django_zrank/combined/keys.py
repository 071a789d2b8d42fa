"""Names of the keys that combined filters keep beside those of an index."""

from __future__ import annotations

from hashlib import sha1

from ..redis.keys import Keys

__all__ = ["intersection_of", "registry_of", "stamp_of"]


def intersection_of(keys: Keys, *what: str) -> str:
    """Sorted set, kept for some seconds: the ranking of the members that match several filters; or hash, their counts
    by a facet. Until it is complete, ``<intersection>:new`` is filled, with ``…:new:making``, text, how far that has
    come, and ``…:new:noted``, hash, how members with tie bytes are stored in it, or the names of the rankings of those
    that were counted. ``<intersection>:gathered``, sorted set, within a call alone: the members of small groups that
    match."""
    digest = sha1("\0".join(what).encode(), usedforsecurity=False).hexdigest()
    return f"{keys.tag}:intersection:{keys.generation}:{digest}"


def stamp_of(intersection: str) -> str:
    """Text, as long as an intersection may be read: its size."""
    return f"{intersection}:stamp"


def registry_of(keys: Keys) -> str:
    """Sorted set: intersections, kept or being made -> until when they are read, in milliseconds. Beside it,
    ``<intersections>:sizes``, hash, the same -> its memory in bytes; '' -> that of all; and ``<intersections>:large``,
    sorted set, those of more than 1 MiB -> until when they are read."""
    return f"{keys.tag}:intersections"
