"""Scripts that write, each refused at every one of its commands in turn, as by an account of Redis that lacks it. A
server ends a script at the command that it refuses, and keeps what was written until then."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from io import StringIO
from itertools import count
from pathlib import Path
from time import sleep
from typing import Any, ClassVar

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.db.models import F
from django.utils import timezone
from redis import Redis

from django_zrank import RankIndex
from django_zrank.exceptions import ZRankError
from django_zrank.sync.flush import flush
from django_zrank.testing import reset
from tests.dumps import dump, restore
from tests.scripts import FOLDERS, every_script
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
    texts, todo = [], [f"{script}.lua", f"before/{script}.lua"]
    for name in todo:
        for path in (folder / name for folder in FOLDERS if (folder / name).exists()):
            texts.append(path.read_text())
            used = re.match(r"-- uses: (.+)\n", texts[-1])
            todo += [f"lib/{library}.lua" for library in used[1].split(", ")] if used else []
    known = {name.decode().upper() for name in client.command_list()}
    return sorted(known & set(re.findall(r"'([A-Z]{3,})'", "\n".join(texts))))


@pytest.fixture(scope="module")
def server(redis_binary: str) -> Iterator[RedisServer]:
    server = RedisServer(redis_binary)
    server.settings["enable-debug-command"] = "yes"
    with server:
        yield server


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

    def deny(self, command: str) -> None:
        self.client.execute_command("ACL", "SETUSER", "app", f"-{command.lower()}")

    def allow(self) -> None:
        self.client.execute_command("ACL", "SETUSER", "app", "+@all")

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
        self.client.hset(f"zrank:{{{WIDE}}}:meta", mapping={"building": "dead-1", "seen": "1"})
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
        pk = self.pks[next(self.numbers) % 30]
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

    def claim(self) -> None:
        pk = min(self.joined)
        if self.wide.group("live").claim(pk) == [pk]:
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
        drawn = self.wide.ranking.filter(group="drawn").recommend(self.pks[2], 20, band=10_000)
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

    def status(self, name: str) -> dict[str, Any]:
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
            status = self.status(name)
            if status["verdict"] == "HEALTHY" and not status["waiting"]:
                self.verify(name, when=f"{when}, healthy and wrong")
        while self.again:
            self.again.pop()()
        self.sync()
        for name in (WIDE, "video"):
            status = self.status(name)
            assert (status["verdict"], status["waiting"], status["pending"]) == ("HEALTHY", 0, 0), when
            self.verify(name, when=when)
        found = {pk: [total, views] for pk, total, views in Video.objects.values_list("pk", "total", "views")}
        assert found == self.columns, when
        assert set(self.wide.group("live")) == self.joined, when


@pytest.fixture
def site(zrank: Redis, declare: Any, server: RedisServer, settings: Any) -> Iterator[Site]:  # noqa: F811
    def get_queryset(self: RankIndex) -> Any:
        if Site.broken:
            raise RuntimeError("the rows can't be read")
        return Video.objects.all()

    with Redis.from_url(server.url) as client:
        client.flushall()
        client.acl_setuser("app", enabled=True, passwords=["+secret"], keys=["zrank:*"], commands=["+@all"])
        use_redis(settings, server.url.replace("redis://", "redis://app:secret@"))
        wide = declare(
            Video,
            "-total",
            name=WIDE,
            facets=("region",),
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
    "begin_write": (Site.increment, Site.update_beside_a_dead_rebuild, "HDEL"),
    "change_group": (Site.join, Site.join_and_leave, "ZRANGE"),
    "change_scores": (Site.increment, Site.increment, "HSET"),
    "claim_members": (Site.join_and_leave, Site.claim, "ZREM"),
    "confirm_flush": (Site.increment_many, flush_with_some_left, "HDEL"),
    "deal_tested": (Site.increment, Site.draw, "ZADD"),
    "drop_pending": (Site.update, Site.erase_pending, "EXISTS"),
    "finish_replay": (Site.update_after_a_dump, Site.lose_writes, "HDEL"),
    "forget_version": (Site.increment, Site.erase, "HSET"),
    "increment_scores": (Site.increment, Site.increment_plain, "HINCRBY"),
    "load_rows": (Site.increment, Site.rebuild, "HSET"),
    "make_intersection": (Site.increment, Site.combine, "PEXPIRE"),
    "note_removal": (Site.increment, Site.sleep, "HSET"),
    "note_swept": (Site.increment, Site.sleep, "HSET"),
    "reconcile_pending": (Site.increment, Site.begin_another_history, "HSET"),
    "remember_members": (Site.increment, Site.remember, "PEXPIREAT"),
    "rest_members": (Site.increment, Site.touch, "ZADD"),
    "settle_flush": (Site.increment, Site.flush, "HSET"),
    "start_rebuild": (Site.increment, Site.rebuild, "HSET"),
    "swap_rebuilt": (Site.increment, Site.rebuild, "HDEL"),
    "take_pending": (Site.increment, Site.flush, "HDEL"),
    "touch_members": (Site.increment, Site.touch, "HSETNX"),
    "unlink_generation": (Site.increment, Site.rebuild, "UNLINK"),
}
"""For each script that writes: what comes first, with all commands; the operation that calls it; and the command whose
refusal would do, or did, the most harm."""


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
    refuse(site, script, command)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_that_is_refused_any_command_loses_nothing(site: Site, script: str) -> None:
    for command in commands(script, site.client):
        refuse(site, script, command)


def refuse(site: Site, script: str, command: str) -> None:
    first, operation, _ = OPERATIONS[script]
    first(site)
    site.deny(command)
    with suppress(ZRankError, CommandError):
        operation(site)
    site.allow()
    site.check(f"{script} without {command}")
