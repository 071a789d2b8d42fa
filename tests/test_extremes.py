"""Keys, scores and distances at the ends of their types, and values of no type that is expected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from django_zrank import RankIndex
from django_zrank.sync.rebuild import rebuild
from tests.testapp.models import Nickname, Player
from tests.without_parts.parts import PARTS

pytestmark = pytest.mark.django_db(transaction=True)


class Nicknames(RankIndex[Nickname]):
    model = Nickname
    order = ("score",)
    name = "nicknames"


class NicknamesInShards(Nicknames):
    name = "nicknames-in-shards"
    shards = 3


class Players(RankIndex[Player]):
    model = Player
    order = ("-level",)
    facets = ("bio", "user", "level")
    name = "players"


@pytest.fixture(params=["redis", pytest.param("database", marks=pytest.mark.part("sql"))])
def build(request: pytest.FixtureRequest, zrank: Redis, settings: Any) -> Iterator[Callable[[Any], Any]]:
    """Builds an index, or has the database answer in its place."""
    if request.param == "database":
        settings.ZRANK = {"UNHEALTHY": "database"}
        yield lambda index: index.ranking
        return

    def built(index: type[RankIndex]) -> Any:
        rebuild(index.instance())
        return index.ranking

    yield built


def pks(entries: Any) -> list[Any]:
    return [entry.pk for entry in entries]


@pytest.mark.parametrize("index", [Nicknames, NicknamesInShards])
@pytest.mark.parametrize("band", [{"band": 9}, {"ranks": 9}])
@pytest.mark.parametrize("others", [0, 60])
def test_empty_text_is_a_key(
    build: Callable[[Any], Any], index: type[RankIndex], band: dict[str, Any], others: int
) -> None:
    Nickname.objects.bulk_create([Nickname(nick=nick, score=at) for at, nick in enumerate(["", "x", "y"])])
    Nickname.objects.bulk_create([Nickname(nick=f"n{at}", score=1) for at in range(others)])
    ranking = build(index)
    drawn = ranking.recommend("x", n=100, **band)
    assert "" in pks(drawn) or others
    if not others:
        assert (sorted(pks(drawn)), drawn.candidates) == (["", "y"], 2)
        assert sorted(pks(ranking.recommend("", **band))) == ["x", "y"]
    assert "" not in pks(ranking.recommend("x", n=100, exclude=[""], **band))
    many = ["", *(f"n{at}" for at in range(others))]
    assert not set(many) & set(pks(ranking.recommend("x", n=100, exclude=many, **band)))


def test_the_lowest_key_there_is(build: Callable[[Any], Any]) -> None:
    other, lowest = Player.objects.create(level=2), -(2**63)
    Player.objects.create(pk=lowest, level=1)  # MySQL tells Django that it is another
    ranking = build(Players)
    assert ranking.rank(lowest) == 2
    assert ranking.ranks([lowest, other]) == {lowest: 2, other.pk: 1}
    assert pks(ranking.recommend(lowest, band=9)) == [other.pk]
    assert pks(ranking.recommend(other, band=9, exclude=[lowest])) == []


def test_numbers_beyond_every_type(build: Callable[[Any], Any]) -> None:
    one, other = Player.objects.create(level=1), Player.objects.create(level=2)
    Nickname.objects.create(nick="x", score=1)
    ranking = build(Players)
    assert pks(ranking.recommend(one, ranks=10**400)) == [other.pk]
    for ask in (
        ranking.between,
        ranking.rank_of_score,
        build(Nicknames).between,
        Nicknames.ranking.rank_of_score,
    ):
        with pytest.raises(ValueError, match="beyond"):
            ask(10**400)
    for path in ("user", "level"):
        assert ranking.filter(**{path: 10**400}).count() == 0
        if PARTS["combined"].is_there:
            assert ranking.exclude(**{path: 2**64}).count() == 2
    with pytest.raises(ValueError, match=r"^member: "):  # beyond what Python writes as text
        ranking.rank(10**5000)


def test_half_a_surrogate_pair_is_no_value(build: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match=r"^bio: .* is not a value of"):
        build(Players).filter(bio="\ud800")


@pytest.mark.part("statistics")
@pytest.mark.parametrize("shares", [5, (float("nan"),), (1, "b"), (0,), (101,), (2, 1), ()])
def test_tiers_end_at_percentages(build: Callable[[Any], Any], shares: Any) -> None:
    with pytest.raises(ValueError, match=r"^shares: "):
        build(Players).tier(1, shares)


@pytest.mark.parametrize("value", [["a"], ("a",), {"a"}, {"a": 1}])
def test_several_values_are_no_value(build: Callable[[Any], Any], value: Any) -> None:
    Player.objects.create(level=1, bio="a")
    ranking = build(Players)
    with pytest.raises(ValueError, match=r"bio: .* is not a value of"):
        ranking.filter(bio=value)
    assert ranking.filter(bio__in=value).count() == 1


def test_counts_of_no_facet(build: Callable[[Any], Any]) -> None:
    ranking = build(Players)
    with pytest.raises(ValueError, match="has no facet 5"):
        ranking.counts(5)
    with pytest.raises(ValueError, match="given twice: bio, bio"):
        ranking.counts("bio", "bio")
