"""The ``ZRANK`` setting: one dictionary, every key optional.

Rankings are declared in :class:`~django_zrank.RankIndex`; settings say where they are kept, and how.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.core.signals import setting_changed

__all__ = ["Settings", "get_settings", "keeping_prefix", "key_prefix", "raw_settings", "settings_of"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Kind = TypeVar("Kind")

_kept: ContextVar[str] = ContextVar("django_zrank_key_prefix", default="")
"""The prefix of keys that :func:`keeping_prefix` keeps; '' elsewhere."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The value in force of every key of ``ZRANK`` that the kernel reads; field names are the keys in lower case. Parts
    have classes like this one (``extension.settings``)."""

    redis_alias: str = "zrank"
    """The alias in ``CACHES`` (a django-redis cache) whose server holds the indexes."""

    key_prefix: str | Callable[[], str] = "zrank"
    """The prefix of every key in Redis; or a function that returns it, for an index in each tenant. It is called
    whenever keys are named, so it must return the same as long as the database shows the rows of one tenant."""

    default_index: str | None = None
    """The index that ``GET /recommendations/`` serves when there are several."""

    max_n: int = 500
    """The most members one ``recommend()`` may ask for: a script that samples blocks the server."""

    max_values: int = 500
    """The most rankings of facets that a member may be in: values of its facets, and of composite ones combinations.
    A row with more is logged and not ranked, as one change of it would block the server for too long."""

    retry_after: float = 5.0
    """Seconds without a push after one has failed (the circuit breaker), and the ``Retry-After`` of a 503."""

    unhealthy: str = "raise"
    """The behaviour of reads where Redis may have lost writes or can't be reached: ``"raise"`` IndexUnavailable;
    ``"serve_stale"``, answer with what Redis holds, if it can be reached; or the name of a fallback."""

    reads: str = "primary"
    """The servers that rankings are read from: ``"primary"``, or other sources, for what writes nothing. A ranking
    chooses another by ``using()``."""

    keep_marks: float = 3600.0
    """Seconds for which marks are kept after they were processed, to replay what a restarted server lost."""

    flush_every: float = 5.0
    """Seconds between two rounds of the work that extensions do."""

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


_in_force: dict[type, Any] = {}
"""The settings in force, by their classes."""


def settings_of(kind: type[Kind]) -> Kind:
    """The settings in force of a dataclass: those of the kernel, or of a part. Unknown keys are left to
    ``manage.py check``."""
    found: Kind | None = _in_force.get(kind)
    if found is None:
        raw, names = raw_settings(), [field.name for field in fields(kind)]  # type: ignore[arg-type]
        given = raw if isinstance(raw, dict) else {}
        found = kind(**{name: given[name.upper()] for name in names if name.upper() in given})
        _in_force[kind] = found
    return found


def get_settings() -> Settings:
    """The settings of the kernel that are in force."""
    return settings_of(Settings)


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
        _in_force.clear()


setting_changed.connect(_forget, dispatch_uid="django_zrank.conf")
