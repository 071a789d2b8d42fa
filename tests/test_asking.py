"""More ways to ask for people: filtered, by ranks, not again, by what only the database knows, for many at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.core.paginator import Paginator
from django.db import connection
from django.db.models import Q
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis
from redis.connection import Connection as RedisConnection
from redis.exceptions import ReadOnlyError, TimeoutError

from django_zrank import Entry, IndexUnavailable, NotRanked, RankIndex
from django_zrank.exceptions import FilterTooLarge, IndexUnhealthy
from django_zrank.queries.draws import Where
from django_zrank.queries.request import Call
from django_zrank.queries.steps import one
from django_zrank.ranking import Ranking
from django_zrank.redis import executor, reader
from tests.populations import fill, populate
from tests.test_ranking import FACETED, FILTERS, INDEXES, TOTALS, CompetitorRank, Oracle, Row, populations
from tests.test_ranking_states import change
from tests.test_uniformity import LIMIT, Side, deviation
from tests.testapp.methods import KEEPING
from tests.testapp.models import Guild, Player, Tag
from tests.without_parts.parts import PARTS
from tests.writes import apply_changes, begin_write

pytestmark = pytest.mark.usefixtures("zrank")


def several(sent: mock.Mock) -> int:
    """The number of round trips with several calls."""
    return sum(len(request.calls) > 1 for (_, request), _ in sent.call_args_list)


class PlayerIndex(RankIndex):
    name = "asked"
    model = Player
    order = ("-level",)
    band = 10


class Filtered(CompetitorRank):
    name = "asked-filtered"


class FilteredTied(CompetitorRank):
    name = "asked-filtered-tied"
    order = ("-points", "lost")


def row(points: int, **others: Any) -> Row:
    return {"points": points, "lost": 0, "region": "kantou", "platform": "pc", "tags": set(), **others}


def candidates(oracle: Oracle, me: Row, my_pk: int, below: int, above: int) -> tuple[list[int], list[int]]:
    """Those of the oracle's ranking in my band, before me and after me; I need not be in it."""
    everybody = Oracle(oracle.index, {**oracle.rows, my_pk: me}, lambda row: True).pks
    place = everybody.index(my_pk)
    mine = me[oracle.paths[0]]
    near = [
        mine - below <= oracle.rows[pk][oracle.paths[0]] <= mine + above if pk != my_pk else False
        for pk in everybody
    ]
    return (
        [pk for pk, inside in zip(everybody[:place], near[:place], strict=True) if inside],
        [pk for pk, inside in zip(everybody[place:], near[place:], strict=True) if inside],
    )


