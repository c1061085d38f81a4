"""An evaluation as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from remuda._reports.charts import histogram, short
from remuda._reports.markup import Html, bullets, element, folded, table, video
from remuda._reports.origin import Origin
from remuda._reports.page import Page
from remuda._training.episodes import Episodes

_MOST_ROWS = 1000  # of the table: a browser takes long over more
_LARGEST_VIDEO = 8 << 20  # bytes: larger ones are named only
_COLUMNS = ("episode", "return", "length", "ended", "seed", "env")


def page(evaluation: Episodes, title: str, origin: Origin) -> Page:
    """The mean and how sure it is, how returns and lengths are spread, every episode, videos and faults."""
    made = Page(title, _lead(evaluation))
    made.section("Returns", histogram(evaluation.returns, "How often returns came up", _mean(evaluation.returns)))
    made.section("Lengths", histogram(evaluation.lengths, "How often lengths came up", _mean(evaluation.lengths)))
    made.section("In figures", table(("", "mean", "std", "least", "median", "most"), _summary(evaluation)))
    made.section("Episodes", *_episodes(evaluation))
    made.section("Videos", *(_shown(path) for path in evaluation.videos))
    made.section("Played again after a fault", bullets(str(fault) for fault in evaluation.faults))
    made.origin(origin)
    return made


def _lead(evaluation: Episodes) -> str:
    low, high = evaluation.interval()
    return (
        f"Mean return {evaluation.mean:.6g} in {len(evaluation)} episodes (95 %: {low:.6g} to {high:.6g}). "
        f"Mean length {evaluation.lengths.mean():.6g}. Seed {evaluation.seed}."
    )


def _mean(values: Any) -> tuple[float, str]:
    return float(values.mean()), f"mean {short(float(values.mean()))}"


def _summary(evaluation: Episodes) -> list[list[str]]:
    return [
        [name, *(f"{figure:.6g}" for figure in _figures(values))]
        for name, values in (("return", evaluation.returns), ("length", evaluation.lengths))
    ]


def _figures(values: Any) -> list[float]:
    return [values.mean(), values.std(), values.min(), np.median(values), values.max()]


def _episodes(evaluation: Episodes) -> list[Html]:
    count = min(len(evaluation), _MOST_ROWS)
    rows = [
        (
            episode,
            f"{evaluation.returns[episode]:.6g}",
            evaluation.lengths[episode],
            "terminated" if evaluation.terminated[episode] else "truncated",
            evaluation.seeds[episode],
            evaluation.env_ids[episode],
        )
        for episode in range(count)
    ]
    left_out = len(evaluation) - count
    note = element("p", f"{left_out:,} more are not shown.", class_="note") if left_out else ""
    summary = f"The first {count:,} to start" if left_out else f"All {count:,}, in the order of their starts"
    return [folded(summary, table(_COLUMNS, rows), note)]


def _shown(path: Path) -> Html:
    """The video in the page, if it is small and still there."""
    try:
        small = path.stat().st_size <= _LARGEST_VIDEO
        return video(path) if small else element("p", f"{path} (too large for this page)")
    except OSError:
        return element("p", f"{path} (not there any more)")
