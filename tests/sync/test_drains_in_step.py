"""Drains of several indexes in step: rows are read once for all, and what one can't write stops no other."""

from __future__ import annotations

import random
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from redis import Redis

from django_zrank import IndexUnavailable, RankIndex
from django_zrank.capture.triggers import install
from django_zrank.declaration import Index
from django_zrank.exceptions import NotBuilt
from django_zrank.models import Batch, Build, Mark
from django_zrank.store import Store
from django_zrank.sync import drain as drain_module
from django_zrank.sync import push as push_module
from django_zrank.sync import watch as watch_module
from django_zrank.sync.drain import drain_steps, take_together
from django_zrank.sync.marks import leave, waiting_marks
from django_zrank.sync.push import forget
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.watch import sync_steps, watch
from tests.sync.interruptions import just_before
from tests.sync.mirror import assert_mirrors
from tests.testapp.models import Player

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank", "undrained")]


@pytest.fixture
def indexes(declare: Callable[..., type[RankIndex]]) -> list[Index]:
    """Three indexes of players, of whom each leaves a mark in each."""
    Player.objects.bulk_create(Player(level=level) for level in range(40))
    found = [declare(Player, order).instance() for order in ("level", "-level")]
    found.append(declare(Player, "-level", facets=("is_active",)).instance())
    install("default", found)
    for index in found:
        rebuild(index)
    Mark.objects.all().delete()
    Player.objects.update(level=F("level") + 100)
    return found


def drained(indexes: list[Index], **how: Any) -> list[Any]:
    found = take_together({index: drain_steps(index, **how) for index in indexes})
    return [found[index] for index in indexes]


def marked(indexes: list[Index]) -> set[str]:
    """The names of those of which marks wait."""
    return {index.name for index in indexes if waiting_marks(index).exists()}


def statements(context: CaptureQueriesContext) -> int:
    """The number of statements that have read players."""
    table = connection.ops.quote_name(Player._meta.db_table)
    return sum(f"FROM {table}" in one["sql"] for one in context.captured_queries)


def test_rows_are_read_once_for_all(indexes: list[Index]) -> None:
    with CaptureQueriesContext(connection) as context:
        assert drained(indexes, batch_size=20) == [40, 40, 40]
    assert statements(context) == 2
    assert not marked(indexes)
    assert {batch.index for batch in Batch.objects.all()} >= {index.name for index in indexes}
    for index in indexes:
        assert_mirrors(type(index))


def test_a_worker_drains_in_step(indexes: list[Index], monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Event()
    with CaptureQueriesContext(connection) as context:
        watch(indexes, interval=0.01, stop=stop, report=lambda index, done: stop.set())
    assert statements(context) == 1
    assert not marked(indexes)
    for index in indexes:
        assert_mirrors(type(index))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_marks_each_has(indexes: list[Index], seed: int) -> None:
    """Not the same ones, in another order, and of related rows that lead to nobody."""
    lots, pks = random.Random(seed), list(Player.objects.values_list("pk", flat=True))
    Player.objects.filter(pk__in=lots.sample(pks, 5)).delete()
    for index in indexes:
        leave(index, lots.choices([*pks, 10**6], k=lots.randrange(30)))
    limit = lots.choice([None, 7, 50])
    for _ in range(100):
        assert all(
            isinstance(one, int) for one in drained(indexes, limit=limit, batch_size=lots.randrange(1, 30))
        )
    assert not marked(indexes)
    for index in indexes:
        assert_mirrors(type(index))


def test_a_declaration_that_raises_stops_no_other(
    indexes: list[Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = Player.objects.earliest("pk").pk
    changes_of, read = push_module.changes_of, push_module.read

    def choke(index: Index, pks: Any, found: Any, *stores: Any) -> Any:
        if index is indexes[1] and bad in pks:
            raise ArithmeticError("this one")
        return changes_of(index, pks, found, *stores)

    monkeypatch.setattr(push_module, "changes_of", choke)
    assert push_module.read is read
    leave(indexes[0], [bad])
    one, two, three = drained(indexes)
    assert (one, three) == (41, 40)
    assert two == 39
    assert marked(indexes) == {indexes[1].name}
    assert {mark.member for mark in waiting_marks(indexes[1])} == {str(bad)}
    for index in (indexes[0], indexes[2]):
        assert_mirrors(type(index))


def test_an_index_that_another_release_has_built_stops_no_other(indexes: list[Index]) -> None:
    store = Store.of(indexes[1])
    store.client.hset(store.keys.meta, "build", "another-declaration")
    one, two, three = drained(indexes)
    assert (one, three) == (40, 40)
    assert isinstance(two, NotBuilt)
    assert marked(indexes) == {indexes[1].name}
    assert waiting_marks(indexes[1]).exists()


def test_a_server_that_fails_one_stops_no_other(
    indexes: list[Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    applying = Store.applying_changes

    def refuse(store: Store, *args: Any, **how: Any) -> Any:
        if store.name == indexes[1].name:
            raise IndexUnavailable("away")
        return (yield from applying(store, *args, **how))

    monkeypatch.setattr(Store, "applying_changes", refuse)
    one, two, three = drained(indexes)
    assert (one, three) == (40, 40)
    assert isinstance(two, IndexUnavailable)
    assert marked(indexes) == {indexes[1].name}


def test_each_index_has_its_own_fence(indexes: list[Index], monkeypatch: pytest.MonkeyPatch) -> None:
    """A new term begins for one of them between the write and the deletion of its marks: these wait on."""
    row = Build.objects.filter(index=indexes[1].name)
    just_before(monkeypatch, drain_module, "unmark", lambda: row.update(term=F("term") + 1))
    assert drained(indexes) == [40, 0, 40]
    assert marked(indexes) == {indexes[1].name}


@pytest.mark.parametrize("step", ["begin", "read", "apply"])
def test_another_worker_goes_first(indexes: list[Index], monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """It writes newer rows to all of them before the tokens, before the shared read, or after it."""

    def go_first() -> None:
        Player.objects.update(level=F("level") + 1)
        assert drained(indexes) == [80, 80, 80]

    just_before(monkeypatch, push_module.Push, step, go_first)
    drained(indexes)
    assert not marked(indexes)
    for index in indexes:
        assert_mirrors(type(index))


def test_what_passes_is_tried_again(indexes: list[Index], monkeypatch: pytest.MonkeyPatch) -> None:
    """As a deadlock: the steps of all of them go on."""
    monkeypatch.setattr("django_zrank.transactions._is_passing", lambda error: "deadlock" in str(error))

    def fail() -> None:
        raise OperationalError("deadlock")

    just_before(monkeypatch, drain_module, "unmark", fail)
    found = take_together(
        {index: sync_steps(index, look=False, limit=None, due=lambda index, name: False) for index in indexes}
    )
    assert [found[index].marks for index in indexes] == [40, 40, 40]  # type: ignore[union-attr]
    assert not marked(indexes)


def test_indexes_after_the_signal_to_stop_have_no_turn(
    zrank: Redis, indexes: list[Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before them may have been rebuilt."""
    stop = Event()
    just_before(monkeypatch, watch_module, "repair", stop.set)
    watch(indexes, interval=0.01, stop=stop)
    assert marked(indexes) == {index.name for index in indexes[1:]}
    forget(indexes[0])
