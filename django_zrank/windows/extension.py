"""Rolling windows, as the kernel calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.core.checks import CheckMessage

from ..declaration import Index
from ..extension import Extension, Preceding
from ..redis.keys import Keys
from ..store import Store
from .checks import check_windows
from .lookup import DatabaseClock
from .store import note_read
from .sweep import now_of, sweep
from .window import windows_of

__all__ = ["Windows"]

_PACKAGE = __package__ or ""


class Windows(Extension[Index]):
    needs = ("model", "annotations")
    is_timed = True
    every = 1.0  # scores change to the second

    def is_declared(self, index: Index) -> bool:
        return bool(windows_of(index))

    def check(self, index: Index) -> Iterator[CheckMessage]:
        return check_windows(index)

    def before_rows(self, index: Index) -> int | None:
        return now_of(index)

    def removing(self, index: Index, before: int | None) -> Callable[[Store], None] | None:
        """Note the times between which the push found members that aren't ranked, as no row of theirs tells the
        time."""
        moments = [moment for moment in (before, now_of(index)) if moment is not None]
        return (lambda store: note_read(store, moments)) if moments else None

    def column(self, holder: Index) -> DatabaseClock:
        """The time as of which the rows are read."""
        return DatabaseClock()

    def before_write(self, script: str, holder: Index, keys: Keys, noted: Any) -> Preceding:
        return Preceding(_PACKAGE, arguments=("" if noted is None else int(noted),))

    def building(self, index: Index) -> Mapping[str, int | None]:
        return {"swept": now_of(index) if windows_of(index) else None}

    def work(self, index: Index, *, limit: int | None, patience: float, skip_locked: bool) -> int:
        return sweep(index, limit=limit, patience=patience)

    def report(self, members: int) -> str:
        return f"{members} changed as time passed"
