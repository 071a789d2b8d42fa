"""Scripts that write, each refused at every one of its commands in turn, as by an account of Redis that lacks it. A
server ends a script at the command that it refuses, and keeps what was written until then.

The account lacks the command only while the script is on its way: otherwise another script that needs the command would
be refused first, and the one that is tested would never be sent."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from hashlib import sha1
from io import StringIO
from itertools import count
from pathlib import Path
from time import sleep, time_ns
from typing import Any, ClassVar

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.db.models import F, QuerySet
from django.utils import timezone
from redis import Connection, Redis
from redis.exceptions import NoScriptError, ResponseError

from django_zrank import RankIndex, register
from django_zrank.exceptions import ZRankError
from django_zrank.registry import registry
from django_zrank.testing import reset
from django_zrank.write_behind.flush import flush
from tests.dumps import dump, restore
from tests.scripts import FOLDERS, every_script, preceded_scripts, variants
from tests.servers import RedisServer
from tests.sync.conftest import declare, use_redis  # noqa: F401 - a fixture
from tests.testapp.methods import KEEPING
from tests.testapp.models import Video
from tests.testapp.zrank import VideoRank

pytestmark = pytest.mark.django_db(transaction=True)

MONTH = timedelta(days=30)
WIDE = "wide"


def commands(script: str, client: Redis) -> list[str]:
    """The commands that the text of a script names, and those of its libraries and of what precedes it."""
    texts = texts_of(script)
    known = {name.decode().upper() for name in client.command_list()}
    return sorted(known & set(re.findall(r"'([A-Z]{3,})'", "\n".join(texts))))


def texts_of(script: str) -> list[str]:
    texts, todo = [], [f"{script}.lua", f"before/{script}.lua"]
    for name in todo:
        for path in (folder / name for folder in FOLDERS if (folder / name).exists()):
            texts.append(path.read_text())
            used = re.match(r"-- uses: (.+)\n", texts[-1])
            libraries = used[1].split(", ") if used else []
            # That one names commands that it asks about, and sends none.
            todo += [f"lib/{library}.lua" for library in libraries if library != "permissions"]
    return texts


@pytest.fixture(scope="module")
def server(redis_binary: str) -> Iterator[RedisServer]:
    server = RedisServer(redis_binary)
    server.settings["enable-debug-command"] = "yes"
    with server:
        yield server


NAMES = {sent.sha: one.name for one in [*every_script(), *preceded_scripts()] for sent in variants(one)}
"""The names of scripts, by the digests under which they are sent."""


class Refusal:
    """A command that is refused to one script.

    ``identified``: another script has just identified the server, so that this one need not.
    """

    def __init__(self, client: Redis, script: str, command: str, *, identified: bool) -> None:
        self.client, self.script, self.command, self.identified = client, script, command, identified
        self.replies = 0
        """The number of replies to that script."""

        self.errors: list[str] = []
        """Those that say that the account may not use the command."""

    def deny(self) -> None:
        at = time_ns() // 1000 + 900 if self.identified else 1
        with self.client.pipeline() as pipeline:
            for name in (WIDE, "video"):
                pipeline.hset(f"zrank:{{{name}}}:meta", "identified", at)
            pipeline.execute_command("ACL", "SETUSER", "app", f"-{self.command.lower()}")
            pipeline.execute()

    def allow(self) -> None:
        self.client.execute_command("ACL", "SETUSER", "app", "+@all")

    def note(self, reply: Any) -> None:
        if isinstance(reply, NoScriptError):
            return
        self.replies += 1
        said = str(reply)
        if not isinstance(reply, ResponseError):
            return
        if "can't run this command" in said:  # Redis 7.0, which doesn't say which one
            self.errors.append(said)
        elif "permission" in said or "may not use" in said:
            assert self.command.lower() in said.lower()
            self.errors.append(said)


class Watched(Connection):
    """A connection of the app, which takes a command away from its account while a script is on its way."""

    refusal: ClassVar[Refusal | None] = None

    awaited: list[str | None]
    """The scripts whose replies are to be read, of the commands that were sent last; None for another command."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.awaited = []

    def send_command(self, *words: Any, **options: Any) -> None:
        self.connect()  # which sends commands, too
        self._await([words])
        super().send_command(*words, **options)

    def pack_commands(self, commands: Iterable[Any]) -> Any:
        """Pack the commands of a pipeline, which is sent next."""
        self.connect()
        commands = list(commands)
        self._await(commands)
        return super().pack_commands(commands)

    def _await(self, commands: list[Any]) -> None:
        self.awaited = [self._script(*words[:2]) for words in commands]
        if self.refusal and self.refusal.script in self.awaited:
            self.refusal.deny()

    @staticmethod
    def _script(command: str, digest: Any = None, *_: Any) -> str | None:
        if command == "EVAL":
            digest = sha1(digest.encode(), usedforsecurity=False).hexdigest()
        return NAMES[digest] if command in ("EVAL", "EVALSHA") else None

    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            reply = super().read_response(*args, **options)
        except ResponseError as error:
            self._read(error)
            raise
        self._read(reply)
        return reply

    def _read(self, reply: Any) -> None:
        script, refusal = self.awaited.pop(0) if self.awaited else None, self.refusal
        if refusal and script == refusal.script:
            refusal.note(reply)
            if script not in self.awaited:
                refusal.allow()


