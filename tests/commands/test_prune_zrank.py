"""``manage.py prune_zrank``: an index that was renamed or removed leaves nothing for good."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from redis import Redis

from django_zrank import RankIndex
from django_zrank import store as store_module
from django_zrank.capture.triggers import captured, drop, examine_triggers, install
from django_zrank.models import Batch, Build, Mark
from django_zrank.registry import registry
from django_zrank.store import Store
from django_zrank.sync import leftovers
from django_zrank.sync.rebuild import rebuild
from django_zrank.testing import disable_sync
from tests.sync.conftest import use_redis
from tests.sync.mirror import assert_mirrors
from tests.testapp.models import Nickname, Player
from tests.testapp.zrank import NicknameRank, PlayerAscending, PlayerRank

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank"),
]

Keys = set[bytes]


def keys_of(client: Redis, name: str) -> Keys:
    """Every key of an index, found by other means than the command's."""
    keys: Any = client.keys()
    return {key for key in keys if b"{%s}" % name.encode() in key}


@pytest.fixture
def old(zrank: Redis) -> str:
    """The name of an index that was built, has groups, marks and batches, and is registered no more."""
    name = "old*[names]"  # no pattern
    attributes = {"model": Player, "order": ("-level",), "facets": ("is_active",), "name": name}
    index: RankIndex = registry.register(type("Old", (RankIndex,), attributes)).instance()
    try:
        with disable_sync():
            Player.objects.bulk_create(Player(level=level) for level in range(3))
            Nickname.objects.create(nick="a", score=1)
        Mark.objects.all().delete()
        rebuild(index)
        rebuild(NicknameRank.instance())
        zrank.zadd(Store.of(index).keys.beside("group", "online"), {"1": "inf"})
        Mark.objects.bulk_create(Mark(index=name, member=str(n)) for n in range(3))
        Batch.objects.create(index=name, version=1, marks=[[None, "1"]])
    finally:
        registry.unregister(type(index))
    assert len(keys_of(zrank, name)) >= 4
    zrank.set("zrank:{oldXnames}:meta", "what the name matches if it is taken for a pattern")
    return name


def rows_of(name: str) -> list[int]:
    return [model.objects.filter(index=name).count() for model in (Mark, Batch, Build)]


def run(*command: str, **options: Any) -> str:
    """Run a command, and return its output."""
    out = StringIO()
    call_command(*command, stdout=out, stderr=out, **options)
    return out.getvalue()


def prune(*args: str) -> str:
    return run("prune_zrank", *args)


def test_it_removes_keys_and_rows_and_names_them(zrank: Redis, old: str) -> None:
    keys, kept = keys_of(zrank, old), set(zrank.keys()) - keys_of(zrank, old)
    assert prune().splitlines() == [
        f"{old}: {len(keys)} keys in Redis removed",
        f"{old}: 3 marks, 1 applied write, 1 build in the database 'default' removed",
    ]
    assert set(zrank.keys()) == kept
    assert rows_of(old) == [0, 0, 0]
    assert_mirrors(NicknameRank)
    assert Build.objects.filter(index="nickname").exists()
    assert prune() == "There is nothing to remove.\n"


def test_a_dry_run_says_the_same_and_removes_nothing(zrank: Redis, old: str) -> None:
    before, rows = set(zrank.keys()), rows_of(old)
    dry = prune("--dry-run")
    assert (set(zrank.keys()), rows_of(old)) == (before, rows)
    assert dry.replace("would be removed", "removed") == prune()


def test_triggers_go_and_leave_no_more_marks(zrank: Redis, old: str) -> None:
    attributes = {"model": Player, "order": ("-level",), "name": old}
    index: RankIndex = registry.register(type("Old", (RankIndex,), attributes)).instance()
    try:
        created = install("default", [index]).created
    finally:
        registry.unregister(type(index))
    others = examine_triggers("default", captured("default"))
    assert len(created) == len(others.unexpected) > 0
    said = (
        f"{old}: {len(created)} triggers, 4 marks, 1 applied write, 1 build in the database 'default' removed"
    )
    assert said.replace("removed", "would be removed") in prune("--dry-run").splitlines()
    assert examine_triggers("default", captured("default")) == others
    assert said in prune().splitlines()
    with disable_sync():
        Player.objects.create(level=1)
    assert rows_of(old) == [0, 0, 0]
    assert examine_triggers("default", captured("default")) == replace(others, unexpected=[])


