"""Bar charts as SVG: a few rectangles and words, which follow the reader's light or dark theme. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, LABEL, VALUE = 720, 190, 110
ROW, BAR, TOP = 26, 16, 34
WIDE = 30.0
"""From this ratio of the largest bar to the smallest on, the scale is logarithmic."""
STYLE = (
    "text{font:13px sans-serif;fill:#1f2328}.title{font-weight:600}.bar{fill:#8c959f}.ours{fill:#0969da}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.bar{fill:#6e7681}.ours{fill:#4493f8}}"
)


class Bar(NamedTuple):
    label: str
    value: float
    text: str
    ours: bool = False


def bars(title: str, rows: Sequence[Bar]) -> str:
    """A horizontal bar for each row."""
    scale, note = _scale([row.value for row in rows])
    height = TOP + ROW * len(rows) + 6
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    lines = [head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>"]
    lines.append(f'<text class="title" x="0" y="18">{escape(title + note)}</text>')
    for number, row in enumerate(rows):
        y = TOP + ROW * number
        length = round(scale(row.value) * (WIDTH - LABEL - VALUE), 1)
        lines.append(f'<text x="{LABEL - 8}" y="{y + 13}" text-anchor="end">{escape(row.label)}</text>')
        kind = "ours" if row.ours else "bar"
        lines.append(f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{length}" height="{BAR}"/>')
        lines.append(f'<text x="{round(LABEL + length + 6, 1)}" y="{y + 13}">{escape(row.text)}</text>')
    return "\n".join([*lines, "</svg>", ""])


class _Linear(NamedTuple):
    most: float

    def __call__(self, value: float) -> float:
        return value / self.most if self.most else 0.0


class _Logarithmic(NamedTuple):
    least: float
    most: float

    def __call__(self, value: float) -> float:
        """The smallest bar has a tenth of the width."""
        return 0.1 + 0.9 * math.log(max(value, self.least) / self.least) / math.log(self.most / self.least)


def _scale(values: Sequence[float]) -> tuple[_Linear | _Logarithmic, str]:
    """Value -> part of the width, and a note for the title."""
    positive = [value for value in values if value > 0]
    if positive and max(positive) / min(positive) >= WIDE:
        return _Logarithmic(min(positive), max(positive)), " (logarithmic scale)"
    return _Linear(max(positive, default=0.0)), ""
