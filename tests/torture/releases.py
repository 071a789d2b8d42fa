"""``python -m tests.torture.releases``: write-behind scores, across rolling deploys, while everything is killed.

As ``tests.torture.scores``; but every process is of one of three releases, which declare the same indexes differently:
one ranks densely, and one has no ``write_behind``. Changes are made, flushed and rebuilt by processes of all of them at
once; workers are of the release that was deployed last. Changes that take each other back are frequent. A rebuild takes
its time between its last row and the swap. After every twenty kills all stop, shortly after a swap. The index is
settled by the release whose build is live, so that no rebuild repairs what is wrong, and the ranking is compared with
the column.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Final

from django.db import DatabaseError, InterfaceError, connections

from tests.servers import wait_for
from tests.torture.scores import LIMIT, STRIKES, TASKS, Driver, change, main, save, send, watch_for_ever

ROUND: Final = 20
"""Kills between two comparisons."""

RELEASES: Final = ({}, {"ranking_method": "dense"}, {"write_behind": ""})
"""What each release declares otherwise than ``tests.testapp``. None needs a trigger that another one lacks, whose
restoration would lead to a rebuild."""

WEIGHTS: Final = (5, 5, 1)


def declared(index: type[Any], release: int) -> type[Any]:
    """Return an index as a release declares it."""
    name = index.instance().name
    return type(index.__name__, (index,), {**RELEASES[release], "name": name}) if release else index


def like_or_submit(members: list[int], chance: random.Random) -> list[str]:
    """A change, as words. Of those of views, half take back what another one adds; prices rise with time, roughly. All
    processes change the same few members for two seconds, and then none of these for long: what is wrong by then stays
    so."""
    now = time.time()
    hot = [members[(2 * int(now) + n) % len(members)] for n in range(4)]
    if chance.random() < 0.5:
        price = int(now % 1000 * 900) + chance.randint(1, 1000 if chance.random() < 0.97 else LIMIT)
        return ["best", str(chance.choice(hot[:2])), str(min(price, 10**6))]
    kind, first = chance.choice((("add", 0), ("once", 1)))
    chosen = chance.sample(hot[first::2], chance.choice((1, 1, 1, 2)))
    return [kind, *(f"{member}:{chance.choice((-1, 1))}" for member in chosen)]


def make(indexes: Sequence[Any], key: str, words: list[str]) -> None:
    """Make one change, as a process of one release."""
    views, price = indexes
    if words[0] == "best":
        price.scores.submit(int(words[1]), int(words[2]), key=key)
        return
    changes = dict(map(int, word.split(":")) for word in words[1:])
    if words[0] == "add":
        views.scores.increment(changes, key=key)
    elif len(changes) > 1:
        views.scores.increment(changes)
    else:
        views.scores.increment(*changes.popitem())


def refusable(indexes: Sequence[Any], key: str, words: list[str]) -> None:
    """Make one change as soon as the release may: while another one's build is live, nothing is sent."""
    from django_zrank.exceptions import NotBuilt

    while True:
        try:
            make(indexes, key, words)
        except NotBuilt:
            time.sleep(0.02)
        else:
            return


def dawdle_before_swaps() -> None:
    """Let changes come between the last row of a rebuild and its swap."""
    from django_zrank.store import Store

    swap = Store.swap_rebuilt

    def late(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.3 * random.random())
        return swap(*args, **kwargs)

    Store.swap_rebuilt = late  # type: ignore[method-assign]


def _without(guard: str) -> None:
    from tests.model.broken import BROKEN

    _left_out.enter_context(BROKEN[guard]())


_left_out = ExitStack()
"""Guards of the app that are left out until the process ends."""

BREAKS: Final = {
    "no_marks": partial(_without, "flush marks"),
    "no_merge": partial(_without, "merge"),
}
"""The rules that rolling deploys need, each of which a run notices if it is left out."""


