"""Both sides of an index, to be compared: what Redis holds, and what the database says it should hold."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db import models

from django_zrank import RankIndex
from django_zrank.exceptions import Unrankable
from django_zrank.registry import registry
from django_zrank.store import Store
from tests.keyspace import everything, expected

__all__ = ["assert_mirrors", "contents", "keys", "ranked", "standing"]


def contents(index: type[RankIndex]) -> dict[str, float]:
    """Member -> score, as Redis holds them, lowest first."""
    store = Store(index.instance().name)
    members: Any = store.client.zrange(store.live.root, 0, -1, withscores=True)
    width = index.instance().layout.width
    return {member[width:].decode(): score for member, score in members}


def ranked(index: type[RankIndex]) -> dict[str, float]:
    """Member -> score, as the queryset has them now. For numbers only."""
    path = index.instance().ordering.first.path
    rows = index.instance().get_queryset().using(index.instance().get_using()).values_list("pk", path)
    return {index.instance().to_text(pk): float(score) for pk, score in rows if score is not None}


def standing(index: RankIndex) -> dict[str, tuple[float, bytes]]:
    """Member -> score and membership, from its object and what it leads to, one by one."""
    members = {}
    rows = index.get_queryset().using(index.get_using())
    many = {field.name for field in index.model._meta.many_to_many}
    paths = [*index.ordering.paths, *index.faceting.paths]
    for row in rows.prefetch_related(*many & {path.partition("__")[0] for path in paths}):
        criteria = [next(iter(_walk(row, path))) for path in index.ordering.paths]
        names = index.faceting.rankings({path: set(_walk(row, path)) for path in index.faceting.paths})
        if criteria[0] is not None:
            with suppress(Unrankable):
                score, tie = index.ordering.encode(criteria)
                members[index.to_text(row.pk)] = (float(score), tie + "\0".join(names).encode())
    return members


def _walk(row: models.Model, path: str) -> list[Any]:
    """The values at a lookup path, None for nothing."""
    found: list[Any] = [row]
    for name in path.split("__"):
        nearer, found = found, []
        for each in nearer:
            try:
                value = None if each is None else getattr(each, name)
            except ObjectDoesNotExist:
                value = None
            found += (list(value.all()) or [None]) if hasattr(value, "get_queryset") else [value]
    return [each.pk if isinstance(each, models.Model) else each for each in found]


def keys(index: type[RankIndex]) -> set[str]:
    """Every key of an index that there is, by the last part of its name."""
    store = Store(index.instance().name)
    found: Any = store.client.keys(f"{store.keys.tag}:*")
    state: Any = store.client.hmget(store.keys.meta, "build", "building")
    names = dict(zip(state, ("live", "shadow"), strict=True))
    parts = (key.rpartition(b":")[2] for key in found)
    return {names.get(part, part.decode()) for part in parts}


def assert_mirrors(*indexes: type[RankIndex]) -> None:
    """Redis holds what the database holds, in every key: of ``indexes``, by default of all."""
    for index in indexes or [type(index) for index in registry.all()]:
        instance = index.instance()
        members = standing(instance)
        for part in instance.holders:
            store = Store(part.name, part.layout)
            own = {member: stands for member, stands in members.items() if instance.holder_of(member) is part}
            must = expected(store.live.root, own, part.layout)
            assert everything(store.client, store.live.root) == must, part
