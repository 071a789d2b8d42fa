"""Ten random members of a dense band, beside all that is published for it, at several sizes of the demo's pyramid.

``python -m tests.benchmarks.rivals [--members N,N,…] [--rounds N] [--database N] [--json FILE] [--plot FILE.png]``

The rivals are written from their published algorithms:

A  four commands: ZSCORE, ZCOUNT of either side, ZRANGEBYSCORE with a random LIMIT offset. Redis 7.0 walks to it,
   Valkey 9 jumps.
B  ZSCORE, two ZCOUNT, ZRANGE by rank: a random window, in which the same neighbours always come together.
C  B as one Lua script.
D  the ranks of the band's first and last member, then as many random ranks as are wanted, in one Lua script. With
   replacement: somebody may come twice. Members without scores, as published.
E  score = level * 100,000 + a random part, in a sorted set of its own: a pivot below and one above, a run from each.
F  PostgreSQL, private, with an index on level: ORDER BY random() in the band; a rank is COUNT(*).

Nobody but ours leaves out whom I know, halves what it draws by who ranks before me and after me, or tells ranks.
Limits through the same client: a bare PING, a bare ZRANGE of one rank.

*Server* is the microseconds a call by INFO commandstats: of blocks of calls, the rivals' blocks in turns, the median of
the blocks. *Client* is what a call takes in Python, the rivals' calls in turns. Ours is asked bare, by the same EVALSHA
that the API sends, and whole, by the API. A rival that has taken ``LIMIT`` seconds drops out with fewer rounds.

Everybody is asked about the same members, drawn from levels 11 to 20, with a band of 10: 26 to 39 % of all are in it.
``--database``: the largest size at which PostgreSQL is asked, 0 for never.
"""

from __future__ import annotations

import random
import statistics
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle, groupby, islice
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest import mock

import redis
from django.conf import settings
from django.db import connections
from django.test.utils import override_settings

from tests.benchmarks.options import parse_options, set_up
from tests.benchmarks.plots import over_members, pyplot
from tests.benchmarks.pyramid import by_level
from tests.benchmarks.rounds import compare, figures, save
from tests.benchmarks.servers import private_postgresql, redis_server

WANTED = 10
BAND = 10
ASKERS = (11, 20)
"""Lowest and highest level of those who ask."""

BLOCKS = 20
LIMIT = 8.0
"""Seconds for which a rival is asked, in each of the two ways to measure."""

SPREAD = 100_000
"""The factor by which E multiplies a level."""

FRIENDS = 1000
AT_ONCE = 10_000
"""Members drawn by one call, and by ``AT_ONCE // FEW`` calls."""

FEW = 5
MANY_AT = 1_000_000
"""The size at which ``AT_ONCE`` members are drawn; the largest below, where nobody asks for it."""

OURS, WHOLE = "django-zrank, the script", "django-zrank, recommend()"
WINDOW, REPLACING = "C: window, one script", "D: random ranks, one script"

SHORT = {
    OURS: "/script",
    WHOLE: "/whole",
    WINDOW: "/C",
    REPLACING: "/D",
    "ZREVRANK": "/ZREVRANK",
}

TITLE = f"recommend {WANTED}"
TITLE_EXCLUDED = f"{TITLE}, {FRIENDS:,} excluded"
TITLE_WHOLE = f"{TITLE}, the whole call and its script alone"
TITLES_MANY = (f"{AT_ONCE:,} at once", f"{AT_ONCE // FEW:,} times {FEW}")
LIMITS = ("ZRANGE of one rank", "PING")

Ask = Callable[[], Any]
Figures = dict[str, dict[str, float]]

SCRIPTS = {"evalsha", "eval", "evalsha_ro", "fcall", "fcall_ro"}

C = """
local key, me, distance, wanted = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local score = redis.call('ZSCORE', key, me)
local first = redis.call('ZCOUNT', key, '-inf', '(' .. score - distance)
local holds = redis.call('ZCOUNT', key, score - distance, score + distance)
local at = first + math.random(0, math.max(0, holds - wanted))
return redis.call('ZRANGE', key, at, at + wanted - 1)
"""

