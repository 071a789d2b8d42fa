"""Counterexamples of releases, databases and flushes on the app: what stages of players don't play."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, Final

import pytest
from django.core.management import call_command
from django.db import connection

from django_zrank import RankIndex
from django_zrank.capture import triggers
from django_zrank.exceptions import NotBuilt, ZRankError
from django_zrank.models import Build, Mark
from django_zrank.redis import reader
from django_zrank.store import Store
from django_zrank.sync.health import Status, examine, examine_holder, repair
from django_zrank.sync.push import push
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.watch import sync
from django_zrank.write_behind.flush import flush
from tests.model.baton import Actor, passed_on
from tests.model.broken import BROKEN
from tests.model.page import title
from tests.model.stage import INDEX, Pair, Stage, dumps
from tests.model.test_model import PAGE
from tests.parts.write_behind.test_flush_obstacles import trigger
from tests.parts.write_behind.test_scores import column
from tests.sync.interruptions import just_before
from tests.sync.mirror import contents
from tests.sync.test_releases import After, Before, ranked
from tests.testapp.models import Player, Video
from tests.testapp.zrank import VideoPrice, VideoRank

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank"),
]

VIDEOS: Final = VideoRank.instance()

ELSEWHERE: Final = (
    "declaration",
    "declaration of writes",
    "owner",
    "flush marks",
    "merge",
    "no better",
    "write_behind",
    "number",
    "one before",
    "flushes",
    "same term",
    "reconcile",
    "unknown flushes",
    "history",
)
"""Guards whose counterexamples are played here."""


def story_without(guard: str) -> list[str]:
    """Return the steps of a counterexample from the page, which ``test_model.py`` compares with the search."""
    text = PAGE.partition(title(guard))[2].strip().replace("\n", " ")
    return text.partition(". Then: ")[0].split("; ")


@pytest.fixture(params=[False, True], ids=["without", "with"])
def is_guarded(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def without(is_guarded: bool) -> Callable[[str], AbstractContextManager[Any]]:
    """A function that leaves a guard out of the app, in every other test."""
    return lambda guard: nullcontext() if is_guarded else BROKEN[guard]()


@pytest.fixture
def players() -> Iterator[list[Player]]:
    """Players whom the older release ranks, and of whom the newer one ranks every other."""
    players = [Player(level=level, bio="a", name="ax"[level % 2]) for level in range(4)]
    yield Player.objects.bulk_create(players)
    triggers.drop("default", [After.instance().name])
    Build.objects.filter(index=After.instance().name).delete()


def is_right_if_healthy() -> bool:
    """Return True if Redis holds what the newer release ranks; its index is healthy, and no mark waits."""
    after = After.instance()
    assert examine(after) is Status.HEALTHY
    assert not Mark.objects.filter(index=after.name).exists()
    return contents(After) == ranked(After)


def test_declaration(
    is_guarded: bool, without: Callable[[str], AbstractContextManager[Any]], players: list[Player]
) -> None:
    """The older release's watcher processes the mark for all members that the newer one's triggers leave."""
    before, after = Before.instance(), After.instance()
    sync(before)
    with without("declaration"):
        triggers.install("default", [after])
        sync(before)
        sync(after)
        assert is_right_if_healthy() is is_guarded


def test_declaration_of_writes(
    is_guarded: bool, without: Callable[[str], AbstractContextManager[Any]], players: list[Player]
) -> None:
    """The older release pushes to what the newer one has built."""
    before, after = Before.instance(), After.instance()
    sync(before)
    triggers.install("default", [after])
    sync(after)
    with without("declaration of writes"), suppress(NotBuilt):
        push(before, [player.pk for player in players])
    assert is_right_if_healthy() is is_guarded


def test_owner(is_guarded: bool, without: Callable[[str], AbstractContextManager[Any]]) -> None:
    """The database of another project, which knows of no build, and has other rows."""
    stage = Stage()
    theirs = stage.values()
    Build.objects.filter(index=INDEX.name).delete()
    Player.objects.update(level=9)
    with without("owner"), suppress(ZRankError):
        repair(INDEX)
    assert (stage.values() == theirs) is is_guarded


class Flushes:
    """A video whose views are changed in Redis, and the processes of a story."""

    def __init__(self, pair: Pair | None) -> None:
        self.video = Video.objects.create(views=0)
        rebuild(VIDEOS)
        if pair:
            pair.replicate()
        self.actors: dict[str, Actor] = {}
        self.faults = pair.faults if pair else dumps()
        self.changes = 0

    def play(self, step: str) -> None:
        if step.startswith("change "):
            with suppress(ZRankError):
                VideoRank.scores.increment(self.video)
                self.changes += 1
        elif step in self.faults:
            self.faults[step]()
        else:
            who = next(who for who in ("a flush", "flush 1", "flush 2", "a watcher") if step.startswith(who))
            what = step.removeprefix(f"{who} ")
            if what in BEGUN:
                if before := self.actors.pop(who, None):
                    before.finish()
                self.actors[who] = Actor(BEGUN[what])
            self.actors[who].until(*STEPS[what])

    def settle(self) -> None:
        """Let everybody go on to the end; then repair, and flush what is pending."""
        while self.actors:
            self.actors.popitem()[1].finish()
        call_command("sync_zrank", VIDEOS.name, verbosity=0)
        flush(VIDEOS)
        assert examine_holder(VIDEOS) in (Status.HEALTHY, Status.BEHIND)

    def views(self) -> int:
        self.video.refresh_from_db()
        return self.video.views


BEGUN: Final[dict[str, Callable[[], Any]]] = {
    "looks at the database": partial(repair, VIDEOS),
    "takes what is pending": partial(flush, VIDEOS),
    "goes on with what is in flight": partial(flush, VIDEOS),
}

STEPS: Final = {
    "looks at the database": ("SELECT batch", "SELECT build"),
    "finds that the server may lack writes": ("check_health",),
    "begins a term": ("transaction",),
    "reconciles nothing": (),
    "reconciles what is pending": ("reconcile_pending",),
    "trusts the server": ("adopt_server",),
    "takes what is pending": ("take_pending",),
    "goes on with what is in flight": ("take_pending",),
    "writes the column, and notes its number": ("confirm_flush",),
    "writes the column": ("transaction",),
    "settles": ("settle_flush",),
}
"""As in ``stage.py``."""


@pytest.fixture
def pair(redis_binary: str, settings: Any) -> Iterator[Pair]:
    pair = Pair(redis_binary, settings)
    yield pair
    pair.close()


def play(story: list[str], stage: Flushes) -> int:
    """Play a story to its end. Return what has become of one change."""
    with passed_on(VIDEOS.name):
        for step in story:
            stage.play(step)
        stage.settle()
    return stage.views()


@pytest.mark.parametrize("guard", ["same term", "reconcile", "unknown flushes"])
def test_flushes_and_a_failover(
    guard: str, is_guarded: bool, without: Callable[[str], AbstractContextManager[Any]], pair: Pair
) -> None:
    stage = Flushes(pair)
    with without(guard):
        assert play(story_without(guard), stage) == (1 if is_guarded else 2)


def test_history(
    is_guarded: bool,
    without: Callable[[str], AbstractContextManager[Any]],
    pair: Pair,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A change that the former server takes when it is back; with the rule, it takes none."""
    monkeypatch.setattr(
        reader, "_TRUST", 60.0
    )  # its process has just checked the server, however long this takes
    story = story_without("history")
    until = story.index("a watcher trusts the server") + 1
    with without("history"):
        stage = Flushes(pair)  # what it notes of the server lacks the history, too
        views = play(story[:until], stage)
    assert (views == stage.changes) is is_guarded


