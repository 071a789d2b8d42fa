"""Reads while the primary is replaced: the outcome of every call, and the time that it took.

``python -m tests.benchmarks.failover [--only WORD] [--seconds N] [--json FILE] [--plot FILE.png]``

Sentinels, and a cluster; a primary that is killed, one that hangs, and a planned failover. A thread writes one score,
ever higher; two others ask for it, of the primary and of a replica, and know what was written before they asked.
``sync_zrank --watch`` runs beside them. Timeouts are one second; a Sentinel misses a primary after half a second, a
node after one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.options import parse_options
from tests.benchmarks.plots import pyplot
from tests.benchmarks.rounds import save

DEPLOYMENTS = ("sentinel", "cluster")
EVENTS = ("killed", "hangs", "planned")
READERS = ("primary", "replica")
OUTCOMES = {"answered": "tab:green", "refused": "tab:red", "older": "black"}
"""``older``: than what had been written before the question."""

BEFORE = 3.0
"""Seconds before the event."""

PAUSE = 0.01
"""Seconds between two questions of one thread."""

Seen = list[tuple[float, float, str]]
"""Times at which questions were asked, from the event on; the seconds that it took; the outcome."""


def main() -> int:
    options = parse_options(__doc__, only="", seconds=9.0, plot=Path, deployment=str, event=str)
    if options.event:  # in a process of its own: each has servers and settings of its own
        print(json.dumps(Failover(options.deployment, options.event, options.seconds).run()))
        return 0
    if options.plot:
        pyplot()
    seen: dict[str, dict[str, Seen]] = {}
    for deployment in DEPLOYMENTS:
        for event in EVENTS:
            name = f"{deployment}: {event}"
            if options.only in name:
                command = [sys.executable, "-m", __spec__.name, "--seconds", str(options.seconds)]
                done = subprocess.run(
                    [*command, "--deployment", deployment, "--event", event],
                    stdout=subprocess.PIPE,
                    check=True,
                )
                seen[name] = json.loads(done.stdout.splitlines()[-1])
                report(name, seen[name])
    figures = {name: {who: summary(calls) for who, calls in each.items()} for name, each in seen.items()}
    save(options, events=figures)
    if options.plot:
        plot(options.plot, seen)
    return 0


class Failover:
    """One failover, and those who read through it."""

    def __init__(self, deployment: str, event: str, seconds: float) -> None:
        self.deployment, self.event, self.seconds = deployment, event, seconds
        self.folder = Path(tempfile.mkdtemp(prefix="zrank-failover-"))
        self.seen: dict[str, Seen] = {who: [] for who in READERS}
        self.ended = threading.Event()
        self.newest = 0.0
        """The highest score that a push has written."""

    def run(self) -> dict[str, Seen]:
        from tests.torture.__main__ import redis_binary, set_up_django
        from tests.torture.databases import DATABASES
        from tests.torture.options import DEPLOYMENTS

        database, self.servers = (
            DATABASES["sqlite"](self.folder),
            DEPLOYMENTS[self.deployment](redis_binary()),
        )
        try:
            self.servers.start()
            settings = argparse.Namespace(keep_marks=3600)
            set_up_django(database.environment, self.folder, self.servers.cache(), settings)
            self.watch_it()
        finally:
            self.servers.stop()
            shutil.rmtree(self.folder, ignore_errors=True)
        return self.seen

    def watch_it(self) -> None:
        """Start everybody, let it happen, and wait for the end."""
        import tests.testapp.zrank  # noqa: F401 - threads that import it at once get in each other's way
        from tests.torture.processes import Process

        log = self.folder / "log"
        if Process(self.populate, log).wait():
            raise RuntimeError(log.read_text())
        watcher = Process(self.watch, log)
        threads = [threading.Thread(target=self.write)]
        threads += [threading.Thread(target=self.read, args=(who,)) for who in READERS]
        try:
            for thread in threads:
                thread.start()
            time.sleep(BEFORE)
            moment = time.monotonic()
            undo = self.strike()
            time.sleep(max(0.0, moment + self.seconds - time.monotonic()))
        finally:
            self.ended.set()
            for thread in threads:
                thread.join()
            watcher.kill()
        undo()
        self.seen = {
            who: [(at - moment, taken, said) for at, taken, said in calls] for who, calls in self.seen.items()
        }

    def populate(self) -> None:
        from django.core.management import call_command

        from tests.testapp.models import Nickname

        Nickname.objects.bulk_create(Nickname(nick=f"n{pk}", score=pk / 1000) for pk in range(1000))
        call_command("sync_zrank", "nickname")

    def watch(self) -> None:
        from django.core.management import call_command

        call_command("sync_zrank", "nickname", watch=True)

    def strike(self) -> Callable[[], object]:
        """Do it. Returns what undoes it."""
        from redis.crc import key_slot

        if self.deployment == "sentinel":
            server = self.servers.find_primary()
            if self.event == "planned":
                self.servers.sentinels.fail_over()
        else:
            server = self.servers.cluster.owner(key_slot(b"zrank:{nickname}:meta"))
            if self.event == "planned":
                replica = server.ask("ROLE")[2][0]
                node = next(node for node in self.servers.cluster.nodes if node.port == int(replica[1]))
                node.ask("CLUSTER", "FAILOVER")
        if self.event == "killed":
            server.kill()
        if self.event == "hangs":
            server.freeze()
            return server.thaw  # type: ignore[no-any-return]
        return lambda: None

    def write(self) -> None:
        """One score, ever higher. What could not be pushed waits for the watcher."""
        from django.db import connections

        from django_zrank.exceptions import IndexUnavailable
        from django_zrank.sync.push import push
        from django_zrank.testing import disable_sync
        from tests.testapp.models import Nickname
        from tests.testapp.zrank import NicknameRank

        with disable_sync():
            score = 1.0
            while not self.ended.wait(PAUSE):
                score += 1.0
                Nickname.objects.filter(nick="n0").update(score=score)
                try:
                    push(NicknameRank.instance(), ["n0"])
                except IndexUnavailable:
                    continue
                self.newest = score
        connections.close_all()

    def read(self, server: str) -> None:
        """Ask for that score, and note every outcome."""
        from django.db import connections

        from django_zrank.exceptions import IndexUnavailable
        from tests.testapp.zrank import NicknameRank

        ranking = NicknameRank.ranking.using(server)
        while not self.ended.wait(PAUSE):
            least, asked = self.newest, time.monotonic()
            try:
                outcome = "answered" if ranking.score("n0") >= least else "older"
            except IndexUnavailable:
                outcome = "refused"
            self.seen[server].append((asked, time.monotonic() - asked, outcome))
        connections.close_all()


def summary(calls: Seen) -> dict[str, Any]:
    """Return the numbers of calls since a failover began, the seconds without answers, and the longest call."""
    after = [call for call in calls if call[0] + call[1] >= 0]
    refused = [at for at, _, outcome in after if outcome != "answered"]
    back = [at for at, _, outcome in after if refused and outcome == "answered" and at > max(refused)]
    return {
        "asked": len(after),
        "answered": sum(outcome == "answered" for _, _, outcome in after),
        "older": sum(outcome == "older" for _, _, outcome in after),
        "without answers": (min(back) - min(refused) if back else None) if refused else 0.0,
        "longest": max(seconds for _, seconds, _ in after),
    }


def report(name: str, seen: dict[str, Seen]) -> None:
    for who, calls in seen.items():
        found = summary(calls)
        away = found["without answers"]
        away = "to the end" if away is None else f"{away:.2f} s"
        print(
            f"{name:18} {who:8} {found['asked']:5} asked, {found['answered']:5} answered, {found['older']} older; "
            f"from the first to the last refused: {away}; longest call {found['longest']:.2f} s",
            flush=True,
        )


def plot(path: Path, seen: dict[str, dict[str, Seen]]) -> None:
    """A panel for each failover, a lane for each reader; a dot for each call, where it was asked."""
    figure, panels = pyplot().subplots(
        len(seen),
        len(READERS),
        figsize=(11, 1.7 * len(seen) + 0.6),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for row, (name, each) in zip(panels, seen.items(), strict=True):
        for panel, (who, calls) in zip(row, each.items(), strict=True):
            for outcome, color in OUTCOMES.items():
                if dots := [(at, seconds * 1000) for at, seconds, said in calls if said == outcome]:
                    panel.scatter(*zip(*dots, strict=True), s=6, color=color, label=outcome)
            panel.axvline(0, color="gray", lw=0.8)
            panel.set(yscale="log", title=f"{name}, reads from the {who}")
            panel.grid(True, alpha=0.3)
        row[0].set_ylabel("ms per call")
    for panel in panels[-1]:
        panel.set_xlabel("seconds after the failure")
    labelled = {
        label: dots
        for panel in panels.flat
        for dots, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(labelled.values(), labelled, loc="outside upper right", ncols=len(labelled), markerscale=2)
    figure.savefig(path, dpi=72)


if __name__ == "__main__":
    sys.exit(main())
