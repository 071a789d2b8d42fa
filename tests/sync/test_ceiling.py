"""A push has a ceiling of members: what one save leads to beyond it waits for a drain, as marks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_zrank import RankIndex
from django_zrank.capture.triggers import captured, drop, install
from django_zrank.models import Mark
from django_zrank.sync.drain import drain
from django_zrank.sync.marks import waiting_marks
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.signal_handlers import Touched
from tests.sync.mirror import assert_mirrors, contents
from tests.testapp.models import Account, Club, Competitor, Guild, Player, Profile, Tag
from tests.testapp.zrank import AccountRank, CompetitorRank, PlayerAscending

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank", "undrained"),
]

Pushes = list[tuple[str, dict[str, Any]]]
LIMIT = 50
MANY = 3 * LIMIT


@pytest.fixture(autouse=True)
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ceiling that few rows reach."""
    monkeypatch.setattr("django_zrank.sync.signal_handlers.LIMIT", LIMIT)


@pytest.fixture(params=["triggers", "signals"])
def capture(request: pytest.FixtureRequest, settings: Any) -> Iterator[None]:
    """The capture of changes."""
    if request.param == "triggers":
        yield
        return
    before = captured("default")
    drop("default")
    settings.ZRANK = {"CAPTURE": "signals"}
    yield
    install("default", before)


def pushed(pushes: Pushes, index: type[RankIndex]) -> int:
    return sum(len(members) for name, members in pushes if name == index.instance().name)


def kept(touched: list[Touched]) -> int:
    """The most members or keys that one transaction kept in memory."""
    return max(len(found) for one in touched for found in one.texts.values())


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> list[Touched]:
    """The state of each transaction when it was pushed."""
    seen: list[Touched] = []
    push = Touched.push

    def record(self: Touched) -> None:
        seen.append(self)
        push(self)

    monkeypatch.setattr(Touched, "push", record)
    return seen


def accounts(club: Club) -> None:
    Account.objects.bulk_create(Account(pk=pk, club=club) for pk in range(1, MANY + 1))
    Profile.objects.bulk_create(Profile(account_id=pk, points=pk) for pk in range(1, MANY + 1))
    rebuild(AccountRank.instance())


def drained(index: type[RankIndex]) -> None:
    drain(index.instance())
    assert not waiting_marks(index.instance()).exists()
    assert_mirrors(index)


def test_a_save_of_a_row_that_many_members_lead_to(pushes: Pushes, capture: None) -> None:
    club = Club.objects.create(is_open=True)
    accounts(club)
    club.is_open = False
    with CaptureQueriesContext(connection) as queries:
        club.save()
    assert pushed(pushes, AccountRank) == LIMIT
    (leading,) = (
        q["sql"] for q in queries if "testapp_account" in q["sql"] and "testapp_profile" not in q["sql"]
    )
    assert f"LIMIT {LIMIT}" in leading
    assert len(contents(AccountRank)) == MANY - LIMIT
    drained(AccountRank)
    assert contents(AccountRank) == {}


def test_a_deletion_of_a_row_that_many_members_lead_to(
    pushes: Pushes, capture: None, touched: list[Touched]
) -> None:
    club = Club.objects.create(is_open=False)
    accounts(club)
    Mark.objects.all().delete()
    club.delete()  # sets it to null in all of them, which sends no signal
    assert pushed(pushes, AccountRank) <= LIMIT
    assert kept(touched) <= LIMIT
    marked = set(Mark.objects.filter(index="account", via=None).values_list("member", flat=True))
    assert marked == {str(pk) for pk in range(1, MANY + 1)}
    drained(AccountRank)
    assert len(contents(AccountRank)) == MANY


def test_a_transaction_of_many_saves(pushes: Pushes, capture: None, touched: list[Touched]) -> None:
    with transaction.atomic():
        for level in range(LIMIT + 20):
            Player(level=level).save()
    assert pushed(pushes, PlayerAscending) == LIMIT
    assert kept(touched) == LIMIT
    drained(PlayerAscending)
    assert len(contents(PlayerAscending)) == LIMIT + 20


def test_many_relations_that_are_cleared_at_once(
    pushes: Pushes, capture: None, touched: list[Touched]
) -> None:
    tag = Tag.objects.create(word="red")
    rows = Competitor.objects.bulk_create(Competitor(pk=pk, points=pk) for pk in range(1, LIMIT + 21))
    tag.competitor_set.set(rows)
    rebuild(CompetitorRank.instance())
    pushes.clear()
    touched.clear()
    tag.competitor_set.clear()
    assert pushed(pushes, CompetitorRank) == LIMIT
    assert kept(touched) == LIMIT
    drained(CompetitorRank)
    tag.delete()


def test_a_facet_of_many_members(pushes: Pushes, capture: None) -> None:
    guild = Guild.objects.create(slug="old")
    Competitor.objects.bulk_create(Competitor(points=pk, guild=guild) for pk in range(LIMIT + 20))
    rebuild(CompetitorRank.instance())
    guild.slug = "new"
    guild.save()
    assert pushed(pushes, CompetitorRank) == LIMIT
    drained(CompetitorRank)