class Unreadable(QuerySet[Video]):
    """Rows that can't be read."""

    def iterator(self, *args: Any, **options: Any) -> Iterator[Any]:
        raise RuntimeError("the rows can't be read")


class Site:
    """Thirty videos, ranked twice: with all that an index may have, and plainly. What was acknowledged is noted."""

    broken: ClassVar[bool] = False
    """True if the rows can't be read."""

    def __init__(self, wide: type[RankIndex], client: Redis) -> None:
        self.wide, self.client = wide, client
        self.numbers = count(1)
        self.again: list[Callable[[], Any]] = []
        self.joined: set[int] = set()
        now = timezone.now()
        Video.objects.bulk_create(
            Video(total=10 * n, views=7 * n, region="abc"[n % 3], seen=now) for n in range(30)
        )
        self.pks = list(Video.objects.order_by("pk").values_list("pk", flat=True))
        self.columns = {pk: [10 * n, 7 * n] for n, pk in enumerate(self.pks)}
        call_command("rebuild_zrank", WIDE, "video", verbosity=0)
        self.sync()  # puts triggers in place

    @contextmanager
    def refusing(self, script: str, command: str, **how: bool) -> Iterator[Refusal]:
        """Refuse a command to a script, until the end of the block."""
        Watched.refusal = refusal = Refusal(self.client, script, command, **how)
        try:
            yield refusal
        finally:
            Watched.refusal = None
            refusal.allow()

    # What an application does

    def sync(self) -> None:
        call_command("sync_zrank", WIDE, "video", verbosity=0)

    def rebuild(self) -> None:
        call_command("rebuild_zrank", WIDE, verbosity=0, stderr=StringIO())

    def break_off(self) -> None:
        """A rebuild whose rows can't be read."""
        Site.broken = True
        try:
            with suppress(RuntimeError):
                self.rebuild()
        finally:
            Site.broken = False

    def change_shards(self) -> None:
        """Let a release with shards take over, and remove what Redis holds of the one before. Then roll it back."""
        before = registry.classes
        registry.unregister(VideoRank)
        later = register(type("Later", (VideoRank,), {"name": "video", "shards": 2}))
        try:
            call_command("rebuild_zrank", "video", verbosity=0, stderr=StringIO())
        finally:
            for index in (later, *before):
                registry.unregister(index)
            for index in before:
                registry.register(index)
            call_command("rebuild_zrank", "video", verbosity=0)

    def update(self) -> None:
        """Change, add and delete rows by bulk methods, of which only marks tell."""
        n = next(self.numbers)
        first, *others = self.pks
        Video.objects.filter(pk=first).delete()
        del self.columns[first]
        Video.objects.filter(pk__in=others[::2]).update(region="abcd"[n % 4], total=F("total") + 1)
        for pk in others[::2]:
            self.columns[pk][0] += 1
        new = Video(total=5 * n, views=3 * n, region="new", seen=timezone.now())
        Video.objects.bulk_create([new])
        pk = Video.objects.latest("pk").pk
        self.pks, self.columns[pk] = [*others, pk], [5 * n, 3 * n]
        self.sync()

    def update_beside_a_dead_rebuild(self) -> None:
        self.client.hset(f"zrank:{{{WIDE}}}:meta", mapping={"building": "dead-1", "heartbeat": "1"})
        self.update()

    def increment(self) -> None:
        """Of members in several rankings, under a key by which the call is repeated if it is refused."""
        key, changes = f"key-{next(self.numbers)}", {self.pks[3]: 5, self.pks[4]: -2}

        def call() -> None:
            self.wide.scores.increment(changes, key=key)
            for pk, by in changes.items():
                self.columns[pk][0] += by

        try:
            call()
        except ZRankError:
            self.again.append(call)
            raise

    def increment_many(self) -> None:
        """Of more members than the first statement of a flush writes."""
        changes = dict.fromkeys(self.pks[3:15], 1)
        self.wide.scores.increment({pk: by for pk, by in changes.items() if pk != self.pks[3]})
        self.wide.scores.increment(self.pks[3])
        for pk in changes:
            self.columns[pk][0] += 1

    def increment_plain(self) -> None:
        self._increment_plain({self.pks[5]: 3})
        self._increment_plain({self.pks[5]: 2})
        self._increment_plain({self.pks[6]: 2, self.pks[7]: -1})

    def _increment_plain(self, changes: dict[int, int]) -> None:
        if len(changes) == 1:
            VideoRank.scores.increment(*next(iter(changes.items())))
        else:
            VideoRank.scores.increment(changes)
        for pk, by in changes.items():
            self.columns[pk][1] += by

    def flush(self) -> None:
        """Of what has changed while everything was allowed."""
        flush(self.wide.instance())

    def touch(self) -> None:
        """Among others, when the rest of one is over."""
        pk = self.pks[next(self.numbers) % 30]
        self.client.zadd(f"zrank:{{{WIDE}}}:touched", {"0": 1})
        self.wide.scores.touch(pk, self.pks[0])

    def sleep(self) -> None:
        pk = self.pks[next(self.numbers) % 30]
        Video.objects.filter(pk=pk).update(seen=timezone.now() - MONTH - timedelta(seconds=1))
        self.sync()

    def join(self) -> None:
        group, pk = self.wide.group("live"), self.pks[next(self.numbers) % 30]
        group.add(pk, expires=timedelta(days=1))
        self.joined.add(pk)

    def leave(self) -> None:
        if self.joined:
            pk = min(self.joined)
            self.wide.group("live").remove(pk)
            self.joined.discard(pk)

    def join_and_leave(self) -> None:
        self.join()
        self.join()
        self.leave()

    def join_together(self) -> None:
        """Several members of each region."""
        self.wide.group("live").add(self.pks[:12])
        self.joined.update(self.pks[:12])

    def claim(self) -> None:
        pk = min(self.joined)
        if self.wide.group("live").claim(pk) == [pk]:
            self.joined.discard(pk)

    def count(self) -> None:
        """Of members one of which has just expired."""
        pk = min(self.joined)
        self.client.zadd(f"zrank:{{{WIDE}}}:group:live", {str(pk): 1})
        self.joined.discard(pk)
        self.wide.group("live").counts("region")

    def erase_joined(self) -> None:
        """Erase a member of a group."""
        pk = min(self.joined)
        Video.objects.filter(pk=pk).delete()
        self.pks.remove(pk)
        del self.columns[pk]
        self.sync()
        call_command("erase_zrank", WIDE, str(pk), verbosity=0)
        self.joined.discard(pk)

    def combine(self) -> None:
        """Count the members that pass filters which no facet covers."""
        self.wide.group(f"one-{next(self.numbers)}").add(*self.pks[:20])
        groups = [f"one-{next(self.numbers)}"]
        self.wide.group(groups[0]).add(*self.pks[:20])
        found = self.wide.ranking.filter(region="a", group=groups[0]).count()
        assert found == Video.objects.filter(pk__in=self.pks[:20], region="a").count()

    def draw(self) -> None:
        """Among the members of a group, whom the script gathers if it may."""
        self.wide.group("drawn").add(*self.pks[:10])
        remember = timedelta(hours=1)
        ranking = self.wide.ranking.filter(group="drawn")
        drawn = ranking.recommend(self.pks[2], 20, band=10_000, remember=remember)
        assert {entry.pk for entry in drawn} == {*self.pks[:10]} - {self.pks[2]}

    def remember(self) -> None:
        self.wide.ranking.recommend(self.pks[8], 3, remember=timedelta(hours=1))

    def erase(self) -> None:
        self.update()
        gone = Video.objects.order_by("pk").values_list("pk", flat=True)[0]
        del self.columns[gone]
        self.pks.remove(gone)
        Video.objects.filter(pk=gone).delete()
        self.sync()
        call_command("erase_zrank", WIDE, str(gone), verbosity=0)

    def erase_pending(self) -> None:
        """Erase a member whose score has changed, and that is deleted since."""
        self.increment()
        gone = self.pks.pop(3)
        del self.columns[gone]
        Video.objects.filter(pk=gone).delete()
        call_command("erase_zrank", WIDE, str(gone), verbosity=0)

    def begin_another_history(self) -> None:
        """As after a failover."""
        self.client.execute_command("DEBUG", "CHANGE-REPL-ID")
        self.sync()

    def update_after_a_dump(self) -> None:
        self.dump = dump(self.client)
        self.update()

    def lose_writes(self) -> None:
        restore(self.client, self.dump)
        self.begin_another_history()

    # What is expected

    def state_of(self, name: str) -> dict[str, Any]:
        out = StringIO()
        call_command("zrank_status", name, "--json", stdout=out)
        found: dict[str, Any] = json.loads(out.getvalue())[name]
        return found

    def verify(self, name: str, *, when: str) -> None:
        out = StringIO()
        try:
            call_command("verify_zrank", name, stdout=out, stderr=out)
        except (CommandError, SystemExit):
            raise AssertionError(f"{name}, {when}: {out.getvalue()}") from None

    def check(self, when: str) -> None:
        """Nothing that was acknowledged is lost, and nothing is wrong that looks right."""
        for name in (WIDE, "video"):
            state = self.state_of(name)
            if state["status"] == "HEALTHY" and not state["waiting"]:
                self.verify(name, when=f"{when}, healthy and wrong")
        while self.again:
            self.again.pop()()
        self.sync()
        for name in (WIDE, "video"):
            state = self.state_of(name)
            assert (state["status"], state["waiting"], state["pending"]) == ("HEALTHY", 0, 0), when
            self.verify(name, when=when)
        found = {pk: [total, views] for pk, total, views in Video.objects.values_list("pk", "total", "views")}
        assert found == self.columns, when
        live = self.wide.group("live")
        assert set(live) == self.joined, when
        # All were ranked when they joined.
        counts = live.counts("region")
        assert sum(counts.values()) == len(self.joined), when
        as_joined = self.client.hvals(f"zrank:{{{WIDE}}}:group:live:joined")
        assert counts == Counter(name.decode().removeprefix("region:") for name in as_joined), when