def test_every_key_goes_in_pieces(zrank: Redis, old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them blocks the server for long, however many there are."""
    zrank.mset({f"zrank:{{{old}}}:remembered:{number}": "" for number in range(3000)})
    sizes: list[int] = []
    call = Store.call

    def note_size(store: Store, command: Any, keys: Sequence[Any], *args: Any) -> Any:
        if command == "UNLINK":
            sizes.append(len(keys))
        return call(store, command, keys, *args)

    monkeypatch.setattr(Store, "call", note_size)
    prune()
    assert keys_of(zrank, old) == set()
    assert sum(sizes) >= 3000
    assert max(sizes) <= 2 * store_module._KEYS


def test_rows_go_in_pieces(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "_ROWS", 2)
    assert "3 marks" in prune()
    assert rows_of(old) == [0, 0, 0]


def test_marks_alone_tell_of_an_index_too(zrank: Redis, old: str) -> None:
    zrank.flushall()
    Build.objects.filter(index=old).delete()
    Batch.objects.filter(index=old).delete()
    assert "3 marks" in prune()
    assert rows_of(old) == [0, 0, 0]


def test_in_every_database(old: str) -> None:
    Mark.objects.using("other").create(index=old)
    Mark.objects.using("other").create(index="older")
    assert "older: 1 mark in the database 'other' removed" in prune()
    assert not Mark.objects.using("other").filter(index__in=[old, "older"]).exists()


# Another project on the same server, with the same prefix


def test_what_another_project_has_built_is_left(zrank: Redis, old: str) -> None:
    Build.objects.filter(index=old).update(build="another")
    keys = keys_of(zrank, old)
    printed = prune()
    assert f"{old}: its keys in Redis are kept" in printed
    assert f"prune_zrank {old}" in printed
    assert keys_of(zrank, old) == keys
    assert rows_of(old) == [0, 0, 0]


def test_what_no_database_knows_is_left(zrank: Redis, old: str) -> None:
    zrank.set("zrank:{theirs}:meta", "1")
    prune()
    assert zrank.exists("zrank:{theirs}:meta")


def test_unless_it_is_named(zrank: Redis, old: str) -> None:
    for model in (Mark, Batch, Build):
        model.objects.filter(index=old).delete()
    assert f"{old}: {len(keys_of(zrank, old))} keys in Redis removed" in prune(old)
    assert keys_of(zrank, old) == set()


def test_an_index_that_is_registered_is_not_pruned(zrank: Redis, old: str) -> None:
    before = keys_of(zrank, "nickname")
    with pytest.raises(CommandError, match="'nickname' is registered"):
        prune("nickname")
    assert keys_of(zrank, "nickname") == before


def test_without_redis_it_fails_and_rows_are_kept(old: str, settings: Any) -> None:
    """They tell what is to be removed, the next time."""
    use_redis(settings, "redis://127.0.0.1:2/0")
    with pytest.raises(CommandError, match="can't be reached"):
        prune()
    assert rows_of(old) == [3, 1, 1]


# What the other commands say


@pytest.fixture
def at_rest(old: str) -> None:
    for index in (PlayerRank, PlayerAscending):
        rebuild(index.instance())


def verified() -> dict[str, Any]:
    """The document of a verification of all indexes."""
    document: dict[str, Any] = json.loads(run("verify_zrank", "--json"))
    assert document["ok"] is True
    return document


def test_verify_names_leftovers(old: str, at_rest: None) -> None:
    said = run("verify_zrank")
    assert f"{old}: no longer registered, but has rows in default: run prune_zrank" in said
    assert verified()["leftovers"] == [{"index": old, "databases": ["default"]}]
    prune()
    assert verified()["leftovers"] == []


def test_verification_without_indexes_prints_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_classes", {})
    assert verified() == {"ok": True, "indexes": [], "leftovers": []}


def test_without_verbosity_every_command_is_silent(
    old: str, at_rest: None, capfd: pytest.CaptureFixture[str]
) -> None:
    for command in (
        "rebuild_zrank",
        "rebuild_zrank --dry-run",
        "sync_zrank",
        "verify_zrank",
        "capture_zrank",
        "capture_zrank --check",
        "prune_zrank --dry-run",
        "prune_zrank",
    ):
        assert run(*command.split(), verbosity=0) == "", command
        assert capfd.readouterr() == ("", ""), command


def test_the_triggers_of_an_index_with_shards_are_removed_though_no_mark_waits(zrank: Redis) -> None:
    split = type("Split", (RankIndex,), {"model": Player, "order": ("-level",), "name": "split", "shards": 2})
    registry.register(split)
    try:
        run("sync_zrank", "split")
    finally:
        registry.unregister(split)
    Mark.objects.all().delete()
    assert drop("default", ["split"], dry_run=True).dropped
    prune()
    assert not drop("default", ["split"], dry_run=True).dropped
    assert prune() == "There is nothing to remove.\n"
