"""The views. Each action calls one method of a ranking."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache, lru_cache, partial
from heapq import nsmallest
from itertools import islice
from math import inf
from sys import float_info
from typing import TYPE_CHECKING, Any, ClassVar, Final

from django.apps import apps
from django.core.exceptions import FieldDoesNotExist, FieldError, ImproperlyConfigured
from django.core.exceptions import ValidationError as InvalidValue
from django.db import DataError, connections, models, transaction
from django.db.models.query import MAX_GET_RESULTS
from django.http import Http404, QueryDict
from django.utils import cache as caching
from django.utils.duration import duration_string
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _
from rest_framework import pagination
from rest_framework.decorators import action
from rest_framework.exceptions import ErrorDetail, NotFound, ParseError, ValidationError
from rest_framework.parsers import JSONParser
from rest_framework.permissions import IsAdminUser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer, CharField
from rest_framework.settings import api_settings
from rest_framework.utils.urls import remove_query_param, replace_query_param
from rest_framework.versioning import QueryParameterVersioning
from rest_framework.viewsets import GenericViewSet

from ..codec.fields import follow
from ..codec.kinds import kind_of
from ..combined.conf import FilterSettings
from ..conf import get_settings, settings_of
from ..entries import Entry, EntryPage
from ..exceptions import NotRanked
from ..index import Band, RankIndex
from ..ranking import Ranking
from ..recommendations import sides
from ..redis import reader_of
from ..registry import registry
from . import exceptions, query, serializers
from .checks import RESERVED, filter_name
from .counts import Counts, KeptCounts
from .permissions import IsOwner, get_permission_classes

if TYPE_CHECKING:
    from rest_framework.permissions import _PermissionClass

if apps.is_installed("drf_spectacular"):
    from . import openapi  # noqa: F401 - registers its extensions

__all__ = ["IndexViewSet", "LeaderboardViewSet", "RecommendationViewSet", "ScoreViewSet"]

logger = logging.getLogger("django_zrank")

_counts = KeptCounts()

_HIDDEN_PAGES: Final = 20
"""The most pages in a row that a request reads until one has a member that the view's queryset shows."""

_HIDDEN_PAGE: Final = 100
"""The least members of each of these pages after the first, however few the request asks for."""


@cache
def _warn(message: str) -> None:
    """Log a warning, once in a process."""
    logger.warning("django_zrank: %s", message)


