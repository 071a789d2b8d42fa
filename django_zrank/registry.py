"""The registry of indexes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypeVar

from django.core.exceptions import AppRegistryNotReady

from .conf import get_settings
from .index import RankIndex

__all__ = ["Registry", "register", "registry"]

logger = logging.getLogger("django_zrank")

AnyIndex = TypeVar("AnyIndex", bound=type[RankIndex])


class Registry:
    """The indexes of a project, in the order of their registration."""

    def __init__(self) -> None:
        self._classes: dict[type[RankIndex], None] = {}

    def register(self, index: AnyIndex) -> AnyIndex:
        """Add an index. Registering the same class twice is harmless."""
        if not (isinstance(index, type) and issubclass(index, RankIndex)):
            raise TypeError(f"register() takes a subclass of RankIndex, not {index!r}")
        self._classes[index] = None
        return index

    def unregister(self, index: type[RankIndex]) -> None:
        """Remove an index."""
        self._classes.pop(index, None)

    @property
    def classes(self) -> list[type[RankIndex]]:
        """Every class that was registered, including wrong declarations."""
        return list(self._classes)

    def all(self) -> list[RankIndex]:
        """All indexes that rank a model. ``manage.py check`` reports what is wrong with the others."""
        return [index for index in map(_instance, self._classes) if index is not None]

    def get(self, name: str) -> RankIndex:
        """The index called ``name``. Raises ``LookupError``."""
        for index in self.all():
            if index.name == name:
                return index
        known = ", ".join(sorted(index.name for index in self.all())) or "none"
        raise LookupError(f"There is no index called {name!r}. Registered: {known}.")

    def named(self, names: Sequence[str]) -> list[RankIndex]:
        """The indexes with these names, or all if no names are given. Raises ``LookupError``."""
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


def _instance(cls: type[RankIndex]) -> RankIndex | None:
    try:
        index = cls.instance()
    except AppRegistryNotReady:
        raise
    except Exception:
        logger.exception("%s can't be instantiated: run manage.py check", cls.__name__)
        return None
    return index if index.model is not None and isinstance(index.name, str) else None


registry = Registry()
register = registry.register
