"""Flushes into tables with triggers of the user's, and of changes that the database refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from django_zrank import RankIndex
from django_zrank.store import Store
from django_zrank.sync import flush as flush_module
from django_zrank.sync.flush import flush
from django_zrank.sync.watch import sync
from tests.testapp.models import Host, Video
from tests.testapp.zrank import VideoRank

from .mirror import contents

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]

INDEX = VideoRank.instance()

TRIGGERS: dict[str, dict[str, str]] = {
    "caps": {
        "postgresql": "NEW.views := LEAST(NEW.views, 100); RETURN NEW;",
        "mysql": "SET NEW.views = LEAST(NEW.views, 100)",
    },
    "skips": {
        "postgresql": "IF NEW.views > 100 THEN RETURN NULL; END IF; RETURN NEW;",
        "sqlite": "WHEN NEW.views > 100 BEGIN SELECT RAISE(IGNORE); END",
    },
    "refuses": {
        "postgresql": "IF NEW.views > 100 THEN RAISE EXCEPTION 'too many'; END IF; RETURN NEW;",
        "mysql": "IF NEW.views > 100 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'too many'; END IF",
        "sqlite": "WHEN NEW.views > 100 BEGIN SELECT RAISE(ABORT, 'too many'); END",
    },
}
"""What a BEFORE UPDATE trigger does with more than 100 views, on each database that can."""


@pytest.fixture(params=TRIGGERS)
def trigger(request: pytest.FixtureRequest) -> Iterator[str]:
    body = TRIGGERS[request.param].get(connection.vendor)
    if body is None:
        pytest.skip(f"{connection.vendor} has no such trigger")
    beginning = "CREATE TRIGGER a_limit BEFORE UPDATE ON testapp_video FOR EACH ROW "
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                f"CREATE FUNCTION a_limit() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {body} END$$"
            )
            body = "EXECUTE FUNCTION a_limit()"
        cursor.execute(beginning + body)
    yield request.param
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("DROP FUNCTION a_limit CASCADE")
        else:
            cursor.execute("DROP TRIGGER a_limit")


def columns() -> dict[str, float]:
    return {str(pk): views for pk, views in Video.objects.values_list("pk", "views")}


def test_the_ranking_has_what_the_column_has(trigger: str) -> None:
    videos = [Video.objects.create(views=views) for views in (10, 100, 98, 20)]
    sync(INDEX)  # no mark is left that would lead to them
    for video in videos:
        VideoRank.scores.increment(video, 7)
    assert flush(INDEX) == 4
    sync(INDEX)
    found = columns()
    assert found == contents(VideoRank)
    assert [found[str(video.pk)] for video in videos if video.views < 50] == [17, 27]
    assert max(found.values()) <= 100
    VideoRank.scores.increment(videos[0], 1)
    assert flush(INDEX) == 1
    assert columns()[str(videos[0].pk)] == 18


def test_a_statement_that_takes_too_long_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are slow to write, as with triggers: the time limit of a statement is not reached again and again."""
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL limits the time of a statement")
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN PERFORM pg_sleep(0.02); RETURN NEW; END$$"
        )
        cursor.execute(
            "CREATE TRIGGER slow BEFORE UPDATE ON testapp_video FOR EACH ROW EXECUTE FUNCTION slow()"
        )
    try:
        videos = Video.objects.bulk_create([Video(views=1) for _ in range(280)])
        sync(INDEX)
        VideoRank.scores.increment(dict.fromkeys(videos[:140], 1))
        VideoRank.scores.increment(dict.fromkeys(videos[140:], 1))
        assert flush(INDEX) == 280
        assert set(columns().values()) == {2}
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION slow CASCADE")


def test_a_flush_ends_while_scores_keep_changing(monkeypatch: pytest.MonkeyPatch) -> None:
    videos = Video.objects.bulk_create([Video(views=1) for _ in range(6)])
    sync(INDEX)
    monkeypatch.setattr(flush_module, "BATCH_SIZE", 2)
    take, taken = Store.take_pending, []

    def take_and_change(*args: Any) -> Any:
        VideoRank.scores.increment(dict.fromkeys(videos, 1))
        taken.append(take(*args))
        assert len(taken) < 50
        return taken[-1]

    monkeypatch.setattr(Store, "take_pending", take_and_change)
    VideoRank.scores.increment(videos[0])
    flush(INDEX)
    assert any(taken)
    monkeypatch.undo()
    flush(INDEX)
    sync(INDEX)
    assert columns() == contents(VideoRank)


def test_addresses_of_both_versions(declare: Callable[..., type[RankIndex]]) -> None:
    index = declare(Host, "-load", write_behind="increment")
    hosts = [Host.objects.create(address=address, load=1) for address in ("10.0.0.1", "2001:db8::1")]
    for host in hosts:
        index.scores.increment(host, 4)
    assert flush(index.instance()) == 2
    assert {host.load for host in Host.objects.all()} == {5}