@pytest.fixture
def site(zrank: Redis, declare: Any, server: RedisServer, settings: Any) -> Iterator[Site]:  # noqa: F811
    def get_queryset(self: RankIndex) -> Any:
        return Unreadable(Video) if Site.broken else Video.objects.all()

    with Redis.from_url(server.url) as client:
        client.flushall()
        client.acl_setuser("app", enabled=True, passwords=["+secret"], keys=["zrank:*"], commands=["+@all"])
        url = server.url.replace("redis://", "redis://app:secret@")
        use_redis(settings, url, CONNECTION_POOL_KWARGS={"connection_class": Watched})
        wide = declare(
            Video,
            "-total",
            name=WIDE,
            facets=("region",),
            group_counts=("region",),
            ranking_method=KEEPING,
            write_behind="increment",
            idle=("seen", MONTH),
            band=100,
            get_queryset=get_queryset,
        )
        reset()
        yield Site(wide, client)


Do = Callable[[Site], Any]


def flush_with_some_left(site: Site) -> None:
    """A flush that can't write all rows, and puts the changes of the others back: some are locked, or all take long."""
    with slow_or_locked(Video.objects.filter(pk=site.pks[4])):
        flush(site.wide.instance(), skip_locked=True)


@contextmanager
def slow_or_locked(rows: Any) -> Iterator[None]:
    if connection.vendor == "sqlite":  # which has one lock for everything
        with connection.cursor() as cursor:
            connection.connection.create_function("nap", 0, lambda: sleep(0.11))
            cursor.execute(
                "CREATE TEMP TRIGGER naps AFTER UPDATE OF total ON testapp_video BEGIN SELECT nap(); END"
            )
            try:
                yield
            finally:
                cursor.execute("DROP TRIGGER naps")
        return
    other = connection.copy()
    try:
        other.set_autocommit(False)
        sql, parameters = rows.select_for_update().query.get_compiler(connection=other).as_sql()
        with other.cursor() as cursor:
            cursor.execute(sql, parameters)
        yield
    finally:
        other.rollback()
        other.close()


