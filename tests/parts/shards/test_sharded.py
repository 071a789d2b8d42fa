"""Indexes of several shards answer as one of the same members does."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from itertools import cycle
from typing import Any
from unittest import mock

import pytest
from django.db.models import Q
from redis.crc import key_slot

from django_zrank import RankIndex
from django_zrank.exceptions import IndexUnhealthy, NotBuilt
from django_zrank.models import Build
from django_zrank.queries.request import Request
from django_zrank.redis import executor, reader_of
from django_zrank.redis.scripts import COUNT_FACET
from django_zrank.shards.names import name_of, shard_of
from django_zrank.shards.reader import ShardedReader
from django_zrank.store import Store
from tests.builds import trust
from tests.parts.shards.both import COUNTS
from tests.populations import fill, load, populate
from tests.sharded import sharded
from tests.test_async_versions import ROWS
from tests.test_ranking import FACETED, Oracle, assert_same
from tests.testapp.models import Competitor, Player
from tests.testapp.zrank import PlayerAscending, PlayerRank, VideoRank

pytestmark = pytest.mark.usefixtures("zrank")

SCORES = {pk: pk * pk % 101 for pk in range(1, 400)}


@pytest.mark.parametrize("count", [2, 3, 7, 16, 64])
def test_each_shard_lies_in_its_own_run_of_slots(count: int) -> None:
    for shard in range(count):
        slot = key_slot(name_of("player", shard, count).encode())
        assert shard == max(at for at in range(count) if at * 16384 // count <= slot)


@pytest.mark.parametrize("step", [1, 10, 1024])
def test_members_are_spread_evenly(step: int) -> None:
    counts = [0] * 16
    for pk in range(0, 16_000 * step, step):
        counts[shard_of(str(pk), 16)] += 1
    assert max(counts) < 1.2 * 1000


def test_parts_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    index = PlayerRank.instance()
    assert index.holders == (index,)
    assert index.holder_of("7") is index.declared is index
    monkeypatch.setattr(PlayerRank, "shards", 3)
    index = PlayerRank()
    names = [part.name for part in index.holders]
    assert [name.partition(".")[0] for name in names] == [f"{index.name}/3:{shard}" for shard in range(3)]
    assert all(part.declared is index and part.holders == (part,) for part in index.holders)
    assert index.holder_of("7") is index.holders[shard_of("7", 3)]


def test_a_shard_has_nothing_that_its_index_has_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows from a declaration is kept with it, and may be about its own name or its own keys."""
    monkeypatch.setattr(PlayerRank, "shards", 2)
    index = PlayerRank()
    assert index.layout == index.finding
    vars(index)["kept"] = "of the whole"
    assert vars(index.shard("player/2:0.1")).keys() == {"model", "name", "declared", "holders"}


@pytest.mark.parametrize(("count", "index"), [*zip(COUNTS, cycle(FACETED), strict=False)])
def test_every_verb_answers_as_sorted_lists_do(count: int, index: type[RankIndex]) -> None:
    divided = sharded(index, count)
    populate(divided, ROWS)
    ranking, oracle = divided.ranking, Oracle(index, ROWS, lambda row: True)
    assert_same(ranking, oracle, ROWS)
    assert_same(ranking.reversed().by("competition"), oracle.reversed().by("competition"), ROWS)


