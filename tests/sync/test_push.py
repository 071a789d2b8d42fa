"""Of two pushes of a member the later reading wins, and no member keeps another from being written."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from redis import Redis

from django_zrank import IndexUnavailable, RankIndex
from django_zrank.exceptions import NotBuilt
from django_zrank.signals import push_failed, pushed
from django_zrank.store import Store
from django_zrank.sync import push as module
from django_zrank.sync.in_step import InStep, breaker
from django_zrank.sync.push import push, try_push
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.watch import sync
from django_zrank.testing import disable_sync
from tests.sync.conftest import Clock
from tests.sync.mirror import assert_mirrors, contents
from tests.testapp.models import Nickname, Ticket
from tests.testapp.zrank import ByLoose, ByReal, CompetitorRank, NicknameRank, PlayerAscending, PlayerRank
from tests.writes import begin_write

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank", "undrained")]

INDEX = NicknameRank.instance()


def change(nick: str, score: float) -> None:
    """A committed change that nobody pushes."""
    Nickname.objects.filter(nick=nick).update(score=score)


@pytest.fixture
def after_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Calls a function once, in the middle of the next push: the rows are read, and not yet applied."""
    read = module.read

    def install(function: Callable[[], None]) -> None:
        def pause(*args: Any) -> Iterator[Any]:
            rows = list(read(*args))
            monkeypatch.setattr(module, "read", read)
            function()
            return iter(rows)

        monkeypatch.setattr(module, "read", pause)

    return install


def test_members_are_written_and_those_without_a_rank_removed() -> None:
    Nickname.objects.bulk_create(
        [Nickname(nick="a", score=1), Nickname(nick="b", score=None), Nickname(nick="c", score=-2.5)]
    )
    push(INDEX, ["a", "b", "c", "never there"])
    assert contents(NicknameRank) == {"c": -2.5, "a": 1}
    Nickname.objects.filter(nick="a").delete()
    push(INDEX, ["a"])
    assert contents(NicknameRank) == {"c": -2.5}


def test_no_row_is_read_for_an_index_that_gives_no_token(zrank: Redis) -> None:
    zrank.flushall()
    with CaptureQueriesContext(connection) as queries:
        assert not try_push({INDEX: {"a"}})
    assert not [one for one in queries if INDEX.model._meta.db_table in one["sql"]]


@pytest.mark.parametrize(("most", "batches"), [(2, 3), (None, 1)], ids=["SQLite", "no limit"])
def test_a_batch_has_no_more_members_than_a_statement_takes_parameters(
    monkeypatch: pytest.MonkeyPatch, round_trips: list[str], most: int | None, batches: int
) -> None:
    monkeypatch.setattr(type(connection.features), "max_query_params", most)
    # Django's own reads on SQLite need a limit.
    monkeypatch.setattr(type(connection.ops), "bulk_batch_size", lambda ops, fields, objs: len(objs))
    push(INDEX, "abcde")
    assert round_trips == ["begin_write", *["apply_changes"] * batches]


def test_nothing_to_push_is_no_round_trip(round_trips: list[str]) -> None:
    assert not try_push({INDEX: set()})
    assert round_trips == []
    assert try_push({INDEX: {"a"}})


def test_many_members_go_in_batches_and_all_arrive(round_trips: list[str]) -> None:
    Nickname.objects.bulk_create(Nickname(nick=str(number), score=number) for number in range(2500))
    push(INDEX, map(str, range(2500)))
    first, *others = round_trips
    assert first == "begin_write"
    assert set(others) == {"apply_changes"}
    assert len(others) >= 3  # a batch goes in pieces
    assert_mirrors(NicknameRank)


@pytest.fixture
def heard() -> Iterator[list[list[str]]]:
    """The members of each signal ``pushed`` of the index."""
    found: list[list[str]] = []

    def hear(members: list[str], **kwargs: Any) -> None:
        found.append(members)
        raise RuntimeError("a receiver at fault")

    pushed.connect(hear, sender=INDEX)
    yield found
    pushed.disconnect(hear, sender=INDEX)


