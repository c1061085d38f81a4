"""What a benchmark's result says: as a table in plain text, as the cells of one, and as JSON."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import Any

from remuda._system import machine

from .results import Entry, Result

SCHEMA = 1
"""Raised when a key of the JSON changes its meaning or goes away."""

_NOTEWORTHY_IDLE_SHARE = 0.02
_NOTEWORTHY_OTHERS_SHARE = 0.05
COLUMNS = ("steps/s", "min-max", "of ideal", "remuda is", "start-up", "MB/worker", "CPU")


def as_text(result: Result) -> str:
    """The table in plain characters, and under it what the figures mean on this machine."""
    rows = [("", *COLUMNS), *((entry.name, *cells(result, entry)) for entry in result.entries)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows]
    lines[1:1] = [["-" * width for width in widths]]
    table = ["  ".join(line).rstrip() for line in lines]
    return "\n".join([title(result), "", *table, "", *failures(result), *notes(result)])


def notes(result: Result) -> Iterator[str]:
    """What a reader has to know to judge the table."""
    if result.ideal is not None:
        yield (
            f"ideal: {result.loops} x the plain loop = {result.ideal:,.0f} env steps/s, on "
            f"{_plural(result.cores, 'core')}"
        )
    yield "remuda is: so many times as fast as that row; CPU: of all cores, while it had its turns"
    yield (
        "of ideal, remuda is: the median of each round's ratio, in which what slows the machine cancels out; it may "
        "differ from the ratio of the medians under steps/s"
    )
    yield f"medians of {_plural(result.rounds, 'interleaved round')} on {machine.describe()}"
    if result.others_share > _NOTEWORTHY_OTHERS_SHARE:
        yield (
            f"the machine was busy: other programs took {result.others_share:.0%} of the CPU meanwhile, what is "
            f"measured here {result.own_share:.0%}; measure again when it is quiet"
        )
    for entry in result.entries:
        share = entry.idle_cpu_share(result.cores)
        if share > _NOTEWORTHY_IDLE_SHARE:
            yield f"{entry.name}: its idle workers took {share:.0%} of the CPU while others were measured"


def failures(result: Result) -> Iterator[str]:
    """Who did not come through, and why."""
    for entry in result.entries:
        if entry.error is not None:
            yield f"{entry.name} failed: {entry.error}"


def title(result: Result) -> str:
    """What is raced, and with how many."""
    return f"{result.env}: {_plural(result.num_envs, 'env')}, {_plural(result.num_workers, 'worker')}"


def cells(result: Result, entry: Entry) -> Iterator[str]:
    """A contender's row under `COLUMNS`."""
    rates = entry.rates
    yield _format(entry.steps_per_second, "{:,.0f}") if entry.error is None else "failed"
    yield f"{_short(min(rates))}-{_short(max(rates))}" if rates else ""
    yield ratio(result.ratio_to_ideal(entry))
    yield "" if entry is result.remuda else _format(result.advantage_over(entry), "{:.3g} x")
    yield _format(entry.startup_seconds, "{:.2f} s")
    yield _format(entry.worker_mb, "{:.1f}")
    yield _format(entry.cpu_share(result.cores), "{:.0%}")


def ratio(value: float | None) -> str:
    """Two digits that count."""
    return _format(value, "{:.2f}" if value is None or value >= 0.1 else "{:.3f}")


def _short(rate: float) -> str:
    """Three digits and a unit: 12345 is 12.3k."""
    for unit in ("", "k", "M"):
        if rate < 999.5:
            return f"{rate:.3g}{unit}"
        rate /= 1000
    return f"{rate:.3g}G"


def _format(value: float | None, pattern: str) -> str:
    return "" if value is None else pattern.format(value)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def to_json(result: Result) -> dict[str, Any]:
    """The result with every round's figures; rates per second, times in seconds, memory in MB."""
    return {
        "schema": SCHEMA,
        "env": result.env,
        "num_envs": result.num_envs,
        "num_workers": result.num_workers,
        "backend": result.backend,
        "start_method": result.start_method,
        "rounds": result.rounds,
        "seconds": result.seconds,
        "cores": result.cores,
        "cpu_share": result.own_share,
        "others_cpu_share": result.others_share,
        "ideal_loops": result.loops,
        "ideal_steps_per_second": result.ideal,
        "machine": {
            "cpu": machine.cpu_model(),
            "system": platform.platform(),
            "python": platform.python_version(),
            "versions": machine.versions(),
        },
        "contenders": [_entry_json(result, entry) for entry in result.entries],
    }


def _entry_json(result: Result, entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "error": entry.error,
        "num_workers": entry.num_workers,
        "steps_per_second": entry.steps_per_second,
        "ratio_to_ideal": result.ratio_to_ideal(entry),
        "remuda_is_times_as_fast": result.advantage_over(entry),
        "startup_seconds": entry.startup_seconds,
        "worker_mb": entry.worker_mb,
        "cpu_share": entry.cpu_share(result.cores),
        "idle_cpu_share": entry.idle_cpu_share(result.cores),
        "rounds": [
            {
                "env_steps": turn.env_steps,
                "seconds": turn.seconds,
                "cpu_seconds": turn.cpu_seconds,
                "others_cpu_seconds": turn.others_cpu_seconds,
                "parent_cpu_seconds": turn.parent_cpu_seconds,
                "batches": turn.batches,
                "learning_seconds": turn.learning_seconds,
            }
            for turn in entry.turns
        ],
    }
