"""One index in Redis: its writes, its verification and its rebuilds. Members and scores are text and numbers here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

from redis import Redis
from redis.exceptions import RedisClusterException, RedisError

from . import scripts
from .codec.layout import PLAIN, Layout
from .codec.units import Number
from .engine.executor import Executor
from .requests.counts import Size
from .requests.request import Call, Request
from .requests.view import View
from .scripts import Script

__all__ = [
    "LOAD_LIMIT",
    "Applied",
    "Change",
    "Epoch",
    "Health",
    "Number",
    "Standing",
    "Store",
]

LOAD_LIMIT: Final = 3500
"""The most rows that one ``load_rows()`` takes: Lua's ``unpack`` fails at 8,000 values."""

_WINDOW: Final = 600
"""Seconds for which the place of a member's newest write is remembered; a write that took longer is refused."""

_LEASE: Final = 600
"""Seconds without a sign of life after which a rebuild counts as dead."""


class Epoch(NamedTuple):
    """What a write refers to: taken before its rows are read, checked when they are applied."""

    generation: str
    building: str

    token: str
    """A place among all writes. Members whose newest write has a higher one are refused."""

    run: str
    """The ``run_id`` of the server."""


class Applied(NamedTuple):
    """What became of a write."""

    place: int
    """Its place among all writes, which only grows: a token for what is read from now on."""

    refused: list[bytes]
    """The members that were written by others since the token was taken: to be read once more."""


class Change(NamedTuple):
    """What a member is to be. Plain tuples of the same shape do, too."""

    member: str | bytes
    score: Number | None
    """None: not ranked."""

    entry: bytes = b""
    """See :class:`~django_zrank.codec.layout.Layout`."""


class Standing(NamedTuple):
    """Where a member stands."""

    score: float | None
    """None where it isn't ranked."""

    place: float | None
    """Of its newest write. A member with the same place as before was not written in between."""

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


