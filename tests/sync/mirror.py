"""Both sides of an index, to be compared: what Redis holds, and what the database says it should hold."""

from __future__ import annotations

from typing import Any

from django_zrank import RankIndex
from django_zrank.registry import registry
from django_zrank.store import Store

__all__ = ["assert_mirrors", "contents", "keys", "ranked"]


def contents(index: type[RankIndex]) -> dict[str, float]:
    """Member -> score, as Redis holds them, lowest first."""
    store = Store(index.instance().name)
    members: Any = store.client.zrange(store.keys.live, 0, -1, withscores=True)
    return {member.decode(): score for member, score in members}


def ranked(index: type[RankIndex]) -> dict[str, float]:
    """Member -> score, as the queryset has them now. For numbers only."""
    path = index.instance().get_order()[0].removeprefix("-")
    rows = index.instance().get_queryset().using(index.instance().get_using()).values_list("pk", path)
    return {str(pk): float(score) for pk, score in rows if score is not None}


def keys(index: type[RankIndex]) -> set[str]:
    """Every key of an index that there is, by the last part of its name."""
    store = Store(index.instance().name)
    found: Any = store.client.keys(f"*{{{index.instance().name}}}*")
    return {key.decode().rpartition(":")[2] for key in found}


def assert_mirrors(*indexes: type[RankIndex]) -> None:
    """Redis holds what the database holds: in ``indexes``, by default in all."""
    for index in indexes or [type(index) for index in registry.all()]:
        assert contents(index) == ranked(index), index.__name__
