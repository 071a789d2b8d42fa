"""Reads from replicas, for ``ZRANK["READS"] = "replica"`` and ``using("replica")``."""

from .checks import check_replicas
from .reading import asking

__all__ = ["asking", "check_replicas"]
