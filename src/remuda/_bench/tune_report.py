"""What tuning has found, as text: the trials, the call to be pasted, and why."""

from __future__ import annotations

import re
from typing import Any

from remuda._bench.tuning import Outcome, Tuned

COLUMNS = ("envs", "workers", "spares", "halves", "env steps/s", "of the best")

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


def name(outcome: Outcome) -> str:
    """The pool of a trial in a few words."""
    trial = outcome.trial
    workers = "stepped by the caller" if outcome.backend == "serial" else _plural(trial.num_workers or 1, "worker")
    spares = f", {_plural(trial.spares, 'spare')}" if trial.spares else ""
    return f"{_plural(trial.num_envs, 'env')}, {workers}{spares}{', halves' if trial.parts == 2 else ''}"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def cells(outcome: Outcome, best: Outcome) -> list[str]:
    """One row of the table."""
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
    """What to paste. `env`: a Gymnasium id, or module:factory."""
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
    """What is to be imported, and the factory."""
    module, colon, name = env.partition(":")
    if colon and not re.search(r"-v\d+$", env):
        return f"import {module}", f"{module}.{name}"
    return "import gymnasium", f'lambda: gymnasium.make("{env}")'


def as_text(tuned: Tuned, env: str) -> str:
    """All of it, in plain text."""
    rows = [list(COLUMNS), *(cells(outcome, tuned.best) for outcome in tuned.outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = ["  ".join(f"{text:>{width}}" for text, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([*lines, "", conclusion(tuned, env)])


def conclusion(tuned: Tuned, env: str) -> str:
    """The code, why, and what holds that back."""
    code_lines = "\n".join(f"    {line}".rstrip() for line in code(tuned.best, env).splitlines())
    reasons = "\n".join(f"- {reason}" for reason in tuned.reasons)
    told = f"\n\nWhat holds the best back: {tuned.best.told}" if tuned.best.told else ""
    return f"{tuned.best.rate:,.0f} env steps/s with\n\n{code_lines}\n\n{reasons}{told}"


def to_json(tuned: Tuned, env: str) -> dict[str, Any]:
    """All figures."""

    def described(outcome: Outcome) -> dict[str, Any]:
        trial = outcome.trial
        return {
            "num_envs": trial.num_envs,
            "num_workers": trial.num_workers,
            "backend": outcome.backend,
            "spares": trial.spares,
            "parts": trial.parts,
            "steps_per_second": outcome.rate,
            "verdict": outcome.told,
        }

    return {
        "env": env,
        "best": described(tuned.best),
        "trials": [described(outcome) for outcome in tuned.outcomes],
        "reasons": list(tuned.reasons),
        "code": code(tuned.best, env),
    }
