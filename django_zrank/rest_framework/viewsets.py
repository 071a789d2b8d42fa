"""The views. Each is a shell around one verb of a ranking."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from django.core.exceptions import TooManyFieldsSent
from django.db import DataError, models
from django.utils.translation import gettext_lazy as _
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.generics import get_object_or_404
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.settings import api_settings
from rest_framework.viewsets import GenericViewSet

from ..conf import get_settings
from ..entries import Entry
from ..exceptions import FilterTooLarge, IndexUnavailable, NotRanked
from ..index import Band, RankIndex
from ..ranking import Ranking
from ..registry import registry
from .exceptions import MemberNotRanked, NoOwner, RankingUnavailable
from .framework import backend_parameters, common_parameters
from .names import RESERVED, filter_name
from .pagination import Board, get_page_parameters, get_pagination_class
from .parameters import show_band, sides
from .permissions import IsOwner, get_permission_classes
from .query import AroundQuery, Asked, CountsQuery, Limits, ListQuery, Query, RecommendationQuery, get_query
from .serializers import EntrySerializer, combine

__all__ = ["IndexViewSet", "LeaderboardViewSet", "RecommendationViewSet"]

logger = logging.getLogger(__name__)


class IndexViewSet(GenericViewSet[Any]):
    """Base of the views of an index: which index, which member, and what its errors become.

    The docstring of a view with a path is written for its clients: REST framework shows it to them.
    """

    index: type[RankIndex] | RankIndex | None = None
    """The index asked. Default: the one that the path names, else the project's default index."""

    permission_classes = get_permission_classes()
    """Who may ask. Default: the project's ``DEFAULT_PERMISSION_CLASSES``, else ``[IsAuthenticated]``."""

    serializer_class: type[BaseSerializer[Any]] = EntrySerializer
    """What a result shows beside ``pk``, ``score`` and ``rank``: a serializer of the index's model. Its rows
    come from ``get_queryset()`` and the filter backends, by one query; a member that isn't there is left out.
    With the default, or a subclass of it, no row is fetched."""

    query_classes: ClassVar[Mapping[str, type[Query]]] = {}
    """What reads the query string of each action. Default: the filters alone."""

    filtered_actions: ClassVar[Collection[str]] = ("list",)
    """The actions that the filter backends apply to, where the serializer shows rows."""

    allow_groups = False
    """Whether ``group`` may be given. Who may name any group learns who is in it."""

    allow_unknown = False
    """Whether unknown parameters are ignored. By default they are a 400."""

    extra_parameters: Collection[str] = ()
    """Further parameters that requests may have, such as ``utm_source``, or those that code of yours reads."""

    def get_index(self) -> RankIndex:
        """The index asked. 404 where there is none of that name, or none by default."""
        if self.index is not None:
            return self.index.instance() if isinstance(self.index, type) else self.index
        name = self.kwargs.get("index")
        try:
            return registry.default() if name is None else registry.get(name)
        except LookupError as error:
            if name is not None:
                raise NotFound(_("There is no index called “{name}”.").format(name=name)) from error
            logger.warning("%s", error)  # It names a setting, which is not for clients
            raise NotFound(_("No ranking is served here. Name an index in the path.")) from error

    def get_ranking(self) -> Ranking:
        """The ranking asked, before the filters of the query string: narrow it here for what everybody is
        held to."""
        return self.get_index().ranking

    def get_filters(self) -> Mapping[str, str]:
        """Parameter → path of the facet that it filters by. Default: every path of a facet, by its own name, or
        ``facet_band`` where ``band`` is another parameter."""
        paths = self.get_index().faceting.paths
        taken = {*RESERVED, *get_page_parameters(self.paginator), *self.extra_parameters}
        taken.update(common_parameters(self), backend_parameters(self))
        return {filter_name(path, taken, paths): path for path in paths}

    def get_limits(self) -> Limits:
        """What clients may ask of this action."""
        others = {*common_parameters(self), *self.extra_parameters}
        if self.action in self.filtered_actions and self.shows_rows():
            others.update(backend_parameters(self))
        return Limits(
            index=self.get_index(),
            max_n=get_settings().max_n,
            filters=tuple(self.get_filters().items()),
            allow_groups=self.allow_groups,
            allow_unknown=self.allow_unknown,
            others=frozenset(others),
        )

    def get_query_class(self) -> type[Query]:
        """What reads the query string of this action."""
        return self.query_classes.get(self.action or "", Query)

    def get_query(self) -> Query:
        """The reader of this action's query string, for what its clients may ask."""
        query_class: Any = self.get_query_class()  # mypy doesn't take a class for hashable
        return get_query(query_class, self.get_limits())

    def get_asked(self) -> Asked:
        """What the query string asks for. 400 for what this view doesn't take."""
        return self.get_query().read(self.request.query_params)

    def shows_rows(self) -> bool:
        """Whether results show rows of the model, rather than the ranking's own values alone."""
        return not issubclass(self.get_serializer_class(), EntrySerializer)

    def get_queryset(self) -> models.QuerySet[Any]:
        """The rows that the results, and a member asked as by ``?member=``, are taken from."""
        if self.queryset is not None:  # type: ignore[arg-type]  # The stubs take it for a descriptor
            return super().get_queryset()
        return self.get_index().model._default_manager.all()  # type: ignore[no-any-return]

    def get_own_member(self) -> Any:
        """The row of the user. 401 or 403 where nobody has signed in, 404 where the user has none.

        The index says that it is the user's, so no object permission is asked.
        """
        user = self.request.user
        if not (user and user.is_authenticated):
            self.permission_denied(self.request)
        index = self.get_index()
        by_owner = type(index).get_member is RankIndex.get_member
        if by_owner and index.get_owner() is None and not isinstance(user, index.model):
            raise NoOwner(index.name)
        return index.get_member(user)

    def get_member(self, pk: Any = None, *, lookup_field: str = "pk") -> Any:
        """The member asked as, or about: the row ``pk``, where the permissions allow it, or else the user's own."""
        if pk is None:
            return self.get_own_member()
        try:
            member = get_object_or_404(self.get_queryset(), **{lookup_field: pk})
        except (OverflowError, DataError) as error:  # An id beyond what the column holds
            raise NotFound from error
        self.check_object_permissions(self.request, member)
        return member

    def get_results(
        self, entries: Sequence[Entry], rows: Mapping[Any, models.Model] | None = None
    ) -> list[dict[str, Any]]:
        """What is shown of each of ``entries``. ``rows``, by primary key, are looked up if they aren't given."""
        if not self.shows_rows():
            return list(self.get_serializer(entries, many=True).data)
        if rows is None:
            rows = self.filter_queryset(self.get_queryset()).in_bulk([entry.pk for entry in entries])
        entries = [entry for entry in entries if entry.pk in rows]
        shown = self.get_serializer([rows[entry.pk] for entry in entries], many=True)
        return combine(self.get_index(), entries, shown)

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, NotRanked):
            exc = MemberNotRanked()
        elif isinstance(exc, FilterTooLarge):
            exc = ValidationError({api_settings.NON_FIELD_ERRORS_KEY: [str(exc)]}, code="filter_too_large")
        elif isinstance(
            exc, TooManyFieldsSent
        ):  # Django's own 400 is a page, and REST framework's debugging a 500
            message = _("There are too many parameters.")
            exc = ValidationError({api_settings.NON_FIELD_ERRORS_KEY: [message]}, code="too_many")
        elif isinstance(exc, IndexUnavailable):
            logger.warning("%s", exc)
            exc = RankingUnavailable()
        return super().handle_exception(exc)


