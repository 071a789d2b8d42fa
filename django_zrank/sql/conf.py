"""The settings of answers by SQL."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SQLSettings"]


@dataclass(frozen=True, slots=True)
class SQLSettings:
    """Keys of ``ZRANK``, as in :class:`~django_zrank.conf.Settings`."""

    database_timeout: float = 2.0
    """Seconds that an answer by SQL may take at most."""
