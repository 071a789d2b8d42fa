"""Counts of distinct values follow their rankings."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from django_zrank.codec.layout import Layout
from django_zrank.store import Change
from tests.keyspace import everything, score_text
from tests.lua.test_memberships import FACETS, LAYOUTS, RANKINGS, Model, build, changes
from tests.writes import apply_changes, begin_write


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS.values() if layout.beside], ids=repr)
def test_counts_follow_the_rankings_where_memberships_are_wrong(zrank: Redis, layout: Layout) -> None:
    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        st.lists(st.tuples(st.lists(changes(layout), min_size=1, max_size=5), changes(layout)), max_size=4)
    )
    def run(steps: list[tuple[list[Change], Change]]) -> None:
        model = Model(zrank, layout)
        root = model.store.live.root
        for write, wrong in steps:
            if layout.memberships:
                zrank.hset(f"{root}:memberships", str(wrong.member), wrong.membership)
            apply_changes(model.store, begin_write(model.store), write)
            held = everything(zrank, root)
            for key in [root, *(f"{root}:{name}" for name in RANKINGS)]:
                counts: Counter[bytes] = Counter()
                for stored, score in held.get(key, {}).items():
                    tie, _ = layout.split(stored)
                    counts[tie + score_text(score)] += 1
                assert held.get(f"{key}:counts", {}) == {value: b"%d" % n for value, n in counts.items()}
                assert set(held.get(f"{key}:values", {})) == set(counts)

    run()


@pytest.mark.parametrize("score", [0.1, 1 / 3, 1e20, -1e-7, 5e-324, 123456789012.125])
def test_the_text_of_a_value_is_no_matter_of_the_server_s_version(zrank: Redis, score: float) -> None:
    store = build(FACETS, Change("1", score, b"region:kantou"))
    assert zrank.hgetall(f"{store.live.root}:counts") == {f"{score:.17g}".encode(): b"1"}
    apply_changes(store, begin_write(store), [Change("1", None)])
    assert everything(zrank, store.live.root) == {}
