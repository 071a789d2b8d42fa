"""Shown columns: entries have what the rows have, after every change, however they are read."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from unittest import mock

import pytest
from django.db import connection, models, transaction
from django.db.models import F, Q
from django.template import Context, Template
from django.test.utils import CaptureQueriesContext, isolate_apps, override_settings
from redis import Redis

from django_zrank import RankIndex, Ranking
from django_zrank.declaration import fingerprint
from django_zrank.entries import Entries, Entry
from django_zrank.redis import executor
from django_zrank.store import Store
from django_zrank.sync.drain import drain
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.signal_handlers import disable_sync
from django_zrank.sync.verify import verify
from django_zrank.sync.watch import sync
from tests.keyspace import whole
from tests.parts.shards.test_late_ranks import USES as EVERY_USE
from tests.rankings import by_sql
from tests.test_async_versions import Both, verbs
from tests.testapp.methods import KEEPING
from tests.testapp.models import Competitor, Guild, Nickname
from tests.without_parts.parts import PARTS

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]

Declare = Callable[..., type[RankIndex]]

SHOWN = ("region", "guild__slug", "joined", "lost", "guild", "points")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)

LAYOUTS: dict[str, dict[str, Any]] = {
    "bare": {"order": ("-points",)},
    "in shards": {"order": ("-points",), "shards": 3},
    "with facets": {"order": ("-points",), "facets": ("region", "platform")},
    "wide": {"order": ("total",)},
    "with ties": {"order": ("-points", "joined"), "ranking_method": "competition"},
    "with all": {
        "order": ("-points", "total"),
        "facets": ("region", "platform", "tags__word"),
        "ranking_method": KEEPING,
        "shards": 3,
    },
}


@pytest.fixture(autouse=True)
def _patient(settings: Any) -> None:
    settings.ZRANK = {"DATABASE_TIMEOUT": 60.0}


@pytest.fixture
def guilds() -> list[Guild]:
    return Guild.objects.bulk_create(Guild(slug=slug) for slug in ("[red]", 'bl"ue', "緑"))


@pytest.fixture
def rows(guilds: list[Guild]) -> list[Competitor]:
    lots = Random(1)
    with disable_sync():
        return Competitor.objects.bulk_create(
            Competitor(
                points=lots.randrange(12),
                total=lots.choice([n, 2**60 + n, -(2**60) - n]),
                lost=lots.randrange(-5, 5),
                joined=lots.choice([None, NOON + timedelta(microseconds=lots.randrange(10**9))]),
                region=lots.choice([None, "kantou", "", '["', "関東"]),
                platform=lots.choice(["pc", "ps"]),
                guild=lots.choice([None, *guilds]),
            )
            for n in range(40)
        )


@pytest.fixture(params=LAYOUTS.values(), ids=LAYOUTS)
def index(request: pytest.FixtureRequest, declare: Declare, rows: list[Competitor]) -> type[RankIndex]:
    attributes = {"shown": SHOWN, "band": 10**19, **request.param}
    order = attributes.pop("order")
    index = declare(Competitor, order[0], get_order=lambda self: order, **attributes)
    sync(index)
    return index


USES = {name: use for name, use in EVERY_USE.items() if name not in ("position", "repr", "str")}
"""Those that don't tell what is shown, and fit these entries."""


def shown(*pks: Any) -> dict[Any, dict[str, Any]]:
    """The oracle: what the rows have now."""
    rows = Competitor.objects.filter(pk__in=pks) if pks else Competitor.objects.all()
    return {pk: dict(zip(SHOWN, values, strict=True)) for pk, *values in rows.values_list("pk", *SHOWN)}


def entries_in(answer: Any) -> list[Entry]:
    """The entries of an answer: one, several, or those drawn for several members."""
    if isinstance(answer, Entry):
        return [answer]
    if isinstance(answer, (list, tuple, Entries)):
        return [entry for one in answer for entry in entries_in(one)]
    return []


