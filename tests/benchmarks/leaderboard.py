"""Reads of a leaderboard beside two rivals: a rank, the top ten, ten around me, of all and of my region.

``python -m tests.benchmarks.leaderboard [--members N] [--rounds N] [--json FILE]``

This app, by its Python API: an index of one criterion, and one of two criteria with a facet.

``leaderboard`` 3.7 from PyPI, on the same server: a leaderboard for all, and one for each region. It was written for
redis-py 2. What it reads with still works with the redis-py of today, so it reads through that, just as it is; its
``rank_member()`` calls ZADD in a way that redis-py 3 did away with, so its members are put in by ZADD itself.

PostgreSQL, a private server with both indexes that the questions want, its table vacuumed so that they are answered
from the indexes alone, by prepared statements of psycopg on a Unix socket. It is told the score of the member that
asks, as of an instance at hand; the others look it up. A rank is COUNT(*); ten around me are two queries with LIMIT,
which tell no ranks: these would cost a COUNT more.

All rivals rank the same people in the same order. Before anything is measured, their answers are compared.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import redis
from django.db import connections

from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.pyramid import Person, build
from tests.benchmarks.rounds import compare, figures, report, save
from tests.benchmarks.servers import private_postgresql, redis_server

PAGE = 10
CHECKED = 50
"""Members for whom the rivals' answers are compared."""


@dataclass
class Rival:
    """A way to read the leaderboard."""

    title: str
    of_region: bool
    """True if its ranking is that of the member's region, False if it is that of all."""

    rank: Callable[[Person], int]
    top: Callable[[Person], Any]
    around: Callable[[Person], Any]
    pk: Callable[[Any], int]
    """The primary key in one row of an answer."""


QUESTIONS: dict[str, Callable[[Rival], Callable[[Person], Any]]] = {
    "rank": lambda rival: rival.rank,
    f"top {PAGE}": lambda rival: rival.top,
    f"{PAGE} around me": lambda rival: rival.around,
}


def main() -> None:
    options = parse_options(__doc__, members=1_000_000, rounds=500)

    set_up()
    people = build(options.members)
    measured: dict[str, Any] = {}
    with ExitStack() as stack:
        client, name = stack.enter_context(redis_server())
        database = stack.enter_context(private_postgresql())
        rivals = [*zrank(people), *leaderboard(people, client), *postgresql(database, people)]
        check(rivals, people)
        print(f"{name}, {options.members:,} members, {options.rounds:,} rounds")
        for question, verb in QUESTIONS.items():
            print(f"\n{question}")
            seconds = compare({rival.title: ask(verb(rival), people) for rival in rivals}, options.rounds)
            report(seconds, rivals[0].title)
            measured[question] = figures(seconds, rivals[0].title)
    connections.close_all()
    save(options, server=name, questions=measured)


def ask(verb: Callable[[Person], Any], people: list[Person]) -> Callable[[], Any]:
    """A question about somebody else with every call; the same people for every rival."""
    asking = cycle(random.Random(1).choices(people, k=2000))
    return lambda: verb(next(asking))


def check(rivals: list[Rival], people: list[Person]) -> None:
    """Hold the answers of the rivals against those of the first who is asked the same."""
    first: dict[bool, Rival] = {}
    for rival in rivals:
        right = first.setdefault(rival.of_region, rival)
        for person in random.Random(2).choices(people, k=CHECKED):
            for question, verb in QUESTIONS.items():
                found, expected = (_plain(one, verb(one)(person)) for one in (rival, right))
                if found != expected and not _is_cut(found, expected):
                    raise SystemExit(f"{rival.title}, {question}: {found}, but {right.title}: {expected}")


def _plain(rival: Rival, answer: Any) -> Any:
    return answer if isinstance(answer, int) else [rival.pk(row) for row in answer]


def _is_cut(found: Any, expected: Any) -> bool:
    """Return True if a page is shorter at an end of the ranking, where only ours moves away from it."""
    return isinstance(found, list) and len(found) < PAGE and set(found) <= set(expected)


