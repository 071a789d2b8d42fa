"""The declaration of an index: what is ranked, and how its members are stored. No I/O happens here."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Generic, Self
from uuid import uuid4

from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings
from django.core.exceptions import EmptyResultSet, FieldError, SynchronousOnlyOperation
from django.db import Error, connections, models, router
from django.db.models import F, OuterRef, Subquery
from django.db.models.expressions import OrderBy
from django.utils import timezone

from .codec.entry import Entry, decoder
from .codec.facets import Facets, MemberSets
from .codec.fields import annotation, find_model, follow, is_annotation, is_unique, value_field
from .codec.kinds import kind_of
from .codec.layout import Layout, MemberCodec
from .codec.order import Order
from .codec.units import Band, Distance
from .conf import get_settings
from .exceptions import NotRanked
from .methods import kept_for

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
    from typing_extensions import TypeVar

    Member = TypeVar("Member", bound=models.Model, default=Any)
else:
    from typing import TypeVar

    Member = TypeVar("Member", bound=models.Model)
    """The model of an index: ``RankIndex[Player]``. Python 3.13 has a default, for declarations that leave it out."""

__all__ = ["Index", "Member", "compiled"]

Answer = TypeVar("Answer")
Item = TypeVar("Item")

_LIST: Final = re.compile(r"IN \((%s(?:, %s)*)\)")
"""The placeholders of an IN lookup."""

_PLACEHOLDER: Final = re.compile(r"%(.)")
"""A placeholder, or an escaped percent sign."""

_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
"""The address of an object, in its default ``repr()``."""


_instances: dict[type[Index], Any] = {}


class Index(MemberCodec, Generic[Member]):
    """The declaration of an index, and all that follows from it. Code that reads or writes an index needs only this."""

    @classmethod
    def instance(cls) -> Self:
        """Return the instance that serves this process."""
        instance: Self | None = _instances.get(cls)
        return _instances.setdefault(cls, cls()) if instance is None else instance

    # What is ranked

    model: type[Member]
    """The model whose rows are ranked: the class, or its name, ``"players.Player"``, or ``"Player"`` in its own app."""

    order: Sequence[str | models.F | OrderBy] = ()
    """The criteria, best first, in Django's ordering syntax: ``("-points", "achieved_at")``. They are lookup paths, or
    annotations of ``get_queryset()``. The first criterion is the score; rows whose score is null are not ranked. In the
    other criteria, nulls come last, unless you declare ``F("achieved_at").asc(nulls_first=True)``. Members that are
    equal in all criteria are ordered by their primary keys as text, byte by byte ("10" before "9"), or in reverse if
    the first criterion is descending."""

    ranking_method: str = "ordinal"
    """The ranks of members that are equal in every criterion: ``"ordinal"`` (1234, by primary key), ``"competition"``
    (1224), or one that a part adds to :mod:`django_zrank.methods`."""

    facets: Sequence[str | Sequence[str]] = ()
    """Columns of which each value has a separate ranking: ``("region", "guild__slug", ("region", "platform"))``.
    They are lookup paths, also across to-many relations, or annotations of ``get_queryset()``. A tuple is one facet of
    several columns together."""

    name: str = ""
    """The name of the index in Redis, in URLs and in commands. Default: the model's name in lower case."""

    using: str | None = None
    """The database that is mirrored, which ``get_queryset()`` must read. Default: the database to which routers send
    writes of the model."""

    # Recommendations

    band: Band | None = None
    """The default band of ``recommend()``: how far a score may lie from the member's. One distance, such as ``10``, or
    ``(below, above)``, such as ``(50, 100)``."""

    owner: str | None = None
    """The lookup path from the model to the user, for "me" in the REST API: ``"user"``, ``"team__captain"``.
    Not needed if the model is the user model."""

    def __init__(self) -> None:
        # None if the declaration is wrong: manage.py check reports that, and could not if this raised.
        self.model = find_model(self.get_model(), type(self).__module__)  # type: ignore[assignment]
        self.name = self.get_name()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    # Hooks

    def get_model(self) -> type[Member]:
        return getattr(type(self), "model", None)  # type: ignore[return-value]

    def get_order(self) -> Sequence[str | models.F | OrderBy]:
        return self.order

    def get_ranking_method(self) -> str:
        return self.ranking_method

    def get_facets(self) -> Sequence[str | Sequence[str]]:
        return self.facets

    def get_name(self) -> str:
        return type(self).name or (str(self.model._meta.model_name) if self.model else "")

    def get_using(self) -> str:
        return self.using or router.db_for_write(self.model)

    def get_band(self) -> Band | None:
        return self.band

    def get_owner(self) -> str | None:
        return self.owner

    def get_queryset(self) -> models.QuerySet[Member]:
        """Return the rows that are ranked, by default all rows in the database that ``using`` names. A row that
        leaves this queryset leaves the index.

        The queryset must be independent of the request, the user and the time. Pushes call this at most once a second.
        """
        return self.model._default_manager.using(self.using)

    def get_excluded(self, member: Member, /) -> Iterable[Any]:
        """Return the members that ``recommend()`` never draws for ``member`` (an instance), as instances, primary keys
        or a queryset of either."""
        return ()

    def get_excluded_many(self, members: Sequence[Member], /) -> Mapping[Any, Iterable[Any]]:
        """Return a mapping of the primary key of each of ``members`` (instances) to the members never drawn for it.
        Override it instead of ``get_excluded()`` if one query can find these for all members of a
        ``recommend_many()``."""
        return {member.pk: self.get_excluded(member) for member in members}

    async def aget_excluded(self, member: Member, /) -> Iterable[Any] | AsyncIterable[Any]:
        """The asynchronous version of ``get_excluded()``, awaited by ``arecommend()``. If it isn't overridden,
        ``get_excluded()`` is called in a thread. Override both: blocking code calls ``get_excluded()``."""
        return ()

    async def aget_excluded_many(
        self, members: Sequence[Member], /
    ) -> Mapping[Any, Iterable[Any] | AsyncIterable[Any]]:
        """The asynchronous version of ``get_excluded_many()``, awaited by ``arecommend_many()``."""
        return {member.pk: await self.aget_excluded(member) for member in members}

    def get_member(self, user: AbstractBaseUser | AnonymousUser) -> Member:
        """Return the ranked row of ``user``, the first by primary key if there are several. Raises ``NotRanked``."""
        owner = self.get_owner()
        if owner is None and not isinstance(user, self.model):
            raise NotRanked(f"the index {self.name!r} has no owner")
        rows = self._ranked(self.get_queryset(), (owner or "pk", user.pk))
        if self.has_several:  # ORDER BY and LIMIT take a quarter of this query's time
            rows = rows.order_by("pk")[:1]
        member = next(iter(rows), None) if user.pk is not None else None
        if member is None:
            raise NotRanked(f"{user} owns no ranked {self.model._meta.verbose_name}")
        return member  # type: ignore[no-any-return]

    def owned_by(self, user: AbstractBaseUser | AnonymousUser) -> models.QuerySet[Any]:
        """Return the ranked rows of ``user``."""
        return self._ranked(self.get_queryset(), (self.get_owner() or "pk", user.pk))

    @cached_property
    def has_several(self) -> bool:
        """True if a user may own several rows, such as one for each week."""
        return not is_unique(self.model, self.get_owner() or "pk")

    async def aget_member(self, user: AbstractBaseUser | AnonymousUser) -> Member:
        """The asynchronous version of :meth:`get_member`."""
        return await sync_to_async(self.get_member)(user)

    @cached_property
    def has_excluded(self) -> bool:
        """True if one of the four hooks is overridden. They take instances, which may cost a query."""
        return self.has_async_excluded or self.has_blocking_excluded

    @cached_property
    def has_blocking_excluded(self) -> bool:
        """True if ``get_excluded()`` or ``get_excluded_many()`` is overridden."""
        return self._overrides("get_excluded", "get_excluded_many")

    @cached_property
    def has_async_excluded(self) -> bool:
        """True if ``aget_excluded()`` or ``aget_excluded_many()`` is overridden."""
        return self._overrides("aget_excluded", "aget_excluded_many")

    def _overrides(self, *hooks: str) -> bool:
        return any(getattr(type(self), hook) is not getattr(Index, hook) for hook in hooks)

    # What parts add, by a base class of RankIndex: see ``extension.py``

    def further_conditions(self) -> list[models.Q]:
        """Return further conditions of the rows that are ranked."""
        return []

    def further_paths(self) -> list[str]:
        """Return the paths of further columns that decide which rows are ranked."""
        return []

    def attached_paths(self) -> list[str]:
        """Return the paths of the columns whose values are attached to the membership of each member."""
        return []

    @cached_property
    def attached(self) -> tuple[str, ...]:
        """The paths of :meth:`attached_paths`."""
        return tuple(self.attached_paths())

    def attach(self, values: Sequence[Any]) -> bytes:
        """Return these values as the text of an attachment: see :class:`.Layout`."""
        return b""

    def reading(
        self, ask: Callable[[Any], Generator[Any, Any, Answer]], live: Any
    ) -> Generator[Any, Any, Answer]:
        """Return the query that ``ask`` makes of the live keys, which may request what is attached, too. Called if
        anything is."""
        return ask(live)

    @property
    def member_sets(self) -> Mapping[str, MemberSets]:
        """Sets of members that rankings can be filtered by, besides facets, by the names of the filters."""
        return {}

    @property
    def is_ahead(self) -> bool:
        """True if scores change in Redis before they do in the database."""
        return False

    def further_terms(self) -> list[Any]:
        """Return what else tells declarations apart, in a :func:`.fingerprint`."""
        return []

    # The indexes that hold the members: this one, unless a part divides it among several

    @cached_property
    def declared(self) -> Self:
        """The index that is declared: triggers leave marks under its name. Another one if this one holds a part of its
        members."""
        return self

    @property
    def division(self) -> str:
        """The dotted path of a module whose functions take the place of those that are :func:`.divisible`: they keep
        an index in step whose members others hold. '' if it holds them itself."""
        return ""

    @property
    def reader(self) -> str:
        """The dotted path of the class that reads it from Redis, a :class:`~.redis.reader.Reader`."""
        return "django_zrank.redis.reader.Reader"

    @cached_property
    def holders(self) -> tuple[Self, ...]:
        """The indexes that hold the members, each by itself and under its own name in Redis and in the database."""
        return (self,)

    def holder_of(self, member: str | bytes) -> Self:
        """Return the index that holds a member, which is given as Redis stores it."""
        return self

    def sort_key_of(self, member: Any) -> tuple[float, bytes] | None:
        """Return the sort key that a member has in Redis, its score and its stored form, if the given row is up to
        date and this saves a round trip; else None."""
        return None

    def may_hold(self, name: str) -> bool:
        """Return True if an index of this name holds members of this one, or has held them in another release."""
        return name == self.name

    def place(
        self, items: Iterable[Item], member: Callable[[Item], Any] = lambda item: item
    ) -> dict[Self, list[Item]]:
        """Return the items of each holder that has any. ``member``: a function from an item to the member it is
        about."""
        if len(self.holders) == 1:
            return {self.holders[0]: found} if (found := list(items)) else {}
        placed: dict[Self, list[Item]] = {holder: [] for holder in self.holders}
        for item in items:
            placed[self.holder_of(member(item))].append(item)
        return {holder: own for holder, own in placed.items() if own}

    # Members, as Redis holds them

    @cached_property
    def ordering(self) -> Order:
        """The parsed order."""
        return Order.parse(self.model, self.get_order(), self._annotated)

    @cached_property
    def faceting(self) -> Facets:
        """The parsed facets."""
        return Facets.parse(self.model, self.get_facets(), self._annotated)

    @cached_property
    def _annotations(self) -> dict[str, Any]:
        return {}

    def _annotated(self, name: str) -> Any:
        """Return the field of an annotation of ``get_queryset()``; None if it has no such annotation. Raises
        ``FieldError`` if it has no queryset either."""
        if name not in self._annotations:
            try:
                query = self.get_queryset().query
                expression = query.annotation_select.get(name)
            except Exception as error:
                message = f"{name} is no field of {self.model._meta.label}, and get_queryset() fails: {error}"
                raise FieldError(message) from error
            if expression is None and name in query.annotations:
                raise FieldError(
                    f"{name} is an alias(), whose values can't be read: declare it by annotate()"
                )
            self._annotations[name] = None if expression is None else annotation(self.model, name, expression)
        return self._annotations[name]

    def follow(self, path: str) -> tuple[Any, ...]:
        """Return the fields on the path of a criterion or a facet; for an annotation, one field without a column."""
        return follow(self.model, path, self._annotated)

    @cached_property
    def annotated(self) -> tuple[str, ...]:
        """The paths of criteria and facets that are annotations of ``get_queryset()``."""
        paths = dict.fromkeys((*self.ordering.paths, *self.faceting.paths))
        return tuple(path for path in paths if is_annotation(self.follow(path)[-1]))

    def expression(self, path: str) -> F | Subquery:
        """Return the expression of a criterion or a facet in any rows of the model: joins and conditions of these rows
        don't change what an annotation aggregates."""
        if path not in self.annotated:
            return F(path)
        rows = self.get_queryset().using(self.get_using()).order_by()
        return Subquery(rows.filter(pk=OuterRef("pk")).values(path)[:1])

    def annotate(self, rows: models.QuerySet[Any]) -> models.QuerySet[Any]:
        """Return rows of the model with the annotations that are criteria or facets."""
        annotations: dict[str, Any] = {path: self.expression(path) for path in self.annotated}
        return rows.annotate(**annotations)  # type: ignore[no-any-return]

    @cached_property
    def layout(self) -> Layout:
        """The layout of stored members."""
        return self.finding._replace(memberships=True) if self.attached else self.finding

    @cached_property
    def finding(self) -> Layout:
        """The same for reads, which find bare primary keys without a membership."""
        order = self.ordering
        memberships = bool(order.width or order.is_wide or self.faceting)
        return Layout(order.width, memberships, kept_for(self.get_ranking_method()))

    @cached_property
    def declaration(self) -> str:
        """Eight digits that identify what is ranked, and how. Raises as :func:`.fingerprint`."""
        return fingerprint(self)

    def new_build(self) -> str:
        """Return a new name for a build of this declaration."""
        return f"{self.declaration}-{uuid4().hex[:23]}"

    def declares(self, build: str) -> bool:
        """Return True if a build was made from this declaration, if there is none (``""``), or if the database is
        needed to tell and can't be reached."""
        declaration, dash, _ = build.partition("-")
        try:
            return not dash or declaration == self.declaration
        except (Error, SynchronousOnlyOperation):
            return True

    def get_ranked(self, *conditions: Any) -> models.QuerySet[Any]:
        """Return the rows that are ranked, from the database that is mirrored: those that have a score, and
        that parts rank. ``conditions`` filter them further, by columns of their own table."""
        return self._ranked(self.get_queryset().using(self.get_using()), *conditions)

    def _ranked(self, rows: models.QuerySet[Any], *conditions: Any) -> models.QuerySet[Any]:
        first = self.ordering.first
        is_scored = {f"{first.path}__isnull": False} if first.nullable else {}
        return rows.filter(*conditions, *self.further_conditions(), **is_scored)

    @cached_property
    def to_entries(self) -> Callable[..., list[Entry]]:
        """A function from stored members, with their scores and ranks, to entries (of a class, if one is given)."""
        return decoder(self.ordering, self.layout, self.from_bytes)

    def parse_band(self, text: str) -> Distance:
        """Parse one distance of a band, into the score's own type. Raises ``ValueError``."""
        kind = self.ordering.first.kind
        distance = kind.parse_distance(text)
        kind.distance(distance)
        return distance


