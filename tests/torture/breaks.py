"""Ways to break the protocol on purpose, each of which must make a run fail."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from django_zrank import builds
from django_zrank.queries.request import Call
from django_zrank.redis import scripts, sending
from django_zrank.shards import routing
from django_zrank.store import Health, Store
from django_zrank.sync import health, marks
from tests.model.broken import BROKEN
from tests.scripts import variants

__all__ = ["BREAKS"]


_left_out = ExitStack()
"""Guards of the app that are left out until the process ends."""


def _without(guard: str) -> None:
    """Leave out a guard, by the name that the model gives it."""
    _left_out.enter_context(BROKEN[guard]())


def _token_after_read() -> None:
    """Take the token when the rows have been read already."""
    _without("token first")
    _apply_late()


def _no_guard() -> None:
    """Write a member even if it was written since the token was taken."""
    _without("refusal")
    _apply_late()


def _one_refusal() -> None:
    """Leave a member alone as soon as it is refused."""
    _without("second refusal")
    _apply_late()


def _apply_late() -> None:
    """Write what was read long before, sometimes."""
    applying_changes = Store.applying_changes

    def late(self: Store, epoch: Any, changes: Any, **how: Any) -> Any:
        return applying_changes(self, epoch, _dawdle(changes), **how)

    Store.applying_changes = late  # type: ignore[method-assign]


def _dawdle(changes: Any) -> list[Any]:
    """Return what was read, sometimes long after it was read: a short run is to show what is wrong."""
    changes = list(changes)
    if random.random() < 0.3:
        time.sleep(1.5 * random.random())
    return changes


def _no_term() -> None:
    """Leave the term out of the fence and of the replay: only versions are compared."""
    lock, batch_of = marks.lock, marks.batch_of

    def any_term(index: Any, build: str, term: int) -> Any:
        return lock(index, build, builds.recorded(index).term)

    def without_term(index: Any, of: Any, written: Any) -> Any:
        return batch_of(index, of, written._replace(term=0))

    for module in (marks, routing):
        module.lock = any_term  # type: ignore[attr-defined]
        module.batch_of = without_term  # type: ignore[attr-defined]
    Health.position = property(lambda self: (0, int(self.applied or 0)))  # type: ignore[assignment]


def _no_guard_key() -> None:
    """Declare no key that does not exist: scripts run while their slot moves. Beside the guard, that is what a write
    declares of a rebuild, where none is running, and of what it would give up."""
    from django_zrank.cluster import client as clients

    words = sending.words

    def unguarded(call: Call, *, known: bool = True) -> tuple[Any, ...]:
        if call.command in variants(scripts.APPLY_CHANGES):
            live, shadow, recent, meta, _ = call.keys
            call = call._replace(keys=(live, live if shadow.endswith(":") else shadow, recent, meta, meta))
        return words(call, known=known)

    clients._guarded = lambda call: call
    clients.words = sending.words = unguarded


def _no_capture() -> None:
    """Take it for granted that the triggers are there."""
    health.restore = lambda index: []  # type: ignore[assignment]
    health.with_capture = lambda index, status: status


BREAKS: Final[dict[str, Callable[[], None]]] = {
    "token_after_read": _token_after_read,
    "no_guard": _no_guard,
    "one_refusal": _one_refusal,
    "no_term": _no_term,
    "no_replay": partial(_without, "batches"),
    "no_guard_key": _no_guard_key,
    "no_capture": _no_capture,
}
"""By the names that ``--break`` takes. What they lose is nothing but order, or what one condition guards against.

Not here: rules behind which another one stands after a ``sync_zrank``, so that only the search of the model, and its
stories played by the app, tell them apart. A server with another history lacks traces, too, and a release whose build
was replaced misses its triggers."""
