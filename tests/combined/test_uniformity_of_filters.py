"""Under a filter that no facet covers every set of candidates is equally likely too, in however many round trips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from redis import Redis

from django_zrank.combined import draws
from django_zrank.queries.request import Request
from django_zrank.redis.executor import Executor
from tests.populations import fill
from tests.scripts import variants
from tests.test_uniformity import LIMIT, Side, Uniform, deviation

PASSING = 8
"""Members that pass on each side of me; three of them are drawn before me, two after."""


@dataclass(frozen=True)
class Case:
    """A share of the members that pass, and the most that a draw does in one round trip, and one by one."""

    share: int
    look_ups: int = 900
    patience: int = 10_000
    read: int = 0
    excluded: int = 0

    @property
    def size(self) -> int:
        return 2 * PASSING * self.share + 1

    @property
    def me(self) -> int:
        return PASSING * self.share + 1

    @property
    def passing(self) -> list[int]:
        # Evenly apart, which a draw that used the same numbers again would show.
        return [pk for pk in range(1, self.size + 1, self.share) if pk != self.me]


CASES = {
    "half": Case(2),
    "half, in rounds": Case(2, look_ups=2),
    "1 in 40": Case(40),
    "1 in 40, in rounds": Case(40, look_ups=100, patience=10**6),
    "1 in 40, combined": Case(40, patience=50),
    "1 in 40, read": Case(40, patience=50, read=20_000),
    "1 in 40, and others excluded": Case(40, excluded=150),
    "1 in 1,000": Case(1000, patience=500),
}


@pytest.fixture(params=CASES.values(), ids=list(CASES))
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, zrank: Redis) -> Case:
    case: Case = request.param
    fill(Uniform, {pk: pk for pk in range(1, case.size + 1)})
    group = Uniform.group("live")
    group.clear()
    group.add(*case.passing)
    monkeypatch.setattr(draws, "_LOOK_UPS", case.look_ups)
    monkeypatch.setattr(draws, "_PATIENCE", (case.patience, case.patience))
    monkeypatch.setattr(draws, "_READ", case.read)
    return case


def deviation_of(case: Case, draws: int) -> float:
    """The greater deviation of the chi-square from its mean, of the sets drawn before me and after me."""
    ranking = Uniform.ranking.filter(group="live")
    excluded = [pk for pk in range(2, case.size) if pk not in case.passing][: case.excluded]
    drawn = [
        [entry.pk for entry in ranking.recommend(case.me, 5, exclude=excluded, seed=seed)]
        for seed in range(draws)
    ]
    before = Side(tuple(pk for pk in case.passing if pk > case.me), 3)
    after = Side(tuple(pk for pk in case.passing if pk < case.me), 2)
    return deviation(drawn, before, after)


@pytest.mark.parametrize(
    "case", [CASES[name] for name in CASES if name.startswith("1 in 40, ")], indirect=True
)
def test_every_set_is_equally_likely(case: Case) -> None:
    assert deviation_of(case, 300) < LIMIT


@pytest.mark.slow
def test_every_set_is_equally_likely_in_many_draws(case: Case) -> None:
    assert deviation_of(case, 2_000) < LIMIT


@pytest.mark.parametrize("case", [CASES["1 in 40, in rounds"]], indirect=True)
def test_who_leaves_before_it_is_dealt_is_not_drawn(case: Case) -> None:
    ranking, group, send = Uniform.ranking.filter(group="live"), Uniform.group("live"), Executor.send
    left: set[int] = set()

    def leaving(self: Executor, request: Request) -> list[Any]:
        replies = send(self, request)
        if request.calls[0].command in variants(draws.DEAL_TESTED) and not left:
            dealt = {int(one) for side in replies[0][4:6] for one in side[2::2] if one}
            left.update({*case.passing} - dealt)
            group.remove(*left)
        return replies

    with mock.patch.object(Executor, "send", leaving):
        drawn = ranking.recommend(case.me, 5, seed=3)
    assert left
    assert not left & {entry.pk for entry in drawn}


@pytest.mark.parametrize("case", [CASES["1 in 40, combined"]], indirect=True)
def test_nobody_is_left_out_where_the_band_is_exhausted(case: Case) -> None:
    ranking = Uniform.ranking.filter(group="live")
    assert {entry.pk for entry in ranking.recommend(case.me, 500)} == set(case.passing)
    near = ranking.recommend(case.me, 5, band=60, widen=(100, 130), seed=1)
    assert [entry.pk for entry in near] == [
        case.me + 120,
        case.me + 80,
        case.me + 40,
        case.me - 40,
        case.me - 80,
    ] or (len(near) == 5 and near.band == (130, 130))


def test_who_was_found_in_one_band_may_be_drawn_from_the_next(zrank: Redis) -> None:
    me, near, far = 201, 251, 51
    fill(Uniform, {pk: pk for pk in range(1, 402)})
    group = Uniform.group("live")
    group.clear()
    group.add(near, far)
    ranking = Uniform.ranking.filter(group="live")
    for seed in range(10):
        drawn = ranking.recommend(me, 2, band=100, widen=(200,), seed=seed)
        assert {entry.pk for entry in drawn} == {near, far}


@pytest.mark.parametrize("narrowed", [False, True])
@pytest.mark.parametrize("method", ["ordinal", "competition"])
def test_ranks_count_those_who_are_excluded(zrank: Redis, narrowed: bool, method: str) -> None:
    fill(Uniform, {pk: pk for pk in range(1, 101)})
    group = Uniform.group("live")
    group.clear()
    group.add(*range(1, 101))
    ranking = Uniform.ranking.by(method)
    ranking = ranking.filter(group="live") if narrowed else ranking
    drawn = ranking.recommend(50, 50, ranks=1, widen=(10,), exclude=range(41, 50))
    assert [entry.pk for entry in drawn] == [*range(60, 50, -1), 40]
    assert narrowed or [entry.rank for entry in drawn] == [*range(41, 51), 61]
    assert drawn.band == (10, 10)


def test_ranks_are_drawn_until_the_band_is_exhausted(zrank: Redis) -> None:
    fill(Uniform, {pk: pk for pk in range(1, 101)})
    excluded = [pk for pk in range(30, 71) if pk not in (35, 50)]
    assert [entry.pk for entry in Uniform.ranking.recommend(50, 1, ranks=20, exclude=excluded)] == [35]
    assert not Uniform.ranking.recommend(50, 1, ranks=20, exclude=[*excluded, 35])
