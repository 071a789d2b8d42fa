"""The views. Each is a shell around one verb of a ranking."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django.db import DataError, models
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.generics import get_object_or_404
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.settings import api_settings
from rest_framework.viewsets import GenericViewSet

from ..conf import get_settings
from ..entries import Entry
from ..exceptions import FilterTooLarge, IndexUnavailable, NotRanked
from ..index import RankIndex
from ..ranking import Ranking
from ..registry import registry
from .exceptions import MemberNotRanked, RankingUnavailable
from .pagination import Board, get_pagination_class
from .parameters import (
    AroundParameters,
    BandField,
    CountsParameters,
    RankingParameters,
    RecommendationParameters,
)
from .permissions import IsOwner
from .schema import IndexSchema
from .serializers import EntrySerializer, combine

__all__ = ["IndexViewSet", "LeaderboardViewSet", "RecommendationViewSet"]

logger = logging.getLogger(__name__)


class IndexViewSet(GenericViewSet[Any]):
    """What every view of an index shares: which index, which member, and what its errors become.

    The docstring of a view with a path is written for its clients: REST framework shows it to them.
    """

    index: type[RankIndex] | RankIndex | None = None
    """The index asked. Default: the one that the path names, else the project's default index."""

    permission_classes = [IsAuthenticated, IsOwner]
    """Who may ask, and as whom. A list of your own replaces this one, ``IsOwner`` included: unless it has a
    permission that looks at the member (``has_object_permission``), whoever gets in may ask as anybody."""

    serializer_class: type[BaseSerializer[Any]] = EntrySerializer
    """What a result shows beside ``pk``, ``score`` and ``rank``: a serializer of the index's model. Its rows
    come from ``get_queryset()`` and the filter backends, by one query; a member that isn't there is left out.
    With the default, or a subclass of it, no row is fetched."""

    parameter_classes: ClassVar[Mapping[str, type[RankingParameters]]] = {}
    """What reads the query string of each action. Default: the filters alone."""

    allow_groups = False
    """Whether ``group`` may be given. Who may name any group learns who is in it."""

    schema = IndexSchema()

    def get_index(self) -> RankIndex:
        """The index asked. 404 where there is none of that name, or none by default."""
        if self.index is not None:
            return self.index.instance() if isinstance(self.index, type) else self.index
        try:
            name = self.kwargs.get("index")
            return registry.default() if name is None else registry.get(name)
        except LookupError as error:
            raise NotFound(str(error)) from error

    def get_ranking(self) -> Ranking:
        """The ranking asked, before the filters of the query string: narrow it here for what everybody is
        held to."""
        return self.get_index().ranking

    def get_filters(self) -> Mapping[str, str]:
        """Parameter → path of the facet that it filters by. Default: every path of a facet, by its own name."""
        return {path: path for path in self.get_index().faceting.paths}

    def get_parameters_class(self) -> type[RankingParameters]:
        """What reads the query string of this action."""
        return self.parameter_classes.get(self.action or "", RankingParameters)

    def get_parameters(self) -> RankingParameters:
        """What the query string asks for. 400 for nonsense."""
        parameters = self.get_parameters_class()(
            data=self.request.query_params, context=self.get_serializer_context()
        )
        parameters.is_valid(raise_exception=True)
        return parameters

    def get_queryset(self) -> models.QuerySet[Any]:
        """The rows that the results, and a member asked as by ``?member=``, are taken from."""
        if self.queryset is not None:  # type: ignore[arg-type]  # The stubs take it for a descriptor
            return super().get_queryset()
        return self.get_index().model._default_manager.all()

    def get_own_member(self) -> Any:
        """The row of the user. 401 or 403 where nobody has signed in, 404 where the user has none.

        The index says that it is the user's, so no object permission is asked.
        """
        user = self.request.user
        if not (user and user.is_authenticated):
            self.permission_denied(self.request)
        return self.get_index().get_member(user)

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
        if issubclass(self.get_serializer_class(), EntrySerializer):
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
        elif isinstance(exc, IndexUnavailable):
            logger.warning("%s", exc)
            exc = RankingUnavailable()
        return super().handle_exception(exc)


