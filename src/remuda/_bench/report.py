"""The result of a benchmark as a report, and as JSON."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from remuda._reports.charts import Bar, Bars
from remuda._reports.report import Report, Table
from remuda._system import machine

from .results import Entry, Result, paired_ratio

SCHEMA = 1
"""Increased when a key of the JSON changes its meaning or is removed."""

_NOTEWORTHY_IDLE_SHARE = 0.02
_NOTEWORTHY_OTHERS_SHARE = 0.05
_COLUMNS = ("", "steps/s", "min-max", "of ideal", "remuda is", "start-up", "MB/worker", "CPU")


def report_on(result: Result) -> Report:
    """Returns the report on a benchmark, which may still run. Figures that were not measured yet are empty."""
    rows = [[entry.name, *_cells(result, entry)] for entry in result.entries]
    failed = {number for number, entry in enumerate(result.entries) if entry.error is not None}
    best = next(number for number, entry in enumerate(result.entries) if entry is result.remuda)
    return Report(
        f"remuda bench {result.env}",
        _lead(result),
        Table(_COLUMNS, rows, None if best in failed else best, failed),
        chart(result) if any(entry.turns for entry in result.entries) else None,
        list(_notes(result)),
        [f"{entry.name} failed: {entry.error}" for entry in result.entries if entry.error is not None],
    )


def chart(result: Result) -> Bars:
    """Returns a bar chart of the env steps per second of each contender that had a turn, with a mark at the ideal."""
    return Bars(
        heading="Env steps per second",
        bars=[_bar(result, entry) for entry in result.entries if entry.turns],
        mark=None if result.ideal is None else (result.ideal, f"ideal: {result.loops} x plain loop"),
        note="\n".join(
            [
                f"{_size(result)}. A bar is the median of {result.rounds} rounds, a dot one of them.",
                *busy_notes(result.others_share, result.own_share),
            ]
        ),
    )


def _bar(result: Result, entry: Entry) -> Bar:
    rate = entry.steps_per_second or 0.0
    loops = ratio(paired_ratio(entry, result.plain))
    share = f" ({ratio(result.ratio_to_ideal(entry))} of the ideal, {loops} x a plain loop)" if loops else ""
    return Bar(entry.name, rate, f"{rate:,.0f}{share}", entry.rates, is_best=entry is result.remuda)


def _lead(result: Result) -> str:
    size, rate = f"{result.env}: {_size(result)}", result.remuda.steps_per_second
    if result.remuda.error is not None:
        return f"{size}. remuda failed."
    if rate is None:
        return size
    peers = [entry for entry in result.entries if entry not in (result.plain, result.remuda)]
    ratios = {entry.name: result.advantage_over(entry) for entry in peers if entry.error is None}
    compared = [f", {ratio:.3g} times as fast as {name}" for name, ratio in ratios.items() if ratio is not None]
    return f"{size}. remuda: {rate:,.0f} env steps per second{''.join(compared)}."


def _size(result: Result) -> str:
    return f"{plural(result.num_envs, 'env')}, {plural(result.num_workers, 'worker')}"


def _notes(result: Result) -> Iterator[str]:
    """Yields notes about the conditions of the measurement."""
    if result.ideal is not None:
        yield (
            f"ideal: {result.loops} x the plain loop = {result.ideal:,.0f} env steps/s, on "
            f"{plural(result.cores, 'core')}"
        )
    yield "remuda is: remuda's speed divided by that row's; CPU: the share of all cores during its turns"
    yield (
        "of ideal, remuda is: the median of the ratios in each round, independent of the machine's speed; it may "
        "differ from the ratio of the medians under steps/s"
    )
    yield f"medians of {plural(result.rounds, 'interleaved round')} on {machine.describe()}"
    yield from busy_notes(result.others_share, result.own_share)
    for entry in result.entries:
        share = entry.idle_cpu_share(result.cores)
        if share > _NOTEWORTHY_IDLE_SHARE:
            yield f"{entry.name}: its idle workers took {share:.0%} of the CPU while others were measured"


def busy_notes(others: float, own: float) -> list[str]:
    """Returns a note if other programs may have changed the figures, else nothing.

    Tables and pictures have it. `others`, `own`: the shares of the CPU that other programs, and those that were
    measured, took.
    """
    if others <= _NOTEWORTHY_OTHERS_SHARE:
        return []
    return [
        f"the machine was busy: other programs took {others:.0%} of the CPU meanwhile, what is measured here "
        f"{own:.0%}; measure again when it is quiet"
    ]


def _cells(result: Result, entry: Entry) -> Iterator[str]:
    """Yields the cells of an entry's row in the table, without the first cell, which has the contender's name."""
    rates = entry.rates
    yield _format(entry.steps_per_second, "{:,.0f}") if entry.error is None else "failed"
    yield f"{_short(min(rates))}-{_short(max(rates))}" if rates else ""
    yield ratio(result.ratio_to_ideal(entry))
    yield "" if entry is result.remuda else _format(result.advantage_over(entry), "{:.3g} x")
    yield _format(entry.startup_seconds, "{:.2f} s")
    yield _format(entry.worker_mb, "{:.1f}")
    yield _format(entry.cpu_share(result.cores), "{:.0%}")


def ratio(value: float | None) -> str:
    """Returns a ratio with two significant digits, or an empty text for None."""
    return _format(value, "{:.2f}" if value is None or value >= 0.1 else "{:.3f}")


def _short(rate: float) -> str:
    """Returns a number as text with three digits and a unit: 12345 is 12.3k."""
    for unit in ("", "k", "M"):
        if rate < 999.5:
            return f"{rate:.3g}{unit}"
        rate /= 1000
    return f"{rate:.3g}G"


def _format(value: float | None, pattern: str) -> str:
    return "" if value is None else pattern.format(value)


def plural(count: int, noun: str) -> str:
    """Returns a count with its noun, in the plural unless the count is 1: "1 env", "2 envs"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def to_json(result: Result) -> dict[str, Any]:
    """Returns the figures of every round for JSON: rates per second, times in seconds, memory in MB."""
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
        "rounds": [asdict(turn) for turn in entry.turns],
    }
