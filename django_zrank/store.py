"""An index in Redis, as it is written: changes, rebuilds, health and verification."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar

from redis import Redis

from .codec.layout import PLAIN, Layout, without_attachment
from .codec.units import Number
from .declaration import Index
from .extension import Preceding, declared, installed, own_keys, written
from .methods import suffixes
from .queries.counts import Size
from .queries.request import Call, Request
from .queries.steps import Steps, drive, one
from .queries.view import View
from .redis import scripts
from .redis.executor import Executor
from .redis.scripts import Script, preceded
from .redis.sending import node_of, primaries, server_of

LOAD_LIMIT: Final = 3500
"""The most rows of a batch of a rebuild, for each holder: the batch is in memory at once."""

LOADED: Final = 800
WRITTEN: Final = 200
"""The most members of rankings that one call of a rebuild, or of a push, writes: so many members of an index without
facets, a fifth of one where each stands in three facet rankings, too. Rows of a rebuild are sorted, and new. With a
million members, a call takes 0.9 to 2.2 ms, or 2 to 3 ms, of the server: ``python -m tests.benchmarks.pieces``."""

_COST: Final = 10
"""Microseconds of the server that each of these writes takes, about."""

_UNLINKED: Final = 100
"""The number of facet rankings of an old build unlinked in one call: about a millisecond."""

_LEFT: Final = 3
"""The number of facet rankings that a member without any is assumed to leave."""

_SCANNED: Final = 1000
"""Members, fields or keys that one round trip of a scan asks for: about a millisecond of the server."""

_KEYS: Final = 500
"""Keys that one UNLINK removes, which takes the server a fraction of a millisecond."""


class Epoch(NamedTuple):
    """The state that a write refers to: taken before its rows are read, checked when they are applied."""

    build: str
    building: str

    token: str
    """The version of a write. Members whose newest write has a higher one are refused."""

    term: str
    """Under which the server was trusted."""

    newest: str = "0"
    """The newest trace on the server, as of the token (``lua/lib/traces.lua``)."""

    is_watched: bool = False
    """True while a watcher keeps the index in step, so that a request need not."""

    required: str = ""
    """Traces that the server must have before a drain may note the write, with spaces."""


class Applied(NamedTuple):
    """The result of a write."""

    version: int
    """The number of the write, which only grows: a token for what is read from now on."""

    newest: str
    """The newest trace on the server, with that token."""

    refused: list[bytes]
    """The members that were written by others since the token was taken: to be read once more."""


class Change(NamedTuple):
    """A member as it is to be written. Plain tuples of the same shape do, too."""

    member: str | bytes
    score: Number | None
    """None: not ranked."""

    membership: bytes = b""
    """See :class:`~django_zrank.codec.layout.Layout`."""


_Change = tuple[str | bytes, Number | None, bytes]

BuiltRow = tuple[str, Number, bytes]
"""A :class:`Change` of a rebuild, its member as text."""


class Health(NamedTuple):
    """The state of an index on a server; a missing text is empty."""

    build: str
    building: str

    behind: str
    """The term of an unfinished replay, or "rebuild" if the index must be rebuilt."""

    applied: str
    """The version of the last write."""

    trusted: str
    """The identity of the server that was trusted."""

    term: str
    """The term under which it was."""

    owner: str
    """The owner of the build, as in the database's row."""

    server: str
    """The identity of the server that answers: its process and its replication history."""

    traces: str
    """The traces of writes that drains may have noted (``lua/lib/traces.lua``)."""

    taken: str
    """The number of the last flush that was taken."""

    took: str
    """The version of its taking."""

    is_first: bool
    """True if its history has no predecessor: it was never promoted, or fully resynchronised."""

    is_evicted: bool
    """True if keys are missing that nobody removed."""

    @classmethod
    def parse(cls, reply: Sequence[bytes]) -> Health:
        """Parse the reply of ``check_health.lua``."""
        words = list(map(bytes.decode, reply))
        fields = dict(zip(words[::2], words[1::2], strict=True))
        history, keys = fields.pop("history"), fields.pop("keys")
        return cls(**fields, is_first=history == "first", is_evicted=keys == "evicted")

    @property
    def is_trusted(self) -> bool:
        """True if the server was trusted, and has neither restarted nor begun another history since."""
        return self.trusted == self.server

    @property
    def position(self) -> tuple[int, int]:
        """The term and the version of the last write."""
        return int(self.term or 0), int(self.applied or 0)

    @property
    def dropped(self) -> int:
        """The version up to which the server has dropped the traces of writes that it has."""
        return int(self.traces.partition(" ")[0] or 0)

    @property
    def noted(self) -> tuple[int, int]:
        """The term, and the version of the newest write that the server has and the database may have noted."""
        newest = int(self.traces.rpartition(" ")[2].partition(".")[0] or 0)
        return self.position[0], max(newest, int(self.took or 0))


