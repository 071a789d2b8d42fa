"""The views. Each action calls one method of a ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from math import inf
from typing import Any

from django.db import models
from django.utils.duration import duration_string
from rest_framework.decorators import action
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from ..conf import get_settings
from ..entries import Entry
from ..index import Band
from .base import IndexViewSet
from .exceptions import MemberNotRanked
from .pagination import RankingList, get_page_parameters, get_pagination_class
from .permissions import IsOwner
from .query import AroundQuery, CountsQuery, Limits, ListQuery, RecommendationQuery

__all__ = ["IndexViewSet", "LeaderboardViewSet", "RecommendationViewSet"]


class RecommendationViewSet(IndexViewSet):
    """Random members of a ranking whose score is near mine, half ranked before me, half after.

    * `n`: how many.
    * `band`: how far their scores may lie from mine, `10`, or `50,100` for below and above.
    * `ranks`: how far their ranks may lie from mine instead; a band is then not used.
    * `widen`: a wider band to try where there are too few. Once for every step: `widen=25&widen=50,100`.
    * `exclude`: ids of members to leave out, `exclude=3,5,8`.
    * `member`: the id of the member to ask as, for those who may.
    * Each facet of the index is a filter by its name; with `__not` and `__isnull` after it, by what a member hasn't.

    The response has the band that was used, and the number of other members in it, excluded ones included; null if it
    isn't known, as with several filters that no facet covers.
    Every request is a new draw, so there are no pages.
    """

    query_classes = {"list": RecommendationQuery}
    pagination_class = None

    member_permission_classes: Sequence[type[BasePermission]] = [IsOwner]
    """The permissions of ``?member=``, beside ``permission_classes``: each is checked for the request and for the
    member. Default: users may ask as members of their own. For staff to ask as others: ``[IsOwner | IsAdminUser]``."""

    default_n = 10
    """Members drawn where the request doesn't say how many. ``ZRANK["MAX_N"]`` is the ceiling of both."""

    max_excluded = 1000
    """The most ids that ``exclude`` takes."""

    allow_seed = False
    """True to allow ``seed``, for tests and demos: a client that chooses the seed chooses the members drawn."""

    allow_band = True
    """True to allow ``band``, ``ranks`` and ``widen``."""

    max_band: Band | None = None
    """The widest band that ``band`` and ``widen`` ask for: a wider one is cut to it, as the answer shows. Default: ten
    times the index's ``band``. A client that may choose any band finds the weakest opponents there are."""

    max_ranks: int | tuple[int, int] | None = 1000
    """The same for ``ranks``: how many ranks away at most. None: no ceiling."""

    @property
    def default_response_headers(self) -> dict[str, str]:
        # As never_cache() sets it, which takes 50 µs for each response.
        return {
            **super().default_response_headers,
            "Cache-Control": "max-age=0, no-cache, no-store, must-revalidate, private",
        }

    def get_max_band(self) -> Band | None:
        """Return the widest band allowed. None: no ceiling, as by default if the index has no band."""
        band = self.served.get_band() if self.max_band is None else None
        if band is None:
            return self.max_band
        below, above = band if isinstance(band, (tuple, list)) else (band, band)
        return _tenfold(below), _tenfold(above)

    def get_limits(self, **own: Any) -> Limits:
        band, ranks = self.get_max_band(), self.max_ranks
        return super().get_limits(
            max_excluded=self.max_excluded,
            allow_seed=self.allow_seed,
            allow_band=self.allow_band,
            max_band=tuple(band) if isinstance(band, list) else band,
            max_ranks=tuple(ranks) if isinstance(ranks, list) else ranks,
            **own,
        )

    def get_member(self, pk: Any, *, lookup_field: str = "pk") -> Any:
        member = super().get_member(pk, lookup_field=lookup_field)
        self.check_member_permissions(member)
        return member

    def check_member_permissions(self, member: models.Model) -> None:
        """Answer 403, or 401, if the user may not ask as ``member``."""
        for permission_class in self.member_permission_classes:
            permission = permission_class()
            if not (
                permission.has_permission(self.request, self)
                and permission.has_object_permission(self.request, self, member)
            ):
                self.permission_denied(self.request, message=getattr(permission, "message", None))

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        arguments, conditions = self.get_query().read(request.query_params)
        arguments.setdefault("n", min(self.default_n, get_settings().max_n))
        if "ranks" in arguments:
            arguments.pop("band", None)
        pk = arguments.pop("member", None)
        member = self.get_own_member(conditions) if pk is None else self.get_member(pk)
        if self.served.has_several and (own := self.get_own_rows()):  # nobody is one's own opponent
            arguments["exclude"] = [*arguments.get("exclude", ()), *own]
        recommendations = self.get_filtered(conditions).recommend(member, **arguments)
        band: Any = recommendations.band
        return Response(
            {
                # In a form that ``band`` takes: seconds would not do, since the band of a date counts in days.
                "band": [duration_string(one) if isinstance(one, timedelta) else one for one in band],
                "candidates": recommendations.candidates,
                "results": self.get_results(recommendations),
            }
        )