@pytest.mark.parametrize("guard", ["one before", "flushes"])
def test_two_flushes(
    guard: str, is_guarded: bool, without: Callable[[str], AbstractContextManager[Any]]
) -> None:
    stage = Flushes(None)
    with without(guard):
        assert play(story_without(guard), stage) == (1 if is_guarded else 2)


def test_number(is_guarded: bool, without: Callable[[str], AbstractContextManager[Any]]) -> None:
    story, stage = story_without("number"), Flushes(None)
    if is_guarded:  # it is one step with the next one
        story = [re.sub("(?<=writes the column)$", ", and notes its number", step) for step in story]
    with without("number"):
        assert play(story, stage) == (1 if is_guarded else 2)


def test_flush_marks(is_guarded: bool, without: Callable[[str], AbstractContextManager[Any]]) -> None:
    stage = Flushes(None)
    with without("flush marks"), trigger(SKIP[connection.vendor]):
        assert play(SKIPPED, stage) == 0
    assert (contents(VideoRank) == column()) is is_guarded


def declared(name: str, **attributes: Any) -> type[RankIndex]:
    """Return an index of views, as one release declares it."""
    return type(name, (RankIndex,), {"name": "released", "model": Video, "order": ("-views",), **attributes})


@pytest.fixture
def released() -> Iterator[Callable[..., type[RankIndex]]]:
    """A function that declares an index as one release does. The triggers of both are dropped in the end."""
    yield declared
    triggers.drop("default", ["released"])


