"""Options of the Redis client that a project may set, wherever django-redis takes them from: they make no difference to
answers, or ``manage.py check`` refuses them."""

from __future__ import annotations

import asyncio
import inspect
from itertools import count
from typing import Any
from urllib.parse import urlencode

import pytest
import redis
from django.core import checks
from django.core.cache import caches
from redis.backoff import NoBackoff
from redis.cache import CacheConfig
from redis.connection import ConnectionPool
from redis.retry import Retry

from tests.testapp.models import Competitor, Nickname
from tests.testapp.zrank import CompetitorRank, NicknameRank
from tests.without_parts.parts import PARTS

pytestmark = pytest.mark.django_db(transaction=True)

CHANGING: list[dict[str, Any]] = [
    {"decode_responses": True},
    {"encoding": "latin-1"},
    {"encoding": "utf-16"},
    {"encoding_errors": "replace"},
    {"cache_config": CacheConfig(), "protocol": 3},
]
"""Options that change bytes or replies: each is refused wherever it has an effect."""

HARMLESS: list[dict[str, Any]] = [
    {
        "protocol": 2,
        "decode_responses": False,
        "encoding": "utf8",
        "legacy_responses": False,
        "max_connections": 7,
    },
    {"protocol": 3, "encoding": "UTF-8", "socket_read_size": 16, "retry": Retry(NoBackoff(), 2)},
    {
        "protocol": 3,
        "legacy_responses": False,
        "client_name": "zrank",
        "health_check_interval": 1,
        "socket_timeout": 3,
        "socket_connect_timeout": 3,
        "socket_keepalive": True,
        "single_connection_client": True,
    },
]
"""Options that may be set."""

OTHERS = {
    *("host", "port", "db", "username", "password", "credential_provider", "unix_socket_path", "socket_type"),
    *("connection_pool", "connection_class", "timeout", "queue_class", "retry_on_error", "driver_info"),
    *("retry_on_timeout", "lib_name", "lib_version"),
    *("socket_keepalive_options", "redis_connect_func", "parser_class", "command_packer", "event_dispatcher"),
    *("himport_registry", "cache", "cache_factory"),
}
"""Options that tell where the server is, or that take code or objects of redis-py's own."""

OWN = ("ssl", "maint_", "maintenance_", "orig_", "oss_")
"""Beginnings of more of these."""

number = count(16_400)


def test_every_option_of_the_client_is_known_here() -> None:
    kinds: tuple[Any, ...] = (
        redis.Redis,
        redis.connection.AbstractConnection,
        redis.Connection,
        ConnectionPool,
    )
    names = {
        name
        for kind in kinds
        for name, parameter in inspect.signature(kind.__init__).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD and name != "self"
    }
    known = OTHERS.union(*CHANGING, *HARMLESS)
    assert {name for name in names if name not in known and not name.startswith(OWN)} == set()


def usable(options: dict[str, Any], where: str) -> dict[str, Any]:
    """Those of the options that this release of redis-py has, and that can be written at a place."""
    known = inspect.signature(redis.Redis.__init__).parameters
    if where != "REDIS_CLIENT_KWARGS":
        known = {name: known[name] for name in known if name != "single_connection_client"}
    return {
        name: value
        for name, value in options.items()
        # In a URL, "False" would be text, and true.
        if name in known and (where != "LOCATION" or (isinstance(value, (str, int)) and value is not False))
    }


@pytest.fixture
def places(zrank: redis.Redis, zrank_server: Any, settings: Any) -> Any:
    """Sets options at a place, on the server of the test."""
    if not isinstance(zrank, redis.Redis):
        pytest.skip("a cluster")
    entry = settings.CACHES["zrank"]

    def place(where: str, options: dict[str, Any]) -> None:
        # django-redis keeps one pool for each URL.
        query, others = {"socket_read_size": next(number)}, {}
        if where == "LOCATION":
            query |= options
        elif where == "OPTIONS":
            others = {**options, **{name.upper(): value for name, value in options.items()}}
        else:
            others = {where: options}
        url = f"{zrank_server.url}?{urlencode(query)}"
        changed = {**entry, "LOCATION": url, "OPTIONS": {**entry["OPTIONS"], **others}}
        settings.CACHES = {**settings.CACHES, "zrank": changed}
        caches["zrank"].close()

    return place