@lru_cache(maxsize=256)
def _tenfold(distance: Any) -> Any:
    """Return ten times a distance; the distance itself if its type has no such value."""
    try:
        tenfold = 10 * distance
    except OverflowError:
        return distance
    return distance if tenfold == inf else tenfold


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

    def get_limits(self, **own: Any) -> Limits:
        limits = super().get_limits(**own)
        if self.action != "list":
            return limits
        pages = get_page_parameters(self.paginator)
        return replace(limits, others=limits.others.union(pages), pages=tuple(pages.items()))

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        _, conditions = self.get_query().read(request.query_params)
        ranking = self.get_filtered(conditions)
        page: list[Entry] | None = self.paginate_queryset(RankingList(ranking, self.paginator))  # type: ignore[arg-type]
        if page is None:
            return Response(self.get_results(ranking.top(get_settings().max_n)))
        return self.get_paginated_response(self.get_results(page))

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One member: rank and score. With a filter, the rank among those that pass it."""
        _, conditions = self.get_query().read(request.query_params)
        member = self.get_member(self._get_key(), lookup_field=self.lookup_field)
        entry = self.get_filtered(conditions).entry(member)
        return self._get_location(entry, {entry.pk: member})

    @action(detail=False, name="My rank")
    def me(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """My own rank and score. With a filter, my rank among those that pass it."""
        _, conditions = self.get_query().read(request.query_params)
        member = self.get_own_member(conditions)
        return self._get_location(self.get_filtered(conditions).entry(member))

    @action(detail=True)
    def around(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The members around a member, best first, itself included. `me` in the path is mine.

        `n` is how many in all; near an end of the ranking, there are more of them on the other side.
        """
        arguments, conditions = self.get_query().read(request.query_params)
        key = self._get_key()
        member = (
            self.get_own_member(conditions)
            if key == "me"
            else self.get_member(key, lookup_field=self.lookup_field)
        )
        n = arguments.get("n", min(self.default_n, get_settings().max_n))
        entries = self.get_filtered(conditions).around(member, n)
        return Response({"results": self.get_results(entries)})

    @action(detail=False)
    def counts(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The number of members for each value of a facet, most first.

        `facet` names it, or the columns of one of several, separated by commas. `n` limits the values
        shown; `count` says how many there are.
        """
        arguments, conditions = self.get_query().read(request.query_params)
        facet, n = arguments["facet"], arguments.get("n", get_settings().max_n)
        names = {path: name for name, path in self.get_filters().items()}
        counts = self.get_filtered(conditions).counts(*facet.paths)
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

    def _get_location(self, entry: Entry, rows: Mapping[Any, models.Model] | None = None) -> Response:
        for result in self.get_results([entry], rows):
            return Response(result)
        raise MemberNotRanked  # The view's queryset doesn't show it
