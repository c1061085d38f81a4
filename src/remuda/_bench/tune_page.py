"""What tuning has found as an HTML page."""

from __future__ import annotations

from remuda._bench import tune_report
from remuda._bench.tuning import Tuned
from remuda._reports.charts import Bar, bars
from remuda._reports.markup import bullets, code, element, table
from remuda._reports.origin import Origin
from remuda._reports.page import Page


def page(tuned: Tuned, env: str, origin: Origin) -> Page:
    """What to paste, why, and every trial as a bar and as a row."""
    best = tuned.best
    made = Page(f"remuda tune {env}", f"{best.rate:,.0f} env steps per second with {tune_report.name(best)}.")
    told = element("p", f"What holds it back: {best.told}") if best.told else ""
    made.section("What to paste", code(tune_report.code(best, env)), bullets(tuned.reasons), told)
    drawn = [
        Bar(tune_report.name(outcome), outcome.rate, f"{outcome.rate:,.0f}", is_best=outcome is best)
        for outcome in tuned.outcomes
    ]
    made.section("Env steps per second", bars(drawn, "Env steps per second of each trial"))
    rows = [tune_report.cells(outcome, best) for outcome in tuned.outcomes]
    marked = next(number for number, outcome in enumerate(tuned.outcomes) if outcome is best)
    made.section("All trials", table(tune_report.COLUMNS, rows, best=marked))
    made.origin(origin)
    return made
