"""Pages before and after an entry, while scores change: a member that stays is on exactly one of them."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from struct import pack
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from django.test import override_settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_zrank import Entry, EntryPage, RankIndex
from django_zrank.codec.cursors import decode_cursor, encode_cursor, sort_key_at
from django_zrank.queries import pages
from django_zrank.ranking import Ranking
from tests.populations import fill, populate
from tests.rankings import by_sql
from tests.sharded import sharded
from tests.test_ranking import FACETED, FILTERS, INDEXES, Oracle, Row, populations, rows, write
from tests.testapp.models import Nickname, Ticket
from tests.testapp.zrank import PlayerRank
from tests.without_parts.parts import PARTS

pytestmark = pytest.mark.usefixtures("zrank")

EVERYBODY: tuple[Callable[[Ranking], Ranking], Callable[[Row], bool]] = (
    lambda ranking: ranking,
    lambda row: True,
)
NARROWED = [EVERYBODY, *(FILTERS[name] for name in ("one value", "uncovered") if name in FILTERS)]

examples = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

changes = st.lists(st.dictionaries(st.integers(1, 120), st.none() | rows, max_size=4), max_size=12)
"""What happens after each page: members that change, come or, for None, go."""


class Walk:
    """Reads pages up and down from a member, as rows change in between."""

    def __init__(
        self,
        ranking: Ranking,
        passes: Callable[[Row], bool],
        put: Callable[[Mapping[int, Row]], Any],
        population: dict[int, Row],
        happens: list[dict[int, Row | None]],
        n: int,
    ) -> None:
        self.ranking, self.passes, self.put, self.n = ranking, passes, put, n
        self.left = 150
        """Pages after which the walk has got stuck."""

        self.rows, self.happens, self.steady = dict(population), list(happens), set(population)
        put(self.rows)

    def oracle(self) -> Oracle:
        return Oracle(type(self.ranking.index), self.rows, self.passes)

    def check(self, page: EntryPage[Any]) -> EntryPage[Any]:
        """Compare a page with the sorted list, then let something happen."""
        oracle, pks = self.oracle(), [entry.pk for entry in page]
        self.left -= 1
        assert self.left
        assert page == oracle.entries(pks)
        if pks:
            first = oracle.pks.index(pks[0])
            assert pks == oracle.pks[first : first + len(pks)]
            assert page.has_previous == (first > 0)
            assert page.has_next == (first + len(pks) < len(oracle.pks))
        for pk, row in (self.happens.pop() if self.happens else {}).items():
            if row != self.rows.get(pk):
                self.steady.discard(pk)
            if row is None:
                self.rows.pop(pk, None)
            else:
                self.rows[pk] = row
        self.put(self.rows)
        return page

    def walk(self, member: int) -> list[int]:
        """The members of all pages, from the first one to the last."""
        cursor = self.ranking.cursor
        start = self.check(self.ranking.around(member, self.n))
        above, below = [start], [start]
        while above[-1] and above[-1].has_previous:
            above.append(self.check(self.ranking.before(cursor(above[-1][0]), self.n)))
            assert len(above[-1]) == self.n or not above[-1].has_previous
        while below[-1] and below[-1].has_next:
            below.append(self.check(self.ranking.after(below[-1][-1], self.n)))
            assert len(below[-1]) == self.n or not below[-1].has_next
        return [entry.pk for entry in chain(*above[:0:-1], *below)]


def assert_none_is_skipped_or_repeated(walk: Walk, seed: int) -> None:
    oracle = walk.oracle()
    if not oracle.pks:
        return
    found = walk.walk(oracle.pks[seed % len(oracle.pks)])
    steady = [pk for pk in oracle.pks if pk in walk.steady]
    assert [pk for pk in found if pk in walk.steady] == steady


@pytest.mark.parametrize("case", NARROWED, ids=["all", "facet", "combined"][: len(NARROWED)])
@pytest.mark.parametrize("where", ["redis", "sql", "shards"])
@examples
@given(
    population=populations,
    index=st.sampled_from([*FACETED, *FACETED, *INDEXES]),
    happens=changes,
    n=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_a_member_that_stays_is_on_one_page(
    db: None,
    case: Any,
    where: str,
    population: dict[int, Row],
    index: type[RankIndex],
    happens: list[dict[int, Row | None]],
    n: int,
    seed: int,
) -> None:
    narrow, passes = case
    if where == "sql" and not PARTS["sql"].is_there:
        return
    if case is not EVERYBODY and index in INDEXES:
        index = FACETED[seed % len(FACETED)]
    if where == "shards":
        index = sharded(index, 3)
    ranking = by_sql(index) if where == "sql" else index.ranking
    put = write if where == "sql" else lambda rows: populate(index, rows)
    with override_settings(ZRANK={"DATABASE_TIMEOUT": 60}):  # a busy machine
        walk = Walk(narrow(ranking), passes, put, population, happens, n)
        assert_none_is_skipped_or_repeated(walk, seed)


@pytest.mark.parametrize("is_after", [True, False])
def test_a_page_of_several_round_trips(is_after: bool) -> None:
    """Members that move between two of them shift no others."""
    fill(PlayerRank, {pk: pk // 2 for pk in range(1, 41)})
    ranking, client = PlayerRank.ranking, PlayerRank.ranking.store.client
    everybody, entry = [one.pk for one in ranking.top(40)], ranking[20]
    root, read = ranking._reader.learn().root, pages.parse_page
    moves = {40: -5, 1: 90, 30: -6, 11: 91, 12: 0}
    left = [*moves.items()]

    def moving(reply: Any) -> Any:
        if left:
            client.zadd(root, dict([left.pop(0)]))
        return read(reply)

    with mock.patch.object(pages, "_CHUNK", 4), mock.patch.object(pages, "parse_page", moving):
        page = ranking.after(entry, 30) if is_after else ranking.before(entry, 30)
    assert not left
    steady = [pk for pk in (everybody[21:] if is_after else everybody[:20]) if pk not in moves]
    assert [found.pk for found in page if found.pk not in moves] == steady


@pytest.mark.parametrize("index", [PlayerRank, sharded(PlayerRank, 3)])
def test_iteration_while_scores_change(index: type[RankIndex], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_zrank.ranking._PAGE", 4)
    scores = {pk: pk // 2 for pk in range(1, 41)}
    fill(index, scores)
    steady, found = {*scores}, []
    for at, entry in enumerate(index.ranking):
        found.append(entry.pk)
        if at % 4 == 1:  # one from the end to the beginning, one the other way round
            for pk, score in ((at // 4 + 1, 99), (40 - at // 4, -1)):
                scores[pk] = score
                steady.discard(pk)
            fill(index, scores)
    assert [pk for pk in found if pk in steady] == sorted(
        steady, key=lambda pk: (pk // 2, str(pk)), reverse=True
    )


def test_an_entry_that_has_left_says_where_the_page_begins() -> None:
    fill(PlayerRank, {pk: pk for pk in range(1, 8)})
    ranking = PlayerRank.ranking
    entry = ranking.entry(4)
    fill(PlayerRank, {pk: pk for pk in (1, 2, 3, 5, 6, 7)} | {4: 9})
    assert [one.pk for one in ranking.after(entry, 2)] == [3, 2]
    assert [one.pk for one in ranking.before(entry, 2)] == [6, 5]
    fill(PlayerRank, {7: 7})
    assert (ranking.after(entry), ranking.after(entry).has_previous) == ([], True)
    assert ranking.before(entry) == ranking.top()


class Nicknamed(RankIndex):
    name = "cursors-nicknamed"
    model = Nickname
    order = ("-score",)


@pytest.mark.parametrize("pk", ["a", "b c", "é/+", "~" * 40, "0", "日本"])
def test_a_cursor_is_safe_in_urls(pk: str) -> None:
    populate(Nicknamed, {pk: {"score": 5}, "zz": {"score": 5}})
    entry = Nicknamed.ranking.entry(pk)
    cursor = Nicknamed.ranking.cursor(entry)
    assert cursor.replace("-", "").replace("_", "").isalnum()
    assert cursor.isascii()
    assert Nicknamed.ranking.after(cursor) == Nicknamed.ranking.after(entry)
    assert decode_cursor(Nicknamed.instance(), cursor) == sort_key_at(Nicknamed.instance(), entry)


KINDS: dict[str, list[Any]] = {
    "integer": [-(2**63), -(2**53), 0, 2**53 + 1, 2**63 - 1],
    "real": [-1e308, -0.5, 0.1, 5e-324],
    "price": [Decimal("-0.01"), Decimal("12.34")],
    "flag": [True, False],
    "day": [date(1, 1, 1), date(9999, 12, 31)],
    "moment": [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)],
    "span": [timedelta.min // 2000, timedelta(0), timedelta(microseconds=1)],
}


def by(*columns: str) -> RankIndex:
    name = f"cursors-{'-'.join(columns)}"
    return type("Rank", (RankIndex,), {"name": name, "model": Ticket, "order": columns}).instance()


@pytest.mark.parametrize("column", KINDS)
def test_cursors_of_every_kind(column: str) -> None:
    for columns in ((column,), (column, "-integer" if column != "integer" else "day")):
        index = by(*columns)
        for score in KINDS[column]:
            values = (score, None)[: len(columns)]
            entry = Entry(UUID(int=7), score, 1, values)
            assert decode_cursor(index, index.ranking.cursor(entry)) == sort_key_at(index, entry)


@given(noise=st.binary(max_size=60), column=st.sampled_from([*KINDS]), score=st.floats())
def test_whatever_is_given_is_a_cursor_or_is_refused(noise: bytes, column: str, score: float) -> None:
    """With what it says, or ``ValueError`` and nothing else."""
    member = str(UUID(int=7)).encode()
    for index in (by(column), by(column, "-integer" if column != "integer" else "day")):
        for stored in (noise, noise + member, b"\0" + noise[:8] + member, member):
            cursor = urlsafe_b64encode(pack(">d", score) + stored).decode().rstrip("=")
            try:
                assert decode_cursor(index, cursor) == (score, stored)
            except ValueError:
                with pytest.raises(ValueError, match="entry: expected a cursor"):
                    index.ranking.after(cursor)


WRONG = [
    *(None, 5, "", "a", "AAAA", "é", "A" * 5000, b"", UUID(int=7)),
    *(Entry(7, 5, 1, ()), Entry(7, 5, 1, (5, 6)), Entry("x", 5, 1, (5,)), Entry(7, "x", 1, ("x",))),
    Entry(7, 2**60, 1, (2**60,)),
]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_what_is_no_entry_is_refused(wrong: Any) -> None:
    for ask in (PlayerRank.ranking.after, PlayerRank.ranking.before, PlayerRank.ranking.cursor):
        with pytest.raises(ValueError, match="entry: expected"):
            ask(wrong)


def test_a_cursor_has_one_spelling() -> None:
    entry = Entry(77, 5, 1, (5,))  # of so many bytes that the last character has bits to spare
    cursor = PlayerRank.ranking.cursor(entry)
    assert PlayerRank.ranking.cursor(entry._replace(rank=None)) == cursor
    for other in (
        cursor + "=",
        cursor + " ",
        cursor + "\n",
        cursor[:-1] + chr(ord(cursor[-1]) + 1),
        f" {cursor}",
    ):
        with pytest.raises(ValueError, match="entry: expected a cursor"):
            PlayerRank.ranking.after(other)


@pytest.mark.parametrize(
    ("index", "score", "stored"),
    [
        (PlayerRank.instance(), 5.0, b"007"),
        (PlayerRank.instance(), 5.5, b"7"),
        (by("integer"), 2.0**60, str(UUID(int=7)).encode()),
        (by("integer"), 5.0, b"\0" + pack(">Q", 2**63 + 5) + str(UUID(int=7)).encode()),
    ],
)
def test_a_cursor_is_of_a_sort_key_that_a_member_can_have(
    index: RankIndex, score: float, stored: bytes
) -> None:
    with pytest.raises(ValueError, match="expected a cursor"):
        decode_cursor(index, encode_cursor(score, stored))


def test_n_is_checked() -> None:
    for n in (0, 10_001, True, "5"):
        with pytest.raises(ValueError, match="n: expected"):
            PlayerRank.ranking.after(Entry(7, 5, 1, (5,)), n)  # type: ignore[arg-type]


@pytest.mark.part("sql")
@pytest.mark.parametrize(
    ("index", "keys"),
    [
        (by("real"), [UUID(int=(7**at * 2**100) % 2**128) for at in range(1, 12)]),
        (Nicknamed.instance(), ["a", "B", "é", "Z", "10", "9", "a b", "aa", "~", "日"]),
    ],
    ids=["uuid", "text"],
)
def test_equals_are_in_the_order_of_their_keys_by_sql(db: None, index: RankIndex, keys: list[Any]) -> None:
    """Also after, and before, one whose row is gone."""
    (column,) = index.ordering.paths
    index.model._default_manager.bulk_create(index.model(pk=key, **{column: 5}) for key in keys)
    ranking = by_sql(type(index))
    expected = [entry.pk for entry in ranking.top(20)]
    assert expected == sorted(
        keys, key=lambda key: str(key).encode(), reverse=index.ordering.first.descending
    )
    entries = list(ranking.top(20))
    for at, entry in enumerate(entries):
        assert [one.pk for one in ranking.after(entry, 3)] == expected[at + 1 : at + 4]
        assert [one.pk for one in ranking.before(entry, 3)] == expected[max(0, at - 3) : at]
    for at in (2, 5):
        index.model._default_manager.filter(pk=expected[at]).delete()
        left = [pk for pk in expected[at + 1 :] if index.model._default_manager.filter(pk=pk).exists()]
        assert [one.pk for one in ranking.after(entries[at], 20)] == left
        assert not {one.pk for one in ranking.before(entries[at], 20)} & {*left}
