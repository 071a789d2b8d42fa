from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from redis import Redis

from django_zrank.models import Mark
from django_zrank.sync import gauges as gauges_module
from django_zrank.sync.gauges import Gauges, read_gauges
from django_zrank.sync.health import Verdict
from django_zrank.sync.rebuild import rebuild
from tests.sync.conftest import use_redis
from tests.testapp.models import Player
from tests.testapp.zrank import PlayerAscending

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]

INDEX = PlayerAscending.instance()


def test_at_rest() -> None:
    Mark.objects.all().delete()
    rebuild(INDEX)
    assert read_gauges(INDEX) == Gauges(waiting=0, oldest=0.0, members=0, verdict=Verdict.HEALTHY)


def test_marks_that_wait() -> None:
    Mark.objects.all().delete()
    rebuild(INDEX)
    Player.objects.bulk_create([Player(level=1), Player(level=2)])
    Mark.objects.update(at=F("at") - timedelta(seconds=90))
    gauges = read_gauges(INDEX)
    assert (gauges.waiting, gauges.members) == (2, 0)
    assert 89 < gauges.oldest < 3000


def test_a_backlog_is_counted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    Mark.objects.all().delete()
    monkeypatch.setattr(gauges_module, "MOST_WAITING", 3)
    Mark.objects.bulk_create(Mark(index=INDEX.name, member=str(member)) for member in range(5))
    assert read_gauges(INDEX).waiting == 3


def test_an_index_that_is_not_there(zrank: Redis) -> None:
    zrank.flushall()
    gauges = read_gauges(INDEX)
    assert (gauges.members, gauges.verdict) == (0, Verdict.EMPTY)


def test_a_server_that_is_down(settings: Any) -> None:
    use_redis(settings, "redis://127.0.0.1:2/0")
    gauges = read_gauges(INDEX)
    assert (gauges.members, gauges.verdict) == (None, None)
