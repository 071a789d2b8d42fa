"""Large statements leave marks that name several members each (PostgreSQL); they are processed on every database."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F, Value
from django.db.models.functions import Concat
from redis import Redis

from django_zrank.builds import recorded
from django_zrank.capture import postgresql
from django_zrank.models import SEVERAL, Batch, Mark
from django_zrank.recent import Recent
from django_zrank.signals import drained
from django_zrank.store import Store
from django_zrank.sync import drain as drain_module
from django_zrank.sync import marks, signal_handlers
from django_zrank.sync import push as push_module
from django_zrank.sync.drain import drain, drain_soon
from django_zrank.sync.health import Status, examine, repair
from django_zrank.sync.marks import named_by, waiting_marks
from django_zrank.sync.rebuild import rebuild
from tests.dumps import dump, restore
from tests.sync.capturing import only
from tests.sync.mirror import assert_mirrors, contents
from tests.testapp.models import Nickname, Player
from tests.testapp.zrank import NicknameRank, PlayerAscending

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank", "undrained"),
]

INDEX = PlayerAscending.instance()


@pytest.fixture(autouse=True)
def built(zrank: Redis) -> None:
    rebuild(INDEX)
    rebuild(NicknameRank.instance())


@pytest.fixture
def players(built: None) -> list[Player]:
    """Twenty players whom no signal told of, and four marks of five each."""
    players = Player.objects.bulk_create([Player(level=level) for level in range(20)])
    Mark.objects.all().delete()
    for first in range(0, 20, 5):
        mark(*(player.pk for player in players[first : first + 5]))
    return players


def mark(*members: Any, index: str = INDEX.name) -> Mark:
    return Mark.objects.create(index=index, via=SEVERAL, member=json.dumps([str(one) for one in members]))


def left(index: Any = INDEX) -> list[list[Any]]:
    """What each mark names that waits."""
    found = waiting_marks(index).order_by("id").values_list("via", "member")
    return [list(named_by(*one)) for one in found]


@only("postgresql")
@pytest.mark.parametrize("rows", [1, 199, 200, 201, 450])
def test_large_statements_leave_few_marks(rows: int) -> None:
    few = postgresql._FEW

    def check(pks: list[int]) -> None:
        found = left()
        assert sorted(int(text) for one in found for text in one) == sorted(pks)
        assert len(found) == (rows if rows <= few else -(-rows // few))
        assert set(waiting_marks(INDEX).values_list("via", flat=True)) == {SEVERAL if rows > few else None}
        Mark.objects.all().delete()

    pks = [player.pk for player in Player.objects.bulk_create(Player(level=at) for at in range(rows))]
    check(pks)
    Player.objects.update(level=F("level") + 1)
    check(pks)
    Player.objects.update(level=F("level"))
    assert left() == []
    Player.objects.filter(level__gt=rows // 2).update(level=0)
    Mark.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM testapp_player")
    check(pks)


@only("postgresql")
def test_of_a_large_statement_only_changed_rows_are_named() -> None:
    players = Player.objects.bulk_create(Player(level=at) for at in range(300))
    Mark.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_player SET level = CASE WHEN level < 3 THEN 1000 ELSE level END")
    assert sorted(map(int, left()[0])) == [player.pk for player in players[:3]]
    assert len(left()) == 1


@only("postgresql")
def test_keys_of_all_kinds_of_text_that_change() -> None:
    index, odd = NicknameRank.instance(), ['"', "\\", "a\nb", "ü☃", "[]", "{1,2}", " x ", "'"]
    names = [f"{name}{at}" for at in range(40) for name in odd]
    Nickname.objects.bulk_create(Nickname(pk=name, score=at) for at, name in enumerate(names))
    drain(index)
    assert_mirrors(NicknameRank)
    assert set(contents(NicknameRank)) == set(names)
    Nickname.objects.update(nick=Concat(F("nick"), Value("'")))
    named = {text for one in left(index) for text in one}
    assert named == {*names, *(f"{name}'" for name in names)}
    assert len(left(index)) == -(-640 // postgresql._FEW)
    drain(index)
    assert_mirrors(NicknameRank)
    assert set(contents(NicknameRank)) == {f"{name}'" for name in names}


@only("postgresql")
def test_a_rolled_back_statement_leaves_none() -> None:
    with transaction.atomic():
        Player.objects.bulk_create(Player(level=at) for at in range(300))
        transaction.set_rollback(True)
    assert left() == []


@pytest.mark.parametrize("batch_size", [1, 7, 5000])
def test_works_off_what_waits(players: list[Player], batch_size: int, hear: Callable[..., list[Any]]) -> None:
    heard = hear(drained, "marks")
    assert drain(INDEX, batch_size=batch_size) == 20
    assert_mirrors(PlayerAscending)
    assert left() == []
    assert sum(heard) == 20


def test_batches_are_cut_by_the_members_that_are_named(
    players: list[Player], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by marks, each of which may name hundreds."""
    sizes: list[int] = []
    write = drain_module.Drain.write

    def note(self: Any, named: Any) -> Any:
        sizes.append(len(named))
        return (yield from write(self, named))

    monkeypatch.setattr(drain_module.Drain, "write", note)
    drain(INDEX, batch_size=10)
    assert sizes == [10, 10]


