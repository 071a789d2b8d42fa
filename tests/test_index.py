"""A declaration: its defaults, its hooks, and its members as text."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import AppRegistryNotReady
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from django_zrank import NotRanked, RankIndex, Ranking
from django_zrank.registry import Registry
from tests.testapp.models import Account, Employee, Manager, Person, Player, PlayerProxy, Remote
from tests.testapp.zrank import (
    ByDay,
    ByFlag,
    ByInteger,
    ByMoment,
    ByPrice,
    ByReal,
    BySpan,
    EmployeeRank,
    NicknameRank,
    RemoteRank,
)


class Plain(RankIndex):
    """Nothing but what must be said."""

    model = Player
    order = ("-level",)


PLAIN = Plain.instance()


# Defaults and hooks


def test_what_is_not_said_has_a_default() -> None:
    assert PLAIN.name == "player"
    assert PLAIN.get_band() is None
    assert PLAIN.get_owner() is None
    assert PLAIN.get_using() == "default"
    assert PLAIN.get_queryset().model is Player
    assert list(PLAIN.get_excluded(Player())) == []


def test_a_forgotten_model_is_left_to_the_checks() -> None:
    index = type("Homeless", (RankIndex,), {}).instance()
    assert (index.model, index.name) == (None, "")


@pytest.mark.parametrize(
    ("model", "module"),
    [("testapp.Player", "elsewhere"), ("testapp.player", ""), ("Player", "tests.testapp.zrank")],
)
def test_a_model_may_be_named(model: str, module: str) -> None:
    index = type(
        "Named", (RankIndex,), {"model": model, "order": ("-level",), "__module__": module}
    ).instance()
    assert (index.model, index.name) == (Player, "player")
    assert index.to_text(Player(pk=7)) == "7"


def test_a_model_named_by_a_hook() -> None:
    class Hooked(RankIndex):
        def get_model(self) -> Any:
            return "testapp.Player"

    assert Hooked.instance().model is Player


def test_a_named_model_is_not_asked_for_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that can't be known yet is not remembered as missing."""
    named = type("Early", (RankIndex,), {"model": "testapp.Player", "order": ("-level",)})
    registry = Registry()
    registry.register(named)
    monkeypatch.setattr(apps, "models_ready", False)
    for ask in (named.instance, registry.all):
        with pytest.raises(AppRegistryNotReady):
            ask()
    monkeypatch.undo()
    assert registry.all() == [named.instance()]
    assert named.instance().model is Player


def test_attributes_say_otherwise() -> None:
    class Other(RankIndex):
        model = Player
        order = ("level",)
        name = "others"
        using = "other"
        band = (5, 10)
        owner = "user"

    index = Other.instance()
    assert (index.name, index.get_using(), index.get_band(), index.get_owner()) == (
        "others",
        "other",
        (5, 10),
        "user",
    )


def test_every_attribute_has_a_hook() -> None:
    class Hooked(RankIndex):
        def get_model(self) -> Any:
            return Player

        def get_order(self) -> tuple[str, ...]:
            return ("-level",)

        def get_name(self) -> str:
            return "hooked"

        def get_using(self) -> str:
            return "other"

    index = Hooked.instance()
    assert (index.model, index.name, index.get_using()) == (Player, "hooked", "other")
    assert index.ordering.first.path == "level"
    assert index.get_ranked().db == "other"


def test_the_router_says_which_database() -> None:
    assert RemoteRank.instance().get_using() == "other"
    assert RemoteRank.instance().get_ranked().db == "other"
    assert Remote.objects.all().db == "other"


def test_one_instance_serves_the_process() -> None:
    assert Plain.instance() is PLAIN
    assert PLAIN.instance() is PLAIN
    assert PLAIN.ranking is Plain.ranking
    assert isinstance(Plain.ranking, Ranking)
    assert Plain.ranking.index is PLAIN


def test_a_subclass_is_an_index_of_its_own() -> None:
    class Child(Plain):
        name = "child"

    assert Child.instance() is not PLAIN
    assert Child.ranking.index.name == "child"


def test_exclusions_are_asked_for_only_where_there_are_any() -> None:
    class Picky(Plain):
        def get_excluded(self, member: Any) -> Iterable[Any]:
            return [1]

    assert not PLAIN.has_excluded
    assert Picky.instance().has_excluded


@pytest.mark.django_db
def test_rows_without_a_score_or_outside_the_queryset_have_no_rank() -> None:
    class Active(Plain):
        def get_queryset(self) -> Any:
            return Player.objects.filter(is_active=True)

    ranked = Player.objects.create(level=5)
    Player.objects.create(level=None)
    Player.objects.create(level=5, is_active=False)
    assert list(Active.instance().get_ranked()) == [ranked]


# The row of a user


class Owned(Plain):
    owner = "user"

    def get_queryset(self) -> Any:
        return Player.objects.filter(is_active=True)


class UserRank(RankIndex):
    model = User
    order = ("-date_joined",)


@pytest.mark.django_db
def test_the_row_of_a_user_is_found_through_the_owner() -> None:
    ada, bob = (User.objects.create(username=name) for name in ("ada", "bob"))
    player = Player.objects.create(user=ada, level=5)
    with CaptureQueriesContext(connection) as queries:
        assert Owned.instance().get_member(ada) == player
    (query,) = queries
    assert "ORDER BY" not in query["sql"]  # nobody owns two
    with pytest.raises(NotRanked, match="bob"):
        Owned.instance().get_member(bob)