def fingerprint(index: Index) -> str:
    """Return eight digits that identify what an index declares: its order, facets and layout,
    and what parts add; the query of ``get_queryset()`` with its parameters; the types of the columns
    it names, the formulas of generated fields, the time zone of times without one, and ``ZRANK["MAX_VALUES"]``.

    Releases that differ in any of these rank rows differently, so neither reads or writes what the other has built.
    Queries are compiled for the database that is mirrored, which may have to be connected: raises ``django.db.Error``,
    or ``SynchronousOnlyOperation`` in a coroutine.
    """
    criteria = index.ordering.criteria
    values = [(one.path, *one.kind.declared) for one in criteria]
    # A single criterion is stored in one way, whatever its direction.
    flags = [(one.descending, one.nullable, one.nulls_first) for one in criteria if len(criteria) > 1]
    facets = [facet.name for facet in index.faceting.all]
    said = [index.model._meta.label, values, flags, facets, index.layout]
    fields = _fields(index)
    sql, parameters = compiled(index)
    said += [*_types(index, sql), sql, parameters, *_formulas(index, sql)]
    if any(kind_of(field).is_zoned for field in fields):
        said += [settings.USE_TZ, connections[index.get_using()].timezone_name]
    if index.faceting.many:
        said.append(get_settings().max_values)
    said += index.further_terms()
    return sha256(repr(said).encode()).hexdigest()[:8]


