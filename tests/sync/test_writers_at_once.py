"""Eight processes save, one update() changes every row, and a watcher works off the marks: nothing is left behind."""

from __future__ import annotations

import signal
from contextlib import ExitStack

import pytest
from django.db.models import F

from django_zrank.sync.marks import waiting_marks
from django_zrank.sync.rebuild import rebuild
from tests.servers import wait_for
from tests.sync.mirror import assert_mirrors
from tests.sync.processes import manage
from tests.testapp.models import Competitor
from tests.testapp.zrank import CompetitorRank

pytestmark = [
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank", "undrained"),
]

INDEX = CompetitorRank.instance()
WRITERS = 8
SAVES = 25
ROWS = 400

SAVE = f"""
import random
from tests.testapp.models import Competitor
pks = list(Competitor.objects.values_list("pk", flat=True))
for number in range({SAVES}):
    row = Competitor.objects.get(pk=random.choice(pks))
    row.points, row.region = random.randint(0, 99), random.choice(("a", "b", "c"))
    row.save(update_fields=["points", "region"])
print("saved", {SAVES})
"""


def test_nothing_is_left_behind() -> None:
    Competitor.objects.bulk_create(Competitor(points=n % 50, region="abc"[n % 3]) for n in range(ROWS))
    rebuild(INDEX)
    with ExitStack() as stack:
        watcher = stack.enter_context(manage("sync_zrank", INDEX.name, "--watch", "--interval=0.1"))
        writers = [stack.enter_context(manage("shell", "-c", SAVE)) for _ in range(WRITERS)]
        Competitor.objects.update(points=F("points") + 1, platform="moved")
        for writer in writers:
            printed, errors = writer.communicate()
            assert printed.endswith(f"saved {SAVES}\n"), errors
        wait_for(lambda: not waiting_marks(INDEX).exists(), 120)
        watcher.send_signal(signal.SIGINT)
        said, complaints = watcher.communicate()
        assert (watcher.returncode, complaints) == (0, "")
        assert "marks processed" in said
    assert not waiting_marks(INDEX).exists()
    assert_mirrors(CompetitorRank)
