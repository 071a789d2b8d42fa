"""Values keep their order and their value on the way through a sorted set's score."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.db.models import CharField, F
from django.db.models.functions import Cast
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from django_zrank.codec.kinds import Kind
from django_zrank.codec.order import Order
from django_zrank.codec.units import EXACT
from django_zrank.exceptions import Unrankable
from tests.testapp.models import Account, Club, Employee, Player, Team, Ticket
from tests.testapp.zrank import ByMoment

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "integer": st.integers(-EXACT, EXACT),
    "real": st.floats(allow_nan=False, allow_infinity=False),
    "price": st.decimals(-(10**10), 10**10, places=2),
    "flag": st.booleans(),
    "day": st.dates(),
    "moment": st.datetimes(datetime(1700, 1, 1), datetime(2255, 1, 1), timezones=st.just(UTC)),
    "span": st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000)),
}

DISTANCES: dict[str, st.SearchStrategy[Any]] = {
    "integer": st.integers(0, 10**6),
    "price": st.decimals(0, 10**6, places=2),
    "day": st.integers(0, 10**5).map(lambda days: timedelta(days=days)),
    "moment": st.timedeltas(timedelta(0), timedelta(days=20_000)),
    "span": st.timedeltas(timedelta(0), timedelta(days=20_000)),
}


def kind(name: str) -> Kind:
    return Order.parse(Ticket, [name]).first.kind


def score(name: str, value: Any) -> Any:
    return Order.parse(Ticket, [name]).encode([value])[0]


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_values_return_and_keep_their_order(name: str, data: st.DataObject) -> None:
    one, other = data.draw(VALUES[name]), data.draw(VALUES[name])
    low, high = (float(repr(score(name, value))) for value in (one, other))
    assert kind(name).decode(low) == one
    assert (low < high, low == high) == (one < other, one == other)


@pytest.mark.parametrize("name", DISTANCES)
@given(data=st.data())
def test_the_ends_of_a_band_are_exact(name: str, data: st.DataObject) -> None:
    """Arithmetic on doubles, as in the script, against arithmetic on the values."""
    mine, other = data.draw(VALUES[name]), data.draw(VALUES[name])
    distance = data.draw(DISTANCES[name])
    own, end = float(score(name, mine)), float(kind(name).distance(distance))
    assert (score(name, other) >= own - end) == (other - mine >= -distance)
    assert (score(name, other) <= own + end) == (other - mine <= distance)


def test_a_distance_beyond_everything_costs_nothing() -> None:
    for text in ("1e99999", "1e9999999"):
        assert kind("integer").distance(kind("integer").parse_distance(text)) == 2**64
        assert kind("price").distance(kind("price").parse_distance(text)) == 2**64


def test_distances_are_taken_as_written() -> None:
    assert kind("price").distance(0.29) == 29  # 0.29 as a double is a little less
    assert kind("integer").distance(10.9) == 10
    assert kind("day").distance(7) == kind("day").distance(timedelta(days=7, hours=5)) == 7
    assert kind("integer").distance(Decimal("9007199254740993.999999999999999999999999")) == EXACT + 1
    assert kind("span").distance(timedelta(days=10**8, microseconds=1)) == 10**8 * 86_400_000_000 + 1


@pytest.mark.parametrize(
    ("name", "distance"),
    [
        ("integer", -1),
        ("integer", math.nan),
        ("integer", math.inf),
        ("integer", "10"),
        ("integer", True),
        ("integer", timedelta(1)),
        ("real", -0.1),
        ("real", math.nan),
        ("real", math.inf),
        ("price", Decimal("NaN")),
        ("price", Decimal(-1)),
        ("day", timedelta(-1)),
        ("day", -1),
        ("moment", 10),
        ("moment", timedelta(microseconds=-1)),
        ("span", 1.0),
    ],
)
def test_nonsense_distances(name: str, distance: Any) -> None:
    with pytest.raises(ValueError):
        kind(name).distance(distance)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("integer", 2**63),
        ("integer", -(2**63) - 1),
        ("real", math.nan),
        ("real", math.inf),
        ("price", Decimal("NaN")),
        ("price", Decimal(2**63) / 100),
        ("price", Decimal("1e999999999")),
        ("span", timedelta.max),
    ],
)
def test_values_without_a_place(name: str, value: Any) -> None:
    with pytest.raises(Unrankable):
        score(name, value)
    with pytest.raises(Unrankable):
        Order.parse(Ticket, ["flag", name]).encode([True, value])


def test_a_column_of_32_bits_is_held_to_what_a_score_holds() -> None:
    """SQLite's are wider than they say. As a further criterion such a value has all the room it needs."""
    encode = Order.parse(Player, ["level"]).encode
    assert encode([EXACT]) == (EXACT, b"")
    with pytest.raises(Unrankable, match="BigIntegerField"):
        encode([EXACT + 1])
    with pytest.raises(Unrankable, match="DecimalField"):
        score("price", Decimal(EXACT) / 10)
    order = Order.parse(Player, ["-pk", "level"])
    assert order.decode(1.0, order.encode([1, EXACT + 1])[1]) == (1, EXACT + 1)


