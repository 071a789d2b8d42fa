"""Under a filter that no facet covers every set of candidates is equally likely too, in however many round trips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from redis import Redis

from django_zrank.queries import sampling
from django_zrank.queries.request import Request
from django_zrank.redis.executor import Executor
from django_zrank.store import Change, Store
from tests.populations import fill
from tests.test_uniformity import LIMIT, Side, Uniform

PASSING = 8
"""Members that pass on each side of me; three of them are drawn before me, two after."""


@dataclass(frozen=True)
class Case:
    """A share of the members that pass, and the most that a draw does in one round trip, and one by one."""

    share: int
    look_ups: int = 900
    most_tested: int = 10_000
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
    "1 in 40, in rounds": Case(40, look_ups=100, most_tested=10**6),
    "1 in 40, intersected": Case(40, most_tested=50),
    "1 in 40, excluded by a set": Case(40, excluded=150),
    "1 in 1,000": Case(1000, most_tested=500),
}


@pytest.fixture(params=CASES.values(), ids=list(CASES))
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, zrank: Redis) -> Case:
    case: Case = request.param
    fill(Uniform, {pk: pk for pk in range(1, case.size + 1)})
    group = Uniform.group("live")
    group.clear()
    group.add(*case.passing)
    monkeypatch.setattr(sampling, "_LOOK_UPS", case.look_ups)
    monkeypatch.setattr(sampling, "_MOST_TESTED", case.most_tested)
    if case.excluded:
        monkeypatch.setattr(sampling, "_EXCLUDED_AT_ONCE", 100)
    return case


def deviations(case: Case, draws: int) -> tuple[float, float]:
    """The deviations of the chi-square from its mean, of the sets drawn before me and after me."""
    ranking = Uniform.ranking.filter(group="live")
    excluded = [pk for pk in range(2, case.size) if pk not in case.passing][: case.excluded]
    drawn = [
        [entry.pk for entry in ranking.recommend(case.me, 5, exclude=excluded, seed=seed)]
        for seed in range(draws)
    ]
    before = Side(tuple(pk for pk in case.passing if pk > case.me), 3)
    after = Side(tuple(pk for pk in case.passing if pk < case.me), 2)
    return before.deviation(tuple(one[:3]) for one in drawn), after.deviation(tuple(one[3:]) for one in drawn)


@pytest.mark.parametrize(
    "case", [CASES[name] for name in CASES if name.startswith("1 in 40, ")], indirect=True
)
def test_every_set_is_equally_likely(case: Case) -> None:
    assert max(deviations(case, 300)) < LIMIT


@pytest.mark.slow
def test_every_set_is_equally_likely_in_many_draws(case: Case) -> None:
    assert max(deviations(case, 12_000)) < LIMIT


@pytest.mark.parametrize("case", [CASES["1 in 40, in rounds"]], indirect=True)
def test_a_draw_goes_on_with_what_it_has(case: Case) -> None:
    """Until the one who asks moves: then the band is another one, and it begins again."""
    ranking, store = Uniform.ranking.filter(group="live"), Store(Uniform.name)
    asked: list[tuple[Any, ...]] = []
    send = Executor.send

    def moving(self: Executor, request: Request[Any]) -> list[Any]:
        replies = send(self, request)
        (call, *_) = request.calls
        if getattr(call.command, "name", "") == "sample_anywhere":
            asked.append((call.arguments[14], len(call.arguments[15:]), replies[0][0]))
            if len(asked) == 2:
                change = [Change(str(case.me), case.me + 0.5)]
                store.apply_changes(store.begin_write(), change)
        return replies

    with mock.patch.object(Executor, "send", moving):
        drawn = ranking.recommend(case.me, 5, seed=2)
    assert len({entry.pk for entry in drawn} & set(case.passing)) == 5
    assert [since for since, *_ in asked[:3]] == [b"", *[str(case.me).encode()] * 2]
    assert asked[2][2] == b"moved"
    assert asked[3][:2] == (b"", 0)
    assert asked[2][1] > 0, "some were found before"


@pytest.mark.parametrize("case", [CASES["1 in 40, in rounds"]], indirect=True)
def test_who_leaves_while_it_is_drawn_is_not_drawn(case: Case) -> None:
    ranking, group, send = Uniform.ranking.filter(group="live"), Uniform.group("live"), Executor.send
    left: set[int] = set()

    def leaving(self: Executor, request: Request[Any]) -> list[Any]:
        replies = send(self, request)
        (call, *_) = request.calls
        found = replies[0][9:] if getattr(call.command, "name", "") == "sample_anywhere" else []
        if found and replies[0][0] == b"out of patience" and not left:
            left.add(int(found[0]))
            group.remove(int(found[0]))
        return replies

    with mock.patch.object(Executor, "send", leaving):
        drawn = ranking.recommend(case.me, 5, seed=3)
    assert left
    assert len(drawn) == 5
    assert not left & {entry.pk for entry in drawn}


@pytest.mark.parametrize("case", [CASES["1 in 40, intersected"]], indirect=True)
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


def test_who_was_found_in_one_band_may_be_drawn_from_the_next(
    zrank: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round that exhausts a band goes on to the next one by itself, with whom the rounds before have found."""
    me, near, far = 201, 251, 51
    fill(Uniform, {pk: pk for pk in range(1, 402)})
    group = Uniform.group("live")
    group.clear()
    group.add(near, far)
    ranking = Uniform.ranking.filter(group="live")
    monkeypatch.setattr(sampling, "_LOOK_UPS", 2000)  # the first round tests 80
    for seed in range(10):
        drawn = ranking.recommend(me, 2, band=100, widen=(200,), seed=seed)
        assert {entry.pk for entry in drawn} == {near, far}


