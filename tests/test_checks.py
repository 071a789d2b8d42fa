"""``manage.py check`` finds what is wrong, says what to do about it, and leaves the rest alone."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.checks import CheckMessage, run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection, models
from django.db.models import (
    Avg,
    BooleanField,
    Count,
    Exists,
    F,
    FilteredRelation,
    IntegerField,
    Max,
    OuterRef,
    Q,
    Subquery,
    Sum,
    When,
    Window,
)
from django.db.models import Case as DjangoCase
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce, ExtractHour, Now, Random, RowNumber, Upper
from django.test.utils import isolate_apps
from django.utils import timezone
from redis.cache import CacheConfig

from django_zrank import RankIndex, checks
from django_zrank.capture.triggers import captured
from django_zrank.methods import methods
from django_zrank.registry import registry
from django_zrank.sync import signal_handlers
from tests.testapp.models import (
    Account,
    Club,
    Competitor,
    Employee,
    Person,
    Player,
    PlayerProxy,
    Team,
    Ticket,
)
from tests.testapp.zrank import PlayerRank
from tests.without_parts.parts import PARTS

with isolate_apps("tests.testapp"):

    class Seat(models.Model):
        pk = models.CompositePrimaryKey("row", "number")
        row = models.IntegerField()
        number = models.IntegerField()

        class Meta:
            app_label = "testapp"

    class Ledger(models.Model):
        total = models.DecimalField(max_digits=19, decimal_places=4)
        share = models.DecimalField(max_digits=18, decimal_places=18)
        exact = models.DecimalField()
        group = models.CharField(max_length=9)

        class Meta:
            app_label = "testapp"

    def keyed(name: str, key: models.Field[Any, Any]) -> Any:
        """A model with such a primary key."""
        meta = type("Meta", (), {"app_label": "testapp"})
        attributes = {
            "__module__": __name__,
            "Meta": meta,
            "key": key,
            "score": models.IntegerField(default=0),
        }
        return type(name, (models.Model,), attributes)

    class Token(models.CharField):
        def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
            return f"usr_{value}"

    class Prepared(models.IntegerField):
        def get_prep_value(self, value: Any) -> Any:
            return value and -value

    KEYED = [
        keyed("ByBinary", models.BinaryField(primary_key=True, max_length=9)),
        keyed("ByDecimal", models.DecimalField(primary_key=True, max_digits=9, decimal_places=2)),
        keyed("ByFloat", models.FloatField(primary_key=True)),
        keyed("ByDate", models.DateField(primary_key=True)),
        keyed("ByDateTime", models.DateTimeField(primary_key=True)),
        keyed("ByTime", models.TimeField(primary_key=True)),
        keyed("ByDuration", models.DurationField(primary_key=True)),
        keyed("ByJSON", models.JSONField(primary_key=True)),
        keyed("ByToken", Token(primary_key=True, max_length=9)),
        keyed("ByPrepared", Prepared(primary_key=True)),
    ]
    SPELLED = [
        keyed("ByAddress", models.GenericIPAddressField(primary_key=True)),
        keyed("ByBoolean", models.BooleanField(primary_key=True)),
        keyed("BySlug", models.SlugField(primary_key=True)),
        keyed("ByUUID", models.UUIDField(primary_key=True)),
        keyed("ByNumber", models.PositiveBigIntegerField(primary_key=True)),
    ]

    class Season(models.Model):
        start = models.DateField(unique=True)
        is_over = models.BooleanField(default=False)

        class Meta:
            app_label = "testapp"

    class Result(models.Model):
        points = models.IntegerField(default=0)
        season = models.ForeignKey(Season, models.CASCADE, to_field="start")

        class Meta:
            app_label = "testapp"

    class Ghost(models.Model):
        points = models.IntegerField(default=0)

        class Meta:
            app_label = "testapp"
            abstract = True

    class Swapped(models.Model):
        class Meta:
            app_label = "testapp"
            swappable = "AUTH_USER_MODEL"


class NoMarksRouter:
    """Keeps the app's tables out of every database."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if app_label == "zrank" else None


NAMED = Player.objects.exclude(name="")
BETTER = Player.objects.filter(name=OuterRef("name"), level__gt=OuterRef("level"))
AVERAGE = Player.objects.values("is_active").annotate(average=Avg("level")).values("average")[:1]
DJANGO_REDIS = "django_redis.cache.RedisCache"
TIMEOUTS = {"SOCKET_TIMEOUT": 1, "SOCKET_CONNECT_TIMEOUT": 1}
LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}


def cache(location: Any = "redis://127.0.0.1:6379/1", **options: Any) -> dict[str, Any]:
    """A cache of django-redis, rightly configured."""
    return {"BACKEND": DJANGO_REDIS, "LOCATION": location, "OPTIONS": TIMEOUTS | options}


EXTRA = Player.objects.extra(tables=["testapp_club"])
CLUBS = Club.objects.filter(pk=OuterRef("level"))
NUMBERED = Player.objects.annotate(at=Window(RowNumber()))


