"""Annotations of ``get_queryset()`` as criteria and facets: Redis against brute force, and against the SQL fallback."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from django.contrib.admin import site
from django.db import connection, migrations, models, transaction
from django.db.models import (
    Avg,
    Case,
    CharField,
    Count,
    DecimalField,
    Exists,
    F,
    FilteredRelation,
    IntegerField,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Coalesce, Concat, ExtractMonth

from django_zrank import RankIndex
from django_zrank.declaration import fingerprint
from django_zrank.models import Mark
from django_zrank.store import Store
from django_zrank.sync.drain import drain
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.verify import verify
from django_zrank.testing import sync_now
from tests.rankings import by_sql
from tests.sync.capturing import install, marks, migrate, texts
from tests.testapp.models import Competitor, Duel, Guild, Tag, Weight

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.part("sql")]

START = datetime(2026, 1, 1, tzinfo=UTC)

DIVISION = Case(
    When(points__gte=40, then=Value("gold")),
    When(points__gte=0, then=Value("silver")),
    output_field=CharField(max_length=10),
)
MEAN_FEE = Avg("duels__fee", output_field=DecimalField(max_digits=12, decimal_places=2))


def rows(change: Callable[[QuerySet[Competitor]], Any]) -> Any:
    """A ``get_queryset()``."""
    return lambda self: change(Competitor.objects.all())


def of(**annotations: Any) -> Any:
    return rows(lambda found: found.annotate(**annotations))


def duels_of(row: Competitor) -> list[Duel]:
    return list(row.duels.select_related("weight"))


def total(row: Competitor) -> int | None:
    duels = duels_of(row)
    return sum(duel.points for duel in duels) if duels else None


def won(row: Competitor) -> int:
    return sum(duel.points > 0 for duel in duels_of(row))


def weighted(row: Competitor) -> int:
    return sum(duel.points * duel.weight.factor for duel in duels_of(row) if duel.weight)


def latest(row: Competitor) -> datetime | None:
    return max((duel.fought_at for duel in duels_of(row) if duel.fought_at), default=None)


POINTS = Sum("duels__points")
WON = Count("duels", filter=Q(duels__points__gt=0))

Expected = Callable[[Competitor], "tuple[Any, ...] | None"]
"""The values of the criteria of a row; None for a row that isn't ranked."""