class RecommendationViewSet(IndexViewSet):
    """Random members of a ranking whose score is near mine, half ranked before me, half after.

    * `n`: how many.
    * `band`: how far their scores may lie from mine, `10`, or `50,100` for below and above.
    * `ranks`: how far their ranks may lie from mine instead; a band is then not used.
    * `widen`: a wider band to try where there are too few. Once for every step: `widen=25&widen=50,100`.
    * `exclude`: ids of members to leave out, `exclude=3,5,8`.
    * `member`: the id of the member to ask as, for those who may.
    * Each facet of the index is a filter by its name; with `__not` and `__isnull` after it, by what a member hasn't.

    The answer says which band was used and how many others stand in it, those to leave out counted too.
    Every request draws anew, so there are no pages.
    """

    query_classes = {"list": RecommendationQuery}
    pagination_class = None

    member_permission_classes: Sequence[type[BasePermission]] = [IsOwner]
    """Who may ask as whom by ``?member=``, beside ``permission_classes``: each is asked about the request and about the
    member. Default: everybody as a member of their own. For staff to ask as others: ``[IsOwner | IsAdminUser]``."""

    default_n = 10
    """Members drawn where the request doesn't say how many. ``ZRANK["MAX_N"]`` is the ceiling of both."""

    max_excluded = 1000
    """The most ids that ``exclude`` takes."""

    allow_seed = False
    """Whether ``seed`` may be given. Who chooses the seed chooses who is drawn: it is for tests and demos."""

    allow_band = True
    """Whether ``band``, ``ranks`` and ``widen`` may be given."""

    max_band: Band | None = None
    """The widest band that ``band`` and ``widen`` ask for: a wider one is cut to it, as the answer shows. Default: ten
    times the index's ``band``. Who may ask any band finds the weakest opponents there are."""

    max_ranks: int | tuple[int, int] | None = 1000
    """The same for ``ranks``: how many ranks away at most. None: no ceiling."""

    @property
    def default_response_headers(self) -> dict[str, str]:
        # As by never_cache(), without its 50 µs of working that out again for each response.
        return {
            **super().default_response_headers,
            "Cache-Control": "max-age=0, no-cache, no-store, must-revalidate, private",
        }

    def get_max_band(self) -> Band | None:
        """The widest band that may be asked for. None: no ceiling, as by default where the index has no band."""
        band = self.get_index().get_band() if self.max_band is None else None
        if band is None:
            return self.max_band
        below, above = sides(band)
        return 10 * below, 10 * above

    def get_limits(self) -> Limits:
        return replace(
            super().get_limits(),
            max_excluded=self.max_excluded,
            allow_seed=self.allow_seed,
            allow_band=self.allow_band,
            max_band=self.get_max_band(),
            max_ranks=self.max_ranks,
        )

    def get_member(self, pk: Any = None, *, lookup_field: str = "pk") -> Any:
        member = super().get_member(pk, lookup_field=lookup_field)
        if pk is not None:
            self.check_member_permissions(member)
        return member

    def check_member_permissions(self, member: models.Model) -> None:
        """Answer 403, or 401, where the user may not ask as ``member``."""
        for permission_class in self.member_permission_classes:
            permission = permission_class()
            if not (
                permission.has_permission(self.request, self)
                and permission.has_object_permission(self.request, self, member)
            ):
                self.permission_denied(self.request, message=getattr(permission, "message", None))

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        asked = self.get_asked()
        arguments = {"n": min(self.default_n, get_settings().max_n), **asked.arguments}
        member = self.get_member(arguments.pop("member", None))
        recommendations = asked.narrow(self.get_ranking()).recommend(member, **arguments)
        return Response(
            {
                "band": show_band(recommendations.band),
                "candidates": recommendations.candidates,
                "results": self.get_results(recommendations),
            }
        )


