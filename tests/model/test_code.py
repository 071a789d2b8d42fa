"""The app does what the model says: its steps are taken in orders that the search chooses, on real servers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tests.model import sync
from tests.model.baton import passed_on
from tests.model.broken import BROKEN
from tests.model.cases import CASES, SHOWN_BY
from tests.model.stage import Pair, Stage
from tests.model.test_model import LONG

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]


@pytest.fixture(autouse=True)
def baton() -> Iterator[None]:
    with passed_on():
        yield


def walk(model: sync.Model, seed: int) -> Iterator[tuple[str, sync.World, bool]]:
    """Yield the steps of one order, chosen at random: the label, the world after it, and whether its process rests."""
    chance, world = random.Random(seed), model.first()
    while steps := list(model.steps(world)):
        step, after, _ = chance.choice(steps)
        changed = [
            then.at for then, before in zip(after.processes, world.processes, strict=True) if then != before
        ]
        yield step, after, changed == ["idle"]
        world = after


def play(name: str, seed: int) -> None:
    """Play one order, and compare the servers with the model after each step."""
    model = CASES[name].model()
    assert isinstance(model, sync.Model)
    stage, story = Stage(model.bounds.members), []
    for step, world, is_last in walk(model, seed):
        story.append(step)
        stage.play(step, is_last=is_last)
        data, database = world.servers[world.leads].data, world.databases[0]
        found = stage.values(), stage.marks(), stage.is_healthy()
        healthy = model.verdict(database, world.servers[world.leads], 0) == "healthy"
        expected = data.values, sorted(member for _, member in database.marks), healthy
        assert found == expected, story
    stage.settle()
    assert stage.is_right(), story


@pytest.mark.parametrize("name", ["pushes", "rebuild, twice"])
def test_the_app_follows_the_model(name: str) -> None:
    for seed in range(10):
        play(name, seed)


def story_without(guard: str) -> list[str]:
    story = CASES[SHOWN_BY[guard]].model(guard).run().story
    assert story is not None
    return story


def stage_for(case: str, request: pytest.FixtureRequest) -> Stage:
    """Return a stage with what the bounds of a run name."""
    bounds = CASES[case].bounds
    assert isinstance(bounds, sync.Bounds)
    if bounds.servers == 1:
        return Stage(bounds.members)
    stage = Pair(request.getfixturevalue("redis_binary"), request.getfixturevalue("settings"), bounds.members)
    request.addfinalizer(stage.close)
    return stage


@pytest.mark.parametrize("is_guarded", [False, True], ids=["without", "with"])
@pytest.mark.parametrize(
    "guard", [pytest.param(guard, marks=[pytest.mark.slow] if guard in LONG else []) for guard in BROKEN]
)
def test_a_counterexample_goes_wrong_on_the_app_without_the_guard(
    guard: str, is_guarded: bool, request: pytest.FixtureRequest
) -> None:
    """And not with it: then processes do something else at the point, or the marks wait."""
    story = story_without(guard)
    with nullcontext() if is_guarded else BROKEN[guard]():
        stage = stage_for(SHOWN_BY[guard], request)
        for step in story:
            stage.play(step)
        stage.settle()
        assert stage.is_right() is is_guarded
