"""Bounds on what one client's combined filters may take of Redis."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from redis import Redis

from django_zrank.combined.keys import registry_of
from django_zrank.exceptions import FilterNotReady, FilterTooLarge
from django_zrank.queries.counts import CountFacet
from django_zrank.ranking import Ranking
from tests.populations import fill, populate
from tests.test_ranking import CompetitorRank
from tests.testapp.zrank import PlayerRank

SIZE = 6_000
REGIONS = ("kantou", "kansai", "tohoku", "kyushu")


class Bounded(CompetitorRank):
    name = "bounded"
    facets = ("region", "platform", "tags")


@pytest.fixture
def ranking(zrank: Redis) -> Ranking[Any]:
    populate(
        Bounded,
        {
            pk: {"points": pk, "region": REGIONS[pk % 4], "platform": ("pc", "ps")[pk % 2], "tags": {pk % 3}}
            for pk in range(1, 400)
        },
    )
    return Bounded.ranking


def test_a_setting_bounds_what_is_scanned(ranking: Ranking[Any], settings: Any) -> None:
    settings.ZRANK = {"MAX_SCAN": 100}
    with pytest.raises(FilterTooLarge, match=r'399 members, more than 100 \(ZRANK\["MAX_SCAN"\]\)'):
        ranking.exclude(region="kantou").count_between()
    with pytest.raises(FilterTooLarge, match="more than 100"):  # and no call goes beyond
        ranking.within(scan=1000).exclude(region="kantou").count_between()
    settings.ZRANK = {"MAX_SCAN": 1000}
    assert ranking.within(scan=399).exclude(region="kantou").count_between() == 300
    with pytest.raises(FilterTooLarge, match="399 members, more than 200"):
        ranking.exclude(region="kansai").within(scan=200).count_between()


def test_one_who_may_not_wait_is_refused_and_a_later_call_goes_on(zrank: Redis, settings: Any) -> None:
    populate(
        Bounded,
        {
            pk: {"points": pk, "region": REGIONS[pk % 4], "platform": "pc", "tags": {1}}
            for pk in range(1, SIZE + 1)
        },
    )
    hasty = Bounded.ranking.exclude(region="kantou").exclude(region="nowhere").within(seconds=0)
    settings.ZRANK = {"FILTER_TIMEOUT": 1e-9}
    with pytest.raises(FilterNotReady, match=r'ZRANK\["FILTER_TIMEOUT"\]'):
        Bounded.ranking.exclude(region="kansai").count_between()
    with pytest.raises(FilterNotReady, match=r"after 0 seconds \(within\(\)\)"):
        hasty.count()
    settings.ZRANK = {}
    patient, found = hasty.within(seconds=0.05), None
    while found is None:
        with suppress(FilterNotReady):
            found = patient.count()
    assert found == SIZE * 3 // 4


def test_no_more_is_kept_at_a_time(ranking: Ranking[Any], settings: Any) -> None:
    settings.ZRANK = {"MAX_COMBINED_FILTER_BYTES": 20_000}
    made, refused = [], []
    for region in REGIONS:
        try:
            assert ranking.exclude(region=region).count_between() in (299, 300)
            made.append(region)
        except FilterNotReady as error:
            refused.append(str(error))
    assert made
    assert refused
    assert all("MAX_COMBINED_FILTER_BYTES" in error for error in refused)
    # What is there is read on, and what needs no combined filter is asked as ever.
    assert ranking.exclude(region=made[0]).count_between() in (299, 300)
    assert ranking.filter(region="kantou").count() == 99


def test_only_large_ones_are_counted(zrank: Redis, settings: Any) -> None:
    """They take more than 1 MiB."""
    settings.ZRANK = {"MAX_COMBINED_FILTERS": 1}
    fill(PlayerRank, {pk: pk for pk in range(1, 48_001)})
    ranking, live = PlayerRank.ranking, PlayerRank.ranking.store.live
    members = {"first": range(1, 24_001), "second": range(24_001, 48_001), "few": range(5)}
    for group, own in members.items():
        zrank.zadd(live.beside("group", group), dict.fromkeys(own, math.inf))
    assert ranking.filter(group="first").count() == 24_000
    (first,) = zrank.zrange(registry_of(live) + ":large", 0, -1)
    for other in ("few", "nobody"):
        assert ranking.filter(group=other).count() <= 5  # small ones
    with pytest.raises(FilterNotReady, match=r" 3 other combined filters take .*MAX_COMBINED_FILTERS"):
        ranking.filter(group="second").count()
    assert ranking.filter(group="first").count() == 24_000  # is there
    for key in (registry_of(live), registry_of(live) + ":large"):  # its time is over
        zrank.zadd(key, {first: 1})
    assert ranking.filter(group="second").count() == 24_000
    assert first not in zrank.zrange(registry_of(live) + ":large", 0, -1)


def test_one_beside_thousands_measures_only_itself(
    zrank: Redis, ranking: Ranking[Any], settings: Any
) -> None:
    settings.ZRANK = {"MAX_COMBINED_FILTERS": 10_000}
    registry = registry_of(ranking.store.live)
    zrank.zadd(registry, {f"{registry}:of-another:{number}": 1e15 for number in range(3000)})
    zrank.config_resetstat()
    assert ranking.exclude(region="kantou").count_between() == 300
    stats: Any = zrank.info("commandstats")
    assert 0 < stats["cmdstat_memory|usage"]["calls"] < 50


def test_memory_is_that_of_those_in_the_list(zrank: Redis, ranking: Ranking[Any]) -> None:
    registry = registry_of(ranking.store.live)

    def sizes() -> dict[bytes, int]:
        found: Any = zrank.hgetall(registry + ":sizes")
        each = {name: int(size) for name, size in found.items()}
        assert each[b""] == sum(size for name, size in each.items() if name)
        return each

    for region in REGIONS[:3]:
        ranking.exclude(region=region).count_between()
    first, *others = zrank.zrange(registry, 0, -1)
    assert sizes()[b""] > 3 * 299 * 10
    zrank.zadd(registry, {first: 1})
    ranking.exclude(region=REGIONS[3]).count_between()
    assert sizes().keys() == {b"", *zrank.zrange(registry, 0, -1)} > {*others}
    zrank.unlink(registry)  # it is evicted
    assert ranking.filter(region="kantou", platform="pc").count() == 99
    assert len(sizes()) == 2
    assert all(0 < zrank.ttl(key) <= 130 for key in (registry, registry + ":sizes"))
    assert not zrank.exists(registry + ":large")


def test_values_to_count_are_bounded(ranking: Ranking[Any]) -> None:
    assert sum(ranking.within(scan=4).counts("region").values()) == 399
    with pytest.raises(FilterTooLarge, match="region: there are 4 values to count, more than 3"):
        ranking.within(scan=3).counts("region")


def test_counts_of_several_shards_share_a_round_trip_as_they_cost(ranking: Ranking[Any]) -> None:
    facet = Bounded.instance().faceting.all[0]
    steps: Any = CountFacet(facet).steps(ranking.view, ranking.store.live)
    first = next(steps).calls[0].cost
    assert 0 < 16 * first <= 3000, "few values of 16 shards take one round trip"
    pairs = [part for at in range(60) for part in (b"region:%d" % at, 1)]
    assert 500 < steps.send([[100, *pairs]]).calls[0].cost < 3000


@pytest.mark.parametrize("verb", ["filter", "exclude"])
def test_values_of_a_composite_facet_make_at_most_a_thousand_combinations(zrank: Redis, verb: str) -> None:
    """Each is a key in every call: a million of them, from two parameters of a thousand values, held the server for
    seconds."""
    populate(CompetitorRank, {1: {"points": 1, "region": "0", "platform": "0", "tags": set()}})
    values = [str(at) for at in range(100_000)]
    ranking = getattr(CompetitorRank.ranking, verb)
    assert ranking(region__in=values[:40], platform__in=values[:25]).count() == (verb == "filter")
    for regions, platforms in ((41, 25), (10**5, 10**5)):
        with pytest.raises(FilterTooLarge, match=r"region,platform: these values make .* combinations"):
            ranking(region__in=values[:regions], platform__in=values[:platforms])
    assert ranking(region__in=values[:1001]).count() == (verb == "filter")


def test_wrong_bounds(ranking: Ranking[Any]) -> None:
    for wrong in ({"seconds": -1}, {"scan": -1}, {"seconds": float("nan")}):
        with pytest.raises(ValueError, match=f"within: expected {next(iter(wrong))}"):
            ranking.within(**wrong)  # type: ignore[arg-type]


def test_draws_from_many_bands_are_not_refused(ranking: Ranking[Any], settings: Any) -> None:
    """Each makes the combined filter for its own band, which is of no use to others."""
    rows = {
        pk: {
            "points": pk,
            "region": "kansai" if pk % 150 == 0 else "kantou",
            "platform": "pc",
            "tags": {pk % 3},
        }
        for pk in range(1, 4001)
    }
    populate(Bounded, rows)
    settings.ZRANK = {"MAX_COMBINED_FILTER_BYTES": 100_000}
    few = ranking.exclude(region="kantou").exclude(region="nowhere")
    for pk in range(1000, 3000, 100):
        drawn = few.recommend(pk, 5, band=900)
        near = {at for at, row in rows.items() if abs(at - pk) <= 900 and row["region"] == "kansai"}
        assert {entry.pk for entry in drawn} <= near
        assert len(drawn) == min(5, len(near - {pk}))
