"""Ways to break the protocol on purpose, each of which must make a run fail."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from hashlib import sha1
from typing import Any, Final

from django_zrank import RankIndex
from django_zrank.queries.request import Call
from django_zrank.redis import scripts, sending
from django_zrank.redis.scripts import Script
from django_zrank.store import Health, Store
from django_zrank.sync import drain, health, marks, push, terms

__all__ = ["BREAKS"]


def _token_after_read() -> None:
    """Take the token when the rows have been read already."""
    applying_changes = Store.applying_changes

    def broken(self: Store, epoch: Any, changes: Any) -> Any:
        changes = _dawdle(changes)
        return applying_changes(self, self.begin_write(), changes)

    Store.applying_changes = broken  # type: ignore[method-assign]


def _no_guard() -> None:
    """Write a member even if it was written since the token was taken."""
    _rewrite(scripts.APPLY_CHANGES, "if versions[n] and tonumber(versions[n]) > token then", "if false then")
    _apply_late()


def _one_refusal() -> None:
    """Leave a member alone as soon as it is refused."""
    push._REFUSALS = 1  # type: ignore[misc]
    _apply_late()


def _apply_late() -> None:
    """Write what was read long before, sometimes."""
    applying_changes = Store.applying_changes

    def late(self: Store, epoch: Any, changes: Any) -> Any:
        return applying_changes(self, epoch, _dawdle(changes))

    Store.applying_changes = late  # type: ignore[method-assign]


def _dawdle(changes: Any) -> list[Any]:
    """Return what was read, sometimes long after it was read: a short run is to show what is wrong."""
    changes = list(changes)
    if random.random() < 0.3:
        time.sleep(1.5 * random.random())
    return changes


def _no_term() -> None:
    """Leave the term out of the fence and of the replay: only versions are compared."""
    lock, unmark = marks._lock, marks.unmark

    def any_term(index: Any, generation: str, term: int) -> bool:
        return lock(index, generation, health.noted(index).term)

    def without_term(index: Any, worked: Any, written: Any, **kwargs: Any) -> list[Any]:
        return unmark(index, worked, {part: one._replace(term=0) for part, one in written.items()}, **kwargs)

    marks._lock = any_term  # type: ignore[assignment]
    drain.unmark = without_term  # type: ignore[assignment]
    Health.position = property(lambda self: (0, int(self.applied or 0)))  # type: ignore[assignment]


def _no_replid() -> None:
    """Know a server by its process alone, as if a process always held the same data."""
    for script in vars(scripts).values():
        if isinstance(script, Script) and "identity" in script.libraries:
            _rewrite(script, " .. '/' .. digits_after('master_replid:', info)", "")


def _no_replay() -> None:
    """Accept a server without replaying what it has not received."""

    def nothing(index: Any, position: Any, *, noted: Any, server: str) -> int | None:
        return replay(index, (2**31, 0), noted=noted, server=server)

    replay = terms.replay
    terms.replay = nothing  # type: ignore[assignment]


def _no_guard_key() -> None:
    """Declare no key that does not exist: scripts run while their slot moves. Beside the guard, that is what a write
    declares of a rebuild, where none is running, and of what it would give up."""
    words = sending.words

    def unguarded(call: Call, *, known: bool = True) -> tuple[Any, ...]:
        if call.command is scripts.APPLY_CHANGES:
            live, shadow, recent, meta, _ = call.keys
            call = call._replace(keys=(live, live if shadow.endswith(":") else shadow, recent, meta, meta))
        return words(call, known=known)

    sending.guard_of = lambda key: key  # type: ignore[assignment]
    sending.words = unguarded


def _no_capture() -> None:
    """Take it for granted that the triggers are there."""
    health.restore = lambda index: []  # type: ignore[assignment]
    health.with_capture = lambda index, verdict: verdict


def _any_declaration() -> None:
    """Take every build for one of this release."""
    RankIndex.declares = lambda self, generation: True  # type: ignore[method-assign]


def _rewrite(script: Script, old: str, new: str) -> None:
    if script.source.count(old) != 1:
        raise AssertionError(f"{script.name}.lua says something else by now")
    script.source = script.source.replace(old, new)
    script.sha = sha1(script.source.encode()).hexdigest()


BREAKS: Final[dict[str, Callable[[], None]]] = {
    "token_after_read": _token_after_read,
    "no_guard": _no_guard,
    "one_refusal": _one_refusal,
    "no_term": _no_term,
    "no_replid": _no_replid,
    "no_replay": _no_replay,
    "no_guard_key": _no_guard_key,
    "no_capture": _no_capture,
    "any_declaration": _any_declaration,
}
"""By the names that ``--break`` takes. What they lose is nothing but order, or what one condition guards against."""
