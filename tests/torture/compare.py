"""All of Redis against all of the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from django_zrank import RankIndex
from django_zrank.models import Batch, Generation, Mark
from django_zrank.store import Store
from django_zrank.sync.health import Verdict, examine
from django_zrank.sync.rows import encode, select

__all__ = ["Wrong", "compare", "is_in_step", "stray_keys", "waiting"]


class Wrong(NamedTuple):
    """A member that Redis holds otherwise than the database."""

    index: str
    member: str
    database: float | None
    redis: float | None
    story: str
    """What is known about how it came to it."""

    def __str__(self) -> str:
        return f"{self.index} {self.member}: {self.database} in the database, {self.redis} in Redis; {self.story}"


def compare(index: RankIndex) -> tuple[int, list[Wrong]]:
    """How many members there are on either side, and those that are wrong."""
    store = Store(index.name)
    database = {index.to_text(pk): float(score) for pk, score, _ in encode(index, select(index))}
    found = store.client.zrange(store.keys.live, 0, -1, withscores=True)
    redis = {member.decode(): score for member, score in found}
    members = database.keys() | redis.keys()
    wrong = [
        Wrong(index.name, member, database.get(member), redis.get(member), _story(index, member))
        for member in sorted(members)
        if database.get(member) != redis.get(member)
    ]
    return len(members), wrong


def _story(index: RankIndex, member: str) -> str:
    store = Store(index.name)
    token = store.client.zscore(store.keys.recent, member)
    marks = Mark.objects.filter(index=index.name, member=member).order_by("-id")
    told = ", ".join(f"{mark.pk} of {mark.at:%T.%f}" for mark in marks[:4])
    batches = Batch.objects.filter(index=index.name).order_by("-place")
    places = [batch.place for batch in batches if [None, member] in batch.marks]
    state = {key.decode(): value.decode() for key, value in store.client.hgetall(store.keys.meta).items()}
    noted = Generation.objects.filter(index=index.name).values()
    return (
        f"recent {token}; marks {told or 'none'}, drained at {places[:4]}; meta {state}; noted {list(noted)}"
    )


def waiting(indexes: Iterable[RankIndex]) -> int:
    """Marks of these indexes that wait."""
    return Mark.objects.filter(index__in=[index.name for index in indexes]).count()


def is_in_step(indexes: Sequence[RankIndex]) -> bool:
    """Whether the promise holds: no mark is left, and every index is healthy."""
    return not waiting(indexes) and all(examine(index) is Verdict.HEALTHY for index in indexes)


def stray_keys(indexes: Iterable[RankIndex]) -> list[str]:
    """Keys that nobody needs once no rebuild is running."""
    strays = []
    for index in indexes:
        keys = Store(index.name).keys
        strays += [key for key in (keys.shadow,) if Store(index.name).client.exists(key)]
    return strays
