"""Rankings of the members that pass several filters, and counts of these by a facet: made by plain commands, and kept.

A client reads the smallest filter in pages, looks its members up in the others, and adds those that pass to a key of
its own. When it is complete, this takes the place of the one that is kept.

Pages are read by ZSCAN, which misses no entry that is there all the time, however many move meanwhile. A member that is
written meanwhile may be stored in another form, or move from a set that is not read yet to one that is: ``recent``
names these members, and they are looked up again at the end.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..conf import get_settings
from ..exceptions import FilterNotReady, FilterTooLarge
from ..redis import scripts
from ..redis.keys import Keys
from .query import Query
from .request import Call, Request, Swapped

if TYPE_CHECKING:
    from .view import View

__all__ = ["Counts", "Intersection"]

KEPT: Final = 5000
"""Milliseconds for which it is kept, from the beginning of its making: answers may be as old."""

SHARE: Final = 20
"""If that is longer, it is kept for as many times as its making has taken."""

_PAGE: Final = 500
"""Members that one command reads, looks up or adds. In no order, 1,000 take 2.6 to 3.6 ms to add to 400,000."""

_LEASE: Final = 1000
"""Milliseconds after which a client that makes it, and sends nothing, no longer keeps others from doing so."""

_GIVEN_UP: Final = 5000
"""Milliseconds within which another call may go on with what a client gave up."""

_SPARE: Final = 60_000
"""Milliseconds for which a key stays that nobody reads any more, to be unlinked by a client that makes another one:
Redis may free a key that expires on the spot."""

_WAIT: Final = 0.02
"""Seconds after which a client looks again for what another one makes."""

_CHANGES: Final = {"ZADD": 1, "HSET": 1, "ZREM": -1}
"""Commands that reply by how many they make a key larger or smaller."""


class Found(NamedTuple):
    size: int
    """Its members; of counts, the values."""

    stamp: bytes
    """Another one each time it is made."""

    replies: list[Any]
    """The replies to the calls that were made about it."""


class Kept:
    """A key that is made once for several filters, and kept. ``until``: the time by the monotonic clock after which
    ``FilterNotReady`` is raised; None for the bound in force."""

    facet = ""
    """The beginning of the names of a facet's rankings, of counts."""

    def __init__(self, view: View, keys: Keys, until: float | None = None) -> None:
        self.view, self.keys = view, keys
        self.until = monotonic() + view.patience if until is None else until
        self.key = keys.intersection(self.facet, str(view.scope), *view.tested(keys))
        self._lock, self._stamp = keys.making(self.key), keys.stamp(self.key)
        self._now = 0
        """The server's time in milliseconds."""

        self._writes: list[Call] = []
        """Writes that are sent with the next calls."""

        self.making: dict[str, Any] = {}
        """The progress; as JSON, another client can go on with it. ``sizes``: the number of members of each key."""

    @property
    def unfinished(self) -> str:
        """The key that is filled."""
        key: str = self.making["key"]
        return key

    def read(self, *calls: Call) -> Query[Found]:
        """Make it if it isn't there, and return its size with the replies to calls about it.

        The same transaction finds it there, so that it isn't replaced in between.
        """
        looks = (
            Call("HGET", (self.keys.meta,), ("generation",)),
            Call("GET", (self._stamp,)),
            Call("EXISTS", (self.key,)),
        )
        is_made, delay = False, 0.0
        while True:
            generation, stamp, is_there, *replies = yield Request(
                (*looks, *calls), writes=True, atomic=True, delay=delay
            )
            if (generation or b"").decode() != self.keys.generation:
                raise Swapped
            if stamp is not None:
                size = int(stamp.split()[0])
                if bool(size) == bool(is_there):  # else it was evicted
                    return Found(size, stamp, replies)
            if is_made and monotonic() >= self.until:
                raise self._late()
            is_made = yield from self._make(stamp)
            delay = 0.0 if is_made else _WAIT

    def _make(self, found: bytes | None) -> Query[bool]:
        """Make it, unless another client has replaced the stamp that was ``found``. Return False if one is doing so."""
        token = secrets.token_hex(4)
        taken, until, stamp = yield Request(
            (
                Call("SET", (self._lock,), ("", "NX", "PX", _LEASE)),
                Call("PEXPIRETIME", (self._lock,)),
                Call("GET", (self._stamp,)),
            ),
            writes=True,
            atomic=True,
        )
        if taken and stamp != found:
            yield Request((Call("UNLINK", (self._lock,)),), writes=True)
            return True
        if not taken:
            if monotonic() >= self.until:
                raise self._late()
            return False
        self._now, self._writes = until - _LEASE, []
        self.making = {"key": f"{self.key}:{token}", "began": self._now, "sizes": {}}
        yield from self._begin()
        pages = 0
        while not (yield from self._step()):
            pages += 1
            if monotonic() >= self.until:
                yield from self._send()
                state = json.dumps(self.making)
                given_up = Call("SET", (self.keys.given_up(self.key),), (state, "PX", _GIVEN_UP))
                yield from self._send(given_up, Call("UNLINK", (self._lock,)))
                raise self._late()
            if pages % 16 == 0:
                yield from self._check_room()
        return True

    def _begin(self) -> Query[None]:
        """Go on with what another client gave up, or begin anew, if there is room for it."""
        given_up, *replies = yield from self._send(
            Call("GETDEL", (self.keys.given_up(self.key),)), *self._register()
        )
        yield from self._check_room(replies)
        if given_up is not None:
            self._writes.append(Call("ZREM", (self.keys.intersections,), (self.unfinished,)))
            self.making = json.loads(given_up)

    def _step(self) -> Query[bool]:
        """Do a piece of the work. Return True when it is kept."""
        raise NotImplementedError

    def _late(self) -> FilterNotReady:
        patience = self.view.patience
        bound = 'ZRANK["FILTER_TIMEOUT"]' if patience == get_settings().filter_timeout else "within()"
        return FilterNotReady(
            f"no facet covers these filters, and they aren't computed after {patience:g} seconds ({bound})"
        )

    def _send(self, *calls: Call) -> Query[list[Any]]:
        """Send what is to be written, then the calls, and go on keeping others from making the same."""
        first = (*self._writes, Call("SET", (self._lock,), ("", "PX", _LEASE)))
        self._writes = []
        replies: list[Any] = yield Request((*first, *calls), writes=True)
        sizes = self.making["sizes"]
        for call, reply in zip(first, replies, strict=False):
            if call.command in _CHANGES and call.keys[0].startswith(self.unfinished):
                sizes[call.keys[0]] = sizes.get(call.keys[0], 0) + _CHANGES[call.command] * reply
        return replies[len(first) :]

    def _register(self) -> tuple[Call, ...]:
        """Name it among all that are kept or made, and read these. Of those who begin at the same time, no more than
        there is room for find so few."""
        registry, most = self.keys.intersections, 2 * get_settings().max_combinations
        return (
            Call("ZADD", (registry,), (self._now + _SPARE, self.unfinished)),
            Call("ZRANGE", (registry,), (0, most, "WITHSCORES"), 50),
            Call("PEXPIRE", (registry,), (_SPARE, "NX")),
        )

    def _check_room(self, replies: Sequence[Any] | None = None) -> Query[None]:
        """Unlink those that nobody reads any more. Raises ``FilterNotReady`` if there are too many others, or they are
        too large."""
        if replies is None:
            replies = yield from self._send(*self._register())
        others = {name.decode(): until for name, until in _pairs(replies[1])}
        over = [name for name, until in others.items() if until <= self._now and name != self.unfinished]
        if over:
            gone = [key for name in over for key in self._all_keys(name)]
            self._writes += [
                Call("UNLINK", gone, (), len(gone)),
                Call("ZREM", (self.keys.intersections,), over, len(over)),
            ]
        measured = [key for name in others.keys() - set(over) for key in self._all_keys(name)]
        sizes = yield from self._send(*(Call("MEMORY USAGE", (key,), ("SAMPLES", 1), 4) for key in measured))
        number = len({_kept_key(name) for name in others.keys() - set(over)})
        size = sum(filter(None, sizes))
        if number > get_settings().max_combinations or size > get_settings().max_combination_bytes:
            yield from self._abandon()
            raise FilterNotReady(
                f"no facet covers these filters, and {number - 1} other combinations take {size:,} bytes of Redis "
                '(ZRANK["MAX_COMBINATIONS"], ZRANK["MAX_COMBINATION_BYTES"])'
            )

    def _abandon(self) -> Query[None]:
        """Leave nothing of it, so that it takes nobody's place."""
        yield from self._send(
            Call("UNLINK", [*self._all_keys(self.unfinished), self._lock]),
            Call("ZREM", (self.keys.intersections,), (self.unfinished,)),
        )

    def _all_keys(self, name: str) -> list[str]:
        """Return the keys of one that is kept or made."""
        layout = self.view.layout
        keys = [name]
        if layout.dense:
            keys.append(self.keys.values_of(name))
        if layout.memberships and name != _kept_key(name):
            keys.append(self.keys.noted(name))
        return keys

    def _keep(self, size: int, life: int) -> Query[None]:
        """Put it in its place, to be read for ``life`` milliseconds."""
        name, registry = self.unfinished, self.keys.intersections
        calls = [Call("UNLINK", self._all_keys(self.key))]
        if size:
            renamed = [(name, self.key)]
            if self.view.layout.dense and not self.facet:
                renamed.append((self.keys.values_of(name), self.keys.values_of(self.key)))
            for old, new in renamed:
                calls += [Call("RENAME", (old, new)), Call("PEXPIRE", (new,), (life + _SPARE,))]
        calls += [
            Call("UNLINK", (self.keys.noted(name), self._lock)),
            Call("SET", (self._stamp,), (f"{size} {name[-8:]}", "PX", life)),
            Call("ZREM", (registry,), (name,)),
            Call("ZADD", (registry,), (self._now + life, self.key)),
            Call("PEXPIRE", (registry,), (life + _SPARE, "GT")),
        ]
        yield Request(calls, writes=True, atomic=True)


