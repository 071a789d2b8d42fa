"""What pairing takes: ``claim()`` beside a bare ZREM of the same members, ``near()`` beside ``recommend()``.

``python -m tests.benchmarks.pairing [--members N] [--rounds N] [--json FILE]``

Each claim finds its two members in the group: all of them were added before.
"""

from __future__ import annotations

import random
from itertools import count

from django.db import connections

from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.rounds import compare, figures, report, save
from tests.benchmarks.servers import redis_server

BAND = 1000
WAITING = 1000
"""Members that one ZADD adds."""


def main() -> None:
    options = parse_options(__doc__, members=1_000_000, rounds=1000)

    set_up()
    from django_zrank import RankIndex
    from tests.populations import fill
    from tests.testapp.models import Player

    class Dense(RankIndex):
        name = "dense"
        model = Player
        order = ("-level",)
        band = BAND

    rng = random.Random(1)
    with redis_server() as (client, name):
        fill(Dense, {pk: pk for pk in range(options.members)})
        print(f"{name}, {options.members:,} members, {options.rounds:,} rounds")

        print(f"\nnear(): ten of {2 * BAND:,}")
        drawn = {
            "recommend()": lambda: Dense.ranking.recommend(rng.randrange(options.members)),
            "near() a score": lambda: Dense.ranking.near(rng.randrange(options.members)),
        }
        near = compare(drawn, options.rounds)
        report(near, "recommend()")

        print("\nclaim(): two members")
        group, key = Dense.group("waiting"), Dense.ranking.store.keys.beside("group", "waiting")
        queued, turns = Dense.ranking.store.keys.beside("group", "queued"), count()
        turns_of_zrem = count()
        # So many that no call finds its members gone.
        members = range(2 * (options.rounds + options.rounds // 10 + 1))
        for first in range(0, len(members), WAITING):
            some = dict.fromkeys(members[first : first + WAITING], "inf")
            client.zadd(key, some)
            client.zadd(queued, some)

        def zrem() -> None:
            at = 2 * next(turns_of_zrem)
            assert client.zrem(queued, at, at + 1) == 2

        def claim() -> None:
            at = 2 * next(turns)
            assert group.claim(at, at + 1) == [at, at + 1]

        claimed = compare({"ZREM": zrem, "claim()": claim}, options.rounds)
        report(claimed, "ZREM")
    connections.close_all()
    found = {"near": figures(near, "recommend()"), "claim": figures(claimed, "ZREM")}
    save(options, server=name, questions=found)


if __name__ == "__main__":
    main()
