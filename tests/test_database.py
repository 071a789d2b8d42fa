"""Answers by SQL are those of Redis: the contract against the oracle, then one against the other."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from time import monotonic
from typing import Any, NamedTuple
from unittest import mock

import pytest
from django.db import connection, connections, models, transaction
from django.db.models import Count, F, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from django_zrank import Entry, IndexUnavailable, NotRanked, RankIndex
from django_zrank.exceptions import IndexUnhealthy, NotBuilt
from django_zrank.ranking import Ranking
from django_zrank.sql import sampling
from django_zrank.testing import sync_now
from tests.populations import fill
from tests.rankings import ByRedis, BySql, by_sql
from tests.sync.capturing import table
from tests.test_deadline import SLOW
from tests.test_recommendations import (
    Descending,
    assert_agrees,
    assert_agrees_on_few,
    mostly_excluded,
    questions,
)
from tests.test_uniformity import CASES, LIMIT, Uniform, deviation_of
from tests.testapp import zrank as indexes
from tests.testapp.models import Account, Club, Employee, Nickname, Player, Profile, Ticket


def populate(scores: dict[int, Any]) -> None:
    """Make the players, in the database alone, exactly ``scores``: primary key -> level."""
    Player.objects.all()._raw_delete("default")
    Player.objects.bulk_create(Player(pk=pk, level=level) for pk, level in scores.items())


# The contract


@pytest.mark.django_db
@questions(max_examples=60)
def test_agrees_with_the_oracle(index: type[RankIndex], scores: dict[int, int], **asked: Any) -> None:
    populate(scores)
    with override_settings(ZRANK={"DATABASE_TIMEOUT": 60.0}):  # of a busy machine
        assert_agrees(by_sql(index), scores, **asked)


@pytest.mark.django_db
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@mostly_excluded
def test_agrees_where_sides_are_large_and_mostly_excluded(**asked: Any) -> None:
    populate({pk: pk // 3 for pk in range(1, asked["size"] + 1)})
    assert_agrees_on_few(by_sql(Descending), **asked)


@pytest.mark.slow
@pytest.mark.django_db
def test_every_set_is_equally_likely(settings: Any) -> None:
    """One case is enough: test_dealing.py has them all."""
    settings.ZRANK = {"DATABASE_TIMEOUT": 60.0}  # of a busy machine
    case = CASES["sides that are looked up"]
    populate({pk: 0 if case.tied else pk for pk in range(1, case.size + 1)})
    ranking = by_sql(Uniform)

    def recommend(seed: int) -> list[int]:
        return [entry.pk for entry in ranking.recommend(case.me, case.n, exclude=case.excluded, seed=seed)]

    assert deviation_of(case, recommend) < LIMIT


# What Redis says, but for chance


class Ranked(NamedTuple):
    """An index, and how to make the rows that it ranks."""

    index: type[RankIndex]
    make: Callable[[list[Any]], Any]
    """Rows out of values of the first criterion."""

    values: st.SearchStrategy[Any]
    distances: st.SearchStrategy[Any]


def tickets(column: str) -> Callable[[list[Any]], Any]:
    def make(values: list[Any]) -> None:
        Ticket.objects.all()._raw_delete("default")
        Ticket.objects.bulk_create(Ticket(id=uuid.uuid4(), **{column: value}) for value in values)

    return make


def players(values: list[Any]) -> None:
    Player.objects.all()._raw_delete("default")
    # pks of 1 to 4 digits, whose order as text is another than as numbers
    Player.objects.bulk_create(
        Player(pk=(7 * at) ** 2 + 1, level=value, is_active=at % 5 > 0) for at, value in enumerate(values)
    )


NICKS = [
    "a",
    "A",
    "b",
    "ab",
    "a b",
    "ä",
    "Z",
    "ß",
    "z",
    "1",
    "10",
    "9",
    "-",
    "~",
    "￿",
    "😀",
    "é",
    "a'b",
    "ﬀ",
    "%s",
]


def nicknames(values: list[Any]) -> None:
    """Each nick with a number behind it, and with spaces instead: but to MariaDB those would be one, as "a" is "A"."""
    texts = [f"{NICKS[at % len(NICKS)]}{at}" for at in range(len(values))]
    if connection.vendor != "mysql":
        texts[: len(NICKS)] = [nick + "  " * (at % 2) for at, nick in enumerate(NICKS)][: len(values)]
    Nickname.objects.all()._raw_delete("default")
    Nickname.objects.bulk_create(
        Nickname(nick=nick, score=value) for nick, value in zip(texts, values, strict=True)
    )


def employees(values: list[Any]) -> None:
    Employee.objects.all().delete()
    for value in values:
        Employee.objects.create(points=value)


def accounts(values: list[Any]) -> None:
    for model in (Profile, Account, Club):
        model.objects.all()._raw_delete("default")
    clubs = [Club.objects.create(is_open=is_open) for is_open in (True, False)]
    for at, value in enumerate(values):
        account = Account.objects.create(club=(*clubs, None)[at % 3])
        if value is not None:
            Profile.objects.create(account=account, points=value)


FINITE = connection.vendor != "postgresql"
"""True if a column of floats can't hold NaN. SQLite makes NaN a null, and knows infinities."""

