"""Pushes and rebuilds that overlap in every way that hypothesis thinks of: ``push()`` itself, against a real Redis.

The database is a dictionary, and every process a thread that waits for its turn before each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from threading import Event, local
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from django_zrank.exceptions import IndexUnavailable
from django_zrank.store import Store
from django_zrank.sync import push as module
from django_zrank.sync.push import push
from tests.builds import load_rows, start
from tests.testapp.zrank import PlayerAscending

INDEX = PlayerAscending.instance()

MEMBERS = (1, 2, 3)


class Process:
    """One of several that push, one push after the other. It stops before each of its steps."""

    here = local()
    """``process``: the one that the current thread is."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, initializer=self._arrive)
        self.push: Future[Any] | None = None
        self.pks: list[int] = []
        self.turn, self.stopped = Event(), Event()

    def _arrive(self) -> None:
        self.here.process = self

    def begin(self, pks: list[int]) -> None:
        self.stopped.clear()
        self.pks = pks
        self.push = self.thread.submit(push, INDEX, pks)
        self.push.add_done_callback(lambda _: self.stopped.set())
        assert self.stopped.wait(60)

    def go_on(self) -> None:
        """Make the next step."""
        assert self.push is not None
        self.stopped.clear()
        self.turn.set()
        assert self.stopped.wait(60)
        if self.push.done():
            ended, self.push = self.push, None
            ended.result()

    def wait_for_turn(self) -> None:
        self.stopped.set()
        assert self.turn.wait(60)
        self.turn.clear()


class World:
    """A database, Redis, some processes, and at most one rebuild."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.commits = 0
        self.processes = [Process() for _ in range(4)]
        self.store = Store(INDEX.name, INDEX.layout)
        self.store.client.flushdb()
        start(self.store, "first")
        self.store.swap_rebuilt("first")
        self.rebuilds = 0
        self.rebuild: Iterator[None] | None = None
        self.turns = 0
        """The rebuilds that have begun, and those that have ended."""
        self.pushed_at = dict.fromkeys(self.processes, 0)
        """``turns`` when each process began its push."""

    def read(self, index: Any, pks: list[int], store: Any) -> list[tuple[str, int | None, bytes]]:
        Process.here.process.wait_for_turn()
        return [(str(pk), self.rows.get(pk), b"") for pk in pks]

    def commit(self, process: Process, pks: list[int], *, delete: bool) -> None:
        """Change some rows, and begin to push them."""
        self.commits += 1
        for pk in pks:
            if delete:
                self.rows.pop(pk, None)
            else:
                self.rows[pk] = self.commits
        self._push(process, pks)

    def _push(self, process: Process, pks: list[int]) -> None:
        self.pushed_at[process] = self.turns
        process.begin(pks)

    def _go_on(self, process: Process) -> None:
        try:
            process.go_on()
        except IndexUnavailable:
            # Each beginning and end of a rebuild costs two of a push's ten attempts at most: the second one where
            # another write went first. The mark waits, and is drained.
            assert self.turns - self.pushed_at[process] >= 5
            self._push(process, process.pks)

    def rebuilding(self, *, abandoned: bool) -> Iterator[None]:
        """The steps of a rebuild."""
        self.rebuilds += 1
        building = f"rebuild {self.rebuilds}"
        start(self.store, building)
        self.turns += 1
        yield
        query = [(str(pk), score, b"") for pk, score in self.rows.items()]
        for row in query:
            yield
            load_rows(self.store, building, [row])
        yield
        (self.store.abandon_rebuild if abandoned else self.store.swap_rebuilt)(building)
        self.turns += 1

    def steps(self, data: Any) -> None:
        """Let things happen until ten transactions have committed and everybody is done."""
        while True:
            possible: list[Callable[[], Any]] = []
            for process in self.processes:
                if process.push is not None:
                    possible += [partial(self._go_on, process)] * 3
                elif self.commits < 10:
                    possible.append(lambda process=process: self._commit(process, data))  # type: ignore[misc]
            if self.rebuild is not None:
                possible += [self._rebuild_on] * 2
            elif self.commits < 10:
                possible.append(lambda: self._rebuild(data))
            if not possible:
                return
            data.draw(st.sampled_from(possible))()

    def _commit(self, process: Process, data: Any) -> None:
        pks = data.draw(st.lists(st.sampled_from(MEMBERS), min_size=1, max_size=3, unique=True))
        self.commit(process, pks, delete=data.draw(st.integers(0, 4)) == 0)

    def _rebuild(self, data: Any) -> None:
        self.rebuild = self.rebuilding(abandoned=data.draw(st.booleans()))

    def _rebuild_on(self) -> None:
        assert self.rebuild is not None
        if next(self.rebuild, "ended") == "ended":
            self.rebuild = None

    def finish(self) -> None:
        """End the threads, those too that an error has left waiting."""
        for process in self.processes:
            with suppress(Exception):
                while process.push is not None:
                    process.go_on()
            process.thread.shutdown()

    def compare(self) -> None:
        found = self.store.client.zrange(self.store.live.root, 0, -1, withscores=True)
        assert {int(member): score for member, score in found} == self.rows


@contextmanager
def a_world() -> Iterator[World]:
    world = World()
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        for name in ("beginning_write", "applying_changes"):
            step = getattr(Store, name)

            def stop_first(store: Store, *args: Any, step: Callable[..., Any] = step) -> Any:
                # Rows are read here at the latest.
                args = tuple(list(arg) if hasattr(arg, "__next__") else arg for arg in args)
                Process.here.process.wait_for_turn()
                return step(store, *args)

            patch.setattr(Store, name, stop_first)
        patch.setattr(module, "read", world.read)
        patch.setattr(module.notes, "is_noted", lambda *_: True)
        two_a_batch = SimpleNamespace(features=SimpleNamespace(max_query_params=2))
        patch.setattr(module, "connections", {INDEX.get_using(): two_a_batch})
        stack.callback(world.finish)
        yield world
    world.compare()


@pytest.mark.parametrize("examples", [15, pytest.param(200, marks=pytest.mark.slow)])
def test_the_last_commit_is_what_stays(zrank: Redis, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def interleave(data: Any) -> None:
        with a_world() as world:
            world.steps(data)

    interleave()


def test_who_is_refused_must_try_again(zrank: Redis) -> None:
    """A write that refused it may have read before its change was committed."""
    with a_world() as world:
        first, second, *_ = world.processes
        world.commit(first, [1], delete=False)
        first.go_on()  # begins
        first.go_on()  # reads
        world.commit(second, [1], delete=False)
        second.go_on()  # begins
        second.go_on()  # reads
        first.go_on()  # writes what it has read
        while second.push is not None:
            second.go_on()
