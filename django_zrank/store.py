"""One index in Redis. The only module that talks to Redis; members and scores are text and numbers here."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from django_redis import get_redis_connection
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from . import scripts
from .conf import get_settings
from .exceptions import IndexUnavailable, IndexUnhealthy, NotBuilt
from .keys import Keys
from .layout import PLAIN, Layout

__all__ = ["LOAD_LIMIT", "Change", "Epoch", "Health", "Sample", "Standing", "Store"]

LOAD_LIMIT: Final = 3500
"""The most rows that one ``load_rows()`` takes: Lua's ``unpack`` fails at 8,000 values."""

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
    run: str


class Change(NamedTuple):
    """What a member is to be. Plain tuples of the same shape do, too."""

    member: str | bytes
    score: Number | None
    """None: not ranked."""

    entry: bytes = b""
    """See :class:`~django_zrank.layout.Layout`."""


class Standing(NamedTuple):
    """Where a member stands."""

    score: float | None
    """None where it isn't ranked."""

    token: float | None
    """Of its newest write. A member with the same token as before was not written in between."""

    entry: bytes = b""

    absent: bytes = b""
    """The facet rankings of its entry in which it does not stand with that score, joined by NUL bytes."""


class Health(NamedTuple):
    """What a server holds of an index; empty text for what there is not."""

    generation: str
    building: str

    behind: str
    """A replay that is not finished, or "rebuild" where only a rebuild will do."""

    applied: str
    """The place up to which writes have been applied."""

    run: str
    """The ``run_id`` of the server that was written to."""

    server: str
    """The ``run_id`` of the server that answers."""

    @property
    def same_server(self) -> bool:
        """Whether it is the server that was written to, and has not restarted since."""
        return self.run == self.server


class Sample(NamedTuple):
    """What ``sample_nearby()`` drew."""

    size: int
    """Members in the ranking."""

    band: int
    """Which of the bands was used, from 0."""

    candidates: int
    """Members in that band, the asking one not counted, the excluded ones counted."""

    drawn: list[tuple[int, bytes, float]]
    """Position (from 0 at the lowest score), member and score of each."""