@pytest.mark.part("combined")
@pytest.mark.parametrize("case", FILTERS.values(), ids=list(FILTERS))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    index=st.sampled_from(FACETED),
    population=populations.filter(bool),
    n=st.integers(1, 12),
    band=st.sampled_from([(0, 0), (1, 2), (3, 0), (10, 10), (2**53, 2**60), (2**64, 2**64)]),
    seed=st.integers(),
)
def test_recommend_in_a_filtered_ranking(
    case: Any, index: type[RankIndex], population: dict[int, Row], n: int, band: tuple[int, int], seed: int
) -> None:
    narrow, passes = case
    populate(index, population)
    oracle = Oracle(index, population, passes)
    pks = sorted(population)
    me = pks[seed % len(pks)]
    before, after = candidates(oracle, population[me], me, *band)
    excluded = set(pks[:: 1 + seed % 7][:3])
    before, after = ([pk for pk in side if pk not in excluded] for side in (before, after))
    ranking = narrow(index.ranking)
    drawn = ranking.recommend(me, n, band=band, exclude=excluded, seed=seed)
    wanted = min(n, len(before) + len(after))
    first = min(len(before), max(-(-n // 2), wanted - len(after)))
    found = [entry.pk for entry in drawn]
    assert len(found) == len(set(found)) == wanted
    assert set(found[:first]) <= set(before)
    assert set(found[first:]) <= set(after)
    assert found == [pk for pk in oracle.pks if pk in found]
    if ranking.view.ranking is not None:
        assert drawn == oracle.entries(found)
    else:
        assert drawn == [entry._replace(rank=None) for entry in oracle.entries(found)]


def spread(size: int, share: int) -> dict[int, Row]:
    """Members 1 … size, as many points; one in ``share`` is from kansai and on ps with the tag 1."""
    special = {"region": "kansai", "platform": "ps", "tags": {1}}
    return {pk: row(pk, **(special if pk % share == 0 else {})) for pk in range(1, size + 1)}


NARROWED = [
    pytest.param(conditions, share, id=f"{name}-{share}")
    for name, conditions in (
        ("one facet", {"region": "kansai"}),
        ("two facets", {"region": "kansai", "tags": 1}),
        ("one of two", {"tags__in": [1, 2], "platform": "ps"}),
    )
    for share in (2, 40)
]


QUICK = [(Filtered, NARROWED[at]) for at in (1, 2, 4)]


@pytest.mark.part("combined")
@pytest.mark.parametrize(
    ("index", "conditions", "share"),
    [
        pytest.param(index, *case.values, id=f"{index.name}-{case.id}", marks=marks)
        for index in (Filtered, FilteredTied)
        for case in NARROWED
        for marks in [() if (index, case) in QUICK else pytest.mark.slow]
    ],
)
def test_uniform_under_filters(index: type[RankIndex], conditions: dict[str, Any], share: int) -> None:
    size = 24 * share
    populate(index, spread(size, share))
    me = size // 2 + 1
    passing = range(share, size + 1, share)
    better = Side(tuple(pk for pk in passing if pk > me), 2)
    worse = Side(tuple(pk for pk in passing if pk < me), 2)
    ranking = index.ranking.filter(**conditions)
    drawn = [
        tuple(entry.pk for entry in ranking.recommend(me, 4, band=size, seed=seed)) for seed in range(2000)
    ]
    assert deviation(drawn, better, worse) < LIMIT


# Narrowed rankings, which are kept for some seconds


class FilteredDense(CompetitorRank):
    name = "asked-filtered-dense"
    ranking_method = KEEPING


@pytest.mark.part("combined")
@pytest.mark.parametrize("index", [Filtered, FilteredDense])
@pytest.mark.parametrize("points", [-7, 5, 60])
def test_ranks_in_a_narrowed_ranking_are_of_the_scores_in_it(index: type[RankIndex], points: int) -> None:
    store = populate(index, {pk: row(pk // 2, tags={1}) for pk in range(1, 11)})
    ranking = index.ranking.filter(region="kantou", tags=1)
    before = [ranking.entry(pk) for pk in range(1, 11)]
    gaps = [ranking.gap(pk) for pk in range(1, 11)] if PARTS["statistics"].is_there else []
    apply_changes(store, begin_write(store), [change(index, 2, row(points, tags={1}))])
    assert [ranking.entry(pk) for pk in range(1, 11)] == before
    assert [ranking.gap(gap.entry.pk) for gap in gaps] == gaps
    assert {entry.pk: entry for entry in ranking.top()} == {entry.pk: entry for entry in before}


@pytest.mark.part("combined")
@pytest.mark.parametrize("index", [Filtered, FilteredTied, FilteredDense])
@pytest.mark.part("combined", "groups")
def test_a_narrowed_ranking_is_gone_in_seconds(zrank: Redis, index: type[RankIndex]) -> None:
    populate(index, spread(8, 2))
    index.group("live").add(1, 2)
    assert index.ranking.filter(group="live", tags=1).exclude(region="kantou").count() == 1
    kept = zrank.keys("*:combined_filter:*")
    assert len(kept) == 2 + (index.ranking_method == "dense")
    assert all(0 < zrank.ttl(key) <= 65 for key in kept)


@pytest.mark.part("combined")
@pytest.mark.parametrize(
    ("index", "moved"), [(Filtered, {"points": 1900}), (FilteredTied, {"points": 1900, "lost": 1})]
)
def test_the_band_lies_around_where_one_stands_now(index: type[RankIndex], moved: dict[str, Any]) -> None:
    """Though it stood elsewhere when the ranking was narrowed."""
    few: dict[int, Any] = {pk: {"region": "kansai"} for pk in (1, 501, 1001, 1501)}
    store = populate(index, {pk: row(pk, **few.get(pk, {})) for pk in range(1, 2001)})
    ranking = index.ranking.exclude(region="kantou")
    assert len(ranking.top()) == 4
    apply_changes(store, begin_write(store), [change(index, 1, row(1, region="kansai") | moved)])
    with mock.patch.object(executor, "send_request", side_effect=executor.send_request) as narrowed:
        assert {entry.pk for entry in ranking.recommend(1, 4, band=(1200, 60))} == {1001, 1501}
        assert {entry.pk for entry in ranking.recommend(1, 4, band=(1900, 60))} == {501, 1001, 1501}
    assert several(narrowed) == 2, "those who pass were found one by one"


# Bands of integers beyond 2**53


@pytest.mark.parametrize(
    "index", [index for index in INDEXES if index.name in ("wide-ordinal", "wide two-ordinal")]
)
def test_a_band_is_exact_wherever_it_ends(index: type[RankIndex]) -> None:
    totals = dict(enumerate(TOTALS, 1))
    populate(index, {pk: row(0, total=total) for pk, total in totals.items()})
    for me, mine in totals.items():
        for low in [total for total in TOTALS if total <= mine][::3]:
            for high in (total for total in TOTALS if total >= mine):
                found = index.ranking.recommend(me, 20, band=(mine - low, high - mine))
                assert {e.pk for e in found} == {
                    pk for pk in totals if low <= totals[pk] <= high and pk != me
                }


# Windows of ranks


@given(
    scores=st.lists(st.integers(-2, 2), min_size=1, max_size=20),
    n=st.integers(1, 8),
    below=st.integers(0, 6),
    above=st.integers(0, 6),
    seed=st.integers(0, 99),
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("order", ["-level", "level"])
def test_a_window_of_ranks(order: str, scores: list[int], n: int, below: int, above: int, seed: int) -> None:
    index = type("Window", (PlayerIndex,), {"order": (order,), "name": f"window{order}"})
    fill(index, dict(enumerate(scores, 1)))
    pks = [entry.pk for entry in index.ranking.top(len(scores))]
    me = pks[seed % len(pks)]
    place = pks.index(me)
    better, worse = pks[max(0, place - above) : place], pks[place + 1 : place + 1 + below]
    drawn = [entry.pk for entry in index.ranking.recommend(me, n, ranks=(below, above), seed=seed)]
    assert len(drawn) == min(n, len(better) + len(worse))
    assert set(drawn) <= {*better, *worse}
    assert len(set(drawn) & set(better)) >= min(len(better), -(-n // 2))


@pytest.mark.parametrize("ranks", [-1, 1.5, True, (1, -2), (1, 2, 3), "5"])
def test_ranks_are_counted(ranks: Any) -> None:
    fill(PlayerIndex, {1: 1})
    with pytest.raises(ValueError, match="ranks"):
        PlayerIndex.ranking.recommend(1, ranks=ranks)
    with pytest.raises(ValueError, match="ranks"):
        PlayerIndex.ranking.recommend(1, ranks=5, band=5)


# Conditions that only the database knows


@pytest.fixture
def players(db: None) -> list[Player]:
    """Two hundred of levels 1 … 200; one in five is called "yes"."""
    rows = [Player(level=level, name="yes" if level % 5 == 0 else "no") for level in range(1, 201)]
    made = Player.objects.bulk_create(rows)
    fill(PlayerIndex, {player.pk: player.level for player in made})
    return made


def test_those_that_pass_half_of_each_side(players: list[Player]) -> None:
    drawn = PlayerIndex.ranking.recommend(players[99], 10, band=100, where=Q(name="yes"))
    levels = [entry.score for entry in drawn]
    assert len(set(levels)) == 10
    assert all(level % 5 == 0 for level in levels)
    assert [level > 100 for level in levels] == [True] * 5 + [False] * 5
    assert [entry.rank for entry in drawn] == [201 - level for level in levels]


def test_what_one_side_lacks_the_other_gives(players: list[Player]) -> None:
    drawn = PlayerIndex.ranking.recommend(players[187], 10, band=100, where=Q(name="yes"))
    levels = [entry.score for entry in drawn]
    assert len(levels) == 10
    assert levels[:3] == [200, 195, 190]
    drawn = PlayerIndex.ranking.recommend(players[12], 10, band=100, where=Q(name="yes"))
    levels = [entry.score for entry in drawn]
    assert len(levels) == 10
    assert levels[8:] == [10, 5]


def test_fewer_only_where_there_are_fewer(players: list[Player]) -> None:
    drawn = PlayerIndex.ranking.recommend(players[99], 10, band=12, where=Q(name="yes"))
    assert [entry.score for entry in drawn] == [110, 105, 95, 90]
    assert drawn.band == (12, 12)
    widened = PlayerIndex.ranking.recommend(players[99], 6, band=12, widen=[(17, 12)], where=Q(name="yes"))
    assert len(widened) == 5
    assert widened.band == (17, 12)
    assert len(PlayerIndex.ranking.recommend(players[99], 6, band=100, where=Q(name="nobody"))) == 0


def test_exclusions_count_too(players: list[Player]) -> None:
    excluded = [player for player in players if player.level in (105, 95)]
    drawn = PlayerIndex.ranking.recommend(players[99], 10, band=12, exclude=excluded, where=Q(name="yes"))
    assert [entry.score for entry in drawn] == [110, 90]


@pytest.mark.parametrize(
    ("place", "names", "batches"),
    [
        (99, ["yes", "no"], 1),
        (199, ["yes", "no"], 1),  # nobody is better: what the other side has is enough
        (0, ["yes", "no"], 1),
        (99, ["nobody"], 5),  # 8 + 16 + 32, the 44 that are left, and those who are worse
    ],
)
def test_one_query_a_batch(players: list[Player], place: int, names: list[str], batches: int) -> None:
    with CaptureQueriesContext(connection) as queries:
        PlayerIndex.ranking.recommend(players[place].pk, 1, band=200, where=Q(name__in=names))
    assert len(queries) == batches


def test_no_more_are_tried_than_a_bound(players: list[Player], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_zrank.queries.draws._MOST_TRIED", 20)
    with CaptureQueriesContext(connection) as queries:
        drawn = PlayerIndex.ranking.recommend(players[99], 1, band=200, where=Q(name="nobody"))
    assert len(drawn) == 0
    assert len(queries) == 2  # 8 + 16


def test_uniform_among_those_that_pass(players: list[Player]) -> None:
    passing = {player.pk for player in players if player.name == "yes"}
    index = PlayerIndex.ranking
    with mock.patch(
        "django_zrank.ranking.condition",
        return_value=Where(lambda some: {one for one in some if int(one) in passing}, None),
    ):
        me = players[100]
        draws = [
            tuple(entry.pk for entry in index.recommend(me, 2, band=30, where=Q(), seed=seed))
            for seed in range(1000)
        ]
    better = tuple(p.pk for p in players if p.pk in passing and 101 < p.level <= 131)
    worse = tuple(p.pk for p in players if p.pk in passing and 71 <= p.level < 101)
    assert deviation(draws, Side(better, 1), Side(worse, 1)) < LIMIT


@pytest.mark.parametrize("position", [True, "a", 1.5, slice("a", 3), slice(0, 1.5), slice(True, 3)])
def test_a_position_is_a_whole_number(players: list[Player], position: Any) -> None:
    with pytest.raises(TypeError, match="a position is a whole number, not "):
        PlayerIndex.ranking[position]


def test_an_argument_that_redis_py_refuses_is_no_outage(players: list[Player]) -> None:
    with pytest.raises(TypeError, match=r"Index 'asked': .* must be str, int"):
        PlayerIndex.ranking.store.run(lambda keys: one(Call("GET", (keys.meta,), (True,))))


def test_where_asked_by_somebody_unknown(players: list[Player]) -> None:
    with pytest.raises(NotRanked):
        PlayerIndex.ranking.recommend(10**6, where=Q())


# Many at once


@pytest.mark.part("combined")
@pytest.mark.parametrize("conditions", [{}, {"region": "kansai"}, {"region": "kansai", "tags": 1}])
def test_many_at_once(conditions: dict[str, Any]) -> None:
    populate(Filtered, spread(500, 10))
    ranking = Filtered.ranking.filter(**conditions)
    assert ranking.count()  # another build is live than in the test before
    with mock.patch.object(executor, "send_request", side_effect=executor.send_request) as trips:
        answers = list(ranking.recommend_many([*range(1, 451), 9999], 4, band=100))
    assert len(conditions) == 2 or several(trips) == 18, "25 of 4 each in a trip"
    assert [member for member, _ in answers] == [*range(1, 451), 9999]
    for member, drawn in answers[:-1]:
        assert drawn is not None
        assert len(drawn) == 4
        assert all(abs(entry.score - member) <= 100 and entry.pk != member for entry in drawn)
        assert not conditions or all(entry.pk % 10 == 0 for entry in drawn)
    assert answers[-1] == (9999, None)


def test_many_with_exclusions_of_their_own(db: None) -> None:
    class Befriended(PlayerIndex):
        name = "asked-befriended"

        def get_excluded(self, member: Player) -> Iterable[Any]:
            return member.friends.all()

    players = Player.objects.bulk_create(Player(level=5) for _ in range(6))
    fill(Befriended, {player.pk: 5 for player in players})
    players[0].friends.set(players[1:3])
    asked = [players[0].pk, players[3], 10**6]
    answers = dict(Befriended.ranking.recommend_many(asked, 10, exclude=[players[4]]))
    assert {entry.pk for entry in answers[players[0].pk]} == {players[3].pk, players[5].pk}
    assert len(answers[players[3]]) == 4
    assert answers[10**6] is None


def test_many_of_an_index_that_cannot_be_believed(zrank: Redis) -> None:
    store = populate(Filtered, spread(4, 2))
    zrank.hset(store.keys.meta, "server", "another")
    Filtered.ranking._reader.trust.until = 0.0
    with pytest.raises(IndexUnhealthy):
        list(Filtered.ranking.recommend_many([1], 2))


@pytest.mark.part("combined")
def test_many_say_at_once_what_is_wrong(settings: Any) -> None:
    populate(Filtered, spread(600, 2))
    for wrong in ({"n": 0}, {"exclude": 5}, {"band": -1}, {"ranks": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Filtered.ranking.recommend_many([1], **wrong)  # type: ignore[arg-type]
    nobody = Filtered.ranking.filter(region="kantou", tags=1)  # each has many, and none has both
    assert [len(drawn or "") for _, drawn in nobody.recommend_many([300], 5, band=300)] == [0]
    settings.ZRANK = {"MAX_SCAN": 2}
    with pytest.raises(FilterTooLarge, match="declare facets"):
        list(nobody.recommend_many([300], 5, ranks=300))


# Limits


@pytest.mark.part("combined")
def test_too_many_for_a_combined_filter(settings: Any) -> None:
    populate(Filtered, spread(60, 2))
    settings.ZRANK = {"MAX_SCAN": 20}
    ranking = Filtered.ranking.filter(region="kansai", tags=1)
    with pytest.raises(
        FilterTooLarge, match=r"30 members, more than 20; declare facets = \(\('tags', 'region'\),\)|declare"
    ):
        ranking.top()
    assert len(ranking.recommend(30, 10, band=100)) == 10  # tested one by one
    # One filter, which a facet covers; what has to be computed is something else.
    with pytest.raises(FilterTooLarge, match="computed from 60 members"):
        Filtered.ranking.exclude(region="kansai").top()
    with pytest.raises(
        FilterTooLarge, match=r"computed from 30 members, .* facets = \(\('region', 'tags'\),\)"
    ):
        Filtered.ranking.filter(region="kansai").counts("tags")
    with pytest.raises(FilterTooLarge, match=r'more than 20 \(ZRANK\["MAX_SCAN"\]\)$'):
        Filtered.ranking.filter(region="kansai").counts("region")


REGIONS = ["kantou", "kansai", "a,b:c", None]


class Composed(Filtered):
    name = "asked-composed"
    facets = (*Filtered.facets, ("platform", "tags"), ("platform", "region", "tags"))


class ComposedTied(Composed):
    name = "asked-composed-tied"
    order = ("-points", "lost")


class ComposedDense(Composed):
    name = "asked-composed-dense"
    ranking_method = KEEPING


@pytest.mark.part("combined")
@pytest.mark.parametrize("index", [Composed, ComposedTied, ComposedDense])
@pytest.mark.parametrize("limit", [0, 100])
def test_counts_under_a_composite_facet(index: type[RankIndex], limit: int, settings: Any) -> None:
    """One that begins with what is filtered by answers by itself, however many they are."""
    rows = {
        pk: row(pk, region=REGIONS[pk % 4], platform=("pc", None, "ps")[pk % 3], tags={pk % 2, pk % 5})
        for pk in range(1, 41)
    }
    populate(index, rows)
    settings.ZRANK = {"MAX_SCAN": limit}
    for region in (*REGIONS, "nowhere", "kan"):
        expected = Counter(one["platform"] for one in rows.values() if one["region"] == region)
        assert index.ranking.filter(region=region).counts("platform") == expected
        twice = index.ranking.filter(region=region).filter(region=region)
        assert twice.counts("platform") == expected
    tags = Counter(tag for one in rows.values() if one["platform"] == "pc" for tag in one["tags"])
    assert index.ranking.filter(platform="pc").counts("tags") == tags
    both = Counter(
        tag for one in rows.values() if one["region"] is one["platform"] is None for tag in one["tags"]
    )
    assert index.ranking.filter(region=None, platform=None).counts("tags") == both
    # No composite facet begins with these.
    for narrowed, path in (
        (index.ranking.filter(tags=1), "platform"),
        (index.ranking.filter(region__in=["kantou", "kansai"]), "platform"),
        (index.ranking.exclude(region="kantou"), "platform"),
        (index.ranking.filter(tags=1).filter(tags=2), "platform"),
        (index.ranking.filter(region="kantou"), "region"),
        (index.ranking.filter(platform="pc"), "region"),
        (index.ranking.filter(region="kantou", tags=1), "platform"),
    ):
        if limit:
            assert narrowed.counts(path) == Counter(rows[entry.pk][path] for entry in narrowed.top(100))
        else:
            with pytest.raises(FilterTooLarge):
                narrowed.counts(path)


class Guilds(CompetitorRank):
    name = "asked-guilds"
    facets = ("guild", "tags")


@pytest.mark.part("combined")
def test_filters_take_rows() -> None:
    populate(Guilds, {1: row(1, guild=7, tags={1}), 2: row(2, guild=None, tags={2}), 3: row(3, guild=8)})
    ranking = Guilds.ranking
    assert [entry.pk for entry in ranking.filter(guild=Guild(pk=7)).top()] == [1]
    assert [entry.pk for entry in ranking.filter(guild__in=[Guild(pk=8), None]).top()] == [3, 2]
    assert [entry.pk for entry in ranking.filter(tags=Tag(pk=2)).top()] == [2]


@pytest.mark.parametrize("stranger", [Guild(), Tag(pk=7)], ids=["not saved", "of another model"])
def test_filters_take_rows_of_the_facet(stranger: Any) -> None:
    with pytest.raises(ValueError, match=r"guild: .* is not saved, or of another model"):
        Guilds.ranking.filter(guild=stranger)


@pytest.mark.part("combined")
@pytest.mark.parametrize(
    ("ask", "names"),
    [
        (lambda ranking: ranking.filter(joined=1), "joined.*region, platform, tags"),
        (lambda ranking: ranking.filter(guild=1), "guild"),
        (lambda ranking: ranking.filter(group=7), "group"),
        pytest.param(
            lambda ranking: ranking.exclude(group="a", region="b"),
            "exclude",
            marks=pytest.mark.part("groups"),
        ),
        (lambda ranking: ranking.filter(region__in=None), "region__in"),
        (lambda ranking: ranking.filter(region__in="kantou"), "region__in"),
        (lambda ranking: ranking.filter(tags="one"), "tags"),
        (lambda ranking: ranking.filter(region="a", region__in=["b"]), "region"),
        (lambda ranking: ranking.exclude(region="a", tags=1), "declare"),
        (lambda ranking: ranking.counts("guild"), "guild"),
        (lambda ranking: ranking.top(0), "n"),
        (lambda ranking: ranking.top(10_001), "n"),
        (lambda ranking: ranking[-1], "negative"),
        (lambda ranking: ranking[3:], "end"),
        (lambda ranking: ranking[1:9:2], "step"),
        (lambda ranking: ranking.at_rank(0), "rank"),
        (lambda ranking: ranking.around(1, 0), "n"),
        (lambda ranking: ranking.between("a"), "low|points"),
        (lambda ranking: ranking.rank_of_score("x"), "score|points"),
        (lambda ranking: ranking.ranks(["x"]), "members"),
    ],
)
def test_nonsense_names_what_it_is(ask: Callable[[Ranking], Any], names: str) -> None:
    populate(Filtered, spread(4, 2))
    with pytest.raises(ValueError, match=names):
        ask(Filtered.ranking)


# Round trips


def entry_of(ranking: Ranking) -> Entry:
    return Entry(4, 4, 5, (4, 0)[: len(ranking.index.ordering.criteria)])


ROUND_TRIPS: list[tuple[Callable[[Ranking], Any], int]] = [
    (lambda ranking: ranking.top(), 1),
    (lambda ranking: ranking.rank(4), 1),
    (lambda ranking: ranking.entry(4), 1),
    (lambda ranking: ranking.around(4), 1),
    (lambda ranking: ranking.after(entry_of(ranking), 2), 1),
    (lambda ranking: ranking.before(entry_of(ranking), 2), 1),
    (lambda ranking: ranking.ranks([1, 4, 99]), 1),
    (lambda ranking: ranking.members([1, 4]), 1),
    (lambda ranking: ranking.between(2, 5), 1),
    (lambda ranking: ranking.count_between(2, 5), 1),
    (lambda ranking: ranking.counts("platform"), 1),
    (lambda ranking: ranking.rank_of_score(3), 1),
    (lambda ranking: ranking.recommend(4, 2), 1),
    (lambda ranking: ranking.near(4, 2), 1),
]
"""Verbs, and the round trips of each."""

if PARTS["remember"].is_there:  # those drawn are remembered by another one
    ROUND_TRIPS.append((lambda ranking: ranking.recommend(4, 2, remember=timedelta(1)), 2))
if PARTS["statistics"].is_there:
    ROUND_TRIPS += [
        (lambda ranking: ranking.percentile(4), 1),
        (lambda ranking: ranking.standing(4), 1),
        (lambda ranking: ranking.gap(4), 1),
        (lambda ranking: ranking.standings(4) if ranking.view.ranking is not None else ranking.gap(4), 1),
    ]


@pytest.mark.parametrize(
    "conditions",
    [
        {},
        pytest.param({"region": "kansai"}, marks=pytest.mark.part("combined")),  # counts of another facet
        pytest.param({"region": "kansai", "tags": 1}, marks=pytest.mark.part("combined")),
    ],
)
@pytest.mark.parametrize("index", [Filtered, FilteredTied])
def test_every_verb_is_one_round_trip(
    index: type[RankIndex], conditions: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    populate(index, spread(8, 2))
    ranking = index.ranking.filter(**conditions)
    ranking._reader.trust.until = 0.0
    monkeypatch.setattr(reader, "_TRUST", 60.0)
    for ask, _ in ROUND_TRIPS:
        ask(ranking)  # scripts are sent once, and health is looked up once a second
    sent: list[Any] = []
    packed = "redis.connection.Connection.send_packed_command"
    actually = RedisConnection.send_packed_command

    def send(self: Any, command: Any, *args: Any, **kwargs: Any) -> Any:
        sent.append(command)
        return actually(self, command, *args, **kwargs)

    with mock.patch(packed, send):
        for at, (ask, trips) in enumerate(ROUND_TRIPS):
            sent.clear()
            ask(ranking)
            assert len(sent) == trips, at


def test_django_s_paginator_takes_a_ranking() -> None:
    populate(Filtered, spread(25, 5))
    page = Paginator(Filtered.ranking, 10).page(3)  # type: ignore[arg-type]
    assert page.paginator.num_pages == 3
    assert [entry.rank for entry in page.object_list] == [21, 22, 23, 24, 25]


# What goes wrong


@pytest.mark.parametrize("error", [TimeoutError, ReadOnlyError, OSError])
def test_errors_of_redis_are_ours(error: type[Exception]) -> None:
    """What is no error of Redis stays as it is."""
    populate(Filtered, spread(4, 2))
    with (
        mock.patch("redis.Redis.execute_command", side_effect=error("gone")),
        pytest.raises(Exception) as raised,
    ):
        Filtered.ranking.top()
    assert (raised.type is IndexUnavailable) == (error is not OSError)