class LeaderboardViewSet(IndexViewSet):
    """The members of a ranking, best first, by pages.

    Each facet of the index is a filter by its name: members with a value, or with one of several, separated by commas;
    with `__not` after the name those without it, with `__isnull` those that have none. Ranks are then those within it.
    """

    query_classes = {"list": ListQuery, "around": AroundQuery, "counts": CountsQuery}
    filtered_actions = ("list", "me", "around")
    pagination_class = get_pagination_class()

    default_n = 10
    """Members around one where the request doesn't say how many."""

    def get_limits(self) -> Limits:
        limits = super().get_limits()
        if self.action != "list":
            return limits
        pages = get_page_parameters(self.paginator)
        return replace(limits, others=limits.others.union(pages), pages=tuple(pages.items()))

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        ranking = self.get_asked().narrow(self.get_ranking())
        page: list[Entry] | None = self.paginate_queryset(Board(ranking, self.paginator))  # type: ignore[arg-type]
        if page is None:
            return Response(self.get_results(ranking.top(get_settings().max_n)))
        return self.get_paginated_response(self.get_results(page))

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The place of one member: rank and score. With a filter, the rank among those that pass it."""
        asked = self.get_asked()
        member = self.get_member(self._get_key(), lookup_field=self.lookup_field)
        entry = asked.narrow(self.get_ranking()).entry(member)
        return self._get_place(entry, {entry.pk: member})

    @action(detail=False, name="My place")
    def me(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """My own place: rank and score. With a filter, my rank among those that pass it."""
        asked = self.get_asked()
        member = self.get_own_member()
        return self._get_place(asked.narrow(self.get_ranking()).entry(member))

    @action(detail=True)
    def around(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Who stands around a member, best first, itself included. `me` in the path is mine.

        `n` is how many in all; near an end of the ranking, there are more of them on the other side.
        """
        asked, key = self.get_asked(), self._get_key()
        member = self.get_member(None if key == "me" else key, lookup_field=self.lookup_field)
        n = asked.arguments.get("n", min(self.default_n, get_settings().max_n))
        entries = asked.narrow(self.get_ranking()).around(member, n)
        return Response({"results": self.get_results(entries)})

    @action(detail=False)
    def counts(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """How many members there are for each value of a facet, most first.

        `facet` names it, or the columns of one of several, separated by commas. `n` limits the values
        shown; `count` says how many there are.
        """
        asked = self.get_asked()
        facet, n = asked.arguments["facet"], asked.arguments.get("n", get_settings().max_n)
        names = {path: name for name, path in self.get_filters().items()}
        counts = asked.narrow(self.get_ranking()).counts(*facet.paths)
        largest = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))[:n]
        return Response(
            {
                "count": len(counts),
                "results": [
                    {
                        "values": dict(
                            zip(
                                (names[path] for path in facet.paths),
                                value if len(facet.paths) > 1 else (value,),
                                strict=True,
                            )
                        ),
                        "count": count,
                    }
                    for value, count in largest
                ],
            }
        )

    def _get_key(self) -> str:
        return str(self.kwargs[self.lookup_url_kwarg or self.lookup_field])

    def _get_place(self, entry: Entry, rows: Mapping[Any, models.Model] | None = None) -> Response:
        for result in self.get_results([entry], rows):
            return Response(result)
        raise MemberNotRanked  # The view's queryset doesn't show it
