"""System checks: a wrong declaration or setting fails in ``manage.py check``, not in a request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from itertools import chain
from typing import Any, Final, get_type_hints

from django.apps.config import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.utils.module_loading import import_string
from django_redis.cache import RedisCache

from ..conf import Settings, get_settings, raw_settings
from ..exceptions import CaptureError
from ..redis.isolation import is_isolated, is_offered, is_testing, location_of, sharing
from ..registry import registry
from ..sync.triggers import captured, unwatchable
from .declarations import check_declaration
from .hooks import error

__all__ = ["check_indexes", "check_redis", "check_settings", "check_tables"]

Apps = Sequence[AppConfig] | None


@register("zrank")
def check_settings(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """The ``ZRANK`` dictionary."""
    raw = raw_settings()
    if not isinstance(raw, dict):
        return [
            Error("ZRANK must be a dictionary.", hint="ZRANK = {…}; every key is optional.", id="zrank.E001")
        ]
    known = {field.name.upper(): field.name for field in fields(Settings)}
    types = get_type_hints(Settings)
    errors: list[CheckMessage] = []
    for key, value in raw.items():
        if key not in known:
            hint = f"Known keys: {', '.join(sorted(known))}."
            errors.append(Error(f"ZRANK has no key {key!r}.", hint=hint, id="zrank.E002"))
        elif problem := _problem(known[key], value, types[known[key]]):
            hint = f"The default is {getattr(Settings(), known[key])!r}."
            errors.append(Error(f"ZRANK[{key!r}] {problem}, not {value!r}.", hint=hint, id="zrank.E003"))
    return errors


_PASSWORD: Final = re.compile(r"(://[^/@,]*:)[^/@,]*@")
"""The password in a URL."""

_SECONDS: Final = (
    "retry_after",
    "database_timeout",
    "keep_marks",
    "keep_keys",
    "replica_lag",
    "flush_every",
    "filter_timeout",
)
_COUNTS: Final = ("max_n", "max_scan", "max_combinations", "max_combination_bytes", "max_values")
_CHOICES: Final = {
    "capture": ("triggers", "signals"),
    "unhealthy": ("raise", "serve_stale", "database"),
    "reads": ("primary", "replica"),
}


def _problem(name: str, value: Any, expected: Any) -> str | None:
    allowed: Any = (int, float) if expected is float else expected
    if not isinstance(value, allowed) or (isinstance(value, bool) and expected is not bool):
        return f"must be {getattr(expected, '__name__', expected)}"
    if name in _COUNTS and value < 1:
        return "must be at least 1"
    if name in _SECONDS and not 0 < value < float("inf"):
        return "must be a positive number of seconds"
    if name == "key_prefix" and (not value or "{" in value or "}" in value):
        return "must be text without braces"
    if value not in _CHOICES.get(name, (value,)):
        return f"must be one of {', '.join(map(repr, _CHOICES[name]))}"
    return None


@register("zrank")
def check_redis(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """The alias in ``CACHES`` that holds the indexes."""
    if check_settings(app_configs):
        return []
    alias = get_settings().redis_alias
    caches: Any = settings.CACHES
    config = caches.get(alias)
    if config is None:
        hint = "Add it with BACKEND 'django_redis.cache.RedisCache', or name another in ZRANK['REDIS_ALIAS']."
        return [Error(f"CACHES has no alias {alias!r}.", hint=hint, id="zrank.E004")]
    try:
        backend = import_string(config.get("BACKEND", ""))
    except ImportError:
        backend = None
    if not (isinstance(backend, type) and issubclass(backend, RedisCache)):
        hint = "Set its BACKEND to 'django_redis.cache.RedisCache'."
        return [Error(f"CACHES[{alias!r}] is not a django-redis cache.", hint=hint, id="zrank.E005")]
    checks = (_check_options, _check_cluster, _check_replicas, _check_tests)
    return [*_check_sharing(alias), *chain.from_iterable(check(alias, config) for check in checks)]


def _check_sharing(alias: str) -> Iterator[CheckMessage]:
    if message := sharing(alias):
        hint = "Give them their own alias and database number (or server)."
        yield Warning(message, hint=hint, id="zrank.W001")


def _check_tests(alias: str, config: dict[str, Any]) -> Iterator[CheckMessage]:
    location = get_settings().test_location
    is_shared = location is not None and location_of({"LOCATION": location}) == location_of(config)
    if is_shared and not is_testing():
        message = (
            f"ZRANK['TEST_LOCATION'] is the Redis of CACHES[{alias!r}]: tests would write into its indexes."
        )
        hint = "Give tests a server or a database of their own. In settings for tests alone, silence this."
        yield Warning(message, hint=hint, id="zrank.W020")
    if is_testing() and registry.all() and get_settings().auto_sync and not (is_isolated() or is_offered()):
        message = "These tests have no Redis of their own: what they save is not ranked."
        hint = "Mix django_zrank.testing.ZRankTestMixin into those that read rankings, or silence this."
        yield Warning(message, hint=hint, id="zrank.W021")


def _check_options(alias: str, config: dict[str, Any]) -> Iterator[CheckMessage]:
    options = config.get("OPTIONS", {})
    pool = options.get("CONNECTION_POOL_KWARGS", {})
    missing = [
        name
        for name in ("SOCKET_CONNECT_TIMEOUT", "SOCKET_TIMEOUT")
        if not options.get(name) and not pool.get(name.lower())
    ]
    if missing:
        yield Warning(
            f"CACHES[{alias!r}] sets no {' and no '.join(missing)}: a save() would wait for a server that "
            "hangs as long as redis-py does by default (5 seconds).",
            hint="Set both in its OPTIONS; 1 second is plenty.",
            id="zrank.W002",
        )
    if pool.get("decode_responses"):
        message = f"CACHES[{alias!r}] decodes responses, but members may be bytes."
        hint = "Remove decode_responses from CONNECTION_POOL_KWARGS."
        yield Error(message, hint=hint, id="zrank.E006")


def _check_cluster(alias: str, config: dict[str, Any]) -> Iterator[CheckMessage]:
    options, location = config.get("OPTIONS", {}), str(config.get("LOCATION"))
    if options.get("CONNECTION_FACTORY") != "django_zrank.cluster.ConnectionFactory":
        return
    if "," in location or not location.startswith(("redis://", "rediss://")):
        hint = "Name one node there, as redis://host:port, and others in OPTIONS['NODES'] as (host, port)."
        problem = "The LOCATION of a cluster must be the URL of one node"
    elif location_of(config)[-1] != "0":
        hint = "Remove the number. A cluster has one database: give indexes that share it a KEY_PREFIX each."
        problem = "The LOCATION of a cluster must name no database"
    else:
        return
    shown = _PASSWORD.sub(r"\1…@", location)
    yield Error(f"CACHES[{alias!r}]: {problem}, not {shown!r}.", hint=hint, id="zrank.E007")


def _check_replicas(alias: str, config: dict[str, Any]) -> Iterator[CheckMessage]:
    location, factory = config.get("LOCATION"), config.get("OPTIONS", {}).get("CONNECTION_FACTORY", "")
    is_alone = isinstance(location, str) and "," not in location and not factory.endswith(_WITH_REPLICAS)
    if is_alone and get_settings().reads == "replica":
        message = f"ZRANK['READS'] is 'replica', and CACHES[{alias!r}] names no replicas: all reads go to the primary."
        hint = "Name replicas in its LOCATION, after the primary and a comma; or use Sentinel or a cluster."
        yield Warning(message, hint=hint, id="zrank.W007")


_WITH_REPLICAS: Final = (".SentinelConnectionFactory", ".cluster.ConnectionFactory")
"""Ends of the names of factories that find replicas by themselves."""


@register("zrank")
def check_indexes(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """Every registered index."""
    errors = list(chain.from_iterable(map(check_declaration, registry.classes)))
    indexes = registry.all()
    for name, times in Counter(index.name for index in indexes).items():
        if times > 1:
            hint = "Set name on all but one."
            errors.append(Error(f"{times} indexes are called {name!r}.", hint=hint, id="zrank.E011"))
    default = None if check_settings(app_configs) else get_settings().default_index
    if default is not None and default not in {index.name for index in indexes}:
        hint = f"Registered: {', '.join(sorted(index.name for index in indexes)) or 'none'}."
        errors.append(
            Error(f"ZRANK['DEFAULT_INDEX'] names no index: {default!r}.", hint=hint, id="zrank.E012")
        )
    return errors


@register(Tags.database)
def check_tables(
    app_configs: Apps, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Tables that triggers can't watch: they are looked at by ``migrate``, and ``check --database``."""
    hint = "Rank a table that triggers can watch, in the database in which it is written; or set ZRANK = "
    hint += '{"CAPTURE": "signals"}, whose gaps are documented.'
    found: list[CheckMessage] = []
    for using in databases or ():
        with suppress(CaptureError):  # said by another check
            for index, table, problem in unwatchable(using, captured(using)):
                message = f": triggers can't watch {table}, which {problem}."
                found.append(error(type(index), message, hint, "zrank.E043"))
    return found