def compiled(index: Index) -> tuple[str, Sequence[str]]:
    """Return the SQL of ``get_queryset()`` with the columns that are read, and the texts of its parameters: the same
    whatever time zone a request has activated."""
    using = index.get_using()
    paths = dict.fromkeys((*index.ordering.paths, *index.faceting.paths, *index.attached))
    rows = index.get_queryset().using(using).order_by().values_list("pk", *paths)
    try:
        with timezone.override(None):
            sql, parameters = rows.query.get_compiler(using).as_sql()
    except EmptyResultSet:
        return "", ()
    texts = [_ADDRESS.sub("", repr(_held(one))) for one in parameters]
    # The order of a set differs between processes.
    for found in _LIST.finditer(sql):
        at = sum(one[1] == "s" for one in _PLACEHOLDER.finditer(sql, 0, found.start()))
        count = found[1].count("%s")
        texts[at : at + count] = sorted(texts[at : at + count])
    return sql, texts


def _held(parameter: Any) -> Any:
    """Return the value that an adapter of a driver holds: its ``repr()`` shortens the value, or leaves it out."""
    if isinstance(parameter, (str, int)):  # an enum's attributes say where it stands among others
        return parameter
    return getattr(parameter, "obj", None) or getattr(parameter, "__dict__", None) or parameter


