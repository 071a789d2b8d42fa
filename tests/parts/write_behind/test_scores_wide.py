"""Scores of big integers, whose members may have tie bytes, and the number of members that change at once."""

from __future__ import annotations

from collections.abc import Callable
from threading import current_thread, main_thread
from typing import Any

import pytest
from django.db import connections
from redis import Redis

from django_zrank import NotRanked, RankIndex
from django_zrank.store import Store
from django_zrank.sync.drain import drain
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.verify import verify
from django_zrank.write_behind.changes import CHANGE_SCORES, INCREMENT_SCORES
from django_zrank.write_behind.flush import flush
from tests.test_hold import watched
from tests.testapp.models import Competitor, Video

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]

EXACT = 2**53

CEILING = 1000
"""Look-ups and writes of a call: a request of a user waits for it."""

Declare = Callable[..., type[RankIndex]]


@pytest.fixture
def totals(declare: Declare) -> type[RankIndex]:
    """An index of a BigIntegerField."""
    return declare(Video, "-total", write_behind="increment")


def scores_of(index: type[RankIndex]) -> dict[int, int]:
    return {entry.pk: entry.score for entry in index.ranking.top(10)}


def sync(index: type[RankIndex]) -> None:
    """Write what is pending to the column, and find everything in step after that."""
    flush(index.instance())
    drain(index.instance())
    assert not verify(index.instance()).drift
    assert dict(Video.objects.values_list("pk", "total")) == scores_of(index)


def test_big_integers_take_the_short_script(totals: type[RankIndex], zrank: Redis) -> None:
    video = Video.objects.create(total=5)
    zrank.script_flush()
    assert totals.scores.increment(video) == 6
    assert totals.scores.increment(video, 1, key="once") == 7
    assert zrank.script_exists(INCREMENT_SCORES.sha, CHANGE_SCORES.sha) == [True, True]
    zrank.script_flush()
    assert totals.scores.increment({video: 5, Video.objects.create(): 1})[video] == 12
    assert zrank.script_exists(INCREMENT_SCORES.sha, CHANGE_SCORES.sha) == [True, False]
    sync(totals)


@pytest.mark.parametrize(
    ("total", "by"),
    [
        (2_000_000_000, 1),
        (EXACT - 10**15 - 1, 10**15),
        (EXACT - 1, 1),
        (EXACT - 1, 2),
        (EXACT, 1),
        (EXACT, -1),
        (1 - EXACT, -2),
        (-EXACT, 1),
        (5, EXACT),
        (-5, EXACT),
        (2**60, 1),
        (2**60, -1),
        (-(2**60) - 1, 5),
    ],
)
def test_a_sum_of_big_integers_is_exact_or_refused(totals: type[RankIndex], total: int, by: int) -> None:
    """By the script for one member, and by the one for several."""
    one, two, other = (Video.objects.create(total=total).pk for total in (total, total, 1))
    for video, changes in ((one, {one: by}), (two, {two: by, other: 1})):
        if max(abs(total), abs(total + by)) < EXACT:
            assert totals.scores.increment(changes)[video] == total + by
            assert scores_of(totals)[video] == total + by
        else:
            with pytest.raises(ValueError, match=rf"the score of {video} would leave the column's range"):
                totals.scores.increment(changes)
            assert scores_of(totals) == {one: total, two: total, other: 1}
    sync(totals)


@pytest.mark.parametrize("many", [False, True])
def test_a_member_that_is_not_ranked_is_told_from_one_beyond(totals: type[RankIndex], many: bool) -> None:
    video = Video.objects.create(total=2**60)
    with pytest.raises(NotRanked, match="1000 is not ranked"):
        totals.scores.increment({1000: 1, video.pk: 1} if many else {1000: 1})
    assert scores_of(totals) == {video.pk: 2**60}


def test_a_rebuild_takes_what_comes_meanwhile(
    totals: type[RankIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    videos = [Video.objects.create(total=total) for total in (1, 2, 3, EXACT - 50)]
    load = Store.load_rows

    def load_between(store: Store, building: str, piece: Any) -> bool:
        totals.scores.increment(dict.fromkeys((video.pk for video in videos), 7))
        totals.scores.increment(videos[0].pk)
        done = load(store, building, piece)
        totals.scores.increment(dict.fromkeys((video.pk for video in videos), 5))
        totals.scores.increment(videos[1].pk)
        if current_thread() is not main_thread():
            connections.close_all()
        return done

    monkeypatch.setattr(Store, "load_rows", load_between)
    rebuild(totals.instance())
    assert scores_of(totals) == {
        video.pk: total for video, total in zip(videos, (14, 15, 15, EXACT - 38), strict=True)
    }
    sync(totals)


@pytest.mark.parametrize(
    ("model", "order", "attributes", "limit"),
    [
        (Video, "-views", {}, 150),
        (Video, "-total", {}, 150),
        (Video, "-views", {"facets": ("region", "is_public", ("region", "is_public"))}, 21),
        pytest.param(
            Video,
            "-views",
            {"facets": ("region",), "ranking_method": "dense"},
            25,
            marks=pytest.mark.part("dense"),
        ),
        (Competitor, "-points", {"facets": ("region", "tags")}, 16),
    ],
)
def test_so_many_change_at_once(
    zrank: Redis, declare: Declare, model: Any, order: str, attributes: dict[str, Any], limit: int
) -> None:
    index = declare(model, order, write_behind="increment", **attributes)
    assert index.scores.limit == limit
    rows = model.objects.bulk_create(model(**{order[1:]: 0}) for _ in range(limit + 1))
    drain(index.instance())
    match = rf"at most {limit} members at once in the index '{index.instance().name}', not {limit + 1}"
    with pytest.raises(ValueError, match=match):
        index.scores.increment(dict.fromkeys(rows, 1))
    assert flush(index.instance()) == 0
    with watched(zrank) as costs:
        assert set(index.scores.increment(dict.fromkeys(rows[:-1], 1)).values()) == {1}
    assert max(costs) <= CEILING
    assert flush(index.instance()) == limit