def assert_shown(answer: Any, least: int = 1) -> None:
    found = entries_in(answer)
    assert len(found) >= least
    expected = shown()
    for entry in found:
        assert entry.shown == expected[entry.pk]
        assert {type(value) for value in entry.shown.values()} <= {str, int, datetime, type(None)}


def member(at: int = 7) -> Competitor:
    return Competitor.objects.order_by("pk")[at]


READS: dict[str, Callable[[Any], Any]] = {
    "top": lambda ranking: ranking.top(100),
    "top few": lambda ranking: ranking.top(10),
    "after": lambda ranking: ranking.after(ranking[3], 5),
    "before": lambda ranking: ranking.before(ranking[9], 5),
    "a slice": lambda ranking: ranking[3:9],
    "a position": lambda ranking: ranking[2],
    "at_rank": lambda ranking: ranking.at_rank(4),
    "iteration": list,
    "around": lambda ranking: ranking.around(member(), 5),
    "between": lambda ranking: ranking.between(None, None, 9, offset=2),
    "entry of a key": lambda ranking: ranking.entry(member().pk),
    "entry of a row": lambda ranking: ranking.entry(member()),
    "members": lambda ranking: ranking.members([member(3), member(5)]),
    "recommend": lambda ranking: ranking.recommend(member(), 6),
    "recommend by ranks": lambda ranking: ranking.recommend(member().pk, 6, ranks=9),
    "recommend all": lambda ranking: ranking.recommend(member(), 50),
    "remember": lambda ranking: ranking.recommend(member(), 6, remember=HOUR),
    "exclude": lambda ranking: ranking.recommend(member(), 9, exclude=[member(at) for at in range(20)]),
    "where": lambda ranking: ranking.recommend(member(), 6, where=Q(lost__lt=3)),
    "near": lambda ranking: ranking.near(member(), 6),
    "recommend_many": lambda ranking: list(ranking.recommend_many([member(2), member(5).pk], 3)),
    "reversed": lambda ranking: ranking.reversed().top(5),
    "by another method": lambda ranking: ranking.by("competition").top(50),
}
if PARTS["statistics"].is_there:
    READS |= {
        "standing": lambda ranking: ranking.standing(member()).entry,
        "standings": lambda ranking: [one.entry for one in ranking.standings(member())],
        "gap": lambda ranking: ranking.gap(ranking[7].pk)[:2],
        "snapshot": lambda ranking: list(ranking.snapshot()),
    }


NUMBERS = {
    *(
        "count",
        "count_between",
        "counts",
        "histogram",
        "percentile",
        "rank",
        "rank_of_score",
        "ranks",
        "score",
    ),
    *("score_at_percentile", "tier", "contains", "exists", "forget", "__bool__", "__contains__"),
}
"""Verbs whose answers have no entries."""


@pytest.mark.parametrize("index", [LAYOUTS["bare"]], indirect=True)
def test_every_verb_is_tried(index: type[RankIndex]) -> None:
    asked = Both(index.ranking)
    for read in READS.values():
        read(asked)
    assert asked.used | NUMBERS >= verbs(Ranking)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_entries_have_what_the_rows_have(index: type[RankIndex], read: Callable[[Any], Any]) -> None:
    assert_shown(read(index.ranking))
    assert_shown(read(Both(index.ranking)))


@pytest.mark.part("sql")
def test_the_database_shows_the_same(index: type[RankIndex]) -> None:
    for name, read in READS.items():
        if name != "remember":
            assert_shown(read(by_sql(index)))
    assert repr(by_sql(index).top(100)) == repr(index.ranking.top(100))


@pytest.mark.part("sql")
@pytest.mark.parametrize("index", [LAYOUTS["bare"]], indirect=True)
def test_the_database_takes_no_query_more(index: type[RankIndex], declare: Declare) -> None:
    counts = []
    for one in (index, declare(Competitor, "-points", band=10**19)):
        with CaptureQueriesContext(connection) as queries:
            by_sql(one).top(5)
            by_sql(one).recommend(member(), 5, seed=1)
        counts.append(len(queries))
    assert counts[0] == counts[1]