def _pairs(reply: Sequence[Any]) -> list[tuple[bytes, float]]:
    """Return the members and scores in a reply: RESP 3 has them in pairs, RESP 2 in turn."""
    if reply and isinstance(reply[0], list):
        return [(member, float(score)) for member, score in reply]
    return list(zip(reply[::2], map(float, reply[1::2]), strict=True))


def _kept_key(name: str) -> str:
    """Return the key that one takes when it is complete: without the token of the client that makes it."""
    return name[:-9] if name[-9] == ":" else name


class Intersection(Kept):
    """A sorted set, stored member -> score: the ranking of the members that pass several filters."""

    def __init__(self, *given: Any, **how: Any) -> None:
        super().__init__(*given, **how)
        clauses = self.view.scope.clauses
        self._by_name = [
            (frozenset(name.encode() for name in clause.names), clause.negated)
            for clause in clauses
            if clause.kind == "r"
        ]
        self._named: dict[bytes, bool] = {}

    def _step(self) -> Query[bool]:
        if "left" not in self.making:
            yield from self._choose()
        if self.making["left"]:
            yield from self._read_page()
            return False
        return (yield from self._end())

    def _state(self) -> tuple[Call, ...]:
        """The calls that tell if a making can go on: the server's identity, and which versions are remembered."""
        keys = self.keys
        return (
            Call(scripts.CHECK_HEALTH, (keys.root, keys.meta), (keys.generation, 60), 100),
            Call("HMGET", (keys.meta,), ("started", "floor", "guarded")),
            Call("EXISTS", (keys.recent,)),
        )

    def _choose(self) -> Query[None]:
        """Choose the smallest filter to read. Raises ``FilterTooLarge``."""
        keys, clauses = self.keys, self.view.scope.clauses
        wanted = [clause for clause in clauses if not clause.negated]
        sets = [
            keys.group(name) if clause.kind == "g" else keys.ranking(name)
            for clause in wanted
            for name in clause.names
        ]
        health, state, _, in_all, *sizes = yield from self._send(
            *self._state(),
            Call("ZCARD", (keys.root,)),
            *(Call("ZCARD", (key,), (), 3) for key in sets),
        )
        about = dict(zip(health[::2], health[1::2], strict=True))
        self.making["version"], self.making["server"] = int(about[b"applied"] or 0), about[b"server"].decode()
        self.making["started"] = (state[0] or b"").decode()
        least, self.making["clause"], self.making["left"] = in_all, None, [[keys.root, 0, in_all]]
        at = 0
        for clause in wanted:
            own = range(at, at := at + len(clause.names))
            size = sum(sizes[i] for i in own)
            if size < least:
                least, self.making["clause"] = size, clauses.index(clause)
                self.making["left"] = [[sets[i], 0, sizes[i]] for i in own if sizes[i]]
        if least > self.view.limit:
            yield from self._abandon()
            setting = ' (ZRANK["MAX_SCAN"])' if self.view.limit == get_settings().max_scan else ""
            raise FilterTooLarge(
                f"no facet covers these filters, and they would be computed from {least:,} members, more than "
                f"{self.view.limit:,}{setting}"
            )

    def _read_page(self) -> Query[None]:
        """Read the next members of the smallest filter, and put in those that pass."""
        left = self.making["left"]
        skipped = None if self.making["clause"] is None else self.view.scope.clauses[self.making["clause"]]
        count = 0
        batch: list[tuple[str, int, int]] = []
        while left and (not batch or count + left[0][2] <= _PAGE):
            count += min(left[0][2], _PAGE)
            batch.append(left.pop(0))
        scans = (
            Call("ZSCAN", (key,), (cursor, "COUNT", _PAGE), min(size, _PAGE)) for key, cursor, size in batch
        )
        replies = yield from self._send(*scans)
        found = {member: score for _, pairs in replies for member, score in pairs}
        left[:0] = [
            [key, cursor, size] for (key, _, size), (cursor, _) in zip(batch, replies, strict=True) if cursor
        ]
        if skipped and skipped.kind == "g":
            inside = [member for member, until in found.items() if until > 1000 * self._now]
            yield from self._put(inside, skipped=skipped)
        else:
            split = self.view.layout.split
            yield from self._put([split(stored)[1] for stored in found], found)

    def _passes(self, names: bytes) -> bool:
        """Return True if one who stands in the rankings of these names passes the filters by facets."""
        passes = self._named.get(names)
        if passes is None:
            has = names.split(b"\0")
            passes = all(wanted.isdisjoint(has) == negated for wanted, negated in self._by_name)
            self._named[names] = passes
        return passes

    def _put(
        self,
        members: Sequence[bytes],
        found: Mapping[bytes, float] | None = None,
        *,
        skipped: Any = None,
        again: bool = False,
    ) -> Query[None]:
        """Put in those of some members that pass. ``found``: their scores, as they are stored, if those are known.
        ``skipped``: a filter that they pass. ``again``: remove what was put in before."""
        if not members:
            return
        layout, keys, count = self.view.layout, self.keys, len(members)
        groups = [
            clause for clause in self.view.scope.clauses if clause.kind == "g" and clause is not skipped
        ]
        noted = keys.noted(self.unfinished)
        hashes = (keys.memberships, noted) if again else (keys.memberships,)
        replies = iter(
            (
                yield from self._send(
                    *(Call("HMGET", (key,), members, count) for key in hashes if layout.memberships),
                    *(
                        Call("ZMSCORE", (keys.group(name),), members, count)
                        for clause in groups
                        for name in clause.names
                    ),
                )
            )
        )
        memberships = next(replies) if layout.memberships else [b""] * count
        before = next(replies) if layout.memberships and again else [None] * count
        stored: dict[bytes, bytes] = {}
        for member, membership in zip(members, memberships, strict=True):
            if membership is None and layout.width:
                continue  # it is not ranked
            tie, names = layout.split(membership or b"")
            if self._passes(names):
                stored[member] = tie + member
        for clause in groups:
            inside: set[bytes] = set()
            for _ in clause.names:
                expiries = zip(members, next(replies), strict=True)
                inside.update(who for who, until in expiries if until and until > 1000 * self._now)
            stored = {who: form for who, form in stored.items() if (who in inside) != clause.negated}
        if found is None:
            found = yield from self._find_scores(list(stored.values()))
        # One that is stored otherwise than it was found has been written since, and is looked up again.
        stored = {who: form for who, form in stored.items() if form in found}
        self._write(stored, found, dict(zip(members, before, strict=True)) if again else {})

    def _find_scores(self, stored: Sequence[bytes]) -> Query[dict[bytes, float]]:
        if not stored:
            return {}
        (scores,) = yield from self._send(Call("ZMSCORE", (self.keys.root,), stored, len(stored)))
        return {form: score for form, score in zip(stored, scores, strict=True) if score is not None}

    def _write(
        self,
        stored: Mapping[bytes, bytes],
        scores: Mapping[bytes, float],
        before: Mapping[bytes, bytes | None],
    ) -> None:
        """Add members as they are stored; remove what they, and those that don't pass, were stored as ``before``."""
        key, noted = self.unfinished, self.keys.noted(self.unfinished)
        leaving = [old for who, old in before.items() if old and old != stored.get(who)]
        if not self.view.layout.width:  # one that has lost its tie bytes may be there in both forms
            leaving += [who for who in before if who != stored.get(who)]
        entering: list[Any] = [word for form in stored.values() for word in (scores[form], form)]
        forms = [word for who, form in stored.items() if form != who for word in (who, form)]
        for command, name, words in (("ZREM", key, leaving), ("ZADD", key, entering), ("HSET", noted, forms)):
            if words:
                self._writes.append(Call(command, (name,), words, 2 * len(words)))
                self._writes.append(Call("PEXPIRE", (name,), (_SPARE,)))

    def _end(self) -> Query[bool]:
        """Look up again the members that were written meanwhile, and keep what is made. Return False if that can't be
        known: it begins again."""
        keys, key = self.keys, self.unfinished
        while True:
            wanted = (f"({self.making['version']}", "+inf", "BYSCORE", "LIMIT", 0, _PAGE, "WITHSCORES")
            reply, *state, until = yield from self._send(
                Call("ZRANGE", (keys.recent,), wanted, _PAGE),
                *self._state(),
                Call("PEXPIRETIME", (self._lock,)),
            )
            self._now = until - _LEASE
            if self._is_lost(*state):
                return self._begin_anew()
            written = _pairs(reply)
            if written:
                yield from self._put_again(written)
            if len(written) < _PAGE:  # those that are written from now on were looked up until now
                break
        size, noted = yield from self._send(Call("ZCARD", (key,)), Call("HLEN", (keys.noted(key),)))
        sizes = self.making["sizes"]
        if (size, noted) != (sizes.get(key, 0), sizes.get(keys.noted(key), 0)):  # it was evicted
            return self._begin_anew()
        if self.view.layout.dense:
            yield from self._number_values(key, size)
        spent = self._now - self.making["began"]
        life = max(KEPT, SHARE * spent) - spent
        yield from self._keep(size, life)
        return True

    def _begin_anew(self) -> bool:
        self._writes.append(Call("UNLINK", (self.unfinished, self.keys.noted(self.unfinished))))
        self.making = {"key": self.unfinished, "began": self._now, "sizes": {}}
        return False

    def _is_lost(self, health: list[bytes], state: list[bytes | None], is_there: int) -> bool:
        """Return True if it is another server, where cursors and pages are lost, or versions were forgotten."""
        about = dict(zip(health[::2], health[1::2], strict=True))
        if about[b"generation"].decode() != self.keys.generation:
            raise Swapped
        started, floor, guarded = ((value or b"").decode() for value in state)
        is_evicted = guarded == "1" and not is_there
        forgotten = int((about[b"applied"].decode() if is_evicted else floor) or 0)
        before = self.making["server"], self.making["started"]
        return (about[b"server"].decode(), started) != before or forgotten > int(self.making["version"])

    def _put_again(self, written: Sequence[tuple[bytes, float]]) -> Query[None]:
        """Put in members that were written, and note up to which version they were read."""
        last = written[-1][1]
        if len(written) == _PAGE:  # of the last version, others may be left
            written = [one for one in written if one[1] < last] or written
            last = written[-1][1]
        members: Sequence[bytes] = [who for who, _ in written]
        if len(written) == _PAGE:  # all of one version
            (members,) = yield from self._send(
                Call("ZRANGE", (self.keys.recent,), (last, last, "BYSCORE"), 4 * _PAGE)
            )
        for at in range(0, len(members), _PAGE):
            yield from self._put(members[at : at + _PAGE], again=True)
        self.making["version"] = int(last)

    def _number_values(self, key: str, size: int) -> Query[None]:
        """Number the distinct values of what is complete, for dense ranks."""
        split, seen = self.view.layout.split, (b"", 0.0)
        for at in range(0, size, _PAGE):
            (reply,) = yield from self._send(
                Call("ZRANGE", (key,), (at, at + _PAGE - 1, "WITHSCORES"), _PAGE)
            )
            values = dict.fromkeys(
                (split(stored)[0] + b"%.17g" % score, score) for stored, score in _pairs(reply)
            )
            values.pop(seen, None)
            if values:
                *_, seen = values
                words = [word for value, score in values for word in (score, value)]
                self._writes.append(Call("ZADD", (self.keys.values_of(key),), words, len(words)))
                self._writes.append(Call("PEXPIRE", (self.keys.values_of(key),), (_SPARE,)))
        yield from self._send()