class IndexViewSet(GenericViewSet[Any]):
    """Base of the views of an index: finds the index and the member, and handles the index's errors.

    The docstring of a view with a path is written for its clients: REST framework shows it to them,
    as Markdown where that is installed, and as plain text: one line for each paragraph, without markup.
    """

    index: type[RankIndex] | RankIndex | None = None
    """The index. Default: the one that the path names, else the project's default index."""

    permission_classes: Sequence[_PermissionClass] = get_permission_classes()
    """The permissions. Default: the project's ``DEFAULT_PERMISSION_CLASSES``, else ``[IsAuthenticated]``."""

    member_permission_classes: Sequence[_PermissionClass] = [IsOwner]
    """The permissions of ``?member=``, beside ``permission_classes``: each is checked for the request and for the
    member. Default: users may ask as members of their own. For staff to ask as others: ``[IsOwner | IsAdminUser]``."""

    serializer_class: type[BaseSerializer[Any]] = serializers.EntrySerializer
    """A serializer of the index's model, for results to show its fields beside ``pk``, ``score`` and ``rank``. Its rows
    come from ``get_queryset()`` and the filter backends, by one query; members without a row are left out.
    With the default, or a subclass of it, no row is fetched."""

    query_classes: ClassVar[Mapping[str, type[query.QuerySerializer]]] = {}
    """The serializer of the query string of each action. It is read before anything is looked up."""

    filtered_actions: ClassVar[Collection[str]] = ("list",)
    """The actions that take the parameters of the filter backends, if the serializer shows rows."""

    max_scan: int | None = 100_000
    """The most members that a combined filter that no facet covers is computed from, and the most values that
    are counted; more are a 400. ``ZRANK["MAX_SCAN"]`` holds in any case; None for that alone."""

    max_wait: float | None = 2.0
    """Seconds that a request waits for such a combination; after that, it is a 503 with ``Retry-After``.
    ``ZRANK["FILTER_TIMEOUT"]`` holds in any case; None for that alone."""

    allow_groups = False
    """True to allow ``group``. A client that may name any group learns its members."""

    allow_unknown = False
    """True to ignore unknown parameters. By default they are a 400."""

    extra_parameters: Collection[str] = ()
    """Further parameters that requests may have, such as ``utm_source``, or those that your own code reads."""

    def get_index(self) -> RankIndex:
        """Return the index. 404 if there is none of that name, or no default index."""
        if self.index is not None:
            return self.index.instance() if isinstance(self.index, type) else self.index
        name = self.kwargs.get("index")
        try:
            return registry.default() if name is None else registry.get(name)
        except LookupError as error:
            if name is not None:
                message = _("There is no index called “{name}”.").format(name=name)
                raise exceptions.NoIndex(message) from error
            if not getattr(self, "swagger_fake_view", False):  # drf-spectacular: nobody requests that path
                # It names a setting, which is not for clients.
                _warn(f"{type(self).__name__} has no index. {error}")
            raise exceptions.NoIndex from error

    @cached_property
    def served(self) -> RankIndex:
        """The index, looked up once a request."""
        return self.get_index()

    def get_ranking(self) -> Ranking:
        """Return the ranking, before the filters of the query string. Override it to restrict every request."""
        return self.served.ranking

    def get_filtered(self) -> Ranking:
        """Return the ranking, with the filters of the query string, bounded by ``max_scan`` and ``max_wait``."""
        ranking, filters = self.get_ranking(), self.arguments["filters"]
        if filters:
            ranking = query.narrow(ranking, filters)
        return ranking.within(seconds=self.max_wait, scan=self.max_scan)

    def get_filters(self) -> Mapping[str, str]:
        """Return the path of the facet that each parameter filters by. Default: all paths, each by its own name, or by
        ``facet_band`` if ``band`` is another parameter."""
        paths = self.served.faceting.paths
        if not paths:
            return {}
        pages = (name for name, _lowest in self.get_page_parameters())
        taken = {*RESERVED, *pages, *self._other_parameters, *self._get_backend_parameters()}
        return {filter_name(path, taken, paths): path for path in paths}

    def get_page_parameters(self) -> Sequence[tuple[str, int | None]]:
        """Return the parameters of the paginator, the length of a page first, and the lowest value of each; None for
        the page's."""
        lowest = {"limit": 1, "page_size": 1, "offset": 0, "page": None}
        found = {getattr(self.paginator, f"{name}_query_param", None): lowest[name] for name in lowest}
        return [(name, number) for name, number in found.items() if name]

    def get_query_class(self) -> type[query.QuerySerializer]:
        """Return the class of :meth:`get_query`. Default: that of the action in ``query_classes``."""
        return self.query_classes.get(self.action or "", query.QuerySerializer)  # of filters alone

    def get_query(self) -> query.QuerySerializer:
        """Return the serializer of this action's query string. Its ``context``, of lists and hashable values, is what
        the view allows."""
        query_class = self.get_query_class()
        others = self._other_parameters
        if self.filter_backends and self.action in self.filtered_actions and self.shows_rows():
            others = others.union(self._get_backend_parameters())
        context: dict[str, Any] = {name: limit_of(self) for name, limit_of in query_class.limits.items()}
        return query_class.of(
            index=self.served,
            max_n=get_settings().max_n,
            filters=tuple(self.get_filters().items()),
            others=others,
            allow_unknown=self.allow_unknown,
            **{switch: getattr(self, switch) for switch in query_class.switches},
            **{name: tuple(limit) if isinstance(limit, list) else limit for name, limit in context.items()},
        )

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if self.action in self.query_classes:
            _ = self.arguments

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The parameters of the request by name, all filters as ``filters``. 400 if they are invalid."""
        return self.get_query().run_validation(self.request.query_params)

    @cached_property
    def _other_parameters(self) -> frozenset[str]:
        """The parameters that the project's code, REST framework or its versioning class reads, on every path."""
        names = {self.settings.URL_FORMAT_OVERRIDE, *self.extra_parameters}
        if self.versioning_class is not None and issubclass(self.versioning_class, QueryParameterVersioning):
            names.add(self.versioning_class.version_param)
        return frozenset(filter(None, names))

    def _get_backend_parameters(self) -> Iterator[str]:
        """Yield the parameters of the filter backends, by their OpenAPI names; of django-filter, by its own."""
        for backend_class in self.filter_backends:
            backend: Any = backend_class()
            if hasattr(backend, "get_filterset_class"):  # django-filter leaves the naming to drf-spectacular
                filterset = backend.get_filterset_class(self, self.get_queryset())
                for name, one in getattr(filterset, "base_filters", {}).items():
                    # Of a range: level_min, level_max
                    suffixes = getattr(one.field_class.widget, "suffixes", ())
                    yield from [f"{name}_{suffix}" for suffix in suffixes] or [name]
            elif hasattr(backend, "get_schema_operation_parameters"):
                yield from (parameter["name"] for parameter in backend.get_schema_operation_parameters(self))

    def shows_rows(self) -> bool:
        """Return True if results show rows of the model, not only the ranking's own values."""
        return not issubclass(self.get_serializer_class(), serializers.EntrySerializer)

    def get_queryset(self) -> models.QuerySet[Any]:
        """Return the rows that results, and members named by a path or by ``?member=``, are taken from, as far as the
        filter backends let them pass. Default: those that the index ranks."""
        if self.queryset is not None:  # type: ignore[arg-type]  # The stubs take it for a descriptor
            return super().get_queryset()
        return self.served.get_queryset().all()

    def get_member(self) -> Any:
        """Return the user's own row. 401 or 403 if nobody has signed in, 404 if the user has no ranked row. Override it
        to choose the row in another way.

        It is the user's by the index's ``owner``, so object permissions aren't checked. Of several, such as one for
        each week, it is the one that passes the filters; 400 if more than one does.
        """
        index, user = self.served, self.request.user
        if not (user and user.is_authenticated):
            self.permission_denied(self.request)
        if index.has_several and (rows := self.own_rows):
            if len(rows) > 1:
                selected = {entry.pk for entry in self.get_filtered().members(rows)}
                rows = [row for row in rows if row.pk in selected]
            if not rows:
                raise exceptions.MemberNotRanked
            if len(rows) > 1:
                raise exceptions.AmbiguousMember(self._get_telling_apart(rows))
            return rows[0]
        try:
            return index.get_member(user)
        except NotRanked:
            if index.get_owner() is not None or isinstance(user, index.model) or not self._looks_up_owner():
                raise
            logger.warning("Index %r declares no owner, so no member is known to be a user's.", index.name)
            raise exceptions.NoOwner from None

    def get_asking(self) -> Any:
        """Return the row that ``?member=`` names, 401 or 403 if the user may not ask as that member; without the
        parameter, the user's own."""
        pk = self.arguments.get("member")
        if pk is None:
            return self.get_member()
        member = self.find_member(pk)
        self.check_member_permissions(member)
        return member

    def check_member_permissions(self, member: models.Model) -> None:
        """Answer 403, or 401, if the user may not ask as ``member``."""
        for permission in (permission_class() for permission_class in self.member_permission_classes):
            if not (
                permission.has_permission(self.request, self)
                and permission.has_object_permission(self.request, self, member)
            ):
                message, code = getattr(permission, "message", None), getattr(permission, "code", None)
                self.permission_denied(self.request, message, code)

    def _looks_up_owner(self) -> bool:
        return type(self.served).get_member is RankIndex.get_member

    @cached_property
    def own_rows(self) -> Sequence[Any]:
        """The ranked rows of the user, the newest ``MAX_N`` by primary key, if a user may own several."""
        index, user = self.served, self.request.user
        if not (self._looks_up_owner() and user and user.pk):
            return ()
        return list(index.owned_by(user).order_by("-pk").distinct()[: get_settings().max_n])

    def _get_telling_apart(self, several: Sequence[Any]) -> Sequence[str]:
        """Return the parameters that would choose one of several rows."""
        rows = self.served.get_queryset().filter(pk__in=[row.pk for row in several]).order_by()
        filters = self.get_filters().items()
        differing = {path for _, path in filters if rows.values_list(path).distinct().count() > 1}
        faceting = self.served.faceting
        # A part of a composite facet may not be a filter by itself.
        needed = {
            part for path in differing for part in (faceting.of([path]) or faceting.reading(path)).paths
        }
        names = [name for name, path in filters if path in needed]
        return [*names, *(["member"] if "member" in self.get_query().fields else [])]

    def get_object(self) -> Any:
        """Return the row that the path names."""
        key = self.kwargs[self.lookup_url_kwarg or self.lookup_field]
        return self.find_member(str(key), lookup_field=self.lookup_field)

    def find_member(self, pk: Any, *, lookup_field: str = "pk") -> Any:
        """Return the row ``pk``. 404 if there is none, 401 or 403 if the permissions refuse it.

        The 404 is that of a row that isn't ranked: a client can't tell rows that are hidden, by ``get_queryset()`` or
        by a filter backend, from those that aren't there.
        """
        try:
            if isinstance(pk, str):
                with suppress(FieldDoesNotExist, FieldError):  # an annotation
                    *_relations, field = follow(self.served.model, lookup_field)
                    pk = kind_of(field).spelled(pk)
            if lookup_field == "pk":
                pk = self.served.parse_pk(pk)
            rows = self._get_visible().filter(**{lookup_field: pk})
            # A join may repeat the row. Of several rows, as many are read as QuerySet.get() reads.
            (member,) = {row.pk: row for row in rows[:MAX_GET_RESULTS]}.values()
        # … or an id beyond what the column holds
        except (DataError, Http404, InvalidValue, OverflowError, ValueError) as error:
            raise exceptions.MemberNotRanked from error
        self.check_object_permissions(self.request, member)
        return member

    def _get_visible(self) -> models.QuerySet[Any]:
        """Return the rows among which one is found by its key. The parameters of filter backends choose the members
        that are shown, not the one that ``?member=`` names: only what hides it without them hides it."""
        # An action of the project has its own parameters.
        if self.action not in self.query_classes or "member" not in self.arguments:
            return self.filter_queryset(self.get_queryset())
        request = self.request._request
        given, request.GET = request.GET, QueryDict()
        try:
            return self.filter_queryset(self.get_queryset())
        finally:
            request.GET = given

    def get_results(
        self, entries: Sequence[Entry], rows: Mapping[Any, models.Model] | None = None
    ) -> list[dict[str, Any]]:
        """Serialize ``entries``. ``rows``, by primary key, are looked up if they aren't given."""
        serializer_class = self.get_serializer_class()
        if serializer_class is serializers.EntrySerializer:  # For a tenth of its time
            return [*map(serializers.show, entries)]
        if issubclass(serializer_class, serializers.EntrySerializer):
            return list(self.get_serializer(entries, many=True).data)
        if rows is None:
            rows = self._get_rows(entries)
        entries = [entry for entry in entries if entry.pk in rows]
        shown = self.get_serializer([rows[entry.pk] for entry in entries], many=True)
        return serializers.combine(self.served, entries, shown)

    def _get_rows(self, entries: Sequence[Entry]) -> Mapping[Any, models.Model]:
        """Return the rows of ``entries`` that results may show, by primary key."""
        return self.filter_queryset(self.get_queryset()).in_bulk([entry.pk for entry in entries])

    def handle_exception(self, exc: Exception) -> Response:
        """Answer errors of the index, and add its ``code`` to every ``detail``. What developers need is logged."""
        for raised, answer in exceptions.ANSWERS.items():
            if isinstance(exc, raised):
                if raised is not NotRanked:
                    logger.warning("%s", exc)
                exc = answer()
                break
        response = super().handle_exception(exc)
        # Unless an exception handler of the project has chosen another form.
        detail = response.data.get("detail") if isinstance(response.data, dict) else None
        if isinstance(detail, ErrorDetail):
            response.data.setdefault("code", detail.code)
        return response

    def is_personal(self) -> bool:
        """Return True if the response depends on who has signed in, so that nothing may keep it."""
        return False

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        if self.is_personal():
            caching.patch_cache_control(response, private=True, no_store=True)
        return response


