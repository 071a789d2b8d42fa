"""What the driver changes in its workers: never what the product does, unless it is to be broken on purpose."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from hashlib import sha1
from typing import Any, Final

from django_zrank import scripts
from django_zrank.store import Store
from django_zrank.sync import push

__all__ = ["BREAKS", "shorten", "slow_down"]

_PAUSED: Final = (
    "begin_write",
    "apply_changes",
    "start_rebuild",
    "load_rows",
    "swap_rebuilt",
    "check_health",
    "adopt_server",
)


def shorten(lease: float) -> None:
    """Let a rebuild count as dead, and a token as too old, after ``lease`` seconds in place of ten minutes."""
    Store.LEASE = Store.WINDOW = lease


def slow_down(chance: random.Random) -> None:
    """Pause before and after each step of the protocol, so that other processes come in between.

    Some processes are brisk, some slow: so the one overtakes the other. ``apply_changes()`` reads its rows when
    it is called: they are read before the pause.
    """
    often = chance.choice([0.0, 0.02, 0.2])
    for name in _PAUSED:
        setattr(Store, name, _paused(getattr(Store, name), chance, often))


def _paused(step: Callable[..., Any], chance: random.Random, often: float) -> Callable[..., Any]:
    def paused(self: Store, *args: Any, **kwargs: Any) -> Any:
        args = tuple(list(arg) if hasattr(arg, "__next__") else arg for arg in args)
        pause(chance, often)
        result = step(self, *args, **kwargs)
        pause(chance, often)
        return result

    return paused


def pause(chance: random.Random, often: float) -> None:
    """What a busy machine does to a process: mostly nothing, sometimes a short wait, so ``often`` a longer one,
    of a third of a second as a rule, and of 4 at most."""
    dice = chance.random()
    if dice < often:
        time.sleep(4 * chance.random() ** 4)
    elif dice < 3 * often:
        time.sleep(chance.random() * 0.02)


def _token_after_read() -> None:
    """Take the token when the rows have been read already."""
    apply_changes = Store.apply_changes

    def broken(self: Store, epoch: Any, changes: Any) -> Any:
        changes = _dawdle(changes)
        return apply_changes(self, self.begin_write(), changes)

    Store.apply_changes = broken  # type: ignore[method-assign]


def _no_guard() -> None:
    """Write a member even if it was written since the token was taken."""
    script, guard = scripts.APPLY_CHANGES, "if written and tonumber(written) > token then"
    if script.source.count(guard) != 1:
        raise AssertionError("apply_changes.lua has another guard by now")
    script.source = script.source.replace(guard, "if false then")
    script.sha = sha1(script.source.encode()).hexdigest()
    _apply_late()


def _one_refusal() -> None:
    """Leave a member alone as soon as it is refused."""
    push._REFUSALS = 1  # type: ignore[misc]
    _apply_late()


def _apply_late() -> None:
    """Write what was read long before, sometimes."""
    apply_changes = Store.apply_changes

    def late(self: Store, epoch: Any, changes: Any) -> Any:
        return apply_changes(self, epoch, _dawdle(changes))

    Store.apply_changes = late  # type: ignore[method-assign]


def _dawdle(changes: Any) -> list[Any]:
    """What was read, sometimes long after it was read: a short run is to show what is wrong."""
    changes = list(changes)
    if random.random() < 0.3:
        time.sleep(1.5 * random.random())
    return changes


BREAKS: Final[dict[str, Callable[[], None]]] = {
    "token_after_read": _token_after_read,
    "no_guard": _no_guard,
    "one_refusal": _one_refusal,
}
"""Ways to break the protocol that lose nothing but its order: the driver must find what is wrong then."""
