"""The cost of a recommendation: ten out of a dense band, beside a bare ZRANK through the same client.

``python -m tests.benchmarks.recommend [--members N] [--band-holds N] [--rounds N] [--json FILE]``
"""

from __future__ import annotations

import argparse
import os
import random
from pathlib import Path

import django
from django.conf import settings
from django.db import connections
from django.test.utils import override_settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=1_000_000)
    parser.add_argument("--band-holds", type=int, default=300_000, help="Members in the band around me.")
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the figures here, too.")
    options = parser.parse_args()

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from django_zrank import RankIndex
    from django_zrank.testing import EmbeddedServer
    from tests.benchmarks.rounds import compare, figures, report, save
    from tests.populations import fill
    from tests.testapp.models import Player

    class Dense(RankIndex):
        model = Player
        order = ("-level",)
        name = "dense"

    with EmbeddedServer() as server:
        caches = {**settings.CACHES, "zrank": {**settings.CACHES["zrank"], "LOCATION": server.url}}
        with override_settings(CACHES=caches):
            store = fill(Dense, {pk: pk for pk in range(options.members)})
            client, key, ranking = store.client, store.live.root, Dense.ranking
            half = options.band_holds // 2
            rng = random.Random(1)
            friends = [rng.randrange(options.members) for _ in range(1000)]

            def me() -> int:
                return rng.randrange(half, options.members - half)

            drawn = ranking.recommend(me(), 10, band=half)
            print(f"{options.members:,} members, {drawn.candidates:,} in the band, {options.rounds:,} rounds")
            seconds = compare(
                {
                    "ZRANK": lambda: client.zrank(key, me()),
                    "PING": client.ping,
                    "recommend 10": lambda: ranking.recommend(me(), 10, band=half),
                    "recommend 10, 1,000 excluded": lambda: ranking.recommend(
                        me(), 10, band=half, exclude=friends
                    ),
                },
                options.rounds,
            )
            report(seconds, "ZRANK")
    if options.json:
        save(options.json, members=options.members, figures=figures(seconds, "ZRANK"))
    connections.close_all()


if __name__ == "__main__":
    main()