class ReleasesDriver(Driver):
    """Starts and kills everything, deploys, and compares."""

    size = 400

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        dawdle_before_swaps()
        self.releases = [[declared(index, n) for index in self.indexes] for n in range(len(RELEASES))]
        self.current = 0
        self.wrong = self.rounds = 0

    def choose(self, chance: random.Random) -> list[str]:
        return like_or_submit(self.members, chance)

    def perform(self, task: str, number: int, seed: int) -> None:
        from django_zrank.sync.rebuild import rebuild
        from django_zrank.write_behind.flush import flush

        chance = random.Random(seed)

        def release() -> Sequence[Any]:
            return chance.choices(self.releases, WEIGHTS)[0]

        if task == "change":
            make = partial(refusable, chance.choice(self.releases[:2]))
            change(self.log(number), seed, self.choose, lambda *given: send(*given, make))
        elif task == "save":
            save(seed, self.members)
        elif task == "watch":
            self.keep(chance, 0.1, lambda: self.migrate(self.current), once=True)
            watch_for_ever(self.releases[self.current], 0.02)
        elif task == "flush":
            self.keep(chance, 2.0, lambda: flush(chance.choice(release()).instance()))
        else:
            self.keep(chance, 3.0, lambda: rebuild(chance.choice(release()).instance()))

    def migrate(self, release: int) -> None:
        """Record what a release declares, as its ``migrate`` does."""
        from django_zrank.capture.triggers import install

        install("default", [index.instance() for index in self.releases[release]])

    def keep(
        self, chance: random.Random, pause: float, work: Callable[[], object], *, once: bool = False
    ) -> None:
        """Do something for ever; or ``once``, as soon as it succeeds."""
        from django_zrank.exceptions import ZRankError

        while True:
            try:
                work()
                if once:
                    return
            except (ZRankError, DatabaseError, InterfaceError):
                with suppress(Exception):
                    connections.close_all()
            time.sleep(pause * chance.random())

    def strike(self) -> None:
        if self.chance.random() < 0.15:
            self.deploy()
        super().strike()
        if sum(self.kills.values()) % ROUND == 0:
            self.swap_and_stop()
            self.compare_the_live_ones()
            for task, number in self.running:
                self.start(task, number)

    def deploy(self) -> None:
        """Let workers of another release take over. Processes of the former one go on."""
        (self.current,) = self.chance.choices(range(len(RELEASES)), WEIGHTS)
        for number in range(TASKS["watch"]):
            self.running["watch", number].kill()
            self.start("watch", number)

    def swap_and_stop(self) -> None:
        """Stop everything, the processes that make changes last: shortly after another release's build was put in
        place, while what they have changed meanwhile is still pending."""
        from django_zrank.exceptions import ZRankError
        from django_zrank.sync.rebuild import rebuild

        changers = {key: process for key, process in self.running.items() if key[0] == "change"}
        for key in self.running.keys() - changers.keys():
            self.running[key].kill()
        live = self.live()
        for index, *ways in zip(live, *self.releases[:2], strict=True):
            with suppress(ZRankError, DatabaseError, InterfaceError):
                rebuild(next(way for way in ways if way is not index).instance())
        time.sleep(self.chance.random())
        for process in changers.values():
            process.kill()
        self.database.settle()

    def live(self) -> list[Any]:
        """Return each index as the release declares it whose build is live, once Redis has loaded its file."""
        from django_zrank.exceptions import IndexUnavailable
        from django_zrank.store import Store

        def has_loaded() -> bool:
            with suppress(IndexUnavailable):
                Store(self.indexes[0].instance().name).learn()
                return True
            return False

        wait_for(has_loaded, 60)
        return [
            next(one for one in ways if one.instance().declares(Store(one.instance().name).learn().build))
            for ways in zip(*self.releases, strict=True)
        ]

    def compare_the_live_ones(self) -> None:
        """Settle, and compare."""
        from django_zrank.sync.verify import verify
        from tests.sync.mirror import contents
        from tests.testapp.models import Video

        self.settle()
        rows = list(Video.objects.all())
        for index, field, unit in zip(self.live(), ("views", "price"), (1, 100), strict=True):
            found = contents(index)
            for video in rows:
                if (score := found.get(str(video.pk))) != unit * getattr(video, field):
                    self.wrong += 1
                    print(
                        f"round {self.rounds}, {field} of {video.pk}: {getattr(video, field)}, ranked {score}"
                    )
            self.wrong += verify(index.instance()).drift
        self.rounds += 1

    def settle(self) -> None:
        """By the release whose build is live. If Redis came back with a build that is to be replaced, by the one that
        was recorded last: workers of others leave it alone."""
        from django_zrank.capture.triggers import refusal

        self.indexes = [
            next(one for one in (live, *ways) if not refusal(one.instance()))
            for live, *ways in zip(self.live(), *self.releases, strict=True)
        ]
        super().settle()

    def end_changes(self) -> None:
        """End the changes whose replies were lost, as a release that can make them."""
        self.compare_the_live_ones()
        self.migrate(0)
        self.live = lambda: self.releases[0]  # type: ignore[method-assign]
        super().end_changes()

    def report(self, changes: str, wrong: int) -> None:
        print(f"rounds   {self.rounds} compared, {self.wrong} wrong")
        super().report(changes, wrong + self.wrong)

    def compare(self) -> bool:
        return super().compare() and not self.wrong


if __name__ == "__main__":
    STRIKES["rebuild"] = 8
    sys.exit(main(ReleasesDriver, __doc__, BREAKS))
