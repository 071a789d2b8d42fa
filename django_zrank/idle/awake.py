"""The condition of ``idle`` on rows: the time at which a row was last seen, after which it stays ranked for a while."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from django.core.exceptions import FieldError
from django.db import models

from ..codec.fields import follow
from ..windows.lookup import Within

__all__ = ["Awake"]


class Awake(NamedTuple):
    """The condition of an index with ``idle``: a row is awake if it was seen less than ``period`` ago."""

    path: str

    period: timedelta

    field: models.Field[Any, Any] | None
    """The column, if it belongs to the model itself and ``touch()`` can write it; None if it is on another row."""

    @classmethod
    def parse(cls, model: type[models.Model], declared: Any) -> Awake | None:
        """Parse ``idle``; None for None. Raises ``FieldDoesNotExist`` and ``FieldError``."""
        if declared is None:
            return None
        if not isinstance(declared, (tuple, list)) or len(declared) != 2 or not isinstance(declared[0], str):
            raise FieldError(f"expected a column and a timedelta, not {declared!r}")
        path, period = declared
        if not isinstance(period, timedelta) or period <= timedelta(0):
            raise FieldError(f"expected a timedelta above zero, not {period!r}")
        *relations, field = follow(model, path)
        if not isinstance(field, models.DateTimeField):
            raise FieldError(f"{path} is not a DateTimeField")
        if any(relation.one_to_many or relation.many_to_many for relation in relations):
            raise FieldError(f"{path} may have several values for one row")
        is_own = not relations and field.model._meta.concrete_model is model._meta.concrete_model
        return cls(path, period, field if is_own else None)

    @property
    def rest(self) -> timedelta:
        """The time between two writes of the column after touches."""
        return self.period / 24

    def condition(self) -> models.Q:
        """The rows that are awake. Rows with null are asleep."""
        return models.Q(**{f"{self.path}__{Within.lookup_name}": self.period})
