"""Stories of the model, played by the app itself: on real servers, by threads that pass on a baton."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from django.core.management import call_command

from django_zrank import builds
from django_zrank.store import Store
from django_zrank.sync.drain import drain
from django_zrank.sync.health import Status, examine_holder, repair
from django_zrank.sync.in_step import breaker
from django_zrank.sync.marks import waiting_marks
from django_zrank.sync.push import forget, try_push
from django_zrank.sync.rebuild import rebuild
from django_zrank.testing import disable_sync
from tests.dumps import dump, restore
from tests.links import Link
from tests.servers import RedisServer, wait_for
from tests.sync.conftest import use_redis
from tests.sync.mirror import contents
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending

from .baton import Actor

INDEX: Final = PlayerAscending.instance()

_STEPS: Final = {
    "looks at the database": ("SELECT build",),
    "finds it healthy, and reads marks": ("check_health", "SELECT mark"),
    "finds that the server may lack writes": ("check_health",),
    "finds a build that isn't noted": ("check_health",),
    "finds it lost": ("check_health",),
    "begins a term": ("transaction",),
    "finds another note": ("transaction",),
    "trusts the server": ("adopt_server",),
    "finds the server changed": ("adopt_server",),
    "takes a token": ("begin_write",),
    "gives up": ("begin_write",),
    "reads rows": ("SELECT player",),
    "writes to Redis": ("apply_changes",),
    "writes what it may, and reads again": ("apply_changes",),
    "finds that writes are lacking": ("apply_changes",),
    "is refused, and begins again": ("apply_changes",),
    "deletes the marks": ("transaction",),
    "leaves the marks": ("transaction",),
    "begins a rebuild": ("SELECT mark",),
    "starts a build in Redis": ("start_rebuild",),
    "notes that it builds": ("UPDATE build",),
    "finds another term": ("UPDATE build",),
    "reads all rows": ("SELECT player",),
    "loads the rows": ("load_rows",),
    "swaps the builds": ("swap_rebuilt",),
    "notes the build": ("UPDATE build",),
    "deletes marks": ("transaction",),
}
"""By the model's step: the steps of the app that it stands for. What they are called: see ``baton.py``."""


def dumps() -> dict[str, Callable[[], object]]:
    """Return the faults of a server that goes back to a dump, of which the first is made now."""
    client = Store(INDEX.name).client
    held = dump(client)

    def write() -> None:
        held.clear()
        held.update(dump(client))

    return {
        "server 1 writes a dump": write,
        "the server goes back to its dump, with its memory": lambda: restore(client, held),
    }


