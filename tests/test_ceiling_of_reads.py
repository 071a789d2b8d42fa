"""No call of a reader holds the server for long: the commands of each round trip are counted, whatever is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from redis import Redis

from django_zrank.combined import draws
from django_zrank.queries import pages, positions, steps
from django_zrank.queries.request import Call, Request
from django_zrank.ranking import Ranking
from django_zrank.redis import asynchronous, executor, reader, reader_of, sending
from django_zrank.redis.keys import Keys
from django_zrank.redis.sending import in_trips
from tests.populations import load
from tests.sharded import sharded
from tests.test_ranking import CompetitorRank
from tests.without_parts.parts import PARTS

MEMBERS = 6000
ME = 3000
HOUR = timedelta(hours=1)
CEILING = 1200
"""Commands of one round trip. A look-up from a script takes one to four microseconds, ten where ties are searched."""

ARGUMENTS = 4500
"""Words of one round trip, and of its reply: what is looked up or written by one command, or read by a range."""


Measure = Callable[[Callable[[], Any]], list[tuple[int, int]]]

FIFTY = [f"show:{number}" for number in range(50)]


class Held(CompetitorRank):
    name = "held"
    order = ("-points", "lost")
    facets = ("region", "platform")
    group_counts = facets
    band = 10**6


@pytest.fixture(scope="module")
def asked() -> dict[str, Callable[[Ranking[Any]], Any]]:
    some = range(1, MEMBERS, 6)
    return {
        "ranks": lambda ranking: ranking.ranks(some),
        "ranks under filters": lambda ranking: ranking.filter(region="a", platform="b").ranks(some),
        "members by competition": lambda ranking: ranking.by("competition").members(some),
        "top": lambda ranking: ranking.top(5000),
        "between": lambda ranking: ranking.between(1, None, 5000),
        "around": lambda ranking: ranking.around(ME, 5000),
        "many": lambda ranking: list(ranking.recommend_many(range(1, 150), 10)),
        "many under filters": lambda ranking: list(
            ranking.filter(region__in=["a", "b"], platform="c").recommend_many(range(1, 30), 10)
        ),
        "many of few who pass": lambda ranking: list(
            ranking.filter(group="few").recommend_many(range(1, 40), 1)
        ),
        "many without thousands": lambda ranking: list(
            ranking.recommend_many(range(1, 20), 1, exclude=range(100, MEMBERS))
        ),
        "many remembered": lambda ranking: list(ranking.recommend_many([ME] * 20, 1, remember=HOUR)),
        "many whose band is shown": lambda ranking: list(
            ranking.recommend_many([ME] * 20, 1, band=0, remember=HOUR)
        ),
        "many by competition": lambda ranking: list(
            ranking.by("competition").recommend_many(range(1, 80), 10)
        ),
        "five hundred by competition": lambda ranking: ranking.by("competition").recommend(ME, 500),
        "five hundred": lambda ranking: ranking.recommend(ME, 500),
        "most excluded": lambda ranking: ranking.recommend(ME, 10, exclude=range(100, MEMBERS)),
        "many excluded": lambda ranking: ranking.recommend(ME, 10, exclude=range(1, 4000)),
        "ranks of which most are excluded": lambda ranking: ranking.recommend(
            ME, 500, ranks=2500, exclude=range(600, 5400)
        ),
        "nobody passes": lambda ranking: nobody(ranking).recommend(ME, 10),
        "nobody of many passes": lambda ranking: list(nobody(ranking).recommend_many(range(1, 40), 1)),
        "nobody passes fifty groups": lambda ranking: (
            nobody(ranking).exclude(group__in=FIFTY).recommend(ME, 10)
        ),
        "few pass": lambda ranking: ranking.filter(group="few").recommend(ME, 10),
        "few pass, remembered": lambda ranking: ranking.filter(group="few").recommend(ME, 10, remember=HOUR),
        "shown": lambda ranking: ranking.recommend(ME, 10, remember=HOUR),
        "shown, five hundred": lambda ranking: ranking.recommend(ME, 500, remember=HOUR),
        "all of a band shown": lambda ranking: ranking.recommend(ME, 500, band=1, remember=HOUR),
        "all of many bands shown": lambda ranking: ranking.recommend(
            ME, 500, band=0, widen=[1, 2, 3], remember=HOUR
        ),
        "all of some ranks shown": lambda ranking: ranking.recommend(ME, 500, ranks=500, remember=HOUR),
        "few pass, shown": lambda ranking: ranking.filter(group="few").recommend(ME, 500, remember=HOUR),
        "a third pass": lambda ranking: ranking.filter(group="show").recommend(ME, 350, band=1),
        "few pass a window": lambda ranking: ranking.filter(group="few").recommend(ME, 10, ranks=5),
        "fifty groups": lambda ranking: ranking.filter(group__in=FIFTY).recommend(ME, 10),
        "all but fifty groups": lambda ranking: ranking.exclude(group__in=FIFTY).recommend(ME, 10),
        "five hundred but fifty groups": lambda ranking: ranking.exclude(group__in=FIFTY).recommend(ME, 500),
        "fifty groups counted": lambda ranking: ranking.exclude(group__in=FIFTY).count(),
        "counted": lambda ranking: ranking.filter(group="show", region="a").count(),
        "counts": lambda ranking: ranking.filter(group="show").counts("region"),
        "all but": lambda ranking: ranking.exclude(region="a").top(10),
        "joined": lambda ranking: type(ranking.index).group("joined").add(*range(1, 5000)),
        "counted as joined": lambda ranking: type(ranking.index).group("joined").counts("region"),
        "left": lambda ranking: type(ranking.index).group("joined").remove(*range(1, 5000)),
        **(STANDINGS if PARTS["statistics"].is_there else {}),
    }


STANDINGS: dict[str, Callable[[Ranking[Any]], Any]] = {
    "in all rankings": lambda ranking: ranking.standings(ME),
    "in all rankings by competition": lambda ranking: ranking.by("competition").standings(ME),
}


def nobody(ranking: Ranking[Any]) -> Ranking[Any]:
    """Cards are tested, as of what is in a small group none are."""
    return ranking.filter(region="a").exclude(region="a")


@pytest.fixture
def measure(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Calls a function, and returns the commands and words of each round trip that it took."""
    monkeypatch.setattr(reader, "_TRUST", 60.0)  # a busy machine takes a second between two calls
    found: list[tuple[int, int]] = []

    send_request = executor.send_request

    def counting(client: Redis, request: Request) -> list[Any]:
        replies = send_request(client, request)
        stats = zrank.pipeline(transaction=False).info("commandstats").config_resetstat().execute()[0]
        words = max(words_of(replies), *(len(call.arguments) for call in request.calls))
        found.append((sum(one["calls"] for one in stats.values()), words))
        return replies

    monkeypatch.setattr(executor, "send_request", counting)

    def measure(ask: Callable[[], Any]) -> list[tuple[int, int]]:
        found.clear()
        zrank.config_resetstat()
        ask()
        return [*found]

    return measure


