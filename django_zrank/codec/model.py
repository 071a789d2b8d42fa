"""The model that an index declares."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.db import models

__all__ = ["find_model"]


def find_model(declared: Any, module: str) -> type[models.Model] | None:
    """The model that an index in ``module`` declares, None where that has no table: ``players.Player`` or ``Player``
    as foreign keys take them, or a class. Not before Django has loaded the models."""
    if isinstance(declared, str):
        own = apps.get_containing_app_config(module)
        label = declared if "." in declared or own is None else f"{own.label}.{declared}"
        try:
            declared = apps.get_model(label)
        except (LookupError, ValueError):
            return None
    is_model = isinstance(declared, type) and issubclass(declared, models.Model)
    return declared if is_model and not (declared._meta.abstract or declared._meta.swapped) else None
