"""Indexes of several shards answer as one of the same members does."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from itertools import chain
from typing import Any
from unittest import mock

import pytest

from django_zrank import RankIndex
from django_zrank.exceptions import IndexUnhealthy, NotBuilt, NotRanked
from django_zrank.models import Generation
from django_zrank.queries.request import Request
from django_zrank.redis import executor, reader_of
from django_zrank.redis.scripts import COUNT_FACET
from django_zrank.redis.sharded import ShardedReader
from django_zrank.store import Store
from tests.builds import accept
from tests.populations import fill, load
from tests.sharded import COUNTS, sharded
from tests.testapp.models import Competitor, Video
from tests.testapp.zrank import PlayerAscending, VideoRank

pytestmark = pytest.mark.usefixtures("zrank")

SCORES = {pk: pk * pk % 101 for pk in range(1, 400)}


@pytest.mark.parametrize("count", COUNTS)
class TestSums:
    def test_size_and_scores(self, count: int) -> None:
        ranking = sharded(PlayerAscending, count).ranking
        fill(type(ranking.index), SCORES)
        assert ranking.count() == len(SCORES)
        assert [ranking.score(pk) for pk in SCORES] == list(SCORES.values())
        assert 7 in ranking
        assert 1000 not in ranking
        with pytest.raises(NotRanked):
            ranking.score(1000)

    def test_in_coroutines(self, count: int) -> None:
        ranking = sharded(PlayerAscending, count).ranking
        fill(type(ranking.index), SCORES)

        async def ask() -> list[Any]:
            return await asyncio.gather(ranking.acount(), ranking.ascore(7))

        assert asyncio.run(ask()) == [len(SCORES), 49]


@pytest.mark.parametrize("count", COUNTS)
class TestGroups:
    def test_members_are_counted_once(self, count: int) -> None:
        group = sharded(PlayerAscending, count).group("live:42")
        assert group.add(*range(100)) == 100
        assert group.add(*range(50, 150)) == 50
        assert group.remove(*range(10)) == 10
        assert group.count() == 140
        assert sorted(group) == list(range(10, 150))
        assert [pk for pk in range(160) if pk in group] == list(range(10, 150))
        assert group.claim(*range(20, 0, -1)) == list(range(20, 9, -1))
        assert group.claim(*range(30)) == list(range(21, 30))
        assert group.count() == 120
        group.clear()
        assert group.count() == 0

    def test_the_shard_of_a_member_says_if_it_is_in_a_group(
        self, count: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The others may be away, also for a process that has asked nothing before."""
        index = sharded(PlayerAscending, count)
        fill(index, SCORES)
        index.group("live").add(7)
        executor._live.clear()
        own = index.instance().part_of("7")
        for part in index.instance().parts:
            if part is not own:
                monkeypatch.setattr(reader_of(part), "learning", mock.Mock(side_effect=AssertionError))
        assert 7 in index.group("live")

    def test_filters_of_hundreds_of_groups_come_to_an_end(self, count: int) -> None:
        index = sharded(PlayerAscending, count)
        fill(index, SCORES)
        ranking = index.ranking
        for at in range(8):
            index.group(f"{at}-0").add(300, 301)
            ranking = ranking.filter(group__in=[f"{at}-{number}" for number in range(50)])
        assert {entry.pk for entry in ranking.recommend(300, 3, band=10**6)} == {301}

    def test_members_of_a_group_are_narrowed_to(self, count: int) -> None:
        index = sharded(PlayerAscending, count)
        fill(index, SCORES)
        index.group("live").add(*range(300, 500))
        ranking = index.ranking.filter(group="live")
        assert ranking.count() == 100
        assert index.ranking.exclude(group="live").count() == len(SCORES) - 100


REGIONS = {pk: f"region {pk % 5}" for pk in range(1, 200)}


class Regional(RankIndex):
    name = "regional"
    model = Competitor
    order = ("-points",)
    facets = ("region",)


class Sleepy(RankIndex):
    model = Video
    order = ("-views",)
    idle = ("seen", timedelta(days=30))


def in_regions(count: int) -> type[RankIndex]:
    """An index of people in five regions."""
    index = sharded(Regional, count)
    load(index, ((pk, pk, region) for pk, region in REGIONS.items()))
    return index


@pytest.mark.parametrize("count", COUNTS)
def test_values_of_a_facet_are_counted(count: int) -> None:
    index = in_regions(count)
    assert index.ranking.counts("region") == Counter(REGIONS.values())
    assert index.ranking.filter(region="region 3").count() == 40
    index.group("few").add(*range(1, 11))
    assert index.ranking.filter(group="few").counts("region") == dict.fromkeys(set(REGIONS.values()), 2)


def forget_trust(index: type[RankIndex]) -> None:
    """Have every server looked up again by the next read."""
    for one in (index.instance(), *index.instance().parts):
        reader_of(one).trust.until = 0.0


