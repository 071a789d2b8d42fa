"""The fields of a model: those on a lookup path, and those that hold the values of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

from django.apps import apps
from django.core.exceptions import FieldDoesNotExist, FieldError
from django.db import models
from django.db.models.constants import LOOKUP_SEP

__all__ = [
    "Annotated",
    "annotation",
    "find_model",
    "follow",
    "is_annotation",
    "is_unique",
    "unannotated",
    "value_field",
]

Annotated: TypeAlias = Callable[[str], Any]
"""A function from the name of an annotation to its field; None if there is no such annotation."""


def unannotated(name: str) -> None:
    """Return None: rows of a model without annotations."""


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


def value_field(field: Any) -> Any:
    """Return the field that defines a column's values: the target key of a relation, the output field of a generated
    field."""
    while field.is_relation:
        field = getattr(field, "target_field", None) or field.related_model._meta.pk
    return field.output_field if isinstance(field, models.GeneratedField) else field


def annotation(model: type[models.Model], name: str, expression: Any) -> Any:
    """Return a field without a column for an annotation of the rows of ``model``: its values are those of the
    expression's output field, or null. Raises ``FieldError`` if Django can't tell the output field."""
    field = value_field(expression.output_field).clone()
    field.set_attributes_from_name(name)
    field.column, field.concrete, field.primary_key = None, False, False
    field.model, field.null = model, True
    return field


def is_annotation(field: Any) -> bool:
    """Return True if a field is one of :func:`annotation`."""
    return not (field.concrete or field.is_relation)


def follow(model: type[models.Model], path: str, annotated: Annotated = unannotated) -> tuple[Any, ...]:
    """Return the fields on a lookup path such as ``profile__level``; for an annotation, one without a column.

    ``annotated`` is called for paths that the model doesn't have. Raises ``FieldDoesNotExist`` or ``FieldError``."""
    try:
        return tuple(_steps(model, path))
    except (FieldDoesNotExist, FieldError):
        if (field := annotated(path)) is None:
            raise
        return (field,)


def _steps(model: type[models.Model], path: str) -> Iterator[Any]:
    options: Any = model._meta
    for name in path.split(LOOKUP_SEP):
        if options is None:
            raise FieldError(f"{path}: {name} follows a field that is not a relation")
        field: Any = options.pk if name == "pk" else options.get_field(name)
        yield field
        options = field.related_model._meta if field.is_relation and field.related_model else None


@cache
def is_unique(model: type[models.Model], path: str) -> bool:
    """Return True if at most one row of ``model`` has a certain value at a lookup path."""
    return all(field.one_to_one or getattr(field, "unique", False) for field in follow(model, path))