class Case(NamedTuple):
    """Settings and declarations, and what is to be said about them."""

    code: str | None
    says: str = ""
    """A regular expression for the message."""

    zrank: Any = {}
    caches: dict[str, Any] | None = None
    declares: tuple[dict[str, Any], ...] = ()
    routers: tuple[str, ...] = ()


def setting(code: str | None, key: str, value: Any, says: str = "", *, part: str = "") -> Any:
    """One key of ``ZRANK``, which a part may read."""
    return pytest.param(
        Case(code, says or f"{key}.*{re.escape(repr(value))}", zrank={key: value}),
        id=f"{key}={value!r}",
        marks=[pytest.mark.part(part)] if part else [],
    )


def caching(code: str | None, title: str, says: str = "", /, alias: str = "zrank", **caches: Any) -> Any:
    """Caches, the indexes in the one called ``alias``; ``index`` stands for "zrank"."""
    caches = {"zrank" if name == "index" else name: config for name, config in caches.items()}
    return pytest.param(
        Case(code, says, {"REDIS_ALIAS": alias}, caches={"default": LOCMEM} | caches), id=title
    )


async def excluded(self: Any, member: Any) -> Any:
    return ()


ANNOTATED: dict[str, Any] = {"get_queryset": lambda self: Player.objects.annotate(boss=F("level") + 1)}
"""A queryset with an annotation of a name that no field has."""


def declaring(code: str | None, title: str, says: str = "", /, part: str = "", **attributes: Any) -> Any:
    """An index of players, called "wrong", unless it says otherwise. ``part``: the one that finds it."""
    attributes = {"name": "wrong", "model": Player, "order": ("-level",), **attributes}
    attributes = {key: value for key, value in attributes.items() if value is not ...}
    marks = [pytest.mark.part(part)] if part else []
    return pytest.param(Case(code, says, declares=(attributes,)), id=title, marks=marks)


def rows(queryset: Any) -> Any:
    """A ``get_queryset()``."""
    return lambda self: queryset


def fails(self: Any) -> Any:
    raise LookupError("no name")


def seen_before_now(self: Any) -> Any:
    return Player.objects.filter(user__last_login__lt=timezone.now())


def by_chance(self: Any) -> Any:
    return Player.objects.filter(level__gt=random.getrandbits(30))


def seen_before_today(self: Any) -> Any:
    return Player.objects.filter(user__last_login__date__lt=date.today())


async def never(self: Any) -> Any:
    raise AssertionError


SETTINGS = [
    *(
        pytest.param(Case("zrank.E001", "ZRANK must be a dictionary", zrank=value), id=f"ZRANK={value!r}")
        for value in ("text", ["REDIS_ALIAS"], 5, None)
    ),
    setting("zrank.E002", "REDIS_URL", "redis://", says="no key 'REDIS_URL'"),
    setting("zrank.E002", "max_n", 5, says="no key 'max_n'"),
    *(setting("zrank.E003", "REDIS_ALIAS", value) for value in (5, None)),
    *(setting("zrank.E003", "KEY_PREFIX", value) for value in ("", "a{b", "a}b", 5)),
    *(setting("zrank.E003", "DEFAULT_INDEX", value) for value in (5, ["player"])),
    *(setting("zrank.E003", "MAX_N", value) for value in (0, -1, 5.5, "5", True, None)),
    *(
        setting("zrank.E003", "RETRY_AFTER", value)
        for value in (0, -1.0, float("inf"), float("nan"), "5", True)
    ),
    *(setting("zrank.E003", "AUTO_SYNC", value) for value in (1, "yes", None)),
    *(setting("zrank.E003", "CAPTURE", value) for value in ("nothing", None)),
    *(setting("zrank.E003", "UNHEALTHY", value) for value in ("explode", None)),
    *(setting("zrank.E003", "READS", value) for value in ("replicas", None)),
    *(setting("zrank.E003", "REPLICA_LAG", value, part="replicas") for value in (0, "5")),
    *(setting("zrank.E003", "DATABASE_TIMEOUT", value, part="sql") for value in (0, -1, float("nan"))),
    *(setting("zrank.E003", "KEEP_MARKS", value) for value in (-1, float("nan"))),
    setting("zrank.E012", "DEFAULT_INDEX", "teams"),
    pytest.param(
        Case("zrank.E022", "'default'", routers=("tests.test_checks.NoMarksRouter",)),
        id="a router in the way",
    ),
]