def words_of(reply: Any) -> int:
    return sum(map(words_of, reply)) if isinstance(reply, list) else 1


def filled(index: type[Held]) -> Ranking[Any]:
    load(index, ((pk, pk % 7, pk % 3, "abc"[pk % 3], "abc"[pk % 2]) for pk in range(1, MEMBERS + 1)))
    index.group("show").add(*range(1, MEMBERS, 3))
    index.group("few").add(*range(1, MEMBERS, 600))
    for number, name in enumerate(FIFTY):
        index.group(name).add(1 + 100 * number)
    shown = {str(pk): 4e15 + pk for pk in range(1, 3 * MEMBERS)}
    store = reader_of(index.instance().holder_of(str(ME))).store
    store.client.zadd(store.keys.beside("remembered", str(ME)), shown)
    return index.ranking


@pytest.fixture
def ranking(zrank: Redis) -> Ranking[Any]:
    return filled(Held)


@pytest.mark.parametrize("shards", [1, pytest.param(2, marks=pytest.mark.slow), 16])
def test_no_round_trip_costs_much(
    zrank: Redis, shards: int, asked: dict[str, Callable[..., Any]], measure: Measure
) -> None:
    """Nor with shards, all of which lie on one server."""
    ranking = filled(sharded(Held, shards) if shards > 1 else Held)
    for name, ask in asked.items():
        commands, words = (max(each) for each in zip(*measure(partial(ask, ranking)), strict=True))
        assert commands <= CEILING, name
        assert words <= ARGUMENTS, name


