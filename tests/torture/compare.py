"""All of Redis against all of the database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django_zrank import RankIndex
from django_zrank.models import Batch, Build, Mark
from django_zrank.store import Store
from django_zrank.sync.health import Status, examine
from tests.keyspace import everything, expected
from tests.sync.mirror import standing

__all__ = ["Wrong", "compare", "is_in_step", "stray_keys", "waiting"]


class Wrong(NamedTuple):
    """A member that Redis holds otherwise than the database."""

    index: str

    member: str
    """And in which of the keys."""

    database: Any
    redis: Any
    story: str
    """The writes, marks and batches of the member that are still known."""

    def __str__(self) -> str:
        return f"{self.index} {self.member}: {self.database} in the database, {self.redis} in Redis; {self.story}"


def compare(index: RankIndex) -> tuple[int, list[Wrong]]:
    """Return the number of members on either side, and what is wrong in any key of any shard. Each shard must have its
    own members and no others."""
    stands = standing(index)
    own = {part: dict[str, Any]() for part in index.holders}
    for member, where in stands.items():
        own[index.holder_of(member)][member] = where
    found = [_compare(part, members) for part, members in own.items()]
    return sum(count for count, _ in found), [one for _, wrong in found for one in wrong]


def _compare(part: RankIndex, members: Mapping[str, Any]) -> tuple[int, list[Wrong]]:
    store = Store(part.name, part.layout)
    live = live_root(store)
    database, redis = expected(live, members, part.layout), everything(store.client, live)
    wrong = [
        Wrong(
            part.name,
            f"{key.removeprefix(live)} {member!r}".strip(),
            database.get(key, {}).get(member),
            redis.get(key, {}).get(member),
            _story(
                part,
                member[part.layout.width * (not key.endswith(":memberships")) :].decode(errors="replace"),
            ),
        )
        for key in sorted(database.keys() | redis.keys())
        for member in sorted(database.get(key, {}).keys() | redis.get(key, {}).keys())
        if database.get(key, {}).get(member) != redis.get(key, {}).get(member)
    ]
    return len(database.get(live, {}).keys() | redis.get(live, {}).keys()), wrong


def live_root(store: Store) -> str:
    """As Redis has it now: what this process has learnt of it may be old."""
    build: Any = store.client.hget(store.keys.meta, "build")
    return store.keys.at((build or b"").decode()).root


def _story(index: RankIndex, member: str) -> str:
    store = Store(index.name)
    place = store.client.zscore(store.keys.recent, member)
    marks = Mark.objects.filter(index=index.declared.name, member=member).order_by("-id")
    told = ", ".join(f"{mark.pk} of {mark.at:%T.%f}" for mark in marks[:4])
    batches = Batch.objects.filter(index=index.name).order_by("-term", "-version")
    places = [(batch.term, batch.version) for batch in batches if [None, member] in batch.marks]
    state = {key.decode(): value.decode() for key, value in store.client.hgetall(store.keys.meta).items()}
    noted = Build.objects.filter(index=index.name).values()
    return (
        f"recent {place}; marks {told or 'none'}, drained at {places[:4]}; meta {state}; noted {list(noted)}"
    )


def waiting(indexes: Iterable[RankIndex]) -> int:
    """Marks of these indexes that wait."""
    return Mark.objects.filter(index__in=[index.name for index in indexes]).count()


def is_in_step(indexes: Sequence[RankIndex]) -> bool:
    """Return True if no mark is left and every index is healthy."""
    return not waiting(indexes) and all(examine(index) is Status.HEALTHY for index in indexes)


def stray_keys(indexes: Iterable[RankIndex]) -> list[str]:
    """Keys that nobody needs once no rebuild is running."""
    strays: list[str] = []
    for part in (part for index in indexes for part in index.holders):
        store = Store(part.name)
        # The note of a watcher that was killed expires in seconds.
        needed = (store.keys.meta, store.keys.recent, store.keys.watcher, live_root(store))
        found = everything(store.client, store.keys.tag)
        strays += [key for key in found if not key.startswith(needed)]
    return strays
