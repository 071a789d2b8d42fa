"""Draw the README's picture, ten opponents of one player on an axis of levels, from a run of the demo.

From the root of a checkout:

    python example_project/manage.py demo --players 20000 --no-serve --json > demo.json
    python docs/images/draw.py < demo.json > docs/images/draw.svg
"""

from __future__ import annotations

import json
import sys
from html import escape
from typing import Any

WIDTH, ROW, TOP, SIDE = 480, 30, 124, 28  # narrow: on a phone, too, the text can be read
INK, GREY, LINE, ABOVE, BELOW, ME = "#1f1d24", "#6a6670", "#dcd9d3", "#0b6b62", "#9a4508", "#3b38a0"
FONT = 'font-family="system-ui, Segoe UI, Helvetica, Arial, sans-serif"'


def picture(scene: dict[str, Any], players: int) -> str:
    """Return the SVG of one scene: opponents above the player in one colour, below in another."""
    me, opponents = scene["player"], scene["opponents"]
    below, above = scene["band"]
    level = me["level"]
    bottom = TOP + ROW * len(opponents)

    def x(value: float) -> float:
        return SIDE + (WIDTH - 2 * SIDE) * (value - level + below) / (below + above)

    def text(at: float, y: float, said: str, anchor: str = "middle", **style: str) -> None:
        given = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in style.items())
        parts.append(f'<text x="{at:.1f}" y="{y:.1f}" text-anchor="{anchor}"{given}>{escape(said)}</text>')

    size = f'width="{WIDTH}" height="{bottom + 96}"'
    head = f'xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {bottom + 96}" role="img"'
    parts = [
        f'<svg {head} font-size="16" fill="{INK}" {FONT}>',
        f"<title>{len(opponents)} opponents near level {level}</title>",
        f'<rect {size} rx="10" fill="#fbfaf7"/>',
    ]
    title = f"{len(opponents)} random opponents near level {level}"
    text(WIDTH / 2, 42, title, font_size="22", font_weight="600")
    text(WIDTH / 2, 70, f"for {me['name']}, rank {me['rank']:,} of {players:,}", fill=GREY)
    for tick in range(level - below, level + above + 1, 5):
        parts.append(f'<path d="M{x(tick):.1f} {TOP - 18}V{bottom}" stroke="{LINE}"/>')
        text(x(tick), bottom + 22, str(tick), fill=GREY)
    for number, one in enumerate(opponents):
        y = TOP + ROW * number + ROW / 2 - 8
        is_above = one["rank"] < me["rank"]
        colour, end = ABOVE if is_above else BELOW, x(one["level"])
        parts.append(f'<path d="M{x(level):.1f} {y:.1f}H{end:.1f}" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<circle cx="{end:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>')
        # The name on the side where the line isn't.
        text(x(level) + (-12 if is_above else 12), y + 5, one["name"], "end" if is_above else "start")
    parts.append(f'<path d="M{x(level):.1f} {TOP - 24}V{bottom}" stroke="{ME}" stroke-width="3"/>')
    parts.append(f'<path d="M{SIDE} {bottom}H{WIDTH - SIDE}" stroke="{INK}" stroke-width="1.5"/>')
    half = sum(one["rank"] < me["rank"] for one in opponents)
    said = f"{half} ranked above, {len(opponents) - half} below, out of {scene['candidates']:,}"
    text(WIDTH / 2, bottom + 54, f"{said} players", fill=GREY)
    text(WIDTH / 2, bottom + 77, f"within {below} levels. Friends are left out.", fill=GREY)
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    shown = json.load(sys.stdin)
    (middle,) = (one for one in shown["scenes"] if one["role"] == "middle")
    sys.stdout.write(picture(middle, shown["players"]))
