"""The attribute ``idle`` of an index, and what follows from it."""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property
from typing import Any

from django.db import models

from ..declaration import Index, Member
from .awake import Awake

__all__ = ["IdleIndex"]


class IdleIndex(Index[Member]):
    """The declaration of an index that may have idle members."""

    idle: tuple[str, timedelta] | None = None
    """The lookup path of a ``DateTimeField`` that tells when a row was last seen, and how long the row stays ranked
    after that: ``("last_seen", timedelta(days=30))``. Rows with null are not ranked. Default: all rows are ranked."""

    def get_idle(self) -> tuple[str, timedelta] | None:
        return self.idle

    @cached_property
    def awake(self) -> Awake | None:
        """The condition of ``idle`` on rows; None if rows stay ranked, whenever they were seen."""
        return Awake.parse(self.model, self.get_idle())

    @property
    def seen_field(self) -> models.Field[Any, Any] | None:
        """The column that ``touch()`` writes; None if none is declared, or if it is a column of another row."""
        return self.awake and self.awake.field

    def further_conditions(self) -> list[models.Q]:
        return [*super().further_conditions(), *([self.awake.condition()] if self.awake else [])]

    def further_paths(self) -> list[str]:
        return [*super().further_paths(), *([self.awake.path] if self.awake else [])]

    def further_terms(self) -> list[Any]:
        return [*super().further_terms(), *([self.awake[:2]] if self.awake else [])]
