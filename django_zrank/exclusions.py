"""Exclusions by the hooks of an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import models

from .members import members_of
from .redis.steps import Blocking, Steps

if TYPE_CHECKING:
    from .index import RankIndex

__all__ = ["excluded_by_index"]


def excluded_by_index(index: RankIndex, members: Sequence[Any]) -> Steps[list[list[Any] | None]]:
    """The steps to the members that the hooks exclude for each of ``members``; None for one that has no row."""
    if not index.has_excluded:
        return [[] for _ in members]
    coroutine = partial(_aexcluded, index, members) if index.has_async_excluded else None
    found: list[list[Any] | None] = yield Blocking(partial(_excluded, index, members), coroutine)
    return found


def _excluded(index: RankIndex, members: Sequence[Any]) -> list[list[Any] | None]:
    rows = _rows(index, members)
    found: Mapping[Any, Any] = index.get_excluded_many([row for row in rows if row is not None])
    return [None if row is None else _listed(found.get(row.pk, ())) for row in rows]


async def _aexcluded(index: RankIndex, members: Sequence[Any]) -> list[list[Any] | None]:
    rows = await sync_to_async(_rows)(index, members)
    found: Mapping[Any, Any] = await index.aget_excluded_many([row for row in rows if row is not None])
    return [None if row is None else await _alisted(found.get(row.pk, ())) for row in rows]


def _rows(index: RankIndex, members: Sequence[Any]) -> list[Any]:
    """The row of each member: instances as they are, others by one query; None if there is none."""
    pks = {at: index.parse_pk(one) for at, one in enumerate(members) if not isinstance(one, models.Model)}
    if not pks:
        return list(members)
    rows = {row.pk: row for row in models.QuerySet[Any](index.model).filter(pk__in=pks.values())}
    return [rows.get(pks[at]) if at in pks else one for at, one in enumerate(members)]


def _listed(excluded: Any) -> list[Any]:
    return list(members_of("get_excluded()", excluded))


async def _alisted(excluded: Any) -> list[Any]:
    if hasattr(excluded, "__aiter__"):
        return [one async for one in excluded]
    return _listed(excluded)
