"""System checks: a wrong declaration or setting fails in ``manage.py check``, not in a request."""

from __future__ import annotations

import codecs
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from difflib import get_close_matches
from functools import partial
from itertools import chain
from typing import Any, Final, get_type_hints

from django.apps.config import AppConfig
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core import checks
from django.core.checks import CheckMessage, Tags, register
from django.core.exceptions import FieldDoesNotExist, FieldError, ImproperlyConfigured
from django.db import Error, connections, models, router
from django.urls import get_resolver
from django.utils.module_loading import import_string
from django.utils.text import capfirst
from django_redis.cache import RedisCache
from django_redis.pool import get_connection_factory

from .capture.dialect import OWN_TABLES
from .capture.dialects import DIALECTS
from .capture.triggers import captured, unwatchable
from .capture.watched_tables import (
    annotation_problem,
    has_raw_sql,
    unseen_tables,
    volatile_functions,
    watched_tables,
)
from .codec.fields import follow, is_annotation
from .codec.kinds import key_kind, listed
from .conf import Settings, get_settings, raw_settings
from .declaration import Index, compiled
from .exceptions import CaptureError
from .extension import extensions, fallbacks, installed, sources
from .extension import settings as further_settings
from .index import RankIndex
from .methods import method_of, methods
from .models import Mark
from .redis.isolation import is_isolated, is_offered, is_testing, location_of, sharing
from .redis.keys import is_prefix
from .registry import registry
from .transactions import is_unsynced

Apps = Sequence[AppConfig] | None