@pytest.mark.parametrize("count", COUNTS)
def test_draws_of_all_candidates_are_the_same_without_shards(count: int) -> None:
    """A score for four members each, so that ranking methods differ."""
    scores = {pk: pk // 4 for pk in range(1, 200)}
    fill(PlayerAscending, scores)
    whole = PlayerAscending.ranking
    others = whole.reversed().by("competition")
    expected = draws(whole), draws(others)
    fill(sharded(PlayerAscending, count), scores)
    ranking = sharded(PlayerAscending, count).ranking
    assert (draws(ranking), draws(ranking.reversed().by("competition"))) == expected


def draws(ranking: Any) -> list[Any]:
    near = ranking.recommend(77, 200, band=(2, 3))
    many = dict(ranking.recommend_many([1, 77, 1000], 200, band=1))
    return [
        list(near),
        near.candidates,
        {pk: found and list(found) for pk, found in many.items()},
        len(ranking.recommend(77, 5, ranks=4)),
        list(ranking.recommend(77, 100, band=0, widen=[5])),
    ]


@pytest.mark.part("remember")
@pytest.mark.django_db
def test_where_and_coroutines() -> None:
    players = [Player(name=str(at), level=at, is_active=at % 2 == 0) for at in range(40)]
    Player.objects.bulk_create(players)
    ranking = sharded(PlayerAscending, 3).ranking
    fill(type(ranking.index), {player.pk: player.level for player in players})
    found = ranking.recommend(players[20], 6, band=10, where=Q(is_active=True))
    assert len(found) == 6
    assert all(entry.score % 2 == 0 and abs(entry.score - 20) <= 10 for entry in found)

    async def ask() -> list[Any]:
        drawn = ranking.arecommend(players[20].pk, 4, band=2, seed=5)
        return await asyncio.gather(ranking.acount(), ranking.ascore(players[7].pk), drawn)

    count, score, drawn = asyncio.run(ask())
    assert (count, score) == (40, 7)
    assert list(drawn) == list(ranking.recommend(players[20].pk, 4, band=2, seed=5))
    shown = ranking.recommend(players[20].pk, 2, band=1, remember=timedelta(hours=1))
    (other,) = ranking.recommend(players[20].pk, 1, band=3, remember=timedelta(hours=1))
    assert other not in shown


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.part("combined", "groups")
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
        own = index.instance().holder_of("7")
        for part in index.instance().holders:
            if part is not own:
                monkeypatch.setattr(reader_of(part), "learning", mock.Mock(side_effect=AssertionError))
        assert 7 in index.group("live")

    @pytest.mark.part("combined")
    def test_filters_of_hundreds_of_groups_come_to_an_end(self, count: int) -> None:
        index = sharded(PlayerAscending, count)
        fill(index, SCORES)
        ranking = index.ranking
        for at in range(8):
            index.group(f"{at}-0").add(300, 301)
            ranking = ranking.filter(group__in=[f"{at}-{number}" for number in range(50)])
        assert {entry.pk for entry in ranking.recommend(300, 3, band=10**6)} == {301}


REGIONS = {pk: f"region {pk % 5}" for pk in range(1, 200)}


class Regional(RankIndex):
    name = "regional"
    model = Competitor
    order = ("-points",)
    facets = ("region",)


def in_regions(count: int) -> type[RankIndex]:
    """An index of people in five regions."""
    index = sharded(Regional, count)
    load(index, ((pk, pk, region) for pk, region in REGIONS.items()))
    return index


@pytest.mark.part("combined")
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.part("combined", "groups")
def test_values_of_a_facet_are_counted(count: int) -> None:
    index = in_regions(count)
    assert index.ranking.counts("region") == Counter(REGIONS.values())
    assert index.ranking.filter(region="region 3").count() == 40
    index.group("few").add(*range(1, 11))
    assert index.ranking.filter(group="few").counts("region") == dict.fromkeys(set(REGIONS.values()), 2)


def forget_trust(index: type[RankIndex]) -> None:
    """Have every server looked up again by the next read."""
    for one in (index.instance(), *index.instance().holders):
        reader_of(one).trust.until = 0.0


class TestHealth:
    """Each shard's is checked once a second."""

    def test_one_that_was_never_built(self) -> None:
        index = in_regions(3)
        store = Store(index.instance().holders[1].name)
        store.client.delete(store.keys.meta)
        with pytest.raises(NotBuilt, match=f"rebuild_zrank {index.instance().name}$"):
            index.ranking.counts("region")

    def test_one_that_lost_writes(self, settings: Any) -> None:
        index = sharded(PlayerAscending, 3)
        fill(index, SCORES)
        own = index.instance().holder_of("7")
        other = next(part for part in index.instance().holders if part is not own)
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
        part = index.instance().holders[2]
        trust(Store(part.name, part.layout), "01234567-otherwise")
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
        for part in index.instance().holders:
            store = Store(part.name)
            store.client.hset(store.keys.meta, "owner", "the database")
            health = store.check_health()
            Build.objects.create(index=part.name, build=health.build, term=health.term)
        for _ in range(2):
            forget_trust(index)
            with django_assert_num_queries(1):
                index.ranking.count()
                index.ranking.count()
        part = index.instance().holders[5]
        Build.objects.filter(index=part.name).update(term=1)
        forget_trust(index)
        with pytest.raises(IndexUnhealthy, match=part.name):
            index.ranking.count()


@pytest.mark.parametrize("count", [3, 16])
def test_shards_are_put_in_place_one_by_one(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebuild swaps the next one whenever a read has learnt of the one before."""
    # Nobody looks meanwhile at what the servers hold: the keys of these builds are not as they would find them.
    monkeypatch.setattr("django_zrank.redis.reader._TRUST", 600.0)
    index = in_regions(count)
    parts = [reader_of(part) for part in index.instance().holders]
    old = [part.learn().build for part in parts]
    in_regions(count)
    metas = [(part.keys.meta, part.learn().build) for part in parts]
    index.ranking.count()
    client = parts[0].client
    for part, build in zip(parts, old, strict=True):
        client.hset(part.keys.meta, "build", build)
        part.believe(build)
    send = ShardedReader.send

    def swap(reader: ShardedReader, request: Request[Any]) -> list[Any]:
        if metas and request.calls[0].command is COUNT_FACET:
            client.hset(metas[0][0], "build", metas.pop(0)[1])
        return send(reader, request)

    monkeypatch.setattr(ShardedReader, "send", swap)
    assert index.ranking.counts("region") == Counter(REGIONS.values())
    assert metas == []


class TestScores:
    """Write-behind scores."""

    def test_several_of_one_shard_only(self) -> None:
        index = sharded(VideoRank, 3)
        fill(index, SCORES)
        own = [pk for pk in SCORES if index.instance().holder_of(str(pk)) is index.instance().holders[0]][:5]
        changed = index.scores.increment(dict.fromkeys(own, 1))
        assert changed == {pk: SCORES[pk] + 1 for pk in own}
        with pytest.raises(ValueError, match="members of several can't be changed at once"):
            index.scores.increment(dict.fromkeys([*SCORES][:20], 1))
        assert index.ranking.score(own[0]) == SCORES[own[0]] + 1