CACHES = [
    caching("zrank.E004", "no alias", "'zrank'"),
    caching("zrank.E004", "another alias", "'ranks'", alias="ranks", index=cache()),
    caching("zrank.E005", "not django-redis", "'zrank'", index=LOCMEM),
    caching("zrank.E005", "no such backend", "'zrank'", index={"BACKEND": "nowhere.Cache"}),
    caching(
        "zrank.E005",
        "Django's own",
        "'zrank'",
        index={"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1/1"},
    ),
    caching(
        "zrank.E006",
        "decoded",
        "sets decode_responses: Redis would get or return other bytes than it holds",
        index=cache(CONNECTION_POOL_KWARGS={"decode_responses": True}),
    ),
    caching(
        "zrank.E006",
        "kept replies",
        "sets cache_config: replies that the client has kept would be returned after Redis has changed",
        index=cache(CONNECTION_POOL_KWARGS={"cache_config": CacheConfig(), "protocol": 3}),
    ),
    caching("zrank.W001", "the same place", r"'pages'.*cache\.clear\(\)", index=cache(), pages=cache()),
    caching(
        "zrank.W001",
        "the same place, Django's own cache",
        "'pages'",
        index=cache("redis://cache.example/1"),
        pages={
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": ["redis://cache.example:6379/1"],
        },
    ),
    caching(
        "zrank.W001",
        "the same place, spelled otherwise",
        "'pages'",
        index=cache("redis://:secret@cache.example:6379/0"),
        pages=cache("redis://cache.example"),
    ),
    caching(
        "zrank.W001",
        "the same socket",
        "'pages'",
        index=cache("unix:///run/redis.sock?db=1"),
        pages=cache("unix:///run/redis.sock?db=1"),
    ),
    caching("zrank.W001", "the default cache", "'default'", alias="default", default=cache()),
    caching("zrank.W002", "no timeout", "SOCKET_TIMEOUT", index=cache(SOCKET_TIMEOUT=None)),
    caching(
        "zrank.W002", "no connect timeout", "SOCKET_CONNECT_TIMEOUT", index=cache(SOCKET_CONNECT_TIMEOUT=0)
    ),
    caching(
        "zrank.W002",
        "no timeouts",
        "SOCKET_CONNECT_TIMEOUT.*SOCKET_TIMEOUT",
        index={"BACKEND": DJANGO_REDIS, "LOCATION": "redis://127.0.0.1:6379/1"},
    ),
]