def _fields(index: Index) -> list[models.Field[Any, Any]]:
    """Return the fields at the ends of the paths that are read."""
    paths = *index.ordering.paths, *index.faceting.paths, *index.further_paths(), *index.attached
    return [index.follow(path)[-1] for path in paths]


def _types(index: Index, sql: str) -> list[tuple[Any, ...]]:
    """Return the types of the columns that a query names, including those that it only filters by: a migration to
    another type may round their values."""
    attributes = "max_digits", "decimal_places", "db_collation", "unpack_ipv4"
    types = set[tuple[Any, ...]]()
    for table, field in _columns(index, sql):
        if _names(sql, field.column):
            of = value_field(field)
            details = (getattr(of, attribute, None) for attribute in attributes)
            types.add((table, field.column, of.get_internal_type(), *details))
    return sorted(types, key=repr)


def _formulas(index: Index, sql: str) -> list[tuple[Any, ...]]:
    """Return the formulas of the generated fields of all models whose tables a query names."""
    connection = connections[index.get_using()]
    formulas: set[tuple[Any, ...]] = {
        (table, field.column, repr(field.generated_sql(connection)))
        for table, field in _columns(index, sql)
        if isinstance(field, models.GeneratedField)
    }
    return sorted(formulas)


def _columns(index: Index, sql: str) -> Iterator[tuple[str, Any]]:
    """Yield all fields with a column of all models whose tables a query names, and their tables. Processes may install
    the models in another order, and further ones of the same tables, such as proxies."""
    for model in {index.model, *apps.get_models(include_auto_created=True)}:
        table = model._meta.db_table
        if _names(sql, table):
            for field in model._meta.local_concrete_fields:
                yield table, field


def _names(sql: str, name: str) -> bool:
    """Return True if a query names a table or a column, which ``RawSQL`` may do without quotes."""
    return name in sql and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql) is not None
