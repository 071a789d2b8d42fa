"""One index in Redis: its writes, its verification and its rebuilds. Members and scores are text and numbers here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

from redis import Redis

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
"""Seconds for which the version of a member's newest write is remembered at least; a write that took twice as long is
refused."""

_UNLINKED: Final = 100
"""The number of facet rankings of an old generation that one call unlinks: about a millisecond."""

_LEASE: Final = 600
"""Seconds without a sign of life after which a rebuild counts as dead."""


class Epoch(NamedTuple):
    """The state that a write refers to: taken before its rows are read, checked when they are applied."""

    generation: str
    building: str

    token: str
    """The version of a write. Members whose newest write has a higher one are refused."""

    term: str
    """Under which the server was accepted."""


class Applied(NamedTuple):
    """The result of a write."""

    version: int
    """The number of the write, which only grows: a token for what is read from now on."""

    refused: list[bytes]
    """The members that were written by others since the token was taken: to be read once more."""


class Change(NamedTuple):
    """A member as it is to be written. Plain tuples of the same shape do, too."""

    member: str | bytes
    score: Number | None
    """None: not ranked."""

    entry: bytes = b""
    """See :class:`~django_zrank.codec.layout.Layout`."""


class Standing(NamedTuple):
    """The score, the version and the entry of a member in Redis."""

    score: float | None
    """None where it isn't ranked."""

    version: float | None
    """Of its newest write. A member with the same version as before was not written in between."""

    entry: bytes = b""

    absent: bytes = b""
    """The facet rankings of its entry in which it does not stand with that score, joined by NUL bytes."""


class Health(NamedTuple):
    """The state of an index on a server; empty text for what there is not."""

    generation: str
    building: str

    behind: str
    """The term of a replay that is not finished, or "rebuild" where only a rebuild will do."""

    applied: str
    """The version up to which writes have been applied."""

    accepted: str
    """The identity of the server that was accepted."""

    term: str
    """Under which it was."""

    owner: str
    """The database whose build it is, by the name in its row of the generation."""

    server: str
    """The identity of the server that answers: its process and its replication history."""

    is_first: str
    """"1" where its history has no predecessor: it was never promoted, nor fully resynchronised with another."""

    intact: str
    """"0" where keys are missing that nobody removed: they were evicted."""

    @property
    def is_accepted(self) -> bool:
        """True if it is the server that was accepted, and has neither restarted nor begun another history since."""
        return self.accepted == self.server

    @property
    def position(self) -> tuple[int, int]:
        """The term and the version up to which it has what was written: batches beyond it are lost."""
        return int(self.term or 0), int(self.applied or 0)


