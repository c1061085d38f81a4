"""Draws the two pictures of docs/performance.md, `remuda top` and a trace, from a pool with one slow env.

`python docs/drawings/watching.py` writes docs/_static/top.svg and docs/_static/trace.svg. The trace is drawn from the
file that Perfetto would open, because Perfetto itself is a web page.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from rich.console import Console

import remuda
from remuda._watch.finding import find
from remuda._watch.top import frame

STATIC = Path(__file__).parents[1] / "_static"
SLOW = 11
COLOURS = {
    "batch": "#d0d7de",
    "wait": "#e8b04b",
    "span": "#7c5cbf",
    "step": "#4c8bf5",
    "reset": "#2e9e6b",
    "fault": "#d1242f",
    "restart": "#9a6b4f",
}


class Uneven(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that makes each step a millisecond longer, or ten milliseconds longer in the subclass `Slow`."""

    seconds = 0.001

    def step(self, action: Any) -> Any:
        time.sleep(self.seconds)
        return self.env.step(action)

    def reset(self, **kwargs: Any) -> Any:
        time.sleep(0.003)
        return self.env.reset(**kwargs)


class Slow(Uneven):
    seconds = 0.010


def make(kind: type[Uneven]) -> Uneven:
    return kind(gymnasium.make("CartPole-v1"))


def run(pool: remuda.Pool, seconds: float) -> None:
    end, obs = time.monotonic() + seconds, pool.reset(seed=0).obs
    while time.monotonic() < end:
        with remuda.span("policy"):
            time.sleep(0.002)
            actions = (obs[:, 2] > 0).astype(np.int64)
        obs = pool.step(actions).obs


def draw_top(path: Path, pool: remuda.Pool) -> None:
    """Draws `remuda top` after the pool has run for three seconds."""
    console = Console(record=True, width=90, file=io.StringIO(), force_terminal=True)
    pools = find(os.getpid())
    history = [{one.file: one.look() for one in pools}]
    run(pool, 3.0)
    history.append({one.file: one.look() for one in pools})
    console.print(frame(pools, history))
    path.write_text(console.export_svg(title="remuda top", clear=False))


def draw_trace(path: Path, trace: Path, milliseconds: float) -> None:
    """Draws the last milliseconds of a trace as a timeline."""
    events = json.loads(trace.read_text())["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    slices = [event for event in events if event["ph"] == "X"]
    end = max(event["ts"] + event["dur"] for event in slices)
    begin = end - milliseconds * 1000
    lines = sorted(names, key=lambda line: (line[0] >= 1 << 22, names[line].startswith("spans"), line[1]))
    mpl.rcParams.update({"svg.fonttype": "none", "font.size": 8, "font.family": "sans-serif", "svg.hashsalt": "remuda"})
    figure = Figure(figsize=(9, 0.34 * len(lines) + 1.2), layout="constrained")
    axes = figure.add_subplot()
    for height, line in enumerate(reversed(lines)):
        its = [e for e in slices if (e["pid"], e["tid"]) == line and e["ts"] + e["dur"] > begin]
        for kind, colour in COLOURS.items():
            bars = [((e["ts"] - begin) / 1000, e["dur"] / 1000) for e in its if e["cat"] == kind]
            axes.broken_barh(bars, (height - 0.35, 0.7), facecolors=colour, edgecolors="white", linewidth=0.3)
        for e in its:
            if e["dur"] > 0.055 * milliseconds * 1000 and e["cat"] != "batch" and e["ts"] > begin:
                at = (e["ts"] + e["dur"] / 2 - begin) / 1000
                axes.text(at, height, e["name"], ha="center", va="center", fontsize=6.5, clip_on=True)
    axes.set_yticks(range(len(lines)), [names[line] for line in reversed(lines)])
    axes.set_xlim(0, milliseconds)
    axes.set_xlabel("ms")
    axes.spines[["top", "right"]].set_visible(False)
    shown = [Patch(color=colour, label=kind) for kind, colour in COLOURS.items() if kind not in ("fault", "restart")]
    axes.legend(handles=shown, ncol=len(shown), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})


def main() -> None:
    fns = [lambda: make(Uneven)] * 16
    fns[SLOW] = lambda: make(Slow)
    with (
        remuda.Pool(fns, num_workers=8, name="cartpole", log_advice=False) as pool,
        tempfile.TemporaryDirectory() as folder,
    ):
        run(pool, 0.5)
        draw_top(STATIC / "top.svg", pool)
        with pool.trace(Path(folder, "trace.json")) as trace:
            run(pool, 0.5)
        draw_trace(STATIC / "trace.svg", trace.path, 60)


if __name__ == "__main__":
    main()