class Store(Executor):
    """The keys of one index, and how they are written, verified and rebuilt."""

    def __init__(self, name: str, layout: Layout = PLAIN) -> None:
        super().__init__(name)
        self.layout = layout

    def _call(self, command: Script | Callable[..., Any], *args: Any) -> Any:
        """A script, or a method of the client, with Redis's errors as ours."""
        if isinstance(command, Script):
            return self.send(Request((Call(command, *args),), list))[0]
        try:
            return command(self.client, *args)
        except (RedisError, RedisClusterException) as error:
            raise self._translated(error) from error

    def size(self) -> int:
        """How many members are ranked."""
        return self.run(partial(Size().request, View(self.layout)))

    @property
    def _layout(self) -> tuple[int, int, int]:
        """The layout as scripts take it; those that only read are not told the last."""
        return self.layout.width, int(self.layout.entries), int(self.layout.dense)

    # Writing

    def begin_write(self) -> Epoch:
        """The epoch of a write whose rows are about to be read. Raises ``NotBuilt``."""
        keys = self.keys
        reply = self._call(scripts.BEGIN_WRITE, (keys.shadow, keys.meta), (_LEASE,))
        if reply is None:
            raise self.not_built()
        return Epoch(*map(bytes.decode, reply))

    def apply_changes(
        self, epoch: Epoch, changes: Iterable[tuple[str | bytes, Number | None, bytes]]
    ) -> Applied | None:
        """Make members what each :class:`Change` says, in all rankings, unless they were written since the epoch.
        None, with nothing written: begin again."""
        keys = self.keys
        texts: Iterable[tuple[Any, ...]]
        if self.layout.entries:
            texts = ((member, _text(score), entry) for member, score, entry in changes)
        else:
            texts = ((member, _text(score)) for member, score, _ in changes)
        args = (*epoch, _WINDOW, _LEASE, *self._layout, *chain.from_iterable(texts))
        reply = self._call(scripts.APPLY_CHANGES, (keys.live, keys.shadow, keys.recent, keys.meta), args)
        return None if reply is None else Applied(int(reply[0]), reply[1:])

    # Verifying

    def scores(self, members: Iterable[str | bytes]) -> list[float | None]:
        """The score of each member, None for one that isn't ranked. One round trip."""
        asked = list(members)
        found: list[float | None] = self._call(Redis.zmscore, self.keys.live, asked) if asked else []
        return found

    def scan(self, size: int, ranking: str = "") -> Iterator[list[bytes]]:
        """Every member of a facet ranking, by default of the whole index, as stored: in batches of about
        ``size`` and in no order, perhaps one twice.

        Those that are there from the beginning to the end are among them, whatever comes and goes meanwhile,
        unless another generation takes their place.
        """
        return self._scan(Redis.zscan, self.keys.ranking(ranking), size)

    def scan_entries(self, size: int) -> Iterator[list[bytes]]:
        """The members that have an entry (primary keys as text), as ``scan()`` does."""
        return self._scan(Redis.hscan, self.keys.part("entries"), size)

    def scan_names(self, size: int) -> Iterator[list[bytes]]:
        """The names of the facet rankings that are registered, and then of those that there are, or traces of."""
        yield from self._scan(Redis.zscan, self.keys.part("rankings"), size)
        cursor, ended, prefix = 0, False, self.keys.part("").encode()
        while not ended:
            cursor, found = self._call(Redis.scan, cursor, _escape(self.keys.part("")) + "*", size)
            names = (key.removeprefix(prefix) for key in found)
            # A value has no plain colon in it: what follows one behind the name is a part of the ranking.
            yield [b":".join(name.split(b":")[:2]) for name in names if b":" in name]
            ended = cursor == 0

    def scan_values(self, size: int, ranking: str = "") -> Iterator[list[bytes]]:
        """The distinct values that are counted or listed for a facet ranking, by default for the whole index."""
        yield from self._scan(Redis.hscan, self.keys.part("counts", ranking), size)
        yield from self._scan(Redis.zscan, self.keys.part("values", ranking), size)

    def _scan(self, command: Callable[..., Any], key: str, size: int) -> Iterator[list[bytes]]:
        cursor, ended = 0, False
        while not ended:
            cursor, found = self._call(command, key, cursor, None, size)
            yield list(found) if isinstance(found, dict) else [member for member, _ in found]
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

    def find_strays(
        self, generation: str, places: Iterable[tuple[str, bytes]], *, mend: bool = False
    ) -> list[float | None] | None:
        """The score with which a member stands where its entry doesn't say, None where it doesn't: for each
        place, which is the name of a facet ranking ('' for the whole index) and a stored member. ``mend``:
        take them out.

        None: the server holds another generation, or is not the one that was written to.
        """
        keys, layout = self.keys, self.layout
        args = (generation, layout.width, int(layout.dense), int(mend), *chain.from_iterable(places))
        reply = self._call(scripts.FIND_STRAYS, (keys.live, keys.meta), args)
        return None if reply is None else [None if score is None else float(score) for score in reply]

    def check_names(
        self, generation: str, names: Sequence[bytes], *, mend: bool = False
    ) -> list[bytes] | None:
        """Those names that are registered without a ranking, or the other way round. ``mend``: put it right.

        None: the server holds another generation, or is not the one that was written to.
        """
        keys = self.keys
        reply = self._call(scripts.CHECK_NAMES, (keys.live, keys.meta), (generation, int(mend), *names))
        return None if reply is None else [name for name, wrong in zip(names, reply, strict=True) if wrong]

    def check_counts(
        self, generation: str, texts: Iterable[bytes], *, ranking: str = "", members: bool, mend: bool = False
    ) -> list[tuple[bytes, int, bytes]] | None:
        """Those distinct values of a ranking that are counted wrongly, with how many members have them and
        how many were counted, as text. ``texts``: values, or stored ``members`` whose values are meant.
        ``mend``: count them anew.

        None: the server holds another generation, or is not the one that was written to.
        """
        keys = self.keys
        args = (generation, self.layout.width, int(mend), ranking, int(members), *texts)
        reply = self._call(scripts.CHECK_COUNTS, (keys.live, keys.meta), args)
        return None if reply is None else list(zip(reply[::3], reply[1::3], reply[2::3], strict=True))

    def eviction_policy(self) -> str | None:
        """What Redis does when its memory is full, such as ``noeviction``; None where it doesn't say.

        INFO tells it to those who may not use CONFIG, too.
        """
        policy: str | None = self._call(Redis.info, "memory").get("maxmemory_policy")
        return policy

    # Health

    def check_health(self) -> Health:
        """What this server holds, and whether it can be believed."""
        return Health(*map(bytes.decode, self._call(scripts.CHECK_HEALTH, (self.keys.meta,), (_LEASE,))))

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

    def load_rows(self, building: str, rows: Collection[tuple[str, Number, bytes]]) -> bool:
        """Add up to ``LOAD_LIMIT`` members (each a :class:`Change`, its member as text) to what is being built.
        False: it was superseded."""
        keys, packed = self.keys, b""
        texts: list[str | int]
        if self.layout.entries:
            texts = [part for member, score, entry in rows for part in (repr(score), member, len(entry))]
            packed = b"".join([entry for _, _, entry in rows])
        else:
            texts = [part for member, score, _ in rows for part in (repr(score), member)]
        args = (building, *self._layout, json.dumps(texts, separators=(",", ":")), packed)
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

    # Pruning

    def builds(self) -> list[str]:
        """The generations that Redis holds, live or being built; none where it has nothing of the index."""
        found = self._call(Redis.hmget, self.keys.meta, ["generation", "building"])
        return [name.decode() for name in found if name]

    def scan_keys(self, size: int) -> Iterator[list[bytes]]:
        """Every key of the index, in batches of about ``size``, perhaps one twice."""
        pattern, cursor, ended = _escape(self.keys.meta.removesuffix("meta")) + "*", 0, False
        while not ended:
            cursor, found = self._call(Redis.scan, cursor, pattern, size)
            if found:
                yield found
            ended = cursor == 0

    def unlink(self, keys: Sequence[bytes]) -> int:
        """Remove keys, their memory freed in the background. Returns how many there were."""
        removed: int = self._call(Redis.unlink, *keys)
        return removed


def _text(score: Number | None) -> str:
    return "" if score is None else repr(score)


def _escape(text: str) -> str:
    """``text`` as a pattern that matches itself."""
    return re.sub(r"([\\*?\[\]^])", r"\\\1", text)