class Store(Executor):
    """The keys of one index, and how they are written, verified and rebuilt."""

    def __init__(self, name: str, layout: Layout = PLAIN) -> None:
        super().__init__(name)
        self.layout = layout

    def _call(self, command: Script | Callable[..., Any], *args: Any) -> Any:
        """A script, or a method of the client, with Redis's errors as ours."""
        if isinstance(command, Script):
            return self.send(Request((Call(command, *args),), list))[0]
        return self.guard(lambda client: command(client, *args))

    def size(self) -> int:
        """Return the number of members."""
        return self.run(partial(Size().request, View(self.layout)))

    @property
    def _layout(self) -> tuple[int, int, int]:
        """The layout as scripts take it; those that only read are not told the last."""
        return self.layout.width, int(self.layout.entries), int(self.layout.dense)

    # Writing

    def begin_write(self) -> Epoch:
        """The epoch of a write whose rows are about to be read. Raises ``NotBuilt``."""
        keys = self.keys
        reply = self._call(scripts.BEGIN_WRITE, (keys.meta, keys.doomed), (_LEASE,))
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
        roots = keys.at(epoch.generation).root, keys.at(epoch.building).root
        args = (*epoch, _WINDOW, _LEASE, *self._layout, *chain.from_iterable(texts))
        reply = self._call(scripts.APPLY_CHANGES, (*roots, keys.recent, keys.meta), args)
        return None if reply is None else Applied(int(reply[0]), reply[1:])

    # Verifying

    def scores(self, members: Iterable[str | bytes]) -> list[float | None]:
        """The score of each member, None for one that isn't ranked. One round trip."""
        asked = list(members)
        found: list[float | None] = self._call(Redis.zmscore, self.live.root, asked) if asked else []
        return found

    def scan(self, size: int, ranking: str = "") -> Iterator[list[bytes]]:
        """Every member of a facet ranking, by default of the whole index, as stored: in batches of about
        ``size`` and in no order, perhaps one twice.

        Those that are there from the beginning to the end are among them, whatever comes and goes meanwhile,
        unless another generation takes their place.
        """
        return self._scan(Redis.zscan, self.live.ranking(ranking), size)

    def scan_entries(self, size: int) -> Iterator[list[bytes]]:
        """The members that have an entry (primary keys as text), as ``scan()`` does."""
        return self._scan(Redis.hscan, self.live.part("entries"), size)

    def scan_names(self, size: int) -> Iterator[list[bytes]]:
        """The names of the facet rankings that are registered, and then of those that there are, or traces of."""
        yield from self._scan(Redis.zscan, self.live.part("rankings"), size)
        cursor, ended, prefix = 0, False, self.live.part("").encode()
        while not ended:
            cursor, found = self._call(Redis.scan, cursor, _escape(self.live.part("")) + "*", size)
            names = (key.removeprefix(prefix) for key in found)
            # A value has no plain colon in it: what follows one behind the name is a part of the ranking.
            yield [b":".join(name.split(b":")[:2]) for name in names if b":" in name]
            ended = cursor == 0

    def scan_values(self, size: int, ranking: str = "") -> Iterator[list[bytes]]:
        """The distinct values that are counted or listed for a facet ranking, by default for the whole index."""
        yield from self._scan(Redis.hscan, self.live.part("counts", ranking), size)
        yield from self._scan(Redis.zscan, self.live.part("values", ranking), size)

    def _scan(self, command: Callable[..., Any], key: str, size: int) -> Iterator[list[bytes]]:
        cursor, ended = 0, False
        while not ended:
            cursor, found = self._call(command, key, cursor, None, size)
            yield list(found) if isinstance(found, dict) else [member for member, _ in found]
            ended = cursor == 0

    def read_members(self, generation: str, members: Iterable[str | bytes]) -> list[Standing] | None:
        """Return the :class:`Standing` of each of these members (primary keys as text).

        None: the server holds another generation, or is not the one that was written to.
        """
        keys, layout = self.keys, self.layout
        args = (generation, layout.width, int(layout.entries), *members)
        reply = self._call(scripts.READ_MEMBERS, (keys.at(generation).root, keys.recent, keys.meta), args)
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
        reply = self._call(scripts.FIND_STRAYS, (keys.at(generation).root, keys.meta), args)
        return None if reply is None else [None if score is None else float(score) for score in reply]

    def check_names(
        self, generation: str, names: Sequence[bytes], *, mend: bool = False
    ) -> list[bytes] | None:
        """Those names that are registered without a ranking, or the other way round. ``mend``: put it right.

        None: the server holds another generation, or is not the one that was written to.
        """
        keys = self.keys
        reply = self._call(
            scripts.CHECK_NAMES, (keys.at(generation).root, keys.meta), (generation, int(mend), *names)
        )
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
        reply = self._call(scripts.CHECK_COUNTS, (keys.at(generation).root, keys.meta), args)
        return None if reply is None else list(zip(reply[::3], reply[1::3], reply[2::3], strict=True))

    def eviction_policy(self) -> str | None:
        """Return Redis's policy when its memory is full, such as ``noeviction``; None where it doesn't say.

        INFO tells it to those who may not use CONFIG, too.
        """
        policy: str | None = self._call(Redis.info, "memory").get("maxmemory_policy")
        return policy

    # Health

    def check_health(self) -> Health:
        """Return the :class:`Health` of the index on this server. A second round trip after another generation was put
        in place."""
        live = self.live
        while True:
            args = (live.generation, _LEASE)
            health = Health(
                *map(bytes.decode, self._call(scripts.CHECK_HEALTH, (live.root, live.meta), args))
            )
            if health.generation == live.generation:
                return health
            live = self.believe(health.generation)

    def adopt_server(self, health: Health, term: int, *, behind: bool) -> bool:
        """Accept a server, or a history, that was found in this state. False: it holds something else by now."""
        keys = self.keys
        state = (health.generation, health.applied, health.term, health.server, term, int(behind))
        return bool(self._call(scripts.ADOPT_SERVER, (keys.meta, keys.doomed), state))

    def finish_replay(self, behind: str) -> bool:
        """Note that the replay named ``behind`` is done. False: another has begun."""
        return bool(self._call(scripts.FINISH_REPLAY, (self.keys.meta,), (behind,)))

    # Rebuilding

    def start_rebuild(
        self, building: str, *, owner: str, server: str, term: int, polite: bool = False
    ) -> bool:
        """Begin to build the generation ``building`` on ``server``. Another rebuild that is running gives way;
        or, where this one is ``polite``, keeps it from beginning: False."""
        keys = self.keys
        args = (building, owner, server, term, "1" if polite else "0", _LEASE)
        return bool(self._call(scripts.START_REBUILD, (keys.recent, keys.meta, keys.doomed), args))

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
        reply = self._call(scripts.LOAD_ROWS, (keys.at(building).root, keys.recent, keys.meta), args)
        return bool(reply)

    def swap_rebuilt(self, building: str) -> bool:
        """Put what was built in the place of the live generation. False: it was superseded."""
        live, built = self.learn(), self.keys.at(building)
        keys = (live.root, built.root, live.meta, live.doomed)
        swapped = bool(self._call(scripts.SWAP_REBUILT, keys, (building, live.generation)))
        if swapped:
            self.believe(building)
        return swapped

    def abandon_rebuild(self, building: str) -> bool:
        """Give up what was built so far. False: it was superseded."""
        keys = self.keys
        return bool(self._call(scripts.ABANDON_REBUILD, (keys.meta, keys.doomed), (building,)))

    def unlink_doomed(self) -> None:
        """Unlink the keys of generations that were replaced or given up, in pieces."""
        keys = self.keys
        for name in self._call(Redis.smembers, keys.doomed):
            doomed = keys.at(name.decode())
            where = (doomed.root, doomed.meta, doomed.doomed)
            while self._call(scripts.UNLINK_GENERATION, where, (doomed.generation, _UNLINKED)):
                pass

    # Pruning

    def builds(self) -> list[str]:
        """The generations that Redis holds, live or being built; none where it has nothing of the index."""
        found = self._call(Redis.hmget, self.keys.meta, ["generation", "building"])
        return [name.decode() for name in found if name]

    def scan_keys(self, size: int) -> Iterator[list[bytes]]:
        """Every key of the index, in batches of about ``size``, perhaps one twice."""
        pattern, cursor, ended = _escape(f"{self.keys.tag}:") + "*", 0, False
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