class Counts(Kept):
    """A hash: the numbers of the members of an intersection by the names of a facet's rankings."""

    def __init__(self, view: View, keys: Keys, facet: str) -> None:
        self.facet = facet
        super().__init__(view, keys)
        self._counted = Intersection(view, keys, until=self.until)

    def _make(self, found: bytes | None) -> Query[bool]:
        yield from self._counted.read()
        return (yield from super()._make(found))

    def _step(self) -> Query[bool]:
        """Count the next members of an intersection: nobody changes it, so their positions stay."""
        keys, at = self.keys, self.making.get("at", 0)
        page = Call("ZRANGE", (self._counted.key,), (at, at + _PAGE - 1), _PAGE)
        life = Call("PTTL", (keys.stamp(self._counted.key),))
        size, stamp, (stored, left) = yield from self._counted.read(page, life)
        if self.making.setdefault("stamp", stamp.decode()) != stamp.decode():
            self.making.update(at=0, counts={}, stamp=stamp.decode())  # another one has taken its place
            return False
        counts = Counter(self.making.get("counts", {}))
        counts.update((yield from self._names(stored)))
        self.making.update(at=at + _PAGE, counts=counts)
        if self.making["at"] < size:
            return False
        yield from self._write(self.unfinished, counts)
        yield from self._keep(len(counts), max(1, left))
        return True

    def _names(self, stored: Sequence[bytes]) -> Query[Iterable[str]]:
        """Return the names of the facet's rankings that members stand in, one after the other."""
        if not stored:
            return ()
        split, facet = self.view.layout.split, self.facet.encode()
        members = [split(form)[1] for form in stored]
        (memberships,) = yield from self._send(Call("HMGET", (self.keys.memberships,), members, len(members)))
        return [
            name.decode()
            for membership in memberships
            if membership
            for name in split(membership)[1].split(b"\0")
            if name.startswith(facet)
        ]

    def _write(self, key: str, counts: Mapping[str, int]) -> Query[None]:
        pairs = list(counts.items())
        for at in range(0, len(pairs), _PAGE):
            words = [word for pair in pairs[at : at + _PAGE] for word in pair]
            self._writes += [
                Call("HSET", (key,), words, len(words)),
                Call("PEXPIRE", (key,), (_SPARE,)),
            ]
            yield from self._send()