class RecommendationViewSet(IndexViewSet):
    """Random members of a ranking whose score is near mine, half ranked before me, half after.

    * `n`: how many.
    * `band`: how far their scores may lie from mine, `10`, or `50,100` for below and above.
    * `ranks`: how far their ranks may lie from mine instead.
    * `widen`: a wider band to try where there are too few. Once for every step: `widen=25&widen=50,100`.
    * `exclude`: ids of members to leave out, `exclude=3,5,8`.
    * `member`: the id of the member to ask as, for those who may.
    * Any facet is a filter: `region=kantou`, `region=kantou,kansai`, `region__not=kantou`, `region__isnull=true`.

    The answer says which band was used and how many others stand in it, those to leave out counted too.
    Every request draws anew, so there are no pages.
    """

    parameter_classes = {"list": RecommendationParameters}
    pagination_class = None

    default_n = 10
    """Members drawn where the request doesn't say how many. ``ZRANK["MAX_N"]`` is the ceiling of both."""

    max_excluded = 1000
    """The most ids that ``exclude`` takes."""

    allow_seed = False
    """Whether ``seed`` may be given. Who chooses the seed chooses who is drawn: it is for tests and demos."""

    @property
    def default_response_headers(self) -> dict[str, str]:
        # As by never_cache(), without its 50 µs of working that out again for each response.
        return {
            **super().default_response_headers,
            "Cache-Control": "max-age=0, no-cache, no-store, must-revalidate, private",
        }

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        parameters = self.get_parameters()
        arguments = {"n": min(self.default_n, get_settings().max_n), **parameters.arguments}
        member = self.get_member(arguments.pop("member", None))
        recommendations = parameters.narrow(self.get_ranking()).recommend(member, **arguments)
        return Response(
            {
                "band": BandField().to_representation(recommendations.band),
                "candidates": recommendations.candidates,
                "results": self.get_results(recommendations),
            }
        )


class LeaderboardViewSet(IndexViewSet):
    """The members of a ranking, best first, by pages.

    Any facet is a filter: `region=kantou` for the leaderboard of a region, `region=kantou,kansai` for that of two
    together, `region__not=kantou`, `region__isnull=true`. Ranks are then those within it.
    """

    permission_classes = [IsAuthenticated]
    """Who may look. Whoever may sees everybody's place."""

    parameter_classes = {"around": AroundParameters, "counts": CountsParameters}
    pagination_class = get_pagination_class()

    default_n = 10
    """Members around one where the request doesn't say how many."""

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        ranking = self.get_parameters().narrow(self.get_ranking())
        page: list[Entry] | None = self.paginate_queryset(Board(ranking, self.paginator))  # type: ignore[arg-type]
        if page is None:
            return Response(self.get_results(ranking.top(get_settings().max_n)))
        return self.get_paginated_response(self.get_results(page))

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The place of one member: rank and score. With a filter, the rank among those that pass it."""
        parameters = self.get_parameters()
        member = self.get_member(self._get_key(), lookup_field=self.lookup_field)
        entry = parameters.narrow(self.get_ranking()).entry(member)
        return self._get_place(entry, {entry.pk: member})

    @action(detail=False, name="My place")
    def me(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """My own place: rank and score. With a filter, my rank among those that pass it."""
        parameters = self.get_parameters()
        member = self.get_own_member()
        return self._get_place(parameters.narrow(self.get_ranking()).entry(member))

    @action(detail=True)
    def around(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Who stands around a member, best first, itself included. `me` in the path is mine.

        `n` is how many in all; near an end of the ranking, there are more of them on the other side.
        """
        parameters, key = self.get_parameters(), self._get_key()
        member = self.get_member(None if key == "me" else key, lookup_field=self.lookup_field)
        n = parameters.arguments.get("n", min(self.default_n, get_settings().max_n))
        entries = parameters.narrow(self.get_ranking()).around(member, n)
        return Response({"results": self.get_results(entries)})

    @action(detail=False)
    def counts(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """How many members there are for each value of a facet, most first.

        `facet` names it: `facet=region`, or `facet=region,platform` for one of several columns. `n` limits the values
        shown; `count` says how many there are.
        """
        parameters = self.get_parameters()
        facet, n = parameters.arguments["facet"], parameters.arguments.get("n", get_settings().max_n)
        names = {path: name for name, path in self.get_filters().items()}
        counts = parameters.narrow(self.get_ranking()).counts(*facet.paths)
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
