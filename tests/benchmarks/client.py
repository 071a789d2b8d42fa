"""What reads take of the client's processor beside the bare commands that answer the same: the time of the thread that
asks, which a busy machine doesn't stretch.

``python -m tests.benchmarks.client [--members N] [--rounds N] [--only WORD] [--json FILE]``

Bare commands are sent by the same redis-py client, which is looked up once; their replies are not decoded further than
redis-py does. *ZREVRANK and HGET* also asks for the name of the live build, as every answer from the ranking of a facet
must: it goes a moment later than its build.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from time import thread_time
from typing import Any

from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.rounds import compare, figures, report, save
from tests.benchmarks.servers import redis_server

REGIONS = 8


def main() -> None:
    options = parse_options(__doc__, members=100_000, rounds=3000, only="")

    set_up()
    from django_zrank import RankIndex
    from django_zrank.redis import reader_of
    from tests.populations import load
    from tests.testapp.models import Competitor

    class Plain(RankIndex):
        name = "plain"
        model = Competitor
        order = ("-points",)

    class Facets(Plain):
        name = "facets"
        facets = ("region",)

    rng = random.Random(1)

    def member() -> int:
        return rng.randrange(options.members)

    with redis_server() as (_, name):
        load(Plain, [[pk, pk] for pk in range(options.members)])
        load(Facets, [[pk, pk, str(pk % REGIONS)] for pk in range(options.members)])
        client: Any = reader_of(Plain.instance()).client
        root, region = (
            reader_of(Plain.instance()).live.root,
            reader_of(Facets.instance()).live.ranking("region:1"),
        )
        meta = reader_of(Facets.instance()).live.meta
        assert client.zcard(region) == options.members // REGIONS
        kept = Facets.ranking.filter(region="1")

        def mine() -> int:
            return member() // REGIONS * REGIONS + 1

        def with_build(member: int) -> Any:
            pipeline = client.pipeline(transaction=False)
            pipeline.zrevrank(region, member)
            pipeline.hget(meta, "build")
            return pipeline.execute()

        questions: dict[str, dict[str, Callable[[], Any]]] = {
            "top(10)": {
                "ZREVRANGE": lambda: client.zrevrange(root, 0, 9, withscores=True),
                "top(10)": lambda: Plain.ranking.top(10),
            },
            "rank()": {
                "ZREVRANK": lambda: client.zrevrank(root, member()),
                "rank()": lambda: Plain.ranking.rank(member()),
            },
            "rank() in a region": {
                "ZREVRANK": lambda: client.zrevrank(region, mine()),
                "ZREVRANK and HGET": lambda: with_build(mine()),
                "filter(), rank()": lambda: Facets.ranking.filter(region="1").rank(mine()),
                "a kept filter": lambda: kept.rank(mine()),
            },
        }
        print(f"{name}, {options.members:,} members, {options.rounds:,} rounds; processor time of the client")
        measured = {}
        for title, rivals in questions.items():
            if options.only not in title:
                continue
            base = next(iter(rivals))
            print(f"\n{title}")
            seconds = compare(rivals, options.rounds, clock=thread_time)
            report(seconds, base)
            measured[title] = figures(seconds, base)
    save(options, server=name, questions=measured)


if __name__ == "__main__":
    main()
