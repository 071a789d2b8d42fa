"""Erasing a member: afterwards no key, no value and no row holds its primary key, but for what is said to remain."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.core.management import CommandError, call_command
from django.db import transaction
from django.utils import timezone
from redis import Redis

from django_zrank import RankIndex
from django_zrank.builds import recorded
from django_zrank.combined import making
from django_zrank.erase import StillRanked
from django_zrank.exceptions import Busy, FilterNotReady
from django_zrank.models import SEVERAL, TABLES, Batch, Build, Mark
from django_zrank.store import Change, Store
from django_zrank.sync.drain import drain
from django_zrank.sync.rebuild import rebuild
from django_zrank.write_behind.extension import WriteBehind
from django_zrank.write_behind.flush import flush
from django_zrank.write_behind.store import PendingStore
from tests.keyspace import whole
from tests.testapp.methods import KEEPING
from tests.testapp.models import Competitor, Nickname, Ticket
from tests.testapp.zrank import CompetitorRank, NicknameRank
from tests.writes import apply_changes, begin_write

from .mirror import assert_mirrors, contents

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]

MEMBER = UUID("5eedc0de-1dea-4bad-8bad-c0ffee5eed17")
SPELLINGS = (str(MEMBER), MEMBER.hex)

Declare = Callable[..., type[RankIndex]]


def keys_with(client: Redis, *spellings: Any) -> set[str]:
    """The keys that hold one of ``spellings`` in their names or contents, but those of other indexes of tickets."""
    return {
        key
        for key, held in whole(client).items()
        if any(str(text) in f"{key} {held!r}" for text in spellings) and "{ticket-" not in key
    }


def rows_with(*spellings: Any) -> set[str]:
    """The tables that do."""
    return {
        model.__name__
        for model in TABLES.values()
        for row in model.objects.exclude(index__startswith="ticket-").values_list()
        if any(str(text) in str(row) for text in spellings)
    }


@pytest.fixture(params=[1, 3])
def tickets(request: Any, declare: Declare) -> type[RankIndex]:
    """An index that stores members in all places, of 40 members and ``MEMBER``."""
    index = declare(
        Ticket,
        "-integer",
        facets=("flag",),
        ranking_method=KEEPING,
        write_behind="increment",
        idle=("moment", timedelta(days=30)),
        shards=request.param,
    )
    now = timezone.now()
    Ticket.objects.bulk_create(Ticket(integer=at, flag=at % 2 == 0, moment=now) for at in range(40))
    Ticket.objects.create(pk=MEMBER, integer=20, flag=True, moment=now)
    rebuild(index.instance())
    return index


def leave_traces(index: type[RankIndex]) -> None:
    """Have ``MEMBER`` stored wherever members are."""
    others = list(Ticket.objects.exclude(pk=MEMBER).values_list("pk", flat=True))
    Ticket.objects.get(pk=MEMBER).save()
    index.group("live").add(MEMBER, *others, expires=timedelta(hours=1))
    index.group("vip:gold").add(MEMBER)
    for pk in (MEMBER, *others[:9]):
        index.ranking.recommend(pk, 50, band=100, remember=timedelta(hours=1))
    index.scores.increment(MEMBER, 2)
    flush(index.instance())
    index.scores.increment(MEMBER, 3, key=f"bonus of {MEMBER}")
    index.scores.touch(MEMBER)
    assert index.ranking.filter(group="live", flag=True).count() == 21


def test_a_combined_filter_that_was_given_up_names_nobody(
    declare: Declare, zrank: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It remembers the last member that was read."""
    index = declare(Ticket, "-integer")
    Ticket.objects.create(pk=MEMBER, integer=20)
    Ticket.objects.create(integer=30)
    rebuild(index.instance())
    monkeypatch.setattr(making, "_PAGE", 1)
    with pytest.raises(FilterNotReady):
        index.ranking.within(seconds=0).exclude(group="live").count()
    assert any(key.endswith(":making") for key in keys_with(zrank, *SPELLINGS))
    Ticket.objects.filter(pk=MEMBER).delete()
    index.erase(MEMBER)
    assert keys_with(zrank, *SPELLINGS) == set()


