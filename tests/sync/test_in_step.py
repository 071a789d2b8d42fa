"""Operations on the parts of an index, some of which can't be reached."""

from __future__ import annotations

import pytest

from django_zrank import RankIndex
from django_zrank.exceptions import IndexUnavailable
from django_zrank.sync.in_step import InStep
from tests.testapp.zrank import NicknameRank

INDEX = NicknameRank.instance()


@pytest.mark.usefixtures("zrank")
def test_a_part_that_has_failed_is_skipped() -> None:
    shards, asked = InStep(INDEX.holders), []

    def fail(part: RankIndex) -> None:
        asked.append(part)
        raise IndexUnavailable("away")

    for _ in range(2):
        assert shards.each(INDEX.holders, fail) == {}
    assert asked == [INDEX]
    with pytest.raises(IndexUnavailable, match="away"):
        shards.require()
