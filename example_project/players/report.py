"""The demo's results as text, and as plain types for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from .showcase import LevelChange, Line, Scene

COLUMNS = (("rank", ">", 8), ("name", "<", 22), ("level", ">", 6), ("distance", ">", 8), ("region", "<", 10))
"""Heading, alignment and width."""


def scene_lines(scene: Scene) -> Iterator[str]:
    """Yield a heading and a table of the opponents and the player, best rank first."""
    me = scene.player
    yield f"The {scene.role} level: {me.name}, level {me.level:,}, rank {me.rank:,}"
    candidates = "" if scene.candidates is None else f" of {scene.candidates:,}"
    yield (
        f"{len(scene.opponents)} drawn{candidates} within {_distance(scene.band)} levels, friends excluded"
    )
    yield ""
    yield _row(*(heading for heading, *_ in COLUMNS))
    yield _row(*("-" * width for *_, width in COLUMNS))
    for line in scene.ladder():
        yield _row(f"{line.rank:,}", line.name, f"{line.level:,}", _from(me, line), line.region)


def change_line(change: LevelChange) -> str:
    """Describe the change of a player's level in one line."""
    (level, new_level), (rank, new_rank) = change.level, change.rank
    told = f"{change.name} went from level {level:,} to {new_level:,}"
    if rank is None or new_rank is None:
        return f"{told}."
    if rank == new_rank:
        return f"{told}; rank {rank:,} as before."
    return f"{told}, and from rank {rank:,} to {new_rank:,}."


def as_plain(scenes: Iterable[Scene], change: LevelChange) -> dict[str, Any]:
    """All results, in plain types for JSON."""
    return {"scenes": [asdict(scene) for scene in scenes], "change": asdict(change)}


def _distance(band: tuple[float, float]) -> str:
    below, above = band
    return f"{below:,}" if below == above else f"{below:,} below and {above:,} above"


def _from(me: Line, line: Line) -> str:
    if line == me:
        return "you"
    return f"{line.level - me.level:+,}" if line.level != me.level else "same"


def _row(*cells: str) -> str:
    padded = (f"{cell:{align}{width}}" for cell, (_, align, width) in zip(cells, COLUMNS, strict=True))
    return "  ".join(padded).rstrip()