OPERATIONS: dict[str, tuple[Do, Do, str]] = {
    "abandon_rebuild": (Site.increment, Site.break_off, "SADD"),
    "adopt_server": (Site.update_after_a_dump, Site.lose_writes, "HSET"),
    "apply_changes": (Site.increment, Site.update, "ZREM"),
    "begin_sweep": (Site.increment, Site.sleep, "HSET"),
    "begin_write": (Site.increment, Site.update_beside_a_dead_rebuild, "HDEL"),
    "change_group": (Site.join, Site.join_and_leave, "ZADD"),
    "change_scores": (Site.increment, Site.increment, "HSET"),
    "claim_members": (Site.join_and_leave, Site.claim, "ZREM"),
    "count_joined": (Site.join_together, Site.count, "HSET"),
    "confirm_flush": (Site.increment_many, flush_with_some_left, "HDEL"),
    "deal_tested": (Site.increment, Site.draw, "ZADD"),
    "drop_pending": (Site.update, Site.erase_pending, "EXISTS"),
    "finish_replay": (Site.update_after_a_dump, Site.lose_writes, "HDEL"),
    "forget_version": (Site.increment, Site.erase, "HSET"),
    "increment_scores": (Site.increment_plain, Site.increment_plain, "HINCRBY"),
    "leave_group": (Site.join_and_leave, Site.erase_joined, "ZREM"),
    "load_rows": (Site.increment, Site.rebuild, "HSET"),
    "make_combined": (Site.increment, Site.combine, "PEXPIRE"),
    "note_read": (Site.increment, Site.sleep, "HSET"),
    "note_swept": (Site.increment, Site.sleep, "HSET"),
    "reconcile_pending": (Site.increment, Site.begin_another_history, "HSET"),
    "remember_members": (Site.increment, Site.remember, "PEXPIREAT"),
    "rest_members": (Site.increment, Site.touch, "ZADD"),
    "settle_flush": (Site.increment, Site.flush, "HSET"),
    "start_rebuild": (Site.increment, Site.rebuild, "HSET"),
    "swap_rebuilt": (Site.increment, Site.rebuild, "HDEL"),
    "take_pending": (Site.increment, Site.flush, "HDEL"),
    "touch_members": (Site.increment, Site.touch, "HSETNX"),
    "unlink_build": (Site.increment, Site.rebuild, "UNLINK"),
    "unlink_retired": (Site.increment_plain, Site.change_shards, "UNLINK"),
}
"""For each script that writes: what comes first, with all commands; the operation that calls it; and the command whose
refusal would do, or did, the most harm."""


