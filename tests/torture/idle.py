"""``python -m tests.torture.idle``: members that sleep and are touched, while everything is killed.

As ``tests.torture.scores``; but processes touch members and increment them, some often and some hardly ever, and
members that nobody touched for some seconds fall asleep. In the end each column tells of the last touch that was
acknowledged, or of one shortly before; the scores are what was acknowledged; and those are ranked who are awake.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

from django.db import DatabaseError, InterfaceError, transaction
from django.utils import timezone

from tests.torture.scores import Driver, begun_at, logged_changes, main, send

PERIOD: Final = timedelta(seconds=4)

REST: Final = PERIOD.total_seconds() / 24 + 0.5
"""Seconds for which a column isn't written again, with the time that a write takes on a machine that does much else."""


def make(index: Any, key: str, words: list[str]) -> None:
    """Touch a member, or add to its score."""
    kind, member, *by = words
    if kind == "touch":
        index.scores.touch(int(member))
    else:
        index.scores.increment(int(member), int(by[0]), key=key)


def save(seed: int, members: list[int]) -> None:
    """See members by a save of their row, and change what nobody ranks."""
    from tests.testapp.models import Video

    chance = random.Random(seed)
    while True:
        # With the row locked, or a touch in between would be overwritten by the older time.
        with suppress(DatabaseError, InterfaceError), transaction.atomic():
            for video in Video.objects.select_for_update().filter(pk=chance.choice(members)):
                if chance.random() < 0.3:
                    video.seen = timezone.now()
                    video.save(update_fields=["seen"])
                else:
                    video.save(update_fields=["region"])
        time.sleep(0.1 * chance.random())


def rest_for_long() -> None:
    """Let columns rest for longer than members stay awake."""
    from django_zrank.idle.awake import Awake

    Awake.rest = property(lambda self: 2 * PERIOD)  # type: ignore[assignment, method-assign]


class IdleDriver(Driver):
    """Starts and kills everything, and compares."""

    def declare(self) -> Sequence[Any]:
        from django_zrank import RankIndex, registry
        from django_zrank.sync import signal_handlers
        from django_zrank.sync.watch import sync
        from tests.testapp.models import Video

        attributes = {
            "model": Video,
            "order": ("-total",),
            "name": "awake",
            "idle": ("seen", PERIOD),
            "write_behind": "increment",
        }
        index = registry.register(type("AwakeRank", (RankIndex,), attributes))
        signal_handlers.connect(index.instance())
        sync(index)
        return [index]

    def choose(self, chance: random.Random) -> list[str]:
        # Some members at a time, others in some seconds: most fall asleep in between.
        first = int(time.time() / PERIOD.total_seconds() * 8)
        lately = [self.members[(first + n) % len(self.members)] for n in range(3)]
        member = chance.choice(lately if chance.random() < 0.97 else self.members)
        return (
            ["touch", str(member)]
            if chance.random() < 0.6
            else ["add", str(member), str(chance.randint(1, 9))]
        )

    def send(self, key: str, words: list[str], write: Callable[..., None]) -> None:  # type: ignore[override]
        send(key, words, write, partial(make, self.indexes[0]))

    def perform(self, task: str, number: int, seed: int) -> None:
        if task == "save":
            save(seed, self.members)
        else:
            super().perform(task, number, seed)

    def acknowledged_touches(self) -> tuple[dict[int, float], dict[int, list[int]], int]:
        """Return by member the time of the last touch that can't be lost, and the least and the most that was added;
        and the number of changes."""
        touched = dict.fromkeys(self.members, 0.0)
        added = {member: [0, 0] for member in self.members}
        changes = 0
        for path in self.folder.glob("changes-*.log"):
            for change in logged_changes(path):
                kind, member, *by = change.words
                changes += 1
                kept = not self.may_be_lost(change)
                if kept and kind == "touch":  # that of an increment whose row is locked is logged, and lost
                    touched[int(member)] = max(touched[int(member)], begun_at(change.key))
                if kind == "add":
                    added[int(member)][0] += int(by[0]) if kept else 0
                    added[int(member)][1] += int(by[0]) * (1 + self.may_be_twice(change))
        return touched, added, changes

    def compare(self) -> bool:
        from tests.sync.mirror import contents
        from tests.testapp.models import Video

        index = self.indexes[0]
        self.end_changes()
        index.scores.touch(*self.members[::4])
        before = timezone.now()
        self.settle()
        rows = {video.pk: video for video in Video.objects.all()}
        ranked = contents(index)
        after = timezone.now()
        touched, added, changes = self.acknowledged_touches()
        wrong = awake = 0
        for pk, row in rows.items():
            last, (least, most) = touched[pk], added[pk]
            is_awake = row.seen is not None and row.seen > after - PERIOD
            is_asleep = row.seen is None or row.seen <= before - PERIOD
            score = ranked.get(str(pk))
            awake += is_awake
            if (
                (last and (row.seen is None or row.seen.timestamp() < last - REST))
                or not least <= row.total <= most
                or (is_awake and score is None)
                or (is_asleep and score is not None)
                or score not in (None, row.total)
            ):
                wrong += 1
                print(
                    f"member {pk}: touched {last}, added {least} to {most}: {row.seen}, {row.total}, {score}"
                )
        self.report(f"{changes} acknowledged, {awake} members awake, {len(ranked)} ranked", wrong)
        return not wrong


if __name__ == "__main__":
    sys.exit(main(IdleDriver, __doc__, {"long_rest": rest_for_long}))