@pytest.mark.parametrize("narrowed", [False, True])
@pytest.mark.parametrize("method", ["ordinal", "competition"])
def test_ranks_count_those_who_are_excluded_by_a_set(
    zrank: Redis, monkeypatch: pytest.MonkeyPatch, narrowed: bool, method: str
) -> None:
    fill(Uniform, {pk: pk for pk in range(1, 101)})
    group = Uniform.group("live")
    group.clear()
    group.add(*range(1, 101))
    ranking = Uniform.ranking.by(method)
    ranking = ranking.filter(group="live") if narrowed else ranking
    monkeypatch.setattr(sampling, "_EXCLUDED_AT_ONCE", 5)
    drawn = ranking.recommend(50, 50, ranks=1, widen=(10,), exclude=range(41, 50))
    assert [entry.pk for entry in drawn] == [*range(60, 50, -1), 40]
    assert narrowed or [entry.rank for entry in drawn] == [*range(41, 51), 61]
    assert drawn.band == (10, 10)


def test_ranks_are_drawn_until_the_band_is_exhausted(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(Uniform, {pk: pk for pk in range(1, 101)})
    monkeypatch.setattr(sampling, "_EXCLUDED_AT_ONCE", 5)
    monkeypatch.setattr(sampling, "_LOOK_UPS", 4)  # the first round tests 2
    excluded = [pk for pk in range(30, 71) if pk not in (35, 50)]
    assert [entry.pk for entry in Uniform.ranking.recommend(50, 1, ranks=20, exclude=excluded)] == [35]
    assert not Uniform.ranking.recommend(50, 1, ranks=20, exclude=[*excluded, 35])


def test_nobody_is_offered_whose_exclusion_is_gone(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(Uniform, {pk: pk for pk in range(1, 101)})
    send = Executor.send

    def forgetting(self: Executor, request: Request[Any]) -> list[Any]:
        if getattr(request.calls[0].command, "name", "") == "sample_anywhere":
            zrank.delete(*zrank.scan_iter("*:group:excluded:*"))
        return send(self, request)

    monkeypatch.setattr(sampling, "_EXCLUDED_AT_ONCE", 5)
    with mock.patch.object(Executor, "send", forgetting):
        drawn = Uniform.ranking.recommend(50, 50, band=10, exclude=range(41, 50))
    assert [entry.pk for entry in drawn] == [*range(60, 50, -1), 40]
