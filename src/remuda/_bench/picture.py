"""The result of a benchmark as a bar chart, drawn by matplotlib."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from remuda._system import machine

from .report import busy_notes, ratio, size
from .results import Entry, Result, paired_ratio

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INK, _BEST, _BAR, _MARK = "#000000", "#1b7f5c", "#a9b4bd", "#b5482a"
# With these settings, an SVG contains text as text elements, and a dollar sign does not begin a formula.
_STYLE = {"svg.fonttype": "none", "text.parse_math": False, "axes.spines.top": False, "axes.spines.right": False}
_MOST_CHARACTERS = 100  # in a line below a picture


def save_picture(result: Result, title: str, path: Path) -> None:
    """Draws the result, with a title and a description of the machine, into a ``.png`` or ``.svg`` file."""
    from matplotlib import style

    with style.context(["default", _STYLE]):  # the program's own settings of matplotlib have no effect
        figure = draw(result)
        note = f"{size(result)}. A bar is the median of {result.rounds} rounds, a dot one of them."
        lines = ["Env steps per second", note, *busy_notes(result), machine.describe()]
        figure.axes[0].set_title(title, loc="left", pad=18)
        figure.axes[0].set_xlabel("\n".join(textwrap.fill(line, _MOST_CHARACTERS) for line in lines))
        figure.savefig(path, dpi=160)


def draw(result: Result) -> Figure:
    """Draws a bar for the rate of each contender that had a turn, and a line at the ideal."""
    from matplotlib.figure import Figure  # pyplot is not used, because it needs a display
    from matplotlib.ticker import EngFormatter

    entries = [entry for entry in result.entries if entry.turns]
    figure = Figure(figsize=(8.0, 1.5 + 0.55 * len(entries)), layout="constrained")
    axes = figure.add_subplot()
    for row, entry in enumerate(entries):
        rate = entry.steps_per_second or 0.0
        axes.barh(row, rate, height=0.6, color=_BEST if entry is result.remuda else _BAR)
        axes.plot(entry.rates, [row] * len(entry.rates), "o", markersize=3, color=_INK, alpha=0.45)
    axes.set_yticks(range(len(entries)), [_label(result, entry) for entry in entries])
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if result.ideal is not None:
        axes.axvline(result.ideal, color=_MARK, linestyle="--", linewidth=1)
        axes.annotate(
            f"ideal: {result.cores} x plain loop",
            (result.ideal, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            color=_MARK,
            horizontalalignment="center",
        )
    return figure


def _label(result: Result, entry: Entry) -> str:
    loops = paired_ratio(entry, result.plain)
    share = f" ({ratio(result.ratio_to_ideal(entry))} of the ideal, {ratio(loops)} x a plain loop)" if loops else ""
    return f"{entry.name}\n{entry.steps_per_second:,.0f}{share}"
