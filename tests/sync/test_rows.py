"""Members made of rows: several criteria, facets by every sort of path, and moves between them."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F, QuerySet
from django.db.models.sql.compiler import SQLCompiler
from hypothesis import given, settings
from hypothesis import strategies as st
from redis import Redis

from django_zrank import RankIndex
from django_zrank.extension import declared
from django_zrank.models import Mark
from django_zrank.sync import signal_handlers
from django_zrank.sync.drain import drain
from django_zrank.sync.push import push, read
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.rows import encode, select, select_among
from django_zrank.sync.signal_handlers import Touched, disable_sync
from tests.sync.mirror import assert_mirrors, standing
from tests.testapp.models import Competitor, Guild, Tag
from tests.testapp.zrank import CompetitorRank

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("zrank", "undrained"),
]

INDEX = CompetitorRank.instance()
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def populate(number: int = 12, seed: int = 1) -> list[Competitor]:
    """Competitors with everything that an index may read, in no order."""
    lots = random.Random(seed)
    guilds = [Guild.objects.create(slug=slug) for slug in ("red", "blue", "red")]
    tags = [Tag.objects.create(word=word) for word in ("fast", "a,b:c", "fast", "")]
    rows, tagged = [], []
    for _ in range(number):
        rows.append(
            Competitor(
                points=lots.choice([None, 1, 2, 2, -3]),
                joined=lots.choice([None, NOON, NOON + timedelta(microseconds=lots.randrange(5))]),
                region=lots.choice([None, "", "kantou", "*", "関東"]),
                platform=lots.choice(["pc", "p:c"]),
                guild=lots.choice([None, *guilds]),
            )
        )
        tagged.append(lots.sample(tags, lots.randrange(4)))
    Competitor.objects.bulk_create(rows)
    competitors = list(Competitor.objects.order_by("pk"))
    through = Competitor.tags.through
    through.objects.bulk_create(
        through(competitor=competitor, tag=tag)
        for competitor, own in zip(competitors, tagged, strict=True)
        for tag in own
    )
    return competitors


def rows(index: RankIndex) -> dict[str, tuple[float, bytes]]:
    found = list(encode(index, select(index), []))
    assert len({member for member, _, _ in found}) == len(found)
    return {member: (float(score), membership) for member, score, membership in found}


def probe(**attributes: Any) -> RankIndex:
    attributes = {"model": Competitor, "order": ("-points", "joined"), "name": "probe", **attributes}
    return type("Probe", (RankIndex,), attributes)()


def test_memberships_by_every_sort_of_path() -> None:
    populate(20)
    for facets in (
        (),
        ("region",),
        ("guild",),
        ("guild__slug", "region"),
        ("tags",),
        ("tags__word", ("region", "tags")),
        (("tags", "tags__word"), "points"),  # a criterion, too
        ("id",),
        CompetitorRank.facets,
    ):
        index = probe(facets=facets)
        assert rows(index) == standing(index), facets


def test_a_member_without_any_stands_where_there_is_none() -> None:
    one = Competitor.objects.create(points=1)
    assert rows(probe(facets=("tags", "guild__slug", "region"), order=("points",))) == {
        str(one.pk): (1, b"guild__slug:*\0region:*\0tags:*")
    }


@pytest.mark.parametrize("order", [("-points", "joined"), ("joined",)], ids=repr)
def test_moments_are_read_to_the_microsecond(order: tuple[str, ...]) -> None:
    """PostgreSQL counts their microseconds itself."""
    ends = [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        NOON + timedelta(microseconds=1),
    ]
    with disable_sync():
        for joined in ends:
            Competitor.objects.create(points=1, joined=joined)
    index = probe(order=order)
    assert len(rows(index)) == len(ends)
    assert rows(index) == standing(index)


def test_a_moment_that_no_python_has_counts_as_null() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("others keep none")
    one = Competitor.objects.create(points=1, joined=NOON)
    index = probe(order=("-points", "joined"))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_competitor SET joined = '10000-01-01T00:00:00Z'")
    late = rows(index)
    assert late.keys() == {str(one.pk)}
    Competitor.objects.update(joined=None)
    assert rows(index) == late


def test_a_member_with_too_many_values_is_not_ranked(caplog: pytest.LogCaptureFixture, settings: Any) -> None:
    settings.ZRANK = {"MAX_VALUES": 20}
    rebuild(INDEX)
    few, many = Competitor.objects.create(points=1), Competitor.objects.create(points=2)
    few.tags.set([Tag.objects.create(word="one")])
    drain(INDEX)
    assert [entry.pk for entry in CompetitorRank.ranking.top(5)] == [many.pk, few.pk]
    Tag.objects.bulk_create([Tag(word=f"word {n}") for n in range(30)])
    many.tags.set(Tag.objects.filter(word__startswith="word"))
    drain(INDEX)
    assert not Mark.objects.exists()
    assert [entry.pk for entry in CompetitorRank.ranking.top(5)] == [few.pk]
    assert (
        f'{many.pk} has no rank: the values of its facets make more than 20 rankings (ZRANK["MAX_VALUES"])'
        in (caplog.text.replace(f"'{many.pk}'", str(many.pk)))
    )
    rebuild(INDEX)
    assert [entry.pk for entry in CompetitorRank.ranking.top(5)] == [few.pk]
    many.tags.clear()
    drain(INDEX)
    assert [entry.pk for entry in CompetitorRank.ranking.top(5)] == [many.pk, few.pk]


def test_a_queryset_that_asks_for_a_tag_hides_no_other() -> None:
    populate(30)

    def get_queryset(self: RankIndex) -> QuerySet[Competitor]:
        return Competitor.objects.filter(tags__word="fast", guild__slug="red")

    index = probe(facets=("tags__word", "guild__slug"), get_queryset=get_queryset)
    assert any(b"a%2Cb%3Ac" in membership for _, membership in rows(index).values())
    assert rows(index) == standing(index)
    pushed = read(index, Competitor.objects.values_list("pk", flat=True))
    assert {text: (score, membership) for text, score, membership in pushed if score is not None} == standing(
        index
    )


def test_a_push_and_a_rebuild_make_the_same(django_assert_num_queries: Any) -> None:
    """A rebuild reads all by one query, and keeps the rows of a member together."""
    competitors = populate(25)
    push(INDEX, [competitor.pk for competitor in competitors])
    assert_mirrors(CompetitorRank)
    for size in (1, 2, 5, 100):
        assert rebuild(INDEX, batch_size=size) == len(standing(INDEX))
        assert_mirrors(CompetitorRank)
    with django_assert_num_queries(1):
        list(encode(INDEX, select(INDEX, "points").iterator(), []))


# What moves a member


def raw(statement: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def a(number: int = 0) -> Competitor:
    return Competitor.objects.filter(points__isnull=False).order_by("pk")[number]


def saved(**values: Any) -> None:
    competitor = a()
    for name, value in values.items():
        setattr(competitor, name, value)
    competitor.save()


def in_a_guild() -> Competitor:
    return Competitor.objects.filter(points__isnull=False, guild__isnull=False).order_by("pk")[0]


def tagged() -> Competitor:
    return Competitor.objects.filter(points__isnull=False, tags__isnull=False).order_by("pk")[0]


def renamed(model: Any, **values: Any) -> None:
    row = model.objects.get(pk=in_a_guild().guild_id if model is Guild else tagged().tags.all()[0].pk)
    for name, value in values.items():
        setattr(row, name, value)
    row.save()


SEEN: dict[str, Callable[[], Any]] = {
    "a region": lambda: saved(region="tohoku"),
    "a region gone": lambda: saved(region=None, platform="new"),
    "the second criterion": lambda: saved(joined=NOON + timedelta(days=1)),
    "no second criterion": lambda: saved(joined=None),
    "the score": lambda: saved(points=99),
    "not ranked any more": lambda: saved(points=None),
    "deleted": lambda: a().delete(),
    "another guild": lambda: saved(guild=Guild.objects.create(slug="green")),
    "a guild renamed": lambda: renamed(Guild, slug="purple"),
    "a guild deleted": lambda: in_a_guild().guild.delete(),
    "a tag": lambda: a().tags.add(Tag.objects.create(word="new")),
    "a tag it has": lambda: tagged().tags.add(tagged().tags.all()[0]),
    "a tag less": lambda: tagged().tags.remove(tagged().tags.all()[0]),
    "no tags": lambda: tagged().tags.clear(),
    "other tags": lambda: tagged().tags.set([Tag.objects.create(word="x"), Tag.objects.create(word="y")]),
    "a tag of many": lambda: Tag.objects.create(word="z").competitor_set.set([a(0), a(1), a(2)]),
    "a tag of nobody": lambda: tagged().tags.all()[0].competitor_set.clear(),
    "a tag of one less": lambda: tagged().tags.all()[0].competitor_set.remove(tagged()),
    "a tag renamed": lambda: renamed(Tag, word="slow"),
    "a tag deleted": lambda: tagged().tags.all()[0].delete(),
    "tags deleted": lambda: Tag.objects.all().delete(),
}
UNSEEN: dict[str, Callable[[], Any]] = {
    "update": lambda: Competitor.objects.update(region="everywhere", points=F("points") + 1),
    "guilds by update": lambda: Guild.objects.update(slug="one"),
    "guilds changed by update": lambda: Competitor.objects.update(guild=Guild.objects.all()[2]),
    "rows between, by bulk": lambda: Competitor.tags.through.objects.bulk_create(
        [Competitor.tags.through(competitor=a(), tag=Tag.objects.create(word="bulk"))]
    ),
    "rows between, moved": lambda: Competitor.tags.through.objects.filter(
        pk=Competitor.tags.through.objects.filter(competitor=tagged())[0].pk
    ).update(tag=Tag.objects.create(word="moved")),
    "rows between, given to another": lambda: Competitor.tags.through.objects.filter(
        competitor=tagged()
    ).update(competitor=Competitor.objects.create(points=5)),
    "rows between, deleted": lambda: Competitor.tags.through.objects.all().delete(),
    "raw": lambda: raw("UPDATE testapp_tag SET word = %s", "raw"),
    "raw, rows between": lambda: raw("DELETE FROM testapp_competitor_tags"),
    "raw, a guild": lambda: raw("UPDATE testapp_guild SET slug = %s WHERE slug = %s", "raw", "red"),
}


@pytest.fixture
def competitors(zrank: Redis) -> None:
    populate(15)
    rebuild(INDEX)
    Mark.objects.all().delete()


@pytest.mark.usefixtures("competitors")
@pytest.mark.parametrize("change", [*SEEN.values(), *UNSEEN.values()], ids=[*SEEN, *UNSEEN])
def test_triggers_see_it(change: Callable[[], Any]) -> None:
    with disable_sync():
        change()
    drain(INDEX)
    assert_mirrors(CompetitorRank)


@pytest.mark.usefixtures("competitors")
@pytest.mark.parametrize("change", SEEN.values(), ids=SEEN)
def test_signals_see_it(change: Callable[[], Any]) -> None:
    """Nobody drains here: what is pushed is what signals told."""
    change()
    assert_mirrors(CompetitorRank)


@pytest.mark.usefixtures("competitors")
@pytest.mark.parametrize("durable", [True, False])
def test_what_is_rolled_back_moves_nobody(durable: bool) -> None:
    """By itself, or as a savepoint of a transaction that is committed."""
    with nullcontext() if durable else transaction.atomic():
        for change in SEEN.values():
            with transaction.atomic():
                change()
                transaction.set_rollback(True)
    assert_mirrors(CompetitorRank)
    Competitor.objects.update(lost=5, points=F("points"), region=F("region"))
    assert not Mark.objects.exists()


@pytest.mark.usefixtures("competitors")
@pytest.mark.parametrize("change", SEEN.values(), ids=SEEN)
def test_signals_leave_the_marks_where_triggers_may_not(
    change: Callable[[], Any], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ZRANK = {"CAPTURE": "signals"}
    monkeypatch.setattr(signal_handlers, "try_push", lambda members, **times: [])
    left: list[Mark] = []
    marks = Touched.marks
    monkeypatch.setattr(
        Touched, "marks", lambda touched: [left.append(mark) or mark for mark in marks(touched)]
    )
    change()
    Mark.objects.all().delete()  # the triggers' own
    Mark.objects.bulk_create(Mark(index=mark.index, via=mark.via, member=mark.member) for mark in left)
    drain(INDEX)
    assert_mirrors(CompetitorRank)


@pytest.mark.parametrize("facets", [(), ("tags",)])
def test_pushes_ask_for_the_queryset_once_a_second(
    facets: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To make it takes longer than to read a row. Each push reads the rows anew."""
    populate(8)
    now, asked = [100.0], []

    def get_queryset(index: RankIndex) -> QuerySet[Competitor]:
        asked.append(now[0])
        return Competitor.objects.filter(platform="pc")

    index = probe(facets=facets, get_queryset=get_queryset)
    declared(index)  # asks for it, once for all
    asked.clear()
    monkeypatch.setattr("django_zrank.recent.monotonic", lambda: now[0])
    for pk in Competitor.objects.values_list("pk", flat=True):
        for platform, points in (("pc", 1), ("ps", 2), ("pc", 3)):
            Competitor.objects.filter(pk=pk).update(platform=platform, points=points)
            ((member, score, _),) = read(index, [pk])
            assert (member, score) == (str(pk), points if platform == "pc" else None)
        now[0] += 0.25
    assert asked == [100.0, 101.0]


