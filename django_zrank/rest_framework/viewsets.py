"""The views. Each is a shell around one verb of a ranking."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from django.db import DataError, models
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from rest_framework.exceptions import NotFound
from rest_framework.generics import get_object_or_404
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.viewsets import GenericViewSet

from ..conf import get_settings
from ..exceptions import IndexUnavailable, NotRanked
from ..index import RankIndex
from ..recommendations import Recommendations
from ..registry import registry
from .exceptions import MemberNotRanked, RankingUnavailable
from .parameters import BandField, RecommendationParameters
from .permissions import IsOwner
from .serializers import EntrySerializer, combine

__all__ = ["IndexViewSet", "RecommendationViewSet"]

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

    def get_index(self) -> RankIndex:
        """The index asked. 404 where there is none of that name, or none by default."""
        if self.index is not None:
            return self.index.instance() if isinstance(self.index, type) else self.index
        try:
            name = self.kwargs.get("index")
            return registry.default() if name is None else registry.get(name)
        except LookupError as error:
            raise NotFound(str(error)) from error

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

    def get_member(self, pk: Any = None) -> Any:
        """The member asked as: the row ``pk``, where the permissions allow it, or else the user's own."""
        if pk is None:
            return self.get_own_member()
        try:
            member = get_object_or_404(self.get_queryset(), pk=pk)
        except (OverflowError, DataError) as error:  # An id beyond what the column holds
            raise NotFound from error
        self.check_object_permissions(self.request, member)
        return member

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, NotRanked):
            exc = MemberNotRanked()
        elif isinstance(exc, IndexUnavailable):
            logger.warning("%s", exc)
            exc = RankingUnavailable()
        return super().handle_exception(exc)


@method_decorator(never_cache, name="dispatch")
class RecommendationViewSet(IndexViewSet):
    """Random members of a ranking whose score is near mine, half ranked before me, half after.

    * `n`: how many.
    * `band`: how far their scores may lie from mine, `10`, or `50,100` for below and above.
    * `widen`: a wider band to try where there are too few. Once for every step: `widen=25&widen=50,100`.
    * `exclude`: ids of members to leave out, `exclude=3,5,8`.
    * `member`: the id of the member to ask as, for those who may.

    The answer says which band was used and how many others stand in it, those to leave out counted too.
    Every request draws anew, so there are no pages.
    """

    serializer_class: type[BaseSerializer[Any]] = EntrySerializer
    """What a result shows beside ``pk``, ``score`` and ``rank``: a serializer of the index's model. Its rows
    come from ``get_queryset()`` and the filter backends, by one query; a member that isn't there is left out.
    With the default, or a subclass of it, no row is fetched."""

    pagination_class = None

    default_n = 10
    """Members drawn where the request doesn't say how many. ``ZRANK["MAX_N"]`` is the ceiling of both."""

    max_excluded = 1000
    """The most ids that ``exclude`` takes."""

    allow_seed = False
    """Whether ``seed`` may be given. Who chooses the seed chooses who is drawn: it is for tests and demos."""

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        parameters = self.get_parameters()
        member = self.get_member(parameters.pop("member", None))
        recommendations = self.get_index().ranking.recommend(member, **parameters)
        return Response(
            {
                "band": BandField().to_representation(recommendations.band),
                "candidates": recommendations.candidates,
                "results": self.get_results(recommendations),
            }
        )

    def get_parameters(self) -> dict[str, Any]:
        """What ``recommend()`` is called with, and ``member`` where it is given. 400 for nonsense."""
        serializer = RecommendationParameters(
            data=self.request.query_params, context=self.get_serializer_context()
        )
        serializer.is_valid(raise_exception=True)
        return {"n": min(self.default_n, get_settings().max_n), **serializer.validated_data}

    def get_results(self, recommendations: Recommendations) -> Sequence[dict[str, Any]]:
        """One dictionary per member drawn, best first."""
        if issubclass(self.get_serializer_class(), EntrySerializer):
            entries: Sequence[dict[str, Any]] = self.get_serializer(recommendations, many=True).data
            return entries
        rows = recommendations.objects(self.filter_queryset(self.get_queryset()))
        return combine(self.get_index(), recommendations, rows, self.get_serializer(rows, many=True))
