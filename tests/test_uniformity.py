"""Every set of candidates is equally likely: shown by chi-square, and that the check can fail."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from django_zrank import RankIndex
from tests.populations import fill
from tests.testapp.models import Player

DRAWS = 8_000
"""Members drawn in all, of sides that are looked up: so many tell a sampler that is wrong one time in ten."""

MANY_DRAWS = 40_000
"""Members drawn in all, of sides that are read whole: of six members there are few sets, so it takes more to tell."""


class Uniform(RankIndex):
    model = Player
    name = "uniform"
    order = ("-level",)
    band = 10**6


@dataclass(frozen=True)
class Side:
    """Candidates on one side of me, and how many of them are drawn at a time."""

    candidates: tuple[int, ...]
    drawn: int

    def deviation(self, draws: Iterable[Sequence[int]]) -> float:
        """The standard deviations by which the chi-square of the drawn sets lies above its mean.

        Infinite where something came up that is no set of candidates of the right size.
        """
        counts = Counter(tuple(sorted(draw)) for draw in draws)
        cells, total = math.comb(len(self.candidates), self.drawn), counts.total()
        allowed = set(self.candidates)
        if any(len(set(one)) != self.drawn or not set(one) <= allowed for one in counts):
            return math.inf
        expected = total / cells
        chi_square = sum((n - expected) ** 2 for n in counts.values()) / expected
        chi_square += (cells - len(counts)) * expected
        return (chi_square - (cells - 1)) / math.sqrt(2 * (cells - 1))


LIMIT = 4.0
"""Standard deviations: a right sampler passes 30,000 times of 30,001; the seeds are fixed, so it is always."""


@dataclass(frozen=True)
class Case:
    """A population of pks 1 … size, scores equal to the pk or all tied, me in the middle."""

    size: int
    n: int
    tied: bool = False
    excluded: frozenset[int] = field(default_factory=frozenset)
    draws: int = 2 * DRAWS

    @property
    def me(self) -> int:
        return (self.size + 1) // 2

    def sides(self) -> tuple[Side, Side]:
        order = sorted(range(1, self.size + 1), key=str) if self.tied else list(range(1, self.size + 1))
        order.reverse()
        place = order.index(self.me)
        before, after = (
            tuple(pk for pk in side if pk not in self.excluded)
            for side in (order[:place], order[place + 1 :])
        )
        return Side(before, -(-self.n // 2)), Side(after, self.n // 2)


CASES = {
    "sides that are read whole": Case(size=13, n=6, draws=MANY_DRAWS),
    "sides that are looked up": Case(size=41, n=4),
    "an odd number": Case(size=41, n=3),
    "ties": Case(size=41, n=4, tied=True),
    "some excluded": Case(size=61, n=4, excluded=frozenset(range(1, 62, 3))),
    "most excluded": Case(size=401, n=4, excluded=frozenset(pk for pk in range(1, 402) if pk % 20)),
}


def deviation_of(case: Case, recommend: Callable[..., Iterable[int]], draws: int = DRAWS) -> float:
    """The greater deviation of both sides when ``recommend(seed=…)`` draws that many members, best first."""
    return deviation([tuple(recommend(seed=seed)) for seed in range(draws // case.n)], *case.sides())


def deviation(drawn: Iterable[Sequence[int]], before: Side, after: Side) -> float:
    """The greater deviation of two sides, of draws of which the first members are from ``before``."""
    first, second = zip(*((one[: before.drawn], one[before.drawn :]) for one in drawn), strict=True)
    return max(before.deviation(first), after.deviation(second))


@pytest.mark.usefixtures("zrank")
def test_every_set_is_equally_likely() -> None:
    assert_uniform(CASES["sides that are looked up"], DRAWS)


@pytest.mark.slow
@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_every_set_is_equally_likely_in_many_draws(case: Case) -> None:
    assert_uniform(case, case.draws)


def assert_uniform(case: Case, draws: int) -> None:
    fill(Uniform, {pk: 0 if case.tied else pk for pk in range(1, case.size + 1)})

    def recommend(seed: int) -> list[int]:
        drawn = Uniform.ranking.recommend(case.me, case.n, exclude=case.excluded, seed=seed)
        return [entry.pk for entry in drawn]

    assert deviation_of(case, recommend, draws) < LIMIT


def window(side: Side, rng: random.Random) -> tuple[int, ...]:
    """A run of neighbours: what ZRANGEBYSCORE with a random LIMIT offset gives."""
    start = rng.randrange(len(side.candidates) - side.drawn + 1)
    return side.candidates[start : start + side.drawn]


def replaced(side: Side, rng: random.Random) -> tuple[int, ...]:
    """The same member may come twice: count times a random rank."""
    return tuple(rng.choices(side.candidates, k=side.drawn))


def distinct(side: Side, rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.sample(side.candidates, side.drawn))


def leaning(side: Side, rng: random.Random) -> tuple[int, ...]:
    """Distinct, but those near the first candidate come one time in ten more often."""
    pick = set(rng.sample(side.candidates, side.drawn))
    if rng.random() < 0.1:
        pick = pick - {max(pick)} | {side.candidates[0]}
    return tuple(pick) if len(pick) == side.drawn else tuple(rng.sample(side.candidates, side.drawn))


@pytest.mark.parametrize("sampler", [window, replaced, leaning, distinct])
@pytest.mark.parametrize(
    ("side", "draws"),
    [
        *((side, DRAWS // 4) for side in CASES["sides that are looked up"].sides()),
        (CASES["sides that are read whole"].sides()[0], MANY_DRAWS // 6),
    ],
)
def test_so_few_draws_tell_a_wrong_sampler(
    side: Side, draws: int, sampler: Callable[[Side, random.Random], tuple[int, ...]]
) -> None:
    rng = random.Random(1)
    is_wrong = side.deviation(sampler(side, rng) for _ in range(draws)) > LIMIT
    assert is_wrong == (sampler is not distinct)
