"""The result of a benchmark as an HTML page."""

from __future__ import annotations

from remuda._bench import report
from remuda._bench.results import Entry, Result, paired_ratio
from remuda._reports.charts import Bar, bars
from remuda._reports.markup import bullets, element, table
from remuda._reports.origin import Origin
from remuda._reports.page import Page


def page(result: Result, origin: Origin) -> Page:
    """Who was how fast, as bars and as a table, and what to know to judge that."""
    made = Page(f"remuda bench {result.env}", _lead(result))
    made.section("Env steps per second", _chart(result), _note(result))
    rows = [[entry.name, *report.cells(result, entry)] for entry in result.entries]
    ours = next(number for number, entry in enumerate(result.entries) if entry is result.remuda)
    made.section("All figures", table(["", *report.COLUMNS], rows, best=ours), bullets(report.notes(result)))
    made.section("Failed", bullets(report.failures(result)))
    made.origin(origin)
    return made


def _lead(result: Result) -> str:
    what = report.title(result)
    rate = result.remuda.steps_per_second
    if rate is None or result.remuda.error is not None:
        return f"{what}. remuda failed."
    peers = [entry for entry in result.entries if entry not in (result.plain, result.remuda)]
    times = [(entry.name, result.advantage_over(entry)) for entry in peers if entry.error is None]
    told = [f"{ratio:.3g} times as fast as {name}" for name, ratio in times if ratio is not None]
    return f"{what}. remuda: {rate:,.0f} env steps per second{', ' if told else ''}{', '.join(told)}."


def _chart(result: Result) -> object:
    drawn = [_bar(result, entry) for entry in result.entries if entry.turns]
    ideal = None if result.ideal is None else (result.ideal, f"ideal: {result.loops} x plain loop")
    return bars(drawn, f"Env steps per second of {', '.join(bar.name for bar in drawn)}", ideal) if drawn else ""


def _bar(result: Result, entry: Entry) -> Bar:
    rate = entry.steps_per_second or 0.0
    ratio = report.ratio(result.ratio_to_ideal(entry))
    loops = report.ratio(paired_ratio(entry, result.plain))
    told = f"{rate:,.0f}{f' ({ratio} of the ideal, {loops} x a plain loop)' if ratio else ''}"
    return Bar(entry.name, rate, told, entry.rates, is_best=entry is result.remuda)


def _note(result: Result) -> object:
    return element("p", f"A bar is the median of {result.rounds} rounds, a dot one of them.", class_="note")
