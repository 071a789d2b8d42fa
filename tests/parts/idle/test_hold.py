"""A touch doesn't hold the server."""

from __future__ import annotations

import pytest
from redis import Redis

from django_zrank.codec.layout import PLAIN, Layout
from django_zrank.idle.touching import LIMIT, Touch
from tests.test_hold import CEILING, FACETS, built, watched


@pytest.mark.parametrize("layout", [PLAIN, FACETS], ids=["plain", "facets"])
def test_a_touch_of_many_is_cut(zrank: Redis, layout: Layout) -> None:
    store = built(layout)
    members = [*map(str, range(LIMIT - 2)), "missing", "absent"]
    with watched(zrank) as costs:
        assert store.run(Touch(layout, members).steps) == (members[-2:], members[:-2])
    assert max(costs) <= CEILING
