"""The result of tuning as a report, with code to paste, and as JSON."""

from __future__ import annotations

import re
from statistics import mean
from typing import Any

from remuda._bench.report import busy_notes, plural
from remuda._bench.tuning import Outcome, Tuned
from remuda._reports.charts import Bar, Bars
from remuda._reports.report import Report, Table

_COLUMNS = ("envs", "workers", "spares", "halves", "env steps/s", "of the best")

_HALVES = """\
halves = pool.split(2)
for half in halves:
    half.send_reset(seed=0)
while True:
    for half in halves:
        batch = half.recv()
        half.send(policy(batch.obs))"""
_LOCKSTEP = """\
batch = pool.reset(seed=0)
while True:
    batch = pool.step(policy(batch.obs))"""


def report_on(tuned: Tuned, env: str) -> Report:
    """Returns the report: the best pool, the reasons to choose it, and all trials.

    `env` is a Gymnasium id, or module:factory.
    """
    best = tuned.best
    bars = [
        Bar(_name(outcome), outcome.rate, f"{outcome.rate:,.0f}", is_best=outcome is best) for outcome in tuned.outcomes
    ]
    rows = [_cells(outcome, best) for outcome in tuned.outcomes]
    busy = busy_notes(*(mean(getattr(one, whose) for one in tuned.outcomes) for whose in ("others", "own")))
    marked = next(number for number, outcome in enumerate(tuned.outcomes) if outcome is best)
    return Report(
        f"remuda tune {env}",
        f"{best.rate:,.0f} env steps per second with {_name(best)}.",
        [Table("All trials", _COLUMNS, rows, marked)],
        [Bars(heading="Env steps per second", bars=bars, note="\n".join(busy))],
        [*tuned.reasons, *([f"What holds the best back: {best.finding}"] if best.finding else []), *busy],
        code=code(best, env),
    )


def _name(outcome: Outcome) -> str:
    """Describes the pool of a trial in a few words."""
    trial = outcome.trial
    workers = "stepped by the caller" if outcome.backend == "serial" else plural(trial.num_workers or 1, "worker")
    spares = f", {plural(trial.spares, 'spare')}" if trial.spares else ""
    return f"{plural(trial.num_envs, 'env')}, {workers}{spares}{', halves' if trial.parts == 2 else ''}"


def _cells(outcome: Outcome, best: Outcome) -> list[str]:
    """Returns the row of an outcome in the report's table."""
    trial = outcome.trial
    return [
        str(trial.num_envs),
        "the caller" if outcome.backend == "serial" else str(trial.num_workers),
        str(trial.spares or ""),
        "yes" if trial.parts == 2 else "",
        f"{outcome.rate:,.0f}",
        f"{outcome.rate / best.rate:.2f}" if best.rate else "",
    ]


def code(best: Outcome, env: str) -> str:
    """Returns a program with the best pool, for the user to paste."""
    trial = best.trial
    options = f"num_workers={trial.num_workers}"
    if trial.spares:
        options = f"spares={trial.spares}"
    elif best.backend == "serial":
        options = 'backend="serial"'
    imports, factory = _factory(env)
    count = trial.num_envs + trial.spares
    usage = _HALVES if trial.parts == 2 else _LOCKSTEP
    return f"{imports}\nimport remuda\n\npool = remuda.Pool([{factory}] * {count}, {options})\n{usage}"


def _factory(env: str) -> tuple[str, str]:
    """Returns an import statement, and the expression for the env's factory."""
    module, colon, name = env.partition(":")
    if colon and not re.search(r"-v\d+$", env):
        return f"import {module}", f"{module}.{name}"
    return "import gymnasium", f'lambda: gymnasium.make("{env}")'


def to_json(tuned: Tuned, env: str) -> dict[str, Any]:
    """Returns all figures."""
    return {
        "env": env,
        "best": _outcome_json(tuned.best),
        "trials": [_outcome_json(outcome) for outcome in tuned.outcomes],
        "reasons": list(tuned.reasons),
        "code": code(tuned.best, env),
    }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    trial = outcome.trial
    return {
        "num_envs": trial.num_envs,
        "num_workers": trial.num_workers,
        "backend": outcome.backend,
        "spares": trial.spares,
        "parts": trial.parts,
        "steps_per_second": outcome.rate,
        "verdict": outcome.finding,
        "others_cpu_share": outcome.others,
        "cpu_share": outcome.own,
    }
