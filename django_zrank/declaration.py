"""Checks of the declaration of one index. Each yields messages with an id and a hint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import FieldDoesNotExist, FieldError, ImproperlyConfigured
from django.db import connections, models, router

from .codec.fields import follow, value_field
from .codec.order import Order
from .codec.spelling import SUPPORTED, spelling_of
from .conf import get_settings
from .filters import GROUP
from .hooks import check_attributes, check_hooks
from .index import RankIndex
from .models import Mark
from .requests.view import METHODS
from .storage_checks import check_storage
from .sync.dialects import DIALECTS
from .sync.watched_tables import unseen_tables, watched_tables

__all__ = ["check_declaration"]


def check_declaration(cls: type[RankIndex]) -> Iterator[CheckMessage]:
    """Check everything that can be checked without a query."""
    found = [*check_attributes(cls), *check_hooks(cls)]
    yield from found
    if any(message.is_serious() for message in found):
        return
    try:
        index = cls.instance()
    except Exception as error:  # noqa: BLE001 - a hook may raise anything
        yield Error(
            f"{cls.__name__} can't be instantiated: {type(error).__name__}: {error}",
            hint="get_model() and get_name() must work as soon as Django has loaded the models.",
            obj=cls,
            id="zrank.E030",
        )
        return
    yield from _check_index(index)


def _check_index(index: RankIndex) -> Iterator[CheckMessage]:
    cls = type(index)
    if index.model is None:
        yield Error(
            f"{cls.__name__} has no model{_why_no_model(index.get_model())}.",
            hint='Set model to the model whose rows are ranked, or to its name: "players.Player".',
            obj=cls,
            id="zrank.E010",
        )
        return
    name: Any = index.name
    is_text = isinstance(name, str) and name.isprintable()
    if not is_text or not 0 < len(name) < 256 or set(name) & set("{}/ "):
        hint = "It becomes part of keys and URLs: letters, digits, hyphens and underscores do."
        yield Error(f"{cls.__name__}.name is {name!r}.", hint=hint, obj=cls, id="zrank.E013")
    if isinstance(index.model._meta.pk, models.CompositePrimaryKey):
        hint = "Give the model a primary key of one column."
        yield Error(
            f"{cls.__name__}: a composite primary key can't be ranked.", hint=hint, obj=cls, id="zrank.E014"
        )
        return
    if problem := _key_problem(index.model._meta.pk):
        yield Error(
            f"{cls.__name__}: the primary key of {index.model._meta.label} can't be a member: {problem}.",
            hint=f"Primary keys of ranked models can be {SUPPORTED}.",
            obj=cls,
            id="zrank.E027",
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
    found = list(check_storage(index))
    yield from found
    if any(message.is_serious() for message in found):
        return
    yield from _check_decimals(index, ordering)
    yield from _check_method(index)
    yield from _check_band(index)
    yield from _check_owner(index)
    yield from _check_queryset(index)
    yield from _check_database(index)


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
        spelling_of(field)
    except ImproperlyConfigured as error:
        return str(error)
    return ""


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
    if method not in METHODS:
        hint = f"One of {', '.join(map(repr, METHODS))}: 1234, 1224, 1223."
        yield Error(f"{cls.__name__}.ranking_method is {method!r}.", hint=hint, obj=cls, id="zrank.E024")


def _check_band(index: RankIndex) -> Iterator[CheckMessage]:
    cls, band = type(index), index.get_band()
    if band is None:
        return
    try:
        if isinstance(band, (tuple, list)) and len(band) != 2:
            raise ValueError(f"{len(band)} distances instead of one or two")
        below, above = band if isinstance(band, (tuple, list)) else (band, band)
        index.ordering.first.kind.distance(below)
        index.ordering.first.kind.distance(above)
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        hint = "A distance such as 10, or (below, above); of dates and durations, a timedelta."
        yield Error(f"{cls.__name__}.band is {band!r}: {error}.", hint=hint, obj=cls, id="zrank.E016")


def _check_owner(index: RankIndex) -> Iterator[CheckMessage]:
    cls, owner = type(index), index.get_owner()
    if owner is None:
        return
    user_model = get_user_model()
    hint = f"It must be a lookup path from {index.model._meta.label} to {user_model._meta.label}."
    try:
        *_, last = follow(index.model, str(owner))
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
    except Exception as error:  # noqa: BLE001 - a hook may raise anything
        failed = f" It fails: {type(error).__name__}: {error}"
    if not isinstance(queryset, models.QuerySet) or not issubclass(
        queryset.model,
        index.model._meta.concrete_model,
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
            hint="Select rows by filter() and exclude() only.",
            obj=cls,
            id="zrank.E020",
        )
    elif queryset._fields is not None:  # type: ignore[attr-defined]  # Not in the stubs
        yield Error(
            f"{cls.__name__}.get_queryset() returns values, not rows.",
            hint="Leave out values(), values_list() and dates(): a row is ranked, and its columns are read as needed.",
            obj=cls,
            id="zrank.E031",
        )
    elif queryset.query.where.contains_over_clause:
        yield Error(
            f"{cls.__name__}.get_queryset() filters on a window function: a change of one row could move others, "
            "unnoticed.",
            hint="Keep what it computes in a column of the row, and filter by that.",
            obj=cls,
            id="zrank.E032",
        )
    else:
        yield from _check_tables(index)


def _check_tables(index: RankIndex) -> Iterator[CheckMessage]:
    cls, sources, unseen = type(index), watched_tables(index), unseen_tables(index)
    own = {source.model._meta.db_table for source in sources if not source.path}
    if tables := ", ".join(sorted(unseen & own)):
        yield Error(
            f"{cls.__name__}.get_queryset() reads other rows of {tables} in a subquery: a change of one row could move "
            "others, unnoticed.",
            hint="Keep what it computes in a column of the row, and filter by that.",
            obj=cls,
            id="zrank.E033",
        )
    if tables := ", ".join(sorted(unseen - own)):
        yield Warning(
            f"{cls.__name__}.get_queryset() reads {tables} in a subquery: changes there go unnoticed.",
            hint="Join them by a lookup, as in filter(club__is_open=True); or run verify_zrank --repair on a schedule.",
            obj=cls,
            id="zrank.W004",
        )
    leading = {
        field for source in sources for field in (source.column, *(link.near for link in source.links[-1:]))
    }
    for field in sorted(leading, key=str):
        if problem := _key_problem(field):
            yield Error(
                f"{cls.__name__}: {field} connects a table that is read to members, and can't: {problem}.",
                hint=f"Keys on the way from a member can be {SUPPORTED}.",
                obj=cls,
                id="zrank.E034",
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
            hint="Marks are kept in the database of the model: let allow_migrate() return None or True there.",
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
