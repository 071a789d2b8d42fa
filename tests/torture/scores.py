"""``python -m tests.torture.scores``: write-behind scores, while everything is killed.

Processes increment, submit and save, and log what they are about to do and what was acknowledged. Flushers, watchers,
rebuilds, the database and Redis are killed meanwhile. A change whose reply was lost is sent again under its own key, by
the successor of its process; half of the members are changed without keys, and only once. In the end, with ``--redis
always`` (``appendfsync always``), each column and score is compared with what was acknowledged, to the unit; changes
without a key that nobody answered may have been made or not. With ``--redis dump`` Redis comes back with what it held
earlier: nothing may be counted twice, and nothing be lost but what was changed since the last dump. With ``everysec``
the end of its file is cut off, as when the power fails: nothing may be lost but what was changed within that second.
With ``pair`` a replica takes over, which may be behind. A trigger of the project's own limits the column of prices.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any, Final, NamedTuple

from django.db import DatabaseError, InterfaceError, connection, connections

from tests.servers import RedisServer
from tests.torture.databases import DATABASES
from tests.torture.pair import Pair
from tests.torture.processes import Process

MEMBERS: Final = 40
TASKS: Final = {"change": 6, "save": 2, "flush": 2, "watch": 2, "rebuild": 1}
"""The processes that run, by their tasks."""

LIMIT: Final = 900_000
"""The highest price that a trigger lets stand; one in ten of those submitted is higher."""

_CAPPED: Final = f"NEW.price = LEAST(NEW.price, {LIMIT});"
_CORRECTED: Final = f"UPDATE testapp_video SET price = min(price, {LIMIT}) WHERE id = NEW.id;"

TRIGGERS: Final = {
    "postgresql": (
        f"CREATE FUNCTION a_limit() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {_CAPPED} RETURN NEW; END$$",
        "CREATE TRIGGER a_limit BEFORE UPDATE ON testapp_video FOR EACH ROW EXECUTE FUNCTION a_limit()",
    ),
    "mysql": (f"CREATE TRIGGER a_limit BEFORE UPDATE ON testapp_video FOR EACH ROW BEGIN SET {_CAPPED} END",),
    "sqlite": (f"CREATE TRIGGER a_limit AFTER UPDATE OF price ON testapp_video BEGIN {_CORRECTED} END",),
}

STRIKES: Final = {
    "change": 5,
    "flush": 8,
    "watch": 5,
    "save": 2,
    "rebuild": 4,
    "redis": 3,
    "connection": 3,
    "database": 0.3,
}
"""The relative frequency of each strike."""

HURRIED: Final = 0.3
"""Seconds for which a crash of Redis lets changes gather, and then flushes run, where it comes back older."""


class DurableRedis(RedisServer):
    """A server that comes back with what it has written: all of it, or what it held when it was last saved."""

    def __init__(self, binary: str, durability: str) -> None:
        super().__init__(binary)
        self.durability = durability
        self.lost: list[tuple[float, float]] = []
        """The spans of time whose changes may be lost."""

        self.saved_at, self.saved_size = 0.0, 0
        if durability != "dump":
            self.settings = {"appendonly": "yes", "appendfsync": durability}

    @property
    def _log(self) -> Path:
        """The file that each write is appended to."""
        assert self._folder is not None
        (path,) = self._folder.glob("appendonlydir/*.incr.aof")
        return path

    def save(self) -> None:
        if self.durability == "dump":
            self.saved_at = time.time()
            self.ask("SAVE")
        elif self.durability == "everysec":
            self.saved_at, self.saved_size = time.time(), self._log.stat().st_size

    def crash(self) -> None:
        assert self._process is not None
        arguments: Any = self._process.args
        self._process.kill()
        self._process.wait()
        if self.durability == "everysec":
            os.truncate(self._log, random.randint(self.saved_size, self._log.stat().st_size))
        self._process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
        if not self._answers():
            raise RuntimeError("Redis doesn't come back")
        if self.durability != "always":
            self.lost.append((self.saved_at - 0.1, time.time()))


class PairedRedis(Pair):
    """A primary and a replica, behind one address."""

    def __init__(self, binary: str) -> None:
        super().__init__(binary)
        self.lost: list[tuple[float, float]] = []
        self.chance = random.Random(1)
        self._split_at: float | None = None

    @property
    def url(self) -> str:
        assert self.front is not None
        return self.front.url

    def save(self) -> None:
        """A replica holds what it has heard: nothing else comes back."""

    def crash(self) -> None:
        """Let the replica take over. What the former primary took since it was heard, and takes since, is lost; after a
        partition, what either has taken."""
        began = time.time()
        kind = self.chance.choice(["failover", "back", "split", "freeze"])
        self.strikes[kind](self.chance)
        first = min(self._split_at or began, began) - 0.1
        self._split_at = (self._split_at or began) if self.is_split else None
        self.lost.append((first, time.time() + 0.1))

    def settle(self) -> None:
        if self._split_at is not None:
            self.lost.append((self._split_at - 0.1, time.time() + 0.1))
        super().settle()


# What processes do


def log_lines(path: Path) -> Iterator[list[str]]:
    """The complete lines of a log, as words."""
    if path.exists():
        for line in path.read_text().split("\n")[:-1]:
            yield line.split()


class Logged(NamedTuple):
    """A change, as its process has logged it."""

    key: str
    words: list[str]

    end: str = ""
    """"done" if it was acknowledged, "unknown" if it had no key and was not answered, "" if its process was killed."""

    at: float = 0.0
    """The time of the acknowledgement."""

    is_again: bool = False
    """True if it was sent more than once."""


def logged_changes(path: Path) -> list[Logged]:
    """The changes of a log, in the order in which they were begun."""
    changes: dict[str, Logged] = {}
    for what, key, *words in log_lines(path):
        if what == "begin":
            changes[key] = Logged(key, words)
        elif what == "again":
            changes[key] = changes[key]._replace(is_again=True)
        else:
            changes[key] = changes[key]._replace(end=what, at=float(words[0]) if words else 0.0)
    return list(changes.values())


def end_unanswered(path: Path, write: Callable[..., None], send: Send) -> None:
    """End the changes whose process was killed: send each again, if it has a key."""
    for change in logged_changes(path):
        if change.end:
            continue
        if change.words[0] == "once":
            write("unknown", change.key)
        else:
            write("again", change.key)
            send(change.key, change.words, write)


def begun_at(key: str) -> float:
    """The time at which a change was begun, which its key tells."""
    return float(key.rsplit("-", 1)[1])


Send = Callable[[str, list[str], Callable[..., None]], None]


def change(path: Path, seed: int, choose: Callable[[random.Random], list[str]], send: Send) -> None:
    """Change scores for ever, having ended what the process before has begun."""
    chance = random.Random(seed)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(*words: object) -> None:
        os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())

    end_unanswered(path, write, send)
    while True:
        key = f"{path.stem}-{os.getpid()}-{time.time():.6f}"
        words = choose(chance)
        write("begin", key, *words)
        send(key, words, write)
        if chance.random() < 0.05:
            time.sleep(0.05 * chance.random())


def add_or_submit(members: list[int], chance: random.Random) -> list[str]:
    """A change, as words."""
    if chance.random() < 0.2:
        return ["best", str(chance.choice(members)), str(chance.randint(1, 10**6))]
    kind, first = chance.choice((("add", 0), ("once", 1)))
    chosen = chance.sample(members[first::2], chance.choice((1, 1, 1, 3)))
    return [kind, *(f"{member}:{chance.randint(1, 9)}" for member in chosen)]


def make(key: str, words: list[str]) -> None:
    from tests.testapp.zrank import VideoPrice, VideoRank

    if words[0] == "best":
        VideoPrice.scores.submit(int(words[1]), int(words[2]), key=key)
    else:
        changes = dict(map(int, word.split(":")) for word in words[1:])
        if words[0] == "add":
            VideoRank.scores.increment(changes, key=key)
        elif len(changes) > 1:
            VideoRank.scores.increment(changes)
        else:
            VideoRank.scores.increment(*changes.popitem())


def send(
    key: str, words: list[str], write: Callable[..., None], make: Callable[[str, list[str]], None] = make
) -> None:
    """Make one change, as often as it takes. A server that lost its newest writes may have forgotten the key."""
    from django_zrank.exceptions import IndexUnavailable

    while True:
        try:
            make(key, words)
        except (IndexUnavailable, DatabaseError, InterfaceError):
            connections.close_all()
            time.sleep(0.02)
            if words[0] == "once":
                write("unknown", key)
                return
            write("again", key)
        else:
            write("done", key, time.time())
            return


def save(seed: int, members: list[int]) -> None:
    """Add to columns in the database; ``total`` tells how much."""
    from django.db.models import F

    from tests.testapp.models import Video

    chance = random.Random(seed)
    while True:
        by = chance.randint(1, 9)
        with suppress(DatabaseError, InterfaceError):
            if chance.random() < 0.5:
                Video.objects.filter(pk=chance.choice(members)).update(
                    views=F("views") + by, total=F("total") + by
                )
            else:
                for video in Video.objects.filter(pk=chance.choice(members)):
                    video.save(update_fields=["region"])
        time.sleep(0.03 * chance.random())


def keep(seed: int, indexes: Sequence[Any], work: Callable[[Any], object]) -> None:
    """Do something to the indexes for ever, to the first one most often."""
    from django_zrank.exceptions import ZRankError

    chance = random.Random(seed)
    while True:
        try:
            work(chance.choice((indexes[0], *indexes)).instance())
        except (ZRankError, DatabaseError, InterfaceError):
            with suppress(Exception):
                connections.close_all()
        time.sleep(0.05 * chance.random())


def watch_for_ever(indexes: Sequence[Any], share: float = 0.5) -> None:
    """Watch, and flush in a share of all turns."""
    from django_zrank.sync import upkeep
    from django_zrank.sync import watch as watch_module
    from django_zrank.sync.watch import watch

    upkeep.is_due = watch_module.is_due = lambda index, name: random.random() < share
    watch([index.instance() for index in indexes], interval=0.05, stop=Event())


def dawdle() -> None:
    """Let flushes take their time between their steps: a short run is to meet them there."""
    from django_zrank.write_behind.store import PendingStore

    for name in ("take_pending", "confirm_flush", "settle_flush"):
        step = getattr(PendingStore, name)

        def late(*args: Any, step: Any = step, **how: Any) -> Any:
            if random.random() < 0.3:
                time.sleep(0.1 * random.random())
            found = step(*args, **how)
            if random.random() < 0.3:
                time.sleep(0.1 * random.random())
            return found

        setattr(PendingStore, name, late)


def settle_without_number() -> None:
    """Settle a flush after its commit: the number is noted later, in a transaction of its own."""
    from django_zrank.models import Build
    from django_zrank.transactions import briefly
    from django_zrank.write_behind import flush

    def carry(index: Any, column: Any, store: Any, flight: Any, term: int, patience: float) -> Any:
        writing = flush._Writing(index, column)
        briefly(index.get_using(), lambda: writing.write(flight.changes), patience=patience)
        time.sleep(0.1 * random.random())
        row = Build.objects.filter(index=index.name, term=term, flushed=flight.number - 1)
        row.update(flushed=flight.number, flushed_term=term)
        return writing

    flush._carry = carry


def leave_out_reconcile() -> None:
    """Accept servers without making what is pending there what the column lacks."""
    from django_zrank.write_behind import extension

    extension.reconcile = lambda *args, **kwargs: True


def leave_marks_to_triggers() -> None:
    """Leave no marks of what a flush has carried."""
    from django_zrank.write_behind import flush

    flush._mark = lambda index, members: None


BREAKS: Final = {
    "no_number": settle_without_number,
    "no_reconcile": leave_out_reconcile,
    "no_marks": leave_marks_to_triggers,
}
"""Switches that break the protocol, each to be noticed by a run."""


# The driver


class Driver:
    """Starts and kills everything, and compares."""

    size = MEMBERS

    def __init__(
        self, options: argparse.Namespace, folder: Path, database: Any, server: DurableRedis | PairedRedis
    ) -> None:
        from tests.testapp.models import Video

        self.indexes = self.declare()
        self.options, self.folder, self.database, self.server = options, folder, database, server
        self.chance = random.Random(options.seed)
        Video.objects.bulk_create(Video() for _ in range(self.size))
        self.members = sorted(Video.objects.values_list("pk", flat=True))
        self.running: dict[tuple[str, int], Process] = {}
        self.kills: dict[str, int] = defaultdict(int)

    def declare(self) -> Sequence[Any]:
        """The indexes whose scores change."""
        from tests.testapp.zrank import VideoPrice, VideoRank

        return VideoRank, VideoPrice

    def choose(self, chance: random.Random) -> list[str]:
        return add_or_submit(self.members, chance)

    send = staticmethod(send)

    def perform(self, task: str, number: int, seed: int) -> None:
        """Do what a process of this task does."""
        from django_zrank.sync.rebuild import rebuild
        from django_zrank.write_behind.flush import flush

        if task == "change":
            change(self.log(number), seed, self.choose, self.send)
        elif task == "save":
            save(seed, self.members)
        elif task == "watch":
            watch_for_ever(self.indexes)
        else:
            keep(seed, self.indexes, flush if task == "flush" else rebuild)

    def start(self, task: str, number: int) -> None:
        connections.close_all()
        seed = self.chance.randrange(10**9)

        def run() -> None:
            random.seed(seed)
            self.perform(task, number, seed)

        self.running[task, number] = Process(run, self.folder / f"{task}.out")

    def log(self, number: int) -> Path:
        return self.folder / f"changes-{number}.log"

    def run(self) -> bool:
        from django_zrank.sync.rebuild import rebuild

        with connection.cursor() as cursor:
            for statement in TRIGGERS[connection.vendor]:
                cursor.execute(statement)
        for index in self.indexes:
            rebuild(index.instance())
        self.server.save()
        for task, number in TASKS.items():
            for n in range(number):
                self.start(task, n)
        pause = self.options.seconds / self.options.kills
        for kill in range(self.options.kills):
            time.sleep(2 * pause * self.chance.random())
            if kill % 5 == 0 or self.options.redis == "everysec":
                self.server.save()
            self.strike()
        for process in self.running.values():
            process.kill()
        self.database.settle()
        if isinstance(self.server, PairedRedis):
            self.server.settle()
        return self.compare()

    def strike(self) -> None:
        possible = [
            kind for kind in STRIKES if kind in TASKS or kind == "redis" or kind in self.database.strikes
        ]
        (kind,) = self.chance.choices(possible, [STRIKES[kind] for kind in possible])
        self.kills[kind] += 1
        if kind == "redis" and self.options.redis == "dump" and self.chance.random() < 0.5:
            self.crash_after_flushes()
        elif kind == "redis":
            self.server.crash()
        elif kind in TASKS:
            number = self.chance.randrange(TASKS[kind])
            self.running[kind, number].kill()
            self.start(kind, number)
        else:
            self.database.strikes[kind](self.chance)

    def crash_after_flushes(self) -> None:
        """Let Redis come back with much pending that the column has by then, and little that is lost."""
        others = [process for (task, _), process in self.running.items() if task in ("flush", "watch")]
        changers = [process for (task, _), process in self.running.items() if task == "change"]
        for process in others:
            process.pause()
        time.sleep(HURRIED)
        self.server.save()
        for process in changers:
            process.pause()
        for process in others:
            process.resume()
        time.sleep(HURRIED)
        self.server.crash()
        for process in changers:
            process.resume()

    def end_changes(self) -> None:
        """Bring indexes in step, and end the changes whose replies were lost."""
        self.settle()
        for number in range(TASKS["change"]):
            with self.log(number).open("a") as file:
                end_unanswered(self.log(number), lambda *words: print(*words, file=file), self.send)
        self.settle()
        self.settle()

    def compare(self) -> bool:
        from tests.sync.mirror import contents
        from tests.testapp.models import Video
        from tests.testapp.zrank import VideoPrice, VideoRank

        self.end_changes()
        added, best, lost, more, changes = self.acknowledged()
        wrong = 0
        rows = {video.pk: video for video in Video.objects.all()}
        views, prices = contents(VideoRank), contents(VideoPrice)
        for pk, video in rows.items():
            must, mine = added[pk] + video.total, (video.views, views[str(pk)], prices[str(pk)] / 100)
            right = must - lost[pk] <= video.views <= must + more[pk] and mine[1] == video.views
            if (
                not right
                or mine[2] != video.price
                or (not self.server.lost and video.price != min(best[pk], LIMIT))
            ):
                wrong += 1
                print(
                    f"member {pk}: {must} (of it {video.total} saved, {lost[pk]} may be lost, {more[pk]} come to it), "
                    f"{best[pk]}: {mine}"
                )
        self.report(f"{changes} acknowledged, {sum(lost.values())} units may have been lost", wrong)
        return not wrong

    def report(self, changes: str, wrong: int) -> None:
        print(f"changes  {changes}")
        print(f"kills    {sum(self.kills.values())}: {dict(self.kills)}")
        print(f"members  {len(self.members)} compared, {wrong} wrong")

    def settle(self) -> None:
        """Bring indexes in step. A rebuild that was killed is in the way until it counts as dead: of others, and of
        flushes, which keep only so many for its query."""
        from django_zrank.exceptions import ZRankError
        from django_zrank.sync.watch import sync
        from django_zrank.write_behind.store import PendingStore

        for index in self.indexes:
            for _ in range(50):
                try:
                    sync(index.instance())
                    if not any(PendingStore.of(part).waiting()[0] for part in index.instance().holders):
                        break
                    time.sleep(0.2)
                except (ZRankError, DatabaseError, InterfaceError):
                    connections.close_all()
                    time.sleep(0.2)
            else:
                raise RuntimeError(f"{index} doesn't come to rest")

    def may_be_lost(self, change: Logged) -> bool:
        """Return True if a change may have been made in a span whose changes may be lost: its process may have been
        stopped between that and the acknowledgement."""
        begun = begun_at(change.key)
        return any(begun <= last and first <= change.at for first, last in self.server.lost)

    def may_be_twice(self, change: Logged) -> bool:
        """Return True if a change may count twice, because it was sent again: a flush may have carried it, before Redis
        came back as it was before the change, without its key."""
        return change.is_again and (isinstance(self.server, PairedRedis) or self.may_be_lost(change))

    def acknowledged(self) -> tuple[dict[int, int], dict[int, int], dict[int, int], dict[int, int], int]:
        """Return by member what was added, the best price, what may have been lost, and what may have been made beyond
        that: twice, because a key was lost, or without an answer; and the number of changes."""
        added: dict[int, int] = defaultdict(int)
        best: dict[int, int] = defaultdict(int)
        lost: dict[int, int] = defaultdict(int)
        more: dict[int, int] = defaultdict(int)
        changes = 0
        for number in range(TASKS["change"]):
            for change in logged_changes(self.log(number)):
                kind, *parts = change.words
                changes += change.end == "done"
                if kind == "best":
                    best[int(parts[0])] = max(best[int(parts[0])], int(parts[1]))
                    continue
                for member, by in (map(int, part.split(":")) for part in parts):
                    # Of a change that takes away, the bounds change places.
                    above, below = (more, lost) if by > 0 else (lost, more)
                    if change.end == "unknown":
                        above[member] += abs(by)
                        continue
                    added[member] += by
                    if self.may_be_twice(change):
                        above[member] += abs(by)
                    if self.may_be_lost(change):
                        below[member] += abs(by)
        return added, best, lost, more, changes


def main(
    make: type[Driver] = Driver, about: str = __doc__ or "", breaks: Mapping[str, Callable[[], None]] = BREAKS
) -> int:
    usage = about.split("\n")[0]
    parser = argparse.ArgumentParser(prog=usage.split("`")[2], description=usage)
    parser.add_argument("--database", choices=DATABASES, default="sqlite")
    parser.add_argument(
        "--redis",
        choices=("always", "everysec", "dump", "pair"),
        default="always",
        help="What it comes back with.",
    )
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--break", dest="broken", choices=breaks, help="Break the protocol on purpose.")
    options = parser.parse_args()
    options.keep_marks = 3600.0
    from tests.torture.__main__ import redis_binary, set_up_django

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="zrank-torture-"))
    folder.chmod(0o755)
    database, binary = DATABASES[options.database](folder), redis_binary()
    server = PairedRedis(binary) if options.redis == "pair" else DurableRedis(binary, options.redis)
    try:
        database.start()
        server.start()
        set_up_django(database.environment, folder, {"LOCATION": server.url}, options)
        from django_zrank.store import Store

        Store.LEASE = Store.WINDOW = 3
        dawdle()
        if options.broken:
            breaks[options.broken]()
        try:
            is_right = make(options, folder, database, server).run()
        finally:
            connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)
            connections.close_all()
    finally:
        server.stop()
        database.stop()
    shutil.rmtree(folder, ignore_errors=True)
    print(f"seed     {options.seed}")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
