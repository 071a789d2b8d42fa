"""One index in Redis. The only module that talks to Redis; members and scores are text and numbers here."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final, NamedTuple

from django_redis import get_redis_connection
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from . import scripts
from .conf import get_settings
from .exceptions import IndexUnavailable, NotBuilt
from .keys import Keys

__all__ = ["LOAD_LIMIT", "Epoch", "Sample", "Store"]

LOAD_LIMIT: Final = 3500
"""The most rows that one ``load()`` takes: Lua's ``unpack`` fails at 8,000 values."""

_WINDOW: Final = 600
"""Seconds for which a member's newest token is remembered; a write that took longer is refused."""

_LEASE: Final = 600
"""Seconds without a sign of life after which a rebuild counts as dead."""

_SPARE_NUMBERS: Final = 8
"""Random numbers beyond those needed, for the few that are drawn again so that none is favoured."""

Number = int | float


class Epoch(NamedTuple):
    """What a write refers to: taken before its rows are read, checked when they are applied."""

    generation: str
    building: str
    token: str


class Sample(NamedTuple):
    """What ``sample_nearby()`` drew."""

    size: int
    """Members in the ranking."""

    band: int
    """Which of the bands was used, from 0."""

    candidates: int
    """Members in that band, the asking one not counted, the excluded ones counted."""

    drawn: list[tuple[int, str, float]]
    """Position (from 0 at the lowest score), member and score of each."""


def _text(reply: Any) -> str:
    """A string in a reply: bytes, unless the alias decodes responses."""
    return reply.decode() if isinstance(reply, bytes) else reply


@contextmanager
def _unavailable(name: str) -> Iterator[None]:
    """Redis's errors, as ours."""
    try:
        yield
    except ResponseError as error:
        if "NOTBUILT" in str(error):
            raise _not_built(name) from None
        raise IndexUnavailable(f"Index {name!r}: Redis refused: {error}") from error
    except RedisError as error:
        raise IndexUnavailable(f"Index {name!r}: Redis can't be reached: {error}") from error


def _not_built(name: str) -> NotBuilt:
    return NotBuilt(f"Index {name!r} is not built: run manage.py rebuild_zrank {name}")


class Store:
    """The keys of one index, and what can be done with them.

    Every method raises :exc:`~django_zrank.exceptions.IndexUnavailable` where Redis can't be reached.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def keys(self) -> Keys:
        return Keys.of(get_settings().key_prefix, self.name)

    @property
    def client(self) -> Redis:
        """The raw client, resolved per call: django-redis closes and replaces it."""
        return get_redis_connection(get_settings().redis_alias)

    # Reading

    def sample_nearby(
        self,
        member: str,
        wanted: int,
        *,
        reverse: bool,
        bands: Sequence[tuple[Number, Number]],
        excluded: Iterable[str],
        numbers: Any,
    ) -> Sample | None:
        """Random distinct members near ``member``; None where it is not ranked.

        ``bands``: distances below and above, tried in turn. ``numbers``: a function from a count of bytes to
        random bytes. One round trip.
        """
        barred = "\0".join(excluded)
        misses = min(barred.count("\0") + 1, 2 * (wanted + 17)) if barred else 0
        keys = self.keys
        args = (
            member,
            wanted,
            "1" if reverse else "0",
            struct.pack(f"<{2 * len(bands)}d", *chain.from_iterable(bands)),
            barred,
            numbers(6 * (wanted + misses + _SPARE_NUMBERS)),
        )
        with _unavailable(self.name):
            reply = scripts.SAMPLE_NEARBY(self.client, (keys.live, keys.meta), args)
        if reply is None:
            return None
        size, _, _, band, candidates, *drawn = reply
        triples = zip(drawn[::3], drawn[1::3], drawn[2::3], strict=True)
        return Sample(size, band - 1, candidates, [(at, _text(who), float(score)) for at, who, score in triples])

    def position(self, member: str, *, reverse: bool) -> int | None:
        """How many members stand before ``member``; None where it is not ranked."""
        with _unavailable(self.name):
            client, keys = self.client, self.keys
            found = client.zrevrank(keys.live, member) if reverse else client.zrank(keys.live, member)
        if found is None:
            self.require_built()
        return found  # type: ignore[return-value]

    def score(self, member: str) -> float | None:
        """The score of ``member``; None where it is not ranked."""
        with _unavailable(self.name):
            found = self.client.zscore(self.keys.live, member)
        if found is None:
            self.require_built()
        return found  # type: ignore[return-value]

    def size(self) -> int:
        """How many members are ranked."""
        with _unavailable(self.name):
            size: int = self.client.zcard(self.keys.live)  # type: ignore[assignment]
        if not size:
            self.require_built()
        return size

    def require_built(self) -> None:
        """Raise ``NotBuilt`` unless there is a generation to read. Asked only where nothing was found."""
        with _unavailable(self.name):
            built = self.client.hexists(self.keys.meta, "generation")
        if not built:
            raise _not_built(self.name)

    # Writing

    def begin_write(self) -> Epoch:
        """The epoch of a write whose rows are about to be read. Raises ``NotBuilt``."""
        keys = self.keys
        with _unavailable(self.name):
            reply = scripts.BEGIN_WRITE(self.client, (keys.shadow, keys.meta), (_LEASE,))
        if reply is None:
            raise _not_built(self.name)
        return Epoch(*map(_text, reply))

    def apply_changes(self, epoch: Epoch, changes: Iterable[tuple[str, Number | None]]) -> bool:
        """Write members with their scores, None to remove. False, with nothing written: begin again."""
        keys = self.keys
        pairs = ((member, "" if score is None else repr(score)) for member, score in changes)
        args = (*epoch, _WINDOW, *chain.from_iterable(pairs))
        with _unavailable(self.name):
            reply = scripts.APPLY_CHANGES(self.client, (keys.live, keys.shadow, keys.recent, keys.meta), args)
        return bool(reply)

    # Rebuilding

    def start_rebuild(self, building: str) -> None:
        """Begin to build the generation ``building``. A rebuild that is running gives way."""
        keys = self.keys
        with _unavailable(self.name):
            scripts.START_REBUILD(self.client, (keys.shadow, keys.recent, keys.meta), (building,))

    def load_rows(self, building: str, rows: Iterable[tuple[Number, str]]) -> bool:
        """Add up to ``LOAD_LIMIT`` rows (score, member) to what is being built. False: it was superseded."""
        keys = self.keys
        args = (building, *chain.from_iterable((repr(score), member) for score, member in rows))
        with _unavailable(self.name):
            reply = scripts.LOAD_ROWS(self.client, (keys.shadow, keys.recent, keys.meta), args)
        return bool(reply)

    def swap_rebuilt(self, building: str) -> bool:
        """Put what was built in place. False: it was superseded."""
        keys = self.keys
        with _unavailable(self.name):
            reply = scripts.SWAP_REBUILT(
                self.client, (keys.live, keys.shadow, keys.old, keys.meta), (building,)
            )
        return bool(reply)

    def abandon_rebuild(self, building: str) -> bool:
        """Clear what was built so far. False: it was superseded."""
        keys = self.keys
        with _unavailable(self.name):
            reply = scripts.ABANDON_REBUILD(self.client, (keys.shadow, keys.meta), (building,))
        return bool(reply)
