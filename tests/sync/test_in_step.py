"""Operations on several indexes in step, some of which can't be reached."""

from __future__ import annotations

import pytest
from redis.exceptions import ConnectionError

from django_zrank import RankIndex
from django_zrank.exceptions import IndexUnavailable
from django_zrank.sync.in_step import InStep
from tests.testapp.zrank import NicknameRank, PlayerRank

INDEX = NicknameRank.instance()


@pytest.mark.usefixtures("zrank")
def test_an_index_that_has_failed_is_skipped() -> None:
    step, asked = InStep(INDEX.holders), []

    def fail(index: RankIndex) -> None:
        asked.append(index)
        raise IndexUnavailable("away")

    for _ in range(2):
        assert step.each(INDEX.holders, fail) == {}
    assert asked == [INDEX]
    with pytest.raises(IndexUnavailable, match="away"):
        step.require()


@pytest.mark.usefixtures("zrank")
def test_whose_server_has_gone_is_skipped_though_it_has_answered_before() -> None:
    both = INDEX, PlayerRank.instance()
    step, asked = InStep(both), []

    def refuse(index: RankIndex) -> None:
        asked.append(index)
        raise IndexUnavailable("away") from ConnectionError("refused")

    assert step.each(both, lambda index: index.name) == {index: index.name for index in both}
    assert step.each(both, refuse) == {}
    assert asked == [INDEX]
    assert {*step.failed} == {*both}