def test_those_that_were_pushed_are_signalled(heard: list[list[str]], ten_players: None) -> None:
    """By a save, a deletion and a drain, ranked or not, once they are in Redis: whatever the receiver does."""
    Nickname.objects.create(nick="a", score=1)
    assert heard.pop() == ["a"]
    Nickname.objects.filter(nick="a").update(score=2)
    sync(INDEX)
    assert {*heard.pop()} == {"a"}
    assert contents(NicknameRank) == {"a": 2}
    Nickname.objects.all().delete()
    assert heard.pop() == ["a"]
    heard.clear()
    push(PlayerAscending.instance(), [1])
    assert not heard


def test_nobody_is_signalled_whom_redis_has_not_got(heard: list[list[str]], zrank: Redis) -> None:
    zrank.flushall()
    assert not try_push({INDEX: {"a"}})
    assert not heard


# Readings that arrive in the wrong order


def test_an_older_reading_does_not_bring_back_a_deleted_member(after_read: Callable[..., None]) -> None:
    nickname = Nickname.objects.create(nick="a", score=1)
    after_read(nickname.delete)
    push(INDEX, ["a"])
    assert contents(NicknameRank) == {}


def test_an_older_reading_still_writes_what_nobody_else_has_written(after_read: Callable[..., None]) -> None:
    with disable_sync():
        for nick in "ab":
            Nickname.objects.create(nick=nick, score=1)

    def newer() -> None:
        change("a", 2)
        push(INDEX, ["a"])

    after_read(newer)
    push(INDEX, ["a", "b"])
    assert contents(NicknameRank) == {"a": 2, "b": 1}


@pytest.fixture
def four_indexes(declare: Callable[..., type[RankIndex]]) -> list[type[RankIndex]]:
    """All indexes of a model."""
    return [NicknameRank, *(declare(Nickname, order) for order in ("score", "-score", "-score"))]


def reads(server: Redis) -> int:
    """The number of times that a server has read from its clients: once for each round trip, this one included."""
    return int(server.info("stats")["total_reads_processed"])


def test_a_save_is_one_round_trip_for_all_of_its_indexes(
    zrank: Redis,
    four_indexes: list[type[RankIndex]],
    monkeypatch: pytest.MonkeyPatch,
    django_assert_num_queries: Any,
) -> None:
    """With a watcher alive, nobody drains; the notes of all builds are read once a second, by one statement, as tokens
    are then, which takes a second round trip, and a server says if it takes writes; and the row is read at each save,
    and the newest marks, unless triggers tell of them."""
    clock, asked, told = Clock(), connection.vendor != "sqlite", connection.vendor == "postgresql"
    monkeypatch.setattr("django_zrank.recent.monotonic", clock)
    row = Nickname.objects.create(nick="a", score=1)
    for _ in range(2):
        row.save()  # the triggers are examined once a minute, and asked to tell
    for index in four_indexes:
        Store(index.instance().name).note_watcher(60)
    usual = 3 - told
    for later, statements, round_trips in (
        (0, usual, 1),
        (0, usual, 1),
        (1.1, usual + 1 + asked, 2),
        (0, usual, 1),
    ):
        clock.advance(later)
        row.score += 1
        before = reads(zrank)
        with django_assert_num_queries(statements):
            row.save()
        assert reads(zrank) - before == round_trips + 1
        for index in four_indexes:
            assert_mirrors(index)


def save(nick: str, score: float) -> None:
    Nickname(nick=nick, score=score).save(update_fields=["score"])


def test_a_refusal_under_a_kept_token_is_none_of_the_two(
    round_trips: list[str], after_read: Callable[[Callable[[], None]], None]
) -> None:
    """Another process has written the member since the token was taken, and writes it again in between."""
    Nickname.objects.create(nick="a", score=1)
    round_trips.clear()
    save("a", 2)
    assert round_trips == ["apply_changes"]
    push(INDEX, ["a"])
    round_trips.clear()

    def twice() -> None:
        push(INDEX, ["a"])
        after_read(lambda: push(INDEX, ["a"]))

    after_read(twice)
    save("a", 3)
    # The kept token, a refusal, another one, and then what counts.
    assert round_trips.count("apply_changes") - round_trips.count("begin_write") == 3
    assert contents(NicknameRank) == {"a": 3}