class TestHealth:
    """Each shard's is checked once a second."""

    def test_one_that_was_never_built(self) -> None:
        index = in_regions(3)
        store = Store(index.instance().parts[1].name)
        store.client.delete(store.keys.meta)
        with pytest.raises(NotBuilt, match=f"rebuild_zrank {index.instance().name}$"):
            index.ranking.counts("region")

    def test_one_that_lost_writes(self, settings: Any) -> None:
        index = sharded(PlayerAscending, 3)
        fill(index, SCORES)
        own = index.instance().part_of("7")
        other = next(part for part in index.instance().parts if part is not own)
        store = Store(other.name)
        store.client.hset(store.keys.meta, "behind", "1")
        forget_trust(index)
        with pytest.raises(IndexUnhealthy, match=other.name):
            index.ranking.count()
        assert index.ranking.score(7) == SCORES[7]
        settings.ZRANK = {"UNHEALTHY": "serve_stale"}
        assert index.ranking.count() == len(SCORES)

    @pytest.mark.parametrize("is_trusted", [True, False])
    def test_one_of_another_declaration(self, is_trusted: bool) -> None:
        index = sharded(PlayerAscending, 3)
        fill(index, SCORES)
        index.ranking.count()
        part = index.instance().parts[2]
        accept(Store(part.name, part.layout), "01234567-otherwise")
        if is_trusted:
            reader_of(part).learn()
        else:
            forget_trust(index)
        with pytest.raises(NotBuilt, match="built from another declaration"):
            index.ranking.count()

    def test_all_are_looked_up_in_one_round_trip(self, sent: list[Request[Any]]) -> None:
        index = sharded(PlayerAscending, 7)
        fill(index, SCORES)
        forget_trust(index)
        index.ranking.count()
        index.ranking.count()
        assert [len(request.calls) for request in sent] == [7, 7, 7]

    @pytest.mark.django_db
    def test_the_database_is_asked_once_about_all(self, django_assert_num_queries: Any) -> None:
        index = sharded(PlayerAscending, 7)
        fill(index, SCORES)
        for part in index.instance().parts:
            store = Store(part.name)
            store.client.hset(store.keys.meta, "owner", "the database")
            health = store.check_health()
            Generation.objects.create(index=part.name, generation=health.generation, term=health.term)
        for _ in range(2):
            forget_trust(index)
            with django_assert_num_queries(1):
                index.ranking.count()
                index.ranking.count()
        part = index.instance().parts[5]
        Generation.objects.filter(index=part.name).update(term=1)
        forget_trust(index)
        with pytest.raises(IndexUnhealthy, match=part.name):
            index.ranking.count()


@pytest.mark.parametrize("count", [3, 16])
def test_shards_are_put_in_place_one_by_one(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebuild swaps the next one whenever a read has learnt of the one before."""
    # Nobody looks meanwhile at what the servers hold: the keys of these builds are not as they would find them.
    monkeypatch.setattr("django_zrank.redis.reader._TRUST", 600.0)
    index = in_regions(count)
    parts = [reader_of(part) for part in index.instance().parts]
    old = [part.learn().generation for part in parts]
    in_regions(count)
    metas = [(part.keys.meta, part.learn().generation) for part in parts]
    index.ranking.count()
    client = parts[0].client
    for part, generation in zip(parts, old, strict=True):
        client.hset(part.keys.meta, "generation", generation)
        part.believe(generation)
    send = ShardedReader.send

    def swap(reader: ShardedReader, request: Request[Any]) -> list[Any]:
        if metas and request.calls[0].command is COUNT_FACET:
            client.hset(metas[0][0], "generation", metas.pop(0)[1])
        return send(reader, request)

    monkeypatch.setattr(ShardedReader, "send", swap)
    assert index.ranking.counts("region") == Counter(REGIONS.values())
    assert metas == []


class TestScores:
    """Scores that begin in Redis."""

    def test_one_by_one(self) -> None:
        index = sharded(VideoRank, 3)
        fill(index, SCORES)
        for pk, views in SCORES.items():
            assert index.scores.increment(pk, 2) == views + 2
        assert [index.ranking.score(pk) for pk in SCORES] == [views + 2 for views in SCORES.values()]

    def test_a_key_counts_once(self) -> None:
        index = sharded(VideoRank, 3)
        fill(index, SCORES)
        assert {index.scores.increment(7, key="once") for _ in range(3)} == {SCORES[7] + 1}

    def test_several_of_one_shard_only(self) -> None:
        index = sharded(VideoRank, 3)
        fill(index, SCORES)
        own = [pk for pk in SCORES if index.instance().part_of(str(pk)) is index.instance().parts[0]][:5]
        changed = index.scores.increment(dict.fromkeys(own, 1))
        assert changed == {pk: SCORES[pk] + 1 for pk in own}
        with pytest.raises(ValueError, match="members of several can't be changed at once"):
            index.scores.increment(dict.fromkeys([*SCORES][:20], 1))
        assert index.ranking.score(own[0]) == SCORES[own[0]] + 1

    @pytest.mark.django_db(transaction=True)
    def test_touches(self) -> None:
        index = sharded(Sleepy, 3)
        load(index, ((pk, pk) for pk in SCORES))
        index.scores.touch(*SCORES)
        stores = [Store(part.name) for part in index.instance().parts]
        touched = chain.from_iterable(store.client.zrange(store.keys.touched, 0, -1) for store in stores)
        assert sorted(touched) == sorted(str(pk).encode() for pk in SCORES)
