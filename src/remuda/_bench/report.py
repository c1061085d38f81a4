"""The result of a benchmark as text and as JSON."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from remuda._system import machine

from .results import Entry, Result, paired_ratio

_NOTEWORTHY_SHARE = 0.05
_COLUMNS = ("", "steps/s", "min-max", "of ideal", "remuda is", "start-up")


def report_on(result: Result) -> str:
    """Returns the report on a benchmark: the result in a sentence, a table, failures and notes."""
    failures = [f"{entry.name} failed: {entry.error}" for entry in result.entries if entry.error is not None]
    return "\n\n".join([_lead(result), _table(result), "\n".join([*failures, *_notes(result)])])


def _table(result: Result) -> str:
    rows = [_COLUMNS, *([entry.name, *_cells(result, entry)] for entry in result.entries)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    names = [row[0].ljust(widths[0]) for row in rows]
    figures = [[cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)] for row in rows]
    return "\n".join("  ".join([name, *cells]).rstrip() for name, cells in zip(names, figures, strict=True))


def _lead(result: Result) -> str:
    setup, rate = f"{result.env}: {size(result)}", result.remuda.steps_per_second
    if result.remuda.error is not None or rate is None:
        return f"{setup}. remuda failed."
    peers = [entry for entry in result.entries if entry is not result.remuda and entry.error is None]
    ratios = {entry.name: paired_ratio(result.remuda, entry) for entry in peers}
    compared = [f", {ratio:.3g} times as fast as {name}" for name, ratio in ratios.items() if ratio is not None]
    return f"{setup}. remuda: {rate:,.0f} env steps per second{''.join(compared)}."


def size(result: Result) -> str:
    """Returns the numbers of envs and workers as text."""
    return f"{plural(result.plan.num_envs, 'env')}, {plural(result.plan.num_workers, 'worker')}"


def _notes(result: Result) -> Iterator[str]:
    """Yields notes about the conditions of the measurement."""
    if result.ideal is not None:
        yield f"ideal: {plural(result.cores, 'core')} x the plain loop = {result.ideal:,.0f} env steps/s"
    yield (
        "of ideal, remuda is: the median of the ratios in each round, independent of the machine's speed; it may "
        "differ from the ratio of the medians under steps/s"
    )
    yield f"medians of {plural(result.rounds, 'interleaved round')} on {machine.describe()}"
    yield from busy_notes(result)


def busy_notes(result: Result) -> list[str]:
    """Returns a note if other programs may have changed the figures, else nothing."""
    if result.others_share <= _NOTEWORTHY_SHARE:
        return []
    share = f"{result.others_share:.0%}"
    return [f"the machine was busy: other programs took {share} of the CPU; measure again"]  # fits below a picture


def _cells(result: Result, entry: Entry) -> Iterator[str]:
    """Yields the cells of an entry's row in the table, without the first cell, which has the contender's name."""
    rates = entry.rates
    yield _format(entry.steps_per_second, "{:,.0f}") if entry.error is None else "failed"
    yield f"{min(rates):,.0f}-{max(rates):,.0f}" if rates else ""
    yield ratio(result.ratio_to_ideal(entry))
    yield "" if entry is result.remuda else _format(paired_ratio(result.remuda, entry), "{:.3g} x")
    yield _format(entry.startup_seconds, "{:.2f} s")


def ratio(value: float | None) -> str:
    """Returns a ratio with two significant digits, or an empty text for None."""
    return _format(value, "{:.2f}" if value is None or value >= 0.1 else "{:.3f}")


def _format(value: float | None, pattern: str) -> str:
    return "" if value is None else pattern.format(value)


def plural(count: int, noun: str) -> str:
    """Returns a count with its noun, in the plural unless the count is 1: "1 env", "2 envs"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def to_json(result: Result) -> dict[str, Any]:
    """Returns the figures of every round for JSON: rates per second, times in seconds."""
    plan = result.plan
    return {
        "env": plan.workload.name,
        "num_envs": plan.num_envs,
        "num_workers": plan.num_workers,
        "backend": plan.backend,
        "rounds": result.rounds,
        "seconds": result.seconds,
        "cores": result.cores,
        "others_cpu_share": result.others_share,
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
        "remuda_is_times_as_fast": paired_ratio(result.remuda, entry),
        "startup_seconds": entry.startup_seconds,
        "rounds": [asdict(turn) for turn in entry.turns],
    }
