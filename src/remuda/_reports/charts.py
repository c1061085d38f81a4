"""A bar chart, drawn by matplotlib as a picture in a file."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda._system import machine

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INK, _BEST, _BAR, _MARK = "#000000", "#1b7f5c", "#a9b4bd", "#b5482a"
# With these settings, an SVG contains text as text elements, and a dollar sign does not begin a formula.
_STYLE = {"svg.fonttype": "none", "text.parse_math": False, "axes.spines.top": False, "axes.spines.right": False}
_MOST_CHARACTERS = 100  # in a line below a picture


@dataclass(frozen=True)
class Bar:
    """A bar of a bar chart.

    Attributes:
        name: The thing that was measured.
        length: In the unit of all bars of a chart.
        label: The figure as text.
        dots: Single measurements, of which `length` is the median.
        is_best: Whether the bar has the color of the best.
    """

    name: str
    length: float
    label: str
    dots: Sequence[float] = ()
    is_best: bool = False


@dataclass(frozen=True, kw_only=True)
class Bars:
    """A chart of horizontal bars.

    Attributes:
        heading: The quantity that the chart shows.
        bars: The bars, from the top.
        mark: A value to draw a line at, and the name of the line.
        note: Explains the chart.
    """

    heading: str
    bars: Sequence[Bar]
    mark: tuple[float, str] | None = None
    note: str = ""

    @property
    def height(self) -> float:
        """The height of the chart in inches. Its width is 8 inches."""
        return 1.5 + 0.55 * len(self.bars)

    def draw(self, axes: Any) -> None:
        """Draws the bars into matplotlib's axes, without the line for `mark`."""
        from matplotlib.ticker import EngFormatter

        for row, bar in enumerate(self.bars):
            axes.barh(row, bar.length, height=0.6, color=_BEST if bar.is_best else _BAR)
            axes.plot(bar.dots, [row] * len(bar.dots), "o", markersize=3, color=_INK, alpha=0.45)
        axes.set_yticks(range(len(self.bars)), [f"{bar.name}\n{bar.label}" for bar in self.bars])
        axes.invert_yaxis()
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def save_picture(chart: Bars, title: str, path: Path) -> None:
    """Draws a chart, with its title and a description of the machine, into a ``.png`` or ``.svg`` file."""
    from matplotlib import style

    with style.context(["default", _STYLE]):  # the program's own settings of matplotlib have no effect
        figure = _draw(chart)
        figure.axes[0].set_title(title, loc="left", pad=18)
        lines = "\n".join(filter(None, (chart.heading, chart.note, machine.describe()))).split("\n")
        figure.axes[0].set_xlabel("\n".join(textwrap.fill(line, _MOST_CHARACTERS) for line in lines))
        figure.savefig(path, dpi=160)


def _draw(chart: Bars) -> Figure:
    from matplotlib.figure import Figure  # pyplot is not used, because it needs a display

    figure = Figure(figsize=(8.0, chart.height), layout="constrained")
    axes = figure.add_subplot()
    chart.draw(axes)
    if chart.mark is not None and math.isfinite(chart.mark[0]):
        value, name = chart.mark
        axes.axvline(value, color=_MARK, linestyle="--", linewidth=1)
        axes.annotate(
            name,
            (value, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            color=_MARK,
            horizontalalignment="center",
        )
    return figure
