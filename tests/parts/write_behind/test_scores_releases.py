"""Write-behind scores, while a release with another declaration takes over."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command
from redis import Redis

from django_zrank import IndexUnavailable, RankIndex
from django_zrank.capture.triggers import install
from django_zrank.exceptions import NotBuilt
from django_zrank.models import Batch, Build
from django_zrank.registry import registry
from django_zrank.store import Store
from django_zrank.sync.drain import drain
from django_zrank.sync.push import push
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.upkeep import is_due
from django_zrank.sync.watch import sync
from django_zrank.write_behind import extension
from django_zrank.write_behind.flush import flush
from django_zrank.write_behind.keys import pending_key
from django_zrank.write_behind.store import PendingStore
from tests.sync.interruptions import just_before
from tests.sync.mirror import assert_mirrors, contents
from tests.testapp.methods import KEEPING
from tests.testapp.models import Video

from .test_scores import Declare, column, dump, restore
from .test_shards import split

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank"),
]


def released(index: type[RankIndex], **attributes: Any) -> type[RankIndex]:
    """The same index, as another release declares it."""
    given = {"model": Video, "order": index.order, "name": index.name, "facets": index.facets, **attributes}
    return type("Released", (RankIndex,), given)


@pytest.fixture
def counted(declare: Declare) -> type[RankIndex]:
    """An index of the total, in which three videos stand."""
    index = declare(Video, "-total", write_behind="increment")
    Video.objects.bulk_create(Video(total=n, region="ab"[n % 2]) for n in range(3))
    sync(index)
    return index


def pks() -> list[int]:
    return list(Video.objects.order_by("pk").values_list("pk", flat=True))


@pytest.mark.parametrize("watched", [False, True])
def test_what_is_pending_when_write_behind_is_removed_is_flushed(
    counted: type[RankIndex], caplog: pytest.LogCaptureFixture, watched: bool
) -> None:
    first, second, third = pks()
    counted.scores.increment({first: 5, second: 7})
    new = released(counted)
    install("default", [new.instance()])  # as migrate does
    due = {"due": is_due} if watched else {}
    assert sync(new, **due).worked["write_behind"] == 2
    assert column(new) == {str(first): 5, str(second): 8, str(third): 2} == contents(new)
    assert "2 pending scores" in caplog.text
    # Of a process that still runs the release before: it would be flushed by nobody, one day.
    with pytest.raises(NotBuilt, match="another declaration"):
        counted.scores.increment(third)
    assert sync(new, **due).worked["write_behind"] == 0
    # And when it is declared again.
    install("default", [counted.instance()])
    sync(counted)
    assert counted.scores.increment(third, 2) == 4


@pytest.mark.parametrize("mend", [sync, rebuild])
def test_a_database_that_lost_its_newest_flushes_is_flushed_to_after_write_behind_was_removed(
    counted: type[RankIndex], mend: Any
) -> None:
    first, *_ = pks()
    for _ in range(10):
        counted.scores.increment(first)
        flush(counted.instance())
    Build.objects.filter(index=counted.name).update(flushed=1)
    Batch.objects.filter(flush__gt=1).delete()
    Video.objects.filter(pk=first).update(total=1)
    counted.scores.increment(first, 5)
    new = released(counted)
    install("default", [new.instance()])  # as migrate does
    mend(new.instance())
    sync(new)
    assert column(new)[str(first)] == 6
    assert contents(new) == column(new)
    build = Build.objects.get(index=new.name).build
    sync(new)
    assert Build.objects.get(index=new.name).build == build


def test_a_database_that_lost_its_newest_flushes_is_noticed_when_write_behind_is_declared_again(
    counted: type[RankIndex],
) -> None:
    """Until then nothing is pending, and nothing needs another build."""
    first, *_ = pks()
    for _ in range(10):
        counted.scores.increment(first)
        flush(counted.instance())
    new = released(counted)
    install("default", [new.instance()])  # as migrate does
    sync(new)
    rows = Build.objects.filter(index=new.name)
    rows.update(flushed=1)
    Batch.objects.filter(flush__gt=1).delete()
    Video.objects.filter(pk=first).update(total=1)
    build = rows.get().build
    sync(new)
    assert rows.get().build == build
    install("default", [counted.instance()])
    sync(counted)
    counted.scores.increment(first, 5)
    sync(counted)
    assert column(counted)[str(first)] == 6
    assert contents(counted) == column(counted)


def test_what_is_pending_for_another_database_is_given_up_if_told(counted: type[RankIndex]) -> None:
    first, second, third = pks()
    counted.scores.increment(first, 5)
    flush(counted.instance())
    counted.scores.increment(first, 50)
    Build.objects.filter(index=counted.name).update(owner="another")  # as if this were a copy
    with pytest.raises(IndexUnavailable, match="--discard-pending"):
        rebuild(counted.instance())
    rebuild(counted.instance(), discard_pending=True)
    sync(counted)
    assert column(counted) == {str(first): 5, str(second): 1, str(third): 2} == contents(counted)


def test_what_was_given_up_is_seen_by_the_other_database_if_the_rebuild_is_killed(
    counted: type[RankIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the changes were dropped, before the new build has begun: the live one is still the other database's."""
    first, second, third = pks()
    counted.scores.increment(first, 5)
    flush(counted.instance())
    counted.scores.increment({first: 50, second: 7})
    rows = Build.objects.filter(index=counted.name)
    (other,) = rows
    rows.update(owner="another", term=0)  # as if this were a copy

    def kill(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Store, "start_rebuild", kill)
        with pytest.raises(KeyboardInterrupt):
            rebuild(counted.instance(), discard_pending=True)
    other.save()
    sync(counted)
    assert column(counted) == {str(first): 5, str(second): 1, str(third): 2} == contents(counted)