D = """
local key, me, distance, wanted = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local score = redis.call('ZSCORE', key, me)
local low, high = score - distance, score + distance
local first = redis.call('ZRANGEBYSCORE', key, low, high, 'LIMIT', 0, 1)[1]
local last = redis.call('ZREVRANGEBYSCORE', key, high, low, 'LIMIT', 0, 1)[1]
local from, to = redis.call('ZRANK', key, first), redis.call('ZRANK', key, last)
local drawn = {}
for i = 1, wanted do
  local at = math.random(from, to)
  drawn[i] = redis.call('ZRANGE', key, at, at)[1]
end
return drawn
"""


def main() -> None:
    options = parse_options(
        __doc__, members=(10_000, 100_000, 1_000_000), rounds=2000, database=1_000_000, plot=Path
    )
    sizes = sorted(options.members)
    if options.plot:
        pyplot()

    set_up()
    many_at = max((size for size in sizes if size <= MANY_AT), default=sizes[0])
    measured: dict[int, dict[str, Any]] = {}
    for size in sizes:
        with redis_server() as (_, server):
            print(f"\n{server}, {size:,} members, {options.rounds:,} rounds")
            measured[size] = measure(size, options.rounds, size <= options.database, size == many_at)
    connections.close_all()
    save(options, server=server, sizes=measured)
    if options.plot:
        plot(options.plot, server, measured)