class Stage:
    """Players, an index built of them, and the processes of a story."""

    def __init__(self, members: int = 1, *, is_pushed: bool = False) -> None:
        """``is_pushed``: the site pushes what it saves."""
        self.is_pushed = is_pushed
        Player.objects.all().delete()
        self.players = [Player.objects.create(level=0) for _ in range(members)]
        rebuild(INDEX)
        waiting_marks(INDEX).delete()
        self.actors: dict[str, Actor] = {}
        self.saves = 0
        self.faults: dict[str, Callable[[], object]] = {"the rebuild is taken for dead": _give_up, **dumps()}

    def play(self, step: str) -> None:
        """Let one step of the model happen."""
        # Of other processes: what one has read within a second, and whether its last push has failed.
        builds.forget(INDEX)
        breaker.forget()
        if step in self.faults:
            self.faults[step]()
            return
        who, what = _parse(step)
        if what.startswith("saves member"):
            what, _, how = what.partition(", ")
            player = self.players[int(what[-1]) - 1]
            if self.is_pushed and who == "the site":
                work = partial(self.save_for_one, player, keeps_token=bool(how))
                self.begin(who, work).until("UPDATE player")
            else:
                self.saves += 1
                Player.objects.filter(pk=player.pk).update(level=self.saves)
        elif what == "is to rebuild":
            self.begin(who, partial(rebuild, INDEX, polite=True))
        elif what == "looks at the database":
            self.begin(who, _watch).until(*_STEPS[what])
        elif what == "is killed":
            self.actors.pop(who).kill()
        elif what == "gives way":
            self.actors.pop(who).finish()
        else:
            self.actors[who].until(*_STEPS[what])

    def begin(self, who: str, work: Callable[[], object]) -> Actor:
        """Let a process begin something else. In the model, it has ended what it did before."""
        if before := self.actors.pop(who, None):
            before.finish()
        self.actors[who] = Actor(work)
        return self.actors[who]

    def watch(self, player: Player) -> None:
        for _ in range(2):
            _watch()

    def rebuild(self, player: Player) -> None:
        rebuild(INDEX)

    def save(self, player: Player) -> None:
        """Save a player, and push it."""
        self.saves += 1
        Player(pk=player.pk, level=self.saves).save()

    def save_for_one(self, player: Player, *, keeps_token: bool = False) -> None:
        """Save a player, and push it to the index of the story alone: a step of the model reads rows of no other.
        ``keeps_token``: under the token that the last push has left."""
        with disable_sync():
            self.save(player)
        if not keeps_token:
            forget(INDEX)
        try_push({INDEX: {player.pk}})

    def finish(self) -> None:
        """Let everybody go on to the end, one after the other."""
        while self.actors:
            self.actors.popitem()[1].finish()

    def is_healthy(self) -> bool:
        return examine_holder(INDEX) in (Status.HEALTHY, Status.BEHIND)

    def values(self) -> tuple[float, ...]:
        found = contents(PlayerAscending)
        return tuple(found.get(str(player.pk), -1) for player in self.players)

    def marks(self) -> list[int]:
        """Return the numbers of the members of marks that wait."""
        numbers = {str(player.pk): number for number, player in enumerate(self.players)}
        return sorted(
            numbers[str(member)] for member in waiting_marks(INDEX).values_list("member", flat=True)
        )

    def is_right(self) -> bool:
        """Return True if Redis holds what the database holds."""
        rows = dict(Player.objects.values_list("pk", "level"))
        return self.values() == tuple(rows[player.pk] for player in self.players)

    def settle(self) -> None:
        """Repair and drain, as ``sync_zrank`` does."""
        self.finish()
        call_command("sync_zrank", INDEX.name, verbosity=0)
        assert self.is_healthy()
        assert not waiting_marks(INDEX).exists()


class Pair(Stage):
    """The same with two servers, of which the second follows the first, and lags as the story says."""

    def __init__(self, binary: str, settings: Any, members: int = 1, *, is_pushed: bool = False) -> None:
        self.servers = [RedisServer(binary) for _ in range(2)]
        for server in self.servers:
            server.start()
        self.leads = 0
        self.front, self.wire = (Link(self.servers[0].port) for _ in range(2))
        use_redis(settings, self.front.url)
        self.servers[1].follow(self.wire.port)
        super().__init__(members, is_pushed=is_pushed)
        self.replicate()
        for number in range(2):
            self.faults |= {
                f"server {number + 1} replicates": self.replicate,
                f"server {number + 1} becomes a replica": partial(self.join, number),
                f"server {number + 1} takes over": partial(self.take_over, number),
            }

    def replicate(self) -> None:
        """Let the replica catch up, and cut its link. WAIT counts only what its own connection has written."""
        self.wire.restore()
        position = self.servers[self.leads].ask("INFO", "replication")["master_repl_offset"]
        replica = self.servers[1 - self.leads]
        wait_for(lambda: replica.ask("INFO", "replication")["slave_repl_offset"] >= position, 30)
        self.wire.cut()

    def join(self, number: int) -> None:
        self.wire.route(self.servers[self.leads].port)
        self.wire.restore()
        self.servers[number].follow(self.wire.port)
        self.replicate()

    def take_over(self, number: int) -> None:
        self.servers[number].promote()
        self.leads = number
        self.front.cut()
        self.front.route(self.servers[number].port)
        self.front.restore()

    def close(self) -> None:
        for link in (self.front, self.wire):
            link.stop()
        for server in self.servers:
            server.kill()
        breaker.forget()


def _watch() -> None:
    """Take one turn of ``sync_zrank --watch``: repair, or drain."""
    if repair(INDEX) in (Status.HEALTHY, Status.BEHIND):
        drain(INDEX)


def _give_up() -> None:
    store = Store(INDEX.name, INDEX.layout)
    building: Any = store.client.hget(store.keys.meta, "building")
    assert store.abandon_rebuild(building.decode())


def _parse(step: str) -> tuple[str, str]:
    """Return who takes a step, and what it is."""
    for who in ("watcher 1", "watcher 2", "a watcher", "the site", "somebody else"):
        if step.startswith(f"{who} "):
            return who, step.removeprefix(f"{who} ")
    raise ValueError(step)