small, number = st.integers(-20, 20), st.one_of(st.integers(0, 30), st.just(10**9))
edges = st.sampled_from([2**53, 2**53 + 1, -(2**53), -(2**53) - 1, 2**53 - 1, 2**63 - 1, -(2**63)])
floats = st.floats(allow_nan=not FINITE, allow_infinity=connection.vendor != "mysql", allow_subnormal=False)
spans = st.timedeltas(timedelta(days=-200_000), timedelta(days=200_000))
near = st.timedeltas(timedelta(0), timedelta(days=3))
far = st.one_of(near, st.just(timedelta(days=150_000)))

RANKED = {
    "player": Ranked(indexes.PlayerRank, players, st.one_of(small, st.none()), number),
    "ascending": Ranked(indexes.PlayerAscending, players, small, number),
    "edges of the column": Ranked(
        indexes.PlayerRank,
        players,
        st.sampled_from([-(2**31), 2**31 - 1, 0, 1]),
        st.sampled_from([1, 2**31, 2**54]),
    ),
    "text as the primary key": Ranked(
        indexes.NicknameRank,
        nicknames,
        st.one_of(st.sampled_from([0.0, -0.0, 0.1]), floats),
        st.floats(0, 10),
    ),
    "inherited": Ranked(indexes.EmployeeRank, employees, small, number),
    "across a relation": Ranked(indexes.AccountRank, accounts, st.one_of(small, st.none()), number),
    "integer": Ranked(
        indexes.ByInteger, tickets("integer"), st.one_of(small, edges), st.one_of(number, st.just(2**54))
    ),
    "real": Ranked(indexes.ByReal, tickets("real"), floats, st.floats(0, 1e308)),
    "price": Ranked(
        indexes.ByPrice,
        tickets("price"),
        st.decimals(Decimal(-(10**10)) + 1, Decimal(10**10) - 1, places=2),
        st.one_of(st.decimals(0, 20, places=2), st.just(10**12)),
    ),
    "flag": Ranked(indexes.ByFlag, tickets("flag"), st.one_of(st.booleans(), st.none()), st.integers(0, 2)),
    "day": Ranked(
        indexes.ByDay,
        tickets("day"),
        st.one_of(st.dates(date(1000, 1, 1)), st.dates(date(2024, 1, 1), date(2024, 1, 9))),
        st.one_of(near, st.integers(0, 10**7)),
    ),
    "moment": Ranked(
        indexes.ByMoment,
        tickets("moment"),
        st.one_of(
            st.datetimes(datetime(1000, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),
            st.datetimes(datetime(2024, 1, 1), datetime(2024, 1, 3), timezones=st.just(UTC)),
            st.just(datetime(1684, 7, 28, 0, 12, 25, 259007, tzinfo=UTC)),  # the earliest, and one before
            st.just(datetime(1684, 7, 28, 0, 12, 25, 259008, tzinfo=UTC)),
        ),
        far,
    ),
    "span": Ranked(indexes.BySpan, tickets("span"), st.one_of(spans, near), far),
}


EXAMPLES = int(os.environ.get("ZRANK_TEST_EXAMPLES", "8"))
"""For each index."""


@pytest.mark.django_db
@pytest.mark.parametrize("ranked", RANKED.values(), ids=list(RANKED))
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(question=st.data())
def test_says_what_redis_says(zrank: Redis, ranked: Ranked, question: st.DataObject) -> None:
    values = question.draw(st.lists(ranked.values, min_size=1, max_size=6), "values")
    many = question.draw(st.lists(st.sampled_from(values), min_size=1, max_size=40), "rows")
    ranked.make(many)
    sync_now(ranked.index)
    index = ranked.index.instance()
    sql, redis = BySql(index), ByRedis(index)
    pks = list(index.model._base_manager.order_by("pk").values_list("pk", flat=True))
    asked = {
        "n": question.draw(st.integers(1, 8), "n"),
        "band": question.draw(st.tuples(ranked.distances, ranked.distances), "band"),
        "widen": question.draw(st.lists(ranked.distances, max_size=2), "widen"),
        "exclude": question.draw(st.lists(st.sampled_from(pks), max_size=30), "exclude"),
        "seed": question.draw(st.integers(), "seed"),
    }
    everybody = list(sql.top(100))
    assert everybody == list(redis.top(100))
    for pk in question.draw(st.lists(st.sampled_from(pks), min_size=1, max_size=4), "members"):
        for ask in (
            lambda ranking, pk=pk: ranking.rank(pk),
            lambda ranking, pk=pk: ranking.score(pk),
            lambda ranking, pk=pk: outline(ranking, everybody, pk, **asked),
            lambda ranking, pk=pk: full(ranking.recommend(pk, **asked | {"n": 100})),
        ):
            assert answer(ask, sql) == answer(ask, redis)


def full(drawn: Any) -> Any:
    return list(drawn), drawn.band, drawn.candidates


def outline(ranking: Ranking, everybody: list[Entry], pk: Any, **asked: Any) -> Any:
    """The answer of a draw but for chance: how many are drawn in all and before ``pk``, and the band."""
    drawn = ranking.recommend(pk, **asked)
    assert {*drawn} <= {*everybody}
    pks = [entry.pk for entry in everybody]
    better = pks[: pks.index(pk)] if pk in pks else []  # who asks need not pass the filters
    assert not {entry.pk for entry in drawn} & {pk, *asked["exclude"]}
    return len(drawn), sum(entry.pk in better for entry in drawn), drawn.band, drawn.candidates


def answer(ask: Callable[[Ranking], Any], ranking: Ranking) -> Any:
    try:
        return ask(ranking)
    except NotRanked as error:
        return str(error)


@pytest.mark.django_db
def test_draws_as_many_from_a_large_index(zrank: Redis) -> None:
    index = indexes.PlayerRank
    populate({pk: pk * pk % 97 for pk in range(1, 3001)})
    sync_now(index)
    everybody = [entry for page in range(3) for entry in index.ranking[page * 1000 : page * 1000 + 1000]]
    sql, redis = (kind(index.instance()) for kind in (BySql, ByRedis))
    for excluded, n, me in product((0, 30, 1000, 2990), (1, 10, 500), (1, 1500, 2999)):
        barred = [pk for pk in range(1, 3001) if pk * 7919 % 3001 <= excluded]
        asked = {"n": n, "band": (30, 60), "widen": [100], "exclude": barred, "seed": me}
        assert outline(sql, everybody, me, **asked) == outline(redis, everybody, me, **asked), (
            excluded,
            n,
            me,
        )


# What an index may look like


@pytest.mark.django_db
class TestQuerysets:
    @pytest.fixture(autouse=True)
    def players(self) -> None:
        """Thirty players. 1, 3 and 5 have as many friends, from 10 on; friendship is mutual."""
        populate({pk: pk for pk in range(1, 31)})
        for player in Player.objects.filter(level__in=(1, 3, 5)):
            player.friends.set(range(10, 10 + player.level))

    def check(self, ranked: QuerySet[Player], pks: Iterable[int]) -> None:
        class Index(RankIndex):
            model = Player
            name = "by-sql"
            order = ("-level",)

            def get_queryset(self) -> QuerySet[Player]:
                return ranked

        ranking, pks = by_sql(Index), sorted(pks)
        assert ranking.count() == len(pks)
        assert [ranking.rank(pk) for pk in pks] == list(range(len(pks), 0, -1))
        assert [entry.pk for entry in ranking.recommend(pks[0], 100, band=50)] == pks[:0:-1]
        assert ranking.recommend(pks[0], 1, band=50).candidates == len(pks) - 1

    def test_rows_that_a_join_repeats(self) -> None:
        self.check(Player.objects.filter(friends__level__gte=10), [1, 3, 5])

    def test_distinct_rows(self) -> None:
        self.check(Player.objects.filter(friends__level__gte=10).distinct(), [1, 3, 5])

    def test_groups(self) -> None:
        queryset = Player.objects.annotate(circle=Count("friends")).filter(circle__gte=3)
        self.check(queryset, [3, 5, 10])

    def test_annotations_order_and_columns(self) -> None:
        queryset = Player.objects.annotate(double=F("level") * 2).filter(double__gt=20).order_by("?")
        self.check(queryset.select_related("user").defer("bio"), range(11, 31))

    def test_exclude_across_a_relation(self) -> None:
        self.check(Player.objects.exclude(friends__level__gte=14), {*range(1, 31)} - {5})

    def test_none(self) -> None:
        class Index(RankIndex):
            model = Player
            name = "nobody"
            order = ("level",)

            def get_queryset(self) -> QuerySet[Player]:
                return Player.objects.none()

        assert by_sql(Index).count() == 0
        with pytest.raises(NotRanked):
            by_sql(Index).recommend(1, band=1)


@pytest.mark.django_db
def test_noise_behind_the_last_place_of_a_decimal_ranks_nobody(zrank: Redis) -> None:
    """On SQLite 0.1 + 0.2 is not 0.3, and F() saves what comes out."""
    Ticket.objects.bulk_create([Ticket(price=Decimal("0.30")) for _ in range(5)])
    Ticket.objects.bulk_create([Ticket(price=Decimal("0.10")) for _ in range(5)])
    Ticket.objects.filter(price=Decimal("0.10")).update(price=F("price") + Decimal("0.20"))
    sync_now(indexes.ByPrice)
    sql, redis = by_sql(indexes.ByPrice), ByRedis(indexes.ByPrice.instance())
    for ticket in Ticket.objects.all():
        assert sql.rank(ticket) == redis.rank(ticket)
        assert full(sql.recommend(ticket, 9, band=0)) == full(redis.recommend(ticket, 9, band=0))
        assert sql.recommend(ticket, band=0).candidates == 9


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL's numbers may be NaN")
def test_a_decimal_that_is_not_a_number_is_not_offered() -> None:
    good, bad = Ticket.objects.create(price=1), Ticket.objects.create(price=2)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_ticket SET price = 'NaN' WHERE id = %s", [bad.pk])
    ranking = by_sql(indexes.ByPrice)
    assert ranking.count() == 1
    assert list(ranking.recommend(good, band=10**12)) == []
    with pytest.raises(NotRanked):
        ranking.rank(bad)


@pytest.mark.django_db
def test_a_member_is_found_by_its_exact_text() -> None:
    Nickname.objects.create(nick="Ada", score=1)
    ranking = by_sql(indexes.NicknameRank)
    assert ranking.rank("Ada") == 1
    for nick in ("ada", "ADA", "Ada ", "Adá"):  # to MariaDB all of them are one
        with pytest.raises(NotRanked):
            ranking.rank(nick)
    assert ranking.ranks(["Ada", "ada", "ADA "]) == {"Ada": 1, "ada": None, "ADA ": None}
    assert [entry.pk for entry in ranking.members(["ada", "Ada"])] == ["Ada"]


@pytest.mark.django_db(transaction=True)
def test_a_collation_that_takes_one_text_for_another() -> None:
    collations = {"sqlite": "NOCASE", "mysql": "utf8mb4_general_ci", "postgresql": "zrank_nocase"}

    class Loose(models.Model):
        region = models.CharField(max_length=9, db_collation=collations[connection.vendor])
        score = models.IntegerField()
        nick = models.ForeignKey(Nickname, models.CASCADE)

        class Meta:
            app_label = "testapp"

    if connection.vendor == "postgresql":
        locale = "provider = icu, locale = 'und-u-ks-level2', deterministic = false"
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE COLLATION IF NOT EXISTS zrank_nocase ({locale})")
    with table(Loose):
        nick = Nickname.objects.create(nick="a")
        Loose.objects.bulk_create(Loose(region=region, score=1, nick=nick) for region in ("kanto", "Kanto"))
        attributes = {"model": Loose, "order": ("score",), "facets": ("region", "nick")}
        ranking = by_sql(type("LooseRank", (RankIndex,), attributes))
        assert ranking.counts("region") == {"kanto": 1, "Kanto": 1}
        assert len(ranking.filter(region="kanto").top()) == len(ranking.exclude(region="kanto").top()) == 1
        assert ranking.filter(nick=nick).count() == 2


@pytest.mark.django_db(databases=["default", "other"])
def test_asks_the_database_where_the_model_lives() -> None:
    from tests.testapp.models import Remote

    Remote.objects.using("other").create(score=5)
    with CaptureQueriesContext(connections["other"]) as queries, CaptureQueriesContext(connection) as ours:
        assert by_sql(indexes.RemoteRank).count() == 1
    assert any("COUNT" in query["sql"] for query in queries)
    assert len(ours) == 0


@pytest.mark.django_db(databases=["default", "other"])
def test_rows_are_read_from_the_database_that_the_index_names(zrank: Redis) -> None:
    class Elsewhere(RankIndex):
        model = Player
        order = ("-level",)
        using = "other"
        band = 9

        def get_excluded(self, member: Player) -> Iterable[Any]:
            return member.friends.all()

    one, two, three = (Player.objects.using("other").create(level=level) for level in (1, 2, 3))
    two.friends.add(three)
    fill(Elsewhere, {one.pk: 1, two.pk: 2, three.pk: 3})
    for ranking in (Elsewhere.ranking, by_sql(Elsewhere)):
        assert ranking.recommend(two.pk).objects() == [one]
        assert ranking.recommend(two, where=Q(level__lt=9)).objects() == [one]


# What it costs


@pytest.mark.django_db
@pytest.mark.parametrize(("excluded", "most"), [(0, 4), (1500, 7)])
def test_few_queries(excluded: int, most: int) -> None:
    """My row, the counts, each side; where much is excluded both may be read, and one be drawn from twice."""
    populate({pk: pk for pk in range(1, 2001)})
    ranking = by_sql(Descending)
    with CaptureQueriesContext(connection) as queries:
        assert len(ranking.recommend(1000, 10, band=800, exclude=range(1, excluded), widen=(900, 1000))) == 10
    assert len([query for query in queries if "testapp_player" in query["sql"]]) <= most


# When it is asked


def distrust() -> None:
    """Make this process look at the server's health again."""
    indexes.PlayerAscending.ranking._reader.trust.until = 0.0


@pytest.mark.django_db
class TestSettings:
    """Redis holds levels 1 to 10; an eleventh row, of level 11, is in the database alone."""

    @pytest.fixture(autouse=True)
    def players(self, zrank: Redis) -> None:
        populate({pk: pk for pk in range(1, 11)})
        sync_now(indexes.PlayerAscending)
        Player.objects.bulk_create([Player(pk=11, level=11)])
        distrust()

    def restart(self, zrank: Redis) -> None:
        zrank.hset(indexes.PlayerAscending.ranking.store.keys.meta, "server", "the server before")

    @pytest.mark.parametrize("unhealthy", ["raise", "serve_stale", "database"])
    def test_a_healthy_index_is_read(self, settings: Any, unhealthy: str) -> None:
        settings.ZRANK = {"UNHEALTHY": unhealthy}
        assert indexes.PlayerAscending.ranking.count() == 10

    @pytest.mark.parametrize("unhealthy", ["raise", "serve_stale", "database"])
    @pytest.mark.parametrize(
        ("server", "raises"),
        [("restarted", IndexUnhealthy), ("not built", NotBuilt), ("down", IndexUnavailable)],
    )
    def test_a_server_that_cannot_be_believed(
        self, zrank: Redis, settings: Any, server: str, raises: type[Exception], unhealthy: str
    ) -> None:
        settings.ZRANK = {"UNHEALTHY": unhealthy}
        match server:
            case "restarted":
                self.restart(zrank)
            case "not built":
                zrank.flushall()
            case "down":
                away = {**settings.CACHES["zrank"], "LOCATION": "redis://127.0.0.1:2/0"}
                settings.CACHES = {**settings.CACHES, "zrank": away}
        stale = 10 if server == "restarted" else raises
        expected: Any = {"raise": raises, "serve_stale": stale, "database": 11}[unhealthy]
        ranking = indexes.PlayerAscending.ranking
        questions: list[tuple[Callable[[], Any], Any]] = [
            (ranking.count, expected),
            (lambda: len(ranking.recommend(5, 20, band=100)), None),
            (lambda: ranking.rank(9), 9),
            (lambda: ranking.score(9), 9),
        ]
        for ask, says in questions:
            if isinstance(expected, int):
                assert ask() == (expected - 1 if says is None else says)
            else:
                with pytest.raises(expected, match="can't be reached" if server == "down" else None):
                    ask()

    def test_a_member_that_redis_does_not_know_yet(self, zrank: Redis, settings: Any) -> None:
        settings.ZRANK = {"UNHEALTHY": "database"}
        ranking = indexes.PlayerAscending.ranking
        with pytest.raises(NotRanked):  # healthy: what Redis says counts
            ranking.rank(11)
        self.restart(zrank)
        distrust()
        assert ranking.rank(11) == 11
        with pytest.raises(NotRanked):
            ranking.recommend(12, band=1)

    def test_an_iterator_of_exclusions_is_heeded(self, zrank: Redis, settings: Any) -> None:
        settings.ZRANK = {"UNHEALTHY": "database"}
        zrank.delete(indexes.PlayerAscending.ranking.store.live.root)
        zrank.delete(indexes.PlayerAscending.ranking.store.keys.meta)
        drawn = indexes.PlayerAscending.ranking.recommend(5, band=100, exclude=iter(range(1, 11)))
        assert [entry.pk for entry in drawn] == [11]

    def test_nonsense_is_refused_as_ever(self, zrank: Redis, settings: Any) -> None:
        settings.ZRANK = {"UNHEALTHY": "database"}
        self.restart(zrank)
        with pytest.raises(ValueError, match=r"^n: "):
            indexes.PlayerAscending.ranking.recommend(5, 0, band=1)


class Slow(RankIndex):
    name = "slow"
    model = Player
    order = ("-level",)

    def get_queryset(self) -> QuerySet[Player]:
        return Player.objects.annotate(slow=RawSQL(f"({SLOW[connection.vendor]})", ())).filter(slow__gt=-1)


@pytest.mark.django_db(transaction=True)
class TestTimeouts:
    @pytest.fixture(autouse=True)
    def players(self, settings: Any) -> None:
        populate({pk: pk for pk in range(1, 11)})
        settings.ZRANK = {"DATABASE_TIMEOUT": 0.3, "UNHEALTHY": "database"}

    @pytest.mark.parametrize(
        "ask",
        [
            lambda ranking: ranking.recommend(5, band=5),
            lambda ranking: ranking.rank(5),
            lambda ranking: ranking.score(5),
            lambda ranking: ranking.count(),
        ],
    )
    @pytest.mark.parametrize("atomic", [False, True])
    def test_a_slow_answer_is_given_up(
        self, ask: Callable[[Ranking], Any], atomic: bool, settings: Any
    ) -> None:
        patient = {**settings.ZRANK, "DATABASE_TIMEOUT": 60}  # with a busy machine
        start = monotonic()
        if atomic:
            with transaction.atomic():
                Player.objects.create(pk=77, level=77)
                with pytest.raises(IndexUnavailable, match="'slow': the database failed, too"):
                    ask(by_sql(Slow))
                settings.ZRANK = patient
                assert by_sql(Descending).count() == 11  # the transaction goes on
        else:
            with pytest.raises(IndexUnavailable, match="'slow': the database failed, too"):
                ask(by_sql(Slow))
        assert monotonic() - start < 20
        settings.ZRANK = patient
        assert by_sql(Descending).count() == 10 + atomic

    def test_the_setting_is_what_counts(self, settings: Any) -> None:
        settings.ZRANK = {"DATABASE_TIMEOUT": 1e-9}
        with pytest.raises(IndexUnavailable):
            by_sql(Descending).count()

    def test_many_members_take_longer(self, settings: Any) -> None:
        """No tricks: 12,000 rows in one band, and a millisecond."""
        populate({pk: pk % 10 for pk in range(1, 12_001)})
        ranking = by_sql(Descending)
        settings.ZRANK = {"DATABASE_TIMEOUT": 0.001}
        with pytest.raises(IndexUnavailable):
            ranking.recommend(5, band=5)
        settings.ZRANK = {"DATABASE_TIMEOUT": 30}
        assert len(ranking.recommend(5, band=5)) == 10

    def test_a_database_that_is_down(self) -> None:
        from django.db import OperationalError

        with (
            mock.patch.object(connection, "ensure_connection", side_effect=OperationalError("down")),
            mock.patch.object(connection, "connection", None),
            pytest.raises(IndexUnavailable, match="down"),
        ):
            by_sql(Descending).count()


@pytest.mark.django_db(transaction=True)
def test_one_answer_sees_one_state(elsewhere: Callable[..., Any]) -> None:
    """Everybody leaves between the first band and the second."""
    populate({pk: pk for pk in range(1, 20)})
    near, states = sampling.near, []

    def count_and_change(*args: Any, **kwargs: Any) -> Any:
        states.append(near(*args, **kwargs))
        elsewhere(Player.objects.exclude(pk=10).update, level=None)
        return states[-1]

    with mock.patch.object(sampling, "near", count_and_change):
        drawn = by_sql(Descending).recommend(10, 8, band=1, widen=[9])
    assert (len(drawn), drawn.candidates, drawn.band) == (8, 18, (9, 9))
    assert [size for size, *_ in states] == [19, 19]
    assert by_sql(Descending).count() == 1


@pytest.mark.django_db(transaction=True)
def test_in_a_transaction_it_sees_what_that_has_written() -> None:
    populate({pk: pk for pk in range(1, 4)})
    with transaction.atomic():
        Player.objects.create(pk=50, level=50)
        assert by_sql(Descending).rank(50) == 1
        transaction.set_rollback(True)
    assert by_sql(Descending).count() == 3