class Replaced(Exception):
    """Another build or server has replaced the one that was being compared."""


class _Heads(dict[int, bytes]):
    """MessagePack's head of a text, by the length of that. Only the short ones are kept."""

    def __missing__(self, length: int) -> bytes:
        if length > 255:
            return b"\xdb" + length.to_bytes(4, "big")
        return self.setdefault(length, bytes([0xA0 + length] if length < 32 else [0xD9, length]))


_HEADS: Final = _Heads()


def _pack_all(texts: Iterable[bytes]) -> bytes:
    """MessagePack of texts, one after the other."""
    return b"".join([holder for text in texts for holder in (_HEADS[len(text)], text)])


_Preceded = tuple[Script, tuple[str, ...], tuple[Any, ...]]
"""A script with the texts that extensions put before it, and with the libraries of what stands beside rankings; all
keys; and the arguments of these texts."""

_Written = TypeVar("_Written", bound=tuple[Any, Any, bytes])


class Store(Executor):
    """One index in Redis, as it is written, verified and rebuilt. Members and scores are text and numbers here."""

    WINDOW: ClassVar[float] = 600
    """The least number of seconds for which the version of a member's newest write is kept. A write that takes twice as
    long is refused."""

    LEASE: ClassVar[float] = 600
    """Seconds without a heartbeat after which a rebuild counts as dead."""

    def __init__(self, name: str, layout: Layout = PLAIN, index: Index | None = None) -> None:
        super().__init__(name)
        self.layout = layout

        self.index = index
        """The declaration; None for an index that isn't registered."""

        self._loaded: dict[str, int] = {}
        """The number of rows that this object has loaded, by the build being filled."""

        self.noted: dict[str, Any] = {}
        """The columns that extensions have read with the last of the rows to be written, by their names; empty if no
        row was found."""

    @classmethod
    def of(cls, holder: Index) -> Self:
        """Return the store of a holder of an index."""
        return cls(holder.name, holder.layout, holder)

    def call(self, command: Script | str, keys: Sequence[Any], arguments: Sequence[Any] = ()) -> Any:
        """Return the reply to one call."""
        return self.send(Request((Call(command, keys, arguments),)))[0]

    def read_meta(self, *fields: str) -> list[str]:
        """Return fields of the index's ``meta``, '' for those that are missing."""
        return [(value or b"").decode() for value in self.call("HMGET", (self.keys.meta,), fields)]

    def _is_done(self, script: Script, keys: Sequence[Any], arguments: Sequence[Any]) -> bool:
        """Return True if a script has done its work; False if it was superseded, with nothing changed."""
        return bool(self.call(script, keys, arguments) == b"done")

    def _before_write(self, script: Script, keys: tuple[str, ...]) -> _Preceded:
        found = {} if self.index is None else declared(self.index)
        own, noted = self.keys, self.noted
        texts = [
            one.before_write(script.name, self.index, own, noted.get(name)) for name, one in found.items()
        ]
        return self._preceded(script, keys, texts)

    def _before_check(self, script: Script, keys: tuple[str, ...]) -> _Preceded:
        own = self.keys
        return self._preceded(
            script, keys, [one.before_check(script.name, own) for one in installed().values()]
        )

    def _preceded(
        self, script: Script, keys: tuple[str, ...], found: Iterable[Preceding | None]
    ) -> _Preceded:
        packages, further, arguments = list[str](), list[str](), list[Any]()
        for text in filter(None, found):
            packages.append(text.package)
            further += text.keys
            arguments[:0] = text.arguments  # each text takes its arguments from the end
        whole = preceded(script.name, tuple(packages)) if packages else script
        return whole.using(self.layout.keeper.package), (*keys, *further), tuple(arguments)

    def size(self) -> int:
        return self.run(partial(Size().steps, View(self.layout)))

    # Health

    def note_watcher(self, seconds: float) -> None:
        """Note that a watcher keeps the index in step, and will for some seconds; with 0, that it has ended."""
        drive(self.noting_watcher(seconds), self.send)

    def noting_watcher(self, seconds: float) -> Steps[None]:
        """The steps of :meth:`note_watcher`."""
        command, arguments = ("SET", ("1", "PX", int(1000 * seconds))) if seconds else ("DEL", ())
        yield from one(Call(command, (self.keys.watcher,), arguments))

    def check_health(self) -> Health:
        """Return the :class:`Health` of the index on this server. It takes a second round trip after a swap."""
        return drive(self.checking_health(), self.send)

    def checking_health(self) -> Steps[Health]:
        """The steps of :meth:`check_health`."""
        live = self.believed or (yield from self.learning())
        while True:
            script, names, ends = self._before_check(scripts.CHECK_HEALTH, (live.root, live.meta))
            arguments = (live.build, self.LEASE, *ends)
            (state,) = yield Request((Call(script, names, arguments),))
            health = Health.parse(state)
            if health.build == live.build:
                return health
            live = self.believe(health.build)

    def server_info(self) -> dict[str, Any]:
        """Return the reply to INFO of the server that holds the index."""
        return self.guard(lambda client: node_of(client, self.keys.meta).info())

    def node(self) -> str:
        """Return the name of the server that holds the index; '' for the only one."""
        return self.guard(server_of, self.keys.meta)

    def memory(self) -> int:
        """Return Redis's estimate of the bytes that members take, without facet rankings."""
        live = self.live
        calls = [Call("MEMORY USAGE", (key,)) for key in (live.root, live.memberships)]
        return sum(size or 0 for size in self.send(Request(calls)))

    def adopt_server(self, health: Health, term: int, *, behind: bool) -> bool:
        """Accept a server that was found in this state. Return False if it has another state by now."""
        keys = self.keys
        state = (health.build, health.traces, health.term, health.server, term, int(behind))
        return self._is_done(scripts.ADOPT_SERVER, (keys.meta, keys.doomed), state)

    def finish_replay(self, behind: str) -> bool:
        """Note that the replay named ``behind`` is done. Return False if another has begun."""
        return self._is_done(scripts.FINISH_REPLAY, (self.keys.meta,), (behind,))

    # Changes

    def beginning_write(self) -> Steps[Epoch]:
        """The epoch of a write whose rows are about to be read. Raises ``NotBuilt``."""
        keys = self.keys
        touched = keys.meta, keys.doomed, keys.watcher
        ((*texts, watched),) = yield Request((Call(scripts.BEGIN_WRITE, touched, (self.LEASE,)),))
        build, building, token, term, newest = map(bytes.decode, texts)
        return Epoch(build, building, token, term, newest, bool(watched))

    def applying_changes(
        self, epoch: Epoch, changes: Iterable[_Change], *, nonce: str = "", before: str = ""
    ) -> Steps[Applied | None]:
        """Make members what each :class:`Change` says, in all rankings, unless they were written since the epoch.
        Of a member that is named twice, the first one counts. None, with some written or none: begin again.

        In pieces, all under the epoch: so the version is that of the last one. If a drain is to note the write, it has
        a ``nonce``; ``before`` is its trace so far, if it is one of several. A server that has the last trace has all.
        Raises ``IndexUnhealthy`` if the server lacks what the database has noted, or a former piece.
        """
        keys = self.keys
        first: dict[str | bytes, _Change] = {}
        for change in changes:
            first.setdefault(change[0], change)
        live, built = keys.at(epoch.build), keys.at(epoch.building)
        begins = (*epoch[:4], self.WINDOW, self.LEASE, *self.layout.arguments)
        touched = live.root, built.root, keys.recent, keys.meta, keys.doomed
        script, names, ends = self._before_write(scripts.APPLY_CHANGES, touched)

        refused: list[bytes] = []
        # A rebuild that is running gets the changes, too.
        most = WRITTEN // 2 if epoch.building else WRITTEN
        for writes, piece in self._pieces(first.values(), most):
            members, parts = list(chain.from_iterable(piece)), 3 if self.layout.memberships else 2
            texts = [
                (one, "" if score is None else repr(score), membership)[:parts]
                for one, score, membership in members
            ]
            required = f"{epoch.required} {before}" if nonce else ""
            noted = epoch.newest, required, nonce
            arguments = (*begins, *noted, *chain.from_iterable(texts), *ends)
            writing = Call(script, names, arguments, _COST * writes)
            gone = [one for one, score, _ in members if score is None] if own_keys else ()
            reply, *_ = yield Request((writing, *self._clearing(gone)) if gone else (writing,))
            if reply == [b"superseded"]:
                return None
            if reply == [b"lacking"]:
                raise self.lacking()
            _, version, newest, *others = reply
            before = trace_of(int(version), nonce)
            for note in written:
                note(live, (int(epoch.term or 0), int(version)))
            refused += others
        return Applied(int(version), newest.decode(), refused)

    def _clearing(self, members: Sequence[str | bytes]) -> list[Call]:
        """Return calls that unlink what parts keep for members that leave. It may be unlinked in vain: if a newer write
        has won, the member stays."""
        texts = [one if isinstance(one, str) else one.decode() for one in members]
        return [Call("UNLINK", [self.keys.beside(kind, one) for one in texts]) for kind in own_keys]

    def _pieces(self, changes: Collection[_Written], most: int) -> Iterator[tuple[int, list[list[_Written]]]]:
        """Yield members in pieces of at most so many writes, with their number; without members, one empty piece.

        A piece is a list of groups of members that stand in the same facet rankings: it writes to few of these, by one
        command each. A member of more rankings than fit makes a piece of its own.
        """
        groups: dict[bytes, list[_Written]] = {b"": list(changes)}
        if self.layout.memberships:
            groups = defaultdict(list)
            width = self.layout.width
            for change in changes:
                # The names of its facet rankings; tie bytes come first where other members have none.
                groups[without_attachment(change[2][width:])].append(change)
        piece: list[list[_Written]] = []
        left = most
        for names in sorted(groups):
            each, at, members = self._writes(names), 0, groups[names]
            while at < len(members):
                count = max(left // each, not piece)
                if count:
                    piece.append(members[at : at + count])
                    at += count
                    left -= each * len(piece[-1])
                else:
                    yield most - left, piece
                    piece, left = [], most
        yield most - left, piece

    def _writes(self, names: bytes) -> int:
        """Return the number of writes of a member, by the names of its facet rankings, that to the hash included."""
        facets = names.count(b"\0") + 1 if names else _LEFT if self.layout.memberships else 0
        return (1 + facets) * self.layout.keeper.writes + bool(facets)

    # Rebuilding

    def start_rebuild(
        self, building: str, *, owner: str, server: str, term: int, polite: bool = False
    ) -> bool:
        """Begin to fill the build ``building`` on ``server``. Another rebuild that is running gives way;
        or, where this one is ``polite``, keeps it from beginning: False."""
        keys = self.keys
        self._loaded[building] = 0
        args = (building, owner, server, term, "1" if polite else "0", self.LEASE)
        script, names, ends = self._before_check(scripts.START_REBUILD, (keys.recent, keys.meta, keys.doomed))
        return self._is_done(script, names, (*args, *ends))

    def _pack(self, rows: Sequence[BuiltRow]) -> bytes:
        """MessagePack of rows that stand in the same facet rankings."""
        first = rows[0][2]
        tied = len(self.layout.split(first)[0])
        scored: list[bytes] = []
        noted: list[bytes] = []
        # One loop that makes no containers: they would have the garbage collector run, which takes as long as the rest.
        for text, score, membership in rows:
            number, member = repr(score).encode(), text.encode()
            stored = membership[:tied] + member if tied else member
            scored += _HEADS[len(number)], number, _HEADS[len(stored)], stored
            if first:
                noted += _HEADS[len(member)], member, _HEADS[len(membership)], membership
        return _pack_all([without_attachment(first[tied:]), b"".join(scored), b"".join(noted)])

    def load_rows(self, building: str, rows: Collection[BuiltRow]) -> bool:
        """Add members to what is being built, in pieces. False: it was superseded.

        Not in one pipeline: the server would answer all of it before it turns to another client."""
        keys = self.keys
        touched = keys.at(building).root, keys.recent, keys.meta
        script, names, ends = self._before_write(scripts.LOAD_ROWS, touched)
        for _, piece in self._pieces(rows, LOADED):
            before = self._loaded.get(building, 0)
            after = self._loaded[building] = before + sum(map(len, piece))
            packed = b"".join(map(self._pack, piece))
            args = (building, *self.layout.arguments, packed, before, after, *ends)
            if not self._is_done(script, names, args):
                return False
        return True

    def keep_alive(self, building: str) -> None:
        """Note that a rebuild is alive while the database still looks for its first rows."""
        keys = self.keys  # without what parts put before it: there is no row
        where = (keys.at(building).root, keys.recent, keys.meta)
        self.call(scripts.LOAD_ROWS, where, (building, *self.layout.arguments, b"", "", ""))

    def swap_rebuilt(self, building: str, noted: Mapping[str, Any] = MappingProxyType({})) -> bool:
        """Put what was built in the place of the live build. False: it was superseded.

        ``noted``: fields of ``meta`` that belong to it, with their values; None for no such field.
        """
        live, built = self.learn(), self.keys.at(building)
        keys = (live.root, built.root, live.meta, live.doomed)
        values = ("" if value is None else value for value in noted.values())
        fields = chain.from_iterable(zip(noted, values, strict=True))
        arguments = building, live.build, self._loaded.get(building, 0), *fields
        swapped = self._is_done(scripts.SWAP_REBUILT, keys, arguments)
        if swapped:
            self.believe(building)
        return swapped

    def abandon_rebuild(self, building: str) -> bool:
        """Give up what was built so far. False: it was superseded."""
        keys = self.keys
        return self._is_done(scripts.ABANDON_REBUILD, (keys.meta, keys.doomed), (building,))

    def unlink_doomed(self) -> None:
        """Unlink the keys of builds that were replaced or given up, in pieces."""
        keys = self.keys
        for name in self.call("SRANDMEMBER", (keys.doomed,), (_UNLINKED,)):
            doomed = keys.at(name.decode())
            where = (doomed.root, doomed.meta, doomed.doomed)
            while not self._is_done(scripts.UNLINK_BUILD, where, (doomed.build, _UNLINKED, *suffixes())):
                pass

    # Verifying

    def read(self, calls: Sequence[Call], *, atomic: bool = False) -> list[Any]:
        """Return the replies to several calls in one round trip; ``atomic``: at one moment."""
        return self.send(Request(calls, atomic=atomic)) if calls else []

    def scan(self, command: str, key: str | bytes) -> Iterator[list[bytes]]:
        """Yield the members of a sorted set (ZSCAN), or the fields of a hash (HSCAN), some at a time, perhaps one
        twice. None that stays while they are read is left out."""
        cursor, ended = 0, False
        while not ended:
            cursor, found = self.call(command, (key,), (cursor, "COUNT", _SCANNED))
            yield [member for member, _ in found] if command == "ZSCAN" else list(found)
            ended = cursor == 0

    def scan_keys(self, prefix: str, size: int = _SCANNED) -> Iterator[list[bytes]]:
        """Yield the keys on the same server that begin with ``prefix``, about ``size`` at a time, perhaps one twice."""
        cursor, pattern, ended = 0, re.sub(r"([\\*?\[\]^])", r"\\\1", prefix) + "*", False

        def scan(client: Redis) -> Any:
            return node_of(client, self.keys.meta).scan(cursor, pattern, size)

        while not ended:
            cursor, found = self.guard(scan)
            yield found
            ended = cursor == 0

    def eviction_policy(self) -> str | None:
        """Return Redis's policy when its memory is full, such as ``noeviction``; None where it doesn't say. Of several
        servers, the first other one: indexes move among them.

        Read by INFO, which accounts without CONFIG may use, too.
        """

        def ask(client: Redis) -> list[str | None]:
            return [server.info("memory").get("maxmemory_policy") for server in primaries(client)]

        policies = self.guard(ask)
        return next((policy for policy in policies if policy != "noeviction"), "noeviction")

    # Pruning

    def unlink_all(self, build: str | None = None, *, dry_run: bool = False) -> int:
        """Remove every key of the index, or of a build that is not live, a few at a time, and return their number.
        ``dry_run``: only count them."""
        prefix = f"{self.keys.tag}:" if build is None else self.keys.at(build).below
        pieces = filter(None, self.scan_keys(prefix, _KEYS))
        return sum(len(keys) if dry_run else self.call("UNLINK", keys) for keys in pieces)


def trace_of(version: int, nonce: str) -> str:
    """Return the trace of a write that a drain may note, as ``lua/lib/traces.lua`` keeps it."""
    return f"{version}.{nonce}"
