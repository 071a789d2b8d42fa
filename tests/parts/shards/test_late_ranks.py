"""Ranks of members drawn over shards: counted when the first of them is used, for all of them, and once."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Callable
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections
from django.db.models import Q
from django.template import Context, Template

from django_zrank import Entry, RankIndex
from django_zrank.exceptions import IndexUnhealthy
from django_zrank.queries.request import Request
from django_zrank.redis import reader_of
from django_zrank.redis.scripts import DEAL
from django_zrank.shards.queries import COUNT_BEFORE
from django_zrank.shards.reader import ShardedReader
from django_zrank.store import Store
from tests.parts.shards.test_sharded import forget_trust
from tests.populations import fill, load
from tests.scripts import variants
from tests.sharded import sharded
from tests.testapp.methods import KEEPING
from tests.testapp.models import Competitor, Player
from tests.testapp.zrank import PlayerAscending

pytestmark = pytest.mark.usefixtures("zrank")


class Late(RankIndex):
    name = "late"
    model = Competitor
    order = ("-points", "lost")
    facets = ("region", "platform")
    ranking_method = KEEPING
    band = 10**6


@pytest.fixture
def counts(sent: list[Request[Any]]) -> Callable[[], list[int]]:
    """Tell, of each request so far that counts what stands before places, the number of its calls."""
    return lambda: [len(one.calls) for one in sent if one.calls[0].command in variants(COUNT_BEFORE)]


@pytest.fixture
def ranking() -> Any:
    """Players 1 to 199 in three shards; the score of each is its primary key, and so is its rank."""
    index = sharded(PlayerAscending, 3)
    fill(index, {pk: pk for pk in range(1, 200)})
    return index.ranking


def draw(ranking: Any) -> Any:
    return ranking.recommend(100, 8, band=50)


def plain(entry: Any) -> Entry:
    """The same entry of an index without shards."""
    return Entry(entry.pk, entry.pk, entry.pk, (entry.pk,))


USES: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda entry: entry.rank,
    "getattr": lambda entry: getattr(entry, "rank", None),
    "unpacking": lambda entry: (lambda pk, score, rank, values: rank)(*entry),
    "index": lambda entry: entry[2],
    "index from the end": lambda entry: entry[-2],
    "slice": lambda entry: entry[1:],
    "iteration": list,
    "tuple": tuple,
    "reversed": lambda entry: list(reversed(entry)),
    "equality": lambda entry: entry == Entry(entry.pk, entry.pk, entry.pk, (entry.pk,)),
    "equality of a plain one": lambda entry: Entry(entry.pk, entry.pk, entry.pk, (entry.pk,)) == entry,
    "inequality": lambda entry: entry != (entry.pk, entry.pk, entry.pk + 1, (entry.pk,)),
    "order": lambda entry: (entry.pk, entry.pk, 0, ()) < entry <= (entry.pk, entry.pk, 10**6, ()),
    "order from the other side": lambda entry: entry > (entry.pk, entry.pk, -1) and entry >= (0,),
    "hash": hash,
    "membership": lambda entry: entry.pk in entry[2:3] and "x" not in entry,
    "position": lambda entry: (entry.count(entry.pk), entry.index((entry.pk,))),
    "sum": lambda entry: (*entry, 5) == entry + (5,),  # noqa: RUF005
    "repr": repr,
    "str": str,
    "format": lambda entry: "%s %s %s %s" % entry,  # noqa: UP031
    "numbers": lambda entry: "%d %d %d %s" % entry,  # noqa: UP031
    "number in a sum": lambda entry: (entry + (5,))[2] + 1,  # noqa: RUF005
    "number in a sum from the other side": lambda entry: ((5,) + entry)[3] + 1,  # noqa: RUF005
    "pickle of a sum": lambda entry: pickle.loads(pickle.dumps(entry + ())),  # noqa: RUF005
    "number in a product": lambda entry: (entry * 2)[6] + (2 * entry)[2],
    "pickle": lambda entry: pickle.loads(pickle.dumps(entry)),
    "oldest pickle": lambda entry: pickle.loads(pickle.dumps(entry, 0)),
    "copy": copy.copy,
    "deep copy": copy.deepcopy,
    "_replace": lambda entry: entry._replace(score=0),
    "_replace of the rank": lambda entry: (entry._replace(rank=0), entry.rank),
    "_asdict": lambda entry: entry._asdict(),
    "json": lambda entry: json.dumps([entry]),
    "indented json": lambda entry: json.dumps({"entry": entry}, indent=1),
    "sorting": lambda entry: sorted([(entry.pk, entry.pk, 0), entry]),
    "keyword pattern": lambda entry: matched(entry),
    "template": lambda entry: Template("{{ entry.rank }} {{ entry.2 }}").render(Context({"entry": entry})),
}


def matched(entry: Any) -> Any:
    match entry:
        case (_, _, int(rank), _):
            return rank


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_whatever_uses_a_rank_gets_it(
    use: Callable[[Any], Any], ranking: Any, counts: Callable[[], list[int]]
) -> None:
    drawn = draw(ranking)
    assert counts() == []
    for entry in drawn:
        assert isinstance(entry, Entry)
        assert use(entry) == use(plain(entry))
        assert counts() == [1]


def test_copies_and_pickles_are_plain_entries(ranking: Any) -> None:
    entry = draw(ranking)[0]
    pickled = [pickle.dumps(entry, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    copies = [copy.copy(entry), copy.deepcopy(entry), *map(pickle.loads, pickled)]
    assert {type(one) for one in copies} == {Entry}


def refused(use: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        use()


UNUSED: dict[str, Callable[[Any], Any]] = {
    "attributes": lambda drawn: [(one.pk, one.score, one.values) for one in drawn],
    "indexes": lambda drawn: [(one[0], one[-1], one[:2], len(one)) for one in drawn],
    "no index": lambda drawn: refused(lambda: drawn[0]["pk"]),
    "the order of the first items": sorted,
    "others": lambda drawn: drawn[0] == drawn[1],
    "slices": lambda drawn: drawn[2:5],
    "a template": lambda drawn: Template(
        "{% for one in drawn %}{{ one.pk }}{{ one.score }}{% endfor %}"
    ).render(Context({"drawn": drawn})),
}


@pytest.mark.parametrize("use", UNUSED.values(), ids=UNUSED)
def test_what_uses_no_rank_counts_nothing(
    use: Callable[[Any], Any], ranking: Any, counts: Callable[[], list[int]]
) -> None:
    drawn = draw(ranking)
    use(drawn)
    assert counts() == []
    assert [entry.pk for entry in drawn] == sorted(entry.pk for entry in drawn)


def test_entries_without_shards_are_plain() -> None:
    fill(PlayerAscending, {pk: pk for pk in range(1, 20)})
    assert {type(entry) for entry in PlayerAscending.ranking.recommend(9, 8, band=9)} == {Entry}
    ((_, drawn),) = PlayerAscending.ranking.recommend_many([9], 8, band=9)
    assert {type(entry) for entry in drawn or ()} == {Entry}


def test_threads_count_once(ranking: Any, counts: Callable[[], list[int]]) -> None:
    drawn, found, together = draw(ranking), [], Barrier(8)

    def use(at: int) -> None:
        try:
            together.wait()
            found.append(drawn[at].rank)
        finally:
            connections.close_all()

    threads = [Thread(target=use, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [entry.pk for entry in drawn]
    assert counts() == [1]


def test_a_rank_is_that_of_the_place_drawn(ranking: Any) -> None:
    """Whoever has moved since is ranked where it was drawn; what has come before it counts."""
    drawn = draw(ranking)
    moved = drawn[3].pk
    fill(type(ranking.index), {**{pk: pk for pk in range(1, 200)}, moved: 500, 1000: 0, 1001: -1})
    assert [entry.rank for entry in drawn] == [pk + 2 if pk <= moved else pk + 1 for pk in map(_pk, drawn)]


def _pk(entry: Any) -> int:
    pk: int = entry.pk
    return pk


class TestFailures:
    """At the first use, as of any read."""

    @pytest.mark.django_db
    def test_then_the_next_use_counts(self, ranking: Any, counts: Callable[[], list[int]]) -> None:
        drawn = draw(ranking)
        part = ranking.index.holders[1]
        store = Store(part.name)
        store.client.hset(store.keys.meta, "behind", "1")
        forget_trust(type(ranking.index))
        with pytest.raises(IndexUnhealthy, match=part.name):
            drawn[0].rank  # noqa: B018
        assert counts() == []
        store.client.hdel(store.keys.meta, "behind")
        assert [entry.rank for entry in drawn] == [entry.pk for entry in drawn]

    @pytest.mark.part("sql")
    @pytest.mark.django_db
    def test_the_database_in_its_place(self, settings: Any, ranking: Any) -> None:
        settings.ZRANK = {"UNHEALTHY": "database"}
        Player.objects.bulk_create(Player(pk=pk, level=pk) for pk in range(1, 200))
        drawn = draw(ranking)
        gone = drawn[2].pk
        Player.objects.filter(pk=gone).delete()
        store = Store(ranking.index.holders[1].name)
        store.client.hset(store.keys.meta, "behind", "1")
        forget_trust(type(ranking.index))
        expected = {entry.pk: entry.pk - (entry.pk > gone) for entry in drawn}
        assert {entry.pk: entry.rank for entry in drawn} == {**expected, gone: None}

    def test_the_index_was_rebuilt(self, ranking: Any) -> None:
        drawn = draw(ranking)
        fill(type(ranking.index), {pk: pk for pk in range(50, 200)})  # all who may have been drawn
        assert [entry.rank for entry in drawn] == [entry.pk - 49 for entry in drawn]


class TestCoroutines:
    """An attribute can't wait there."""

    def test_ranks_come_with_the_entries(self, ranking: Any) -> None:
        async def ask() -> Any:
            drawn = await ranking.arecommend(100, 8, band=50)
            many = [found async for _, found in ranking.arecommend_many([100, 101], 8, band=50)]
            return [entry for found in (drawn, *many) for entry in found]

        entries = asyncio.run(ask())
        assert {type(entry) for entry in entries} == {Entry}
        assert entries == list(map(plain, entries))

    def test_those_of_blocking_code_are_refused(self, ranking: Any, counts: Callable[[], list[int]]) -> None:
        async def ask() -> None:
            drawn = await sync_to_async(draw)(ranking)
            with pytest.raises(SynchronousOnlyOperation, match="arecommend"):
                drawn[0].rank  # noqa: B018
            assert counts() == []
            await sync_to_async(lambda: drawn[5].rank)()
            assert [entry.rank for entry in drawn] == [entry.pk for entry in drawn]

        asyncio.run(ask())


