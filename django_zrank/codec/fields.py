"""The model of an index and its fields: the kind of their values, and the fields on a lookup path."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from django.apps import apps
from django.core.exceptions import FieldError
from django.db import models
from django.db.models.constants import LOOKUP_SEP

from .kinds import Big, Boolean, Fixed, Float, Kind
from .times import Day, Moment, Span
from .units import EXACT

__all__ = ["find_model", "follow", "is_unique", "kind_of", "value_field"]


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


def kind_of(field: models.Field[Any, Any]) -> Kind:
    """Return the kind of a model field's values. Raises ``FieldError`` if they can't be ranked."""
    match field:
        case models.GeneratedField():
            return kind_of(field.output_field)  # type: ignore[arg-type]
        case models.ForeignObject():
            return kind_of(field.target_field)
        case models.BooleanField():
            return Boolean()
        case models.DecimalField():
            digits = field.max_digits
            return Fixed(field.decimal_places or 0, is_wide=digits is None or 10**digits > EXACT)
        case models.DateTimeField():  # before DateField, its base class
            return Moment()
        case models.DateField():
            return Day()
        case models.DurationField():
            return Span()
        case models.FloatField():
            return Float()
        case models.BigIntegerField():
            return Big()
        case models.IntegerField():
            return Kind()
        case models.CharField() | models.TextField():
            raise FieldError(f"{field} is text, which can't be ranked; the primary key always breaks ties")
    raise FieldError(f"{field} is a {type(field).__name__}, which can't be ranked")


def value_field(field: Any) -> Any:
    """Return the field that defines a column's values: the target key of a relation, the output field of a generated
    field."""
    while field.is_relation:
        field = getattr(field, "target_field", None) or field.related_model._meta.pk
    return field.output_field if isinstance(field, models.GeneratedField) else field


def follow(model: type[models.Model], path: str) -> Iterator[Any]:
    """Yield each field on a lookup path such as ``profile__level``. Raises ``FieldDoesNotExist``."""
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
