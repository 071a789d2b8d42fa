"""Changes of scores, flushes that are killed, saves, deletions, sleepers, rebuilds and restarts in any order: a model
knows the result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import product
from threading import current_thread, main_thread
from typing import Any, ClassVar, Final
from unittest import mock

import pytest
from django.db import connection, connections
from django.db.models import F
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from django_zrank import NotRanked, RankIndex
from django_zrank.idle.touching import touched_key
from django_zrank.models import Batch, Build, Mark
from django_zrank.store import Store
from django_zrank.sync.drain import drain
from django_zrank.sync.push import push, read
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from django_zrank.windows.sweep import sweep
from django_zrank.write_behind import flush as flush_module
from django_zrank.write_behind.flush import flush
from django_zrank.write_behind.store import PendingStore
from tests.keyspace import everything, expected
from tests.sync.mirror import standing
from tests.testapp.methods import KEEPING
from tests.testapp.models import Video
from tests.writes import apply_changes, begin_write

MONTH: Final = timedelta(days=30)


class Killed(BaseException):
    pass


def kill(*args: Any, **kwargs: Any) -> None:
    raise Killed


class Scores(RuleBasedStateMachine):
    """``total``: what each member's column is to be, once nothing is pending. ``public``: who is in the queryset."""

    ranked_by: ClassVar[type[RankIndex]]
    """The index whose scores change."""

    readings = Bundle("readings")
    sent = Bundle("sent")

    def __init__(self) -> None:
        super().__init__()
        self.index = self.ranked_by.instance()
        assert self.index.column
        self.field = self.index.column.field.name
        self.stores = [PendingStore.of(part) for part in self.index.holders]
        for model in (Video, Mark, Batch, Build):
            model.objects.all().delete()
        self.stores[0].client.flushdb()
        self.keys = 0
        self.total: dict[int, int] = {}
        self.public: set[int] = set()
        self.asleep: set[int] = set()
        self.pks = [self.make(10 * n) for n in range(3)]
        rebuild(self.index)

    def make(self, score: int) -> int:
        """A row that is ranked."""
        video = Video(**{self.field: score}, region="ab"[len(self.total) % 2], seen=timezone.now())
        Video.objects.bulk_create([video])
        new = max(Video.objects.values_list("pk", flat=True))
        self.total[new] = score
        self.public.add(new)
        return new

    def known(self, n: int) -> int:
        return self.pks[n % len(self.pks)]

    def store_of(self, pk: int) -> PendingStore:
        return self.stores[self.index.holders.index(self.index.holder_of(str(pk)))]

    # Changes

    @rule(n=st.integers(0, 2), by=st.integers(-5, 9))
    def change(self, n: int, by: int) -> None:
        self.make_change(self.known(n), by)

    def make_change(self, pk: int, by: int, key: str = "") -> bool:
        old = self.total.get(pk, 0)
        rules = {"sum": old + by, "max": max(old, 10 + by), "min": min(old, 10 + by), "last": 10 + by}
        try:
            found = self.send(pk, by, key)
        except NotRanked:
            return False
        assert found == rules[self.index.rule]
        self.total[pk] = found
        return True

    def send(self, pk: int, by: int, key: str) -> Any:
        scores = self.ranked_by.scores
        self.asleep.discard(pk)  # which is noted in the column of a row that isn't in the queryset, too
        try:
            if self.index.rule == "sum":
                return scores.increment(pk, by, key=key)
            return scores.submit(pk, 10 + by, key=key)
        except NotRanked:
            assert pk not in self.public
            raise

    @rule(target=sent, n=st.integers(0, 2), by=st.integers(-5, 9))
    def change_by_key(self, n: int, by: int) -> Any:
        self.keys += 1
        call = self.known(n), by, f"key-{self.keys}"
        return call if self.make_change(*call) else multiple()

    @rule(call=sent)
    def change_again(self, call: tuple[int, int, str]) -> None:
        """The same call, as of a client that had no answer."""
        with suppress(NotRanked):
            assert self.send(*call) == self.total[call[0]]

    # Flushes

    @rule()
    def flush(self) -> None:
        flush(self.index)

    @rule(at=st.sampled_from([(flush_module, "_carry"), (PendingStore, "settle_flush")]))
    def flush_and_die(self, at: Any) -> None:
        with mock.patch.object(*at, kill), suppress(Killed):
            flush(self.index)

    # Pushes

    @rule(target=readings, n=st.integers(0, 2))
    def read_row(self, n: int) -> Any:
        """A push that dawdles: its rows are read now, and written later."""
        pk = self.known(n)
        part = self.index.holder_of(str(pk))
        store = PendingStore.of(part)
        return store, begin_write(store), list(read(part, [pk], store))

    @rule(reading=consumes(readings))
    def write_row(self, reading: Any) -> None:
        store, epoch, changes = reading
        applied = apply_changes(store, epoch, changes)
        if applied is None or applied.refused:
            push(self.index, [int(changes[0][0])])

    # Rows

    @rule(n=st.integers(0, 2), by=st.integers(-5, 9))
    def update(self, n: int, by: int) -> None:
        """Somebody else writes the column: what is pending is added to it, or compared with it, or replaces it."""
        pk = self.known(n)
        if self.index.rule == "last":
            flush(self.index)
        elif self.index.rule in (
            "max",
            "min",
        ):  # whether a best that is made worse comes back depends on what is pending
            by = abs(by) if self.index.rule == "max" else -abs(by)
        Video.objects.filter(pk=pk).update(**{self.field: F(self.field) + by})
        new = Video.objects.values_list(self.field, flat=True).get(pk=pk)
        old, rule = self.total[pk], self.index.rule
        self.total[pk] = {"sum": old + by, "max": max(old, new), "min": min(old, new), "last": new}[rule]

    @rule(n=st.integers(0, 2))
    def leave_or_return(self, n: int) -> None:
        pk = self.known(n)
        for video in Video.objects.filter(pk=pk):
            video.is_public = not video.is_public
            video.save(update_fields=["is_public"])
            self.public ^= {pk}

    @rule(n=st.integers(0, 2), region=st.sampled_from("abc"))
    def move(self, n: int, region: str) -> None:
        for video in Video.objects.filter(pk=self.known(n)):
            video.region = region
            video.save(update_fields=["region"])

    @rule(n=st.integers(0, 2))
    def delete(self, n: int) -> None:
        pk = self.known(n)
        Video.objects.filter(pk=pk).delete()
        del self.total[pk]
        self.public.discard(pk)
        self.asleep.discard(pk)
        self.pks[self.pks.index(pk)] = self.make(5)

    # Sleepers

    @precondition(lambda self: self.index.awake)
    @rule(n=st.integers(0, 2))
    def sleep(self, n: int) -> None:
        pk = self.known(n)
        store = self.store_of(pk)
        Video.objects.filter(pk=pk).update(seen=timezone.now() - 2 * MONTH)
        store.client.zrem(touched_key(store.keys), str(pk))  # as the column was written long ago
        self.asleep.add(pk)

    @precondition(lambda self: self.index.awake)
    @rule(n=st.integers(0, 2))
    def see(self, n: int) -> None:
        pk = self.known(n)
        Video.objects.filter(pk=pk).update(seen=timezone.now())
        self.asleep.discard(pk)

    @precondition(lambda self: self.index.awake)
    @rule(n=st.integers(0, 2))
    def touch(self, n: int) -> None:
        pk = self.known(n)
        self.asleep.discard(pk)
        try:
            self.ranked_by.scores.touch(pk)
        except NotRanked:
            assert pk not in self.public

    @precondition(lambda self: self.index.awake)
    @rule()
    def sweep(self) -> None:
        sweep(self.index)

    # Builds and servers

    @rule(kept=st.booleans(), dies=st.booleans())
    def rebuild(self, kept: bool, dies: bool) -> None:
        """A rebuild, in which scores change and are flushed after its rows were read; it may be killed then."""
        loaded = Store.load_rows

        def load(store: Store, building: str, piece: Any) -> bool:
            try:
                self.change(0, 3)
                if kept:
                    for part, one in zip(self.index.holders, self.stores, strict=True):
                        row = Build.objects.get(index=part.name)
                        one.take_pending(row.term, row.flushed, 1000)
                done = loaded(store, building, piece)
                self.change(0, 4)
            finally:
                if current_thread() is not main_thread():
                    connections.close_all()
            return done

        with mock.patch.object(Store, "load_rows", load), suppress(Killed):
            if dies:
                with (
                    mock.patch.object(Store, "swap_rebuilt", kill),
                    mock.patch.object(Store, "abandon_rebuild"),
                ):
                    rebuild(self.index)
            rebuild(self.index)

    @rule()
    def restart(self) -> None:
        """Another process, with all that this one held."""
        for store in self.stores:
            store.client.hset(store.keys.meta, "server", "old/history")
        Build.objects.update(server="old/history")
        sync(self.index)

    @rule()
    def verify(self) -> None:
        assert verify(self.index).drift == 0

    @invariant()
    def scores_are_right(self) -> None:
        """In every ranking, with every count."""
        drain(self.index)
        stand = standing(self.index)
        ranked = {str(pk) for pk in self.public - self.asleep}
        own: dict[Any, dict[str, tuple[float, bytes]]] = {part: {} for part in self.index.holders}
        for member, (_, membership) in stand.items():
            if member in ranked:
                own[self.index.holder_of(member)][member] = float(self.total[int(member)]), membership
        for (part, members), store in zip(own.items(), self.stores, strict=True):
            live = store.learn()
            assert everything(store.client, live.root) == expected(live.root, members, part.layout)

    def teardown(self) -> None:
        sync(self.index)
        assert dict(Video.objects.values_list("pk", self.field)) == self.total
        self.scores_are_right()