def test_the_statement_for_one_member_is_compiled_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    pks = [competitor.pk for competitor in populate(3)]
    compiled, as_sql = list[Any](), SQLCompiler.as_sql
    monkeypatch.setattr(
        SQLCompiler, "as_sql", lambda *given, **how: compiled.append(1) or as_sql(*given, **how)
    )
    index = probe(order=("points",))
    found = [next(iter(read(index, [pk]))) for pk in pks]
    assert len(compiled) == 1
    assert found == [next(row for row in read(index, pks) if row[0] == str(pk)) for pk in pks]


def test_a_queryset_that_can_have_no_rows() -> None:
    (competitor, *_) = populate(1)
    index = probe(get_queryset=lambda index: Competitor.objects.none())
    assert [score for _, score, _ in read(index, [competitor.pk])] == [None]
    assert [score for _, score, _ in read(index, [competitor.pk, 0])] == [None, None]


def test_each_thread_keeps_a_queryset_of_its_own() -> None:
    """One that holds another is changed, for a moment, by being compiled."""
    made: list[QuerySet[Competitor]] = []

    def get_queryset(index: RankIndex) -> QuerySet[Competitor]:
        made.append(Competitor.objects.all())
        return made[-1]

    index = probe(get_queryset=get_queryset)
    declared(index)  # asks for it, once for all
    made.clear()

    def read() -> None:
        select_among(index, [1, 2])
        connection.close()

    for _ in range(2):
        select_among(index, [1, 2])
        thread = Thread(target=read)
        thread.start()
        thread.join()
    assert len(made) == 3  # one of this thread


@pytest.mark.django_db(databases=["default", "other"])
def test_the_queryset_of_one_database_is_not_used_for_another() -> None:
    index = probe()
    Competitor.objects.create(pk=1, points=1, joined=NOON)
    assert [pk for pk, *_ in select_among(index, [1, 2])] == [1]
    index.using = "other"
    assert list(select_among(index, [1, 2])) == []


@pytest.mark.parametrize("examples", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_any_series_of_changes(zrank: Redis, examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(st.integers(0, 2**32), st.lists(st.sampled_from(sorted([*SEEN, *UNSEEN])), max_size=6))
    def check(seed: int, changes: list[str]) -> None:
        for model in (Competitor, Guild, Tag):
            model.objects.all().delete()
        populate(10, seed)
        for change in changes:
            try:
                {**SEEN, **UNSEEN}[change]()
            except IndexError:  # nobody is left who has what it takes
                continue
        drain(INDEX)
        assert_mirrors(CompetitorRank)

    check()
