"""``manage.py verify_zrank``, as an operator and a monitor use it."""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db.models import F
from redis import Redis

from django_zrank import IndexUnavailable
from django_zrank.capture.triggers import captured, drop, install
from django_zrank.models import Mark
from django_zrank.registry import registry
from django_zrank.store import Store
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.verify import verify
from django_zrank.testing import disable_sync
from tests.pages import ROOT
from tests.sync.conftest import use_redis
from tests.sync.mirror import assert_mirrors
from tests.sync.processes import manage, on_terminal
from tests.testapp.models import Player, Remote
from tests.testapp.zrank import PlayerAscending, PlayerRank, RemoteRank

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank"),
]


@pytest.fixture(autouse=True)
def _at_rest(zrank: Redis) -> None:
    """Every index as the database has it, and no mark."""
    with disable_sync():
        Player.objects.bulk_create(Player(level=level, is_active=level > 3) for level in range(10))
        Remote.objects.create(score=1)
    for index in (PlayerRank, PlayerAscending, RemoteRank):
        rebuild(index.instance())
    for alias in ("default", "other"):
        Mark.objects.using(alias).all().delete()


@pytest.fixture
def faults(zrank: Redis) -> list[int]:
    """One missing, one extra and two different members of ``ascending``: their primary keys."""
    pks = list(Player.objects.order_by("pk").values_list("pk", flat=True))
    extra = pks[-1] + 1
    zrank.zrem(Store("ascending").live.root, pks[0])
    zrank.zadd(Store("ascending").live.root, {extra: 3, pks[1]: 10.5, pks[2]: "inf"})
    return [pks[0], extra, pks[1], pks[2]]


def printed(*args: Any, fails: str | None = None, **options: Any) -> str:
    """Run the command, and return its output. ``fails``: the text of its error, if it must fail."""
    out = StringIO()
    if fails is None:
        call_command("verify_zrank", *args, stdout=out, **options)
    else:
        with pytest.raises(CommandError, match=fails):
            call_command("verify_zrank", *args, stdout=out, **options)
    return out.getvalue()


# What is verified


def test_all_indexes_by_default() -> None:
    lines = printed().splitlines()
    assert [line.partition(":")[0] for line in lines] == [index.name for index in registry.all()]
    assert lines[0] == "player: 6 members, matching the database"


def test_numbers_are_grouped() -> None:
    members = PlayerRank.ranking.count()
    with disable_sync():
        Player.objects.bulk_create(Player(level=9) for _ in range(1000))
    rebuild(PlayerRank.instance())
    assert printed("player") == f"player: 1,{members:03} members, matching the database\n"


def test_only_those_that_are_named(faults: list[int]) -> None:
    assert [line.partition(":")[0] for line in printed("remote", "player").splitlines()] == [
        "remote",
        "player",
    ]
    printed(fails=r"Problems found: ascending\.")


def test_an_unknown_index_is_an_error() -> None:
    assert printed("player", "teams", fails=r"no index called 'teams'\. Registered: .*player") == ""


# What is said


def test_drift(faults: list[int]) -> None:
    missing, extra, different, infinite = faults
    missing_line, extra_line, different_line = printed("ascending", fails="Problems found").splitlines()
    assert missing_line == f"ascending: 1 missing: {missing} (0 in the database, none in Redis)"
    assert extra_line == f"ascending: 1 extra: {extra} (none in the database, 3 in Redis)"
    assert different_line.startswith("ascending: 2 different: ")
    assert f"{different} (1 in the database, 10.5 in Redis), " in different_line
    assert different_line.endswith(f"{infinite} (2 in the database, inf in Redis)")


def test_examples_are_a_few(zrank: Redis) -> None:
    zrank.zremrangebyrank(Store("ascending").live.root, 0, -2)
    said = printed("ascending", fails="Problems found")
    assert said.startswith("ascending: 9 missing: ")
    assert said.endswith(", …\n")
    assert said.count("in the database") == 5


def test_repair(faults: list[int]) -> None:
    said = printed("ascending", "--repair")
    assert "ascending: 4 repaired" in said.splitlines()
    assert "2 different" in said
    assert_mirrors(PlayerAscending)
    assert printed("ascending", "--repair") == "ascending: 10 members, matching the database\n"


def test_an_index_that_is_not_there(zrank: Redis) -> None:
    zrank.flushall()
    said = printed("ascending", fails="Problems found").splitlines()
    assert said[0].startswith("ascending: can't be trusted: the index was never built, or Redis was emptied")
    assert said[1:] == ["ascending: not compared"]
    said = printed("ascending", "--repair").splitlines()
    assert said[0].startswith("ascending: was repaired: the index was never built, or Redis was emptied")
    assert said[1:] == ["ascending: 10 members, matching the database"]


def test_marks_that_wait() -> None:
    Player.objects.update(level=F("level") + 1)
    first, second, *_ = printed("ascending").splitlines()
    assert first == "ascending: 10 members, matching the database"
    assert re.fullmatch(r"ascending: 10 marks waited, the oldest for \d+\.\d s", second)


def test_triggers() -> None:
    drop("default")
    try:
        assert re.search(
            r"ascending: trigger missing: zrank_capture_ascending_\S+ on \S",
            printed(fails="Problems found"),
        )
    finally:
        install("default", captured("default"))
        Mark.objects.all().delete()


