"""Draws what tuning has found: every trial's throughput, the best among them."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from remuda._bench import tune_report
from remuda._bench.tuning import Tuned
from remuda._system import machine

_BEST, _OTHERS = "#1b7f5c", "#a9b4bd"


def save(tuned: Tuned, env: str, path: Path) -> None:
    """Draw env steps per second, a bar for each trial, in the format of the path's suffix (``.png``, ``.svg``)."""
    outcomes = tuned.outcomes
    figure = Figure(figsize=(8.0, 1.5 + 0.4 * len(outcomes)), layout="constrained")
    axes = figure.add_subplot()
    for row, outcome in enumerate(outcomes):
        axes.barh(row, outcome.rate, height=0.6, color=_BEST if outcome is tuned.best else _OTHERS)
        axes.annotate(
            EngFormatter(places=1, sep="")(outcome.rate),
            (outcome.rate, row),
            xytext=(5, 0),
            textcoords="offset points",
            verticalalignment="center",
            fontsize=9,
        )
    axes.set_yticks(range(len(outcomes)), [tune_report.name(outcome) for outcome in outcomes])
    axes.invert_yaxis()
    axes.set_xlim(right=1.15 * max(outcome.rate for outcome in outcomes))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel(f"env steps per second\n{machine.describe()}")
    axes.set_title(f"remuda tune {env}", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=160)
