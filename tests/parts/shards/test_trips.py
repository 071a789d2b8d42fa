"""Round trips over shards: docs/scaling.md tells them, call by call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from redis.connection import Connection

from django_zrank.shards import reader
from tests.pages import ROOT
from tests.populations import populate
from tests.sharded import sharded
from tests.test_async_versions import ROWS
from tests.test_ranking import CompetitorRank
from tests.testapp.methods import KEEPING
from tests.testapp.models import Competitor
from tests.without_parts.parts import PARTS

pytestmark = pytest.mark.usefixtures("zrank")


def documented() -> Iterator[tuple[str, list[int]]]:
    """Each call, and its round trips by ordinal, competition and dense ranks."""
    page = (ROOT / "docs/scaling.md").read_text().partition("### Round trips")[2].partition("\n#")[0]
    for calls, *trips in re.findall(r"^\| (`.+) \| (\d) \| (\d) \| (\d) \|$", page, re.MULTILINE):
        for call in re.findall(r"`((?:ranking|group)\.[^`]+)`", calls):
            yield call, [int(number) for number in trips]


DOCUMENTED = dict(documented())
METHODS = ["ordinal", "competition", *(["dense"] if PARTS["dense"].is_there else [])]


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have shards be read as those of a cluster."""
    monkeypatch.setattr(reader, "spreads_keys", lambda alias: True)


def test_the_calls_that_are_listed() -> None:
    assert len(DOCUMENTED) > 12


class Counted(CompetitorRank):
    name = "counted-trips"
    ranking_method = KEEPING


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("call", DOCUMENTED)
def test_round_trips(call: str) -> None:
    assert found_trips(call) == DOCUMENTED[call][: len(METHODS)]


@pytest.mark.parametrize(
    "call", ["ranking.rank(player)", "ranking.rank(player.pk)", "ranking.recommend(player.pk, band=9)"]
)
def test_shards_of_one_server_take_one_round_trip(call: str) -> None:
    assert found_trips(call)[:2] == [1, 1]


def found_trips(call: str) -> list[int]:
    """The round trips of a call by each ranking method."""
    index = sharded(Counted, 3)
    populate(index, ROWS)
    names = {
        "group": index.group("shown"),
        "player": Competitor(pk=min(ROWS), points=ROWS[min(ROWS)]["points"]),
    }
    names["group"].add(names["player"])
    rankings = [index.ranking.by(method) for method in METHODS]
    return [trips(call, names | {"ranking": each, "entry": each.top(9)[4]}) for each in rankings]


def trips(call: str, names: dict[str, Any]) -> int:
    """The requests of a call: the fewest of three, as scripts are sent once, and health is looked up once a second."""
    numbers = []
    for _ in range(3):
        with mock.patch.object(Connection, "send_packed_command", autospec=True, side_effect=send) as sent:
            eval(call, names)
        numbers.append(sent.call_count)
    return min(numbers)


send = Connection.send_packed_command