LAYOUTS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "ascending": {"order": "views"},
    "wide": {"order": "-total"},
    "dense facets": {"facets": ("region",), "ranking_method": KEEPING},
    "shards": {"shards": 3, "facets": ("region",)},
    "idle": {"idle": ("seen", MONTH)},
    "idle facets": {"idle": ("seen", MONTH), "facets": ("region",), "shards": 2},
}

RULES: Final = ("increment", "best", "latest")


def check(
    declare: Callable[..., type[RankIndex]], layout: str, write_behind: str, *, examples: int, steps: int
) -> None:
    attributes = {"order": "-views", **LAYOUTS[layout]}
    public = {"get_queryset": lambda index: Video.objects.filter(is_public=True)}
    index = declare(Video, attributes.pop("order"), write_behind=write_behind, **public, **attributes)
    often = settings(
        max_examples=examples,
        stateful_step_count=steps,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    run_state_machine_as_test(type("Changed", (Scores,), {"ranked_by": index}), settings=often)


pytestmark = [
    pytest.mark.skipif(
        connection.vendor != "sqlite", reason="what differs between databases is tested elsewhere"
    ),
    pytest.mark.django_db(transaction=True),
]


@pytest.mark.parametrize(
    ("layout", "write_behind"), [(layout, RULES[n % 3]) for n, layout in enumerate(LAYOUTS)]
)
def test_the_column_and_what_is_pending_are_the_score(
    layout: str, write_behind: str, declare: Callable[..., type[RankIndex]]
) -> None:
    check(declare, layout, write_behind, examples=2, steps=12)


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "write_behind"), list(product(LAYOUTS, RULES)))
def test_for_longer(layout: str, write_behind: str, declare: Callable[..., type[RankIndex]]) -> None:
    check(declare, layout, write_behind, examples=3, steps=20)
