"""The model that an index declares."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.db import models

__all__ = ["find_model"]


def find_model(declared: Any, module: str) -> type[models.Model] | None:
    """Return the model that an index in ``module`` declares: a class, or a name as in foreign keys, ``players.Player``
    or ``Player``. None if it has no table. Django must have loaded the models."""
    if isinstance(declared, str):
        own = apps.get_containing_app_config(module)
        label = declared if "." in declared or own is None else f"{own.label}.{declared}"
        try:
            declared = apps.get_model(label)
        except (LookupError, ValueError):
            return None
    is_model = isinstance(declared, type) and issubclass(declared, models.Model)
    return declared if is_model and not (declared._meta.abstract or declared._meta.swapped) else None
