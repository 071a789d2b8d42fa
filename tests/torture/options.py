"""What can be asked of a run."""

from __future__ import annotations

import argparse
from random import SystemRandom
from typing import Final

from tests.torture.servers import DATABASES

__all__ = ["BREAKS", "KINDS", "parse_options"]

KINDS: Final = {
    "writer": 6.0,
    "drainer": 5.0,
    "rebuild": 3.0,
    "connection": 3.0,
    "redis-dump": 2.0,
    "redis-empty": 0.4,
    "database": 0.2,
    "pause": 4.0,
    "interrupt": 3.0,
}
"""What may be done to them, and how often. All but the last two are kills."""

BREAKS: Final = ("token_after_read", "no_guard", "one_refusal")
"""How the protocol can be broken: see ``pace.py``."""


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture",
        description="Kills everything, then compares all of Redis with all of the database.",
    )
    parser.add_argument("--database", choices=DATABASES, default="sqlite")
    parser.add_argument("--seconds", type=float, default=30, help="How long to kill. Default: 30.")
    parser.add_argument("--kills", type=int, help="How many kills, in these seconds. Default: 4 a second.")
    parser.add_argument(
        "--round", type=float, default=12, help="Seconds between two comparisons. Default: 12."
    )
    parser.add_argument("--seed", type=int, help="What is done and killed. Default: a random one.")
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
