"""The ``ZRANK`` setting: one dictionary, every key optional.

Rankings are declared in :class:`~django_zrank.RankIndex`; settings say where they are kept, and how.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.core.signals import setting_changed

__all__ = ["Settings", "get_settings", "keeping_prefix", "key_prefix", "raw_settings"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_kept: ContextVar[str] = ContextVar("django_zrank_key_prefix", default="")
"""The prefix of keys that :func:`keeping_prefix` keeps; '' elsewhere."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The value in force of every key of ``ZRANK``; field names are the keys in lower case."""

    redis_alias: str = "zrank"
    """The alias in ``CACHES`` (a django-redis cache) whose server holds the indexes."""

    key_prefix: str | Callable[[], str] = "zrank"
    """The prefix of every key in Redis; or a function that returns it, for an index in each tenant. It is called
    whenever keys are named, so it must return the same as long as the database shows the rows of one tenant."""

    default_index: str | None = None
    """The index that ``GET /recommendations/`` serves when there are several."""

    max_n: int = 500
    """The most members one ``recommend()`` may ask for: a script that samples blocks the server."""

    max_scan: int = 5_000_000
    """The most members that are read to compute a combined filter that no facet covers; beyond,
    ``FilterTooLarge``. :meth:`~django_zrank.Ranking.within` sets a lower bound for a call."""

    max_combined_filters: int = 100
    """The most combined filters that an index, or a shard, keeps or computes at a time; beyond,
    ``FilterNotReady``."""

    max_combined_filter_bytes: int = 512 * 1024**2
    """The most memory in Redis that these may take, about."""

    filter_timeout: float = 30.0
    """Seconds that a call waits for a combined filter; beyond, ``FilterNotReady``."""

    max_values: int = 500
    """The most rankings of facets that a member may be in: values of its facets, and of composite ones combinations.
    A row with more is logged and not ranked, as one change of it would block the server for too long."""

    retry_after: float = 5.0
    """Seconds without a push after one has failed (the circuit breaker), and the ``Retry-After`` of a 503."""

    unhealthy: str = "raise"
    """The behaviour of reads where Redis may have lost writes or can't be reached: ``"raise"`` IndexUnavailable;
    ``"serve_stale"``, answer with what Redis holds, if it can be reached; ``"database"``, compute the answer by SQL."""

    reads: str = "primary"
    """The servers that rankings are read from: ``"primary"``, or ``"replica"``, for what writes nothing. A ranking
    chooses another by ``using()``."""

    replica_lag: float = 5.0
    """Seconds that a replica may be behind: the primary is asked instead of one that is further behind."""

    database_timeout: float = 2.0
    """Seconds that an answer by SQL may take at most."""

    keep_marks: float = 3600.0
    """Seconds for which marks are kept after they were processed, to replay what a restarted server lost."""

    keep_keys: float = 86400.0
    """Seconds for which the idempotency keys of changes of scores are remembered."""

    flush_every: float = 5.0
    """Seconds between two flushes of write-behind scores to their column."""

    auto_sync: bool = True
    """True to push saves and deletes. ``rebuild_zrank`` works either way."""

    capture: str = "triggers"
    """The way changes are recorded: ``triggers`` in the database, which miss nothing, or model
    ``signals``, for databases that forbid triggers."""

    test_location: str | None = None
    """The ``LOCATION`` of a Redis that tests may write to, in place of an embedded server. If it is the
    ``LOCATION`` of the alias, as in settings that only tests use, tests use that cache unchanged."""


def raw_settings() -> Any:
    """The setting as it was written; a dictionary if it is valid."""
    return getattr(settings, "ZRANK", {})


@cache
def get_settings() -> Settings:
    """The settings in force. Unknown keys are left to ``manage.py check``."""
    raw = raw_settings()
    if not isinstance(raw, dict):
        return Settings()
    return Settings(**{f.name: raw[f.name.upper()] for f in fields(Settings) if f.name.upper() in raw})


def key_prefix() -> str:
    """Return the prefix of every key in Redis that is in force now. What a process remembers about indexes belongs to
    one prefix."""
    prefix = get_settings().key_prefix
    return prefix if isinstance(prefix, str) else _kept.get() or prefix()


def keeping_prefix(call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return a function that calls another one under the prefix that is in force now: for another thread, whose
    connections may show the rows of another tenant."""
    prefix = key_prefix()

    def keep(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        token = _kept.set(prefix)
        try:
            return call(*args, **kwargs)
        finally:
            _kept.reset(token)

    return keep


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "ZRANK":
        get_settings.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_zrank.conf")
