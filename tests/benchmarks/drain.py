"""The rate at which waiting marks are processed: those of one update() of many rows.

``python -m tests.benchmarks.drain [--rows N] [--rounds N] [--json FILE]``, on the database
that ``ZRANK_TEST_DATABASE`` names.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

import django
from django.conf import settings
from django.db import connection
from django.db.models import F
from django.test.utils import override_settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the figures here, too.")
    options = parser.parse_args()

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from django_zrank.sync.drain import drain
    from django_zrank.sync.rebuild import rebuild
    from django_zrank.testing import EmbeddedServer
    from tests.benchmarks.rounds import save
    from tests.testapp.models import Player
    from tests.testapp.zrank import PlayerAscending

    index = PlayerAscending.instance()
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer() as server:
        caches = {**settings.CACHES, "zrank": {**settings.CACHES["zrank"], "LOCATION": server.url}}
        if connection.vendor == "sqlite":
            connection.settings_dict["TEST"]["NAME"] = str(Path(folder) / "zrank.sqlite3")
        name = connection.settings_dict["NAME"]
        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
        try:
            with override_settings(CACHES=caches):
                Player.objects.bulk_create(
                    (Player(level=row % 4000) for row in range(options.rows)), batch_size=500
                )
                rebuild(index)
                drain(index)
                rates = []
                for _ in range(options.rounds):
                    Player.objects.update(level=F("level") + 1)
                    began = perf_counter()
                    marks = drain(index)
                    rates.append(marks / (perf_counter() - began))
                    print(
                        f"{connection.display_name}: {marks:,} marks, {rates[-1]:,.0f} a second", flush=True
                    )
                print(f"median {statistics.median(rates):,.0f}")
                if options.json:
                    save(options.json, database=connection.display_name, marks=options.rows, rates=rates)
        finally:
            connection.creation.destroy_test_db(name, verbosity=0)


if __name__ == "__main__":
    main()
