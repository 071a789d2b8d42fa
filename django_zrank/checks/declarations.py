"""Checks of the declaration of one index. Each yields messages with an id and a hint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist, FieldError, ImproperlyConfigured
from django.db import Error, connections, models, router
from django.db.models.constants import LOOKUP_SEP

from ..codec.fields import follow, value_field
from ..codec.filters import GROUP
from ..codec.fingerprint import compiled
from ..codec.shards import name_of
from ..codec.spelling import SUPPORTED, spelling_of
from ..conf import get_settings
from ..index import RankIndex
from ..models import Mark
from ..queries.view import METHODS
from ..sync.dialects import DIALECTS
from ..sync.watched_tables import unseen_tables, watched_tables
from .hooks import check_attributes, check_hooks, error, problems_of, warning

__all__ = ["check_declaration"]

_KEEP_IT: Final = "Keep what it computes in a column of the row, and filter by that."


_MOST_SHARDS: Final = 1024

_LONGEST: Final = 255
"""The longest name of a shard, in characters."""


def check_declaration(cls: type[RankIndex]) -> Iterator[CheckMessage]:
    """Check everything that can be checked without a query."""
    found = list(check_attributes(cls))
    yield from found
    if any(message.is_serious() for message in found):
        return  # what is hidden is needed below
    yield from check_hooks(cls)
    wrong = {hook.removeprefix("get_") for hook in problems_of(cls)}
    if not wrong.isdisjoint({"model", "name"}):
        return
    try:
        index = cls.instance()
    except Exception as raised:  # noqa: BLE001 - a hook may raise anything
        hint = "get_model() and get_name() must work as soon as Django has loaded the models."
        yield error(cls, f" can't be instantiated: {type(raised).__name__}: {raised}", hint, "zrank.E030")
        return
    for subject, (check, needs) in _CHECKS.items():
        if not wrong.isdisjoint({subject, *needs}):
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
        yield error(type(index), f".name is {name!r}.", hint, "zrank.E013")


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
        yield error(cls, message, f"Primary keys of ranked models can be {SUPPORTED}.", "zrank.E027")


def _check_parsed(attribute: str, index: RankIndex) -> Iterator[CheckMessage]:
    """Parse what an attribute declares."""
    parsed, code, hint = _PARSED[attribute]
    try:
        getattr(index, parsed)
    except (FieldDoesNotExist, FieldError) as raised:
        yield error(type(index), f".{attribute}: {raised}", hint, code)


def _check_facet_names(index: RankIndex) -> Iterator[CheckMessage]:
    if GROUP in index.faceting.paths:
        message = ".facets: filter(group=…) asks for the groups of an index, so no facet can have that name."
        hint = "Rename the field, or declare the column behind the relation: group_id."
        yield error(type(index), message, hint, "zrank.E026")


_PARSED: Final = {
    "order": (
        "ordering",
        "zrank.E015",
        (
            "Integer, float, Decimal, bool, date, datetime and duration fields can be ranked, each once, of the row "
            'or of one that it leads to: ("-points", "achieved_at", "club_id").'
        ),
    ),
    "facets": (
        "faceting",
        "zrank.E025",
        (
            "Text, integer, bool, date, UUID and address fields and relations can be facets, each declared once: "
            '("region", "guild__slug", ("region", "platform")).'
        ),
    ),
    "write_behind": (
        "column",
        "zrank.E035",
        (
            "Integers and decimals of fixed places can be written behind: a plain column of the model itself, as the "
            "only criterion."
        ),
    ),
    "idle": (
        "awake",
        "zrank.E038",
        'A DateTimeField of the row, or of one that it leads to: idle = ("last_seen", timedelta(days=30)).',
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
        spelling_of(field)
    except ImproperlyConfigured as error:
        return str(error)
    return ""


def _check_decimals(index: RankIndex) -> Iterator[CheckMessage]:
    for criterion in index.ordering.criteria:
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
        yield warning(type(index), f".order: {criterion.path} {problem}", hint, "zrank.W003")


def _check_shards(index: RankIndex) -> Iterator[CheckMessage]:
    cls, count = type(index), index.get_shards()
    if type(count) is not int or not 1 <= count <= _MOST_SHARDS:
        hint = f"A whole number from 1 to {_MOST_SHARDS:,}. A read queries all of them: use no more than servers."
        yield error(cls, f".shards is {count!r}.", hint, "zrank.E039")
    elif count > 1 and len(longest := max((part.name for part in index.parts), key=len)) > _LONGEST:
        hint = f"Names of shards, such as {name_of('player', 3, 16)!r}, have at most {_LONGEST} characters."
        yield error(cls, f": the name {longest!r} of a shard is too long.", hint, "zrank.E040")


def _check_seen(index: RankIndex) -> Iterator[CheckMessage]:
    field: Any = index.seen_field
    if field is None or field.db_index or field.unique:
        return
    indexes = field.model._meta.indexes
    if not any(one.fields and one.fields[0].lstrip("-") == field.name for one in indexes):
        message = (
            f".idle: no database index begins with {field.name}: to find members that fell asleep, all rows are read "
            "every few seconds."
        )
        yield warning(type(index), message, "Set db_index=True.", "zrank.W011")


def _check_method(index: RankIndex) -> Iterator[CheckMessage]:
    method = index.get_ranking_method()
    if method not in METHODS:
        hint = f"Choose one of {', '.join(map(repr, METHODS))}: 1234, 1224, 1223."
        yield error(type(index), f".ranking_method is {method!r}.", hint, "zrank.E024")


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
    user_model = get_user_model()
    hint = f"It must be a lookup path from {index.model._meta.label} to {user_model._meta.label}."
    try:
        *_, last = follow(index.model, str(owner))
    except (FieldDoesNotExist, FieldError) as raised:
        yield error(cls, f".owner: {raised}", hint, "zrank.E017")
        return
    if last.is_relation:
        ends_at_user = last.related_model is not None and issubclass(user_model, last.related_model)
    else:
        ends_at_user = owner == "pk" and issubclass(user_model, index.model)
    if not ends_at_user:
        yield error(cls, f".owner {owner!r} does not end at the user model.", hint, "zrank.E018")
        return
    own = f"{owner}{LOOKUP_SEP}"  # Facets of the user are the same in all rows.
    is_told_apart = any(not f"{path}{LOOKUP_SEP}".startswith(own) for path in index.faceting.paths)
    if index.has_several and cls.get_member is RankIndex.get_member and not is_told_apart:
        message = (
            f".owner: a user may own several rows by {owner!r}, and no facet tells them apart, so the REST API can't "
            "choose one."
        )
        hint = (
            'Declare a column in which they differ, such as facets = ("season",), or override get_member().'
        )
        yield warning(cls, message, hint, "zrank.W012")


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
    elif (
        queryset._db is None  # type: ignore[attr-defined]  # Not in the stubs
        and (using := index.get_using()) != router.db_for_write(index.model)
    ):
        message = f".get_queryset() reads another database than using, {using!r}: no router sends {model.label} there."
        yield error(cls, message, f"Return its rows with .using({using!r}).", "zrank.E044")


def _check_parameters(index: RankIndex) -> Iterator[CheckMessage]:
    """Its parameters are part of the declaration: processes whose parameters differ don't read each other's builds."""
    using = index.get_using()
    if connections[using].vendor not in DIALECTS:
        return  # said by another check
    try:
        (sql, first), second = compiled(index), compiled(index)
    except Error:  # the database is needed to compile it, and can't be reached
        return
    hint = 'To rank the rows of the last days, declare idle = ("last_seen", timedelta(days=30)); or compare with Now().'
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
        hint = "Join them by a lookup, as in filter(club__is_open=True); or run verify_zrank --repair on a schedule."
        message = f".get_queryset() reads {tables} in a subquery: changes there go unnoticed."
        yield warning(cls, message, hint, "zrank.W004")
    leading = {
        field for source in sources for field in (source.column, *(link.near for link in source.links[-1:]))
    }
    for field in sorted(leading, key=str):
        if problem := _key_problem(field):
            message = f": {field} connects a table that is read to members, and can't: {problem}."
            yield error(cls, message, f"Keys on the way from a member can be {SUPPORTED}.", "zrank.E034")


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
    "shards": (_check_shards, ()),
    "ranking_method": (_check_method, ()),
    "key": (_check_key, ["model"]),
    "order": (partial(_check_parsed, "order"), ["model"]),
    "facets": (partial(_check_parsed, "facets"), ["model"]),
    "write_behind": (partial(_check_parsed, "write_behind"), ["order"]),
    "idle": (partial(_check_parsed, "idle"), ["model"]),
    "names of facets": (_check_facet_names, ["facets"]),
    "decimals": (_check_decimals, ["write_behind"]),
    "seen": (_check_seen, ["idle"]),
    "band": (_check_band, ["order"]),
    "owner": (_check_owner, ["model"]),
    "using": (_check_database, ["model"]),
    "queryset": (_check_queryset, ["model"]),
    "tables": (_check_tables, ["queryset", "key", "order", "facets", "idle", "using"]),
    "parameters": (_check_parameters, ["tables", "ranking_method", "write_behind"]),
}
"""The checks of an index, by what they are about, and what else must be right for one to run."""