class RecommendationViewSet(IndexViewSet):
    """Random members of a ranking whose scores are near yours: half rank above you, half below.

    n: the number of members.

    band: the largest difference between their scores and yours: 10, or 50,100 for below and above.

    ranks: the largest difference between their ranks and yours, instead of a band.

    widen: a wider band to try if there are too few members. Repeat it for further steps.

    exclude: the ids of members to leave out, separated by commas.

    near: a score to draw around, instead of yours, if the view allows it.

    member: the id of the member to draw for, if several of yours match the filters.

    Each facet of the index is a filter of the same name: give one value, or several separated by commas.

    Append __not to the name to exclude a value, or __isnull=true to select the members without one.

    The response has the band that was used and the number of candidates in it, including excluded members.

    That number is null if it is unknown, as with several filters that no facet covers. Every request is a new draw.
    """

    query_classes = {"list": query.RecommendationQuery}
    pagination_class = None

    default_n = 10
    """Members drawn where the request doesn't say how many. ``ZRANK["MAX_N"]`` is the ceiling of both."""

    max_excluded = 1000
    """The most ids that ``exclude`` takes."""

    allow_seed = False
    """True to allow ``seed``, for tests and demos: a client that chooses the seed chooses the members drawn."""

    allow_near = False
    """True to allow ``near``: members near any score, whoever asks."""

    allow_band = True
    """True to allow ``band``, ``ranks`` and ``widen``."""

    max_band: Band | None = None
    """The widest band that ``band`` and ``widen`` ask for: a wider one is cut to it, as the answer shows. Default: ten
    times the index's ``band``. A client that may choose any band finds the weakest opponents there are."""

    max_ranks: int | tuple[int, int] | None = 1000
    """The same for ``ranks``: how many ranks away at most. None: no ceiling."""

    def is_personal(self) -> bool:
        return True

    def get_max_band(self) -> Band | None:
        """Return the widest band allowed. None: no ceiling, as by default if the index has no band."""
        band = self.served.get_band() if self.max_band is None else None
        if band is None:
            return self.max_band
        below, above = sides(band)
        return _tenfold(below), _tenfold(above)

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        arguments = {"n": min(self.default_n, get_settings().max_n), **self.arguments}
        del arguments["filters"]
        if "ranks" in arguments:
            arguments.pop("band", None)
        near = arguments.pop("near", None)
        arguments.pop("member", None)
        asking = self.get_asking() if near is None else None
        if self.served.has_several:  # nobody is one's own opponent
            arguments["exclude"] = [*arguments.get("exclude", ()), *self.own_rows]
        ranking = self.get_filtered()
        found = ranking.recommend(asking, **arguments) if near is None else ranking.near(near, **arguments)
        band: Any = found.band
        return Response(
            {
                "band": [_spell(one) for one in band],
                "candidates": found.candidates,
                "results": self.get_results(found),
            }
        )


