"""Charts as inline SVG. Lengths across are per cent of the page, those of text are not: so a chart fits every width, in
letters that can be read, and takes its colours from the page, light or dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from remuda._reports.markup import Html, element, escaped

_ROW, _TOP, _THICK = 48, 22, 14  # of bars, in pixels
_HEIGHT = 160  # of a histogram's columns
_MOST_BINS = 40
_ROOM = 1.03  # beyond the longest bar


@dataclass(frozen=True)
class Bar:
    """A bar from 0 on.

    Attributes:
        name: What it is of.
        length: In the unit of all bars of a chart.
        told: Its figure, as text.
        dots: Single measurements, of which `length` is the middle.
        is_best: Drawn so that it is seen first.
    """

    name: str
    length: float
    told: str
    dots: Sequence[float] = ()
    is_best: bool = False


def bars(rows: Sequence[Bar], what: str, mark: tuple[float, str] | None = None) -> Html:
    """Bars below each other. `what`: for those who cannot see it; `mark`: a line across all of them, and its name."""
    longest = max([*(max([row.length, *row.dots]) for row in rows), mark[0] if mark else 0.0], default=0.0)
    across = _Scale(0.0, _ROOM * longest)
    height = _TOP + _ROW * len(rows)
    drawn = [_bar(row, _TOP + _ROW * number, across) for number, row in enumerate(rows)]
    if mark is not None:  # not through the figures above the bars
        tops = [_TOP + _ROW * number + 20 for number in range(len(rows))]
        drawn += _line(across.percent(mark[0]), mark[1], [(top - 4, top + _THICK + 4) for top in tops])
    return _svg(height, what, drawn)


def histogram(values: Iterable[float], what: str, mark: tuple[float, str] | None = None) -> Html:
    """How often values come up; those that are not finite are left out. `mark`: a value, and its name."""
    finite = np.asarray([value for value in values if math.isfinite(value)], np.float64)
    if not len(finite):
        return Html("")
    counts, edges = _counted(finite)
    across, base = _Scale(float(edges[0]), float(edges[-1])), _TOP + _HEIGHT
    most = int(counts.max())
    drawn = [
        _column(int(count), (float(low), float(high)), across, most)
        for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True)
        if count
    ]
    drawn.append(element("line", x1=0, x2="100%", y1=base, y2=base, class_="axis"))
    drawn.append(element("text", short(float(edges[0])), x=0, y=base + 16))
    drawn.append(element("text", short(float(edges[-1])), x="100%", y=base + 16, text_anchor="end"))
    drawn.append(element("text", f"tallest: {most}", x="50%", y=base + 16, text_anchor="middle"))
    if mark is not None and math.isfinite(mark[0]):
        drawn += _line(across.percent(mark[0]), mark[1], [(_TOP - 5, base)])
    return _svg(base + 22, what, drawn)


def short(value: float) -> str:
    """Four digits that count, also of large numbers: 12345 is 12.35k."""
    for unit in ("", "k", "M"):
        if abs(value) < 9999.5 if unit == "" else abs(value) < 999.95:
            return f"{value:.4g}{unit}"
        value /= 1000
    return f"{value:.4g}G"


@dataclass(frozen=True)
class _Scale:
    """From values to per cent of the width."""

    low: float
    high: float

    def percent(self, value: float) -> float:
        span = self.high - self.low
        return 100.0 * (value - self.low) / span if span > 0 else 0.0


def _counted(values: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """As many bins as suit the spread, but not so many that nobody can tell them apart."""
    if values.min() == values.max():
        return np.histogram(values, bins=1)
    bins = len(np.histogram_bin_edges(values[:10_000], "sturges")) - 1
    return np.histogram(values, bins=min(2 * bins, _MOST_BINS))


def _svg(height: int, what: str, drawn: list[Html]) -> Html:
    return element("svg", *drawn, width="100%", height=height, role="img", aria_label=what)


def _bar(row: Bar, top: int, across: _Scale) -> Html:
    middle = top + 20 + _THICK / 2
    shape = element(
        "rect", x=0, y=top + 20, height=_THICK, width=_percent(across.percent(row.length)), rx=2,
        class_="best" if row.is_best else "bar",
    )  # fmt: skip
    dots = [element("circle", cx=_percent(across.percent(dot)), cy=middle, r=2.5, class_="dot") for dot in row.dots]
    name = element("text", row.name, x=0, y=top + 14, class_="name")
    figure = element("text", row.told, x="100%", y=top + 14, text_anchor="end")
    return element("g", element("title", f"{row.name}: {row.told}"), name, figure, shape, *dots)


def _column(count: int, edges: tuple[float, float], across: _Scale, most: int) -> Html:
    low, high = (across.percent(edge) for edge in edges)
    tall = max(1.0, _HEIGHT * count / most)
    told = element("title", f"{short(edges[0])} to {short(edges[1])}: {count}")
    return element(
        "rect", told, x=_percent(low), width=_percent(0.92 * (high - low)), y=f"{_TOP + _HEIGHT - tall:.1f}",
        height=f"{tall:.1f}", class_="best",
    )  # fmt: skip


def _line(percent: float, name: str, pieces: Sequence[tuple[int, int]]) -> list[Html]:
    """`pieces`: from where to where down the page."""
    at = _percent(percent)
    anchor = "start" if percent < 25 else "end" if percent > 75 else "middle"
    lines = [element("line", x1=at, x2=at, y1=top, y2=bottom, class_="mark") for top, bottom in pieces]
    return [*lines, element("text", escaped(name), x=at, y=12, text_anchor=anchor, class_="mark")]


def _percent(value: float) -> str:
    return f"{value:.2f}%"
