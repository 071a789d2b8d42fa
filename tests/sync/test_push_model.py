"""The rules of a push, as a model small enough to try every order in which its steps can happen.

That the product keeps them is shown by the tests of ``apply_changes.lua`` and of ``push()``, and by ``tests.torture``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from django_zrank.sync.push import _REFUSALS


class Writer(NamedTuple):
    """A process that changes the one member that there is, commits, and pushes it.

    A drain is one, too: it sees a mark when whoever has left it has committed.
    """

    phase: str = "begun"  # then asking (for a token), ready, read, done
    token: int = 0
    value: int = 0
    refusals: int = 0


class World(NamedTuple):
    """A value is the number of commits that it has seen."""

    database: int
    redis: int
    written: int  # the version of the newest write of the member
    version: int  # the newest version
    writers: tuple[Writer, ...]


def steps(world: World, enough: int) -> Iterator[World]:
    """Every world that the next step of one of the writers can lead to."""
    database, _, written, version, writers = world
    for number, writer in enumerate(writers):

        def then(after: Writer, number: int = number, **changes: int) -> World:
            return world._replace(writers=(*writers[:number], after, *writers[number + 1 :]), **changes)

        if writer.phase == "begun":
            yield then(Writer("asking"), database=database + 1)
        elif writer.phase == "asking":
            yield then(Writer("ready", token=version))
        elif writer.phase == "ready":
            yield then(writer._replace(phase="read", value=database))
        elif writer.phase == "read":
            if written <= writer.token:
                yield then(Writer("done"), redis=writer.value, written=version + 1, version=version + 1)
            elif writer.refusals + 1 == enough:
                yield then(Writer("done"), version=version + 1)
            else:
                again = Writer("ready", token=version + 1, refusals=writer.refusals + 1)
                yield then(again, version=version + 1)


def alike(world: World) -> World:
    """One for all worlds that differ in nothing but the names of writers and the size of the steps between versions."""
    versions = sorted({world.written, world.version, *(writer.token for writer in world.writers)})
    rank = {version: number for number, version in enumerate(versions)}
    writers = sorted(writer._replace(token=rank[writer.token]) for writer in world.writers)
    return world._replace(written=rank[world.written], version=rank[world.version], writers=tuple(writers))


def stale(writers: int, enough: int) -> list[World]:
    """The worlds in which everybody is done and Redis has not got the last commit."""
    first = World(0, 0, 0, 0, (Writer(),) * writers)
    seen, waiting, wrong = {first}, [first], []
    while waiting:
        world = waiting.pop()
        following = set(map(alike, steps(world, enough)))
        if not following and world.redis != world.database:
            wrong.append(world)
        waiting += following - seen
        seen |= following
    return wrong


@pytest.mark.parametrize("writers", [1, 2, 3, 4])
def test_the_last_commit_is_what_stays(writers: int) -> None:
    assert stale(writers, _REFUSALS) == []


def test_to_give_up_sooner_would_leave_old_values() -> None:
    assert stale(2, 1)