def test_a_kept_token_is_given_up_with_its_build(round_trips: list[str]) -> None:
    Nickname.objects.create(nick="a", score=1)
    with disable_sync():
        save("a", 2)
    rebuild(INDEX)
    round_trips.clear()
    save("a", 3)
    assert round_trips == ["begin_write", "apply_changes"]
    former = begin_write(Store.of(INDEX))._replace(build="former")
    module._kept.keep((INDEX.name, INDEX.get_using()), (0.0, former))
    round_trips.clear()
    save("a", 4)
    assert round_trips == ["apply_changes", "begin_write", "apply_changes"]
    save("a", 5)
    assert round_trips[3:] == ["apply_changes"]
    assert contents(NicknameRank) == {"a": 5}


@pytest.mark.parametrize("script", ["begin_write", "apply_changes"])
def test_an_index_that_fails_stops_no_other(
    zrank: Redis, four_indexes: list[type[RankIndex]], script: str, hear: Callable[..., list[Any]]
) -> None:
    broken = four_indexes[1].instance()
    zrank.script_flush()
    if script == "begin_write":
        zrank.delete(Store(broken.name).keys.meta)
    else:
        live = Store(broken.name).learn().root
        zrank.delete(live)
        zrank.set(live, "not a sorted set")
    failed = hear(push_failed, "sender", "members", "error")
    Nickname.objects.create(nick="a", score=1)
    breaker.forget()
    for index in four_indexes:
        if index.instance() is not broken:
            assert_mirrors(index)
    ((sender, members, error),) = failed
    assert (sender, members) == (broken, {"a"})
    assert repr(broken.name) in str(error)


def test_a_push_renews_its_token_after_a_refusal(after_read: Callable[..., None]) -> None:
    """Under its first token it would be refused again, and give up, although nobody else has read what it reads."""
    Nickname.objects.create(nick="a", score=1)

    def overtake() -> None:
        change("a", 2)
        push(INDEX, ["a"])
        change("a", 3)

    after_read(overtake)
    push(INDEX, ["a"])
    assert contents(NicknameRank) == {"a": 3}


def test_refusals_are_counted_anew_under_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has won under the build before says nothing about what the next one's winner has read."""
    Nickname.objects.create(nick="a", score=1)
    read, scores = module.read, iter(range(2, 9))

    def overtake() -> None:
        push(INDEX, ["a"])
        change("a", next(scores))

    meanwhile = iter([overtake, lambda: rebuild(INDEX), overtake])

    def overtaken(*args: Any) -> Any:
        rows = list(read(*args))
        with monkeypatch.context() as patch:
            patch.setattr(module, "read", read)
            next(meanwhile, lambda: None)()
        return iter(rows)

    monkeypatch.setattr(module, "read", overtaken)
    push(INDEX, ["a"])
    assert contents(NicknameRank) == {"a": 3}


def test_who_is_refused_again_and_again_leaves_it_to_the_others(
    monkeypatch: pytest.MonkeyPatch, round_trips: list[str]
) -> None:
    """They can't have kept a second reading out without having read what the first one was about."""
    Nickname.objects.create(nick="a", score=0)
    Nickname.objects.create(nick="b", score=0)
    read, scores, asked = module.read, iter(range(1, 10)), []

    def overtaken(*args: Any) -> Any:
        asked.append(args[1])
        rows = list(read(*args))
        change("a", next(scores))
        with monkeypatch.context() as patch:
            patch.setattr(module, "read", read)
            push(INDEX, ["a"])
        return iter(rows)

    change("b", 7)
    round_trips.clear()
    monkeypatch.setattr(module, "read", overtaken)
    push(INDEX, ["a", "b"])
    assert contents(NicknameRank) == {"a": 2, "b": 7}
    assert round_trips == ["begin_write", *["begin_write", "apply_changes", "apply_changes"] * 2]
    assert asked == [["a", "b"], ["a"]]


@pytest.mark.parametrize(
    ("rank", "attributes"),
    [
        (NicknameRank, {"nick": "a", "score": 1}),
        (PlayerRank, {"level": 1}),
        (ByLoose, {"loose": 1}),
        (CompetitorRank, {"points": 1}),
    ],
)
def test_a_member_that_was_refused_is_known_again(
    rank: type[RankIndex],
    attributes: dict[str, Any],
    after_read: Callable[..., None],
    round_trips: list[str],
) -> None:
    """Whatever its primary key is, and however it is stored."""
    index, model, column = rank.instance(), rank.model, list(attributes)[-1]
    row = model._default_manager.create(**attributes)

    def write_and_change_again() -> None:
        model._default_manager.filter(pk=row.pk).update(**{column: 2})
        push(index, [row.pk])
        model._default_manager.filter(pk=row.pk).update(**{column: 3})

    push(index, [row.pk])
    round_trips.clear()
    after_read(write_and_change_again)
    push(index, [row.pk])
    assert round_trips == ["begin_write", *["begin_write", "apply_changes"], *["apply_changes"] * 2]
    assert_mirrors(rank)


