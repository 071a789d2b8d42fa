"""A column of ranks on the change list of a ranked model."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.checks import CheckMessage, Error
from django.db.models import CharField, Value
from django.db.models.expressions import OrderBy
from django.db.models.functions import Cast
from django.http import HttpRequest

from ..exceptions import IndexUnavailable
from ..index import RankIndex
from ..iteration import batched
from ..registry import registry

__all__ = ["RankedAdminMixin"]

_BATCH = 10_000
_COLUMN = "zrank_rank"
_BY_RANK = Value(_COLUMN)
"""The column's ordering for Django. ``_SortedByRank`` replaces it with the index's order."""


class _SortedByRank(ChangeList):
    """A change list whose column of ranks sorts by the fields of the index's order."""

    model_admin: RankedAdminMixin

    def get_ordering(self, request: HttpRequest, queryset: Any) -> list[Any]:
        ordering: list[Any] = []
        for field in super().get_ordering(request, queryset):
            if isinstance(field, OrderBy) and field.expression is _BY_RANK:
                ordering += self.model_admin._order(is_reversed=field.descending)
            else:
                ordering.append(field)
        return ordering


class RankedAdminMixin(admin.ModelAdmin):  # type: ignore[type-arg]
    """A mixin for the ``ModelAdmin`` of a ranked model that adds a column with each row's rank, in one round trip per
    page. Name it before ``ModelAdmin``.

    The column is called ``zrank_rank``, and comes last unless ``list_display`` names it. It sorts by the fields of the
    index's order, in the database. While the index is unavailable, the column is empty.
    """

    rank_index: type[RankIndex] | None = None
    """The index, by default the only one that ranks the model."""

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        found = list(super().check(**kwargs))
        if self._index() is None:
            message = f"{len(_indexes_of(self.model))} indexes rank {self.model._meta.label}."
            hint = "Name one of them as rank_index."
            found.append(Error(message, hint=hint, obj=type(self), id="zrank.E036"))
        return found

    def get_list_display(self, request: HttpRequest) -> Any:
        columns = super().get_list_display(request)
        return columns if _COLUMN in columns else [*columns, _COLUMN]

    @admin.display(description="rank", empty_value="-", ordering=_BY_RANK)
    def zrank_rank(self, row: Any) -> str | None:
        """The column of ranks, for ``list_display``."""
        rank = getattr(row, "_zrank_rank", None)
        return None if rank is None else f"{rank:,}"

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        changelist = super().get_changelist(request, **kwargs)
        return type(changelist.__name__, (_SortedByRank, changelist), {})

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        changelist = super().get_changelist_instance(request)
        if (index := self._index()) is not None:
            _note_ranks(index, changelist.result_list)
        return changelist

    def _order(self, *, is_reversed: bool) -> list[OrderBy]:
        """Return the index's order as expressions. Rows without a score come last, in both directions."""
        index = self._index()
        if index is None:
            return []
        order: list[Any] = [*index.ordering.ascending(map(index.expression, index.ordering.paths))]
        if index.get_ranking_method() == "ordinal":  # else equals share a rank
            order.append(OrderBy(Cast("pk", CharField())))
        if index.ordering.first.descending != is_reversed:
            order = [one.reverse_ordering() for one in order]
        order[0].nulls_last = index.ordering.first.nullable or None
        return order

    def _index(self) -> RankIndex | None:
        if self.rank_index is not None:
            index: RankIndex = self.rank_index.instance()
            return index
        indexes = _indexes_of(self.model)
        return indexes[0] if len(indexes) == 1 else None


def _indexes_of(model: Any) -> list[RankIndex]:
    concrete = model._meta.concrete_model
    return [index for index in registry.all() if index.model._meta.concrete_model is concrete]


def _note_ranks(index: RankIndex, rows: Any) -> None:
    """Note the rank of each row on the row itself: the templates read the same objects again."""
    for batch in batched(rows, _BATCH):
        try:
            ranks = index.ranking.ranks(batch)
        except IndexUnavailable:
            return
        for row in batch:
            row._zrank_rank = ranks[row.pk]
