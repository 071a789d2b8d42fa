"""The app does what the model says: its steps are taken in orders that the search chooses, on real servers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from unittest import mock

import pytest

from django_zrank.sync import signal_handlers
from django_zrank.sync.in_step import breaker
from tests.model import sync
from tests.model.baton import Actor, passed_on
from tests.model.broken import BROKEN
from tests.model.cases import CASES, GUARDS
from tests.model.stage import INDEX, Pair, Stage
from tests.model.test_guards import ELSEWHERE, story_without
from tests.model.test_model import LONG
from tests.model.world import World

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]


@pytest.fixture(autouse=True)
def baton() -> Iterator[None]:
    # A machine that is slow, too, suspends pushes.
    trip = mock.patch.object(type(breaker), "trip")
    with passed_on(INDEX.name), mock.patch.object(signal_handlers, "drain_soon"), trip:
        yield


def walk(model: sync.Model, seed: int) -> Iterator[tuple[str, World]]:
    """Yield the steps of one order, chosen at random, each with the world after it.

    A watcher that has read an older note than Redis is at looks again in the app; in the model it rebuilds. Such orders
    end there.
    """
    chance, world = random.Random(seed), model.first()
    while steps := [step for step in model.steps(world) if not step[0].endswith("finds it foreign")]:
        step, world, _ = chance.choice(steps)
        yield step, world


def stage_for(case: str, request: pytest.FixtureRequest) -> Stage:
    """Return a stage with what the bounds of a run name."""
    bounds = CASES[case].bounds
    is_pushed = any(process.kind == "save" for process in bounds.processes)
    if bounds.servers == 1:
        return Stage(bounds.members, is_pushed=is_pushed)
    binary, settings = map(request.getfixturevalue, ("redis_binary", "settings"))
    stage = Pair(binary, settings, bounds.members, is_pushed=is_pushed)
    request.addfinalizer(stage.close)
    return stage


def play(name: str, seed: int, request: pytest.FixtureRequest) -> None:
    """Play one order, and compare the servers with the model after each step."""
    model = CASES[name].model()
    stage, story, saved = stage_for(name, request), [], [0]
    for step, world in walk(model, seed):
        story.append(step)
        stage.play(step)
        data, database = world.servers[world.leads].data, world.databases[0]
        # A value's name says nothing but which save it is of.
        saved += [value for (value,) in database.rows if value not in saved]
        found = stage.values(), stage.marks(), stage.is_healthy()
        healthy = model.status(database, world.servers[world.leads], 0) == "healthy"
        values = tuple(saved.index(value) for value in data.values)
        expected = values, sorted(member for _, member in database.marks), healthy
        assert found == expected, story
    stage.settle()
    assert stage.is_right(), story


FEW, MANY = 4, 100


def _in_both_lanes(*names: str) -> pytest.MarkDecorator:
    """Run a few orders in the fast lane, and a hundred in the slow one."""
    slow = [pytest.param(name, range(FEW, MANY), marks=pytest.mark.slow) for name in names]
    return pytest.mark.parametrize(("name", "seeds"), [*((name, range(FEW)) for name in names), *slow])


@_in_both_lanes("pushes", "rebuild, twice")
def test_the_app_follows_the_model(name: str, seeds: range, request: pytest.FixtureRequest) -> None:
    """Orders of the search: after each of its steps, the servers hold what the model says."""
    for seed in seeds:
        play(name, seed, request)


@pytest.mark.slow
def test_the_app_follows_the_model_through_a_failover(request: pytest.FixtureRequest) -> None:
    for seed in range(10):
        play("failover", seed, request)


@pytest.mark.parametrize(
    "seeds",
    [range(8), *(pytest.param(range(at, at + 200), marks=pytest.mark.slow) for at in range(8, 1008, 200))],
)
def test_the_guarantee_holds_in_any_order_of_requests_and_statements(seeds: range) -> None:
    """Between two steps of the model, too: whoever is next takes one request or one statement."""
    for seed in seeds:
        chance, stage = random.Random(seed), Stage(2)
        works = [stage.watch, stage.watch, stage.rebuild, *[stage.save] * 3]
        actors = [Actor(partial(work, chance.choice(stage.players))) for work in works]
        while actors:
            actor = chance.choice(actors)
            if not actor.step():
                actors.remove(actor)
            elif chance.random() < 0.01:
                actor.kill()
            assert stage.marks() or not stage.is_healthy() or stage.is_right(), seed
        stage.settle()
        assert stage.is_right(), seed


@pytest.mark.parametrize("is_guarded", [False, True], ids=["without", "with"])
@pytest.mark.parametrize(
    "guard",
    [
        pytest.param(guard, marks=[pytest.mark.slow] if guard in LONG else [])
        for guard in BROKEN
        if guard not in ELSEWHERE
    ],
)
def test_a_counterexample_goes_wrong_on_the_app_without_the_guard(
    guard: str, is_guarded: bool, request: pytest.FixtureRequest
) -> None:
    """And not with it: then processes do something else at the point, or the marks wait."""
    story = story_without(guard)
    if guard == "lost":  # otherwise the rebuild goes on, and mends it
        story += ["a watcher is killed", "the rebuild is taken for dead"]
    with nullcontext() if is_guarded else BROKEN[guard]():
        stage = stage_for(GUARDS[guard][0], request)
        for step in story:
            stage.play(step)
        stage.settle()
        assert stage.is_right() is is_guarded
