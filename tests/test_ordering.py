"""Values keep their order and their value on the way through a sorted set's score."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import FieldDoesNotExist, FieldError
from hypothesis import given
from hypothesis import strategies as st

from django_zrank.exceptions import Unrankable
from django_zrank.ordering import EXACT, Kind, Order
from tests.testapp.models import Account, Employee, Player, Ticket

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


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_values_return_and_keep_their_order(name: str, data: st.DataObject) -> None:
    one, other = data.draw(VALUES[name]), data.draw(VALUES[name])
    low, high = (float(repr(kind(name).encode(value))) for value in (one, other))
    assert kind(name).decode(low) == one
    assert (low < high, low == high) == (one < other, one == other)


@pytest.mark.parametrize("name", DISTANCES)
@given(data=st.data())
def test_the_ends_of_a_band_are_exact(name: str, data: st.DataObject) -> None:
    """Arithmetic on doubles, as in the script, against arithmetic on the values."""
    mine, other = data.draw(VALUES[name]), data.draw(VALUES[name])
    distance = data.draw(DISTANCES[name])
    score, end = float(kind(name).encode(mine)), float(kind(name).distance(distance))
    assert (kind(name).encode(other) >= score - end) == (other - mine >= -distance)
    assert (kind(name).encode(other) <= score + end) == (other - mine <= distance)


def test_a_distance_beyond_everything_costs_nothing() -> None:
    for text in ("1e99999", "1e9999999"):
        assert kind("integer").distance(kind("integer").parse_distance(text)) == 2 * EXACT
        assert kind("price").distance(kind("price").parse_distance(text)) == 2 * EXACT


def test_distances_are_taken_as_written() -> None:
    assert kind("price").distance(0.29) == 29  # 0.29 as a double is a little less
    assert kind("integer").distance(10.9) == 10
    assert kind("day").distance(7) == kind("day").distance(timedelta(days=7, hours=5)) == 7


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
    ("name", "text", "distance"),
    [
        ("integer", "10", Decimal(10)),
        ("real", "1.5", Decimal("1.5")),
        ("price", "0.05", Decimal("0.05")),
        ("day", "3", Decimal(3)),
        ("day", "P3D", timedelta(days=3)),
        ("moment", "PT1H", timedelta(hours=1)),
        ("span", "00:01:30", timedelta(seconds=90)),
    ],
)
def test_distances_from_text(name: str, text: str, distance: Any) -> None:
    parsed = kind(name).parse_distance(text)
    assert parsed == distance
    kind(name).distance(parsed)


@pytest.mark.parametrize(
    ("name", "text"),
    [("integer", "ten"), ("integer", ""), ("moment", "soon"), ("day", "x"), ("span", "P9999999999D")],
)
def test_nonsense_text(name: str, text: str) -> None:
    with pytest.raises(ValueError):
        kind(name).parse_distance(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("integer", EXACT + 1),
        ("integer", -EXACT - 1),
        ("real", math.nan),
        ("real", math.inf),
        ("price", Decimal("NaN")),
        ("price", Decimal(EXACT)),
        ("moment", datetime(2300, 1, 1, tzinfo=UTC)),
        ("span", timedelta.max),
    ],
)
def test_values_without_a_place(name: str, value: Any) -> None:
    with pytest.raises(Unrankable):
        kind(name).encode(value)


def test_zero_has_one_score() -> None:
    assert repr(kind("real").encode(-0.0)) == "0.0"


def test_naive_datetimes_are_kept_as_they_are(settings: Any) -> None:
    settings.USE_TZ = False
    naive = datetime(2024, 2, 29, 12, 30, 0, 123456)
    assert kind("moment").decode(kind("moment").encode(naive)) == naive
    assert kind("day").decode(kind("day").encode(date(2024, 2, 29))) == date(2024, 2, 29)


def test_directions_and_paths() -> None:
    first = Order.parse(Account, ["-profile__points"]).first
    assert (first.path, first.descending) == ("profile__points", True)
    assert not Order.parse(Employee, ["points"]).first.descending
    assert Order.parse(Player, ["-pk"]).paths == ("pk",)


@pytest.mark.parametrize(
    ("model", "order", "error"),
    [
        (Player, ["-height"], FieldDoesNotExist),
        (Player, ["name"], FieldError),
        (Player, ["user"], FieldError),
        (Player, ["friends__level"], FieldError),
        (Player, ["level__gt"], FieldError),
        (Player, [], FieldError),
        (Player, "level", FieldError),
        (Player, ["-level", "name"], FieldError),
    ],
)
def test_orders_that_cannot_be(model: Any, order: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Order.parse(model, order)