# Rebuilds meanwhile


def test_a_push_gives_up_where_rebuilds_never_cease(monkeypatch: pytest.MonkeyPatch) -> None:
    read = module.read

    def overtaken(*args: Any) -> Any:
        rebuild(INDEX)
        return read(*args)

    monkeypatch.setattr(module, "read", overtaken)
    with pytest.raises(IndexUnavailable, match="rebuilds began too often"):
        push(INDEX, ["a"])


def test_members_count_as_written_under_the_build_of_the_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that takes its place before the second batch need not have the first one."""
    build, read, batches = Store(INDEX.name).learn().build, module.read, []

    def overtaken(index: Any, pks: Any, *stores: Any) -> Any:
        batches.append(pks)
        if len(batches) == 2:
            rebuild(INDEX)
        return read(index, pks, *stores)

    monkeypatch.setattr(module, "_BATCH", 1)
    monkeypatch.setattr(module, "read", overtaken)
    pushed = module.Push(InStep(INDEX.holders))
    pushed.write({INDEX: ["a", "b"]})
    assert batches == [["a"], ["b"], ["b"]]
    assert pushed.written[INDEX].build == build


def test_a_push_right_after_a_rebuild_reads_by_the_queryset_of_that(
    declare: Callable[..., type[RankIndex]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that a push before has kept may select by a time that has passed, and bring back who has left."""
    monkeypatch.setattr("django_zrank.recent.monotonic", Clock())
    until = ["z"]
    index = declare(Nickname, "score", get_queryset=lambda self: Nickname.objects.filter(nick__lt=until[0]))
    Nickname.objects.create(nick="m", score=1)
    assert contents(index) == {"m": 1}
    until[0] = "c"
    rebuild(index.instance())
    push(index.instance(), ["m"])
    assert contents(index) == {}


# An index that isn't there


def test_an_index_that_was_never_built_takes_nothing(zrank: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A few members are not a ranking: nobody shall be told that they are alone."""
    zrank.flushall()
    with pytest.raises(NotBuilt, match="rebuild_zrank nickname"):
        push(INDEX, ["a"])
    Nickname.objects.create(nick="a", score=1)
    assert contents(NicknameRank) == {}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "rebuild_zrank nickname" in caplog.text


# Values that have no rank


@pytest.mark.parametrize("field", ["build", "building"])
def test_nothing_is_pushed_beside_a_build_of_another_declaration(field: str) -> None:
    epoch = begin_write(Store.of(INDEX))
    assert module.known(INDEX, epoch) == epoch
    with pytest.raises(NotBuilt, match="from another declaration"):
        module.known(INDEX, epoch._replace(**{field: "ffffffff-another"}))


def test_an_unrankable_value_is_logged_and_removed_and_the_others_are_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tickets = [Ticket.objects.create(loose=number, real=number) for number in (1, 2, 3)]
    Ticket.objects.filter(pk=tickets[1].pk).update(loose=2**60)
    Ticket.objects.filter(pk=tickets[2].pk).update(loose=4)
    push(ByLoose.instance(), [ticket.pk for ticket in tickets])
    assert contents(ByLoose) == {str(tickets[0].pk): 1, str(tickets[2].pk): 4}
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("django_zrank.sync", logging.ERROR)
    assert str(tickets[1].pk) in record.getMessage()
    assert str(2**60) in record.getMessage()
    assert contents(ByReal) == {str(ticket.pk): number for number, ticket in enumerate(tickets, 1)}


@pytest.mark.parametrize("score", [float("nan"), float("inf"), float("-inf")])
def test_a_number_without_a_place_is_removed(score: float, caplog: pytest.LogCaptureFixture) -> None:
    if connection.vendor == "mysql" or (connection.vendor == "sqlite" and score != score):
        pytest.skip("this database holds no such number")
    Nickname.objects.create(nick="a", score=1)
    Nickname.objects.create(nick="b", score=2)
    Nickname(nick="a", score=score).save()
    assert contents(NicknameRank) == {"b": 2}
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