def test_a_limit(players: list[Player]) -> None:
    assert drain(INDEX, limit=7) == 10
    assert len(contents(PlayerAscending)) == 10
    assert len(left()) == 2
    assert drain(INDEX, limit=1) == 5


def test_whoever_pushes_processes_few(players: list[Player], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "_done", Recent())
    monkeypatch.setattr(drain_module, "_SHARE", 5)
    drain_soon(INDEX)
    assert len(left()) == 3


def test_mixed_with_others(players: list[Player]) -> None:
    Mark.objects.create(index=INDEX.name, member=str(players[0].pk))
    mark(players[0].pk, "nobody", players[1].pk)
    mark("nobody")
    assert drain(INDEX, batch_size=6) == 25
    assert_mirrors(PlayerAscending)
    assert left() == []


def test_batches_keep_them_and_replays_leave_them_again(players: list[Player]) -> None:
    drain(INDEX)
    (batch,) = Batch.objects.filter(index=INDEX.name)
    assert [via for via, _ in batch.marks] == [SEVERAL] * 4
    note = recorded(INDEX)
    health = Store.of(INDEX).check_health()
    health = health._replace(term=str(note.term), traces="", taken="", took="", server="another")
    assert marks.replay(INDEX, health, noted=note) == 4
    assert sorted(int(text) for one in left() for text in one) == [player.pk for player in players]


def test_a_member_at_fault_keeps_no_other_waiting(
    players: list[Player], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read, at_fault = push_module.read, players[7].pk

    def choke(index: Any, pks: Any, *stores: Any) -> Any:
        if at_fault in (pks := list(pks)):
            raise ArithmeticError("this one")
        return read(index, pks, *stores)

    monkeypatch.setattr(push_module, "read", choke)
    with caplog.at_level(logging.ERROR, "django_zrank.sync"):
        drain(INDEX)
    assert left() == [[str(at_fault)]]
    assert set(contents(PlayerAscending)) == {str(one.pk) for one in players} - {str(at_fault)}
    assert "this one" in caplog.text


def test_a_replay_goes_on_until_the_marks_that_replace_them_are_processed(
    players: list[Player], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is behind lacks what they lead to. A drain replaces one, and stops at its limit."""
    store, before, at_fault = Store.of(INDEX), dump(Store.of(INDEX).client), players[7].pk
    drain(INDEX)
    restore(store.client, before)
    store.client.hset(store.keys.meta, "server", "old/history")  # as after a restart
    repair(INDEX)
    read = push_module.read

    def choke(index: Any, pks: Any, *stores: Any) -> Any:
        if at_fault in (pks := list(pks)):
            raise ArithmeticError("this one")
        return read(index, pks, *stores)

    with monkeypatch.context() as patch:
        patch.setattr(push_module, "read", choke)
        assert drain(INDEX, limit=15) == 15
    assert (len(left()), len(contents(PlayerAscending))) == (5, 15)
    assert examine(INDEX) is Status.BEHIND
    # Another server is trusted before they are processed: they belong to its replay, too.
    store.client.hset(store.keys.meta, "server", "another/history")
    repair(INDEX)
    assert examine(INDEX) is Status.BEHIND
    drain(INDEX)
    assert_mirrors(PlayerAscending)
    assert examine(INDEX) is Status.HEALTHY


def test_of_two_processes_one_replaces_them(players: list[Player]) -> None:
    seen = marks.next_marks(INDEX, 0, 10**9, 100)
    assert marks.spread(INDEX, seen) == 20
    assert marks.spread(INDEX, seen) == 0
    assert sorted(left()) == sorted([str(player.pk)] for player in players)


@pytest.mark.parametrize("names_it", [True, False])
def test_a_save_whose_member_one_may_name_is_pushed(
    players: list[Player], monkeypatch: pytest.MonkeyPatch, names_it: bool
) -> None:
    """The mark of a save is one of many in a bulk update of the same transaction."""
    pushed: list[Any] = []
    monkeypatch.setattr(signal_handlers, "try_push", lambda members, **_: pushed.append(members) or [])
    drain(INDEX)
    if names_it:
        mark(*(player.pk for player in players))
    players[3].save()  # changes nothing
    assert [INDEX in one for one in pushed] == [True] * names_it