def test_zero_has_one_score() -> None:
    assert repr(score("real", -0.0)) == "0.0"


def test_naive_datetimes_are_kept_as_they_are(settings: Any) -> None:
    settings.USE_TZ = False
    naive = datetime(2024, 2, 29, 12, 30, 0, 123456)
    assert kind("moment").decode(score("moment", naive)) == naive
    assert kind("day").decode(score("day", date(2024, 2, 29))) == date(2024, 2, 29)
    with pytest.raises(ValueError, match=r"^score: moment: .* USE_TZ is off"):  # it would be taken for UTC
        ByMoment.ranking.rank_of_score(naive.astimezone(UTC))


def test_directions_and_paths() -> None:
    first = Order.parse(Account, ["-profile__points"]).first
    assert (first.path, first.descending) == ("profile__points", True)
    assert not Order.parse(Employee, ["points"]).first.descending
    assert Order.parse(Player, ["-pk"]).paths == ("pk",)


# Several criteria


def test_directions_nulls_and_columns_of_several() -> None:
    order = Order.parse(
        Team, ["-points", F("achieved_at").asc(nulls_first=True), F("goals"), "club_id", "-pk"]
    )
    assert order.paths == ("points", "achieved_at", "goals", "club_id", "pk")
    assert [criterion.descending for criterion in order.criteria] == [True, False, False, False, True]
    assert [criterion.nullable for criterion in order.criteria] == [True, True, False, True, False]
    assert [criterion.nulls_first for criterion in order.criteria] == [False, True, False, False, False]
    assert (order.is_wide, order.width) == (True, 8 + 9 + 8 + 9 + 8)


@pytest.mark.parametrize(
    ("model", "order", "width", "is_wide"),
    [
        (Player, ["-level"], 0, False),
        (Ticket, ["-integer"], 0, True),
        (Ticket, ["moment"], 0, True),
        (Ticket, ["span"], 0, True),
        (Ticket, ["price"], 0, False),
        (Team, ["fee"], 0, True),
        (Team, ["club_id"], 0, True),
        (Employee, ["pk"], 0, True),
        (Player, ["-level", "id"], 8, False),
        (Ticket, ["-integer", "day"], 8 + 9, True),
        # There need not be a profile.
        (Account, ["pk", "profile__points"], 8 + 9, True),
        (Account, ["profile__points", "club__id"], 9, False),
        (Employee, ["points", "person_ptr_id"], 8, False),
    ],
)
def test_how_wide_it_is_stored(model: Any, order: list[str], width: int, is_wide: bool) -> None:
    parsed = Order.parse(model, order)
    assert (parsed.width, parsed.is_wide) == (width, is_wide)


INT64 = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63 - 2, -(2**63), 1 - 2**63]),
    st.sampled_from([1 - 2**53, -(2**53), -(2**53) - 1]),
    st.integers(-(2**63), 2**63 - 1),
)


@example(2**53, 2**53 + 1)
@example(-(2**53) - 1, -(2**53))
@example(2**63 - 1, 2**63 - 2)
@given(INT64, INT64)
def test_all_of_int64_is_exact(one: int, other: int) -> None:
    """With one criterion, and with another behind it, which must not matter unless they are equal."""
    for order, values in (
        (["integer"], ([one], [other])),
        (["-integer", "flag"], ([one, True], [other, False])),
    ):
        parsed = Order.parse(Ticket, order)
        low, high = map(stored, map(parsed.encode, values))
        assert [parsed.decode(*place) for place in (low, high)] == [tuple(given) for given in values]
        if one != other:
            assert (low < high) == (one < other)


def stored(place: tuple[float, bytes]) -> tuple[float, bytes]:
    """A score as it comes back from Redis."""
    score, tie = place
    return float(repr(score)), tie


