"""Operations on the parts of an index, some of which can't be reached."""

from __future__ import annotations

from typing import Any

import pytest

from django_zrank import RankIndex
from django_zrank.exceptions import IndexUnavailable
from django_zrank.sync import flush as flush_module
from django_zrank.sync.each_shard import EachShard
from tests.testapp.zrank import NicknameRank

INDEX = NicknameRank.instance()


@pytest.mark.usefixtures("zrank")
def test_a_part_that_has_failed_is_skipped() -> None:
    shards, asked = EachShard(INDEX), []

    def fail(part: RankIndex) -> None:
        asked.append(part)
        raise IndexUnavailable("away")

    for _ in range(2):
        assert shards.each(INDEX.parts, fail) == {}
    assert asked == [INDEX]
    with pytest.raises(IndexUnavailable, match="away"):
        shards.require()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("zrank")
def test_parts_share_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = tuple(INDEX.called(name) for name in "abc")
    monkeypatch.setattr(INDEX, "parts", parts)
    limits = []

    def write(part: RankIndex, *, limit: int | None, **how: Any) -> int:
        limits.append(limit)
        return 2

    monkeypatch.setattr(flush_module, "write_scores", write)
    assert flush_module.flush(INDEX, limit=5, skip_locked=True) == 6
    assert limits == [5, 3, 1]