def test_no_trace_is_left(tickets: type[RankIndex], zrank: Redis) -> None:
    """In blocking code and, where there are shards, in a coroutine."""
    erase = async_to_sync(tickets.aerase) if len(tickets.instance().holders) > 1 else tickets.erase
    leave_traces(tickets)
    before = keys_with(zrank, *SPELLINGS)
    with pytest.raises(StillRanked, match=str(MEMBER)):
        erase(MEMBER)
    kinds = {key.split("}:")[1].partition(":")[0] for key in keys_with(zrank, *SPELLINGS)}
    assert kinds >= {"recent", "pending", "touched", "group", "remembered", "combined_filter"}
    assert keys_with(zrank, *SPELLINGS) == before

    Ticket.objects.filter(pk=MEMBER).delete()
    Mark.objects.create(index=tickets.instance().name, member=MEMBER.hex)
    erased = erase(MEMBER)
    assert keys_with(zrank, *SPELLINGS) == set()
    assert rows_with(*SPELLINGS) == {"Batch"}
    assert erased.member == str(MEMBER)
    removed = erased.removed
    assert removed["pending"] in (1, 2)  # its change, and what the flush took unless that is settled by now
    assert removed["group"] == 2
    assert removed["remembered"] == 9  # lists of others; its own went when it left
    assert removed["touched"] == 1
    assert removed["marks"] in (1, 2, 3)  # those of the deletion and of a flush may wait, too
    assert erased.remains.keys() == {"applied writes", "idempotency keys"}
    until = erased.remains["applied writes"]
    assert until
    assert timedelta(minutes=58) < until - timezone.now() <= timedelta(hours=1)
    assert flush(tickets.instance()) == 0
    assert_mirrors(tickets)
    assert tickets.group("live").count() == 40

    Batch.objects.update(at=timezone.now() - timedelta(hours=2))
    again = erase(MEMBER)
    assert rows_with(*SPELLINGS) == set()
    assert keys_with(zrank, *SPELLINGS) == set()
    assert again.removed == {}
    assert again.remains.keys() == {"idempotency keys"}