def _spell(distance: Any) -> Any:
    """Return a distance as ``band`` takes it: seconds would not do, since the band of a date counts in days. Of two
    floats that are further apart than any float, the highest one, as JSON has no infinity."""
    if distance == inf:
        return float_info.max
    return duration_string(distance) if isinstance(distance, timedelta) else distance


@lru_cache(maxsize=256)
def _tenfold(distance: Any) -> Any:
    """Return ten times a distance; the distance itself if its type has no such value."""
    try:
        return distance if 10 * distance == inf else 10 * distance
    except OverflowError:
        return distance


class LeaderboardPagination(pagination.PageNumberPagination):
    """``?page=3&page_size=20``: pages of 50, or of the project's ``PAGE_SIZE``. Clients may ask for up to 100."""

    page_size = api_settings.PAGE_SIZE or 50
    page_size_query_param = "page_size"
    max_page_size = 100


def get_pagination_class() -> type[pagination.BasePagination]:
    """The project's ``DEFAULT_PAGINATION_CLASS``, or :class:`LeaderboardPagination`."""
    chosen: Any = api_settings.DEFAULT_PAGINATION_CLASS
    # A cursor walks the columns of a queryset.
    if chosen is None or issubclass(chosen, pagination.CursorPagination):
        return LeaderboardPagination
    return chosen  # type: ignore[no-any-return]


