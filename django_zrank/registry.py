"""Which indexes there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from .conf import get_settings
from .index import RankIndex

__all__ = ["Registry", "register", "registry"]

Index = TypeVar("Index", bound=type[RankIndex])


class Registry:
    """The indexes of a project, in the order of their registration."""

    def __init__(self) -> None:
        self._classes: dict[type[RankIndex], None] = {}

    def register(self, index: Index) -> Index:
        """Add an index. Registering the same class twice is harmless."""
        if not (isinstance(index, type) and issubclass(index, RankIndex)):
            raise TypeError(f"register() takes a subclass of RankIndex, not {index!r}")
        self._classes[index] = None
        return index

    def unregister(self, index: type[RankIndex]) -> None:
        """Take an index out again."""
        self._classes.pop(index, None)

    def all(self) -> list[RankIndex]:
        """Every index."""
        return [index.instance() for index in self._classes]

    def get(self, name: str) -> RankIndex:
        """The index called ``name``. Raises ``LookupError``."""
        for index in self.all():
            if index.name == name:
                return index
        known = ", ".join(sorted(index.name for index in self.all())) or "none"
        raise LookupError(f"There is no index called {name!r}. Registered: {known}.")

    def named(self, names: Sequence[str]) -> list[RankIndex]:
        """The indexes of these names, or all where none is named. Raises ``LookupError``."""
        return [self.get(name) for name in names] if names else self.all()

    def default(self) -> RankIndex:
        """The only index, or the one that ``ZRANK["DEFAULT_INDEX"]`` names. Raises ``LookupError``."""
        name = get_settings().default_index
        if name is not None:
            return self.get(name)
        indexes = self.all()
        if len(indexes) != 1:
            raise LookupError(
                f"There are {len(indexes)} indexes: name one, or set ZRANK['DEFAULT_INDEX'] to one of them."
            )
        return indexes[0]


registry = Registry()
register = registry.register
