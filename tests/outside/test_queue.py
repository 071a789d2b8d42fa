"""Groups of members who wait, and combinations of filters that many clients ask for."""

from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.testing import sync_now
from tests.testapp.models import Competitor
from tests.testapp.zrank import CompetitorRank

pytestmark = pytest.mark.django_db(transaction=True)


def test_many_small_combinations_of_one_client_keep_nobody_from_theirs(zrank: Redis) -> None:
    """ZRANK["MAX_COMBINATIONS"] is 100."""
    Competitor.objects.bulk_create(Competitor(points=at, region=str(at % 130)) for at in range(130))
    sync_now(CompetitorRank)
    for region in range(130):
        assert CompetitorRank.ranking.exclude(region=str(region)).count() == 129
