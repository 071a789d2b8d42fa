"""The options of a run."""

from __future__ import annotations

import argparse
from random import SystemRandom
from typing import Final

from tests.torture.clustered import Clustered
from tests.torture.databases import DATABASES
from tests.torture.pair import Pair
from tests.torture.single import Single
from tests.torture.watched import Watched

__all__ = ["BREAKS", "DEPLOYMENTS", "KINDS", "PROCESSES", "REBUILDING", "parse_options"]

DEPLOYMENTS: Final = {"single": Single, "pair": Pair, "sentinel": Watched, "cluster": Clustered}
"""One server; two, failed over by hand, fast and roughly; two with three Sentinels; a cluster of three and three."""

PROCESSES: Final = {"writer": 6.0, "drainer": 5.0, "rebuild": 3.0, "pause": 4.0, "interrupt": 3.0}
"""The relative frequency of each strike against a process. The last two don't kill."""

KINDS: Final = {
    **PROCESSES,
    "connection": 3.0,
    "database": 0.2,
    "migration": 0.3,
    "triggers": 0.3,
    "release": 0.4,
    "table": 0.3,
    "locks": 1.0,
    "read-only": 1.0,
    "memory": 1.0,
    "redis-dump": 2.0,
    "redis-empty": 0.4,
    "kill": 1.5,
    "failover": 2.0,
    "back": 1.5,
    "split": 2.0,
    "partition": 2.0,
    "freeze": 1.0,
    "slot": 2.0,
    "sentinel": 1.0,
}
"""The relative frequency of each strike. Those that a deployment can't have are left out."""

REBUILDING: Final = ("rebuild", "redis-dump", "redis-empty", "migration", "triggers", "release", "table")
"""Operations that lead to a new build, which repairs what is wrong."""

BREAKS: Final = (
    "token_after_read",
    "no_guard",
    "one_refusal",
    "no_term",
    "no_replay",
    "no_guard_key",
    "no_capture",
)
"""The ways to break the protocol: see ``breaks.py``."""


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture",
        description="Kills everything, then compares all of Redis with all of the database.",
    )
    parser.add_argument("--database", choices=DATABASES, default="sqlite")
    parser.add_argument(
        "--redis",
        choices=DEPLOYMENTS,
        default="single",
        help="Who takes over when it fails. Default: nobody.",
    )
    parser.add_argument(
        "--pinned",
        type=float,
        default=0.15,
        help="The share of processes that know one server, and follow no failover. Default: 0.15.",
    )
    parser.add_argument("--seconds", type=float, default=30, help="How long to kill. Default: 30.")
    parser.add_argument("--kills", type=int, help="How many kills, in these seconds. Default: 4 a second.")
    parser.add_argument(
        "--round", type=float, default=12, help="Seconds between two comparisons. Default: 12."
    )
    parser.add_argument("--seed", type=int, help="What is done and killed. Default: a random one.")
    parser.add_argument("--shards", type=int, default=1, help="Shards of each index. Default: 1.")
    parser.add_argument("--writers", type=int, default=10, help="Processes that write. Default: 10.")
    parser.add_argument("--drainers", type=int, default=2, help="Processes that drain. Default: 2.")
    parser.add_argument(
        "--without", nargs="+", choices=KINDS, default=[], help="What is not killed (nor run)."
    )
    parser.add_argument("--break", dest="broken", choices=BREAKS, help="Break the protocol on purpose.")
    parser.add_argument(
        "--lease",
        type=float,
        default=3,
        help="Seconds after which a rebuild counts as dead and a token as old: ten minutes, in the product.",
    )
    parser.add_argument(
        "--keep-marks", type=float, default=20, help="Seconds that drained marks are kept. Default: 20."
    )
    options = parser.parse_args()
    if options.seed is None:
        options.seed = SystemRandom().randrange(10**6)
    if options.kills is None:
        options.kills = round(4 * options.seconds)
    return options
