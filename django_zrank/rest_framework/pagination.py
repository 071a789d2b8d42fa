"""Pagination of a ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework.pagination import BasePagination, CursorPagination, PageNumberPagination
from rest_framework.serializers import ValidationError
from rest_framework.settings import api_settings

from ..conf import get_settings
from ..entries import Entry
from ..ranking import Ranking

__all__ = ["LeaderboardPagination", "RankingList", "get_page_parameters", "get_pagination_class"]


class LeaderboardPagination(PageNumberPagination):
    """``?page=3&page_size=20``: pages of 50, or of the project's ``PAGE_SIZE``. Clients may ask for up to 100."""

    page_size = api_settings.PAGE_SIZE or 50
    page_size_query_param = "page_size"
    max_page_size = 100


def get_pagination_class() -> type[BasePagination]:
    """The project's ``DEFAULT_PAGINATION_CLASS``, or :class:`LeaderboardPagination`."""
    chosen: Any = api_settings.DEFAULT_PAGINATION_CLASS
    if chosen is None or issubclass(chosen, CursorPagination):  # A cursor walks the columns of a queryset
        return LeaderboardPagination
    return chosen  # type: ignore[no-any-return]


def get_page_parameters(paginator: BasePagination | None) -> dict[str, int | None]:
    """The parameters of a paginator, the length of a page first, and the lowest value of each; None for the page's."""
    lowest = {
        "limit_query_param": 1,
        "page_size_query_param": 1,
        "offset_query_param": 0,
        "page_query_param": None,
    }
    found = {getattr(paginator, attribute, None): number for attribute, number in lowest.items()}
    return {name: number for name, number in found.items() if name}


class RankingList:
    """A ranking as the list that a paginator slices: one round trip to count it, one for a page."""

    def __init__(self, ranking: Ranking, paginator: BasePagination | None) -> None:
        self.ranking = ranking
        self.paginator = paginator

    def count(self) -> int:
        return self.ranking.count()

    def __getitem__(self, page: slice) -> Sequence[Entry]:
        """The entries of a page. 400 for a page longer than ``ZRANK["MAX_N"]``."""
        ceiling = get_settings().max_n
        if page.stop - page.start > ceiling:
            # LimitOffsetPagination has no maximum unless the project gives it one.
            name = next(iter(get_page_parameters(self.paginator)), api_settings.NON_FIELD_ERRORS_KEY)
            message = _("Ensure this value is less than or equal to {max_value}.")
            raise ValidationError({name: [message.format(max_value=ceiling)]}, code="max_value")
        return self.ranking[page]