def measure(size: int, rounds: int, with_database: bool, with_many: bool) -> dict[str, Any]:
    """All that is measured at one size."""
    with ExitStack() as stack:
        began = perf_counter()
        ranking = fill(size)
        client, key = ranking.store.client, ranking.store.live.root
        fill_spread(client, "spread", size)
        asking = askers(client, key)
        holds = ranking.recommend(asking[0], WANTED, band=BAND).candidates + 1
        print(
            f"{holds:,} in the band of the first who asks, {perf_counter() - began:.0f} s to fill", flush=True
        )
        found: dict[str, Any] = {"holds": holds}
        rivals = {**ours(ranking, asking), **published(client, key, asking)}
        check(client, key, rivals)
        limits = dict(zip(LIMITS, (one_rank(client, key), client.ping), strict=True))
        by_itself = ours(ranking, asking)
        exclusions = {**by_itself, **ours(ranking, asking, exclude=friends(client, key))}
        database = stack.enter_context(private_postgresql()) if with_database else None
        in_sql = postgresql(database, size, client, key, asking) if database else {}

        sql = {"F: PostgreSQL, ORDER BY random()": in_sql["random"]} if in_sql else {}
        found[TITLE] = table(
            TITLE, client, {**rivals, **sql, **limits}, rounds, (REPLACING, WINDOW, OURS), sql
        )
        found[TITLE_WHOLE] = table(TITLE_WHOLE, client, by_itself, rounds, (OURS,))
        found[TITLE_EXCLUDED] = table(TITLE_EXCLUDED, client, exclusions, rounds, (OURS, WHOLE))
        whose = turns(asking)
        ranks: dict[str, Ask] = {
            "django-zrank, rank()": lambda: ranking.rank(int(next(whose))),
            "ZREVRANK": lambda: client.zrevrank(key, next(whose)),
        }
        sql = {"F: PostgreSQL, COUNT(*)": in_sql["rank"]} if in_sql else {}
        found["rank"] = table("rank", client, {**ranks, **sql}, rounds, ("ZREVRANK",), sql)
        if with_many:
            for title, at_once in zip(TITLES_MANY, many(ranking, asking), strict=True):
                found[title] = table(title, client, at_once, max(rounds // 100, 3), (REPLACING,), blocks=5)
    return found


def table(
    title: str,
    client: redis.Redis,
    rivals: Mapping[str, Ask],
    rounds: int,
    bases: Sequence[str],
    elsewhere: Iterable[str] = (),
    blocks: int = BLOCKS,
) -> dict[str, Any]:
    """Measure and print. ``bases``: whom ratios are to. ``elsewhere``: those who don't ask the Redis server."""
    seconds = compare(rivals, rounds, LIMIT)
    here = {name: ask for name, ask in rivals.items() if name not in elsewhere}
    of_server = server_seconds(client, here, blocks, max(rounds // blocks, 1))
    print(f"\n{title}")
    width = max(map(len, rivals))
    over = "".join(f"{SHORT[base]:>9}" for base in bases)
    heads = (f"{where:>12}{'least':>9}{'most':>10}{over}" for where in ("server µs", "client µs"))
    print(f"{'':{width}}{' '.join(heads)}")
    for name, taken in seconds.items():
        line = f"{name:{width}}"
        for kind in (of_server, seconds):
            line += "  " + _row(kind, name, bases)
        if len(taken) < rounds:
            line += f"  {len(taken)} rounds"
        print(line, flush=True)
    return {
        "bases": list(bases),
        "server": {base: figures(of_server, base) for base in bases},
        "client": {base: figures(seconds, base) for base in bases},
    }


def _row(seconds: Mapping[str, list[float]], name: str, bases: Sequence[str]) -> str:
    if name not in seconds:
        return f"{'-':>10}{'-':>9}{'-':>10}{'-':>9}" + " " * 9 * (len(bases) - 1) + " "
    taken = seconds[name]
    row = "".join(
        f"{time * 1e6:{width},.0f}"
        for time, width in ((statistics.median(taken), 10), (min(taken), 9), (max(taken), 10))
    )
    ratios = (statistics.median(taken) / statistics.median(seconds[base]) for base in bases)
    return row + "".join(f"{ratio:9.2f}" for ratio in ratios) + " "


def server_seconds(
    client: redis.Redis, rivals: Mapping[str, Ask], blocks: int, calls: int
) -> dict[str, list[float]]:
    """Seconds a call that the server reckons, one figure a block: the blocks of the rivals in turns.

    A script's own time holds that of the commands it calls, so these are not added to it.
    """
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    turns_, rng = list(rivals.items()), random.Random(2)
    spent = dict.fromkeys(rivals, 0.0)
    for _ in range(blocks):
        rng.shuffle(turns_)
        for name, ask in turns_:
            if spent[name] > LIMIT:
                continue
            client.config_resetstat()
            began, made = perf_counter(), 0
            while made < calls and (made == 0 or perf_counter() - began < LIMIT / blocks):
                ask()
                made += 1
            spent[name] += perf_counter() - began
            seconds[name].append(_spent(client) / made)
    return seconds


def _spent(client: redis.Redis) -> float:
    """Seconds in commands since the last CONFIG RESETSTAT."""
    stats: Any = client.info("commandstats")
    each = {name.removeprefix("cmdstat_"): stat["usec"] for name, stat in stats.items()}
    each = {name: usec for name, usec in each.items() if not name.startswith(("config", "client", "info"))}
    scripts = SCRIPTS & each.keys()
    return float(sum(each[name] for name in scripts or each)) / 1e6


# The population


def fill(size: int) -> Any:
    """The pyramid in an index of ours, which is a sorted set and nothing else; its ranking."""
    from django_zrank import RankIndex
    from tests.populations import load
    from tests.testapp.models import Competitor

    class Levels(RankIndex):
        model = Competitor
        order = ("-points",)
        name = "levels"

    load(Levels, by_level(size))
    return Levels.ranking


def fill_spread(client: redis.Redis, key: str, size: int) -> None:
    """The same members with E's scores."""
    rng = random.Random(3)

    def pairs() -> Iterator[tuple[int, int]]:
        for level, members in groupby(by_level(size), itemgetter(1)):
            # Sorted, as it goes in faster.
            yield from sorted((level * SPREAD + rng.randrange(SPREAD), pk) for pk, _ in members)

    remaining = pairs()
    while batch := list(islice(remaining, 5000)):
        client.execute_command("ZADD", key, *(word for pair in batch for word in pair))  # type: ignore[no-untyped-call]


def askers(client: Any, key: str, count: int = 2000) -> list[bytes]:
    """Random members of dense levels."""
    first, end = client.zcount(key, "-inf", f"({ASKERS[0]}"), client.zcount(key, "-inf", ASKERS[1])
    rng, pipeline = random.Random(1), client.pipeline(transaction=False)
    for _ in range(count):
        at = rng.randrange(first, end)
        pipeline.zrange(key, at, at)
    return [member for (member,) in pipeline.execute()]


def friends(client: Any, key: str) -> list[int]:
    """Other members of the same levels."""
    return [int(member) for member in askers(client, key, 2000 + FRIENDS)[2000:]]


def turns(asking: Sequence[bytes]) -> Iterator[bytes]:
    return cycle(asking)


# The rivals


def published(client: Any, key: str, asking: Sequence[bytes], wanted: int = WANTED) -> dict[str, Ask]:
    """A to E."""
    whose, rng = turns(asking), random.Random(4)
    c, d = client.script_load(C), client.script_load(D)

    def commands() -> Any:
        score = client.zscore(key, next(whose))
        below = client.zcount(key, score - BAND, f"({score}")
        above = client.zcount(key, score, score + BAND)
        offset = rng.randrange(max(1, below + above - wanted + 1))
        return client.zrangebyscore(key, score - BAND, score + BAND, start=offset, num=wanted)

    def window() -> Any:
        score = client.zscore(key, next(whose))
        first = client.zcount(key, "-inf", f"({score - BAND}")
        holds = client.zcount(key, score - BAND, score + BAND)
        at = first + rng.randrange(max(1, holds - wanted + 1))
        return client.zrange(key, at, at + wanted - 1)

    def pivots() -> Any:
        score = client.zscore("spread", next(whose))
        low, high = score - BAND * SPREAD, score + BAND * SPREAD
        pipeline = client.pipeline(transaction=False)
        pipeline.zrevrangebyscore("spread", rng.uniform(low, score), low, start=0, num=wanted // 2)
        pipeline.zrangebyscore("spread", rng.uniform(score, high), high, start=0, num=wanted - wanted // 2)
        below, above = pipeline.execute()
        return below + above

    return {
        "A: LIMIT offset, four commands": commands,
        "B: window, four commands": window,
        WINDOW: lambda: client.evalsha(c, 1, key, next(whose), BAND, wanted),
        REPLACING: lambda: client.evalsha(d, 1, key, next(whose), BAND, wanted),
        "E: two runs, three commands": pivots,
    }


def ours(
    ranking: Any, asking: Sequence[bytes], wanted: int = WANTED, exclude: Sequence[int] = ()
) -> dict[str, Ask]:
    """The bare script call, with what the API sends, and the whole call."""
    pks = list(map(int, asking))
    with recorded() as sent:
        # Not the same few draws over and over: what they find would stay in the processor's caches.
        for pk in pks[: max(20, 200_000 // wanted)]:
            ranking.recommend(pk, wanted, band=BAND, exclude=exclude)
    bare, whose, client = cycle(sent), cycle(pks), ranking.store.client
    return {
        excluding(OURS, len(exclude)): lambda: client.execute_command(*next(bare)),
        excluding(WHOLE, len(exclude)): lambda: ranking.recommend(
            next(whose), wanted, band=BAND, exclude=exclude
        ),
    }


def excluding(name: str, count: int) -> str:
    return f"{name}, {count:,} excluded" if count else name


@contextmanager
def recorded() -> Iterator[list[tuple[Any, ...]]]:
    """The calls of sample_nearby() that are made inside."""
    from django_zrank.redis.scripts import SAMPLE_NEARBY

    send, sent = redis.Redis.execute_command, list[tuple[Any, ...]]()

    def note(self: redis.Redis, *words: Any, **options: Any) -> Any:
        if words[:2] == ("EVALSHA", SAMPLE_NEARBY.sha):
            sent.append(words)
        return send(self, *words, **options)  # type: ignore[no-untyped-call]

    with mock.patch.object(redis.Redis, "execute_command", note):
        yield sent
    if not sent:
        raise SystemExit("recommend() did not send its script by execute_command(): nothing to ask bare")


def one_rank(client: Any, key: str) -> Ask:
    rng, size = random.Random(5), client.zcard(key)

    def read() -> Any:
        at = rng.randrange(size)
        return client.zrange(key, at, at)

    return read


def postgresql(connection: Any, size: int, client: Any, key: str, asking: Sequence[bytes]) -> dict[str, Ask]:
    """F. It is given the score of the member that asks, as from an instance at hand."""
    connection.execute("CREATE TABLE player (id bigint PRIMARY KEY, level int NOT NULL)")
    with connection.cursor().copy("COPY player (id, level) FROM STDIN (FORMAT BINARY)") as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
        row, rows = struct.Struct(">hiqii"), by_level(size)
        while batch := list(islice(rows, 10_000)):
            copy.write(b"".join(row.pack(2, 8, pk, 4, level) for pk, level in batch))
        copy.write(b"\xff\xff")
    connection.execute("CREATE INDEX ON player (level, id)")
    connection.execute("VACUUM ANALYZE player")
    levels = map(int, client.zmscore(key, asking))
    whose = cycle([{"pk": int(pk), "level": level} for pk, level in zip(asking, levels, strict=True)])
    in_band = f"level BETWEEN %(level)s - {BAND} AND %(level)s + {BAND} AND id <> %(pk)s"
    statements = {
        "random": f"SELECT id FROM player WHERE {in_band} ORDER BY random() LIMIT {WANTED}",
        "rank": "SELECT count(*) FROM player WHERE level > %(level)s",
    }

    def ask(statement: str) -> Ask:
        return lambda: connection.execute(statement, next(whose), prepare=True).fetchall()

    return {name: ask(statement) for name, statement in statements.items()}


def many(ranking: Any, asking: Sequence[bytes]) -> list[dict[str, Ask]]:
    """Those who draw very many: by one call, and by many calls."""
    client, key = ranking.store.client, ranking.store.live.root
    times = AT_ONCE // FEW
    with override_settings(ZRANK={**getattr(settings, "ZRANK", {}), "MAX_N": AT_ONCE}):
        at_once = ours(ranking, asking, AT_ONCE)
    few = ours(ranking, asking, FEW)

    def raised(ask: Ask) -> Ask:
        return override_settings(ZRANK={**getattr(settings, "ZRANK", {}), "MAX_N": AT_ONCE})(ask)

    def each(ask: Ask) -> Ask:
        return lambda: [ask() for _ in range(times)]

    def draw(wanted: int) -> Ask:
        return published(client, key, asking, wanted)[REPLACING]

    return [
        {OURS: at_once[OURS], WHOLE: raised(at_once[WHOLE]), REPLACING: draw(AT_ONCE)},
        {OURS: each(few[OURS]), WHOLE: each(few[WHOLE]), REPLACING: each(draw(FEW))},
    ]


def check(client: Any, key: str, rivals: Mapping[str, Ask]) -> None:
    """Check that each answers with members of the right levels, and ours with as many different ones as wanted."""
    for name, ask in rivals.items():
        for _ in range(20 if name != OURS else 0):  # of the script's reply the API makes what WHOLE answers
            answer = ask()
            members = [entry.pk for entry in answer] if name == WHOLE else answer
            levels = client.zmscore(key, members)
            is_right = (
                levels
                and None not in levels
                and max(levels) - min(levels) <= 2 * BAND
                and len(levels) <= WANTED
            )
            if not is_right or (name == WHOLE and len(set(members)) < WANTED):
                raise SystemExit(f"{name} answers with {members}, of levels {levels}")


# What comes out


def _median(found: Mapping[str, Any], kind: str, name: str) -> float | None:
    each: Figures = found[kind][REPLACING]
    return each[name]["median"] if name in each else None


def plot(path: Path, server: str, measured: Mapping[int, Mapping[str, Any]]) -> None:
    """Draw time against members, a line for each rival: the server's on the left, the client's on the right."""
    sizes = sorted(measured)
    names = list(measured[sizes[0]][TITLE]["client"][REPLACING])
    figure, panels = pyplot().subplots(1, 2, figsize=(13, 6), sharey=True, layout="constrained")
    unseen = {
        "server": {WHOLE, "PING"},
        "client": set[str](),
    }  # of the first the script is seen, of the other nothing
    for panel, kind, label in zip(panels, unseen, ("Time on the server", "Latency"), strict=True):
        for number, name in enumerate(names):
            places = {size: _median(measured[size][TITLE], kind, name) for size in sizes}
            known = {size: median * 1e6 for size, median in places.items() if median}
            if not known or name in unseen[kind]:
                continue
            style = "--" if name == WHOLE else ":" if name in LIMITS else "-"
            width = 3 if name in (OURS, WHOLE) else 1.5
            color = "black" if name in (OURS, WHOLE) else f"C{number}"
            panel.plot(
                known.keys(),
                known.values(),
                label=name,
                color=color,
                linestyle=style,
                linewidth=width,
                marker="o",
            )
        panel.set(yscale="log")
        over_members(panel, sizes, f"{label}, median")
    panels[0].set_ylabel("microseconds a call")
    figure.suptitle(f"{WANTED} random members of a band that holds 26 to 39 % of all, {server}")
    # In the order of the lines' right ends.
    lines = sorted(panels[1].get_lines(), key=lambda line: -line.get_ydata()[-1])
    figure.legend(handles=lines, loc="outside right center")
    figure.savefig(path, dpi=120)
    print(f"\n{path}")


if __name__ == "__main__":
    main()
