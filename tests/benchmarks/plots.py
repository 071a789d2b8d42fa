"""Plots: what was measured against the number of members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["over_members", "pyplot"]


def pyplot() -> Any:
    """Matplotlib's, without a screen. Says what to install where it is missing."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("--plot: pip install matplotlib") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def over_members(panel: Any, sizes: Sequence[int], title: str) -> None:
    """Axes of one panel: members to the right, one tick for each size."""
    panel.set(xscale="log", xlabel="members", title=title)
    panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
    panel.minorticks_off()
    panel.margins(x=0.1)
    panel.grid(True, alpha=0.3)
    panel.yaxis.set_major_formatter("{x:,.0f}")
