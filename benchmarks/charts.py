"""Charts as SVG text: horizontal bars on a logarithmic scale, on both sides of 1.

Written by hand, since a bar needs no library. Invariant: a chart is legible on light and on dark
pages. The background is transparent, the bars have colours of middle lightness, and the text
follows the reader's colour scheme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH = 860
LABEL_WIDTH = 430
VALUE_WIDTH = 80
ROW_HEIGHT = 22
BAR_HEIGHT = 14
HEAD_HEIGHT = 64
FOOT_HEIGHT = 12

GOOD = "#2f81c4"
BAD = "#d9722e"

STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #3d444d }
  .title { font-size: 15px; font-weight: 600; fill: #1f2328 }
  .axis { stroke: #8b949e; stroke-width: 1 }
  @media (prefers-color-scheme: dark) {
    text { fill: #b7bfc8 }
    .title { fill: #f0f6fc }
  }
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of a chart: a factor, drawn to the right of 1 if it is above, else to the left."""

    label: str
    factor: float


def bar_chart(title: str, note: str, bars: Sequence[Bar], *, more_is_better: bool) -> str:
    """Return an SVG document with one bar for each factor, in the given order.

    Bars on the wrong side of 1 have the other colour. Raises ValueError without any bar, or for a
    factor that is not above 0.
    """
    if not bars or any(bar.factor <= 0 for bar in bars):
        raise ValueError("a chart needs factors above 0")
    logs = [math.log(bar.factor) for bar in bars]
    low, high = min(*logs, 0.0), max(*logs, 0.0)
    # A chart of ones alone still needs a scale.
    scale = (WIDTH - LABEL_WIDTH - 2 * VALUE_WIDTH) / max(high - low, math.log(2))
    one = LABEL_WIDTH + VALUE_WIDTH - low * scale
    height = HEAD_HEIGHT + ROW_HEIGHT * len(bars) + FOOT_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        f' width="{WIDTH}" height="{height}" role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="0" y="18">{escape(title)}</text>',
        f'<text x="0" y="38">{escape(note)}</text>',
        f'<text x="{one:.1f}" y="{HEAD_HEIGHT - 8}" text-anchor="middle">1x</text>',
    ]
    for place, (bar, log) in enumerate(zip(bars, logs, strict=True)):
        lines += _bar(bar, log, one, scale, HEAD_HEIGHT + ROW_HEIGHT * place, more_is_better)
    lines += [
        f'<line class="axis" x1="{one:.1f}" y1="{HEAD_HEIGHT - 4}" x2="{one:.1f}"'
        f' y2="{height - FOOT_HEIGHT}"/>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _bar(
    bar: Bar, log: float, one: float, scale: float, top: float, more_is_better: bool
) -> list[str]:
    middle = top + ROW_HEIGHT / 2
    length = abs(log) * scale
    start, end = (one, one + length) if log >= 0 else (one - length, one)
    colour = GOOD if (log >= 0) == more_is_better or bar.factor == 1 else BAD
    anchor, value_x = ("start", end + 6) if log >= 0 else ("end", start - 6)
    return [
        f'<text x="0" y="{middle + 4:.1f}">{escape(bar.label)}</text>',
        f'<rect x="{start:.1f}" y="{middle - BAR_HEIGHT / 2:.1f}" width="{max(length, 1):.1f}"'
        f' height="{BAR_HEIGHT}" rx="2" fill="{colour}"/>',
        f'<text x="{value_x:.1f}" y="{middle + 4:.1f}" text-anchor="{anchor}">'
        f"{_shown(bar.factor)}</text>",
    ]


def _shown(factor: float) -> str:
    return (
        f"{factor:.0f}x"
        if factor >= 100
        else f"{factor:.1f}x"
        if factor >= 10
        else f"{factor:.2f}x"
    )