class RankingList:
    """A ranking as the list that a paginator slices: one round trip to count it, one for a page."""

    def __init__(self, ranking: Ranking, view: IndexViewSet) -> None:
        self.ranking, self.count, self.view = ranking, ranking.count, view

    def __getitem__(self, page: slice) -> Sequence[Entry]:
        """The entries of a page. 400 for a page longer than ``ZRANK["MAX_N"]``."""
        ceiling = get_settings().max_n
        if page.stop - page.start > ceiling:
            # LimitOffsetPagination has no maximum unless the project gives it one.
            name = next(iter(self.view.get_page_parameters()), (api_settings.NON_FIELD_ERRORS_KEY, 0))[0]
            message = _("Ensure this value is less than or equal to {max_value}.")
            raise ValidationError({name: [message.format(max_value=ceiling)]}, code="max_value")
        return self.ranking[page]


class LeaderboardViewSet(IndexViewSet):
    """The members of a ranking, best first, in pages.

    Each facet of the index is a filter of the same name: give one value, or several separated by commas.

    Append __not to the name to exclude a value, or __isnull=true to select the members without one.

    Ranks are then those among the matching members.

    pk: only the members with these ids, separated by commas, with their ranks among all.
    """

    query_classes = {
        "list": query.ListQuery,
        "retrieve": query.StandingQuery,
        "me": query.MeQuery,
        "around": query.AroundQuery,
        "gap": query.QuerySerializer,
        "counts": query.CountsQuery,
    }
    filtered_actions = ("list", "retrieve", "me", "around", "gap")
    pagination_class: type[pagination.BasePagination] | None = get_pagination_class()

    default_n = 10
    """Members around one where the request doesn't say how many."""

    max_age: int | None = 5
    """Seconds for which browsers and proxies may keep a response to a client that hasn't signed in. None: don't say."""

    keep_counts: float | None = 1.0
    """Seconds for which each process keeps the answer of ``counts/``; or 20 times as long as counting took, up to a
    minute, if that is longer. None: count anew for each request."""

    def get_query_class(self) -> type[query.QuerySerializer]:
        mine = {"around": query.AroundMeQuery, "gap": query.MineQuery} if self.is_personal() else {}
        return mine.get(self.action or "") or super().get_query_class()

    def is_personal(self) -> bool:
        return "me" in (self.action, self.kwargs.get(self.lookup_url_kwarg or self.lookup_field))

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        if self.max_age and request.method in ("GET", "HEAD") and response.status_code == 200:
            is_page = response.accepted_renderer.format == "api"  # Has a CSRF token
            if not (is_page or self.is_personal() or (request.user and request.user.is_authenticated)):
                caching.patch_cache_control(response, max_age=self.max_age)
                caching.patch_vary_headers(response, ("Cookie", "Authorization"))
                response.add_post_render_callback(partial(_answer_conditionally, request))
        return response

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        ranking, pks = self.get_filtered(), self.arguments.get("pk")
        found: Any = RankingList(ranking, self) if pks is None else ranking.members(pks)
        rows = None
        if pks is not None and self.shows_rows():
            rows = self._get_rows(found)
            # Not counted either: the count would tell that a hidden member is ranked.
            found = [entry for entry in found if entry.pk in rows]
        page: list[Entry] | None = self.paginate_queryset(found)
        if page is None:
            whole = ranking.top(get_settings().max_n) if pks is None else found
            return Response(self.get_results(whole, rows))
        return self.get_paginated_response(self.get_results(page, rows))

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The rank, score and percentile of one member: among all, or with a filter, among the matching members.

        in: facets, separated by commas. The response then also has its standings in the rankings of its values.
        """
        member = self.get_object()
        return self._get_standing(member, {member.pk: member})

    @action(detail=False, name="Your rank")
    def me(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Your rank, score and percentile: among all, or with a filter, among the matching members.

        in: facets, separated by commas. The response then also has your standings in the rankings of your values.

        member: the id of the member, if several of yours match the filters.
        """
        return self._get_standing(self.get_asking())

    @action(detail=True)
    def around(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The members ranked around a member, best first, including it. With me in the path, around you.

        n: the number of members. Near an end of the ranking, more of them are on the other side.

        after, before: a cursor, as next and previous have it, for the members after or before it.

        member: with me in the path, the id of the member, if several of yours match the filters.
        """
        n = self.arguments.get("n", min(self.default_n, get_settings().max_n))
        member, ranking = self._get_named(), self.get_filtered()
        is_turned = not self.arguments.keys().isdisjoint(("after", "before"))
        # A cursor tells whose it is, so those of members that are hidden aren't shown either.
        for page in islice(
            self._turn(ranking, n) if is_turned else [ranking.around(member, n)], _HIDDEN_PAGES
        ):
            rows = self._get_rows(page) if self.shows_rows() else None
            shown = [entry for entry in page if rows is None or entry.pk in rows]
            if shown:
                break
        results = shown[:n] if "after" in self.arguments else shown[-n:]
        is_last = not (shown and (page.has_next or results[-1] != shown[-1]))
        is_first = not (shown and (page.has_previous or results[0] != shown[0]))
        return Response(
            {
                "next": None if is_last else self._get_link(after=ranking.cursor(results[-1])),
                "previous": None if is_first else self._get_link(before=ranking.cursor(results[0])),
                "results": self.get_results(results, rows),
            }
        )

    def _turn(self, ranking: Ranking, n: int) -> Iterator[EntryPage[Any]]:
        """Yield the page that the request's cursor leads to, then those that follow in that direction, which have 100
        members or more."""
        is_after = "after" in self.arguments
        start: Any = self.arguments["after" if is_after else "before"]
        while start is not None:
            page = (ranking.after if is_after else ranking.before)(start, n)
            yield page
            has_more = page and (page.has_next if is_after else page.has_previous)
            start, n = page[-1 if is_after else 0] if has_more else None, max(n, _HIDDEN_PAGE)

    def _get_link(self, **cursor: str) -> str:
        """Return the URL of this request, with another cursor."""
        url = self.request.build_absolute_uri()
        for name in ("after", "before"):
            url = remove_query_param(url, name)
        ((name, value),) = cursor.items()
        return str(replace_query_param(url, name, value))

    @action(detail=True)
    def gap(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """A member, the nearest one above it, which has a better rank, and the gap between their scores.

        With me in the path, the one above you. Both are null if there is none. The gap of equal scores is 0.

        member: with me in the path, the id of the member, if several of yours match the filters.
        """
        entry, above, distance = self.get_filtered().gap(self._get_named())
        rows = self._get_rows([one for one in (entry, above) if one]) if self.shows_rows() else None
        mine, better = (
            next(iter(self.get_results([one] if one else [], rows)), None) for one in (entry, above)
        )
        # The gap to a hidden member would tell its score.
        return self._join(mine, {"above": better, "gap": _spell(distance) if better else None})

    def _get_named(self) -> Any:
        """Return the row that the path names, or with me in it, the user's own."""
        return self.get_asking() if self.is_personal() else self.get_object()

    @action(detail=False)
    def counts(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The number of members with each value of a facet, largest first.

        facet: its name; for a facet of several columns, their names separated by commas.

        n: the largest number of values to show. The response has the number of all values as count.
        """
        facet, n = self.arguments["facet"], self.arguments.get("n", get_settings().max_n)
        names = {path: name for name, path in self.get_filters().items()}
        counts = self._get_counts(self.get_filtered(), facet.paths)
        parts = [names[path] for path in facet.paths]
        results = [
            {"values": dict(zip(parts, value if len(parts) > 1 else (value,), strict=True)), "count": count}
            for value, count in counts.largest[:n]
        ]
        return Response({"count": counts.number, "results": results})

    def _get_counts(self, ranking: Ranking, paths: Sequence[str]) -> Counts:
        """Return the counts of a facet, and its ``MAX_N`` largest values."""
        most = get_settings().max_n

        def count() -> Counts:
            counts = ranking.counts(*paths)
            order = nsmallest(most, counts.items(), key=lambda item: (-item[1], str(item[0])))
            return Counts(len(counts), order)

        # A view is of an index, and of some of its members. Another build may hold others.
        build = reader_of(ranking.index).believed
        if self.keep_counts is None or build is None:  # no build has been read yet
            return count()
        what = (ranking.index, build, ranking.view, ranking.server, tuple(paths), most)
        timeout = settings_of(FilterSettings).filter_timeout
        patience = timeout if self.max_wait is None else min(timeout, self.max_wait)
        return _counts.get(what, count, seconds=self.keep_counts, patience=patience)

    def _get_standing(self, member: Any, rows: Mapping[Any, models.Model] | None = None) -> Response:
        ranking, among_all = self.get_filtered(), dict[str, Any]()
        if paths := self.arguments.get("in"):
            entry, among_all = self._get_standings(ranking, member, paths)
        elif serializers.shows_rank(self.get_serializer_class()):
            entry, size, percentile = ranking.standing(member)
            among_all = {"count": size, "percentile": percentile}
        else:
            entry = ranking.entry(member)
        return self._join(next(iter(self.get_results([entry], rows)), None), among_all)

    def _get_standings(
        self, ranking: Ranking, member: Any, paths: Sequence[str]
    ) -> tuple[Entry, dict[str, Any]]:
        """Return the entry of a member, and what else there is about it in a ranking and in those of its facets. 400 if
        there are none."""
        try:
            whole, *others = ranking.standings(member, *paths)
        except ValueError as error:
            logger.warning("%s", error)
            message = _("There are no rankings of these facets, or not under these filters.")
            raise ValidationError({"in": [message]}, code="invalid") from error
        names = {path: name for name, path in self.get_filters().items()}
        standings = [
            {
                "values": {names[path]: value for path, value in one.values.items() if path in names},
                "rank": one.entry.rank,
                "count": one.size,
                "percentile": one.percentile,
            }
            for one in others
        ]
        return whole.entry, {"count": whole.size, "percentile": whole.percentile, "standings": standings}

    def _join(self, result: Mapping[str, Any] | None, further: Mapping[str, Any]) -> Response:
        """Answer with a result and what else there is about its member. 404 if the view's queryset doesn't show it."""
        if result is None:
            raise exceptions.MemberNotRanked
        if clashing := result.keys() & further.keys():
            raise ImproperlyConfigured(
                f"{self.get_serializer_class().__name__}: a result of {self.action!r} has the ranking's own "
                f"{min(clashing)!r}, so a field of the serializer needs another name."
            )
        return Response({**result, **further})


def _answer_conditionally(request: Any, response: Any) -> Any:
    """Set the ETag of a rendered response; return a 304 if the client has it already."""
    caching.set_response_etag(response)
    return caching.get_conditional_response(request, etag=response["ETag"], response=response)


class ScoreViewSet(IndexViewSet):
    """Change the score of a member, which takes effect in the ranking at once.

    Give each change an Idempotency-Key of its own, such as a UUID. Sent again with the same key, it counts once.
    """

    permission_classes = [IsAdminUser]
    """The permissions, checked for the request and for the member. Users that pass them set scores: ``[IsOwner]`` lets
    players report their own."""

    query_classes = {"change": query.QuerySerializer}
    parser_classes = [JSONParser]
    pagination_class = None

    @classmethod
    def as_view(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a view outside of transactions, also with ``ATOMIC_REQUESTS``: a change can't be rolled back, and no
        member is woken inside a transaction."""
        view = super().as_view(*args, **kwargs)
        for using in connections:
            view = transaction.non_atomic_requests(using)(view)
        return view

    def get_filters(self) -> Mapping[str, str]:
        return {}

    def get_serializer_class(self) -> Any:
        try:
            return serializers.get_change_serializer(self._get_changed_index())
        except NotFound:  # REST framework shows a form on the page that says so
            return serializers.ChangeSerializer

    def get_idempotency_key(self) -> str:
        """Return the idempotency key of this change, ``""`` for none. Default: the user's id and the header. Redis
        holds only a digest of it."""
        given = self.request.headers.get(serializers.IDEMPOTENCY_KEY)
        if given is None:
            return ""
        try:
            key = CharField(max_length=serializers.LONGEST_KEY).run_validation(given)
        except ValidationError as error:
            raise ValidationError({serializers.IDEMPOTENCY_KEY: error.detail}) from None
        user = str(getattr(self.request.user, "pk", None) or "")  # UNAUTHENTICATED_USER may be None
        # The length first: an id may be text with a colon.
        return f"{len(user)}:{user}:{key}"

    def change(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Change the score of one member."""
        index, key = self._get_changed_index(), self.get_idempotency_key()
        try:
            given = request.data
        except RecursionError as error:
            raise ParseError(_("JSON parse error: nested too deeply")) from error
        serializer = self.get_serializer(data=given)
        serializer.is_valid(raise_exception=True)
        ((name, change),) = serializer.validated_data.items()
        member = self.get_object()
        try:
            score, is_replay = index.scores.change(member, change, key=key)
        except ValueError as error:
            if str(error).startswith("key:"):
                raise exceptions.KeyReused from error
            logger.warning("%s", error)
            raise ValidationError({name: [_("The score would leave its range.")]}, "out_of_range") from error
        headers = {serializers.REPLAYED: "true"} if is_replay else None
        return Response({"pk": member.pk, "score": score}, headers=headers)

    def _get_changed_index(self) -> RankIndex:
        if not self.served.is_ahead:
            raise NotFound(_("The scores of this index can't be changed here."))
        return self.served
