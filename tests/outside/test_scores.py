"""Write-behind scores, from outside: two releases that declare an index differently, both of which change scores
before, while and after the newer one rebuilds it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle, product
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any, Final

import pytest
from django.core.management import call_command
from django.db import connections, models
from redis import Redis

from django_zrank import IndexUnavailable, RankIndex
from django_zrank.registry import registry
from django_zrank.sync.watch import sync
from django_zrank.write_behind.flush import flush
from tests.testapp.models import Video

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank", "declared"),
]

NAME: Final = "contest"

RULES: Final[dict[str, Callable[[int, int], int]]] = {
    "increment": lambda old, new: old + new,
    "best": max,
    "least": min,
    "latest": lambda old, new: new,
}
"""The score after a change. ``least`` is ``best`` where the order is ascending."""


class Rows(models.QuerySet[Video]):
    """Rows that call :attr:`meanwhile`, once, when a rebuild is about to read the last one."""

    meanwhile: Callable[[], object] | None = None

    def iterator(self, chunk_size: int | None = None) -> Iterator[Any]:
        rows = list(super().iterator(chunk_size))
        yield from rows[:-1]
        if call := Rows.meanwhile:
            Rows.meanwhile = None
            call()
        yield from rows[-1:]


def release(write_behind: str = "", path: str = "total", **attributes: Any) -> type[RankIndex]:
    """The index as one release declares it."""
    order = (path if write_behind == "least" else f"-{path}",)
    rule = "best" if write_behind == "least" else write_behind
    declared = {"name": NAME, "model": Video, "order": order, "write_behind": rule, **attributes}
    return type("Release", (RankIndex,), {"get_queryset": lambda index: Rows(Video), **declared})


@contextmanager
def registered(index: type[RankIndex]) -> Iterator[None]:
    registry.register(index)
    try:
        yield
    finally:
        registry.unregister(index)


def migrate(index: type[RankIndex]) -> None:
    """Record the declaration of a release, and create its triggers, as ``migrate`` does."""
    with registered(index):
        call_command("capture_zrank", verbosity=0)


@pytest.fixture
def declared() -> Iterator[None]:
    yield
    Rows.meanwhile = None
    call_command("prune_zrank", NAME, verbosity=0)  # with its triggers


@pytest.fixture
def rebuild(zrank: Redis, elsewhere: Callable[..., Any]) -> Callable[..., None]:
    """Rebuilds the index as a release declares it, and flushes nothing. ``meanwhile`` is called when the first of the
    videos are loaded already."""

    def run(
        index: type[RankIndex], meanwhile: Callable[[], object], loaded: int, *, capture: str = "triggers"
    ) -> None:
        def is_loaded() -> bool:
            building: Any = zrank.hget(f"zrank:{{{NAME}}}:meta", "building")
            root = f"zrank:{{{NAME}}}:{building.decode()}"
            return zrank.zscore(root, str(loaded)) is not None

        def call() -> None:
            until = monotonic() + 30
            while not is_loaded():
                assert monotonic() < until
                sleep(0.001)
            elsewhere(meanwhile)  # the connection of this thread is busy with the query

        Rows.meanwhile = call
        if capture == "triggers":
            migrate(index)
        with registered(index):
            call_command("rebuild_zrank", NAME, batch_size=250, verbosity=0)
        assert Rows.meanwhile is None

    return run


@pytest.fixture
def pks() -> list[int]:
    """Five members of 20 points, which a rebuild loads first, and more than it reads at once."""
    Video.objects.bulk_create(Video(total=20, price=20) for _ in range(5))
    Video.objects.bulk_create(Video(total=n, price=n) for n in range(2000, 2300))
    return list(Video.objects.order_by("pk").values_list("pk", flat=True))


def change(index: type[RankIndex], pk: int, by: Any) -> Any:
    """Make one change by the rule that a release declares. Raises ``IndexUnavailable`` if it is refused."""
    write = index.scores.increment if index.write_behind == "increment" else index.scores.submit
    return write(pk, by)


def settle(index: type[RankIndex]) -> None:
    """Flush what is pending, and process all marks, as ``sync_zrank`` does."""
    for _ in range(2):
        sync(index)


def assert_mirrored(index: type[RankIndex]) -> None:
    """The ranking holds what the column holds, also according to ``verify_zrank``."""
    path = index.order[0].removeprefix("-")
    rows = dict(Video.objects.values_list("pk", path))
    assert {entry.pk: entry.score for entry in index.ranking.top(5000)} == rows
    with registered(index):
        call_command("verify_zrank", NAME, verbosity=0)  # exits with 1 if anything differs


def totals(pks: list[int], path: str = "total") -> list[Any]:
    rows = dict(Video.objects.values_list("pk", path))
    return [rows[pk] for pk in pks]


# 6: what the release before has submitted


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("key", ["", "a"])
def test_a_change_after_one_that_a_rebuild_of_another_declaration_has_missed(
    rule: str, key: str, pks: list[int], rebuild: Callable[..., None]
) -> None:
    """The releases differ in a facet. What the older one changes meanwhile is pending, and not in the new build."""
    old, new = release(rule), release(rule, facets=("region",))
    sync(old)
    better, worse = (5, 9) if rule == "least" else (50, 30)
    rebuild(new, lambda: [change(old, pk, better) for pk in pks[:3]], loaded=pks[0])
    with pytest.raises(IndexUnavailable):  # the older one, which would store members in its own way
        change(old, pks[4], better)
    kwargs = {"key": key} if key else {}
    write = new.scores.increment if rule == "increment" else new.scores.submit
    found = write(pks[0], worse, **kwargs)
    write(pks[1], better)
    settle(new)
    join = RULES[rule]
    expected = [join(join(20, better), worse), join(join(20, better), better), join(20, better), 20, 20]
    assert totals(pks[:5]) == expected
    if rule != "increment":
        assert found == expected[0]
    assert_mirrored(new)


# 7: changes that take each other back


@pytest.mark.parametrize("capture", ["triggers", "signals"])
@pytest.mark.parametrize("by", [-1, 2], ids=["net-zero", "net"])
def test_changes_that_take_each_other_back_across_a_rebuild_of_another_declaration(
    capture: str, by: int, pks: list[int], rebuild: Callable[..., None], settings: Any
) -> None:
    """The rebuild has loaded the row with the first one. A flush of +0 changes no row, so no trigger fires; with
    signals, no flush is seen at all."""
    settings.ZRANK = {**getattr(settings, "ZRANK", {}), "CAPTURE": capture}
    old, new = release("increment"), release("increment", facets=("region",))
    sync(old)
    change(old, pks[0], 1)
    rebuild(new, lambda: change(old, pks[0], by), loaded=pks[0], capture=capture)
    settle(new)
    assert totals(pks[:2]) == [21 + by, 20]
    assert_mirrored(new)


def test_the_latest_score_is_what_it_was_before(pks: list[int], rebuild: Callable[..., None]) -> None:
    old, new = release("latest"), release("latest", facets=("region",))
    sync(old)
    change(old, pks[0], 7)
    rebuild(new, lambda: change(old, pks[0], 20), loaded=pks[0])
    settle(new)
    assert totals(pks[:2]) == [20, 20]
    assert_mirrored(new)


def test_likes_and_unlikes_across_a_rebuild_of_another_declaration() -> None:
    """Plain traffic of the older release, until the newer one's build is live. Each like is taken back 100 likes
    later."""
    Video.objects.bulk_create((Video(total=n) for n in range(3000)), batch_size=500)
    members = list(Video.objects.order_by("pk").values_list("pk", flat=True))
    old, new = release("increment"), release("increment", facets=("region",))
    sync(old)
    migrate(new)
    liked, has_begun = deque[int](), Event()

    def like() -> None:
        with suppress(IndexUnavailable):
            for pk in cycle(members):
                old.scores.increment(pk)
                liked.append(pk)
                if len(liked) > 100:
                    old.scores.increment(liked[0], -1)
                    liked.popleft()
                    has_begun.set()

    def like_and_close() -> None:
        try:
            like()
        finally:
            connections.close_all()

    fans = Thread(target=like_and_close)
    fans.start()
    assert has_begun.wait(60)
    assert sync(new).rebuilt
    fans.join(60)
    settle(new)
    rows = dict(Video.objects.values_list("pk", "total"))
    assert {pk: rows[pk] - n for n, pk in enumerate(members) if rows[pk] != n} == Counter(liked)
    assert_mirrored(new)


# 8: write_behind is part of the declaration


@pytest.mark.parametrize(("before", "after"), [*product(["", *RULES], repeat=2)])
def test_a_release_that_declares_another_write_behind(
    before: str, after: str, pks: list[int], rebuild: Callable[..., None]
) -> None:
    """What either release acknowledges is in the column, by its own rule and in this order; no release sees the build
    of the other one; and in the end, the new one can change scores."""
    old, new = release(before), release(after)
    sync(old)
    expected = dict.fromkeys(pks[:5], 20)
    turn = iter(range(10, 1000, 7))

    def attempt(index: type[RankIndex]) -> int:
        """Let a release change every score; return the number of changes that it has acknowledged."""
        done = 0
        for pk in pks[:5] if index.write_behind else ():
            by = next(turn) * (-1) ** pk
            with suppress(IndexUnavailable):
                change(index, pk, by)
                rule = before if index is old else after
                expected[pk] = RULES[rule](expected[pk], by)
                done += 1
        return done

    def both() -> None:
        attempt(old)
        attempt(new)

    both()
    flush(old.instance())
    both()
    rebuild(new, both, loaded=pks[0])
    both()
    flush(old.instance())  # a save of the older release leads to this
    both()
    flush(new.instance())
    attempt(old)
    # The older release, which goes on flushing, doesn't take the rule back.
    flush(old.instance())
    if after:
        assert attempt(new) == 5
    settle(new)
    assert totals(pks[:5]) == [expected[pk] for pk in pks[:5]]
    assert_mirrored(new)
    if before != after:
        # A roll-back, and the release again: each worker finds another declaration, and rebuilds.
        for index in (old, new):
            migrate(index)
            assert sync(index).rebuilt
            both()
        settle(new)
        assert totals(pks[:5]) == [expected[pk] for pk in pks[:5]]
        assert_mirrored(new)


@pytest.mark.parametrize("rule", RULES)
def test_a_release_that_ranks_by_another_column(
    rule: str, pks: list[int], rebuild: Callable[..., None]
) -> None:
    """What is pending belongs to the column of the release that took it, and is in its units."""
    old, new = release(rule, "total"), release(rule, "price")
    sync(old)
    change(old, pks[0], 7)
    rebuild(new, lambda: change(old, pks[1], 7), loaded=pks[0])
    with pytest.raises(IndexUnavailable):
        change(new, pks[2], 7)
    settle(new)
    change(new, pks[2], 7)
    settle(new)
    joined = RULES[rule](20, 7)
    assert totals(pks[:3]) == [joined, joined, 20]
    assert totals(pks[:3], "price") == [20, 20, joined]
    assert_mirrored(new)