@pytest.mark.part("dense")
def test_merge(
    is_guarded: bool,
    without: Callable[[str], AbstractContextManager[Any]],
    released: Callable[..., type[RankIndex]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The older release submits while the newer one rebuilds; the newer one submits less."""
    before = released("Before", write_behind="best")
    after = released("After", write_behind="best", ranking_method="dense")
    video = Video.objects.create(views=0)
    rebuild(before.instance())
    just_before(monkeypatch, Store, "swap_rebuilt", lambda: before.scores.submit(video, 50))
    rebuild(after.instance())
    with without("merge"):
        after.scores.submit(video, 30)
    flush(after.instance())
    video.refresh_from_db()
    assert video.views == (50 if is_guarded else 30)


def test_no_better(
    is_guarded: bool, without: Callable[[str], AbstractContextManager[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A score is submitted while a rebuild has a lower one, which the live build hasn't heard of."""
    index = VideoPrice.instance()
    video = Video.objects.create(price=50)
    rebuild(index)
    Video.objects.update(price=10)  # its mark is deleted by the next rebuild
    just_before(monkeypatch, Store, "swap_rebuilt", lambda: VideoPrice.scores.submit(video, 30))
    with without("no better"):
        rebuild(index)
    sync(index)
    assert not Mark.objects.filter(index=index.name).exists()
    video.refresh_from_db()
    assert (video.price, VideoPrice.ranking.score(video)) == (10, 10 if is_guarded else 30)


def test_write_behind(
    is_guarded: bool,
    without: Callable[[str], AbstractContextManager[Any]],
    released: Callable[..., type[RankIndex]],
) -> None:
    """The newer release pushes what it has read to the build of the older one."""
    with without("write_behind"):
        before, after = released("Before", write_behind="increment"), released("After")
        video = Video.objects.create(views=0)
        rebuild(before.instance())
        before.scores.increment(video)
        with suppress(NotBuilt):
            push(after.instance(), [video.pk])
        assert before.ranking.score(video) == (1 if is_guarded else 0)


SKIPPED: Final = [
    "change 1 is made",
    "a flush takes what is pending",
    "a flush writes the column, and notes its number",
]

SKIP: Final = {
    "postgresql": "RETURN NULL;",
    "mysql": "SET NEW.views = OLD.views",
    "sqlite": "SELECT RAISE(IGNORE)",
}
"""A trigger of the project's that leaves a row as it was."""