def test_tie_bytes_of_one_criterion_are_spared_where_a_score_does() -> None:
    encode = Order.parse(Ticket, ["integer"]).encode
    assert encode([2**53 - 1]) == (2**53 - 1, b"")
    assert encode([2**53]) == (2.0**53, b"\0\x80\x20" + bytes(6))
    assert encode([-(2**63)]) == (-(2.0**63), bytes(9))


def test_a_null_that_cannot_be_is_refused() -> None:
    """A table that somebody else made may lack the NOT NULL of the model."""
    with pytest.raises(Unrankable, match="null"):
        Order.parse(Team, ["points", "goals"]).encode([5, None])
    with pytest.raises(Unrankable, match="null"):
        Order.parse(Team, ["points", "goals"]).encode([None, 5])


def test_a_value_of_another_type_is_no_null() -> None:
    with pytest.raises((AttributeError, TypeError)):
        Order.parse(Team, ["points", "founded"]).encode([5, 5])


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
@example(0.0, -0.0)
@example(5e-324, 0.0)
@example(-5e-324, 0.0)
@example(-1.5, -1.4999999999999998)
def test_floats_keep_their_order_in_tie_bytes(one: float, other: float) -> None:
    for order in (Order.parse(Ticket, ["flag", "real"]), Order.parse(Ticket, ["flag", "-real"])):
        (_, low), (_, high) = (order.encode([True, value]) for value in (one, other))
        assert [order.decode(1, tie)[1] for tie in (low, high)] == [one, other]
        if order.criteria[1].descending:
            low, high = high, low
        assert (low < high, low == high) == (one < other, one == other)


@pytest.mark.parametrize(
    "value", [datetime.min, datetime.max, datetime(1684, 7, 28), datetime(1969, 12, 31, 23, 59)]
)
def test_all_of_the_calendar_is_exact(value: datetime) -> None:
    moment = value.replace(tzinfo=UTC)
    for order in (["moment"], ["moment", "integer"], ["flag", "moment"], ["flag", "-moment"]):
        parsed = Order.parse(Ticket, order)
        values = [{"flag": True, "integer": None}.get(path, moment) for path in parsed.paths]
        assert parsed.decode(*stored(parsed.encode(values))) == tuple(values)


# Places


def test_the_place_of_a_value_is_that_of_a_member_that_has_it() -> None:
    for order in (["-integer"], ["-integer", "day"]):
        parsed = Order.parse(Ticket, order)
        for units in (0, 2**53 - 1, 2**53, 2**53 + 1, -(2**63)):
            score, tie = parsed.encode([units, None][: len(order)])
            exact = b"" if abs(units) < EXACT else tie if len(order) == 1 else tie[:8]
            assert parsed.bound_of(units) == (float(score), exact)
    assert Order.parse(Player, ["level"]).bound_of(EXACT + 1) == (2.0**53, b"")
    assert Order.parse(Ticket, ["real"]).bound_of(Decimal("0.5")) == (0.5, b"")
    assert Order.parse(Ticket, ["price"]).bound_of(0.29) == (29.0, b"")
    assert Order.parse(Ticket, ["flag"]).bound_of(True) == (1.0, b"")
    assert Order.parse(Ticket, ["day"]).bound_of(date(1970, 1, 2)) == (1.0, b"")
    assert Order.parse(Ticket, ["moment"]).bound_of(datetime(1970, 1, 2, tzinfo=UTC)) == (
        86_400_000_000.0,
        b"",
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("integer", "10"),
        ("integer", 10.5),
        ("integer", math.nan),
        ("integer", 2**63),
        ("integer", Decimal("1e999999999")),
        ("integer", True),
        ("integer", None),
        ("real", math.inf),
        ("real", "1"),
        ("real", Decimal("1e400")),
        ("price", Decimal("0.005")),
        ("price", Decimal("NaN")),
        ("price", Decimal("1e999999999")),
        ("day", datetime(2024, 1, 1)),
        ("day", 7),
        ("moment", date(2024, 1, 1)),
        ("span", 5),
        ("span", timedelta.max),
    ],
)
def test_what_has_no_place(path: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{path}: "):
        Order.parse(Ticket, [path]).bound_of(value)


# The database's own ORDER BY

PLACES = 10**12 if connection.vendor == "sqlite" else 10**15  # SQLite's decimals are doubles
MOMENT = datetime(2024, 2, 29, 12, tzinfo=UTC)

COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "points": INT64,
    "goals": st.one_of(st.integers(-2, 2), st.sampled_from([2**31 - 1, -(2**31)])),
    "wins": st.one_of(st.integers(0, 2), st.sampled_from([2**53, 2**53 + 1, 2**63 - 1]), st.none()),
    "rating": st.one_of(
        st.sampled_from([0.0, -0.0, 0.5, -0.5, 1e300, -1e300, 2.0**53]),
        st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False),
        st.none(),
    ),
    "fee": st.one_of(st.decimals(1 - PLACES, PLACES - 1, places=3), st.decimals(-1, 1, places=1), st.none()),
    "founded": st.one_of(st.dates(date(1000, 1, 1)), st.dates(MOMENT.date(), date(2024, 3, 2)), st.none()),
    "achieved_at": st.one_of(
        st.datetimes(datetime(1000, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),
        st.integers(-1, 1).map(lambda microseconds: MOMENT + timedelta(microseconds=microseconds)),
        st.none(),
    ),
    "lead": st.one_of(
        st.timedeltas(timedelta(days=-200_000), timedelta(days=200_000)),
        st.timedeltas(timedelta(0), timedelta(microseconds=2)),
        st.none(),
    ),
    "is_pro": st.booleans(),
    "club_id": st.sampled_from([1, 2, 10, None]),
}