UNUSED = "its library has other functions"
LEAVING = "members leave no ranking while rows are loaded, unless the query returns a row twice"

NEVER_REFUSED: dict[str, dict[str, str]] = {
    "apply_changes": {
        "SADD": "gives up a rebuild whose keys were evicted",
        "ZREMRANGEBYRANK": "forgets versions that are older than any push",
    },
    "change_group": {"EXISTS": "reads, of a group that doesn't count its members"},
    "change_scores": {"HGET": UNUSED},
    "deal_tested": {
        "PEXPIRE": "the script goes on without it",
        "ZADD": "the script goes on without it, and tests cards",
        "ZREVRANK": "reads, for a band of ranks",
    },
    "increment_scores": {
        "INCR": "an option of ZADD",
        "ZSCORE": "reads, of a column that holds as much as Redis does exactly: on SQLite",
    },
    "load_rows": dict.fromkeys(("HDEL", "ZCARD", "ZREM"), LEAVING),
    "note_swept": {"EXISTS": UNUSED, "HDEL": "drops a note from a clock that was ahead", "TIME": UNUSED},
    "touch_members": {"HGET": UNUSED},
}
"""Commands that a script names and that its operation isn't refused, with the reason."""


WRITES = re.compile(
    r"'(?:ZADD|ZREM\w*|ZPOPMIN|HSET\w*|HDEL|HINCRBY|SADD|SREM|SET|UNLINK|RENAME|P?EXPIRE\w*|INCR)'"
)


