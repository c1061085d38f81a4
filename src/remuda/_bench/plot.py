"""Draws the result of a benchmark as a PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from remuda._system import machine

from .results import Entry, Result

_OURS, _THEIRS, _IDEAL, _LOOP = "#1b7f5c", "#a9b4bd", "#b5482a", "#5d6a74"


def save(result: Result, path: Path) -> None:
    """Draw the contenders' env steps per second to ``path``, in its suffix's format (``.png``, ``.svg``).

    A bar is the median, a dot one round; the dashed lines are the plain loop and the ideal.
    """
    entries = [entry for entry in result.entries if entry.turns]
    figure = Figure(figsize=(8.0, 1.5 + 0.5 * len(entries)), layout="constrained")
    axes = figure.add_subplot()
    for row, entry in enumerate(entries):
        _draw_entry(axes, row, entry, result)
    if result.ideal is not None:
        _draw_line(axes, result.ideal, f"ideal: {result.loops} x plain loop", _IDEAL)
        if result.loops > 1:
            _draw_line(axes, result.ideal / result.loops, "plain loop", _LOOP)
    _label(axes, entries, result)
    figure.savefig(path, dpi=160)


def _draw_entry(axes: Any, row: int, entry: Entry, result: Result) -> None:
    rate = entry.steps_per_second or 0.0
    color = _OURS if entry is result.remuda else _THEIRS
    axes.barh(row, rate, height=0.6, color=color)
    axes.plot(entry.rates, [row] * len(entry.rates), "o", markersize=3, color="black", alpha=0.45)
    ratio = result.ratio_to_ideal(entry)
    share = "" if ratio is None else f"  ({ratio:.2f} of the ideal, {ratio * result.loops:.2f} x a loop)"
    axes.annotate(
        f"{EngFormatter(places=1, sep='')(rate)}{share}",
        (max(entry.rates), row),
        xytext=(7, 0),
        textcoords="offset points",
        verticalalignment="center",
        fontsize=9,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},  # lines go behind it
    )


def _draw_line(axes: Any, rate: float, label: str, color: str) -> None:
    axes.axvline(rate, color=color, linestyle="--", linewidth=1)
    axes.annotate(
        label,
        (rate, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 3),
        textcoords="offset points",
        horizontalalignment="center",
        color=color,
        fontsize=9,
    )


def _label(axes: Any, entries: list[Entry], result: Result) -> None:
    axes.set_yticks(range(len(entries)), [entry.name for entry in entries])
    axes.invert_yaxis()
    axes.set_xlim(right=1.6 * axes.get_xlim()[1])  # room for the figures beside the bars
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    cores = f"{result.cores} core{'' if result.cores == 1 else 's'}"
    axes.set_xlabel(f"env steps per second, median of {result.rounds} rounds\n{machine.describe()}, {cores}")
    axes.set_title(f"{result.env}: {result.num_envs} envs, {result.num_workers} workers", loc="left", pad=18)
    axes.spines[["top", "right"]].set_visible(False)
