"""What is wrong with a declaration or a setting is said by ``manage.py check``, not by a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, get_type_hints
from urllib.parse import parse_qs, urlsplit

from django.apps.config import AppConfig
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import FieldDoesNotExist, FieldError
from django.db import connections, models, router
from django.utils.module_loading import import_string

from .conf import Settings, get_settings, raw_settings
from .filters import GROUP
from .index import RANKING_METHODS, RankIndex
from .models import Mark
from .ordering import Order, follow, value_field
from .registry import registry
from .sync.dialects import DIALECTS
from .sync.sources import unseen_tables

__all__ = ["check_indexes", "check_redis", "check_settings"]

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


def _problem(name: str, value: Any, expected: Any) -> str | None:
    allowed: Any = (int, float) if expected is float else expected
    if not isinstance(value, allowed) or (isinstance(value, bool) and expected is not bool):
        return f"must be {getattr(expected, '__name__', expected)}"
    if name == "max_n" and value < 1:
        return "must be at least 1"
    if name in ("retry_after", "database_timeout", "keep_marks") and not 0 < value < float("inf"):
        return "must be a positive number of seconds"
    if name == "key_prefix" and (not value or "{" in value or "}" in value):
        return "must be text without braces"
    if name == "capture" and value not in ("triggers", "signals"):
        return "must be 'triggers' or 'signals'"
    if name == "unhealthy" and value not in ("raise", "serve_stale", "database"):
        return "must be 'raise', 'serve_stale' or 'database'"
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
    from django_redis.cache import RedisCache

    try:
        backend = import_string(config.get("BACKEND", ""))
    except ImportError:
        backend = None
    if not (isinstance(backend, type) and issubclass(backend, RedisCache)):
        hint = "Set its BACKEND to 'django_redis.cache.RedisCache'."
        return [Error(f"CACHES[{alias!r}] is not a django-redis cache.", hint=hint, id="zrank.E005")]
    return [*_check_sharing(alias), *_check_options(alias, config)]


def _check_sharing(alias: str) -> Iterator[CheckMessage]:
    caches: Any = settings.CACHES
    place = _place(caches[alias])
    shared = [other for other in caches if other != alias and _place(caches[other]) == place]
    if alias == "default":
        shared.append(alias)
    if shared:
        names = ", ".join(map(repr, shared))
        yield Warning(
            f"The indexes share a Redis database with the cache {names}: cache.clear() would wipe them.",
            hint="Give them an alias and a database number (or a server) of their own.",
            id="zrank.W001",
        )


def _place(config: dict[str, Any]) -> tuple[Any, ...]:
    """Where a cache keeps its keys: host, port and database."""
    location = config.get("LOCATION", "")
    url = urlsplit(str(location[0] if isinstance(location, (list, tuple)) and location else location))
    if not url.scheme.startswith(("redis", "valkey", "unix")):
        return (object(),)
    options = config.get("OPTIONS", {}).get("CONNECTION_POOL_KWARGS", {})
    asked = parse_qs(url.query).get("db", [url.path.strip("/")])[-1]
    database = options.get("db") or asked or "0"
    if url.scheme == "unix":
        database = url.query
    return url.hostname, url.port or 6379, str(database), url.path if url.scheme == "unix" else ""


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
        yield Error(
            f"CACHES[{alias!r}] decodes responses, but members may be bytes.",
            hint="Remove decode_responses from CONNECTION_POOL_KWARGS.",
            id="zrank.E006",
        )


@register("zrank")
def check_indexes(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """Every registered index."""
    errors: list[CheckMessage] = []
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
    for index in indexes:
        errors.extend(_check_index(index))
    return errors


def _check_index(index: RankIndex) -> Iterator[CheckMessage]:
    cls = type(index)
    if index.model is None:
        hint = "Set model to the model whose rows are ranked."
        yield Error(f"{cls.__name__} has no model.", hint=hint, obj=cls, id="zrank.E010")
        return
    if not 0 < len(index.name) < 256 or set(index.name) & set("{}/ \0"):
        hint = "It becomes part of keys and URLs: letters, digits, hyphens and underscores do."
        yield Error(f"{cls.__name__}.name is {index.name!r}.", hint=hint, obj=cls, id="zrank.E013")
    if isinstance(index.model._meta.pk, models.CompositePrimaryKey):
        hint = "Give the model a primary key of one column."
        yield Error(
            f"{cls.__name__}: a composite primary key can't be ranked.", hint=hint, obj=cls, id="zrank.E014"
        )
        return
    try:
        ordering = index.ordering
    except (FieldDoesNotExist, FieldError) as error:
        hint = (
            "Integer, float, Decimal, bool, date, datetime and duration fields can be ranked, each once, of the "
            'row or of one that it leads to: ("-points", "achieved_at", "club_id").'
        )
        yield Error(f"{cls.__name__}.order: {error}", hint=hint, obj=cls, id="zrank.E015")
        return
    try:
        facets = index.faceting.paths
    except (FieldDoesNotExist, FieldError) as error:
        hint = (
            "Text, integer, bool, date, UUID and address fields and relations can be facets, each declared once: "
            '("region", "guild__slug", ("region", "platform")).'
        )
        yield Error(f"{cls.__name__}.facets: {error}", hint=hint, obj=cls, id="zrank.E025")
        return
    if GROUP in facets:
        yield Error(
            f"{cls.__name__}.facets: filter(group=…) asks for the groups of an index, so no facet can have that name.",
            hint="Rename the field, or declare the column behind the relation: group_id.",
            obj=cls,
            id="zrank.E026",
        )
    yield from _check_decimals(index, ordering)
    yield from _check_method(index)
    yield from _check_band(index)
    yield from _check_owner(index)
    yield from _check_queryset(index)
    yield from _check_database(index)


def _check_decimals(index: RankIndex, ordering: Order) -> Iterator[CheckMessage]:
    cls = type(index)
    for criterion in ordering.criteria:
        *_, field = follow(index.model, criterion.path)
        field = value_field(field)
        if not isinstance(field, models.DecimalField):
            continue
        if field.decimal_places is None:
            problem = "has no decimal_places, so it is ranked by whole numbers."
            hint = "Set decimal_places, and max_digits to at most 18."
        elif field.max_digits is None or 10**field.max_digits > 2**63:
            problem = (
                "may hold more digits than 64 bits do. "
                "Rows with a value beyond ±2**63 in the last place will not be ranked."
            )
            hint = "Lower max_digits to 18."
        else:
            continue
        message = f"{cls.__name__}.order: {criterion.path} {problem}"
        yield Warning(message, hint=hint, obj=cls, id="zrank.W003")


def _check_method(index: RankIndex) -> Iterator[CheckMessage]:
    cls, method = type(index), index.get_ranking_method()
    if method not in RANKING_METHODS:
        hint = f"One of {', '.join(map(repr, RANKING_METHODS))}: 1234, 1224, 1223."
        yield Error(f"{cls.__name__}.ranking_method is {method!r}.", hint=hint, obj=cls, id="zrank.E024")


def _check_band(index: RankIndex) -> Iterator[CheckMessage]:
    cls, band = type(index), index.get_band()
    if band is None:
        return
    try:
        below, above = band if isinstance(band, (tuple, list)) else (band, band)
        index.ordering.first.kind.distance(below)
        index.ordering.first.kind.distance(above)
    except (TypeError, ValueError) as error:
        hint = "A distance such as 10, or (below, above); of dates and durations, a timedelta."
        yield Error(f"{cls.__name__}.band is {band!r}: {error}.", hint=hint, obj=cls, id="zrank.E016")


def _check_owner(index: RankIndex) -> Iterator[CheckMessage]:
    cls, owner = type(index), index.get_owner()
    if owner is None:
        return
    user_model = get_user_model()
    hint = f"It must be a lookup path from {index.model._meta.label} to {user_model._meta.label}."
    try:
        *_, last = follow(index.model, owner)
    except (FieldDoesNotExist, FieldError) as error:
        yield Error(f"{cls.__name__}.owner: {error}", hint=hint, obj=cls, id="zrank.E017")
        return
    if last.is_relation:
        ends_at_user = last.related_model is not None and issubclass(user_model, last.related_model)
    else:
        ends_at_user = owner == "pk" and issubclass(user_model, index.model)
    if not ends_at_user:
        yield Error(
            f"{cls.__name__}.owner {owner!r} does not end at the user model.",
            hint=hint,
            obj=cls,
            id="zrank.E018",
        )


def _check_queryset(index: RankIndex) -> Iterator[CheckMessage]:
    cls, queryset, failed = type(index), None, ""
    try:
        queryset = index.get_queryset()
    except (FieldDoesNotExist, FieldError) as error:
        failed = f" It fails: {error}"
    if not isinstance(queryset, models.QuerySet) or not issubclass(
        queryset.model,
        index.model._meta.concrete_model,  # type: ignore[arg-type]
    ):
        yield Error(
            f"{cls.__name__}.get_queryset() must return a QuerySet of {index.model._meta.label}.{failed}",
            hint="Return the model's rows, filtered: Player.objects.filter(is_active=True).",
            obj=cls,
            id="zrank.E019",
        )
    elif queryset.query.is_sliced or queryset.query.combinator or queryset.query.distinct_fields:
        yield Error(
            f"{cls.__name__}.get_queryset() is sliced, combined or distinct on fields, so it can't be filtered.",
            hint="Express who is ranked by filter() and exclude().",
            obj=cls,
            id="zrank.E020",
        )
    elif tables := unseen_tables(index):
        yield Warning(
            f"{cls.__name__}.get_queryset() reads {', '.join(sorted(tables))} in a subquery: "
            "changes there go unnoticed.",
            hint="Join them by a lookup, as in filter(club__is_open=True); or run verify_zrank --repair on a schedule.",
            obj=cls,
            id="zrank.W004",
        )


def _check_database(index: RankIndex) -> Iterator[CheckMessage]:
    cls, using = type(index), index.get_using()
    if using not in connections:
        hint = f"Known: {', '.join(connections)}."
        yield Error(f"{cls.__name__}: there is no database {using!r}.", hint=hint, obj=cls, id="zrank.E021")
        return
    if not router.allow_migrate_model(using, Mark):
        yield Error(
            f"{cls.__name__}: a router keeps the tables of django_zrank out of the database {using!r}.",
            hint="Its marks lie where its model lives: let allow_migrate() answer None or True there.",
            obj=cls,
            id="zrank.E022",
        )
    if get_settings().capture == "triggers" and connections[using].vendor not in DIALECTS:
        yield Error(
            f"{cls.__name__}: there are no triggers for {connections[using].display_name}.",
            hint='Set ZRANK = {"CAPTURE": "signals"}.',
            obj=cls,
            id="zrank.E023",
        )