def test_a_light_question_takes_no_more_round_trips_over_shards(zrank: Redis, measure: Measure) -> None:
    ranking = filled(sharded(Held, 16))
    ranking.rank(ME)
    for ask, most in (
        (lambda: ranking.rank(ME), 2),
        (lambda: ranking.recommend(ME, 10, seed=1), 2),
        (lambda: ranking.top(10), 1),
        (lambda: ranking.filter(region="a").count(), 1),
        (lambda: ranking.counts("region"), 1),
        (lambda: ranking.around(ME, 10), 2),
    ):
        assert len(measure(ask)) <= most


@pytest.mark.part("statistics")
def test_standings_take_no_more_than_a_rank_does_over_shards(zrank: Redis, measure: Measure) -> None:
    """But for what is cut because all shards are on one server."""
    ranking = filled(sharded(Held, 16))
    ranking.rank(ME)
    assert len(measure(lambda: ranking.by("competition").standings(ME))) <= 2
    assert len(measure(lambda: ranking.standings(ME))) <= 3


@pytest.mark.parametrize(
    ("module", "constant", "name"),
    [
        (positions, "_CHUNK", "ranks"),
        (pages, "_CHUNK", "top"),
        (draws, "_LOOK_UPS", "nobody passes"),
        (steps, "FULL", "nobody of many passes"),
        (steps, "FULL", "many by competition"),
        (draws, "_LOOK_UPS", "nobody passes fifty groups"),
    ],
)
def test_what_is_not_cut_is_seen(
    ranking: Ranking[Any],
    asked: dict[str, Callable[..., Any]],
    measure: Measure,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    constant: str,
    name: str,
) -> None:
    monkeypatch.setattr(module, constant, 20_000 if module is steps else 4900)
    monkeypatch.setattr(sending, "_MOST", 20_000)
    commands, words = (max(each) for each in zip(*measure(partial(asked[name], ranking)), strict=True))
    assert commands > CEILING or words > ARGUMENTS


# Cut into round trips by what calls cost


def request(costs: Sequence[int], shards: Sequence[int], *, atomic: bool = False) -> Request[Any]:
    keys = [Keys.of("zrank", f"heavy-{shard}").meta for shard in shards]
    calls = [Call("TYPE", (key,), (), cost) for key, cost in zip(keys, costs, strict=True)]
    return Request(calls, atomic=atomic)


@pytest.mark.parametrize(
    ("costs", "atomic", "expected"),
    [
        ([500] * 6, False, [range(6)]),
        ([500] * 7, False, [[0, 1, 2, 3, 4, 5], [6]]),
        ([9000, 0, 9000, 10], False, [[0], [1, 2], [3]]),
        ([2000, 2000, 2000, 2000], True, [[0, 1], [2, 3]]),
    ],
)
def test_calls_are_cut_where_they_cost_much_but_not_within_a_transaction(
    costs: list[int], atomic: bool, expected: list[Sequence[int]]
) -> None:
    shards = [0, 0, 1, 1] if atomic else range(len(costs))
    assert in_trips(request(costs, shards, atomic=atomic)) == expected


class Heavy(CompetitorRank):
    name = "heavy"
    order = ("-points", "lost")
    facets = ()


@pytest.mark.part("shards")
def test_coroutines_cut_them_too(zrank: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    index = sharded(Heavy, 7)
    load(index, ((pk, pk % 7, pk % 3) for pk in range(1, 301)))
    sent: dict[Any, list[int]] = {executor: [], asynchronous: []}

    def note(module: Any, name: str) -> None:
        send = getattr(module, name)

        def sending(client: Any, request: Request) -> Any:
            sent[module].append(sum(call.cost for call in request.calls))
            return send(client, request)

        monkeypatch.setattr(module, name, sending)

    note(executor, "send_request")
    note(asynchronous, "_send_request")
    some = range(1, 301, 2)
    ranks = index.ranking.ranks(some)
    assert asyncio.run(index.ranking.aranks(some)) == ranks
    for costs in sent.values():
        assert len(costs) > 10
        assert max(costs) <= 3000