def test_capture_by_signals(settings: Any) -> None:
    settings.ZRANK = {"CAPTURE": "signals"}
    said = printed("ascending").splitlines()
    assert "ascending: capture is by signals: not every change is noticed" in said
    assert any(line.startswith("ascending: trigger outdated: ") for line in said)


def test_settings_of_redis(zrank: Redis, settings: Any) -> None:
    settings.CACHES = {**settings.CACHES, "default": settings.CACHES["zrank"]}
    zrank.config_set("maxmemory-policy", "allkeys-lru")
    try:
        said = printed("ascending")
    finally:
        zrank.config_set("maxmemory-policy", "noeviction")
    assert "ascending: warning: The indexes share a Redis database with the cache 'default'" in said
    assert "ascending: warning: Redis evicts any key when its memory is full" in said


def test_without_redis_it_fails_and_says_so(settings: Any) -> None:
    use_redis(settings, "redis://127.0.0.1:2/0")
    errors = StringIO()
    assert printed("player", "ascending", fails="Problems found: player, ascending", stderr=errors) == ""
    assert re.search("'player': Redis can't be reached.*\n.*'ascending': Redis can't", errors.getvalue())


def test_one_that_fails_does_not_keep_the_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    send = Store.send

    def refuse_players(store: Store, request: Any) -> Any:
        if store.name == "player":
            raise IndexUnavailable("gone")
        return send(store, request)

    monkeypatch.setattr(Store, "send", refuse_players)
    said = printed("player", "ascending", fails=r"Problems found: player\.", stderr=StringIO())
    assert said == "ascending: 10 members, matching the database\n"


# For machines


def documented() -> set[str]:
    """The fields of an index that the documentation lists."""
    text = (ROOT / "docs/monitoring.md").read_text().partition("## The JSON of verify_zrank")[2]
    fields = re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
    return {name for line in fields for name in re.findall(r"`(\w+)`", line)}


def test_json_at_rest() -> None:
    document = json.loads(printed("ascending", "--json"))
    assert document["ok"] is True
    (told,) = document["indexes"]
    assert set(told) == documented()
    nothing = {"count": 0, "examples": []}
    assert told == {
        "index": "ascending",
        "database": "default",
        "ok": True,
        "error": None,
        "status": "healthy",
        "status_before": None,
        "compared": True,
        "rows": 10,
        "members": 10,
        "missing": nothing,
        "extra": nothing,
        "different": nothing,
        "broken": nothing,
        "repaired": 0,
        "unsettled": 0,
        "marks": {"waiting": 0, "oldest": 0.0},
        "triggers": {"capture": "triggers", "missing": [], "outdated": [], "unexpected": [], "error": None},
        "warnings": [],
    }


def test_json_of_all_indexes() -> None:
    document = json.loads(printed(json=True))
    assert [told["index"] for told in document["indexes"]] == [index.name for index in registry.all()]
    assert {told["database"] for told in document["indexes"]} == {"default", "other"}


def test_json_of_drift(faults: list[int]) -> None:
    missing, extra, different, infinite = map(str, faults)
    document = json.loads(printed("ascending", "remote", "--json", fails="Problems found: ascending"))
    assert document["ok"] is False
    told, other = document["indexes"]
    assert (told["ok"], other["ok"]) == (False, True)
    assert told["missing"] == {
        "count": 1,
        "examples": [{"member": missing, "database": 0, "redis": None, "why": ""}],
    }
    assert told["extra"] == {
        "count": 1,
        "examples": [{"member": extra, "database": None, "redis": 3, "why": ""}],
    }
    assert told["different"] == {
        "count": 2,
        "examples": [
            {"member": different, "database": 1, "redis": 10.5, "why": ""},
            {"member": infinite, "database": 2, "redis": "inf", "why": ""},
        ],
    }
    told = json.loads(printed("ascending", "--json", "--repair"))["indexes"][0]
    assert (told["ok"], told["repaired"], told["different"]["count"]) == (True, 4, 2)


def test_json_without_redis(settings: Any) -> None:
    use_redis(settings, "redis://127.0.0.1:2/0")
    document = json.loads(printed("ascending", "--json", fails="Problems found", stderr=StringIO()))
    (told,) = document["indexes"]
    assert document["ok"] is told["ok"] is False
    assert "can't be reached" in told["error"]
    assert set(told) == {"index", "database", "ok", "error"}


@pytest.mark.parametrize(("args", "status"), [(["remote"], 0), ([], 1)])
def test_a_process_of_its_own(faults: list[int], args: list[str], status: int) -> None:
    """Exit status, and nothing but the document on stdout."""
    with manage("verify_zrank", "--json", *args) as process:
        out, errors = process.communicate(timeout=60)
    assert process.returncode == status
    assert json.loads(out)["ok"] is (status == 0)
    assert errors == ("" if status == 0 else "CommandError: Problems found: ascending.\n")
    assert verify(RemoteRank.instance()).ok


# The progress bar


def test_a_terminal_gets_a_bar() -> None:
    bar = on_terminal("verify_zrank", "ascending", "--json")
    assert re.search(r"ascending: 100%\|\S+\| 10\.0/10\.0 \[\d\d:\d\d<\d\d:\d\d, .*rows/s\]", bar)