DECLARATIONS = [
    declaring("zrank.E010", "no model", "Wrong has no model", model=...),
    declaring("zrank.E011", "a name that is taken", "2 indexes are called 'player'", name="player"),
    *(
        declaring("zrank.E013", f"name {name[:9]!r}", "Wrong.name", get_name=lambda self, name=name: name)
        for name in ("", "a b", "a/b", "a{b}", "n" * 256, "a\nb", "\ud800")
    ),
    declaring("zrank.E014", "composite primary key", "composite", model=Seat, order=("row",)),
    *(
        declaring("zrank.E015", f"order {order!r}", "Wrong.order: ", order=order)
        for order in (
            ("-lvl",),
            ("-name",),
            ("level__high",),
            ("--level",),
            ("?",),
            ("friends__level",),
            ("user",),
            "-level",
            (),
            ("-level", "name"),
            ("-level", "friends"),
            ("-level", "friends__level"),
            ("-level", "level"),
            ("-level", "id", "pk"),
            ("-level", F("id") + 1),
            ("-level", (F("id") + 1).asc()),
            (F("level").desc(nulls_first=True),),
            5,
        )
    ),
    *(
        declaring("zrank.E016", f"band {band!r}", r"Wrong\.band: ", band=band)
        for band in (
            -1,
            float("inf"),
            float("nan"),
            Decimal("-0.5"),
            "10",
            True,
            (1,),
            (1, 2, 3),
            (1, -1),
            timedelta(days=1),
        )
    ),
    declaring("zrank.E015", "ties by a UUID", "Wrong.order: ", model=Ticket, order=("integer", "pk")),
    declaring("zrank.E015", "ties by a relation", "Wrong.order: ", model=Team, order=("points", "club")),
    declaring("zrank.E016", "band of dates", "Wrong.band", model=Ticket, order=("day",), band=timedelta(-1)),
    declaring("zrank.E016", "band of moments", "Wrong.band", model=Ticket, order=("moment",), band=10),
    declaring("zrank.E017", "no such owner", "Wrong.owner: .*'boss'", owner="boss"),
    declaring(
        "zrank.E017", "an annotated owner", "Wrong.owner: 'boss' is an annotation", owner="boss", **ANNOTATED
    ),
    declaring("zrank.E017", "no owner behind a text", "Wrong.owner: ", owner="name__user"),
    declaring("zrank.E018", "an owner that is text", "'name' does not end at the user model", owner="name"),
    declaring("zrank.E018", "an owner of another model", "'friends'", owner="friends"),
    declaring("zrank.E018", "an owner that is only the key", "'pk'", owner="pk"),
    declaring("zrank.E019", "a list", "QuerySet of testapp.Player", get_queryset=rows([])),
    declaring("zrank.E019", "a manager", "QuerySet of testapp.Player", get_queryset=rows(Player.objects)),
    declaring(
        "zrank.E019", "other rows", "QuerySet of testapp.Player", get_queryset=rows(Club.objects.all())
    ),
    declaring(
        "zrank.E052",
        "rows of a subquery",
        "testapp_account, testapp_club in a subquery",
        get_queryset=rows(Player.objects.filter(pk__in=Account.objects.filter(club__is_open=True))),
    ),
    declaring(
        "zrank.E052",
        "whether there are such rows",
        "testapp_club in a subquery",
        get_queryset=rows(Player.objects.filter(Exists(Club.objects.filter(pk=OuterRef("pk"))))),
    ),
    declaring(
        "zrank.E052",
        "a subquery of a subquery",
        "testapp_club in a subquery",
        get_queryset=rows(Player.objects.filter(pk__in=Player.objects.filter(level__in=Club.objects.all()))),
    ),
    declaring("zrank.E020", "a slice", "sliced", get_queryset=rows(Player.objects.all()[:9])),
    declaring(
        "zrank.E020", "a union", "combined", get_queryset=rows(Player.objects.union(Player.objects.all()))
    ),
    declaring("zrank.E020", "distinct", "distinct", get_queryset=rows(Player.objects.distinct("name"))),
    *(
        declaring("zrank.E010", says, says, model=model)
        for model, says in [
            ("players.Player", "no model: no app has 'players.Player'"),
            ("Nobody", "no model: no app has 'Nobody'"),
            ("a.b.c", "no model: no app has 'a.b.c'"),
            (Ghost, "no model: Ghost is abstract"),
            (Swapped, "no model: testapp.Swapped has been swapped"),
            (AVERAGE, "no model: it is of type QuerySet"),
            (Player.objects, "no model: it is of type Manager"),
            (Club(pk=1), "no model: it is of type Club"),
            (5, "no model: it is of type int"),
        ]
    ),
    *(
        declaring(
            "zrank.E027",
            model.__name__,
            f"key of testapp.{model.__name__} can't be a member: .*{type(model._meta.pk).__name__}",
            model=model,
            order=("-score",),
        )
        for model in KEYED
    ),
    declaring("zrank.E013", "a name that is none", "Wrong.name can't be 5", name=5),
    declaring(
        "zrank.E028",
        "get_excluded() without its argument",
        r"get_excluded can't be called with \(member\): too many positional",
        get_excluded=lambda self: (),
    ),
    declaring(
        "zrank.E028",
        "a method with one too many",
        r"get_name.*missing.*'why'",
        get_name=lambda self, why: "x",
    ),
    declaring("zrank.E028", "a method that is a value", "get_band is 5, not a method", get_band=5),
    declaring("zrank.E028", "an async method", "get_queryset is async", get_queryset=never),
    declaring(
        "zrank.E029", "ordering", "Wrong.ordering hides an attribute of RankIndex", ordering=("-level",)
    ),
    declaring("zrank.E029", "instance", "Wrong.instance hides", instance="region"),
    declaring(
        "zrank.E030", "a name that can't be told", "Wrong can't be instantiated: .*no name", get_name=fails
    ),
    *(
        declaring("zrank.W006", f"the attribute {name}", f"Wrong.{name} is not an attribute", **{name: value})
        for name, value in [
            ("facet", ("name",)),
            ("oder", ("-level",)),
            ("bands", 5),
            ("get_query_set", rows(Player.objects.all())),
            ("exclude", ()),
            ("queryset", Player.objects.all()),
        ]
    ),
    declaring("zrank.E019", "a queryset that fails", "It fails: LookupError: no name", get_queryset=fails),
    *(
        declaring("zrank.E031", title, "returns values, not rows", get_queryset=rows(queryset))
        for title, queryset in [
            ("values", Player.objects.values()),
            ("some values", Player.objects.values("level")),
            ("values_list", Player.objects.values_list("pk", "level")),
            ("flat values", Player.objects.values_list("pk", flat=True)),
        ]
    ),
    declaring("zrank.E041", "the time", "depends on the time", get_queryset=seen_before_now),
    *(
        declaring("zrank.W004", title, "contains raw SQL", get_queryset=rows(queryset))
        for title, queryset in [
            ("raw SQL", Player.objects.filter(RawSQL("level > 3", (), BooleanField()))),
            ("extra SQL", Player.objects.extra(where=["level > 3"])),
            (
                "raw SQL in a subquery",
                Player.objects.filter(pk__in=Player.objects.extra(where=["level > 3"])),
            ),
        ]
    ),
    *(
        declaring("zrank.W013", f"a filter by {title}", f"compares with {says}", get_queryset=rows(queryset))
        for title, queryset, says in [
            ("the time", Player.objects.filter(user__last_login__lt=Now()), r"Now\(\): what"),
            ("the hour", Player.objects.filter(level__lt=ExtractHour(Now())), r"Now\(\)"),
            ("chance", Player.objects.filter(level__lt=Random() * 9), r"Random\(\)"),
        ]
    ),
    declaring("zrank.E041", "chance", "differs from one call", get_queryset=by_chance),
    declaring("zrank.W008", "today's date", "today's date", get_queryset=seen_before_today),
    declaring(
        "zrank.E032",
        "a window function",
        "window function",
        get_queryset=rows(
            Player.objects.annotate(at=Window(RowNumber(), order_by="-level")).filter(at__lte=3)
        ),
    ),
    *(
        declaring(
            "zrank.E049",
            f"an annotation by {title}",
            f"annotation a {says}",
            order=("level", "a"),
            get_queryset=rows(Player.objects.annotate(a=expression)),
        )
        for title, expression, says in [
            ("a window", Window(RowNumber(), order_by="-level"), "is a window function"),
            ("a part of it", F("level") + Window(Max("level")), "is a window function"),
            ("the time", Now(), "depends on Now"),
            ("time in a filter", Count("friends", filter=Q(user__date_joined__gt=Now())), "depends on Now"),
            ("chance", Random() * F("level"), "depends on Random"),
            ("raw SQL", RawSQL("level + 1", (), IntegerField()), "contains raw SQL"),
            ("several rows", F("friends__level"), "may have several values"),
            (
                "a condition over several rows",
                DjangoCase(When(friends__level__gt=3, then=1), default=0),
                "may have several values",
            ),
            (
                "several and their number",
                Coalesce("friends__level", 0) + Count("friends"),
                "may have several values",
            ),
        ]
    ),
    declaring(
        "zrank.E049",
        "an annotation over a join by the time",
        "annotation a depends on Now",
        model=Competitor,
        order=("-a",),
        get_queryset=rows(
            Competitor.objects.annotate(
                recent=FilteredRelation("duels", condition=Q(duels__fought_at__lt=Now())),
                a=Count("recent"),
            )
        ),
    ),
    declaring(
        "zrank.E049",
        "an annotation by the time of a subquery",
        "annotation a depends on Now",
        order=("-a",),
        get_queryset=rows(
            Player.objects.annotate(
                a=Subquery(
                    Player.objects.filter(pk=OuterRef("pk"), user__last_login__lt=Now()).values("level")
                )
            )
        ),
    ),
    declaring(
        "zrank.E049",
        "an annotation as a facet",
        "annotation at is a window function",
        facets=("at",),
        get_queryset=rows(NUMBERED),
    ),
    declaring(
        "zrank.E015",
        "an annotation of text",
        "text",
        order=("-a",),
        get_queryset=rows(Player.objects.annotate(a=Upper("name"))),
    ),
    declaring(
        "zrank.E015",
        "an alias",
        "a is an alias",
        order=("-a",),
        get_queryset=rows(Player.objects.alias(a=Count("friends"))),
    ),
    *(
        declaring(
            "zrank.E052",
            f"an annotation by {title}",
            "reads testapp_club in a subquery",
            order=("-level", "a"),
            facets=facets,
            get_queryset=rows(Player.objects.annotate(a=expression)),
        )
        for title, facets, expression in [
            ("a sum with a subquery", (), F("level") + Subquery(CLUBS.values("pk"))),
            ("a case with a subquery", ("a",), DjangoCase(When(Exists(CLUBS), then=1), default=0)),
            ("a filter with a subquery", (), Count("friends", filter=Q(pk__in=Club.objects.values("pk")))),
        ]
    ),
    declaring(
        "zrank.E052",
        "an annotation by a subquery",
        "reads testapp_club in a subquery",
        order=("-a",),
        get_queryset=rows(
            Player.objects.annotate(a=Subquery(Club.objects.filter(pk=OuterRef("level")).values("pk")))
        ),
    ),
    *(
        declaring(
            "zrank.E033",
            title,
            "reads other rows of testapp_player in a subquery",
            get_queryset=rows(queryset),
        )
        for title, queryset in [
            ("better than others", Player.objects.exclude(Exists(BETTER))),
            ("better than the average", Player.objects.filter(level__gt=Subquery(AVERAGE))),
            ("the newest", Player.objects.filter(pk__in=Player.objects.order_by("-pk")[:5])),
            (
                "one of each level",
                Player.objects.filter(
                    pk__in=Player.objects.values("level").annotate(m=Max("pk")).values("m")
                ),
            ),
            ("by a column", Player.objects.filter(name__in=Player.objects.filter(level=1).values("name"))),
        ]
    ),
    declaring(
        "zrank.E052",
        "rows of a parent",
        "testapp_person in a subquery",
        model=Employee,
        order=("-points",),
        get_queryset=rows(Employee.objects.filter(pk__in=Person.objects.filter(points__gt=5))),
    ),
    declaring(
        "zrank.E052",
        "a joined table in a subquery too",
        "testapp_club in a subquery",
        model=Account,
        order=("-profile__points",),
        get_queryset=rows(
            Account.objects.filter(Exists(Club.objects.filter(is_open=True)), club__is_open=True)
        ),
    ),
    declaring(
        "zrank.E052",
        "an extra table",
        "testapp_club",
        get_queryset=rows(EXTRA),
    ),
    declaring("zrank.E037", "exclusions in coroutines alone", "only in coroutines", aget_excluded=excluded),
    declaring("zrank.E028", "a coroutine that is none", "is not async", aget_member=lambda self, user: None),
    declaring(
        "zrank.E034",
        "a date that leads to members",
        "Result.season can't connect a table that is read to members: .*DateField",
        model=Result,
        order=("-points",),
        get_queryset=rows(Result.objects.filter(season__is_over=False)),
    ),
    declaring("zrank.E021", "no such database", "no database 'nowhere'", using="nowhere"),
    declaring(
        "zrank.E044",
        "no router",
        "than using, 'other'",
        using="other",
        get_queryset=rows(Player.objects.all()),
    ),
    declaring("zrank.W003", "too many digits", "total", model=Ledger, order=("-total",)),
    declaring("zrank.W003", "too many digits to break ties", "total", model=Ledger, order=("pk", "total")),
    declaring("zrank.W003", "no last place", "exact", model=Ledger, order=("exact",)),
    *(
        declaring("zrank.E024", f"method {method!r}", re.escape(repr(method)), ranking_method=method)
        for method in ("standard", "", None, "Dense")
    ),
    *(
        declaring("zrank.E025", f"facets {facets!r}", "Wrong.facets: ", facets=facets)
        for facets in (
            ("region",),
            ("name__first",),
            "name",
            5,
            (5,),
            ((),),
            (("name", "name"),),
            ("name", "name"),
            ("name", ("name",)),
            (("name", "level"), ("level", "name")),
        )
    ),
    *(
        declaring(
            "zrank.E025",
            f"a facet by {facet}",
            "can't be a facet",
            model=Ticket,
            order=("day",),
            facets=(facet,),
        )
        for facet in ("real", "price", "moment", "span")
    ),
    declaring(
        "zrank.E026",
        "a facet called group",
        "group",
        part="groups",
        model=Ledger,
        order=("pk",),
        facets=("group",),
    ),
    declaring(
        "zrank.E026",
        "group with another",
        "group",
        part="groups",
        model=Ledger,
        order=("pk",),
        facets=(("id", "group"),),
    ),
]

