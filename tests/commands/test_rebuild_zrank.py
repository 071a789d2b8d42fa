"""``manage.py rebuild_zrank``, as an operator uses it."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from redis import Redis

from django_zrank.registry import registry
from django_zrank.store import LOAD_LIMIT, Store
from django_zrank.testing import disable_sync
from tests.builds import start
from tests.keyspace import whole
from tests.sync.interruptions import just_before
from tests.sync.mirror import assert_mirrors, contents
from tests.sync.processes import on_terminal
from tests.testapp.models import Nickname, Player, Remote
from tests.testapp.zrank import NicknameRank, PlayerAscending, PlayerRank, RemoteRank

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank"),
]


@pytest.fixture(autouse=True)
def _rows(zrank: Redis) -> None:
    """Rows that no index holds yet."""
    with disable_sync():
        Player.objects.bulk_create(Player(level=level, is_active=level > 3) for level in range(10))
        Nickname.objects.bulk_create(Nickname(nick=nick, score=1) for nick in "abc")
        Remote.objects.create(score=1)


def rebuild(*args: Any, **options: Any) -> str:
    """Run the command, and return its output."""
    out = StringIO()
    call_command("rebuild_zrank", *args, stdout=out, **options)
    return out.getvalue()


# What is rebuilt


def test_all_indexes_by_default() -> None:
    lines = rebuild().splitlines()
    assert_mirrors(PlayerRank, PlayerAscending, NicknameRank, RemoteRank)
    assert [line.partition(":")[0] for line in lines] == [index.name for index in registry.all()]
    assert re.fullmatch(r"player: 6 members ranked in \d+\.\d s", lines[0])


def test_only_those_that_are_named() -> None:
    rebuild("nickname", "player")
    assert_mirrors(NicknameRank, PlayerRank)
    assert contents(PlayerAscending) == {}


def test_an_unknown_index_is_an_error_and_nothing_is_done(zrank: Redis) -> None:
    before = whole(zrank)
    with pytest.raises(CommandError, match=r"no index called 'teams'\. Registered: .*nickname.*player"):
        rebuild("nickname", "teams")
    assert whole(zrank) == before


def test_a_project_without_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_classes", {})
    assert "zrank.py" in rebuild()


# Dry


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(zrank: Redis) -> None:
    rebuild("player")
    before = whole(zrank)
    printed = rebuild("player", "nickname", dry_run=True)
    assert "player: would rank 6 rows of testapp.Player (6 members now)" in printed
    assert "nickname: would rank 3 rows of testapp.Nickname" in printed
    assert whole(zrank) == before


def test_a_dry_run_of_what_is_not_built(zrank: Redis) -> None:
    zrank.flushall()
    assert "not built" in rebuild("player", dry_run=True)
    assert whole(zrank) == {}


def test_a_dry_run_without_redis(nowhere: None) -> None:
    printed = rebuild("player", dry_run=True)
    assert "would rank 6 rows" in printed
    assert "can't be reached" in printed


# Batches


@pytest.mark.parametrize("size", [0, -5, LOAD_LIMIT + 1])
def test_a_batch_size_out_of_bounds(size: int, zrank: Redis) -> None:
    before = whole(zrank)
    with pytest.raises(CommandError, match=f"--batch-size: expected 1 to {LOAD_LIMIT}, not {size}"):
        rebuild("player", batch_size=size)
    assert whole(zrank) == before


@pytest.mark.parametrize("size", [1, LOAD_LIMIT])
def test_the_smallest_and_the_largest_batch(size: int) -> None:
    rebuild("player", f"--batch-size={size}")
    assert_mirrors(PlayerRank)


# Errors


@pytest.fixture
def nowhere(settings: Any) -> None:
    """No server where the alias points."""
    cache = {**settings.CACHES["zrank"], "LOCATION": "redis://127.0.0.1:2/0"}
    settings.CACHES = {**settings.CACHES, "zrank": cache}


def test_without_redis_it_fails_and_says_so(nowhere: None) -> None:
    with pytest.raises(CommandError, match="'player': Redis can't be reached"):
        rebuild("player")


def test_superseded_it_fails_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    just_before(monkeypatch, Store, "load_rows", lambda: start(Store("player"), "another"))
    with pytest.raises(CommandError, match="'player': another rebuild"):
        rebuild("player")
    assert contents(PlayerRank) == {}


# The progress bar


def test_a_terminal_gets_a_bar_with_rate_and_time_left() -> None:
    bar = on_terminal("rebuild_zrank", "player")
    assert re.search(r"player: 100%\|\S+\| 6\.00/6\.00 \[\d\d:\d\d<\d\d:\d\d, .*rows/s\]", bar)


def test_a_terminal_gets_no_bar_where_none_is_wanted() -> None:
    assert on_terminal("rebuild_zrank", "player", "--no-progress") == ""


def test_what_is_not_a_terminal_gets_no_bar(capfd: pytest.CaptureFixture[str]) -> None:
    rebuild("player")
    assert capfd.readouterr().err == ""