Direction = tuple[bool, bool | None]
"""True if it descends; True if nulls are first, None if that isn't said."""


@st.composite
def orders(draw: st.DrawFn) -> list[tuple[str, Direction]]:
    paths = draw(st.lists(st.sampled_from([*COLUMNS, "pk"]), min_size=1, max_size=4, unique=True))
    directions = st.tuples(st.booleans(), st.sampled_from([None, None, True, False]))
    return [(path, draw(directions)) for path in paths]


def declared(path: str, descends: bool, nulls_first: bool | None, *, is_first: bool) -> Any:
    """The entry of ``order``, in text where that says it."""
    if nulls_first is None or (is_first and nulls_first):
        return f"-{path}" if descends else path
    placed = {"nulls_first": True} if nulls_first else {"nulls_last": True}
    return F(path).desc(**placed) if descends else F(path).asc(**placed)


def meant(path: str, descends: bool, nulls_first: bool | None) -> Any:
    """The same for Django, spelled out: databases disagree on where nulls belong."""
    placed = {"nulls_first": True} if nulls_first else {"nulls_last": True}
    return F(path).desc(**placed) if descends else F(path).asc(**placed)


@pytest.mark.django_db
@hypothesis_settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(criteria=orders(), question=st.data())
def test_the_order_is_that_of_the_database(
    criteria: list[tuple[str, Direction]], question: st.DataObject
) -> None:
    """Score, then bytes, against ORDER BY; and every value comes back as the database has it."""
    paths = [path for path, _ in criteria]
    pool = {
        path: question.draw(st.lists(COLUMNS[path], min_size=1, max_size=4)) for path in paths if path != "pk"
    }
    row = st.fixed_dictionaries({path: st.sampled_from(values) for path, values in pool.items()})
    rows = question.draw(st.lists(row, min_size=1, max_size=25), "rows")
    Team.objects.all()._raw_delete("default")
    Club.objects.bulk_create([Club(pk=pk) for pk in (1, 2, 10)], ignore_conflicts=True)
    Team.objects.bulk_create(Team(pk=at**2, **values) for at, values in enumerate(rows, 1))

    order = Order.parse(
        Team, [declared(path, *says, is_first=at == 0) for at, (path, says) in enumerate(criteria)]
    )
    first, descends = criteria[0][0], criteria[0][1][0]
    by_text = Cast("pk", CharField(max_length=20))
    ranked = Team.objects.filter(**{f"{first}__isnull": False})
    best_first = [meant(path, *says) for path, says in criteria]
    expected = list(
        ranked.order_by(*best_first, by_text.desc() if descends else by_text.asc()).values_list(
            "pk", flat=True
        )
    )

    encode, members = order.encode, []
    for pk, *values in ranked.order_by("?").values_list("pk", *order.paths):
        score, tie = stored(encode(values))
        assert len(tie) == order.width or (order.width == 0 and order.is_wide and len(tie) == 9)
        assert order.decode(score, tie) == tuple(values)
        members.append((score, tie + str(pk).encode(), pk))
    members.sort(reverse=descends)
    assert [pk for _, _, pk in members] == expected
    # The order of positions, which is what a sorted set is filled in.
    positions = list(
        ranked.order_by(*order.ascending(map(F, order.paths)), by_text.asc()).values_list("pk", flat=True)
    )
    assert positions == (expected[::-1] if descends else expected)
