"""check_demo.py FIRST SECOND: check the output of two runs of ``demo --players 5000 --no-serve --json``.

One JSON object each, with ten opponents for three players; the second run finds what the first one left.
"""

import json
import sys
from pathlib import Path
from typing import Any

PLAYERS = 5000


def check_scene(scene: dict[str, Any]) -> None:
    """Check for ten distinct opponents inside the band, half on each side if both sides have enough."""
    me, opponents = scene["player"], scene["opponents"]
    below, above = scene["band"]
    ranks = [opponent["rank"] for opponent in opponents]
    assert len(ranks) == 10, "not ten opponents"
    assert ranks == sorted(set(ranks)), "not distinct, or not best rank first"
    assert me["rank"] not in ranks, "the player is among the opponents"
    assert all(1 <= rank <= PLAYERS for rank in ranks), "a rank out of range"
    assert all(-below <= one["level"] - me["level"] <= above for one in opponents), "outside the band"
    assert scene["candidates"] >= 10, "more drawn than candidates"
    if scene["role"] == "middle":
        assert sum(rank < me["rank"] for rank in ranks) == 5, "not balanced"


def check_run(path: str, *, created: int) -> None:
    """Check the output of one run."""
    shown = json.loads(Path(path).read_text())
    assert shown["players"] == PLAYERS, "not as many players as asked for"
    assert shown["created"] == created, f"{shown['created']} players created, not {created}"
    assert [scene["role"] for scene in shown["scenes"]] == ["lowest", "middle", "highest"]
    for scene in shown["scenes"]:
        check_scene(scene)
    lowest, middle, highest = (scene["player"] for scene in shown["scenes"])
    assert highest["rank"] == 1 < middle["rank"] < lowest["rank"] <= PLAYERS, "ranks contradict levels"
    (old_level, new_level), (old_rank, new_rank) = shown["change"]["level"], shown["change"]["rank"]
    assert new_level > old_level, "the level did not rise"
    assert new_rank < old_rank, "the rank did not rise"
    print(f"demo ok: ranks {lowest['rank']}, {middle['rank']}, {highest['rank']}; {old_rank} -> {new_rank}")


check_run(sys.argv[1], created=PLAYERS)
check_run(sys.argv[2], created=0)
