"""Moved to :mod:`django_zrank.codec`; these names go when nothing imports them from here."""

from .codec.fields import follow, kind_of, value_field
from .codec.kinds import Kind
from .codec.order import Criterion, Order
from .codec.units import EXACT, Distance, Number

__all__ = ["EXACT", "Criterion", "Distance", "Kind", "Number", "Order", "follow", "kind_of", "value_field"]
