"""Filters of the admin's templates."""

from __future__ import annotations

from typing import Any

from django import template

from ..index import RankIndex

register = template.Library()


@register.filter
def number(value: int | None) -> str:
    """A number with thousands separators; a dash for None."""
    return f"{value:,}" if isinstance(value, int) else "-"


@register.filter
def plain(value: float) -> str:
    """A number as SVG and HTML parse it, whatever the language."""
    return repr(value)


@register.filter
def model_label(model: Any) -> str:
    return str(model._meta.label)


@register.filter
def order(index: RankIndex) -> str:
    return ", ".join(map(str, index.get_order()))
