"""Each key in the table of docs/protocol.md, deleted as Redis evicts it."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.utils import timezone
from redis import Redis

from django_zrank import RankIndex
from tests.sync.conftest import declare  # noqa: F401 - a fixture
from tests.testapp.methods import KEEPING
from tests.testapp.models import Video
from tests.testapp.zrank import VideoRank
from tests.without_parts.parts import PARTS

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = Path(__file__).parents[2] / "docs/protocol.md"
NAME = "wide"


def table() -> dict[str, str]:
    """The keys of the table, and what is said about their eviction."""
    (text,) = re.findall(r"\| key \| type .*?\n\n", PAGE.read_text(), re.DOTALL)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.strip().splitlines()[2:]]
    return {key: said for keys, *_, said in rows for key in re.findall(r"`([^`]+)`", keys)}


def pattern(key: str) -> re.Pattern[str]:
    """What keys of this index are called so."""
    spelled = {
        "<root>:region:kanto": "<root>:region:a",
        "…:counts": "<root>:counts",
        "<root>:region:kanto:values": "<root>:region:a:values",
        "<root>:region:kanto:counts": "<root>:region:a:counts",
        "…:large": "zrank:{player}:combined_filters:large",
        "…:sizes": "zrank:{player}:combined_filters:sizes",
        "zrank:{player}:pending:7": "zrank:{player}:pending:<number>",
        "zrank:{player}:remembered:7": "zrank:{player}:remembered:<number>",
    }.get(key, key)
    spelled = spelled.replace("<root>", "zrank:{player}:<build>").replace("player", NAME)
    text = re.escape(spelled).replace("<build>", r"[0-9a-f]{8}-[0-9a-f]+").replace("<number>", r"\d+")
    return re.compile(text.replace("…", ".+"))


@pytest.fixture
def index(zrank: Redis, declare: Any) -> type[RankIndex]:  # noqa: F811
    """Thirty videos, in an index that has every key of the table."""
    index: type[RankIndex] = declare(
        Video,
        "-total",
        name=NAME,
        facets=("region",),
        group_counts=("region",),
        ranking_method=KEEPING,
        write_behind="increment",
        idle=("seen", timedelta(days=30)),
        band=100,
    )
    now = timezone.now()
    Video.objects.bulk_create(Video(total=n // 2, region="abc"[n % 3], seen=now) for n in range(30))
    call_command("sync_zrank", NAME, verbosity=0)
    call_command("sync_zrank", NAME, verbosity=0)
    pks = list(Video.objects.order_by("pk").values_list("pk", flat=True))
    Video.objects.filter(pk=pks[0]).update(total=70)
    index.scores.increment({pks[1]: 7, pks[2]: 3}, key="settled")
    index.scores.touch(pks[3])
    Video.objects.filter(pk=pks[3]).update(seen=now - timedelta(days=5))
    call_command("sync_zrank", NAME, verbosity=0)
    index.scores.touch(pks[3])
    index.group("live:42").add(*pks)
    if PARTS["combined"].is_there:
        index.ranking.filter(region="b", group="live:42").count()
    index.ranking.recommend(pks[5], 3, remember=timedelta(hours=1))
    tag = f"zrank:{{{NAME}}}"
    zrank.set(f"{tag}:watcher", 1, px=60_000)
    zrank.sadd(f"{tag}:doomed", "an-old-one")
    zrank.zadd(f"{tag}:combined_filters:large", {"one-above-1-MiB": 1e12})
    return index


def state_of(name: str = NAME) -> dict[str, Any]:
    out = StringIO()
    call_command("zrank_status", name, "--json", stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())[name]
    return found


def verify(when: str, name: str = NAME) -> None:
    out = StringIO()
    try:
        call_command("verify_zrank", name, stdout=out, stderr=out)
    except (CommandError, SystemExit):
        raise AssertionError(f"{when}: {out.getvalue()}") from None


def keys(client: Redis, key: str) -> list[str]:
    return [
        name for name in map(bytes.decode, client.keys(f"zrank:{{{NAME}}}*")) if pattern(key).fullmatch(name)
    ]


BESIDE_A_FACET = {"<root>:region:kanto:values": "<root>:values", "<root>:region:kanto:counts": "…:counts"}
"""Keys that the table has "beside each ranking", with what it calls those of the root."""

OF_COMBINED = ("…:large", "…:sizes")
OF_DENSE = ("<root>:values", "…:counts")


def marked(key: str) -> Any:
    """A key of the table, as a parameter of a test."""
    is_combined = "combined_filter" in key or key in OF_COMBINED
    parts = ["combined"] if is_combined else ["dense"] if BESIDE_A_FACET.get(key, key) in OF_DENSE else []
    return pytest.param(key, marks=[pytest.mark.part(name) for name in parts])


@pytest.mark.parametrize("key", [*map(marked, [*table(), *BESIDE_A_FACET])])
def test_a_key_that_is_gone_is_noticed_and_made_good_or_does_no_harm(
    index: type[RankIndex], zrank: Redis, key: str
) -> None:
    said = table()[BESIDE_A_FACET.get(key, key)]
    pks = list(Video.objects.order_by("pk").values_list("pk", flat=True))
    if key == "zrank:{player}:pending":
        index.scores.increment(pks[4], 7)  # is lost
    gone = keys(zrank, key)
    assert gone, f"no key is called {key}"
    assert zrank.delete(*gone)
    if said.startswith("rebuilt") and "otherwise harmless" not in said:
        assert state_of()["status"] in ("EVICTED", "EMPTY")
        build = state_of()["build"]
        call_command("sync_zrank", NAME, verbosity=0)
        assert state_of()["build"] != build
    assert state_of()["status"] == "HEALTHY"
    verify(key)
    call_command("sync_zrank", NAME, verbosity=0)
    assert index.ranking.rank(pks[0]) == 1
    assert index.ranking.score(pks[4]) == 2
    assert index.ranking.score(pks[1]) == Video.objects.get(pk=pks[1]).total == 7


def test_pending_changes_that_are_gone_are_missed_though_others_follow(
    index: type[RankIndex], zrank: Redis
) -> None:
    first, second = Video.objects.order_by("pk").values_list("pk", flat=True)[1:3]
    index.scores.increment(first, 100)
    VideoRank.scores.increment(first, 100)
    for _ in range(2):
        assert zrank.delete(f"zrank:{{{NAME}}}:pending", "zrank:{video}:pending") == 2
        for _ in range(20):
            index.scores.increment(second, 1)
            VideoRank.scores.increment(second, 1)
        for name in (NAME, "video"):
            assert state_of(name)["status"] == "EVICTED"
        call_command("sync_zrank", NAME, "video", verbosity=0)
        for name in (NAME, "video"):
            verify(f"{name} after others", name)
        index.scores.increment(second, 1)
        VideoRank.scores.increment(second, 1)
    call_command("sync_zrank", NAME, "video", verbosity=0)
    assert Video.objects.get(pk=first).total == index.ranking.score(first) == 7
    assert Video.objects.get(pk=first).views == VideoRank.ranking.score(first) == 0


def test_what_an_unfinished_flush_carries_is_gone(index: type[RankIndex], zrank: Redis) -> None:
    pk = Video.objects.order_by("pk").values_list("pk", flat=True)[4]
    index.scores.increment(pk, 100)
    before = set(keys(zrank, "zrank:{player}:pending:7"))
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE testapp_video RENAME TO testapp_away")
    with suppress(CommandError):
        call_command("sync_zrank", NAME, verbosity=0, stderr=StringIO())
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE testapp_away RENAME TO testapp_video")
    (carried,) = set(keys(zrank, "zrank:{player}:pending:7")) - before
    zrank.delete(carried)
    assert state_of()["status"] == "EVICTED"
    call_command("sync_zrank", NAME, verbosity=0)
    assert state_of()["status"] == "HEALTHY"
    verify("carried")
    assert index.ranking.score(pk) == 2


def test_erasing_the_only_member_with_a_change_is_no_eviction(index: type[RankIndex], zrank: Redis) -> None:
    gone = Video.objects.order_by("pk")[4]
    pk = gone.pk
    index.scores.increment(pk, 1)
    gone.delete()
    call_command("erase_zrank", NAME, str(pk), verbosity=0)
    assert not zrank.exists(f"zrank:{{{NAME}}}:pending")
    assert state_of()["status"] == "HEALTHY"
    call_command("sync_zrank", NAME, verbosity=0)
    verify("erased")


def test_the_table_says_what_happens_to_every_key(zrank: Redis, index: type[RankIndex]) -> None:
    named = {name for key in table() for name in keys(zrank, key)}
    others = set(map(bytes.decode, zrank.keys(f"zrank:{{{NAME}}}*"))) - named
    assert not {
        name for name in others if not re.search(r":combined_filter:.*|:(?:region:\w|values|counts)", name)
    }


def test_a_rebuild_that_fails_hides_no_eviction(
    index: type[RankIndex], zrank: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    pk = Video.objects.order_by("pk").values_list("pk", flat=True)[4]
    index.scores.increment(pk, 7)
    assert zrank.delete(f"zrank:{{{NAME}}}:pending")

    def fail(self: RankIndex) -> Any:
        raise RuntimeError("the rows can't be read")

    with monkeypatch.context() as patch:
        patch.setattr(index, "get_queryset", fail)
        with pytest.raises(RuntimeError):
            call_command("rebuild_zrank", NAME, verbosity=0, stderr=StringIO())
    assert state_of()["status"] != "HEALTHY"
    call_command("sync_zrank", NAME, verbosity=0)
    assert state_of()["status"] == "HEALTHY"
    assert index.ranking.score(pk) == Video.objects.get(pk=pk).total == 2
