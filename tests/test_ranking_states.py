"""A ranking through a life of writes: members come, change, move and go, rebuilds pass; then whatever can be asked."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from redis import Redis

from django_zrank import RankIndex
from django_zrank.store import Change, Store
from tests.builds import load_rows, start
from tests.test_ranking import FACETED, INDEXES, Oracle, Row, assert_same, rows
from tests.without_parts.parts import PARTS
from tests.writes import apply_changes, begin_write

pytestmark = pytest.mark.slow

PKS = st.integers(1, 30)


def change(index: type[RankIndex], pk: int, row: Row | None) -> Change:
    """A member as the sync writes it; None removes it."""
    instance = index.instance()
    if row is None:
        return Change(str(pk), None)
    score, tie = instance.ordering.encode([row[path] for path in instance.ordering.paths])
    many = {path: value if isinstance(value, frozenset) else [value] for path, value in row.items()}
    names = instance.faceting.rankings({path: many[path] or [None] for path in instance.faceting.paths})
    return Change(str(pk), score, tie + "\0".join(names).encode())


class Life(RuleBasedStateMachine):
    """Writes through the scripts that the sync uses."""

    index: type[RankIndex]

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, Row] = {}
        self.building = ""
        self.store = Store(self.index.instance().name, self.index.instance().layout)
        self.store.client.flushdb()
        self.rebuild()

    def write(self, *changes: Change) -> None:
        assert apply_changes(self.store, begin_write(self.store), changes) is not None

    @rule(pk=PKS, row=rows)
    def put(self, pk: int, row: Row) -> None:
        self.rows[pk] = row
        self.write(change(self.index, pk, row))

    @rule(several=st.dictionaries(PKS, rows, min_size=2, max_size=12))
    def put_several(self, several: dict[int, Row]) -> None:
        self.rows |= several
        self.write(*(change(self.index, pk, row) for pk, row in several.items()))

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), row=rows)
    def move(self, data: Any, row: Row) -> None:
        """One that is there changes one thing of it: its score, its region, its tags."""
        pk = data.draw(st.sampled_from(sorted(self.rows)))
        path = data.draw(st.sampled_from(sorted(row)))
        self.put(pk, self.rows[pk] | {path: row[path]})

    @rule(pk=PKS)
    def remove(self, pk: int) -> None:
        self.rows.pop(pk, None)
        self.write(change(self.index, pk, None))

    @rule()
    def rebuild(self) -> None:
        self.start()
        self.swap()

    @precondition(lambda self: not self.building)
    @rule()
    def start(self) -> None:
        """Half a rebuild: what is written from here on goes to both sides."""
        self.building = uuid4().hex
        assert start(self.store, self.building)
        changes = [change(self.index, pk, row) for pk, row in self.rows.items()]
        assert not changes or load_rows(self.store, self.building, changes)

    @precondition(lambda self: self.building)
    @rule()
    def swap(self) -> None:
        assert self.store.swap_rebuilt(self.building)
        self.building = ""

    @precondition(lambda self: self.building)
    @rule()
    def abandon(self) -> None:
        assert self.store.abandon_rebuild(self.building)
        self.building = ""

    @invariant()
    def answers(self) -> None:
        assert_same(self.index.ranking, Oracle(self.index, self.rows, lambda row: True), range(1, 31))
        if self.index.facets:
            for region in ("kantou", None):
                oracle = Oracle(self.index, self.rows, lambda row, region=region: row["region"] == region)  # type: ignore[misc]
                assert_same(self.index.ranking.filter(region=region), oracle, [])
        if self.index.facets and PARTS["combined"].is_there:
            oracle = Oracle(self.index, self.rows, lambda row: 1 in row["tags"] and row["platform"] == "pc")
            self.store.client.delete(*self.store.client.scan_iter("*combined_filter*"), "nothing")
            assert_same(self.index.ranking.filter(tags=1, platform="pc"), oracle, [])


@pytest.mark.parametrize("index", [*FACETED, INDEXES[0], INDEXES[-1]], ids=lambda index: index.name)
def test_whatever_is_written(zrank: Redis, index: type[RankIndex]) -> None:
    machine = type("Machine", (Life,), {"index": index})
    how = settings(
        max_examples=8, stateful_step_count=10, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine, settings=how)
