"""Key names: the only place where a key is spelled.

The braces are a hash tag: every key of an index lies in one slot, so that every script and every rename
works on a Redis Cluster too.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from typing import NamedTuple

__all__ = ["Keys"]


class Keys(NamedTuple):
    """The keys of one index."""

    live: str
    """Sorted set: what is read. Stored member -> score (see :mod:`~django_zrank.codec.layout`).

    It is the root of other keys. Scripts know which there are, and spell them: ``<root>:entries``, hash, member ->
    its entry; ``<root>:rankings``, sorted set, the names of the facet rankings, all scores 0;
    ``<root>:<name of a facet ranking>``, sorted set, stored member -> score. Of dense indexes, for each ranking:
    ``<ranking>:values``, sorted set, tie bytes + score as text, for each distinct value -> that score;
    ``<ranking>:counts``, hash, the same -> how many members have it."""

    shadow: str
    """Sorted set: what a rebuild is filling, and root of what belongs to it. Replaces ``live`` in one step."""

    recent: str
    """Sorted set: member -> place of its newest write. Guards against writes that arrive late."""

    meta: str
    """Hash: ``generation`` (live), ``run`` (the ``run_id`` of the server that was written to), ``token`` (the
    newest place), ``applied`` (the place of the newest write), ``behind`` (a replay that is not finished); ``started``
    (the token of the last rebuild that began); of a running one ``building`` (its generation) and ``seen``
    (its last sign of life)."""

    @property
    def root(self) -> str:
        """What is read, and the root of the other keys of its generation."""
        return self.live

    def ranking(self, name: str) -> str:
        """Sorted set: the ranking of a facet's value, by its name such as ``region:kantou``; '' for all members."""
        return f"{self.live}:{name}" if name else self.live

    def part(self, name: str, ranking: str = "") -> str:
        """What belongs to a ranking: ``entries``, ``rankings``, ``values``, ``counts`` (see ``live``)."""
        return f"{self.ranking(ranking)}:{name}"

    def group(self, name: str) -> str:
        """Sorted set: members of a group -> until when they belong to it, in microseconds."""
        return f"{self._tag}:group:{name}"

    def seen(self, member: str) -> str:
        """Sorted set: whom ``recommend(remember=…)`` has shown to a member -> until when, in microseconds."""
        return f"{self._tag}:seen:{member}"

    def narrowed(self, tests: str) -> str:
        """Sorted set, kept for some seconds: the ranking of those who pass several tests."""
        return f"{self._tag}:narrowed:{sha1(tests.encode(), usedforsecurity=False).hexdigest()}"

    @property
    def _tag(self) -> str:
        return self.live.removesuffix(":live")

    @classmethod
    @cache  # there are as many as indexes
    def of(cls, prefix: str, index: str) -> Keys:
        """The keys of the index called ``index``."""
        tag = f"{prefix}:{{{index}}}"
        return cls(*(f"{tag}:{name}" for name in cls._fields))
