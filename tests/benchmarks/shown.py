"""Names with the top ten and with a draw: shown columns beside none, beside ``objects()`` and beside the ORM.

``python -m tests.benchmarks.shown [--rows N] [--rounds N] [--json FILE]``

The database is the one that ``ZRANK_TEST_DATABASE`` names, with an index on the level; its connection stays open. Every
rival that shows names reads those of all ten. *By REST*: responses of views for everybody, rendered as JSON without a
client or server around them; the ORM's is REST framework's own list of a queryset, without a count for pages.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from typing import Any

from django.db import connection
from django.test import RequestFactory
from django.test.utils import override_settings

from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.rounds import compare, figures, report, save
from tests.benchmarks.servers import redis_server, tables

PLAIN, NAMES, ROWS = "without names", "shown names", "objects()"
ORM, VALUES = "the ORM", "the ORM, values_list()"
GOALS = {PLAIN: 1.2, ORM: 0.5}
"""The most that shown names may take of the time of another."""


def main() -> None:
    options = parse_options(__doc__, rows=100_000, rounds=2000)

    set_up()
    from rest_framework.generics import ListAPIView
    from rest_framework.permissions import AllowAny
    from rest_framework.renderers import JSONRenderer
    from rest_framework.serializers import ModelSerializer

    from django_zrank import RankIndex
    from django_zrank.rest_framework.serializers import EntrySerializer
    from django_zrank.rest_framework.viewsets import LeaderboardViewSet
    from django_zrank.sync.rebuild import rebuild
    from django_zrank.testing import disable_sync
    from tests.testapp.models import Player

    class Plain(RankIndex):
        model = Player
        order = ("-level",)
        name = "plain"
        band = 1000

    class Shown(Plain):
        name = "shown"
        shown = ("name",)

    rng, last = random.Random(1), count(1)
    best = Player.objects.filter(level__isnull=False).order_by("-level", "-pk")

    def names(read: Callable[[], Any]) -> Callable[[], list[str]]:
        return lambda: [entry.shown["name"] for entry in read()]

    def of_rows(read: Callable[[], Any]) -> Callable[[], list[str]]:
        return lambda: [row.name for row in read()]

    class Row(ModelSerializer[Player]):
        class Meta:
            model = Player
            fields = ("pk", "level", "name")

    request = RequestFactory().get("/", {"page_size": 10})

    def respond(base: Any, actions: Any = None, **attributes: Any) -> Callable[[], bytes]:
        everybody = {"permission_classes": [AllowAny], "authentication_classes": [], "throttle_classes": []}
        view = type("View", (base,), {**everybody, "renderer_classes": [JSONRenderer], **attributes})
        answer = view.as_view(actions) if actions else view.as_view()

        def rendered() -> bytes:
            response = answer(request).render()
            assert response.status_code == 200
            return response.content  # type: ignore[no-any-return]

        return rendered

    def board(index: Any, serializer: Any = EntrySerializer) -> Callable[[], bytes]:
        return respond(LeaderboardViewSet, {"get": "list"}, index=index, serializer_class=serializer)

    def member() -> int:
        return rng.randrange(options.rows) + 1

    with redis_server() as (_, name), tables(), override_settings(ALLOWED_HOSTS=["*"]):
        with disable_sync():
            rows = (Player(pk=next(last), name=f"player {n}", level=n) for n in range(options.rows))
            Player.objects.bulk_create(rows, batch_size=500)
        with connection.cursor() as cursor:
            cursor.execute("CREATE INDEX best ON testapp_player (level DESC, id DESC)")
            cursor.execute({"mysql": "ANALYZE TABLE testapp_player"}.get(connection.vendor, "ANALYZE"))
        rebuild(Plain.instance())
        rebuild(Shown.instance())
        tops = {
            PLAIN: Plain.ranking.top,
            NAMES: names(Shown.ranking.top),
            ROWS: of_rows(lambda: Plain.ranking.top().objects()),
            ORM: of_rows(lambda: best[:10]),
            VALUES: lambda: list(best.values_list("pk", "level", "name")[:10]),
        }
        assert tops[NAMES]() == tops[ROWS]() == tops[ORM]()
        print(f"{name}, {connection.display_name}, {options.rows:,} rows, {options.rounds:,} rounds")
        measured = {}
        for title, rivals in {
            "top ten": tops,
            "top ten by REST": {
                PLAIN: board(Plain),
                NAMES: board(Shown),
                ROWS: board(Plain, Row),
                ORM: respond(ListAPIView, queryset=best[:10], serializer_class=Row),
            },
            "draw of ten": {
                PLAIN: lambda: Plain.ranking.recommend(member()),
                NAMES: names(lambda: Shown.ranking.recommend(member())),
                ROWS: of_rows(lambda: Plain.ranking.recommend(member()).objects()),
            },
            "1,000 around me": {
                PLAIN: lambda: Plain.ranking.around(member(), 1000),
                NAMES: names(lambda: Shown.ranking.around(member(), 1000)),
                ROWS: of_rows(lambda: Plain.ranking.around(member(), 1000).objects()),
            },
        }.items():
            print(f"\n{title}")
            seconds = compare(rivals, options.rounds)
            report(seconds, NAMES)
            measured[title] = figures(seconds, NAMES)
        print()
        for title in ("top ten", "top ten by REST"):
            of = {one: 1 / figure["ratio"] for one, figure in measured[title].items()}
            said = "; ".join(f"{of[one]:.2f} of {one}, at most {goal} wanted" for one, goal in GOALS.items())
            print(f"{title}: {NAMES} take {said}")
        save(options, server=name, vendor=connection.display_name, questions=measured)


if __name__ == "__main__":
    main()