@pytest.mark.django_db
def test_a_row_that_is_not_ranked_is_nobodys() -> None:
    ada = User.objects.create(username="ada")
    Player.objects.create(user=ada, level=5, is_active=False)
    with pytest.raises(NotRanked):
        Owned.instance().get_member(ada)


@pytest.mark.django_db
def test_of_several_rows_the_first_that_is_ranked_is_taken() -> None:
    class Befriended(Plain):
        owner = "friends__user"

    ada = User.objects.create(username="ada")
    ours = Player.objects.create(user=ada)
    others = [Player.objects.create(level=level) for level in (None, 3, 9)]
    ours.friends.add(*others)
    assert Befriended.instance().get_member(ada) == others[1]


@pytest.mark.django_db
def test_users_who_are_ranked_themselves_need_no_owner() -> None:
    ada = User.objects.create(username="ada")
    assert UserRank.instance().get_member(ada) == ada


@pytest.mark.django_db
@pytest.mark.parametrize("index", [Owned, UserRank, Plain])
def test_somebody_who_is_not_signed_in_has_no_row(index: type[RankIndex]) -> None:
    Player.objects.create(user=None, level=5)
    with pytest.raises(NotRanked):
        index.instance().get_member(AnonymousUser())


# Members as text


def test_a_member_is_its_primary_key() -> None:
    key = uuid.uuid4()
    assert PLAIN.to_text(7) == PLAIN.to_text("7") == PLAIN.to_text(Player(pk=7)) == "7"
    assert ByInteger.instance().to_text(key) == ByInteger.instance().to_text(str(key).upper()) == str(key)
    assert NicknameRank.instance().to_text("ada") == "ada"


def test_proxies_and_children_are_members() -> None:
    assert PLAIN.to_text(PlayerProxy(pk=7)) == "7"
    assert EmployeeRank.instance().to_text(Employee(person_ptr_id=7)) == "7"
    assert EmployeeRank.instance().to_text(Manager(employee_ptr_id=7, person_ptr_id=7)) == "7"


@pytest.mark.parametrize(
    ("index", "member"),
    [
        (PLAIN, Player()),
        (PLAIN, Account(pk=7)),
        (EmployeeRank.instance(), Person(pk=7)),
        (PLAIN, None),
        (PLAIN, ""),
        (PLAIN, "seven"),
        (PLAIN, "7.5"),
        (PLAIN, 7.5),
        (PLAIN, Decimal("7.5")),
        (PLAIN, Fraction(15, 2)),
        (PLAIN, True),
        (PLAIN, float("inf")),
        (PLAIN, [7]),
        (PLAIN, "9" * 5000),
        (ByInteger.instance(), "no uuid"),
        (NicknameRank.instance(), None),
        (NicknameRank.instance(), "nul\0byte"),
        (NicknameRank.instance(), "half a pair \ud800"),
        (NicknameRank.instance(), True),
        (PLAIN, Player(pk="seven")),
        (ByInteger.instance(), True),
    ],
    ids=repr,
)
def test_what_is_no_member_is_refused_by_the_name_of_its_parameter(index: RankIndex, member: Any) -> None:
    with pytest.raises(ValueError, match=r"^exclude: "):
        index.to_text(member, "exclude")


@pytest.mark.parametrize(
    ("index", "keys"),
    [
        (PLAIN, st.integers(-(2**63), 2**63 - 1)),
        (ByInteger.instance(), st.uuids()),
        (
            NicknameRank.instance(),
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
        ),
    ],
    ids=["integers", "uuids", "text"],
)
@given(data=st.data())
def test_keys_there_and_back(index: RankIndex, keys: Any, data: st.DataObject) -> None:
    key = data.draw(keys)
    assert index.parse_pk(index.to_text(key)) == index.from_bytes(index.to_text(key).encode()) == key


# Bands as text


@pytest.mark.parametrize(
    ("index", "text", "distance"),
    [
        (PLAIN, "10", 10),
        (PLAIN, "1.5", Decimal("1.5")),
        (ByDay, "3", Decimal(3)),
        (ByReal, "0.25", Decimal("0.25")),
        (ByPrice, "2.50", Decimal("2.50")),
        (ByFlag, "1", 1),
        (ByDay, "7", 7),
        (ByDay, "P7D", timedelta(days=7)),
        (ByMoment, "PT1H", timedelta(hours=1)),
        (BySpan, "00:01:30", timedelta(seconds=90)),
    ],
)
def test_a_distance_out_of_a_query_string(index: Any, text: str, distance: Any) -> None:
    assert index.instance().parse_band(text) == distance


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (PLAIN, ""),
        (PLAIN, "ten"),
        (PLAIN, "-1"),
        (PLAIN, "nan"),
        (PLAIN, "inf"),
        (PLAIN, "P1D"),
        (ByReal, "1e999"),
        (ByDay, "-P1D"),
        (ByMoment, "10 minutes"),
        (ByMoment, "P99999999999D"),
        (BySpan, "P9999999999D"),
    ],
)
def test_nonsense_for_a_distance(index: Any, text: str) -> None:
    with pytest.raises(ValueError):
        index.instance().parse_band(text)


def test_declaring_asks_neither_the_database_nor_redis() -> None:
    """This test has access to neither."""
    index = Plain()
    assert index.ordering.first.descending
    assert str(index.get_ranked().query)
    assert "player" in repr(index)
