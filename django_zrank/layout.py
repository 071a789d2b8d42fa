"""Moved to :mod:`django_zrank.codec.layout`; these names go when nothing imports them from here."""

from .codec.layout import PLAIN, Layout

__all__ = ["PLAIN", "Layout"]