def zrank(people: list[Person]) -> Iterator[Rival]:
    """This app."""
    from django_zrank import RankIndex
    from tests.populations import load
    from tests.testapp.models import Competitor

    class Points(RankIndex):
        model = Competitor
        order = ("-points",)
        name = "points"

    class Regions(RankIndex):
        model = Competitor
        order = ("-points", "joined")
        facets = ("region",)
        name = "regions"

    by_points = sorted(people, key=lambda person: person.points)
    load(Points, ((person.pk, person.points) for person in by_points))
    load(Regions, ((person.pk, person.points, person.joined, person.region) for person in by_points))

    def rival(title: str, ranking: Callable[[Person], Any], of_region: bool = False) -> Rival:
        return Rival(
            title,
            of_region,
            rank=lambda me: ranking(me).rank(me.pk),
            top=lambda me: ranking(me).top(PAGE),
            around=lambda me: ranking(me).around(me.pk, PAGE),
            pk=lambda entry: entry.pk,
        )

    plain, regions = Points.ranking, Regions.ranking
    # What filter() itself costs is seen beside the rankings that were asked for before.
    kept = {region: regions.filter(region=region) for region in {person.region for person in people}}
    yield rival("django-zrank", lambda me: plain)
    yield rival("django-zrank, two criteria and a facet", lambda me: regions)
    yield rival("django-zrank, in my region", lambda me: regions.filter(region=me.region), of_region=True)
    yield rival("django-zrank, in my region, kept", lambda me: kept[me.region], of_region=True)


def leaderboard(people: list[Person], client: redis.Redis) -> Iterator[Rival]:
    """The package of that name."""
    try:
        from leaderboard.leaderboard import Leaderboard
    except ImportError:
        print("Without the rival leaderboard: pip install leaderboard")
        return
    board = Leaderboard("board", redis_connection=client, page_size=PAGE)
    boards: dict[str, dict[int, int]] = {"board": {}}
    for person in people:
        for name in ("board", f"board:{person.region}"):
            boards.setdefault(name, {})[person.pk] = person.points
    for name, scores in boards.items():
        pairs = iter(scores.items())
        while batch := dict(islice(pairs, 5000)):
            client.zadd(name, batch)

    def rival(title: str, name: Callable[[Person], str], of_region: bool = False) -> Rival:
        return Rival(
            title,
            of_region,
            rank=lambda me: board.rank_for_in(name(me), me.pk),
            top=lambda me: board.top_in(name(me), PAGE),
            around=lambda me: board.around_me_in(name(me), me.pk),
            pk=lambda entry: int(entry["member"]),
        )

    yield rival("leaderboard", lambda me: "board")
    yield rival("leaderboard, in my region", lambda me: f"board:{me.region}", of_region=True)


def postgresql(connection: Any, people: list[Person]) -> list[Rival]:
    """The table, its indexes and the statements."""
    if connection is None:
        return []
    connection.prepare_threshold = 0
    connection.execute(
        "CREATE TABLE competitor (id bigint PRIMARY KEY, points int NOT NULL, region text NOT NULL)"
    )
    with connection.cursor().copy("COPY competitor FROM STDIN") as copy:
        for person in people:
            copy.write_row((person.pk, person.points, person.region))
    # Read in both directions; ties in the order of the other rivals.
    connection.execute("CREATE INDEX ON competitor (points DESC, id DESC)")
    connection.execute("CREATE INDEX ON competitor (region, points DESC, id DESC)")
    connection.execute("VACUUM ANALYZE competitor")

    def rival(title: str, of_region: bool = False) -> Rival:
        where = "region = %(region)s AND" if of_region else ""
        read = f"SELECT id, points FROM competitor WHERE {where}"
        ahead = f"{read} (points, id) > (%(points)s, %(pk)s) ORDER BY points, id LIMIT {PAGE // 2}"
        behind = f"{read} (points, id) <= (%(points)s, %(pk)s) ORDER BY points DESC, id DESC LIMIT {PAGE - PAGE // 2}"
        rank = f"SELECT count(*) FROM competitor WHERE {where} (points, id) > (%(points)s, %(pk)s)"
        top = f"{read} true ORDER BY points DESC, id DESC LIMIT {PAGE}"

        def rows(statement: str, me: Person) -> Any:
            return connection.execute(statement, me._asdict(), prepare=True).fetchall()

        return Rival(
            title,
            of_region,
            rank=lambda me: rows(rank, me)[0][0] + 1,
            top=lambda me: rows(top, me),
            around=lambda me: [*reversed(rows(ahead, me)), *rows(behind, me)],
            pk=lambda row: row[0],
        )

    return [rival("PostgreSQL"), rival("PostgreSQL, in my region", of_region=True)]


if __name__ == "__main__":
    main()
