"""Changes of the driver to its workers: how long steps take, never what they do."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from django_zrank.store import Store

__all__ = ["pause", "shorten", "slow_down"]

_PAUSED: Final = (
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

    Some processes are brisk, some slow: so the one overtakes the other. ``applying_changes()`` reads its rows
    when it is called: they are read before the pause.
    """
    often = chance.choice([0.0, 0.02, 0.2])
    for name in _PAUSED:
        setattr(Store, name, _paused(getattr(Store, name), chance, often))
    for name in ("beginning_write", "applying_changes"):
        setattr(Store, name, _pausing(getattr(Store, name), chance, often))


def _pausing(steps: Callable[..., Any], chance: random.Random, often: float) -> Callable[..., Any]:
    def pausing(self: Store, *args: Any, **kwargs: Any) -> Iterator[Any]:
        args = tuple(list(arg) if hasattr(arg, "__next__") else arg for arg in args)
        pause(chance, often)
        result = yield from steps(self, *args, **kwargs)
        pause(chance, often)
        return result

    return pausing


def _paused(step: Callable[..., Any], chance: random.Random, often: float) -> Callable[..., Any]:
    def paused(self: Store, *args: Any, **kwargs: Any) -> Any:
        args = tuple(list(arg) if hasattr(arg, "__next__") else arg for arg in args)
        pause(chance, often)
        result = step(self, *args, **kwargs)
        pause(chance, often)
        return result

    return paused


def pause(chance: random.Random, often: float) -> None:
    """The effect of a busy machine on a process: mostly nothing, sometimes a short wait, so ``often`` a longer one,
    of a third of a second as a rule, and of 4 at most."""
    dice = chance.random()
    if dice < often:
        time.sleep(4 * chance.random() ** 4)
    elif dice < 3 * often:
        time.sleep(chance.random() * 0.02)
