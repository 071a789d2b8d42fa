"""A ranking as a Python object, and its messages about mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any
from unittest import mock

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from redis import Redis

from django_zrank import Entries, IndexUnavailable, NotRanked, RankIndex
from django_zrank.ranking import Ranking
from django_zrank.redis import executor
from tests.populations import fill, populate
from tests.test_asking import row
from tests.test_ranking import CompetitorRank
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerRank
from tests.without_parts.parts import PARTS


class Boards(CompetitorRank):
    name = "narrowing"


@pytest.fixture
def ranking(zrank: Redis) -> Ranking[Any]:
    populate(Boards, {1: row(1), 2: row(2, region="kansai"), 3: row(3)})
    return Boards.ranking


def test_membership_is_one_round_trip(ranking: Ranking[Any]) -> None:
    assert 1 in ranking  # health is looked up before
    with mock.patch.object(executor, "send_request", side_effect=executor.send_request) as sent:
        assert 2 in ranking
        assert 2 not in ranking.filter(region="kantou")
    assert sent.call_count == 2
    with pytest.raises(ValueError, match="member"):
        "one" in ranking  # noqa: B015


def test_iteration_pages(ranking: Ranking[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_zrank.ranking._PAGE", 2)
    assert [entry.pk for entry in ranking] == [3, 2, 1]
    assert [entry.pk for entry in ranking.filter(region="kantou")] == [3, 1]


def test_truth_is_whether_anybody_is_ranked(ranking: Ranking[Any]) -> None:
    assert ranking
    assert not ranking.filter(region="nowhere")
    if PARTS["combined"].is_there:
        assert not ranking.filter(region="kansai", tags=1)


@pytest.mark.parametrize("position", [slice(3, None), slice(None)])
def test_an_open_slice_says_how(ranking: Ranking[Any], position: slice) -> None:
    with pytest.raises(ValueError, match=r"needs an end: \[\d:\d+\]; to read all members, iterate"):
        ranking[position]


@pytest.mark.django_db
def test_slices_of_entries_keep_objects(zrank: Redis) -> None:
    players = [Player.objects.create(level=level) for level in range(4)]
    index = type("Rows", (RankIndex,), {"model": Player, "order": ("-level",), "name": "narrowing-rows"})
    fill(index, {player.pk: player.level for player in players})
    entries = index.ranking.top()[1:3]
    assert isinstance(entries, Entries)
    assert entries.objects() == [players[2], players[1]]


@pytest.mark.django_db
def test_a_cache_keeps_entries(zrank: Redis) -> None:
    """Pickling them once failed: an index has functions without a name."""
    players = [Player.objects.create(level=level) for level in range(4)]
    fill(PlayerRank, {player.pk: player.level for player in players})
    ranking = PlayerRank.ranking
    cache.set_many({"top": ranking.top(2), "drawn": ranking.recommend(players[1], band=1)})
    top, drawn = cache.get("top"), cache.get("drawn")
    assert (top, top.objects(), copy(top)) == (ranking.top(2), players[:1:-1], top)
    assert (drawn.band, drawn.candidates, drawn.objects()) == ((1, 1), 2, [players[2], players[0]])


@pytest.mark.parametrize(
    ("narrow", "where"),
    [
        (lambda all_: all_, ""),
        (lambda all_: all_.filter(region="kansai"), " where region='kansai'"),
        pytest.param(
            lambda all_: all_.exclude(region="kantou"),
            r" where not \(region='kantou'\)",
            marks=pytest.mark.part("combined"),
        ),
        pytest.param(
            lambda all_: all_.filter(region="a").filter(tags__in=[1, 2]),
            r" where region='a' and tags in \(1, 2\)",
            marks=pytest.mark.part("combined"),
        ),
    ],
)
def test_errors_name_the_filter(
    ranking: Ranking[Any], narrow: Callable[[Ranking[Any]], Ranking[Any]], where: str
) -> None:
    narrowed = narrow(ranking)
    for ask in (narrowed.rank, narrowed.entry, narrowed.score, narrowed.around):
        with pytest.raises(NotRanked, match=f"^99 is not in the index 'narrowing'{where}$"):
            ask(99)
    with pytest.raises(NotRanked, match=f"^no member of the index 'narrowing'{where} has the rank 99$"):
        narrowed.at_rank(99)


@pytest.mark.parametrize(
    ("narrow", "declare"),
    [
        (lambda all_: all_.filter(region="kansai", tags=1), r"; declare facets = \(\('region', 'tags'\),\)$"),
        (lambda all_: all_.filter(region="kansai").filter(region="kantou"), "$"),
        (lambda all_: all_.filter(region__in=["kansai", "kantou"]), "$"),
        (lambda all_: all_.exclude(region="kansai"), "$"),
        pytest.param(lambda all_: all_.filter(group="live"), "$", marks=pytest.mark.part("groups")),
        (lambda all_: all_.filter(region="kansai").counts("tags"), "$"),
    ],
)
def test_one_facet_is_answered_without_what_combines_filters(
    ranking: Ranking[Any], narrow: Callable[[Any], Any], declare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_zrank.ranking.narrowing", [])
    with pytest.raises(
        ValueError, match=rf"^'narrowing' where .*: filters can ask for one value .*{declare}"
    ):
        narrow(ranking)
    assert [entry.pk for entry in ranking.filter(region__in=["kantou"]).filter(region="kantou")] == [3, 1]
    assert ranking.filter(region__in=[]).count() == 0


@pytest.mark.parametrize("given", ["12", b"12", 12, None])
def test_what_is_not_several_members_is_refused(ranking: Ranking[Any], given: Any) -> None:
    asks: list[Callable[[], Any]] = [
        lambda: ranking.ranks(given),
        lambda: ranking.members(given),
        lambda: ranking.recommend_many(given),
        lambda: ranking.recommend(1, exclude=given),
    ]
    for ask in asks:
        with pytest.raises(ValueError, match=r"(members|exclude): expected members, not "):
            ask()


@pytest.mark.parametrize("bounds", [{"low": "x"}, {"high": "x"}])
def test_errors_of_between_name_the_bound(ranking: Ranking[Any], bounds: dict[str, Any]) -> None:
    (name,) = bounds
    for ask in (ranking.between, ranking.count_between):
        with pytest.raises(ValueError, match=f"^{name}: .*; None means no bound$"):
            ask(**bounds)
    with pytest.raises(ValueError, match=r"^offset: "):
        ranking.between(offset=-1)


def test_methods_are_named(ranking: Ranking[Any]) -> None:
    with pytest.raises(ValueError, match="by: expected one of ordinal, competition"):
        ranking.by("modified")
    narrowed = ranking.by("competition").reversed().filter(region="kansai")
    assert repr(narrowed).endswith(".filter({'region': ('kansai',)}).by('competition').reversed()>")


def test_recommendations_in_the_other_direction(zrank: Redis) -> None:
    populate(Boards, {pk: row(pk) for pk in range(1, 12)})
    drawn = Boards.ranking.reversed().recommend(6, 3, band=5, seed=1)
    assert [entry.rank for entry in drawn] == [entry.pk for entry in drawn]
    assert sum(entry.pk < 6 for entry in drawn) == 2  # the odd one ranks better: it has fewer points
    near = Boards.ranking.reversed().recommend(6, 9, ranks=(2, 0))
    assert [entry.pk for entry in near] == [7, 8]  # worse by two ranks at most


def test_nonsense_is_refused_before_redis_is_asked() -> None:
    ranking = Boards.ranking  # nobody listens where tests/settings.py points
    for ask, said in (
        (lambda: ranking.recommend(1, -1), "n"),
        (lambda: ranking.recommend(1, where=None, remember=5), "remember"),
        (lambda: ranking.recommend(1, where="x"), "where: "),
        (lambda: ranking.recommend(1, where=5), "where: "),
        (lambda: ranking.recommend(1, seed=[1]), "seed: "),
        (lambda: ranking.recommend(1, seed=1.5), "seed: "),
        (lambda: ranking.recommend("one"), "member"),
        (lambda: ranking.top(-1), "n"),
    ):
        with pytest.raises(ValueError, match=f"^{said}"):
            ask()
    with pytest.raises(IndexUnavailable):
        ranking.recommend(1)


@pytest.mark.django_db
class TestExclusions:
    @pytest.fixture(autouse=True)
    def players(self, zrank: Redis) -> list[Player]:
        self.one, self.two, *self.others = (Player.objects.create(level=5) for _ in range(5))
        return self.others

    def declare(self, name: str, **hooks: Any) -> type[RankIndex]:
        attributes = {"model": Player, "order": ("-level",), "name": name, "band": 5, **hooks}
        index = type("Hooked", (RankIndex,), attributes)
        fill(index, {player.pk: 5 for player in (self.one, self.two, *self.others)})
        return index

    @pytest.mark.part("sql")
    def test_the_fallback_asks_no_hook_again(self, settings: Any) -> None:
        asked: list[Any] = []

        def get_excluded(index: RankIndex, member: Player) -> Iterable[Any]:
            asked.append(member)
            return [self.two]

        index = self.declare("narrowing-once", get_excluded=get_excluded)
        settings.ZRANK = {"UNHEALTHY": "database"}
        settings.CACHES = {
            **settings.CACHES,
            "zrank": {**settings.CACHES["zrank"], "LOCATION": "redis://127.0.0.1:1/0"},
        }
        drawn = index.ranking.recommend(self.one)
        assert {entry.pk for entry in drawn} == {player.pk for player in self.others}
        assert asked == [self.one]

    def test_one_query_for_many(self) -> None:
        def get_excluded_many(index: RankIndex, members: Sequence[Player]) -> Mapping[Any, Iterable[Any]]:
            links = Player.friends.through.objects.filter(from_player__in=members)
            found: dict[Any, list[Any]] = {}
            for mine, friend in links.values_list("from_player", "to_player"):
                found.setdefault(mine, []).append(friend)
            return found

        index = self.declare("narrowing-many", get_excluded_many=get_excluded_many)
        self.one.friends.set([self.two, self.others[0]])
        with CaptureQueriesContext(connection) as queries:
            answers = dict(index.ranking.recommend_many([self.one, self.two, self.others[0]], 10))
        assert len(queries) == 1
        assert {entry.pk for entry in answers[self.one]} == {player.pk for player in self.others[1:]}
        assert len(answers[self.two]) == 3  # friendship is mutual
        assert len(index.ranking.recommend(self.one)) == 2

    def test_a_hook_that_returns_a_bare_string(self) -> None:
        index = self.declare("narrowing-text", get_excluded=lambda index, member: "12")
        with pytest.raises(ValueError, match=r"get_excluded\(\): expected members, not '12'"):
            index.ranking.recommend(self.one)


def test_the_best_and_a_score_of_zero_are_one_round_trip(zrank: Redis) -> None:
    index = type("Zero", (RankIndex,), {"model": Player, "order": ("-level",), "name": "narrowing-zero"})
    fill(index, {1: 0})
    assert index.ranking.rank(1) == 1
    with mock.patch.object(executor, "send_request", side_effect=executor.send_request) as sent:
        assert (index.ranking.rank(1), index.ranking.score(1), index.ranking.count()) == (1, 0, 1)
    assert sent.call_count == 3
