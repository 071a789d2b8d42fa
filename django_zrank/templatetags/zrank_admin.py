"""Filters of the admin's templates."""

from __future__ import annotations

from django import template

register = template.Library()


@register.filter
def number(value: int | None) -> str:
    """Return a number with thousands separators; a dash for None."""
    return f"{value:,}" if isinstance(value, int) else "-"
