"""``manage.py sync_zrank``, as an operator uses it: once, and for as long as a process lives."""

from __future__ import annotations

import signal
from io import StringIO
from time import monotonic, sleep
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_zrank.management.commands.sync_zrank import set_by_signals
from django_zrank.sync.marks import waiting_marks
from django_zrank.sync.rebuild import rebuild
from tests.builds import start
from tests.sync.mirror import assert_mirrors
from tests.sync.processes import manage
from tests.testapp.models import Nickname
from tests.testapp.zrank import NicknameRank

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank")]

INDEX = NicknameRank.instance()


@pytest.fixture(autouse=True)
def _built(zrank: Any) -> None:
    """Three rows that Redis holds, and then a change of all that no signal tells of."""
    Nickname.objects.bulk_create(Nickname(nick=nick, score=1) for nick in "abc")
    rebuild(INDEX)
    Nickname.objects.update(score=2)


def sync(*args: str) -> str:
    """Run the command, and return its output."""
    out = StringIO()
    call_command("sync_zrank", *args, stdout=out, stderr=StringIO())
    return out.getvalue()


def test_once() -> None:
    assert sync("nickname") == "nickname: 3 marks processed\n"
    assert_mirrors(NicknameRank)
    assert sync("nickname") == "nickname: 0 marks processed\n"


def test_an_emptied_server_is_built_anew(zrank: Any) -> None:
    zrank.flushall()
    assert sync("nickname") == "nickname: rebuilt\n"
    assert_mirrors(NicknameRank)


def test_an_index_that_is_not_up_to_date_is_a_failure() -> None:
    INDEX.ranking.store.client.flushall()
    start(INDEX.ranking.store, "running")
    with pytest.raises(CommandError, match="Not every index is up to date"):
        sync("nickname")


@pytest.mark.parametrize(
    ("args", "names"),
    [(["nobody"], "nobody"), (["--interval=0"], "--interval"), (["--interval=nan"], "--interval")],
)
def test_bad_input(args: list[str], names: str) -> None:
    with pytest.raises(CommandError, match=names):
        sync(*args)
    assert waiting_marks(INDEX).count() == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_watches_until_it_is_told_to_stop(number: signal.Signals) -> None:
    with manage("sync_zrank", "nickname", "--watch", "--interval=0.1") as process:
        for score in (3, 4):
            Nickname.objects.update(score=score)
            began = monotonic()
            while waiting_marks(INDEX).exists() and monotonic() < began + 60:
                sleep(0.05)
            assert_mirrors(NicknameRank)
        process.send_signal(number)
        said, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (0, "")
    assert "marks processed" in said
    Nickname.objects.update(score=5)
    assert waiting_marks(INDEX).count() == 3


def test_a_signal_in_the_middle_of_a_wait() -> None:
    """A handler that called ``set()`` would wait for the lock that the interrupted ``wait()`` holds."""
    with set_by_signals(signal.SIGUSR1) as stop:
        with stop._cond:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGUSR1)
        assert stop.wait(20)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
