"""The base class of the views of an index."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from django.core.exceptions import TooManyFieldsSent
from django.db import DataError, models
from django.http import Http404
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.generics import get_object_or_404
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.settings import api_settings
from rest_framework.viewsets import GenericViewSet

from ..conf import get_settings
from ..entries import Entry
from ..exceptions import FilterNotReady, FilterTooLarge, IndexUnavailable, NotRanked
from ..index import RankIndex
from ..ranking import Ranking
from ..registry import registry
from .exceptions import MemberNotRanked, NoOwner, RankingUnavailable
from .filters import ParsedFilter, narrow
from .framework import backend_parameters, common_parameters
from .names import RESERVED, filter_name
from .pagination import get_page_parameters
from .permissions import get_permission_classes
from .query import Limits, Query
from .serializers import EntrySerializer, combine

__all__ = ["IndexViewSet"]

logger = logging.getLogger("django_zrank.rest_framework.viewsets")


class IndexViewSet(GenericViewSet[Any]):
    """Base of the views of an index: finds the index and the member, and handles the index's errors.

    The docstring of a view with a path is written for its clients: REST framework shows it to them.
    """

    index: type[RankIndex] | RankIndex | None = None
    """The index. Default: the one that the path names, else the project's default index."""

    permission_classes = get_permission_classes()
    """The permissions. Default: the project's ``DEFAULT_PERMISSION_CLASSES``, else ``[IsAuthenticated]``."""

    serializer_class: type[BaseSerializer[Any]] = EntrySerializer
    """A serializer of the index's model, for results to show its fields beside ``pk``, ``score`` and ``rank``. Its rows
    come from ``get_queryset()`` and the filter backends, by one query; members without a row are left out.
    With the default, or a subclass of it, no row is fetched."""

    query_classes: ClassVar[Mapping[str, type[Query]]] = {}
    """The parser of the query string of each action. Default: of the filters alone."""

    filtered_actions: ClassVar[Collection[str]] = ("list",)
    """The actions that the filter backends apply to, if the serializer shows rows."""

    max_scan: int | None = 100_000
    """The most members that a combination of filters that no facet covers is computed from, and the most values that
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

    _own_rows: Sequence[Any] | None = None

    def get_index(self) -> RankIndex:
        """Return the index. 404 if there is none of that name, or no default index."""
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

    @cached_property
    def served(self) -> RankIndex:
        """The index, looked up once a request."""
        return self.get_index()

    def get_ranking(self) -> Ranking:
        """Return the ranking, before the filters of the query string. Override it to restrict every request."""
        return self.served.ranking

    def get_filtered(self, conditions: Mapping[str, ParsedFilter]) -> Ranking:
        """Return the ranking, with the filters of the query string, bounded by ``max_scan`` and ``max_wait``."""
        return narrow(self.get_ranking(), conditions).within(seconds=self.max_wait, scan=self.max_scan)

    def get_filters(self) -> Mapping[str, str]:
        """Return the path of the facet that each parameter filters by. Default: all paths, each by its own name, or by
        ``facet_band`` if ``band`` is another parameter."""
        paths = self.served.faceting.paths
        if not paths:
            return {}
        versioning: Any = self.versioning_class  # mypy doesn't take a class for hashable
        taken = {*RESERVED, *get_page_parameters(self.paginator), *self.extra_parameters}
        taken.update(
            common_parameters(self.settings.URL_FORMAT_OVERRIDE, versioning), backend_parameters(self)
        )
        return {filter_name(path, taken, paths): path for path in paths}

    def get_limits(self, **own: Any) -> Limits:
        """Return the parameters that this action allows. ``own``: fields that only some views set."""
        versioning: Any = self.versioning_class  # mypy doesn't take a class for hashable
        others = common_parameters(self.settings.URL_FORMAT_OVERRIDE, versioning)
        if self.extra_parameters:
            others = others.union(self.extra_parameters)
        if self.filter_backends and self.action in self.filtered_actions and self.shows_rows():
            others = others.union(backend_parameters(self))
        return Limits(
            index=self.served,
            max_n=get_settings().max_n,
            filters=tuple(self.get_filters().items()),
            allow_groups=self.allow_groups,
            allow_unknown=self.allow_unknown,
            others=others,
            **own,
        )

    def get_query(self) -> Query:
        """Return the parser of this action's query string."""
        return self.query_classes.get(self.action or "", Query).of(self.get_limits())

    def shows_rows(self) -> bool:
        """Return True if results show rows of the model, not only the ranking's own values."""
        return not issubclass(self.get_serializer_class(), EntrySerializer)

    def get_queryset(self) -> models.QuerySet[Any]:
        """Return the rows that results, and the member of ``?member=``, are taken from. Default: those that the index
        ranks."""
        if self.queryset is not None:  # type: ignore[arg-type]  # The stubs take it for a descriptor
            return super().get_queryset()
        return self.served.get_queryset().all()

    def get_own_member(self, conditions: Mapping[str, ParsedFilter] | None = None) -> Any:
        """Return the row of the user. 401 or 403 if nobody has signed in, 404 if the user has no ranked row.

        It is the user's own by the index's ``owner``, so object permissions aren't checked. Of several, such as one for
        each week, it is the first that passes the filters.
        """
        user = self.request.user
        if not (user and user.is_authenticated):
            self.permission_denied(self.request)
        index = self.served
        rows = self.get_own_rows() if index.has_several else ()
        if len(rows) > 1:
            ranked = self.get_filtered(conditions or {}).members(rows)
            pks = {entry.pk for entry in ranked}
            return next((row for row in rows if row.pk in pks), rows[0])
        try:
            return rows[0] if rows else index.get_member(user)
        except NotRanked:
            by_owner = type(index).get_member is RankIndex.get_member
            if by_owner and index.get_owner() is None and not isinstance(user, index.model):
                raise NoOwner(index.name) from None
            raise

    def get_own_rows(self) -> Sequence[Any]:
        """Return the ranked rows of the user by primary key, ``MAX_N`` at most, if a user may own several."""
        index, user = self.served, self.request.user
        by_owner = type(index).get_member is RankIndex.get_member
        if not (index.has_several and by_owner and index.get_owner() and user and user.pk):
            return ()
        if self._own_rows is None:
            self._own_rows = list(index.owned_by(user).order_by("pk").distinct()[: get_settings().max_n])
        return self._own_rows

    def get_member(self, pk: Any, *, lookup_field: str = "pk") -> Any:
        """Return the row ``pk``. 404 if there is none, 401 or 403 if the permissions refuse it.

        The 404 is that of a row that isn't ranked: a client can't tell rows that are hidden from those that aren't
        there.
        """
        try:
            if lookup_field == "pk":  # int() takes more spellings of a number
                pk = self.served.parse_pk(pk)
            member = get_object_or_404(self.get_queryset(), **{lookup_field: pk})
        except (
            ValueError,
            OverflowError,
            DataError,
            Http404,
        ) as error:  # or an id beyond what the column holds
            raise MemberNotRanked from error
        self.check_object_permissions(self.request, member)
        return member

    def get_results(
        self, entries: Sequence[Entry], rows: Mapping[Any, models.Model] | None = None
    ) -> list[dict[str, Any]]:
        """Serialize ``entries``. ``rows``, by primary key, are looked up if they aren't given."""
        if not self.shows_rows():
            return list(self.get_serializer(entries, many=True).data)
        if rows is None:
            rows = self.filter_queryset(self.get_queryset()).in_bulk([entry.pk for entry in entries])
        entries = [entry for entry in entries if entry.pk in rows]
        shown = self.get_serializer([rows[entry.pk] for entry in entries], many=True)
        return combine(self.served, entries, shown)

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
        elif isinstance(exc, (FilterNotReady, IndexUnavailable)):
            logger.warning("%s", exc)
            exc = RankingUnavailable()
        return super().handle_exception(exc)
