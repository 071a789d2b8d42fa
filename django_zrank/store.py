"""One index in Redis. The only module that talks to Redis; members and scores are text and numbers here."""

from __future__ import annotations

import json
import re
import struct
import sys
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

from django_redis import get_redis_connection
from redis import Redis
from redis.exceptions import RedisClusterException, RedisError, ResponseError

from . import scripts
from .codec.layout import PLAIN, Layout
from .conf import get_settings
from .exceptions import FilterTooLarge, IndexUnavailable, IndexUnhealthy, NotBuilt
from .filters import Scope
from .keys import Keys

__all__ = [
    "ALL",
    "LOAD_LIMIT",
    "Applied",
    "Bound",
    "Change",
    "Epoch",
    "Health",
    "Page",
    "Place",
    "Sample",
    "Standing",
    "Store",
]

LOAD_LIMIT: Final = 3500
"""The most rows that one ``load_rows()`` takes: Lua's ``unpack`` fails at 8,000 values."""

_WINDOW: Final = 600
"""Seconds for which the place of a member's newest write is remembered; a write that took longer is refused."""

_LEASE: Final = 600
"""Seconds without a sign of life after which a rebuild counts as dead."""

_SPARE_NUMBERS: Final = 8
"""Random numbers beyond those needed, for the few that are drawn again so that none is favoured."""

_NARROWED: Final = 5
"""Seconds for which the ranking of a combination of filters is kept: its answers may be as old."""

_NARROW_LIMIT: Final = 100_000
"""How many members the smallest of several filters may have: more would block the server too long."""

ALL: Final = Scope()
"""Every member of an index."""

_SAMPLING: Final[Mapping[str, Any]] = {"measure": "score", "method": "ordinal", "remember": None}

Number = int | float

Excluded = Sequence[int] | Sequence[str]
"""Primary keys never to offer: integers below 2**53, that of the asking one among them; or any, as text. An empty one
excludes nobody."""


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


class Sample(NamedTuple):
    """What ``sample_nearby()`` drew."""

    size: int | None
    """Members in the ranking; None where several filters were tested one by one, which tells no ranks."""

    position: int
    """How many members stand below the one who asked."""

    band: int
    """Which of the bands was used, from 0."""

    candidates: int
    """Members in that band, the asking one not counted, the excluded ones counted."""

    drawn: list[tuple[int, bytes, float]]
    """Position (from 0 at the lowest score), stored member and score of each, in the order they were drawn."""

    before: list[int] | None
    """What stands before the rank of each; None for an ordinal rank, which the position tells."""


class _SampleArgs(NamedTuple):
    """What ``sample_anywhere.lua`` takes."""

    member: str
    wanted: int
    reverse: str
    bands: bytes
    excluded: str | bytes
    numbers: bytes
    width: int
    entries: int
    measure: str
    method: str
    tests: str
    patience: int
    remember: int | str


class Bound(NamedTuple):
    """A score to begin or end with."""

    score: str
    """As the sorted set compares it; '' for none."""

    exact: bytes
    """Its tie bytes, where the score alone is not exact."""

    value: Any
    """The value itself, in its field's own type; None for none."""


class Place(NamedTuple):
    """Where a member stands."""

    place: int
    """How many stand before it, one by one."""

    before: int
    """What stands before its rank: members or values that rank better, by the ranking method."""

    stored: bytes
    score: float


class Page(NamedTuple):
    """Members that stand one after the other, best first."""

    size: int
    """Members in the ranking."""

    first: int
    """How many stand before the first one."""

    following: int
    """How many there are from the first to the end of the ranking, or to the worst score asked for."""

    before: int
    """What stands before the first one's rank; without a first one, before the rank that it would have."""

    members: list[tuple[bytes, float]]
    """Stored member and score of each."""