class TestMany:
    """``recommend_many()``: ranks of a hundred members at a time."""

    def test_few_round_trips(self, ranking: Any, counts: Callable[[], list[int]]) -> None:
        askers = range(50, 80)
        found = dict(ranking.recommend_many([*askers, 1000], 10, band=40))
        assert found.pop(1000) is None
        assert counts() == []
        first = found[50][0].rank
        assert first == found[50][0].pk
        assert len(counts()) <= 4  # of those of ten askers, many are the same
        for drawn in found.values():
            assert [entry.rank for entry in drawn] == [entry.pk for entry in drawn]
        assert len(counts()) <= 12

    def test_one_who_is_drawn_at_two_places_has_a_rank_at_each(
        self, ranking: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Drawn for one member, it moves before it is drawn for another one."""
        part, send = ranking.index.holder_of("99"), ShardedReader.send

        def move(reader: Any, request: Request[Any]) -> list[Any]:
            replies = send(reader, request)
            if any(call.command in variants(DEAL) for call in request.calls):
                Store(part.name).client.zadd(reader_of(part).learn().root, {"99": 101})
            return replies

        monkeypatch.setattr("django_zrank.shards.reader.spreads_keys", lambda alias: True)
        monkeypatch.setattr(ShardedReader, "send", move)
        askers = [Player(pk=100, level=100), 101]  # the place of the second one takes a round trip
        found = [drawn or () for _, drawn in ranking.recommend_many(askers, 4, band=2)]
        assert [[(entry.pk, entry.score, entry.rank) for entry in drawn] for drawn in found] == [
            [(98, 98, 98), (99, 99, 99), (101, 101, 100), (102, 102, 102)],
            [(100, 100, 99), (99, 101, 101), (102, 102, 102), (103, 103, 103)],
        ]

    def test_nobody_is_drawn(self, ranking: Any) -> None:
        assert [len(found or ()) for _, found in ranking.recommend_many([1, 2], 3, band=0)] == [0, 0]


def rows() -> list[tuple[Any, ...]]:
    return [(pk, pk // 3, pk % 3, "rs"[pk % 2], "xy"[pk // 2 % 2]) for pk in range(1, 120)]


@pytest.mark.parametrize(
    ("narrow", "round_trips"),
    [
        # One, and two for the values of dense ranks.
        pytest.param(lambda ranking: ranking.filter(region="r"), 3, marks=pytest.mark.part("dense")),
        (lambda ranking: ranking.filter(region="r").by("ordinal"), 1),
        (lambda ranking: ranking.by("competition").reversed(), 1),
        pytest.param(lambda ranking: ranking.exclude(platform="x"), 0, marks=pytest.mark.part("combined")),
        pytest.param(
            lambda ranking: ranking.filter(region="r", platform="x"), 0, marks=pytest.mark.part("combined")
        ),
    ],
)
def test_ranks_are_those_among_who_pass(
    narrow: Any, round_trips: int, counts: Callable[[], list[int]]
) -> None:
    index = sharded(Late, 3)
    load(index, rows())
    ranking = narrow(index.ranking)
    drawn = ranking.recommend(60, 12)
    assert counts() == []
    found = {entry.pk: entry.rank for entry in drawn}
    assert bool(counts()) == bool(round_trips)
    assert found == (ranking.ranks(found) if round_trips else dict.fromkeys(found))
    assert [entry.values for entry in drawn] == sorted(
        (entry.values for entry in drawn),
        key=lambda values: (-values[0], values[1]),
        reverse=ranking.view.reverse != index.instance().ordering.first.descending,
    )


@pytest.mark.django_db
def test_only_those_who_pass_a_condition_are_ranked(ranking: Any, counts: Callable[[], list[int]]) -> None:
    """They come of several draws."""
    Player.objects.bulk_create(Player(pk=pk, level=pk, is_active=pk % 7 == 0) for pk in range(1, 200))
    drawn = ranking.recommend(100, 8, band=60, where=Q(is_active=True))
    assert counts() == []
    assert [entry.rank for entry in drawn] == [entry.pk for entry in drawn] == sorted(map(_pk, drawn))
    assert len(drawn) == 8
    assert counts() == [1]


@pytest.mark.part("remember")
def test_nothing_is_counted_to_remember(ranking: Any, counts: Callable[[], list[int]]) -> None:
    shown = [ranking.recommend(100, 4, band=4, remember=timedelta(hours=1)) for _ in "ab"]
    assert counts() == []
    assert sorted(entry.rank for drawn in shown for entry in drawn) == [96, 97, 98, 99, 101, 102, 103, 104]
