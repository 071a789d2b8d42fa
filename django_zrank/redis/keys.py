"""Key names: the only module of the kernel that spells a key.

The braces are a hash tag: every key of an index is in one slot, so that scripts work on a Redis Cluster, too.
"""

from __future__ import annotations

from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured

__all__ = ["Keys", "is_prefix", "tag_of"]


def is_prefix(prefix: Any) -> bool:
    """Return True if keys may begin with ``prefix``."""
    return isinstance(prefix, str) and prefix != "" and "{" not in prefix and "}" not in prefix


class _Keys(NamedTuple):
    tag: str
    """The beginning of every key of the index."""

    build: str = ""
    """The build that ``root``, and the keys below it, belong to."""


class Keys(_Keys):
    """The keys of one index, and of one build of it."""

    @cached_property
    def meta(self) -> str:
        """Hash: ``build``, the live one, and ``present``, which of its keys exist; ``owner``, the database
        whose build it is; ``server``, the identity of the server that was trusted, and ``term``, its term;
        ``applied``, the version of the newest write; ``behind``, the term of an unfinished replay, or "rebuild";
        ``floor``, ``checkpoint`` and ``checked``, which versions are forgotten; ``started``, the version at which the
        last rebuild began; of a running one ``building``, its build, ``heartbeat``, its last one, and
        ``filled``, which of its keys exist; ``guarded``, "1" where ``recent`` must be there; ``identified``, when the
        server was last compared with the trusted one for a change that began there.

        Parts have further fields, and keys of their own."""
        return f"{self.tag}:meta"

    @property
    def recent(self) -> str:
        """Sorted set: member -> version of its newest write. Guards against writes that arrive late."""
        return f"{self.tag}:recent"

    @property
    def watcher(self) -> str:
        """Exists while a worker watches the index."""
        return f"{self.tag}:watcher"

    @property
    def doomed(self) -> str:
        """Set: the builds that were replaced or abandoned, and whose keys are being unlinked."""
        return f"{self.tag}:doomed"

    def beside(self, kind: str, name: str) -> str:
        """A key of a part, beside the builds. Its kind says what it is."""
        return f"{self.tag}:{kind}:{name}"

    @cached_property
    def root(self) -> str:
        """Sorted set: all members. Stored member -> score (see :mod:`~django_zrank.codec.layout`).

        The names of the other keys of its build begin with it. Scripts know which exist, and derive them:
        ``<root>:memberships``, hash, member -> its membership; ``<root>:rankings``, sorted set, the names of the facet
        rankings, all scores 0; ``<root>:<name of a facet ranking>``, sorted set, stored member -> score. Beside
        each ranking may be keys of its ranking method (:attr:`~django_zrank.methods.Method.suffixes`)."""
        return f"{self.tag}:{self.build}"

    def ranking(self, name: str) -> str:
        """Sorted set: the ranking of a facet's value, by its name such as ``region:kanto``; '' for all members."""
        return f"{self.root}:{name}" if name else self.root

    @property
    def below(self) -> str:
        """The beginning of all other keys of the build (see ``root``)."""
        return f"{self.root}:"

    @property
    def memberships(self) -> str:
        return f"{self.root}:memberships"

    @property
    def rankings(self) -> str:
        return f"{self.root}:rankings"

    def kind_of(self, key: str) -> str:
        """Return the part of a key's name that says what it is: ``meta``, or a word of a part."""
        return key.removeprefix(f"{self.tag}:").partition(":")[0]

    @classmethod
    @cache  # there are as many as indexes, in each tenant
    def of(cls, prefix: str, index: str) -> Keys:
        if not is_prefix(prefix):  # a function has returned it
            raise ImproperlyConfigured(f'ZRANK["KEY_PREFIX"] must be text without braces, not {prefix!r}')
        return cls(f"{prefix}:{{{index}}}")

    @lru_cache(maxsize=1024)  # noqa: B019 - as many as indexes have builds
    def at(self, build: str) -> Keys:
        return self._replace(build=build)


@lru_cache(maxsize=1024)
def tag_of(key: str | bytes) -> str:
    """Return the beginning of a key, to its ``}``: all keys of an index have the same."""
    text = key if isinstance(key, str) else key.decode(errors="replace")  # a facet's value may be at its end
    return text.partition("}")[0] + "}"