INDEXES: dict[str, tuple[tuple[str, ...], dict[str, Any], Expected | None]] = {
    "a sum": (("-points_of",), {"get_queryset": of(points_of=POINTS)}, lambda row: (total(row),)),
    "the default name of a sum, and a count": (
        ("-duels__points__sum", "-won"),
        {
            "get_queryset": rows(lambda found: found.annotate(POINTS).annotate(won=WON)),
            "facets": ("region", "guild__slug", ("region", "platform")),
        },
        lambda row: (total(row), won(row)),
    ),
    "behind a further relation": (
        ("weighted",),
        {"get_queryset": of(weighted=Coalesce(Sum(F("duels__points") * F("duels__weight__factor")), 0))},
        lambda row: (weighted(row),),
    ),
    "of those that pass a condition on another annotation": (
        ("-points_of", "lost"),
        {
            "get_queryset": rows(
                lambda found: found.filter(region="a").annotate(won=WON, points_of=POINTS).filter(won__gte=2)
            )
        },
        lambda row: (total(row), row.lost) if row.region == "a" and won(row) >= 2 else None,
    ),
    "beside a facet of several values": (
        ("-points_of", "-won"),
        {"get_queryset": of(points_of=POINTS, won=WON), "facets": ("tags", "region", ("tags", "won"))},
        lambda row: (total(row), won(row)),
    ),
    "columns": (
        ("-net",),
        {"get_queryset": of(net=F("points") - F("lost"))},
        lambda row: (None if row.points is None else row.points - row.lost,),
    ),
    "columns of another row, as nulls first": (
        ("-points_of", F("far").desc(nulls_first=True)),  # type: ignore[dict-item]
        {"get_queryset": of(points_of=F("lost"), far=Max("duels__weight__factor"))},
        lambda row: (
            row.lost,
            max((duel.weight.factor for duel in duels_of(row) if duel.weight), default=None),
        ),
    ),
    "a time": (
        ("-latest",),
        {"get_queryset": of(latest=Max("duels__fought_at"))},
        lambda row: (latest(row),),
    ),
    "averages": (
        ("-mean", "-fee"),
        {"get_queryset": of(mean=Avg(F("duels__points") * 1.0), fee=MEAN_FEE), "facets": ("region",)},
        None,
    ),
    "a sum of decimals": (("-paid",), {"get_queryset": of(paid=Sum("duels__fee")), "shards": 3}, None),
    "over a filtered relation": (
        ("-strong_points", "lost"),
        {
            # Django changes a relation that it adds to a queryset, so each needs a new one.
            "get_queryset": rows(
                lambda found: found.annotate(
                    strong=FilteredRelation("duels", condition=Q(duels__points__gt=F("lost"))),
                    strong_points=Sum("strong__points"),
                )
            )
        },
        lambda row: (
            sum(duel.points for duel in duels_of(row) if duel.points > row.lost)
            if any(duel.points > row.lost for duel in duels_of(row))
            else None,
            row.lost,
        ),
    ),
    "cases over relations": (
        ("-heavy",),
        {
            "get_queryset": of(
                heavy=Coalesce(
                    Sum(Case(When(duels__weight__factor__gt=2, then=F("duels__points")), default=0)), 0
                ),
                month=ExtractMonth(Max("duels__fought_at")),
                house=Concat(Coalesce("guild__slug", Value("-")), Value("!"), output_field=CharField()),
            ),
            "facets": ("month", "house"),
        },
        lambda row: (sum(duel.points for duel in duels_of(row) if duel.weight and duel.weight.factor > 2),),
    ),
    "a subquery that finds the row itself": (
        ("-points_of",),
        {
            "get_queryset": rows(
                lambda found: found.filter(
                    Exists(Competitor.objects.filter(pk=OuterRef("pk"), guild__slug__lt="h"))
                ).annotate(
                    points_of=Subquery(
                        Competitor.objects.filter(pk=OuterRef("pk")).annotate(s=POINTS).values("s"),
                        output_field=IntegerField(),
                    )
                )
            )
        },
        lambda row: (total(row),) if row.guild and row.guild.slug < "h" else None,
    ),
    "an annotation as a facet": (
        ("-points",),
        {
            "get_queryset": of(won=WON, division=DIVISION, mean=Coalesce(Avg(F("points") * 1.0), 0.0)),
            "facets": ("division", "won", ("division", "region")),
        },
        lambda row: (row.points,),
    ),
}


