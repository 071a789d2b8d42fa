"""The shards of an index: their names, and whose they are."""

from __future__ import annotations

import pytest
from redis.crc import key_slot

from django_zrank.codec.shards import name_of, shard_of
from tests.testapp.zrank import PlayerRank


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


def test_an_index_has_one_part_itself() -> None:
    index = PlayerRank.instance()
    assert index.parts == (index,)
    assert index.part_of("7") is index.whole is index


def test_parts_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlayerRank, "shards", 3)
    index = PlayerRank()
    names = [part.name for part in index.parts]
    assert [name.partition(".")[0] for name in names] == [f"{index.name}/3:{shard}" for shard in range(3)]
    assert all(part.whole is index and part.parts == (part,) for part in index.parts)
    assert index.part_of("7") is index.parts[shard_of("7", 3)]
