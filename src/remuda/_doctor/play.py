"""Plays an env twice with the same seed and the same random actions, as a pool plays it."""

from __future__ import annotations

import pickle
import time
from typing import Any

from gymnasium.vector.utils import concatenate, create_empty_array, iterate

import remuda
from remuda._doctor.findings import Finding
from remuda._doctor.trials import EnvFn
from remuda._engine.stats.durations import span
from remuda.errors import RemudaError

_SEED = 0
_LEAST = 0.1  # seconds
_OWN_GENERATOR = "draw random numbers from self.np_random only, which reset(seed=...) seeds: a replay depends on that"


def play(env_fn: EnvFn, steps: int, end: float, **options: Any) -> list[Finding]:
    """Plays `steps` steps, or fewer if it is not over at `end` of `time.monotonic`. Returns the findings."""
    what, left = f"{steps:,} random steps", max(_LEAST, end - time.monotonic())
    limits = remuda.FaultPolicy("raise", reset_timeout=left, step_timeout=left)
    try:
        with remuda.Pool([env_fn] * 2, num_workers=None, start_timeout=left, faults=limits, **options) as pool:
            played, difference = _play(pool, steps, end)
            stats = pool.stats().envs[0]
    except (RemudaError, TimeoutError) as error:
        return [Finding(what, "wrong", (str(error).strip().splitlines() or [type(error).__name__])[0])]
    text = f"{span(stats.step.mean)} each; resets take {span(stats.reset.mean)}, at most {span(stats.reset.max)}"
    if difference is not None:
        repeated = Finding("the same seed in two processes", "wrong", difference, _OWN_GENERATOR)
    else:
        repeated = Finding("the same seed in two processes", "right", "the same observations and rewards")
    if played < steps and difference is None:
        return [Finding(what, "unknown", f"{text}; the time allowed only {played:,}"), repeated]
    return [Finding(what, "right", text), repeated]


def _play(pool: remuda.Pool, steps: int, end: float) -> tuple[int, str | None]:
    """Returns how many steps were made, and the first difference between the two envs."""
    space, difference = pool.single_action_space, None
    space.seed(_SEED)
    batch = pool.reset(seed=[_SEED] * 2)
    for step in range(steps):
        difference = difference or _difference(pool, batch, step)
        if time.monotonic() > end:
            return step, difference
        action = space.sample()
        batch = pool.step(concatenate(space, [action] * 2, create_empty_array(space, 2)))  # type: ignore[arg-type]
    return steps, difference or _difference(pool, batch, steps)


def _difference(pool: remuda.Pool, batch: remuda.Batch, step: int) -> str | None:
    names = "observation", "reward", "termination", "truncation"
    observations: Any = iterate(pool.observation_space, batch.obs)
    found = observations, batch.rewards, batch.terminations, batch.truncations
    for name, (one, other) in zip(names, found, strict=True):
        if pickle.dumps(one) != pickle.dumps(other):
            where = f"after {step:,} equal steps and actions" if step else "of the first reset"
            return f"the {name} {where} differs"
    return None
