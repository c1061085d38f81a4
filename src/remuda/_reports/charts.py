"""Charts, drawn by matplotlib: as a picture in a file, or as SVG in a page."""

from __future__ import annotations

import io
import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda._system import machine

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INK, _BEST, _BAR, _MARK = "#000000", "#1b7f5c", "#a9b4bd", "#b5482a"
# An HTML page replaces these colors by variables that suit a light and a dark screen.
_PAGE_COLORS = {_INK: "currentColor", _BEST: "var(--best)", _BAR: "var(--bar)", _MARK: "var(--mark)"}
# With these settings, an SVG contains text as text elements, and a dollar sign does not begin a formula.
_STYLE = {"svg.fonttype": "none", "text.parse_math": False, "axes.spines.top": False, "axes.spines.right": False}
_MOST_BINS = 40
_MOST_CHARACTERS = 100  # in a line below a picture


@dataclass(frozen=True, kw_only=True)
class Chart(ABC):
    """A chart.

    Attributes:
        heading: The quantity that the chart shows.
        mark: A value to draw a line at, and the name of the line.
        note: Explains the chart.
    """

    heading: str
    mark: tuple[float, str] | None = None
    note: str = ""

    @property
    @abstractmethod
    def height(self) -> float:
        """The height of the chart in inches. Every chart is 8 inches wide."""

    @abstractmethod
    def draw(self, axes: Any) -> None:
        """Draws the chart into matplotlib's axes, without the line for `mark`."""


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
class Bars(Chart):
    """A chart of horizontal bars."""

    bars: Sequence[Bar]

    @property
    def height(self) -> float:
        return 0.8 + 0.55 * len(self.bars)

    def draw(self, axes: Any) -> None:
        from matplotlib.ticker import EngFormatter

        for row, bar in enumerate(self.bars):
            axes.barh(row, bar.length, height=0.6, color=_BEST if bar.is_best else _BAR)
            axes.plot(bar.dots, [row] * len(bar.dots), "o", markersize=3, color=_INK, alpha=0.45)
        axes.set_yticks(range(len(self.bars)), [f"{bar.name}\n{bar.label}" for bar in self.bars])
        axes.invert_yaxis()
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


@dataclass(frozen=True, kw_only=True)
class Histogram(Chart):
    """A histogram of one or more finite values."""

    values: Sequence[float]
    height = 2.6

    def draw(self, axes: Any) -> None:
        different = len(set(self.values))
        by_sturges = math.ceil(math.log2(len(self.values))) + 1
        axes.hist(self.values, bins=min(different, 2 * by_sturges, _MOST_BINS), rwidth=0.92, color=_BEST)


def as_svg(chart: Chart) -> str:
    """Returns an svg element that fetches nothing and takes its colors from the page around it."""
    with _style():
        buffer = io.StringIO()
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        _draw(chart).savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    _, tag, element = buffer.getvalue().partition("<svg")
    for color, name in _PAGE_COLORS.items():
        element = element.replace(color, name)
    return tag + element


def save_picture(chart: Chart, title: str, path: Path) -> None:
    """Draws a chart, with its title and a description of the machine, into a ``.png`` or ``.svg`` file."""
    with _style():
        figure = _draw(chart)
        figure.axes[0].set_title(title, loc="left", pad=18)
        lines = "\n".join(filter(None, (chart.heading, chart.note, machine.describe()))).split("\n")
        figure.axes[0].set_xlabel("\n".join(textwrap.fill(line, _MOST_CHARACTERS) for line in lines))
        figure.savefig(path, dpi=160)


def _style() -> Any:
    """Returns a context manager in which the program's own matplotlib settings have no effect."""
    from matplotlib import style

    return style.context(["default", _STYLE])


def _draw(chart: Chart) -> Figure:
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