class Store:
    """The keys of one index, and what can be done with them.

    Every method raises :exc:`~django_zrank.exceptions.IndexUnavailable` where Redis can't be reached.
    """

    def __init__(self, name: str, layout: Layout = PLAIN) -> None:
        self.name = name
        self.layout = layout

    @property
    def keys(self) -> Keys:
        return Keys.of(get_settings().key_prefix, self.name)

    @property
    def client(self) -> Redis:
        """The raw client, resolved per call: django-redis closes and replaces it."""
        client: Redis = get_redis_connection(get_settings().redis_alias)
        return client

    def _call(self, command: Callable[..., Any], *args: Any) -> Any:
        """A script, or a method of the client, with Redis's errors as ours."""
        try:
            return command(self.client, *args)
        except ResponseError as error:
            if str(error).startswith("NOTBUILT"):
                raise self._not_built() from None
            if str(error).startswith("UNHEALTHY"):
                raise IndexUnhealthy(f"Index {self.name!r}: Redis restarted or failed over") from None
            raise IndexUnavailable(f"Index {self.name!r}: Redis refused: {error}") from error
        except RedisError as error:
            raise IndexUnavailable(f"Index {self.name!r}: Redis can't be reached: {error}") from error

    def _not_built(self) -> NotBuilt:
        return NotBuilt(f"Index {self.name!r} is not built: run manage.py rebuild_zrank {self.name}")

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
        barred = "\0".join(("", *excluded, ""))
        misses = 2 * (wanted + 17) if len(barred) > 1 else 0
        keys = self.keys
        args = (
            member,
            wanted,
            "1" if reverse else "0",
            struct.pack(f"<{2 * len(bands)}d", *chain.from_iterable(bands)),
            barred,
            numbers(6 * (wanted + misses + _SPARE_NUMBERS)),
        )
        reply = self._call(scripts.SAMPLE_NEARBY, (keys.live, keys.meta), args)
        if reply is None:
            return None
        size, _, _, band, candidates, *drawn = reply
        scores = map(float, drawn[2::3])
        return Sample(size, band - 1, candidates, list(zip(drawn[::3], drawn[1::3], scores, strict=True)))

    def position(self, member: str, *, reverse: bool) -> int | None:
        """How many members stand before ``member``; None where it is not ranked."""
        found: int | None = self._call(Redis.zrevrank if reverse else Redis.zrank, self.keys.live, member)
        if found is None:
            self.require_built()
        return found

    def score(self, member: str) -> float | None:
        """The score of ``member``; None where it is not ranked."""
        found: float | None = self._call(Redis.zscore, self.keys.live, member)
        if found is None:
            self.require_built()
        return found

    def size(self) -> int:
        """How many members are ranked."""
        size: int = self._call(Redis.zcard, self.keys.live)
        if not size:
            self.require_built()
        return size

    def require_built(self) -> None:
        """Raise ``NotBuilt`` unless there is a generation to read. Asked only where nothing was found."""
        if not self._call(Redis.hexists, self.keys.meta, "generation"):
            raise self._not_built()

    # Writing

    def begin_write(self) -> Epoch:
        """The epoch of a write whose rows are about to be read. Raises ``NotBuilt``."""
        keys = self.keys
        reply = self._call(scripts.BEGIN_WRITE, (keys.shadow, keys.meta), (_LEASE,))
        if reply is None:
            raise self._not_built()
        return Epoch(*map(bytes.decode, reply))

    def apply_changes(
        self, epoch: Epoch, changes: Iterable[tuple[str | bytes, Number | None, bytes]]
    ) -> int | None:
        """Make members what each :class:`Change` says, in all rankings. Returns the place of this write
        among all; None, with nothing written: begin again."""
        keys = self.keys
        texts: Iterable[tuple[Any, ...]]
        if self.layout.entries:
            texts = ((member, _text(score), entry) for member, score, entry in changes)
        else:
            texts = ((member, _text(score)) for member, score, _ in changes)
        args = (*epoch, _WINDOW, *self._layout_args, *chain.from_iterable(texts))
        reply = self._call(scripts.APPLY_CHANGES, (keys.live, keys.shadow, keys.recent, keys.meta), args)
        return None if reply is None else int(reply)

    @property
    def _layout_args(self) -> tuple[int, int, int]:
        return self.layout.width, int(self.layout.entries), int(self.layout.dense)

    # Verifying

    def scores(self, members: Iterable[str | bytes]) -> list[float | None]:
        """The score of each member, None for one that isn't ranked. One round trip."""
        asked = list(members)
        found: list[float | None] = self._call(Redis.zmscore, self.keys.live, asked) if asked else []
        return found

    def scan(self, size: int) -> Iterator[list[bytes]]:
        """Every member, in batches of about ``size`` and in no order, perhaps one twice.

        Those that are there from the beginning to the end are among them, whatever comes and goes meanwhile,
        unless another generation takes their place.
        """
        cursor, ended = 0, False
        while not ended:
            cursor, found = self._call(Redis.zscan, self.keys.live, cursor, None, size)
            yield [member for member, _ in found]
            ended = cursor == 0

    def read_members(self, generation: str, members: Iterable[str | bytes]) -> list[Standing] | None:
        """Where each of these members stands (primary keys as text).

        None: the server holds another generation, or is not the one that was written to.
        """
        keys, layout = self.keys, self.layout
        args = (generation, layout.width, int(layout.entries), *members)
        reply = self._call(scripts.READ_MEMBERS, (keys.live, keys.recent, keys.meta), args)
        if reply is None:
            return None
        stride = 4 if layout.entries else 2
        numbers = ([None if text is None else float(text) for text in reply[i::stride]] for i in range(2))
        return list(map(Standing, *numbers, *(reply[i::stride] for i in range(2, stride))))

    def eviction_policy(self) -> str | None:
        """What Redis does when its memory is full, such as ``noeviction``; None where it doesn't say.

        INFO tells it to those who may not use CONFIG, too.
        """
        policy: str | None = self._call(Redis.info, "memory").get("maxmemory_policy")
        return policy

    # Health

    def check_health(self) -> Health:
        """What this server holds, and whether it can be believed."""
        return Health(*map(bytes.decode, self._call(scripts.CHECK_HEALTH, (self.keys.meta,), ())))

    def adopt_server(self, generation: str, applied: str, server: str) -> bool:
        """Accept a server that restarted or took over. False: it holds something else by now."""
        keys = self.keys
        return bool(self._call(scripts.ADOPT_SERVER, (keys.shadow, keys.meta), (generation, applied, server)))

    def finish_replay(self, behind: str) -> bool:
        """Note that the replay named ``behind`` is done. False: another has begun."""
        return bool(self._call(scripts.FINISH_REPLAY, (self.keys.meta,), (behind,)))

    # Rebuilding

    def start_rebuild(self, building: str, *, polite: bool = False) -> bool:
        """Begin to build the generation ``building``. Another rebuild that is running gives way; or, where
        this one is ``polite``, keeps it from beginning: False."""
        keys = self.keys
        args = (building, "1" if polite else "0", _LEASE)
        return bool(self._call(scripts.START_REBUILD, (keys.shadow, keys.recent, keys.meta), args))

    def load_rows(self, building: str, rows: Iterable[tuple[str | bytes, Number, bytes]]) -> bool:
        """Add up to ``LOAD_LIMIT`` members (each a :class:`Change`) to what is being built. False: it was
        superseded."""
        keys = self.keys
        texts: Iterable[tuple[Any, ...]]
        if self.layout.entries:
            texts = ((repr(score), member, entry) for member, score, entry in rows)
        else:
            texts = ((repr(score), member) for member, score, _ in rows)
        args = (building, *self._layout_args, *chain.from_iterable(texts))
        reply = self._call(scripts.LOAD_ROWS, (keys.shadow, keys.recent, keys.meta), args)
        return bool(reply)

    def swap_rebuilt(self, building: str) -> bool:
        """Put what was built in place. False: it was superseded."""
        keys = self.keys
        reply = self._call(scripts.SWAP_REBUILT, (keys.live, keys.shadow, keys.meta), (building,))
        return bool(reply)

    def abandon_rebuild(self, building: str) -> bool:
        """Clear what was built so far. False: it was superseded."""
        keys = self.keys
        reply = self._call(scripts.ABANDON_REBUILD, (keys.shadow, keys.meta), (building,))
        return bool(reply)


def _text(score: Number | None) -> str:
    return "" if score is None else repr(score)
