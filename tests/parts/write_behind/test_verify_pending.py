"""A verification takes into account what is pending, and what flushes carry, while both change."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_zrank.builds import recorded
from django_zrank.sync.drain import drain
from django_zrank.sync.verify import verify
from django_zrank.write_behind.flush import flush
from django_zrank.write_behind.store import PendingStore
from tests.sync.interruptions import comparing
from tests.testapp.models import Video
from tests.testapp.zrank import VideoRank

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("zrank", "undrained")]

INDEX = VideoRank.instance()


def win(videos: list[Video]) -> None:
    VideoRank.scores.increment({videos[0]: 1, videos[1]: 2})


def win_and_flush(videos: list[Video]) -> None:
    win(videos)
    assert flush(INDEX)


def win_and_take(videos: list[Video]) -> None:
    """As a flush does that is killed, or still writes."""
    win(videos)
    row = recorded(INDEX)
    assert PendingStore.of(INDEX).take_pending(row.term, row.flushed, 10)


@pytest.mark.parametrize(
    "act",
    [win, win_and_flush, win_and_take, lambda videos: flush(INDEX)],
    ids=["win", "both", "take", "flush"],
)
def test_a_change_at_any_step_is_not_drift(act: Callable[[list[Video]], object]) -> None:
    """Two of three are wrong, so that all steps are taken. One of them changes before each step in turn, which may
    leave a mark that repairs it, and so does one that is right."""
    videos = [Video.objects.create(views=views) for views in (10, 20, 30)]
    client = PendingStore(INDEX.name).client

    def verified(step: int) -> int:
        """The number of steps of a verification that ``act`` interrupts before one of them."""
        win(videos)
        drain(INDEX)
        root = PendingStore(INDEX.name).learn().root
        taken: list[int] = []

        def interrupt(at: int) -> None:
            taken.append(at)
            if at == step:
                act(videos)

        for video in (videos[0], videos[2]):
            client.zincrby(root, 1000, str(video.pk))
        with comparing(interrupt):
            report = verify(INDEX)
        wrong = {example.member for example in report.different.examples}
        assert {str(videos[2].pk)} <= wrong <= {str(videos[0].pk), str(videos[2].pk)}
        for member in (
            (videos[2].pk, videos[0].pk) if client.zscore(root, str(videos[0].pk)) > 1000 else (videos[2].pk,)
        ):
            client.zincrby(root, -1000, str(member))
        assert (report.drift, report.unsettled) == (len(wrong), 0)
        for example in report.different.examples:
            assert example.database is not None
            assert example.redis == example.database + 1000
        return len(taken)

    for step in range(1, verified(0) + 1, 2):
        verified(step)
    assert verify(INDEX).ok
