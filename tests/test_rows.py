"""The sort key that an instance tells, without a query."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db.models import F
from django.utils.functional import SimpleLazyObject
from pytest_django import DjangoAssertNumQueries

from django_zrank import RankIndex
from django_zrank.queries.positions import Locate
from django_zrank.queries.request import Request
from django_zrank.queries.view import View
from tests.parts.shards.both import divide
from tests.parts.shards.test_reads import START, Bare, Tied, Wide
from tests.populations import fill
from tests.sharded import sharded
from tests.testapp.models import Account, Club, Competitor, Employee, Player, Profile, Team, Ticket
from tests.testapp.zrank import AccountRank, EmployeeRank, PlayerAscending, PlayerRank
from tests.without_parts.parts import PARTS


class TeamRank(RankIndex):
    name = "teams"
    model = Team
    order = ("-club__is_open", "goals", "club_id")


def sort_key(index: type[RankIndex], row: Any) -> Any:
    return sharded(index, 3).instance().sort_key_of(row)


@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize(
    ("index", "row"),
    [
        (Bare, Player(pk=7, level=-3)),
        (Tied, Competitor(pk=7, points=3, joined=START + timedelta(days=1))),
        (Tied, Competitor(pk=7, points=0, joined=None)),
        (Wide, Ticket(pk=UUID(int=1), integer=2**60 + 1)),
        (Wide, Ticket(pk=UUID(int=1), integer=5)),
    ],
)
def test_it_is_where_redis_has_the_member(index: type[RankIndex], row: Any) -> None:
    instance = index.instance()
    paths = instance.ordering.paths + instance.faceting.paths
    both = divide(index, 3, {row.pk: {path: getattr(row, path) for path in paths}})
    (found,) = both.of_whole(Locate([str(row.pk)]), View(instance.layout)).found
    assert sort_key(index, row) == (found.score, found.stored)


@pytest.mark.django_db
def test_relations_count_if_they_are_loaded(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    account = Account.objects.create()
    Profile.objects.create(account=account, points=7)
    employee = Employee.objects.create(points=9)
    Team.objects.create(club=Club.objects.create(), goals=3)
    lone = Team.objects.create(goals=3)
    with django_assert_num_queries(6):
        loaded = Account.objects.select_related("profile").get()
        assert sort_key(AccountRank, loaded) == (7.0, str(account.pk).encode())
        assert sort_key(AccountRank, Account.objects.get()) is None
        assert sort_key(EmployeeRank, Employee.objects.get()) == (9.0, str(employee.pk).encode())
        assert sort_key(EmployeeRank, Employee.objects.defer("points").get()) is None
        score, _ = sort_key(TeamRank, Team.objects.select_related("club").get(club__isnull=False))
        assert score == 1.0
        assert sort_key(TeamRank, Team.objects.select_related("club").get(pk=lone.pk)) is None


def test_it_is_not_told() -> None:
    player = Player(pk=7, level=3)
    assert sort_key(PlayerRank, player) == (3.0, b"7")
    assert sort_key(PlayerRank, SimpleLazyObject(lambda: player)) == (3.0, b"7")  # as request.user is wrapped
    assert PlayerRank.instance().sort_key_of(player) is None  # nobody needs it
    behind = type("Behind", (Bare,), {"write_behind": "increment"})
    assert sort_key(behind, player) is None
    for other in (
        7,
        "7",
        Player(pk=7),
        Player(pk=7, level="x"),
        Player(pk=7, level=F("level") + 1),
    ):
        assert sort_key(PlayerRank, other) is None


VERBS: dict[str, Callable[[Any, Any], Any]] = {
    "rank": lambda ranking, member: ranking.rank(member),
    "rank with ties": lambda ranking, member: ranking.by("competition").rank(member),
    "entry": lambda ranking, member: ranking.entry(member),
    "recommend": lambda ranking, member: len(ranking.recommend(member, 4, band=9)),
    "recommend_many": lambda ranking, member: [
        len(found) for _, found in ranking.recommend_many([member], 4, band=9)
    ],
}
if PARTS["statistics"].is_there:
    VERBS["percentile"] = lambda ranking, member: ranking.percentile(member)


@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize("ask", VERBS.values(), ids=VERBS)
def test_it_saves_a_round_trip(
    ask: Callable[[Any, Any], Any], sent: list[Request[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_zrank.shards.reader.spreads_keys", lambda alias: True)  # as in a cluster
    index = sharded(PlayerAscending, 3)
    fill(index, {pk: pk for pk in range(1, 200)})
    index.ranking.count()  # which looks at the servers' health

    def answer(member: Any) -> tuple[Any, int]:
        sent.clear()
        return ask(index.ranking, member), len(sent)

    expected, round_trips = answer(100)
    assert round_trips == 2
    assert answer(Player(pk=100, level=100)) == (expected, 1)
    for level in (101, "x", F("level") + 1, None):  # out of date, or not known
        assert answer(Player(pk=100, level=level))[0] == expected