def test_a_change_of_a_row_that_is_not_ranked_any_more_is_flushed_first(
    tickets: type[RankIndex], zrank: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_traces(tickets)
    Ticket.objects.filter(pk=MEMBER).update(moment=None)
    with monkeypatch.context() as patch:
        patch.setattr(WriteBehind, "bring", lambda extension, part: None)  # as if its row were locked
        with pytest.raises(Busy, match=str(MEMBER)):
            tickets.erase(MEMBER)
    assert any("}:pending" in key for key in keys_with(zrank, *SPELLINGS))
    tickets.erase(MEMBER)
    assert Ticket.objects.get(pk=MEMBER).integer == 25
    assert keys_with(zrank, *SPELLINGS) == set()


def test_a_flush_in_flight_goes_on_without_a_deleted_member(tickets: type[RankIndex], zrank: Redis) -> None:
    leave_traces(tickets)
    index = tickets.instance()
    other = Ticket.objects.filter(integer=7).get().pk
    for pk in (MEMBER, other):
        tickets.scores.increment(pk, 100)
    for part in index.holders:  # as if the process was killed
        row = recorded(part)
        PendingStore.of(part).take_pending(row.term, row.flushed, 1000)
    Ticket.objects.filter(pk=MEMBER)._raw_delete("default")
    assert tickets.erase(MEMBER).removed["pending"] == 2
    assert keys_with(zrank, *SPELLINGS) == set()
    flush(index)
    assert Ticket.objects.get(pk=other).integer == 107
    assert {mark.member for mark in Mark.objects.filter(index=index.name)} == {str(other)}
    drain(index)
    assert_mirrors(tickets)


def test_during_a_rebuild(tickets: type[RankIndex], zrank: Redis, elsewhere: Callable[..., Any]) -> None:
    """A row that the rebuild has read before doesn't bring it back. The log of newest writes guards that."""
    leave_traces(tickets)
    found: list[Any] = []

    def erase(rows: int) -> None:
        if not found:
            elsewhere(Ticket.objects.filter(pk=MEMBER)._raw_delete, "default")  # unnoticed
            found.append(elsewhere(tickets.erase, MEMBER))
            found.append(keys_with(zrank, *SPELLINGS))

    rebuild(tickets.instance(), progress=erase, batch_size=10)
    erased, keys = found
    assert erased.removed["rankings"] >= 2
    assert erased.remains["newest writes"] is None
    assert {key.split("}:")[1] for key in keys} == {"recent"}
    assert_mirrors(tickets)
    assert tickets.erase(MEMBER).removed == {}
    assert keys_with(zrank, *SPELLINGS) == set()


def test_a_push_that_read_its_row_before_does_not_bring_it_back(zrank: Redis) -> None:
    row = Nickname.objects.create(nick="a-very-distinctive-name", score=7)
    other = Nickname.objects.create(nick="other", score=8)
    store = Store(NicknameRank.instance().name)
    epoch = begin_write(store)
    row.delete()
    NicknameRank.erase("a-very-distinctive-name")
    assert apply_changes(store, epoch, [Change("a-very-distinctive-name", 7.0)]) is None
    assert keys_with(zrank, "a-very-distinctive-name") == set()
    other.score = 9  # whose version was given earlier
    other.save()
    assert contents(NicknameRank) == {"other": 9.0}


def test_shards_on_one_server_are_found_by_one_scan(declare: Declare, zrank: Redis) -> None:
    scans = {}
    for shards in (1, 7):
        index = declare(Nickname, "-score", shards=shards)
        rebuild(index.instance())
        groups = [index.group(f"g{at}") for at in range(300)]
        for group in groups:
            group.add("somebody", *map(str, range(20)))
        zrank.config_resetstat()
        assert index.erase("somebody").removed == {"group": 300}
        scans[shards] = zrank.info("commandstats")["cmdstat_scan"]["calls"]
        assert groups[0].count() == 20
        keys = sum(1 for _ in zrank.scan_iter(count=1000))
        assert scans[shards] <= keys / 250 + 1
    assert scans[7] > 1


def test_members_with_tie_bytes_and_names_that_contain_others(zrank: Redis) -> None:
    pk = 7834019283
    for one in (pk, 10 * pk):
        Competitor.objects.create(pk=one, points=5, region="kantou")
    CompetitorRank.group("live").add(pk, 10 * pk)
    Competitor.objects.filter(pk=pk).delete()
    removed = CompetitorRank.erase(pk).removed
    assert removed["group"] == 1
    assert not any(f"'{pk}'" in repr(held) for held in whole(zrank).values())
    assert_mirrors(CompetitorRank)
    assert 10 * pk in CompetitorRank.group("live")


def test_a_member_that_never_was(zrank: Redis) -> None:
    erased = NicknameRank.erase("nobody-at-all")
    assert (erased.removed, erased.remains) == ({}, {})
    assert keys_with(zrank, "nobody-at-all") == set()
    with pytest.raises(ValueError, match="member"):
        CompetitorRank.erase("nobody")
    with transaction.atomic(), pytest.raises(transaction.TransactionManagementError):
        NicknameRank.erase("nobody-at-all")


def test_shards_of_another_number_are_named(zrank: Redis) -> None:
    name = NicknameRank.instance().name
    Build.objects.create(index=f"{name}/2:0.0", build="retired")
    assert NicknameRank.erase("nobody-at-all").remains == {"former shards": None}


def command(*arguments: Any) -> str:
    out = StringIO()
    call_command("erase_zrank", *arguments, stdout=out)
    return out.getvalue()


def test_command(zrank: Redis) -> None:
    row = Nickname.objects.create(nick="a-very-distinctive-name", score=7)
    name = NicknameRank.instance().name
    with pytest.raises(CommandError, match=r"testapp\.Nickname 'a-very-distinctive-name' is still ranked"):
        command(name, row.nick)
    with pytest.raises(CommandError, match="no index called 'nothing'"):
        command("nothing", row.nick)
    with pytest.raises(CommandError, match="expected a primary key"):
        command(CompetitorRank.instance().name, row.nick)
    NicknameRank.group("live").add(row.nick)
    Nickname.objects.all().delete()
    drain(NicknameRank.instance())
    said = command(name, "a-very-distinctive-name")
    assert "removed a-very-distinctive-name: 1 group\n" in said
    assert keys_with(zrank, "a-very-distinctive-name") == set()
    document = json.loads(command(name, "a-very-distinctive-name", "--json"))
    assert document["member"] == "a-very-distinctive-name"
    assert document["removed"] == {}


@pytest.mark.parametrize("how", ["save", "update", "delete", "raw"])
def test_whom_a_member_was_shown_is_forgotten_when_it_leaves(zrank: Redis, how: str) -> None:
    players = Nickname.objects.bulk_create(Nickname(nick=f"n{at}", score=at) for at in range(9))
    drain(NicknameRank.instance())
    for player in players[:2]:
        NicknameRank.ranking.recommend(player, 3, band=99, remember=timedelta(days=9))
    pk = players[0].pk
    leaving, staying = (
        NicknameRank.ranking.store.keys.beside("remembered", player.pk) for player in players[:2]
    )
    assert zrank.exists(leaving, staying) == 2
    if how == "save":
        players[0].score = None
        players[0].save()
    elif how == "update":
        Nickname.objects.filter(pk=pk).update(score=None)
    elif how == "delete":
        players[0].delete()
    else:
        Nickname.objects.filter(pk=pk)._raw_delete("default")
    drain(NicknameRank.instance())
    assert pk not in NicknameRank.ranking
    assert (zrank.exists(leaving), zrank.exists(staying)) == (0, 1)


def test_marks_that_name_others_too_keep_those(declare: Declare) -> None:
    index = declare(Ticket, "-integer")
    other = Ticket.objects.create(integer=1)
    rebuild(index.instance())
    Mark.objects.all().delete()
    texts = json.dumps([MEMBER.hex, str(other.pk), str(MEMBER)])
    Mark.objects.create(index=index.instance().name, via=SEVERAL, member=texts)
    erased = index.erase(MEMBER)
    assert {mark.member for mark in Mark.objects.all()} == {str(other.pk)}
    assert rows_with(*SPELLINGS) == {"Batch"}
    assert "applied writes" in erased.remains