RIGHT = [
    declaring(None, "a database of its own", using="other"),
    *(setting(None, "DEFAULT_INDEX", value) for value in ("player", None)),
    *(setting(None, "RETRY_AFTER", value) for value in (1, 0.5)),
    setting(None, "MAX_N", 1),
    setting(None, "KEY_PREFIX", "myapp:ranks"),
    setting(None, "CAPTURE", "signals"),
    setting(None, "UNHEALTHY", "serve_stale"),
    caching(None, "another database", index=cache(), pages=cache("redis://127.0.0.1:6379/2")),
    caching(None, "another server", index=cache(), pages=cache("redis://cache.example:6379/1")),
    caching(None, "another port", index=cache(), pages=cache("redis://127.0.0.1:6380/1")),
    caching(
        None,
        "another database by its parameter",
        index=cache("redis://127.0.0.1?db=1"),
        pages=cache("redis://127.0.0.1?db=2"),
    ),
    caching(
        None,
        "another database of a socket",
        index=cache("unix:///run/redis.sock?db=1"),
        pages=cache("unix:///run/redis.sock?db=2"),
    ),
    caching(None, "other caches that are not in Redis", index=cache(), pages=LOCMEM | {"LOCATION": "pages"}),
    caching(
        None,
        "timeouts of the pool",
        index=cache(
            SOCKET_TIMEOUT=None,
            SOCKET_CONNECT_TIMEOUT=None,
            CONNECTION_POOL_KWARGS={"socket_timeout": 1, "socket_connect_timeout": 1},
        ),
    ),
    *(
        declaring(None, f"band {band!r}", band=band)
        for band in (None, 0, 10, 1.5, Decimal("0.5"), (50, 100), [0, 7])
    ),
    declaring(None, "band of dates", model=Ticket, order=("day",), band=(timedelta(days=7), 3)),
    declaring(None, "band of durations", model=Ticket, order=("-span",), band=timedelta(seconds=5)),
    declaring(None, "owner", owner="user"),
    declaring(None, "owner behind a relation", order=("-level",), owner="friends__user", facets=("name",)),
    declaring(None, "users", model=User, order=("-date_joined",), owner="pk"),
    declaring(None, "users without an owner", model=User, order=("-date_joined",)),
    declaring(None, "a proxy", model=PlayerProxy),
    declaring(None, "the name of a model", model="testapp.Player"),
    declaring(None, "the name of a model in the same app", model="player", __module__="tests.testapp.zrank"),
    *(declaring(None, model.__name__, model=model, order=("-score",)) for model in SPELLED),
    declaring(
        None,
        "names of its own",
        _facet="",
        weight=5,
        get_excluded=lambda self, member, *more: (),
        get_band=staticmethod(lambda: 5),
    ),
    declaring(
        None, "a sum", order=("-a",), get_queryset=rows(Player.objects.annotate(a=Sum("friends__level")))
    ),
    declaring(
        None,
        "an annotation of columns",
        order=("-a", F("b").asc(nulls_first=True)),
        facets=("c", ("c", "name")),
        get_queryset=rows(Player.objects.annotate(a=F("level") * 2, b=Count("friends"), c=Count("user") % 2)),
    ),
    declaring(
        None,
        "a window that decides nothing",
        get_queryset=rows(NUMBERED),
    ),
    declaring(None, "an alias", get_queryset=rows(Player.objects.annotate(a=F("level")).alias(b=F("level")))),
    declaring(
        None,
        "whether its own row is one of those",
        get_queryset=rows(
            Player.objects.filter(Exists(NAMED.filter(pk=OuterRef("pk"), user__is_active=True)))
        ),
    ),
    declaring(
        None,
        "what leads to members by a date that isn't read",
        model=Result,
        order=("-points",),
    ),
    declaring(
        None,
        "an average that decides nothing",
        get_queryset=rows(Player.objects.annotate(a=Subquery(AVERAGE))),
    ),
    declaring(None, "rows of a proxy", get_queryset=rows(PlayerProxy.objects.filter(level__gt=1))),
    declaring(None, "a subquery of its own rows", get_queryset=rows(Player.objects.filter(pk__in=NAMED))),
    declaring(None, "an order by the key", order=("pk",)),
    declaring(None, "an order by a related row", model=Account, order=("-profile__points",)),
    declaring(None, "several criteria", order=("-level", F("user_id").asc(nulls_first=True), "-pk")),
    declaring(None, "a criterion written out", order=(F("level").desc(nulls_last=True), F("id"))),
    declaring(None, "eighteen digits", model=Ledger, order=("-share",)),
    declaring(None, "facets", facets=("name", "user", "friends", ("name", "is_active"))),
    *(declaring(None, method, ranking_method=method) for method in methods),
]


