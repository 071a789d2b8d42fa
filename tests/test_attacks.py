"""Histories and values that once led to a wrong answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.populations import fill
from tests.testapp.models import Ticket
from tests.testapp.zrank import ByInteger, ByMoment, ByPrice, NicknameRank, PlayerRank

pytestmark = pytest.mark.usefixtures("zrank")


@pytest.mark.parametrize(
    "values", [[0.1], [0.3, 0.3], [1.1, 1.1000000000000003], [-0.7], [1e308, -1e308], [5e-324]]
)
def test_ranges_of_floats_end_with_the_lowest_and_the_highest(values: list[float]) -> None:
    """Rounding once made ranges that began after their end, or beyond all scores."""
    fill(NicknameRank, {f"n{at}": value for at, value in enumerate(values)})
    for count in (1, 2, 3, 7, 20, 49, 100):
        bins = NicknameRank.ranking.histogram(count)
        assert all(one.low <= one.high for one in bins)
        assert sum(one.members for one in bins) == len(values)
        assert (bins[0].low, bins[-1].high) == (min(values), max(values))


def test_the_score_at_the_percentile_of_a_member_is_its_own() -> None:
    """99.9 as a float is a little more than 99.9."""
    for size in (11, 1001):
        fill(PlayerRank, {score: score for score in range(size)})
        ranking = PlayerRank.ranking
        for score in range(0, size, 7):
            assert ranking.score_at_percentile(ranking.percentile(score)) == score
    assert (ranking.percentile(999), ranking.score_at_percentile(99.9)) == (99.9, 999)


def test_a_tier_is_no_larger_than_its_share() -> None:
    """A tenth of a percent as a float is a little more than that."""
    fill(PlayerRank, {score: score for score in range(1000)})
    tiers = [PlayerRank.ranking.tier(score, (0.1, 1.1)) for score in (999, 998, 989, 988)]
    assert tiers == [0, 1, 1, 2]


@pytest.mark.parametrize("row", [{"price": "abc"}, {"integer": float("inf")}, {"price": Decimal("NaN")}])
def test_an_instance_without_a_number(row: dict[str, Any]) -> None:
    index = ByPrice if "price" in row else ByInteger
    with pytest.raises(ValueError, match="at: "):
        index.ranking.near(Ticket(**row))


def test_a_naive_datetime_is_in_the_default_time_zone(settings: Any) -> None:
    """As Django takes it in filters and in rows. It was once taken for UTC: nine hours late in Tokyo."""
    settings.TIME_ZONE = "Asia/Tokyo"
    row, naive = Ticket(moment=datetime(2026, 3, 1, 3, tzinfo=UTC)), datetime(2026, 3, 1, 12)
    fill(ByMoment, {row.pk: row.moment})
    ranking, none = ByMoment.ranking, timedelta(0)
    assert ranking.count_between(naive, naive) == 1
    assert ranking.near(naive, band=none)[0].pk == row.pk
    assert ranking.near(Ticket(moment=naive), band=none)[0].pk == row.pk