class Store:
    """The keys of one index, and what can be done with them.

    Every method raises :exc:`~django_zrank.exceptions.IndexUnavailable` where Redis can't be reached.
    """

    def __init__(self, name: str, layout: Layout = PLAIN, scope: Scope = ALL) -> None:
        self.name = name
        self.layout = layout
        self.scope = scope
        """Which members the reading methods are about."""

        self._ranking = scope.ranking
        self._is_plain = layout == PLAIN and self._ranking == ""

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
            if str(error).startswith("TOOLARGE"):
                size = int(str(error).split()[1])
                raise FilterTooLarge(
                    f"Index {self.name!r}: no facet covers what is asked, and it would be computed from {size:,} "
                    f"members, more than {_NARROW_LIMIT:,}"
                ) from None
            if str(error).startswith("UNHEALTHY"):
                raise IndexUnhealthy(f"Index {self.name!r}: Redis restarted or failed over") from None
            raise IndexUnavailable(f"Index {self.name!r}: Redis refused: {error}") from error
        except (RedisError, RedisClusterException) as error:  # the one is no kind of the other
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
        excluded: Excluded,
        numbers: Callable[[int], bytes],
        measure: str = "score",
        method: str = "ordinal",
        remember: int | None = None,
    ) -> Sample | None:
        """Random distinct members near ``member``; None where it is not ranked.

        ``bands``: distances below and above, tried in turn; their ``measure`` is the "score", "exact" for scores that
        may lie beyond 2**53, or "ranks". ``numbers``: a function from a count of bytes to random bytes.
        ``remember``: microseconds for which those drawn are not drawn again. One round trip; two where a
        combination of filters leaves so few that they are computed first.
        """
        script, keys, args = self._sampling(
            member, wanted, reverse, bands, excluded, numbers, measure, method, remember
        )
        return self._sampled(self._call(script, keys, args), keys, args)

    def sample_many(self, wishes: Sequence[Mapping[str, Any]]) -> list[Sample | None]:
        """Several samples in one round trip. Each of ``wishes`` holds what ``sample_nearby()`` takes, by name."""
        asked = [self._sampling(**{**_SAMPLING, **wish}) for wish in wishes]
        replies = self._call(scripts.run_all, asked)
        return [self._sampled(reply, *call[1:]) for reply, call in zip(replies, asked, strict=True)]

    def _sampling(
        self,
        member: str,
        wanted: int,
        reverse: bool,
        bands: Sequence[tuple[Number, Number]],
        excluded: Excluded,
        numbers: Callable[[int], bytes],
        measure: str,
        method: str,
        remember: int | None,
    ) -> scripts.Call:
        """The script that draws a sample, its keys and its arguments."""
        misses = 2 * (wanted + 17) if excluded or remember else 0
        keys, ranking = self.keys, self._ranking
        patience = 0 if ranking is not None else self._patience(wanted)
        if measure == "exact":
            halves = (half for band in bands for end in band for half in _halves(end))
            packed = struct.pack(f">{4 * len(bands)}I", *halves)
        else:
            packed = struct.pack(f"<{2 * len(bands)}d", *chain.from_iterable(bands))
        args = (
            member,
            wanted,
            "1" if reverse else "0",
            packed,
            _packed(excluded),
            numbers(6 * (wanted + misses + patience + _SPARE_NUMBERS)),
        )
        if self._is_plain and measure == "score" and method == "ordinal" and not remember:
            return scripts.SAMPLE_NEARBY, (keys.live, keys.meta), args
        read = (keys.ranking(ranking or ""), keys.live, keys.meta)
        seen = keys.seen(member) if remember else keys.meta
        tests = ("", 0) if ranking is not None else (str(self.scope), patience)
        tested = () if ranking is not None else self._tested
        more = (*self._layout[:2], measure, method, *tests, remember or "")
        return scripts.SAMPLE_ANYWHERE, (*read, seen, *tested), (*args, *more)

    def _patience(self, wanted: int) -> int:
        """How many members that fail the tests are looked up, in each of their sets, before giving up."""
        sets = sum(len(clause.names) for clause in self.scope.clauses)
        return max(wanted + 16, (8 * wanted + 64) // sets)

    def _sampled(self, reply: Any, keys: Sequence[str], args: Sequence[Any]) -> Sample | None:
        """A sample out of what the script answered to these keys and arguments."""
        if reply == 0:
            asked = _SampleArgs(*args)
            if isinstance(asked.excluded, str):
                # What is narrowed may be some seconds old, and hold the asking one at a place that it has left.
                asked = asked._replace(excluded=f"{asked.excluded}{asked.member}\0")
            asked = asked._replace(tests="", patience=0)
            reply = self._read_narrowed(scripts.SAMPLE_ANYWHERE, asked, keys[3:4])
        if reply is None:
            return None
        size, position, band, candidates, *drawn = reply
        before = drawn.pop() if len(drawn) % 3 else None
        scores = map(float, drawn[2::3])
        found = list(zip(drawn[::3], drawn[1::3], scores, strict=True))
        if self._ranking is None:
            size = before = None
        return Sample(size, position, band - 1, candidates, found, before)

    def position(self, member: str, *, reverse: bool) -> int | None:
        """How many members stand before ``member``; None where it is not ranked. Only where members are stored as bare
        primary keys, in one ranking."""
        key = self.keys.ranking(self._ranking or "")
        found: int | None = self._call(Redis.zrevrank if reverse else Redis.zrank, key, member)
        if found is None:
            self.require_built()
        return found

    def score(self, member: str) -> float | None:
        """The score of ``member``; None where it is not ranked. Only where ``position()`` can be asked."""
        found: float | None = self._call(Redis.zscore, self.keys.ranking(self._ranking or ""), member)
        if found is None:
            self.require_built()
        return found

    def places(self, members: Iterable[str], *, reverse: bool, method: str) -> tuple[int, list[Place | None]]:
        """The size of the ranking, and where each member stands, None for one that is not ranked. One round trip."""
        args = (*self._layout[:2], "1" if reverse else "0", method, *members)
        size, *found = self._read(scripts.READ_RANKS, args)
        return size, [None if one is None else Place(one[0], one[1], one[2], float(one[3])) for one in found]

    def page(self, first: int, count: int, *, reverse: bool, method: str) -> Page:
        """Up to ``count`` members from the place ``first`` (0 is best) on. One round trip."""
        return self._page(("place", first), count, reverse, method)  # type: ignore[return-value]

    def page_around(self, member: str, count: int, *, reverse: bool, method: str) -> Page | None:
        """``count`` members with ``member`` in their middle, or at the ranking's end; None where it is not ranked."""
        return self._page(("member", member), count, reverse, method)

    def page_between(self, best: Bound, worst: Bound, count: int, *, reverse: bool, method: str) -> Page:
        """Up to ``count`` members with scores from ``best`` to ``worst``, ends included. One round trip."""
        return self._page(("score", *best[:2], *worst[:2]), count, reverse, method)  # type: ignore[return-value]

    def _page(self, start: tuple[Any, ...], count: int, reverse: bool, method: str) -> Page | None:
        args = (*self._layout[:2], "1" if reverse else "0", method, count, *start)
        reply = self._read(scripts.READ_PAGE, args)
        if reply is None:
            return None
        size, first, following, before, members = reply
        pairs = zip(members[::2], map(float, members[1::2]), strict=True)
        return Page(size, first, following, before, list(pairs))

    def size(self) -> int:
        """How many members are ranked."""
        ranking = self._ranking
        size: int
        if ranking is not None:
            size = self._call(Redis.zcard, self.keys.ranking(ranking))
        else:
            narrowing = (self._narrowed, self.keys.live, *self._tested)
            size = self._call(scripts.NARROW, narrowing, self._narrowing)
        if not size:
            self.require_built()
        return size

    def count_facet(self, facet: str, covered: str = "") -> dict[bytes, int]:
        """How many members have each value of a facet, by the names of the values' rankings.

        ``covered``: how the names of a composite facet's rankings begin that hold the same members. They are as many
        as there are values; members would have to be counted one by one.
        """
        store = Store(self.name, self.layout) if covered else self
        own = f"{facet}:"
        found = covered or own
        reply = store._read(scripts.COUNT_FACET, (self.layout.width, found, _NARROW_LIMIT))
        names = (own.encode() + name.removeprefix(found.encode()) for name in reply[::2])
        return dict(zip(names, reply[1::2], strict=True))

    def require_built(self) -> None:
        """Raise ``NotBuilt`` unless there is a generation to read. Asked only where nothing was found."""
        if not self._call(Redis.hexists, self.keys.meta, "generation"):
            raise self._not_built()

    @property
    def _layout(self) -> tuple[int, int, int]:
        """The layout as scripts take it; those that only read are not told the last."""
        return self.layout.width, int(self.layout.entries), int(self.layout.dense)

    @property
    def _tested(self) -> list[str]:
        """The keys that the clauses of the scope are about."""
        keys = self.keys
        return [
            keys.group(name) if clause.kind == "g" else keys.ranking(name)
            for clause in self.scope.clauses
            for name in clause.names
        ]

    @property
    def _narrowed(self) -> str:
        return self.keys.narrowed("\0".join((str(self.scope), *self._tested)))

    @property
    def _narrowing(self) -> tuple[Any, ...]:
        return (*self._layout, str(self.scope), _NARROW_LIMIT, _NARROWED)

    def _read(self, script: scripts.Script, args: tuple[Any, ...]) -> Any:
        """What a script answers of the members in scope. One round trip."""
        ranking, keys = self._ranking, self.keys
        if ranking is None:
            return self._read_narrowed(script, args)
        return self._call(script, (keys.ranking(ranking), keys.live, keys.meta), args)

    def _read_narrowed(self, script: scripts.Script, args: tuple[Any, ...], more: Sequence[str] = ()) -> Any:
        keys, narrowed = self.keys, self._narrowed
        first = (scripts.NARROW, (narrowed, keys.live, *self._tested), self._narrowing)
        second = (script, (narrowed, keys.live, keys.meta, *more), args)
        _, reply = self._call(partial(scripts.run_all, together=True), (first, second))
        return reply

    # Groups

    def add_to_group(self, group: str, members: Iterable[str], until: float, now: float) -> int:
        """Add primary keys until a time in microseconds. Returns how many did not belong to it ``now``."""
        scores = dict.fromkeys(members, until)
        added: int = self._call(self._without_expired, group, now, Redis.zadd, scores) if scores else 0
        return added

    def remove_from_group(self, group: str, members: Iterable[str], now: float) -> int:
        """Remove primary keys. Returns how many belonged to it ``now``."""
        gone = list(members)
        removed: int = self._call(self._without_expired, group, now, Redis.zrem, *gone) if gone else 0
        return removed

    def _without_expired(
        self, client: Redis, group: str, now: float, command: Callable[..., Any], *args: Any
    ) -> Any:
        """What a command answers of a group after those whose time has ended have left it. One round trip."""
        key, pipeline = self.keys.group(group), client.pipeline(transaction=False)
        pipeline.zremrangebyscore(key, "-inf", now)
        command(pipeline, key, *args)
        return pipeline.execute()[-1]

    def count_group(self, group: str, now: float) -> int:
        """How many belong to a group after a time in microseconds."""
        count: int = self._call(Redis.zcount, self.keys.group(group), f"({now!r}", "+inf")
        return count

    def group_until(self, group: str, members: Iterable[str]) -> list[float | None]:
        """Until when each member belongs to a group, in microseconds; None for one that doesn't."""
        asked = list(members)
        found: list[float | None] = self._call(Redis.zmscore, self.keys.group(group), asked) if asked else []
        return found

    def clear_group(self, group: str) -> None:
        """Remove all members of a group."""
        self._call(Redis.unlink, self.keys.group(group))

    def forget_seen(self, member: str) -> None:
        """Drop what was shown to a member."""
        self._call(Redis.unlink, self.keys.seen(member))

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


def _packed(excluded: Excluded) -> str | bytes:
    """Integers take a tenth of the time: here, on the way and in the script."""
    if excluded and isinstance(excluded[0], int):
        packed = array("q", excluded)
        if sys.byteorder == "big":
            packed.byteswap()
        return b"q" + packed.tobytes()
    return "\0".join(("", *excluded, ""))


def _halves(number: Number) -> tuple[int, int]:
    """A distance of up to 64 bits as two numbers of 32."""
    return divmod(min(int(number), 2**64 - 1), 2**32)


def _escape(text: str) -> str:
    """``text`` as a pattern that matches itself."""
    return re.sub(r"([\\*?\[\]^])", r"\\\1", text)