def test_a_server_that_comes_back_older_after_write_behind_was_removed_counts_nothing_again(
    counted: type[RankIndex], zrank: Redis
) -> None:
    first, *_ = pks()
    counted.scores.increment(first, 5)
    image = dump(zrank)
    new = released(counted)
    install("default", [new.instance()])  # as migrate does
    flush(new.instance())
    restore(zrank, image)
    store = PendingStore(counted.name)
    store.client.hset(store.keys.meta, "server", "old/history")
    Build.objects.filter(index=counted.name).update(server="old/history")
    sync(new)
    assert column(new)[str(first)] == 5 == contents(new)[str(first)]


def test_an_order_that_can_not_take_them_is_named(
    counted: type[RankIndex], caplog: pytest.LogCaptureFixture, zrank: Redis
) -> None:
    """The column has another name by now, and which of two it is can't be told."""
    first, *_ = pks()
    counted.scores.increment(first, 5)
    meta = PendingStore(counted.name).keys.meta
    zrank.hset(meta, "rule", "sum:score:0")
    flush(released(counted, order=("-total", "views")).instance())
    assert "changes of 1 scores are pending" in caplog.text
    assert flush(counted.instance()) == 1


@pytest.mark.parametrize("noted", ["sum:score:0", "sum"])
def test_a_column_that_was_renamed_takes_them(counted: type[RankIndex], zrank: Redis, noted: str) -> None:
    first, *_ = pks()
    counted.scores.increment(first, 5)
    zrank.hset(PendingStore(counted.name).keys.meta, "rule", noted)
    assert flush(counted.instance()) == 1
    assert column(counted)[str(first)] == 5 == contents(counted)[str(first)]
    assert counted.scores.increment(first) == 6


@pytest.mark.parametrize(
    ("places", "change", "expected"), [(4, 12500, "1.25"), (2, 125, "1.25"), (0, 3, "3")]
)
@pytest.mark.parametrize("path", ["price", "total"])
def test_what_is_pending_has_the_unit_of_its_release(
    declare: Declare, zrank: Redis, path: str, places: int, change: int, expected: str
) -> None:
    """A migration has changed the column's decimal places since, or made it an integer."""
    index = declare(Video, f"-{path}", write_behind="increment")
    video = Video.objects.create(**{path: 10})
    sync(index)
    keys = PendingStore(index.name).keys
    zrank.hset(keys.meta, "rule", f"sum:{path}:{places}")
    zrank.hset(pending_key(keys), str(video.pk), change)
    push(index.instance(), [video.pk])
    if index.instance().noted_rule != f"sum:{path}:{places}":  # the score lacks what is pending
        assert index.ranking.score(video) == 10
    sync(index)
    value = 10 + Decimal(expected)
    assert index.ranking.score(video) == (value if path == "price" else round(value))
    assert index.scores.increment(video) == index.ranking.score(video)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"ranking_method": KEEPING, "facets": ("region",)}),
        ({"ranking_method": KEEPING, "facets": ("region",)}, {}),
    ],
)
def test_changes_by_the_release_before_while_another_declaration_is_built(
    declare: Declare, monkeypatch: pytest.MonkeyPatch, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """They are not written to a build whose members are stored otherwise, which its counts would not survive."""
    old = declare(Video, "-total", write_behind="increment", **before)
    Video.objects.bulk_create(Video(total=n // 2, region="ab"[n % 2]) for n in range(6))
    sync(old)
    new = released(old, write_behind="increment", **{"facets": (), **after})
    members = pks()

    def change() -> None:
        for key in ("", "a"):
            old.scores.increment({members[0]: 1, members[3]: 2}, key=key)

    just_before(monkeypatch, Store, "swap_rebuilt", change)
    rebuild(new.instance())
    flush(new.instance())
    drain(new.instance())
    assert Video.objects.get(pk=members[3]).total == 5
    assert_mirrors(new)


def test_changes_in_former_shards_until_they_are_closed(
    counted: type[RankIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of the release before goes on between their last flush and the end of their keys."""
    first, *_ = pks()
    old = released(counted, write_behind="increment")
    acknowledged = 0
    written = extension.flush

    def increment() -> None:
        nonlocal acknowledged
        old.scores.increment(first)
        acknowledged += 1

    def change_after(index: RankIndex, **how: Any) -> int:
        done = written(index, **how)
        if index.declared is not index:  # a former shard
            increment()
        return done

    unlink_all = Store.unlink_all

    def change_before(store: Store) -> int:
        with pytest.raises(IndexUnavailable):
            increment()
        return unlink_all(store)

    monkeypatch.setattr(extension, "flush", change_after)
    monkeypatch.setattr(Store, "unlink_all", change_before)
    increment()
    split(counted, 2)
    install("default", [counted.instance()])  # as migrate does
    sync(counted)
    assert acknowledged == 2
    assert Video.objects.get(pk=first).total == acknowledged
    sync(counted)
    assert_mirrors(counted)


def test_an_index_is_not_pruned_before_its_scores_are_in_the_column(
    counted: type[RankIndex], capsys: pytest.CaptureFixture[str]
) -> None:
    first, *_ = pks()
    counted.scores.increment(first, 5)
    registry.unregister(counted)
    try:
        call_command("prune_zrank")
        assert "scores of 1 member are pending" in capsys.readouterr().out
        registry.register(counted)
        assert sync(counted).worked["write_behind"] == 1
        assert column(counted)[str(first)] == 5
        sync(counted)
        counted.scores.increment(first)
        registry.unregister(counted)
        call_command("prune_zrank", counted.name)
        assert not any(PendingStore(counted.name).read_meta("build", "building"))
    finally:
        registry.register(counted)