@register("zrank")
def check_settings(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """The ``ZRANK`` dictionary."""
    raw = raw_settings()
    if not isinstance(raw, dict):
        return [
            checks.Error(
                "ZRANK must be a dictionary.", hint="ZRANK = {…}; every key is optional.", id="zrank.E001"
            )
        ]
    known = {
        name.upper(): (name, expected, getattr(kind(), name))
        for kind in (Settings, *map(import_string, further_settings.values()))
        for name, expected in get_type_hints(kind).items()
    }
    errors: list[CheckMessage] = []
    for key, value in raw.items():
        if key not in known:
            hint = f"Known keys: {', '.join(sorted(known))}."
            errors.append(checks.Error(f"ZRANK has no key {key!r}.", hint=hint, id="zrank.E002"))
            continue
        name, expected, default = known[key]
        if problem := _setting_problem(name, value, expected):
            hint = f"The default is {default!r}."
            errors.append(
                checks.Error(f"ZRANK[{key!r}] {problem}, not {value!r}.", hint=hint, id="zrank.E003")
            )
    return errors


_CHOICES: Final = {
    "capture": ("triggers", "signals"),
    "unhealthy": ("raise", "serve_stale"),
    "reads": ("primary",),
}
_OF_PARTS: Final[dict[str, Mapping[str, Any]]] = {"unhealthy": fallbacks, "reads": sources}
"""Choices that parts add."""


def _setting_problem(name: str, value: Any, expected: Any) -> str | None:
    if name == "key_prefix":
        return None if callable(value) or is_prefix(value) else "must be text without braces, or a function"
    allowed: Any = (int, float) if expected is float else expected
    if not isinstance(value, allowed) or (isinstance(value, bool) and expected is not bool):
        return f"must be of type {getattr(expected, '__name__', expected)}"
    if expected is int and value < 1:
        return "must be at least 1"
    if expected is float and not 0 < value < float("inf"):
        return "must be a positive number of seconds"
    choices = (*_CHOICES.get(name, (value,)), *_OF_PARTS.get(name, ()))
    if value not in choices:
        return f"must be one of {', '.join(map(repr, choices))}"
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
        return [checks.Error(f"CACHES has no alias {alias!r}.", hint=hint, id="zrank.E004")]
    try:
        backend = import_string(config.get("BACKEND", ""))
    except ImportError:
        backend = None
    if not (isinstance(backend, type) and issubclass(backend, RedisCache)):
        hint = "Set its BACKEND to 'django_redis.cache.RedisCache'."
        return [checks.Error(f"CACHES[{alias!r}] is not a django-redis cache.", hint=hint, id="zrank.E005")]
    parts = (_check_sharing, _check_options, _check_factory, _check_source, _check_tests)
    return list(chain.from_iterable(check(alias, config) for check in parts))


def _check_sharing(alias: str, config: dict[str, Any]) -> Iterator[CheckMessage]:
    if message := sharing(alias):
        hint = "Give the indexes a separate alias, with another database number or server."
        yield checks.Warning(message, hint=hint, id="zrank.W001")


def _check_tests(alias: str, config: dict[str, Any]) -> Iterator[CheckMessage]:
    location = get_settings().test_location
    is_shared = location is not None and location_of({"LOCATION": location}) == location_of(config)
    if is_shared and not is_testing():
        message = (
            f"ZRANK['TEST_LOCATION'] is the Redis of CACHES[{alias!r}]: tests would write into its indexes."
        )
        hint = "Give tests a separate server or database. In settings that only tests use, silence this."
        yield checks.Warning(message, hint=hint, id="zrank.W020")
    if is_testing() and registry.all() and get_settings().auto_sync and not (is_isolated() or is_offered()):
        message = "These tests use no separate Redis, so the rows that they save aren't ranked."
        hint = "Give one to tests that read rankings, as Testing in the docs shows; or silence this check."
        yield checks.Warning(message, hint=hint, id="zrank.W021")


def _check_options(alias: str, config: dict[str, Any]) -> Iterator[CheckMessage]:
    try:
        found = list(_client_options(config))
    except Exception as raised:  # noqa: BLE001 - whatever redis-py refuses
        hint = "Correct its LOCATION or its OPTIONS."
        yield checks.Error(f"CACHES[{alias!r}] has no client: {raised}", hint=hint, id="zrank.E006")
        return
    missing = [
        name
        for name in ("SOCKET_CONNECT_TIMEOUT", "SOCKET_TIMEOUT")
        if not all(options.get(name.lower()) for options in found)
    ]
    if missing:
        yield checks.Warning(
            f"CACHES[{alias!r}] sets no {' and no '.join(missing)}: a save() would wait for a server that "
            "hangs as long as redis-py does by default (5 seconds).",
            hint="Set both in its OPTIONS; 1 second is plenty.",
            id="zrank.W002",
        )
    wrong = {name: problem for options in found for name, problem in _altering(options)}
    for problem in dict.fromkeys(wrong.values()):
        names = ", ".join(name for name, its in wrong.items() if its == problem)
        hint = "Remove it from LOCATION, CONNECTION_POOL_KWARGS or REDIS_CLIENT_KWARGS."
        yield checks.Error(f"CACHES[{alias!r}] sets {names}: {problem}.", hint=hint, id="zrank.E006")


def _client_options(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the options of the connections to each server, wherever django-redis takes them from. Connects to none."""
    location, options = config.get("LOCATION", ""), dict(config.get("OPTIONS", {}))
    factory: Any = get_connection_factory(options)
    for url in location.split(",") if isinstance(location, str) else location:
        if hasattr(factory, "client_options"):  # it has no pool before it has connected
            yield factory.client_options(url)
        else:
            pool = factory.get_connection_pool(factory.make_connection_params(url))
            yield {**pool.connection_kwargs, "cache": getattr(pool, "cache", None)}


def _check_factory(alias: str, config: dict[str, Any]) -> Iterator[CheckMessage]:
    """Messages of the connection factory itself about its cache, if it has a check."""
    try:
        factory: Any = get_connection_factory(dict(config.get("OPTIONS", {})))
    except Exception:  # noqa: BLE001 - _check_options() says what is wrong
        return
    if hasattr(factory, "check"):
        yield from factory.check(alias, config)


_BYTES: Final = "Redis would get or return other bytes than it holds"
_REPLIES: Final = "replies that the client has kept would be returned after Redis has changed"


def _altering(options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield those of the options of a client that change the bytes sent or received, or keep replies, each with what it
    does."""
    if options.get("decode_responses"):
        yield "decode_responses", _BYTES
    if options.get("cache_config") or options.get("cache"):  # which redis-py makes of it
        yield "cache_config", _REPLIES
    with suppress(LookupError):
        if codecs.lookup(options.get("encoding", "utf-8")).name == "utf-8":
            if options.get("encoding_errors", "strict") != "strict":
                yield "encoding_errors", _BYTES
            return
    yield "encoding", _BYTES


def _check_source(alias: str, config: dict[str, Any]) -> Iterator[CheckMessage]:
    """Messages of the source of reads that ``READS`` chooses in place of the primary."""
    if source := sources.get(get_settings().reads):
        yield from import_string(source.check)(alias, config)


@register("zrank")
def check_indexes(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """Every registered index."""
    errors = list(chain.from_iterable(map(_check_declaration, registry.classes)))
    indexes = registry.all()
    for name, times in Counter(index.name for index in indexes).items():
        if times > 1:
            hint = "Set name on all but one."
            errors.append(checks.Error(f"{times} indexes are called {name!r}.", hint=hint, id="zrank.E011"))
    default = None if check_settings(app_configs) else get_settings().default_index
    # A project without any may be about to uninstall the app.
    if indexes and default is not None and default not in {index.name for index in indexes}:
        hint = f"Registered: {', '.join(sorted(index.name for index in indexes))}."
        errors.append(
            checks.Error(f"ZRANK['DEFAULT_INDEX'] names no index: {default!r}.", hint=hint, id="zrank.E012")
        )
    return errors


@register(Tags.database)
def check_tables(
    app_configs: Apps, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Check what takes a query: ``migrate`` and ``check --database`` run this."""
    hint = "Rank a table that triggers can watch, in the database in which it is written. Remove ON DELETE CASCADE "
    hint += 'from its keys: Django deletes the rows. Or set ZRANK = {"CAPTURE": "signals"}, whose gaps are documented.'
    found: list[CheckMessage] = []
    for using in databases or ():
        indexes, own = captured(using), dict[str, str]()
        with suppress(CaptureError):  # said by another check
            for index, table, problem in unwatchable(using, indexes):
                if table in OWN_TABLES:
                    own[table] = problem
                else:
                    message = f": triggers can't watch {table}, which {problem}."
                    found.append(error(type(index), message, hint, "zrank.E043"))
        found += [
            checks.Error(
                f"Database {using!r}: {table} {problem}.",
                hint="Convert it: ALTER TABLE … ENGINE=InnoDB. Set default_storage_engine before you migrate.",
                id="zrank.E046",
            )
            for table, problem in sorted(own.items())
        ]
        if indexes and is_unsynced(using):
            message = (
                f"Database {using!r} is a node of a Galera cluster, and its reads don't wait for the others."
            )
            option = '"init_command": "SET SESSION wsrep_sync_wait = 1"'
            found.append(checks.Error(message, hint=f"Add {option} to its OPTIONS.", id="zrank.E047"))
        if indexes and _is_deferred(connections[using]):
            message = f"Database {using!r}: transactions that read before they write fail if a worker writes meanwhile."
            option = '"transaction_mode": "IMMEDIATE"'
            found.append(checks.Warning(message, hint=f"Add {option} to its OPTIONS.", id="zrank.W009"))
    return found


def _is_deferred(connection: Any) -> bool:
    """Return True if transactions of SQLite take the lock for writers when they first write."""
    mode = connection.settings_dict["OPTIONS"].get("transaction_mode") or "DEFERRED"
    return connection.vendor == "sqlite" and mode.upper() == "DEFERRED" and not connection.is_in_memory_db()


ViewCheck = Callable[..., list[CheckMessage]]

_view_checks: Final[dict[ViewCheck, bool]] = {}
"""True for those of a deployment."""


def view_check(*, deploy: bool = False) -> Callable[[ViewCheck], ViewCheck]:
    """Register a check that comes with a module of views, so that a project without these views doesn't run it.

    Django collects all checks before it runs the first one, which may load the URLconf: too early for this one.
    ``deploy``: True to run it in ``check --deploy`` alone, and not before every command.
    """

    def register_check(check: ViewCheck) -> ViewCheck:
        _view_checks[check] = deploy
        return check

    return register_check


def _run_view_checks(app_configs: Apps, deploy: bool, **kwargs: Any) -> list[CheckMessage]:
    with suppress(Exception):  # a URLconf that can't be loaded is Django's to report
        _ = get_resolver().url_patterns
    chosen = [check for check, at_deployment in _view_checks.items() if at_deployment == deploy]
    return list(chain.from_iterable(check(app_configs, **kwargs) for check in chosen))


@register("zrank")
def check_views(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """The checks that come with the views in the project's URLs."""
    return _run_view_checks(app_configs, deploy=False, **kwargs)


@register("zrank", deploy=True)
def check_deployed_views(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """The checks of views that ``check --deploy`` runs."""
    return _run_view_checks(app_configs, deploy=True, **kwargs)


# Declarations

_DECLARING: Final = [base for base in RankIndex.__mro__[1:] if issubclass(base, Index)]
"""The classes that declare: the kernel's, and those of parts."""

_HOOKS: Final = {name for base in _DECLARING for name in vars(base) if name.startswith(("get_", "aget_"))} - {
    "get_ranked"
}

SETTINGS: Final = {
    name for base in _DECLARING for name in vars(base).get("__annotations__", ()) if not name.startswith("_")
}

_STEMS: Final = sorted(SETTINGS | {name.removeprefix("get_") for name in _HOOKS if name.startswith("get_")})


def error(cls: type, message: str, hint: str, code: str) -> checks.Error:
    """An error of a declaration. ``message`` follows the name of the class."""
    return checks.Error(f"{cls.__name__}{message}", hint=hint, obj=cls, id=code)


def path_problem(index: Index, raised: Exception, paths: Any) -> str:
    """Return why a path of a setting can't be followed: ``raised``, or that it names an annotation."""
    for path in paths if isinstance(raised, FieldDoesNotExist) else ():  # else its type may be wrong
        with suppress(FieldDoesNotExist, FieldError):
            if is_annotation(index.follow(str(path))[-1]):
                return f"{path!r} is an annotation of get_queryset(), which only order and facets can name"
    return str(raised)


def warning(cls: type, message: str, hint: str, code: str) -> checks.Warning:
    return checks.Warning(f"{cls.__name__}{message}", hint=hint, obj=cls, id=code)


def _check_attributes(cls: type[RankIndex]) -> Iterator[CheckMessage]:
    """Names that are nearly those of an attribute, and names that RankIndex needs for itself."""
    own = {
        name: base
        for base in reversed(cls.__mro__)
        if base not in RankIndex.__mro__
        for name in vars(base)
        if not name.startswith("_")
    }
    for name, base in own.items():
        if name in SETTINGS | _HOOKS:
            continue
        meant = _meant(name)
        if hasattr(RankIndex, name):
            hint = f"Did you mean {meant}?" if meant else "Choose another name."
            yield error(base, f".{name} hides an attribute of RankIndex.", hint, "zrank.E029")
        elif meant:
            hint = f"Did you mean {meant}? If not, choose another name, or begin it with an underscore."
            yield warning(base, f".{name} is not an attribute of RankIndex.", hint, "zrank.W006")


def _meant(name: str) -> str:
    """The attribute or method that ``name`` nearly is, if any."""
    stem = name.removeprefix("get_")
    close = get_close_matches(stem, _STEMS, n=1, cutoff=0.75)
    if not close:
        return ""
    is_hook = stem != name or close[0] not in SETTINGS
    return f"get_{close[0]}()" if is_hook else close[0]


def _check_hooks(cls: type[RankIndex]) -> Iterator[CheckMessage]:
    """Methods that can't be called as RankIndex calls them."""
    for name, problem in _problems_of(cls).items():
        written = f"{'async ' * name.startswith('a')}def {name}({', '.join(['self', *_parameters(name)])})"
        yield error(cls, f".{name} {problem}.", f"Write it as RankIndex does: {written}.", "zrank.E028")
    blank = object.__new__(cls)
    if blank.has_async_excluded and not blank.has_blocking_excluded:
        hint = "Define get_excluded() as well as aget_excluded(): blocking methods call it."
        yield error(cls, " excludes members only in coroutines.", hint, "zrank.E037")


def _problems_of(cls: type[RankIndex]) -> dict[str, str]:
    """Methods that can't be called as RankIndex calls them, and why not."""
    blank = object.__new__(cls)
    found = {
        name: _hook_problem(getattr(blank, name), _parameters(name), is_async=name.startswith("a"))
        for name in sorted(_HOOKS)
    }
    return {name: problem for name, problem in found.items() if problem}


def _parameters(hook: str) -> list[str]:
    return [name for name in inspect.signature(getattr(RankIndex, hook)).parameters if name != "self"]


def _hook_problem(hook: Any, names: list[str], *, is_async: bool) -> str:
    if not callable(hook):
        return f"is {hook!r}, not a method"
    if inspect.iscoroutinefunction(hook) != is_async:
        return "is not async" if is_async else "is async"
    try:
        inspect.signature(hook).bind(*names)
    except (TypeError, ValueError) as error:
        return f"can't be called with ({', '.join(names)}): {error}"
    return ""


_KEEP_IT: Final = "Store what it computes in a column, and filter by this column."

_JOIN_IT: Final = (
    "Join them by a lookup, as in filter(club__is_open=True), or by an aggregate: annotate(won=Count('matches', "
    "filter=Q(matches__is_won=True))), and filter(won__gt=0) in place of Exists()."
)


def _check_declaration(cls: type[RankIndex]) -> Iterator[CheckMessage]:
    """Check everything that can be checked without a query."""
    found = list(_check_attributes(cls))
    yield from found
    if any(message.is_serious() for message in found):
        return  # what is hidden is needed below
    yield from _check_hooks(cls)
    wrong = {hook.removeprefix("get_") for hook in _problems_of(cls)}
    if not wrong.isdisjoint({"model", "name"}):
        return
    try:
        index = cls.instance()
    except Exception as raised:  # noqa: BLE001 - a hook may raise anything
        hint = "get_model() and get_name() must work as soon as Django has loaded the models."
        yield error(cls, f" can't be instantiated: {type(raised).__name__}: {raised}", hint, "zrank.E030")
        return
    further = installed()
    for subject, (check, needs) in _CHECKS.items():
        if not wrong.isdisjoint({subject, *(further[subject].needs if subject in further else needs)}):
            wrong.add(subject)
            continue
        found = list(check(index))
        yield from found
        if any(message.is_serious() for message in found):
            wrong.add(subject)


def _check_name(index: RankIndex) -> Iterator[CheckMessage]:
    name: Any = index.name
    is_text = isinstance(name, str) and name.isprintable()
    if not is_text or not 0 < len(name) < 256 or set(name) & set("{}/ "):
        hint = "It becomes part of keys and URLs: use letters, digits, hyphens and underscores."
        yield error(type(index), f".name can't be {name!r}.", hint, "zrank.E013")


def _check_model(index: RankIndex) -> Iterator[CheckMessage]:
    if index.model is None:
        hint = 'Set model to the model whose rows are ranked, or to its name: "players.Player".'
        message = f" has no model{_why_no_model(index.get_model())}."
        yield error(type(index), message, hint, "zrank.E010")


def _check_key(index: RankIndex) -> Iterator[CheckMessage]:
    cls = type(index)
    if isinstance(index.model._meta.pk, models.CompositePrimaryKey):
        hint = "Give the model a primary key of one column."
        yield error(cls, ": a composite primary key can't be ranked.", hint, "zrank.E014")
    elif problem := _key_problem(index.model._meta.pk):
        message = f": the primary key of {index.model._meta.label} can't be a member: {problem}."
        hint = f"Primary keys of ranked models can be {listed('is_key')} fields."
        yield error(cls, message, hint, "zrank.E027")


def _check_parsed(attribute: str, index: RankIndex) -> Iterator[CheckMessage]:
    """Parse what an attribute declares."""
    parsed, code, hint = _PARSED[attribute]
    try:
        getattr(index, parsed)
    except (FieldDoesNotExist, FieldError) as raised:
        yield error(type(index), f".{attribute}: {raised}", hint, code)


def _check_facet_names(index: RankIndex) -> Iterator[CheckMessage]:
    for name in index.member_sets.keys() & set(index.faceting.paths):
        message = (
            f".facets: filter({name}=…) asks for the {name}s of an index, so no facet can have that name."
        )
        hint = f"Rename the field, or declare the column behind the relation: {name}_id."
        yield error(type(index), message, hint, "zrank.E026")


def _check_extension(name: str, index: RankIndex) -> Iterator[CheckMessage]:
    return installed()[name].check(index)


_PARSED: Final = {
    "order": (
        "ordering",
        "zrank.E015",
        (
            f"{capfirst(listed('is_criterion'))} fields can be ranked, each once, of the row "
            'or of one that it leads to: ("-points", "achieved_at", "club_id").'
        ),
    ),
    "facets": (
        "faceting",
        "zrank.E025",
        (
            f"{capfirst(listed('is_facet'))} fields and relations can be facets, each declared once: "
            '("region", "guild__slug", ("region", "platform")).'
        ),
    ),
}
"""By attribute, the property of an index that parses it, the id of the error, and its hint."""


def _why_no_model(declared: Any) -> str:
    if declared is None:
        return ""
    if isinstance(declared, str):
        return f": no app has {declared!r}"
    if not (isinstance(declared, type) and issubclass(declared, models.Model)):
        return f": it is of type {type(declared).__name__}"
    if declared._meta.abstract:
        return f": {declared.__name__} is abstract and has no rows"
    return f": {declared._meta.label} has been swapped for another"


def _key_problem(field: Any) -> str:
    """Return the reason why values of ``field`` have no single text, or an empty text."""
    try:
        key_kind(field)
    except ImproperlyConfigured as error:
        return str(error)
    return ""


def _check_decimals(index: RankIndex) -> Iterator[CheckMessage]:
    for criterion in index.ordering.criteria:
        if doubt := criterion.kind.doubt:
            problem, hint = doubt
            yield warning(type(index), f".order: {criterion.path} {problem}", hint, "zrank.W003")


def _check_method(index: RankIndex) -> Iterator[CheckMessage]:
    method = index.get_ranking_method()
    if method not in list(methods):
        examples = ", ".join(method_of(name).example for name in methods)
        hint = f"Choose one of {', '.join(map(repr, methods))}: {examples}."
        yield error(type(index), f".ranking_method can't be {method!r}.", hint, "zrank.E024")


def _check_band(index: RankIndex) -> Iterator[CheckMessage]:
    band = index.get_band()
    if band is None:
        return
    try:
        if isinstance(band, (tuple, list)) and len(band) != 2:
            raise ValueError(f"expected one or two distances, not {band!r}")
        below, above = band if isinstance(band, (tuple, list)) else (band, band)
        index.ordering.first.kind.distance(below)
        index.ordering.first.kind.distance(above)
    except (ArithmeticError, AttributeError, TypeError, ValueError) as raised:
        hint = "Use a distance such as 10, or (below, above); for dates and durations, a timedelta."
        yield error(type(index), f".band: {raised}.", hint, "zrank.E016")


def _check_owner(index: RankIndex) -> Iterator[CheckMessage]:
    cls, owner = type(index), index.get_owner()
    if owner is None:
        return
    try:
        user_model = get_user_model()
    except ImproperlyConfigured as raised:
        hint = "Install django.contrib.auth or the app of AUTH_USER_MODEL, or leave owner out."
        yield error(cls, f".owner: there is no user model: {raised}", hint, "zrank.E017")
        return
    hint = f"It must be a lookup path from {index.model._meta.label} to {user_model._meta.label}."
    try:
        *_, last = follow(index.model, str(owner))
    except (FieldDoesNotExist, FieldError) as raised:
        yield error(cls, f".owner: {path_problem(index, raised, [owner])}", hint, "zrank.E017")
        return
    if last.is_relation:
        ends_at_user = last.related_model is not None and issubclass(user_model, last.related_model)
    else:
        ends_at_user = owner == "pk" and issubclass(user_model, index.model)
    if not ends_at_user:
        yield error(cls, f".owner {owner!r} does not end at the user model.", hint, "zrank.E018")
        return


def _check_queryset(index: RankIndex) -> Iterator[CheckMessage]:
    cls, queryset, failed = type(index), None, ""
    try:
        queryset = index.get_queryset()
    except Exception as raised:  # noqa: BLE001 - a hook may raise anything
        failed = f" It fails: {type(raised).__name__}: {raised}"
    model = index.model._meta
    if not isinstance(queryset, models.QuerySet) or not issubclass(queryset.model, model.concrete_model):
        hint = "Return the model's rows, filtered: Player.objects.filter(is_active=True)."
        message = f".get_queryset() must return a QuerySet of {model.label}.{failed}"
        yield error(cls, message, hint, "zrank.E019")
    elif queryset.query.is_sliced or queryset.query.combinator or queryset.query.distinct_fields:
        message = ".get_queryset() is sliced, combined or distinct on fields, so it can't be filtered."
        yield error(cls, message, "Select rows by filter() and exclude() only.", "zrank.E020")
    elif queryset._fields is not None:  # type: ignore[attr-defined]  # Not in the stubs
        hint = "Don't call values(), values_list() or dates(): rows are ranked, and their columns are read as needed."
        yield error(cls, ".get_queryset() returns values, not rows.", hint, "zrank.E031")
    elif queryset.query.where.contains_over_clause:
        message = (
            ".get_queryset() filters on a window function: a change of one row could move others, unnoticed."
        )
        yield error(cls, message, _KEEP_IT, "zrank.E032")
    elif vars(queryset)["_db"] is None and (using := index.get_using()) != router.db_for_write(index.model):
        message = f".get_queryset() reads another database than using, {using!r}: no router sends {model.label} there."
        yield error(cls, message, f"Return its rows with .using({using!r}).", "zrank.E044")


def _check_annotations(index: RankIndex) -> Iterator[CheckMessage]:
    for path in index.annotated:
        if problem := annotation_problem(index, path):
            hint = (
                "Rank by columns, by Sum, Count, Min, Max and Avg of them, or by what is computed from these."
            )
            message = f".get_queryset(): the annotation {path} {problem}."
            yield error(type(index), message, hint, "zrank.E049")


def _check_parameters(index: RankIndex) -> Iterator[CheckMessage]:
    """Its parameters are part of the declaration: processes whose parameters differ don't read each other's builds."""
    using = index.get_using()
    if connections[using].vendor not in DIALECTS:
        return  # said by another check
    try:
        (sql, first), second = compiled(index), compiled(index)
    except Error:  # the database is needed to compile it, and can't be reached
        return
    hint = "Use values that stay the same. To rank by the last seven days, see Rolling windows in the docs."
    if (sql, first) != second:
        message = ".get_queryset() differs from one call to the next: it depends on the time, or on chance."
        yield error(type(index), message, hint, "zrank.E041")
        return
    today = date.today()
    spelled = f"{today:%Y-%m-%d}", f"date({today.year}, {today.month}, {today.day})"
    if any(text in parameter for parameter in first for text in spelled):
        message = ".get_queryset() compares with today's date: tomorrow's processes won't read today's build."
        yield warning(type(index), message, hint, "zrank.W008")


def _check_tables(index: RankIndex) -> Iterator[CheckMessage]:
    cls, sources, unseen = type(index), watched_tables(index), unseen_tables(index)
    own = {source.model._meta.db_table for source in sources if not source.path}
    if tables := ", ".join(sorted(unseen & own)):
        message = (
            f".get_queryset() reads other rows of {tables} in a subquery: a change of one row could move others, "
            "unnoticed."
        )
        yield error(cls, message, _KEEP_IT, "zrank.E033")
    if tables := ", ".join(sorted(unseen - own)):
        message = f".get_queryset() reads {tables} in a subquery: changes there go unnoticed."
        yield error(cls, message, _JOIN_IT, "zrank.E052")
    if has_raw_sql(index):
        hint = "Write it with F(), Func() and lookups, unless it reads only columns of the row."
        message = ".get_queryset() contains raw SQL: changes of other tables that this reads go unnoticed."
        yield warning(cls, message, hint, "zrank.W004")
    if functions := ", ".join(f"{name}()" for name in sorted(volatile_functions(index))):
        hint = "Use a rolling window (see the docs), or run verify_zrank --repair on a schedule."
        message = f".get_queryset() compares with {functions}: what changes without a write goes unnoticed."
        yield warning(cls, message, hint, "zrank.W013")
    leading = {
        field for source in sources for field in (source.column, *(link.near for link in source.links[-1:]))
    }
    for field in sorted(leading, key=str):
        if problem := _key_problem(field):
            message = f": {field} can't connect a table that is read to members: {problem}."
            hint = f"Keys on the way from a member can be {listed('is_key')} fields."
            yield error(cls, message, hint, "zrank.E034")


def _check_keys(index: RankIndex) -> Iterator[CheckMessage]:
    """Check for keys whose rows MariaDB or MySQL deletes or changes without triggers: ``DB_CASCADE`` and so on."""
    if get_settings().capture != "triggers" or connections[index.get_using()].vendor != "mysql":
        return
    found: dict[str, str] = {}
    for source in watched_tables(index):
        for key in source.model._meta.local_concrete_fields:
            action: Any = getattr(key.remote_field, "on_delete", None)
            is_read = source.fields is None or key in source.columns
            if hasattr(action, "on_delete_sql") and (is_read or action.__name__ == "DB_CASCADE"):
                found[str(key)] = action.__name__
    for key_name, name in found.items():
        message = f": {key_name} has on_delete={name}, for which this database runs no triggers."
        hint = f"Use {name.removeprefix('DB_')}, with which Django deletes or changes the rows."
        yield error(type(index), message, hint, "zrank.E045")


def _check_database(index: RankIndex) -> Iterator[CheckMessage]:
    cls, using = type(index), index.get_using()
    if using not in connections:
        message = f": there is no database {using!r}."
        yield error(cls, message, f"Known databases: {', '.join(connections)}.", "zrank.E021")
        return
    if not router.allow_migrate_model(using, Mark):
        hint = "Marks are kept in the database of the model: let allow_migrate() return None or True there."
        message = f": a router keeps the tables of django_zrank out of the database {using!r}."
        yield error(cls, message, hint, "zrank.E022")
    if get_settings().capture == "triggers" and connections[using].vendor not in DIALECTS:
        message = f": there are no triggers for {connections[using].display_name}."
        yield error(cls, message, 'Set ZRANK = {"CAPTURE": "signals"}.', "zrank.E023")
    level = connections[using].settings_dict["OPTIONS"].get("isolation_level") or ""
    if connections[using].vendor == "mysql" and str(level).lower() == "read uncommitted":
        message = f": the database {using!r} is read at READ UNCOMMITTED: a change that is rolled back would be ranked."
        hint = f"Set DATABASES[{using!r}]['OPTIONS']['isolation_level'] = 'read committed'."
        yield error(cls, message, hint, "zrank.E042")


_CHECKS: Final[Mapping[str, tuple[Callable[[RankIndex], Iterator[CheckMessage]], Sequence[str]]]] = {
    "name": (_check_name, ()),
    "model": (_check_model, ()),
    "ranking_method": (_check_method, ()),
    "key": (_check_key, ["model"]),
    "order": (partial(_check_parsed, "order"), ["model"]),
    "facets": (partial(_check_parsed, "facets"), ["model"]),
    "names of facets": (_check_facet_names, ["facets"]),
    "band": (_check_band, ["order"]),
    "owner": (_check_owner, ["model"]),
    "using": (_check_database, ["model"]),
    "queryset": (_check_queryset, ["model"]),
    "annotations": (_check_annotations, ["queryset", "order", "facets"]),
    **{name: (partial(_check_extension, name), ()) for name in extensions},
    "decimals": (_check_decimals, ["order", *extensions]),
    "tables": (_check_tables, ["annotations", "queryset", "key", "order", "facets", "using", *extensions]),
    "keys on the way": (_check_keys, ["tables"]),
    "parameters": (_check_parameters, ["tables", "ranking_method"]),
}
"""The checks of an index, by what they are about, and what else must be right for one to run."""