def test_a_project_without_indexes_may_keep_its_settings(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To uninstall the app, it has removed them first: its commands must still run."""
    settings.ZRANK = {"DEFAULT_INDEX": "teams"}
    assert [error.id for error in checks.check_indexes(apps)] == ["zrank.E012"]
    monkeypatch.setattr(registry, "_classes", {})
    assert checks.check_indexes(apps) == []


def check(case: Case, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckMessage]:
    settings.ZRANK = case.zrank
    settings.DATABASE_ROUTERS = list(case.routers)
    settings.ROOT_URLCONF = ()
    if case.caches is not None:
        settings.CACHES = case.caches
    monkeypatch.setattr(registry, "_classes", {PlayerRank: None})
    for attributes in case.declares:
        registry.register(type("Wrong", (RankIndex,), attributes))
    yield from run_checks(tags=["zrank"])


def assert_found(case: Case, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that what is wrong is found, and nothing else."""
    messages = list(check(case, settings, monkeypatch))
    assert {message.id for message in messages} == {case.code}
    assert re.search(case.says, messages[0].msg)
    assert all(message.hint for message in messages)


@pytest.mark.parametrize("case", [*SETTINGS, *CACHES, *DECLARATIONS])
def test_what_is_wrong_is_found(case: Case, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(case, settings, monkeypatch)


OF_PARTS = {"E035": "write_behind", "E038": "idle", "E039": "shards", "E048": "groups"}
"""The ids of errors that parts report."""

WRONG: dict[str, Any] = {
    "name": "a b",
    "ranking_method": "medal",
    "shards": 0,
    "order": ("-lvl",),
    "facets": ("nothing",),
    "idle": ("name", timedelta(days=1)),
    "write_behind": "increment",
    "group_counts": "region",
    "band": (1, 2, 3),
    "owner": "name",
    "using": "nowhere",
    "get_queryset": lambda self: [],
    "get_excluded": lambda self: (),
}


@pytest.mark.parametrize(
    ("right", "codes"),
    [
        ({}, "E013 E015 E018 E019 E021 E024 E025 E028 E038 E039"),  # write_behind and band need an order
        ({"order": ("-level", "pk")}, "E013 E016 E018 E019 E021 E024 E025 E028 E035 E038 E039"),
        ({"order": ("-level",), "name": "wrong"}, "E016 E018 E019 E021 E024 E025 E028 E038 E039"),
        ({"model": None}, "E010 E013 E024 E028 E039"),
        ({"get_name": lambda self, more: "", "model": None}, "E028 E028"),
    ],
)
def test_all_that_is_wrong_is_found_at_once(
    right: dict[str, Any], codes: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (case,) = declaring(None, "", **WRONG | right).values
    found = list(check(case, settings, monkeypatch))
    deleted = {code for code, part in OF_PARTS.items() if part in PARTS and not PARTS[part].is_there}
    assert [code for code in codes.split() if code not in deleted] == sorted(
        str(message.id).removeprefix("zrank.") for message in found
    )
    assert {message.obj.__name__ for message in found} == {"Wrong"}


@pytest.mark.parametrize("case", RIGHT)
def test_what_is_right_is_left_alone(case: Case, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(check(case, settings, monkeypatch)) == []


@pytest.mark.filterwarnings("ignore:coroutine 'never' was never awaited:RuntimeWarning")
@pytest.mark.parametrize("case", DECLARATIONS)
def test_what_is_wrong_stops_no_start(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_starts(case, monkeypatch)


def assert_starts(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Django starts, so that ``manage.py check`` can say what is wrong; the other indexes go on."""
    monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    monkeypatch.setattr(signal_handlers, "_routes", defaultdict(list))
    for attributes in case.declares:
        registry.register(type("Wrong", (RankIndex,), attributes))
    signal_handlers.connect_all()
    assert {route.index.name for route in signal_handlers._routes[Player]} >= {"player", "ascending"}
    assert registry.get("player").name == "player"
    assert captured("default")


JUNK = [
    *(
        None,
        5,
        "x",
        "",
        True,
        1.5,
        10**400,
        Decimal("sNaN"),
        float("nan"),
        timedelta(1),
        "\0",
        "user__",
        object(),
    ),
    *([], {}, {"a": 1}, (), [None], [[]], (None, None), {1, 2}, ("level", 5), [("level", "\0")], range(3)),
    *(Player, Player.objects, F("level"), Q(), len),
]


@pytest.mark.parametrize("hook", [False, True], ids=["attribute", "hook"])
@pytest.mark.parametrize("name", sorted(checks.SETTINGS))
def test_whatever_is_declared_is_answered_by_messages(
    name: str, hook: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal_handlers, "_routes", defaultdict(list))
    for value in JUNK:
        monkeypatch.setattr(registry, "_classes", {PlayerRank: None})
        attributes: dict[str, Any] = {"name": "wrong", "model": Player, "order": ("-level",)}
        said = {f"get_{name}": lambda self, value=value: value} if hook else {name: value}
        registry.register(type("Wrong", (RankIndex,), attributes | said))
        signal_handlers.connect_all()
        messages = checks.check_indexes(None)
        assert all(message.id and message.hint for message in messages)
        assert [index.name for index in registry.all()][:1] == ["player"]


def test_a_field_that_the_queryset_lacks_is_an_error_of_its_own(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message, not a traceback."""
    case = declaring(None, "", get_queryset=lambda self: Player.objects.filter(lvl=1)).values[0]
    (message,) = check(case, settings, monkeypatch)
    assert message.is_serious()
    assert "lvl" in message.msg


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor != "mysql", reason="others compute averages of integers as doubles")
@pytest.mark.parametrize(
    ("average", "is_refused"), [(Avg("level"), True), (Avg(F("level") * 1.0), False), (Sum("level"), False)]
)
def test_averages_of_integers(average: Any, is_refused: bool, settings: Any, monkeypatch: Any) -> None:
    attributes = {
        "name": "wrong",
        "model": Player,
        "order": ("-a",),
        "get_queryset": rows(Player.objects.annotate(a=average)),
    }
    found = check(Case(None, declares=(attributes,)), settings, monkeypatch)
    assert [message.id for message in found] == ["zrank.E049"] * is_refused


@pytest.mark.skipif(connection.vendor != "mysql", reason="on PostgreSQL it is READ COMMITTED")
def test_a_database_that_is_read_before_it_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "isolation_level", "Read Uncommitted")
    messages = [message for message in run_checks(tags=["zrank"]) if message.id == "zrank.E042"]
    assert messages
    assert "'default' is read at READ UNCOMMITTED" in messages[0].msg
    assert "['isolation_level'] = 'read committed'" in str(messages[0].hint)


@pytest.mark.django_db(databases=["default", "other"])  # MariaDB's name is asked of the server
def test_a_database_without_triggers(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "DIALECTS", {})
    settings.ROOT_URLCONF = ()
    assert {message.id for message in run_checks(tags=["zrank"])} == {"zrank.E023"}
    settings.ZRANK = {"CAPTURE": "signals"}
    assert run_checks(tags=["zrank"]) == []


def test_every_id_has_a_case() -> None:
    text = Path(checks.__file__).read_text()
    cases = {case.values[0].code for case in [*SETTINGS, *CACHES, *DECLARATIONS]}
    elsewhere = {
        "zrank.E023",
        "zrank.E042",
        "zrank.E043",
        "zrank.E045",
        "zrank.E046",
        "zrank.E047",
        "zrank.W009",
        "zrank.W020",
        "zrank.W021",
    }
    assert cases | elsewhere == set(re.findall(r"zrank\.[EW]\d+", text))


@pytest.mark.django_db(databases=["default", "other"])  # checks of fields ask what SQLite can do
def test_manage_py_check(settings: Any) -> None:
    call_command("check")
    settings.ZRANK = {"MAX_N": 0}
    with pytest.raises(SystemCheckError, match=r"\(zrank\.E003\) ZRANK\['MAX_N'\] must be at least 1, not 0"):
        call_command("check")
