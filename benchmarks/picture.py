"""Draws the README's picture, a bar chart of the share of the ideal that remuda and its peers reach.

The figures are those of ``throughput`` in results.json. The pages that are generated from results.json are written too.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from harness import pages, results
from harness.results import Section
from matplotlib import rc_context
from matplotlib.figure import Figure

PICTURE = results.FOLDER.parent / "docs" / "_static" / "speed.svg"
SHOWN = {"remuda": "#1b7f5c", "remuda-1-per-env": "#7cc4a8", "gymnasium": "#7d8a94", "sb3": "#b9c2c9"}
"""The contenders in the picture, with the colours of their bars."""
NAMES = {
    "remuda": "remuda, a process for each core",
    "remuda-1-per-env": "remuda, a process for each env",
    "gymnasium": "Gymnasium's AsyncVectorEnv, a process for each env",
    "sb3": "Stable-Baselines3's SubprocVecEnv, a process for each env",
}
_TEXT = "#808890"
"""A grey that is readable on white and on black."""

Shares: TypeAlias = "dict[str, dict[str, float]]"
"""Shares of the ideal by workload and contender."""


def main() -> None:
    sections = results.load()
    pages.write(sections)
    shares, machine = shares_in(sections["throughput"])
    draw(shares, machine, PICTURE, sections["throughput"].warnings)
    print(f"{PICTURE}: {len(shares)} workloads")


def shares_in(section: Section) -> tuple[Shares, str]:
    """Returns the shares in the table of `throughput`, and the text about the machine below the table."""
    found = section.tables[0]
    places = {name: found.columns.index(f"{name}, of ideal") for name in SHOWN}
    shares = {f"{row[0]}, {row[1]} envs": {name: float(row[at]) for name, at in places.items()} for row in found.rows}
    conditions = next(block for block in section.blocks if isinstance(block, str))
    return shares, conditions.partition(". ")[0]


def draw(shares: Shares, machine: str, path: Path, warnings: Sequence[str] = ()) -> None:
    """Draws a group of bars for each workload, in the order of the table. The warnings stand below the picture."""
    figure = Figure(figsize=(8.4, 1.1 + 0.66 * len(shares)), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    for place, (contender, color) in enumerate(SHOWN.items()):
        known = [(row, found[contender]) for row, found in enumerate(shares.values()) if contender in found]
        rows = [row + 0.21 * (place - 1.5) for row, _ in known]
        axes.barh(rows, [share for _, share in known], height=0.19, color=color, label=NAMES[contender])
        for row, (_, share) in zip(rows, known, strict=True):
            text = f"{share:.2f}" if share >= 0.01 else f"{share:.3f}"
            axes.annotate(text, (share, row), (3, 0), textcoords="offset points", va="center", fontsize=7, color=_TEXT)
    axes.set_yticks(range(len(shares)), shares, fontsize=8, color=_TEXT)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.05)
    cores = _cores(machine)
    if cores > 1:
        axes.axvline(1 / cores, color=_TEXT, linestyle="--", linewidth=1, label="a plain loop")
    label = f"env steps per second, as a share of the ideal ({cores} cores x a plain loop)\n{machine}"
    axes.set_xlabel("\n".join([label, *(textwrap.fill(one, 100) for one in warnings)]), fontsize=8, color=_TEXT)
    axes.tick_params(colors=_TEXT, labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_TEXT)
    figure.legend(loc="outside upper center", ncols=2, fontsize=8, frameon=False, labelcolor=_TEXT)
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "remuda"}):  # a fixed salt gives the same file each time
        figure.savefig(path, transparent=True, metadata={"Date": None})


def _cores(machine: str) -> int:
    found = re.search(r"(\d+) cores?", machine)
    if found is None:
        raise ValueError(f"expected the number of cores in the words about the machine, got {machine!r}")
    return int(found[1])


if __name__ == "__main__":
    main()
