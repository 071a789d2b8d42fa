"""Changes of scores, flushes that are killed, saves, rebuilds, restarts in any order: a model knows the result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar
from unittest import mock

import pytest
from django.db import connection
from django.db.models import F
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
    run_state_machine_as_test,
)

from django_zrank import NotRanked, RankIndex
from django_zrank.models import Batch, Generation, Mark
from django_zrank.store import Store
from django_zrank.sync import flush as flush_module
from django_zrank.sync.drain import drain
from django_zrank.sync.flush import flush
from django_zrank.sync.push import push, read
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from tests.testapp.models import Video

from .mirror import contents


class Killed(BaseException):
    pass


def kill(*args: Any, **kwargs: Any) -> None:
    raise Killed


class Scores(RuleBasedStateMachine):
    """``total``: what each member's column is to be, once nothing is pending. ``ranked``: who is in the queryset."""

    ranked_by: ClassVar[type[RankIndex]]
    """The index whose scores change."""

    readings = Bundle("readings")

    def __init__(self) -> None:
        super().__init__()
        self.index = self.ranked_by.instance()
        self.store = Store(self.index.name, self.index.layout, self.index.rule)
        for model in (Video, Mark, Batch, Generation):
            model.objects.all().delete()
        self.store.client.flushdb()
        Video.objects.bulk_create(Video(views=10 * n) for n in range(3))
        self.total = dict(Video.objects.order_by("pk").values_list("pk", "views"))
        self.pks = list(self.total)
        self.ranked = set(self.pks)
        rebuild(self.index)

    def known(self, n: int) -> int:
        return self.pks[n % len(self.pks)]

    @rule(n=st.integers(0, 2), by=st.integers(-5, 9))
    def change(self, n: int, by: int) -> None:
        pk, old = self.known(n), self.total.get(self.known(n), 0)
        scores = self.ranked_by.scores
        new = {"sum": old + by, "max": max(old, 10 + by), "last": 10 + by}[self.index.rule]
        try:
            found = scores.increment(pk, by) if self.index.rule == "sum" else scores.submit(pk, 10 + by)
        except NotRanked:
            assert pk not in self.ranked
        else:
            assert found == new
            self.total[pk] = new

    @rule()
    def flush(self) -> None:
        flush(self.index)

    @rule(at=st.sampled_from([(flush_module, "_carry"), (Store, "settle_flush")]))
    def flush_and_die(self, at: Any) -> None:
        with mock.patch.object(*at, kill), suppress(Killed):
            flush(self.index)

    @rule(target=readings, n=st.integers(0, 2))
    def read_row(self, n: int) -> Any:
        """A push that dawdles: its rows are read now, and written later."""
        pk = self.known(n)
        store = Store(self.index.name, self.index.layout, self.index.rule)
        return store, store.begin_write(), list(read(self.index, [pk], store))

    @rule(reading=consumes(readings))
    def write_row(self, reading: Any) -> None:
        store, epoch, changes = reading
        applied = store.apply_changes(epoch, changes)
        if applied is None or applied.refused:
            push(self.index, [int(changes[0][0])])

    @rule(n=st.integers(0, 2), by=st.integers(-5, 9))
    def update(self, n: int, by: int) -> None:
        """Somebody else writes the column: what is pending is added to it, or compared with it, or replaces it."""
        pk = self.known(n)
        if self.index.rule == "last":
            flush(self.index)
        elif self.index.rule == "max":
            by = abs(by)  # whether a best that is lowered comes back depends on what is pending
        for video in Video.objects.filter(pk=pk):
            Video.objects.filter(pk=pk).update(views=F("views") + by)
            new = video.views + by
            rule = self.index.rule
            self.total[pk] = {"sum": self.total[pk] + by, "max": max(self.total[pk], new), "last": new}[rule]

    @rule(n=st.integers(0, 2))
    def leave_or_return(self, n: int) -> None:
        pk = self.known(n)
        for video in Video.objects.filter(pk=pk):
            video.is_public = not video.is_public
            video.save(update_fields=["is_public"])
            self.ranked ^= {pk}

    @rule(n=st.integers(0, 2))
    def delete(self, n: int) -> None:
        pk = self.known(n)
        Video.objects.filter(pk=pk).delete()
        self.total.pop(pk, None)
        self.ranked.discard(pk)
        Video.objects.bulk_create([Video(views=5)])
        new = max(Video.objects.values_list("pk", flat=True))
        self.pks[self.pks.index(pk)] = new
        self.total[new] = 5
        self.ranked.add(new)

    @rule(kept=st.booleans())
    def rebuild(self, kept: bool) -> None:
        """A rebuild, in which scores change and are flushed after its rows were read."""
        loaded = Store.load_rows

        def load(store: Store, building: str, rows: Any) -> bool:
            self.change(0, 3)
            if kept:
                self.store.take_pending(*self.noted(), 1000)
            done = loaded(store, building, rows)
            self.change(0, 4)
            return done

        with mock.patch.object(Store, "load_rows", load):
            rebuild(self.index)

    def noted(self) -> tuple[int, int]:
        row = Generation.objects.get(index=self.index.name)
        return row.term, row.flushed

    @rule()
    def restart(self) -> None:
        """Another process, with all that this one held."""
        self.store.client.hset(self.store.keys.meta, "server", "old/history")
        Generation.objects.filter(index=self.index.name).update(server="old/history")
        sync(self.index)

    @rule()
    def verify(self) -> None:
        assert verify(self.index).drift == 0

    @invariant()
    def scores_are_right(self) -> None:
        drain(self.index)
        assert contents(self.ranked_by) == {str(pk): self.total[pk] for pk in self.ranked}

    def teardown(self) -> None:
        sync(self.index)
        assert dict(Video.objects.values_list("pk", "views")) == self.total
        assert contents(self.ranked_by) == {str(pk): self.total[pk] for pk in self.ranked}


@pytest.mark.slow
@pytest.mark.skipif(
    connection.vendor != "sqlite", reason="what differs between databases is tested elsewhere"
)
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("write_behind", ["increment", "best", "latest"])
def test_the_column_and_what_is_pending_are_the_score(
    write_behind: str, declare: Callable[..., type[RankIndex]]
) -> None:
    public = {"get_queryset": lambda index: Video.objects.filter(is_public=True)}
    index = declare(Video, "-views", write_behind=write_behind, **public)
    check = settings(
        max_examples=10, stateful_step_count=20, suppress_health_check=list(HealthCheck), derandomize=True
    )
    run_state_machine_as_test(type("Changed", (Scores,), {"ranked_by": index}), settings=check)