class Life:
    """Random changes of competitors and of the rows that their annotations read, by every way there is."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.guilds = [Guild.objects.create(slug=slug) for slug in "gh"]
        self.tags = [Tag.objects.create(word=word) for word in "tuv"]
        self.weights = [Weight.objects.create(factor=factor) for factor in (1, 3)]

    def live(self, steps: int) -> None:
        ways = [name for name in dir(self) if name.startswith("do_")]
        for _ in range(steps):
            getattr(self, self.random.choice(ways))()

    def one(self, model: Any) -> Any:
        pks = list(model.objects.order_by("pk").values_list("pk", flat=True))
        return model.objects.get(pk=self.random.choice(pks)) if pks else None

    def duel(self) -> Duel:
        return Duel(
            competitor=self.one(Competitor),
            points=self.random.randint(-9, 30),
            fee=self.random.randint(0, 999) * DecimalField(decimal_places=2, max_digits=5).to_python("0.01"),
            weight=self.random.choice([*self.weights, None]),
            fought_at=self.random.choice([None, START + timedelta(minutes=self.random.randint(0, 10**6))]),
        )

    def do_join(self) -> None:
        row = Competitor.objects.create(
            points=self.random.choice([None, *range(60)]),
            lost=self.random.randint(0, 4),
            region=self.random.choice([None, "a", "b"]),
            guild=self.random.choice([*self.guilds, None]),
        )
        row.tags.set(self.random.sample(self.tags, self.random.randint(0, 3)))

    def do_fight(self) -> None:
        self.duel().save()

    def do_fight_often(self) -> None:
        Duel.objects.bulk_create([self.duel() for _ in range(4)])

    def do_correct(self) -> None:
        if duel := self.one(Duel):
            duel.points, duel.fee = self.duel().points, self.duel().fee
            duel.save()

    def do_move(self) -> None:
        if duel := self.one(Duel):
            duel.competitor = self.random.choice([self.one(Competitor), None])
            duel.save()

    def do_move_all(self) -> None:
        if row := self.one(Competitor):
            Duel.objects.filter(competitor=row).update(competitor=self.one(Competitor))

    def do_update(self) -> None:
        Duel.objects.filter(points__lt=0).update(points=F("points") + 3, fought_at=START)

    def do_flip(self) -> None:
        if duel := self.one(Duel):
            Duel.objects.filter(pk=duel.pk).update(points=-F("points"))

    def do_reweigh(self) -> None:
        weight = self.one(Weight)
        weight.factor += 1
        weight.save()

    def do_rename(self) -> None:
        guild = self.random.choice(self.guilds)
        Guild.objects.filter(pk=guild.pk).update(slug=f"{self.random.choice('ghi')}{guild.pk}")

    def do_raw(self) -> None:
        if duel := self.one(Duel):
            with connection.cursor() as cursor:
                cursor.execute(
                    "UPDATE testapp_duel SET points = points + 2 WHERE competitor_id = "
                    "(SELECT competitor_id FROM (SELECT * FROM testapp_duel) d WHERE id = %s)",
                    [duel.pk],
                )
                cursor.execute("DELETE FROM testapp_duel WHERE id = %s", [self.one(Duel).pk])

    def do_delete(self) -> None:
        if duel := self.one(Duel):
            duel.delete()

    def do_leave(self) -> None:
        if row := self.random.random() < 0.4 and self.one(Competitor):
            row.delete()

    def do_change(self) -> None:
        if row := self.one(Competitor):
            row.points, row.region = self.random.randint(0, 60), self.random.choice(["a", "b"])
            row.save()
            row.tags.set(self.random.sample(self.tags, self.random.randint(0, 3)))

    def do_roll_back(self) -> None:
        with suppress(ZeroDivisionError), transaction.atomic():
            self.do_fight_often()
            self.do_move_all()
            self.do_correct()
            raise ZeroDivisionError


def entries(ranking: Any) -> list[tuple[Any, ...]]:
    return [(entry.pk, entry.values, entry.rank) for entry in ranking[:1000]]


def assert_equal(index: type[RankIndex], expected: Expected | None) -> None:
    """Redis holds what brute force and the SQL fallback say."""
    instance = index.instance()
    by_redis, sql = index.ranking, by_sql(index)
    found = entries(by_redis)
    assert found == entries(sql)
    if expected is not None:
        values = {row.pk: expected(row) for row in Competitor.objects.all()}
        ranked = {pk: value for pk, value in values.items() if value and value[0] is not None}
        assert {pk: value for pk, value, _ in found} == ranked
    for facet in instance.faceting.all:
        sizes = by_redis.counts(*facet.paths)
        assert sizes == sql.counts(*facet.paths)
        for value in sizes:
            filters = dict(zip(facet.paths, value if len(facet.paths) > 1 else [value], strict=True))
            assert entries(by_redis.filter(**filters)) == entries(sql.filter(**filters))
    for pk, _, rank in found[:: max(1, len(found) // 5)]:
        assert sql.rank(pk) == by_redis.rank(pk) == rank
        assert sql.standings(pk) == by_redis.standings(pk)


@pytest.mark.parametrize("kind", INDEXES)
def test_a_random_life(kind: str, declare: Any, settings: Any) -> None:
    settings.ZRANK = {"DATABASE_TIMEOUT": 60.0}  # of a busy machine
    order, attributes, expected = INDEXES[kind]
    life = Life(Random(kind))
    for _ in range(8):
        life.do_join()
    index = declare(Competitor, order[0], get_order=lambda self: order, **attributes)
    install()
    assert index.instance().annotated
    for _ in range(6):
        life.live(12)
        drain(index.instance())
        assert_equal(index, expected)
    assert verify(index.instance()).drift == 0
    assert Duel.objects.exists()
    rebuild(index.instance())
    assert_equal(index, expected)


@pytest.fixture
def two(declare: Any) -> tuple[type[RankIndex], Competitor, Competitor, Duel]:
    """An index by a sum, its two members, and a duel of the first."""
    first, second = (Competitor.objects.create(points=0, region="a") for _ in range(2))
    duel = Duel.objects.create(competitor=first, points=5)
    Duel.objects.create(competitor=second, points=3)
    index = declare(Competitor, "-points_of", get_queryset=of(points_of=POINTS), facets=("region",))
    install()
    sync_now(index)
    Mark.objects.all().delete()
    return index, first, second, duel


def scores(index: type[RankIndex]) -> dict[Any, Any]:
    return {entry.pk: entry.score for entry in index.ranking[:100]}


def test_a_row_of_another_table_marks_its_members(two: Any) -> None:
    index, first, second, duel = two
    name = index.instance().name

    def marked(change: Callable[[], Any]) -> list[str | None]:
        change()
        return marks(name)

    everything = Duel.objects.filter(pk=duel.pk)
    assert marked(lambda: everything.update(motto="en garde", fee=7)) == []
    assert marked(lambda: everything.update(points=6)) == texts(first)
    assert marked(lambda: everything.update(competitor=second)) == texts(first, second)
    assert marked(lambda: everything.update(competitor=None)) == texts(second)
    assert marked(lambda: Duel.objects.bulk_create([Duel(competitor=first)])) == texts(first)
    assert marked(lambda: Duel.objects.filter(competitor=second)._raw_delete("default")) == texts(second)


def test_a_saved_row_of_another_table_pushes_its_member(two: Any, undrained: None) -> None:
    index, first, second, duel = two
    duel.points = 9
    duel.save()
    assert scores(index) == {first.pk: 9, second.pk: 3}
    Duel.objects.create(competitor=second, points=100)
    assert scores(index) == {first.pk: 9, second.pk: 103}
    duel.delete()  # a sum of nothing is null
    assert scores(index) == {second.pk: 103}
    with suppress(ZeroDivisionError), transaction.atomic():
        Duel.objects.create(competitor=first, points=1)
        raise ZeroDivisionError
    assert scores(index) == {second.pk: 103}


def test_a_planted_error_is_found_and_repaired(two: Any, zrank: Any) -> None:
    index, first, second, _duel = two
    instance = index.instance()
    assert verify(instance).drift == 0
    zrank.zadd(Store.of(instance).live.root, {str(first.pk): 50})
    assert verify(instance).drift == 1
    assert verify(instance, repair=True).repaired == 1
    assert scores(index) == {first.pk: 5, second.pk: 3}


def test_draws_and_bands(two: Any) -> None:
    index, first, second, _duel = two
    for ranking in (index.ranking, by_sql(index)):
        assert [entry.pk for entry in ranking.recommend(first, n=5, band=2)] == [second.pk]
        assert list(ranking.recommend(first, n=5, band=1)) == []
        assert [entry.pk for entry in ranking.between(4, 9)] == [first.pk]
        (best,) = ranking[:1]
        assert [entry.pk for entry in ranking.after(best, 5)] == [second.pk]
        found = ranking.recommend(first, n=5, band=9, where=Q(points_of__gt=2))
        assert [entry.pk for entry in found] == [second.pk]
    loaded = index.instance().get_queryset().get(pk=first.pk)
    assert index.ranking.near(loaded, n=5, band=2)[0].pk == second.pk
    with pytest.raises(ValueError, match="points_of"):
        index.ranking.near(first, n=5, band=2)  # an instance without the annotation


def test_the_declaration_contains_the_annotation() -> None:
    def declared(**annotations: Any) -> str:
        attributes = {"model": Competitor, "order": ("-a",), "get_queryset": of(**annotations)}
        return fingerprint(type("Declared", (RankIndex,), attributes)())

    ways: Iterable[Any] = (
        POINTS,
        Max("duels__points"),
        Sum("duels__fee"),
        Sum("duels__points", filter=Q(duels__points__gt=0)),
        Sum("duels__points", filter=Q(duels__points__gt=1)),
        Coalesce(POINTS, 0),
    )
    assert len({declared(a=way) for way in ways}) == 6
    assert declared(a=POINTS) == declared(a=Sum("duels__points"))


def test_a_column_that_an_annotation_reads_can_be_dropped(declare: Any) -> None:
    """Its triggers go with it, so that writes of the table go on."""
    row = Competitor.objects.create()
    Duel.objects.create(competitor=row, fee=5)
    index = declare(Competitor, "-paid", get_queryset=of(paid=Sum("duels__fee")))
    install()
    found: list[int] = []

    def write(apps: Any, editor: Any) -> None:
        found.append(apps.get_model("testapp", "Duel").objects.update(points=8))

    migrate(
        migrations.RemoveField("duel", "fee"),
        migrations.RunPython(write),
        migrations.AddField("duel", "fee", models.DecimalField(max_digits=9, decimal_places=2, default=0)),
    )
    assert found == [1]
    Mark.objects.all().delete()
    Duel.objects.update(fee=8)
    assert marks(index.instance().name) == texts(row)


@pytest.mark.part("admin")
def test_the_change_list_sorts_by_it(two: Any) -> None:
    from django_zrank.admin.columns import RankedAdminMixin

    _, first, second, _duel = two
    index = two[0]
    model_admin = type("Ranked", (RankedAdminMixin,), {"rank_index": index})(Competitor, site)
    for is_reversed, best in ((False, first), (True, second)):
        found = Competitor.objects.order_by(*model_admin._order(is_reversed=is_reversed))
        assert found[0] == best


@pytest.mark.part("rest_framework")
def test_the_rest_api(declare: Any) -> None:
    from rest_framework.test import APIRequestFactory

    from django_zrank.rest_framework import LeaderboardViewSet

    pks = []
    for points in ([50], [30], [20, 1], []):
        row = Competitor.objects.create(region="a")
        Duel.objects.bulk_create(Duel(competitor=row, points=value) for value in points)
        pks.append(row.pk)
    index = declare(
        Competitor,
        "-total_of",
        get_queryset=of(total_of=Sum("duels__points"), fought=Count("duels")),
        facets=("fought",),
    )
    sync_now(index)
    viewset = type("Board", (LeaderboardViewSet,), {"index": index, "permission_classes": ()})

    def ask(action: str, **query: Any) -> Any:
        response = viewset.as_view({"get": action})(APIRequestFactory().get("/", query))
        assert response.status_code == 200, response.data
        return response.data

    assert [(one["pk"], one["score"]) for one in ask("list")["results"]] == list(
        zip(pks, (50, 30, 21), strict=False)
    )
    assert [one["pk"] for one in ask("list", fought="1")["results"]] == pks[:2]
    assert [one["pk"] for one in ask("list", fought="2")["results"]] == pks[2:3]
