"""Rounds of writing and killing, and a comparison after each."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from multiprocessing import RawArray, RawValue
from pathlib import Path
from typing import Any, Final

from django.core.management import CommandError, call_command
from django.db import Error, connection, connections

from django_zrank import RankIndex
from django_zrank.capture.triggers import refusal
from django_zrank.registry import registry
from django_zrank.sync.verify import verify
from tests.torture import pace
from tests.torture.breaks import BREAKS
from tests.torture.clients import disconnect, pin
from tests.torture.compare import compare, is_in_step, stray_keys, waiting
from tests.torture.databases import Database
from tests.torture.options import KINDS, PROCESSES, REBUILDING
from tests.torture.outcome import Outcome
from tests.torture.processes import Process
from tests.torture.schema import capture_strikes
from tests.torture.single import Single
from tests.torture.writers import Writer, populate

__all__ = ["Driver"]

_LEAVE: Final = 20.0
"""Seconds for which those that leave are waited for."""

INDEXES: Final = ("player", "ascending", "employee", "account", "nickname", "competitors")
"""Those that are written to: a filter, another direction, a parent's column, related tables, a text key, facets."""


def divide(shards: int) -> None:
    """Give every index so many shards: in this process, and all that are forked from it."""
    RankIndex.shards = shards
    for index in registry.all():
        vars(index).pop("holders", None)


