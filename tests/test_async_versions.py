"""Every verb, in blocking code and in coroutines: the same answers and errors, and none without a coroutine."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Callable, Iterator
from datetime import timedelta
from typing import Any, cast

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import User
from django.db.models import Q
from django.utils.module_loading import import_string

from django_zrank import Entries, NotRanked, RankIndex, Ranking
from django_zrank.exceptions import FilterTooLarge
from tests.populations import populate
from tests.test_ranking import FACETED, INDEXES, Oracle, Row, assert_same
from tests.testapp.models import Competitor, Player
from tests.testapp.zrank import PlayerRank
from tests.without_parts.parts import PARTS

ROWS: dict[int, Row] = {
    pk: {
        "points": pk // 3,
        "total": pk,
        "lost": pk % 2,
        "joined": None,
        "region": ("kantou", "kansai", None)[pk % 3],
        "platform": "pc",
        "tags": {pk % 4},
    }
    for pk in range(1, 16)
}

OPERATORS = {
    "__contains__": "acontains",
    "__getitem__": "aslice",
    "__iter__": "__aiter__",
    "__bool__": "aexists",
}
"""The asynchronous versions of operators."""

PURE = {"cursor", "filter", "exclude", "by", "reversed", "using", "within"}
"""Methods that ask nothing."""


def public(cls: type) -> set[str]:
    """The public methods of a class and of those it extends in this package, and its operators."""
    found = {
        name
        for base in cls.__mro__
        if base.__module__.startswith("django_zrank.")
        for name, value in vars(base).items()
        if inspect.isfunction(value)
    }
    return {name for name in found if not name.startswith("_") or name in OPERATORS} - PURE


def verbs(cls: type) -> set[str]:
    """Those that block."""
    names = public(cls)
    coroutines = {name for name in names if name[1:] in names or name in OPERATORS.values()}
    return names - {name for name in coroutines if name.startswith("a")}


class Both:
    """A ranking, or a group, whose blocking verbs run their asynchronous versions, in a loop of their own."""

    def __init__(self, asked: Any) -> None:
        self.asked, self.index = asked, asked.index
        self.used: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name in PURE:
            return lambda *args, **kwargs: Both(getattr(self.asked, name)(*args, **kwargs))
        return lambda *args, **kwargs: self.run(name, *args, **kwargs)

    def run(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """The answer of the asynchronous version."""
        self.used.add(name)
        return async_to_sync(answer)(
            lambda: getattr(self.asked, OPERATORS.get(name, f"a{name}"))(*args, **kwargs)
        )

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return self.run("__getitem__", at.start, at.stop)
        try:
            return self.at_rank(at + 1)
        except NotRanked:
            raise IndexError from None

    def __iter__(self) -> Iterator[Any]:
        return iter(self.run("__iter__"))

    def __contains__(self, member: Any) -> bool:
        return cast(bool, self.run("__contains__", member))

    def __bool__(self) -> bool:
        return cast(bool, self.run("__bool__"))


async def answer(ask: Callable[[], Any]) -> Any:
    """The answer of a coroutine, or all of an asynchronous iterator."""
    asked = ask()
    return await asked if inspect.isawaitable(asked) else [one async for one in asked]


@pytest.mark.parametrize(
    "path",
    ["ranking.Ranking", "scores.Scores", pytest.param("groups.Group", marks=pytest.mark.part("groups"))],
)
def test_every_verb_has_an_asynchronous_version(path: str) -> None:
    cls = import_string(f"django_zrank.{path}")
    for name in verbs(cls):
        aname = OPERATORS.get(name, f"a{name}")
        assert hasattr(cls, aname), f"{cls.__name__}.{name} has no {aname}"
        one, other = getattr(cls, name), getattr(cls, aname)
        assert other.__name__ == aname
        if name != "__getitem__":
            assert one.__doc__ == other.__doc__ or name.startswith("__")
            assert (
                inspect.signature(one).parameters.keys() - {"position"}
                == inspect.signature(other).parameters.keys()
            )
            assert "Query" not in str(inspect.signature(other))


@pytest.mark.part("combined")
@pytest.mark.slow
@pytest.mark.usefixtures("zrank")
def test_both_agree_with_the_same_sorted_lists() -> None:
    for index, both in ((index, Both(index.ranking)) for index in (INDEXES[13], FACETED[1])):
        populate(index, ROWS)
        assert_same(cast(Ranking, both), Oracle(index, ROWS, lambda row: True), ROWS)
    narrowed = cast(Ranking, both.filter(region="kantou").exclude(tags=2))
    passes = Oracle(index, ROWS, lambda row: row["region"] == "kantou" and 2 not in row["tags"])
    assert_same(narrowed, passes, ROWS)


CALLS: dict[str, Callable[[Any], Any]] = {
    "recommend": lambda ranking: ranking.recommend(7, 5, band=3, seed=1),
    "recommend narrowed": lambda ranking: ranking.filter(tags=1, region="kantou").recommend(
        7, band=9, seed=1
    ),
    "recommend where": lambda ranking: ranking.recommend(7, 5, band=9, where=Q(pk__lt=20), seed=1),
    "recommend excluding a query": lambda ranking: ranking.recommend(
        7, 30, band=9, seed=1, exclude=Competitor.objects.filter(pk__gt=9)
    ),
    "recommend nobody": lambda ranking: ranking.recommend(99, band=3),
    "recommend badly": lambda ranking: ranking.recommend(7, 0),
    "recommend_many": lambda ranking: dict(ranking.recommend_many([1, 2, 99], 40, band=1)),
    "recommend_many by a query": lambda ranking: dict(
        ranking.recommend_many(Competitor.objects.order_by("pk").iterator(), 40, band=9)
    ),
    "near": lambda ranking: ranking.near(2, 5, band=3, seed=1),
    "near a row": lambda ranking: ranking.near(Competitor(points=2, lost=1), 5, band=3, seed=1),
    "near badly": lambda ranking: ranking.near(None),
    "ranks by a query": lambda ranking: ranking.ranks(Competitor.objects.order_by("pk")),
    "counts": lambda ranking: ranking.counts("region"),
    "counts badly": lambda ranking: ranking.counts("nothing"),
    "count_between": lambda ranking: ranking.filter(platform="pc").count_between(2, 4),
    "members badly": lambda ranking: ranking.members("one"),
}
if PARTS["remember"].is_there:
    CALLS["forget"] = lambda ranking: ranking.forget(7)
if PARTS["statistics"].is_there:
    CALLS |= {
        "tier": lambda ranking: ranking.tier(4, (50, 10)),
        "score_at_percentile": lambda ranking: ranking.score_at_percentile(101),
        "histogram": lambda ranking: ranking.histogram(0),
        "snapshot": lambda ranking: list(ranking.snapshot(5)),
        "snapshot of filters": lambda ranking: list(ranking.filter(tags=1, region="kantou").snapshot()),
        "standing": lambda ranking: ranking.standing(4),
    }


def outcome(call: Callable[[Any], Any], asked: Any) -> Any:
    try:
        return call(asked)
    except (NotRanked, ValueError) as error:
        return type(error), str(error)


@pytest.fixture
def competitors(zrank: Any, db: None) -> Ranking[Any]:
    populate(FACETED[0], ROWS)
    Competitor.objects.bulk_create(
        Competitor(pk=pk, points=row["points"], lost=row["lost"]) for pk, row in ROWS.items()
    )
    return FACETED[0].ranking


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_both_answer_alike(call: Callable[[Any], Any], competitors: Ranking[Any]) -> None:
    assert outcome(call, Both(competitors)) == outcome(call, competitors)


def test_all_verbs_were_compared(competitors: Ranking[Any]) -> None:
    """One that is new must be called here, too."""
    few, both = {pk: ROWS[pk] for pk in [*ROWS][:9]}, Both(competitors)
    populate(FACETED[0], few)
    assert_same(cast(Ranking, both), Oracle(FACETED[0], few, lambda row: True), few)
    for call in CALLS.values():
        outcome(call, both)
    assert bool(both)
    assert len(list(both)) == len(few)
    assert both.contains(1)
    assert both.exists()
    assert both.used == verbs(Ranking)


@pytest.mark.part("groups")
def test_groups(competitors: Ranking[Any]) -> None:
    both = Both(competitors.index.group("live"))
    assert outcome(lambda group: group.counts("region"), both)[0] is ValueError
    assert both.add(1, 2, 3, expires=timedelta(minutes=1)) == 3
    assert both.remove(3, 9) == 1
    assert 1 in both
    assert not both.contains(3)
    assert both.count() == competitors.index.group("live").count() == 2
    assert set(both) == {1, 2}
    assert both.claim(2, 7) == [2]
    assert both.clear() is None
    assert both.used == verbs(type(competitors.index.group("live")))
    assert competitors.index.group("live").count() == 0


@pytest.mark.part("remember")
def test_shown_members_are_remembered_and_forgotten(competitors: Ranking[Any]) -> None:
    async def draw() -> list[set[int]]:
        found = []
        for _ in range(2):
            drawn = await competitors.arecommend(8, 5, band=5, remember=timedelta(hours=1))
            found.append({entry.pk for entry in drawn})
        await competitors.aforget(8)
        assert not competitors._reader.client.keys("*:remembered:8")
        return found

    first, second = async_to_sync(draw)()
    assert len(first) == len(second) == 5
    assert not first & second


def test_rows_of_what_was_found(competitors: Ranking[Any]) -> None:
    async def look() -> tuple[list[Any], list[Any]]:
        top = await competitors.atop(3)
        return await top.aobjects(Competitor.objects.all()), [entry async for entry in top]

    rows, entries = async_to_sync(look)()
    assert rows == competitors.top(3).objects()
    assert entries == competitors.top(3)
    assert {name for name in public(Entries) if hasattr(Entries, f"a{name}")} == {"objects"}


def test_a_parameter_is_refused_before_the_first_answer(competitors: Ranking[Any]) -> None:
    with pytest.raises(ValueError, match="n: expected"):
        competitors.arecommend_many([1], 0)


@pytest.mark.part("combined")
def test_filters_that_leave_too_many(competitors: Ranking[Any], settings: Any) -> None:
    settings.ZRANK = {"MAX_SCAN": 1}
    with pytest.raises(FilterTooLarge, match="declare"):
        async_to_sync(competitors.filter(region="kantou", tags=1).acount)()


# Exclusions


@pytest.fixture
def friends(zrank: Any, transactional_db: None) -> list[Player]:
    players = [Player.objects.create(level=level) for level in range(1, 6)]
    players[0].friends.add(players[1])
    return players


class Asynchronous(PlayerRank):
    """Its exclusions are read by the ORM's own coroutines."""

    async def aget_excluded(self, member: Player) -> AsyncIterable[Any]:
        return member.friends.values_list("pk", flat=True)


@pytest.mark.parametrize("index", [PlayerRank, Asynchronous])
@pytest.mark.parametrize("by_pk", [False, True])
def test_what_the_hooks_exclude(index: type[RankIndex], by_pk: bool, friends: list[Player]) -> None:
    async def ask() -> list[set[int]]:
        me, other = (one.pk if by_pk else one for one in (friends[0], friends[3]))
        found = [await index.ranking.arecommend(me, 5)]
        found += [drawn async for _, drawn in index.ranking.arecommend_many([me, other], 5)]
        with pytest.raises(NotRanked):
            await index.ranking.arecommend(10**6)
        return [{entry.pk for entry in drawn} for drawn in found]

    mine, again, others = async_to_sync(ask)()
    pks = [player.pk for player in friends]
    assert mine == again == set(pks[2:])
    assert others == set(pks) - {pks[3]}


def test_members_of_users(friends: list[Player]) -> None:
    async def ask() -> Any:
        player = await sync_to_async(lambda: Player.objects.select_related("user").first())()
        return player, await Asynchronous.instance().aget_member(player.user)

    Player.objects.filter(pk=friends[0].pk).update(user=User.objects.create(username="ann"))
    player, found = async_to_sync(ask)()
    assert found == player
