"""The settings of changes of scores."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ScoreSettings"]


@dataclass(frozen=True, slots=True)
class ScoreSettings:
    """Keys of ``ZRANK``, as in :class:`~django_zrank.conf.Settings`."""

    keep_keys: float = 86400.0
    """Seconds for which the idempotency keys of changes of scores are remembered."""