@pytest.fixture
def rows() -> None:
    for at, word in enumerate(["Łódź", "Köln", "Łódź", "大阪", "Köln"]):
        Competitor.objects.create(points=at, region=word, platform="pc")
        Nickname.objects.create(nick=f"{word} {at}", score=at / 3)


def answers() -> list[Any]:
    """What the public API says, in blocking code and in coroutines."""
    ranking, nicks = CompetitorRank.ranking, NicknameRank.ranking
    first = Competitor.objects.order_by("pk")[1]
    group = NicknameRank.group("Gäste")
    group.add("Köln 1", "大阪 3")
    found = [
        [
            (entry.pk, entry.score, entry.rank)
            for entry in (*ranking.top(), *nicks.top(), *nicks.around("大阪 3"))
        ],
        ranking.counts("region"),
        ranking.filter(region="Łódź").count(),
        ranking.rank(first),
        [entry.pk for entry in nicks.recommend("Köln 4", 5, seed=3)],
        [entry.pk for entry in nicks.recommend("Köln 4", 5, seed=3, exclude=["Köln 1"])],
        sorted(group),
        group.claim("Köln 1", "Köln 4"),
        [entry.pk for entry in nicks.snapshot()],
    ]
    if PARTS["combined"].is_there:
        several = ranking.filter(region__in=["Łódź", "大阪"], platform="pc"), nicks.exclude(group="Gäste")
        found += [[entry.pk for entry in narrowed] for narrowed in several]

    async def coroutines() -> list[Any]:
        return [
            [(entry.pk, entry.score, entry.rank) for entry in (*await ranking.atop(), *await nicks.atop())],
            await ranking.acounts("region"),
            await nicks.ascore("大阪 3"),
            [entry.pk for entry in await nicks.arecommend("Köln 4", 5, seed=3)],
            await group.aclaim("大阪 3"),
        ]

    found += asyncio.run(coroutines())
    Nickname.objects.filter(nick="Łódź 0").first().save()  # type: ignore[union-attr]
    return [*found, nicks.rank("Łódź 0")]


def refusals() -> set[str | None]:
    return {
        message.id
        for message in checks.run_checks(tags=["zrank"])
        if message.id in ("zrank.E006", "zrank.W002")
    }


@pytest.mark.part("statistics")
@pytest.mark.parametrize("where", ["LOCATION", "OPTIONS", "CONNECTION_POOL_KWARGS", "REDIS_CLIENT_KWARGS"])
def test_an_option_makes_no_difference_or_is_refused(where: str, places: Any, rows: None) -> None:
    expected, wrong, unrefused, refused = answers(), [], [], []
    for options in (usable(one, where) for one in (*CHANGING, *HARMLESS)):
        places(where, options)
        is_refused = "zrank.E006" in refusals()
        if is_refused and options not in CHANGING:
            refused.append(options)
        if not is_refused and options in CHANGING and where in ("LOCATION", "CONNECTION_POOL_KWARGS"):
            unrefused.append(options)
        if not is_refused and (got := outcome()) != expected:
            wrong.append((options, got))
    assert (wrong, unrefused, refused) == ([], [], [])


def outcome() -> Any:
    try:
        return answers()
    except Exception as error:  # noqa: BLE001 - whatever a wrong reply leads to
        return error


@pytest.mark.parametrize("text", ["True", "False", "true", "0"])
def test_text_of_a_url_that_decodes(text: str, places: Any) -> None:
    """redis-py takes any text but an empty one for true."""
    places("LOCATION", {"decode_responses": text})
    assert refusals() == {"zrank.E006"}


def test_timeouts_may_stand_in_the_url(places: Any, settings: Any) -> None:
    entry = settings.CACHES["zrank"]
    settings.CACHES = {**settings.CACHES, "zrank": {**entry, "OPTIONS": {}}}
    assert refusals() == {"zrank.W002"}
    url = f"{entry['LOCATION']}?socket_timeout=1&socket_connect_timeout=1"
    settings.CACHES = {**settings.CACHES, "zrank": {**entry, "LOCATION": url, "OPTIONS": {}}}
    assert refusals() == set()