class Driver:
    """Starts the processes, kills them, and compares."""

    def __init__(
        self,
        options: argparse.Namespace,
        folder: Path,
        database: Database,
        redis: Single,
    ) -> None:
        pace.shorten(options.lease)
        if options.broken:  # here and in all processes, which are forked from this one
            BREAKS[options.broken]()
        self.options, self.folder, self.database, self.redis = options, folder, database, redis
        self.outcome = Outcome(
            " ".join(
                filter(
                    None,
                    [
                        options.database,
                        options.redis,
                        f"{options.shards} shards" if options.shards > 1 else "",
                        f"seed {options.seed}",
                        options.broken,
                    ],
                )
            )
        )
        divide(options.shards)
        self.indexes = registry.named(INDEXES)
        self.chance = random.Random(options.seed)
        self.victims: dict[Process, str] = {}
        self.paused: dict[Process, float] = {}
        self.leaving: list[Process] = []
        self.enough = RawValue("b")
        self.counts = [RawArray("q", 3) for _ in range(options.writers)]
        self.strikes = {**redis.strikes, **database.strikes, **capture_strikes(folder, self.leaving)}

    def run(self) -> Outcome:
        """All of it. The servers are running, and the database is new."""
        began, round_ = time.monotonic(), self.options.round
        self.finish("populate", populate)
        self.drain()
        self.outcome.marks = self.outcome.syncs = 0
        self.redis.save()
        rounds = max(1, round(self.options.seconds / round_))
        for number in range(rounds):
            kills = self.options.kills * (number + 1) // rounds - self.outcome.kills.total()
            self.round(self.options.seconds / rounds, kills)
            print(f"{self.outcome}\n", file=sys.stderr, flush=True)  # a long run is to be watched
            if self.options.broken and self.outcome.wrong:
                break
        self.finish("rebuild_zrank", self.command("rebuild_zrank"))
        self.compare()
        self.outcome.complaints.update(f"A key is left over: {key}" for key in stray_keys(self.indexes))
        connections.close_all()
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    def round(self, seconds: float, kills: int) -> None:
        """Write and kill for so many seconds and so many kills, then stop everything, drain and compare."""
        # A rebuild repairs what is wrong, and a new server hides it: not every round has either.
        # A broken run has none but those that show it.
        spared = {kind for kind in REBUILDING if self.chance.random() < 0.4 and not self.options.broken}
        kinds = {kind: often for kind, often in KINDS.items() if self.can(kind) and kind not in spared}
        self.start(kinds)
        began = time.monotonic()
        for number in range(kills):
            self.wait_until(began + seconds * (number + self.chance.random()) / kills)
            while not self.strike(self.chance.choices(list(kinds), list(kinds.values()))[0]):
                continue
        self.wait_until(began + seconds)
        self.stop()
        self.drain()
        self.compare()
        self.outcome.rounds += 1
        self.outcome.seconds += seconds

    def can(self, kind: str) -> bool:
        """Return True if this is done in this run."""
        if kind in self.options.without:
            return False
        return kind in self.strikes or kind in PROCESSES

    # Processes

    def start(self, kinds: dict[str, float]) -> None:
        for number in range(self.options.writers):
            self.spawn(f"writer-{number}")
        for number in range(self.options.drainers):
            self.spawn(f"drainer-{number}")
        if "rebuild" in kinds:
            self.spawn("rebuild-0")

    def spawn(self, name: str) -> None:
        role, _, number = name.partition("-")
        seed = self.chance.random()
        if role == "writer":
            task: Callable[[], object] = Writer(seed, self.counts[int(number)], self.enough).run
        elif role == "drainer":
            task = self.command("sync_zrank", watch=True, interval=0.1)
        else:
            task = self.rebuild_again
        self.victims[Process(lambda: self.work(task, seed), self.log(role))] = name

    def work(self, task: Callable[[], object], seed: float) -> None:
        """Do what a victim does."""
        if self.redis.pinned and seed < self.options.pinned:
            pin(random.Random(seed).choice(self.redis.pinned))
        pace.slow_down(random.Random(seed))
        task()

    def command(self, name: str, **options: Any) -> Callable[[], object]:
        """A management command, for a process of its own."""

        def task() -> None:
            try:
                call_command(name, *INDEXES, **options)
            except CommandError as error:
                print(name, error, flush=True)
                sys.exit(1)

        return task

    def rebuild_again(self) -> None:
        """One ``rebuild_zrank`` after the other. Small batches, so that much happens in between."""
        while True:
            try:
                call_command("rebuild_zrank", self.chance.choice(INDEXES), batch_size=20)
            except CommandError as error:
                print("rebuild_zrank", error, flush=True)
            except Error as error:
                print("rebuild_zrank", error, flush=True)
                connection.close()
            time.sleep(random.random() * 0.3)

    def log(self, role: str) -> Path:
        return self.folder / f"{role}.log"

    def finish(self, name: str, task: Callable[[], object]) -> bool:
        """A process that ends by itself, unhurried and unhurt. Whether it has done what it should."""
        return Process(task, self.log(name)).wait() == 0

    # Kills

    def wait_until(self, moment: float) -> None:
        """Let them work. Those whose pause is over go on; those that died by themselves are complained of."""
        while (left := moment - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))
            self.redis.tick()
            now = time.monotonic()
            for process in [process for process, until in self.paused.items() if until <= now]:
                process.resume()
                del self.paused[process]
        self.leaving[:] = [process for process in self.leaving if not process.has_ended]
        for process in [process for process in self.victims if process.has_ended]:
            name = self.victims.pop(process)
            self.paused.pop(process, None)
            self.outcome.complaints[f"A {name.partition('-')[0]} ended by itself."] += 1
            self.spawn(name)

    def strike(self, kind: str) -> bool:
        """Do it. Whether something was killed."""
        if self.chance.random() < 0.2:
            self.redis.save()  # what a later start may come back to
        match kind:
            case "writer" | "drainer" | "rebuild":
                self.kill(self.victim(kind))
            case "pause" | "interrupt":
                # There are more writers than others, and each of the others does more at a time.
                role = self.chance.choice(sorted({name.partition("-")[0] for name in self.victims.values()}))
                getattr(self, kind)(self.victim(role))
                self.outcome.others[kind] += 1
                return False
            case _:
                if not self.strikes[kind](self.chance):
                    return False
        self.outcome.kills[kind] += 1
        return True

    def victim(self, role: str) -> Process:
        """Any process of this role."""
        return self.chance.choice([each for each, name in self.victims.items() if name.startswith(role)])

    def kill(self, process: Process) -> None:
        """Kill a process, and replace it."""
        self.paused.pop(process, None)
        process.kill()
        self.spawn(self.victims.pop(process))

    def interrupt(self, process: Process) -> None:
        """Ask a process to end, and replace it."""
        self.paused.pop(process, None)
        process.interrupt()
        self.leaving.append(process)
        self.spawn(self.victims.pop(process))

    def pause(self, process: Process) -> None:
        """Stop a process in the middle of whatever it does; one that may hold locks for a moment only."""
        longest = 0.3 if self.victims[process].startswith("writer") else 1.5 * self.options.lease
        process.pause()
        self.paused[process] = time.monotonic() + self.chance.random() * longest

    # The end of a round

    def stop(self) -> None:
        """Let them finish what they are at, as far as they come in a moment; then end them, wherever they are."""
        self.enough.value = True
        time.sleep(self.chance.random())
        self.enough.value = False
        for process in self.victims:
            process.kill()
        # Nobody kills a migration: MariaDB would keep half of it.
        until = time.monotonic() + _LEAVE
        while self.leaving and time.monotonic() < until:
            self.leaving[:] = [process for process in self.leaving if not process.has_ended]
            time.sleep(0.02)
        for process in self.leaving:
            process.kill()
        self.victims.clear()
        self.leaving.clear()
        self.paused.clear()
        self.database.settle()
        self.redis.settle()
        disconnect()
        self.outcome.rows, self.outcome.transactions, self.outcome.undone = (
            sum(count[i] for count in self.counts) for i in range(3)
        )

    def drain(self) -> None:
        """An ordinary ``sync_zrank``, once; again only where a killed rebuild still counted as alive."""
        self.outcome.marks += waiting(self.indexes)
        if any(map(refusal, self.indexes)):  # another release was deployed last
            self.finish("rebuild_zrank", self.command("rebuild_zrank"))
        connections.close_all()
        for _ in range(4):
            self.outcome.syncs += 1
            done = self.finish("sync_zrank", self.command("sync_zrank"))
            right = is_in_step(self.indexes)
            connections.close_all()
            if done and right:
                return
            time.sleep(self.options.lease)
        self.outcome.complaints["sync_zrank does not bring the indexes in step."] += 1

    def compare(self) -> None:
        for index in self.indexes:
            members, wrong = compare(index)
            self.outcome.members += members
            self.outcome.wrong += wrong
            report = verify(index)
            if report.compared and bool(report.drift) != bool(wrong):
                self.outcome.complaints[f"verify_zrank finds {report.drift} errors, not {len(wrong)}."] += 1
        connections.close_all()