def writes(path: Path) -> bool:
    text = path.read_text()
    used = re.match(r"-- uses: (.+)\n", text)
    libraries = used[1].split(", ") if used else []
    return "writable" in libraries or bool(WRITES.search(text))


SCRIPTS = [path.stem for folder in FOLDERS for path in sorted(folder.glob("*.lua")) if writes(path)]


def test_every_script_that_writes_has_an_operation() -> None:
    assert set(SCRIPTS) <= set(OPERATIONS)  # a part may have been deleted


def test_no_check_of_a_command_ends_the_server(server: RedisServer) -> None:
    """Valkey 9.1 looks for some commands' keys beyond their arguments, if an account may use some keys only."""
    (library,) = (path.read_text() for folder in FOLDERS if (path := folder / "lib/permissions.lua").exists())
    calls = re.findall(r"require_commands\(\w+, ([^)]+)\)", "\n".join(one.source for one in every_script()))
    checked = sorted({command for call in calls for command in re.findall(r"'([A-Z]+)'", call)})
    assert len(checked) > 20
    with Redis.from_url(server.url) as client:
        client.acl_setuser("app", enabled=True, passwords=["+secret"], keys=["zrank:*"], commands=["+@all"])
    with Redis.from_url(server.url.replace("redis://", "redis://app:secret@")) as app:
        for command in checked:
            app.eval(f"{library}\nrequire_commands(KEYS[1], ARGV[1])", 1, "zrank:{a}:meta", command)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_that_is_refused_a_command_loses_nothing(site: Site, script: str) -> None:
    _, _, command = OPERATIONS[script]
    assert command in commands(script, site.client)
    assert refuse(site, script, command) or command in NEVER_REFUSED[script]


@pytest.mark.part("write_behind")
def test_an_increment_that_is_refused_its_pending_change_is_taken_back(site: Site) -> None:
    """One that follows another at once asks for no permissions."""
    site.increment_plain()
    pk = site.pks[9]
    with (
        site.refusing("increment_scores", "HINCRBY", identified=True) as refusal,
        pytest.raises(ZRankError),
    ):
        VideoRank.scores.increment(pk, 3)
    assert refusal.errors
    assert VideoRank.ranking.score(pk) == site.columns[pk][1]
    site.check("after an increment that was refused")


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_that_is_refused_any_command_loses_nothing(site: Site, script: str) -> None:
    ways = (False, True) if "'identified'" in "".join(texts_of(script)) else (False,)
    named = commands(script, site.client)
    refused = {command for command in named for one in ways if refuse(site, script, command, identified=one)}
    assert {*named} - refused <= NEVER_REFUSED.get(script, {}).keys()


def refuse(site: Site, script: str, command: str, *, identified: bool = False) -> bool:
    """Refuse a command to a script, whose operation may fail. Return True if it was refused."""
    first, operation, _ = OPERATIONS[script]
    first(site)
    with (
        site.refusing(script, command, identified=identified) as refusal,
        suppress(ZRankError, CommandError),
    ):
        operation(site)
    assert refusal.replies, f"{script} was never sent"
    site.check(f"{script} without {command}")
    return bool(refusal.errors)