@pytest.mark.part("combined")
def test_filters_that_no_facet_covers(declare: Declare, rows: list[Competitor]) -> None:
    for shards in (1, 3):
        index = declare(
            Competitor, "-points", shown=SHOWN, band=100, facets=("region", "platform"), shards=shards
        )
        sync(index)
        ranking = index.ranking.filter(region="kantou").exclude(platform="pc")
        assert_shown([ranking.recommend(member(), 4), ranking.top(), ranking.top(2)])
        index.group("live").add(*rows)
        assert_shown(index.ranking.filter(group="live").recommend(member(), 4), 4)


def test_a_facet_that_covers_the_filter(declare: Declare, rows: list[Competitor]) -> None:
    index = declare(Competitor, "-points", shown=SHOWN, band=100, facets=("platform",))
    sync(index)
    ranking = index.ranking.filter(platform="pc")
    assert_shown([ranking.top(), ranking.recommend(member(), 3), ranking.around(ranking[0].pk, 3)])


def test_no_round_trip_more(
    declare: Declare, rows: list[Competitor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many requests for each read, of as many calls."""
    sizes: list[int] = []
    send = executor.Executor.send

    def record(asked: Any, request: Any) -> Any:
        sizes.append(len(request.calls))
        return send(asked, request)

    # A busy machine takes a second between two calls.
    monkeypatch.setattr("django_zrank.redis.reader._TRUST", 60.0)
    for shards in (1, 3):
        indexes = [
            declare(Competitor, "-points", band=10**19, shards=shards, **more)
            for more in ({}, {"shown": SHOWN})
        ]
        taken: list[dict[str, list[int]]] = []
        for index in indexes:
            sync(index)
            index.ranking.top(1)
            taken.append({})
            for name, read in READS.items():
                with monkeypatch.context() as patched:
                    patched.setattr(executor.Executor, "send", record)
                    sizes.clear()
                    read(index.ranking)
                    if "recommend" not in name and "where" not in name:  # chance decides there
                        taken[-1][name] = [*sizes]
        assert taken[0] == taken[1]


# Changes


def changed_region(rows: list[Competitor]) -> None:
    Competitor.objects.filter(pk=rows[3].pk).update(region="elsewhere")


def saved(rows: list[Competitor]) -> None:
    rows[4].region = "saved"
    rows[4].save(update_fields=["region"])


def renamed(rows: list[Competitor]) -> None:
    Guild.objects.filter(slug="緑").update(slug="みどり")


def renamed_by_save(rows: list[Competitor]) -> None:
    guild = Guild.objects.get(slug="緑")
    guild.slug = "みどり"
    guild.save()


def moved(rows: list[Competitor]) -> None:
    Competitor.objects.update(guild=Guild.objects.first())


def disbanded(rows: list[Competitor]) -> None:
    Guild.objects.get(slug="緑").delete()


def all_at_once(rows: list[Competitor]) -> None:
    Competitor.objects.update(lost=F("lost") + 100, joined=NOON)


def raw(rows: list[Competitor]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_guild SET slug = 'by hand'")


@pytest.mark.parametrize(
    "change", [changed_region, saved, renamed, renamed_by_save, moved, disbanded, all_at_once, raw]
)
def test_a_change_appears_after_the_drain(
    index: type[RankIndex], rows: list[Competitor], change: Callable[[list[Competitor]], None]
) -> None:
    before = shown()
    change(rows)
    assert shown() != before
    drain(index.instance())
    assert_shown(index.ranking.top(100), 40)
    assert verify(index.instance()).ok


def test_a_save_appears_at_once(index: type[RankIndex], rows: list[Competitor]) -> None:
    rows[5].region, rows[5].guild = "saved", None
    rows[5].save()
    assert index.ranking.entry(rows[5]).shown == shown()[rows[5].pk]
    assert index.ranking.entry(rows[5]).shown["region"] == "saved"


def test_a_change_that_is_rolled_back_leaves_nothing(
    index: type[RankIndex], rows: list[Competitor], zrank: Redis
) -> None:
    with transaction.atomic():
        Competitor.objects.update(region="phantom")
        Guild.objects.update(slug="phantom")
        rows[0].region = "phantom"
        rows[0].save()
        transaction.set_rollback(True)
    drain(index.instance())
    assert_shown(index.ranking.top(100), 40)
    assert "phantom" not in repr(whole(zrank))


def test_a_rebuild_shows_what_the_pushes_showed(index: type[RankIndex], rows: list[Competitor]) -> None:
    all_at_once(rows)
    drain(index.instance())
    before = repr(index.ranking.top(100))
    rebuild(index.instance())
    assert repr(index.ranking.top(100)) == before
    assert_shown(index.ranking.top(100), 40)


@pytest.mark.parametrize("index", [LAYOUTS["bare"]], indirect=True)
def test_a_rebuild_packs_members_of_different_values_together(index: type[RankIndex]) -> None:
    """They are in the same rankings: one command writes them."""
    with mock.patch.object(Store, "_pack", autospec=True, side_effect=Store._pack) as pack:
        rebuild(index.instance())
    assert [len(call.args[1]) for call in pack.mock_calls] == [40]


def test_verification_finds_a_wrong_value(index: type[RankIndex], zrank: Redis) -> None:
    part = index.instance().holders[0]
    key = Store(part.name).live.memberships
    one, *_ = zrank.hkeys(key)  # type: ignore[misc]
    right: Any = zrank.hget(key, one)
    wrong = right.replace(b"[", b"[99,", 1) if b"[" in right else right
    for planted in (wrong, right.replace(b"null", b'"x"', 1)):
        if planted != right:
            zrank.hset(key, one, planted)
            drift = verify(index.instance()).different
            assert [(each.member, each.why) for each in drift.examples] == [
                (one.decode(), "other attached values")
            ]
            assert verify(index.instance(), repair=True).repaired == 1
            assert verify(index.instance()).ok
            assert zrank.hget(key, one) == right
    assert_shown(index.ranking.top(100), 40)


def test_a_member_that_leaves_takes_its_values_along(
    index: type[RankIndex], rows: list[Competitor], zrank: Redis
) -> None:
    Competitor.objects.filter(pk=rows[6].pk).update(region="secret")
    drain(index.instance())
    assert "secret" in repr(whole(zrank))
    Competitor.objects.filter(pk=rows[6].pk).delete()
    drain(index.instance())
    assert "secret" not in repr(whole(zrank))


@pytest.mark.part("erase")
def test_erasing_a_member_leaves_none_of_its_values(
    index: type[RankIndex], rows: list[Competitor], zrank: Redis
) -> None:
    rows[6].region = "secret"
    rows[6].save()

    def found() -> list[str]:
        """The keys of the index that hold the value, or are named after it."""
        own = {key: held for key, held in whole(zrank).items() if index.instance().name in key}
        return [key for key, held in own.items() if "secret" in f"{key} {held!r}"]

    assert found()
    with disable_sync():
        Competitor.objects.filter(pk=rows[6].pk).delete()
    facets = index.instance().faceting.rankings(
        {"region": ["secret"], "platform": ["pc"], "tags__word": [None]}
    )
    assert index.erase(rows[6].pk).removed["rankings"] == 1 + len(facets)
    assert not found()


@pytest.mark.part("write_behind")
@pytest.mark.parametrize("facets", [(), ("region", "platform")])
def test_scores_that_begin_in_redis_keep_the_values(
    declare: Declare, rows: list[Competitor], facets: tuple[str, ...]
) -> None:
    from django_zrank.write_behind.flush import flush

    index = declare(Competitor, "-points", shown=("region", "lost"), facets=facets, write_behind="increment")
    sync(index)
    before = index.ranking.entry(rows[0])
    index.scores.increment(rows[0], 100)
    after = index.ranking[0]
    assert (after.pk, after.score, after.shown) == (before.pk, before.score + 100, before.shown)
    if facets:
        region = index.ranking.filter(platform=rows[0].platform)[0]
        assert (region.pk, region.shown) == (before.pk, before.shown)
    flush(index.instance())
    sync(index)
    assert verify(index.instance()).ok


# Declarations


def test_none_by_default(declare: Declare, rows: list[Competitor], zrank: Redis) -> None:
    index = declare(Competitor, "-points")
    sync(index)
    assert index.ranking[0].shown == {}
    assert type(index.ranking[0]) is Entry
    assert not zrank.exists(Store(index.instance().name).live.memberships)


def test_another_list_of_columns_is_another_declaration(declare: Declare) -> None:
    """Also if the columns that are read are the same, in the same order."""
    lists = (
        (),
        ("points",),
        ("lost",),
        ("lost", "points"),
        ("points", "lost"),
        ("region", "lost"),
        ("lost", "region"),
    )
    declarations = [declare(Competitor, "-points", shown=shown).instance().declaration for shown in lists]
    assert len({*declarations}) == len(declarations)


def test_a_column_of_another_type_is_another_declaration() -> None:
    """Redis holds units of the last place, and datetimes in UTC."""
    declarations = []
    for column in (
        models.DecimalField(max_digits=9, decimal_places=2),
        models.DecimalField(max_digits=9, decimal_places=3),
        models.DateTimeField(),
    ):
        with isolate_apps("tests.testapp"):
            meta = type("Meta", (), {"app_label": "testapp", "db_table": "typed"})
            fields = {"n": models.IntegerField(), "held": column, "Meta": meta, "__module__": __name__}
            model: Any = type("Typed", (models.Model,), fields)
        index = type("Typed", (RankIndex,), {"model": model, "order": ("n",), "shown": ("held",)}).instance()
        for use_tz in (True, False):
            with override_settings(USE_TZ=use_tz):
                declarations.append(fingerprint(index))
    decimals, datetimes = declarations[:4], declarations[4:]
    assert len({*decimals}) == len({*datetimes}) == 2
    assert {*decimals}.isdisjoint(datetimes)


def test_a_key_of_text(declare: Declare) -> None:
    """Keys may look like attachments."""
    index = declare(Nickname, "-score", shown=("nick", "score", "pk"))
    for at, nick in enumerate(["[1]", '["a"]', "b", "ü"]):
        Nickname.objects.create(nick=nick, score=at + 0.5)
    sync(index)
    for entry in index.ranking.top():
        assert entry.shown == {"nick": entry.pk, "score": entry.score, "pk": entry.pk}
    assert verify(index.instance()).ok


# Entries


@pytest.mark.parametrize("index", [LAYOUTS["bare"], LAYOUTS["in shards"]], indirect=True)
def test_what_is_shown_stays_with_an_entry(index: type[RankIndex]) -> None:
    for entry in [*index.ranking.top(3), *index.ranking.recommend(member(), 3)]:
        plain = Entry(*entry)
        assert entry == plain
        assert plain == entry
        assert hash(entry) == hash(plain)
        assert plain.shown == {}
        for other in (
            pickle.loads(pickle.dumps(entry)),
            pickle.loads(pickle.dumps(entry, 0)),
            copy.copy(entry),
            copy.deepcopy(entry),
            entry._replace(score=entry.score),
        ):
            assert (other, other.shown, repr(other)) == (plain, entry.shown, repr(entry))
        assert repr(entry) == f"{repr(plain)[:-1]}, shown={entry.shown!r})"
        text = Template("{{ entry.shown.region }} {{ entry.shown.guild__slug }} {{ entry.rank }}")
        expected = f"{entry.shown['region']} {entry.shown['guild__slug']} {entry.rank}"
        with CaptureQueriesContext(connection) as queries:
            assert text.render(Context({"entry": entry}, autoescape=False)) == expected
        assert not queries
    assert isinstance(index.ranking, Ranking)


@pytest.mark.parametrize("index", [LAYOUTS["in shards"]], indirect=True)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_late_rank_is_used_as_without(index: type[RankIndex], use: Callable[[Any], Any]) -> None:
    for entry in index.ranking.recommend(member(), 3):
        assert use(entry) == use(Entry(*entry))
