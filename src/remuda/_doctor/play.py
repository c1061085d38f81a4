"""Plays two envs with random actions, as a pool plays them, and looks for faults in their observations."""

from __future__ import annotations

import pickle
import time
from typing import Any

import numpy as np
from gymnasium.vector.utils import iterate

import remuda
from remuda._doctor.findings import Finding
from remuda._doctor.trials import EnvFn, arrays, in_observation
from remuda._engine.stats.durations import span
from remuda.errors import RemudaError

_SEED = 0
_LEAST = 0.1  # seconds
_LEAST_STEPS = 20  # so many steps without a change of the observation are no accident
_STILL = "compare what the env observes with its state: a camera may not be updated, or a connection may be lost"
_NAN = "end the episode, truncated, if the simulation has diverged: NaN spreads to the weights of a network"


def play(env_fn: EnvFn, steps: int, end: float, **options: Any) -> list[Finding]:
    """Plays `steps` steps, or fewer if it is not over at `end` of `time.monotonic`. Returns the findings."""
    what, left = f"{steps:,} random steps", max(_LEAST, end - time.monotonic())
    limits = remuda.FaultPolicy("raise", reset_timeout=left, step_timeout=left)
    try:
        with remuda.Pool([env_fn] * 2, num_workers=None, start_timeout=left, faults=limits, **options) as pool:
            played, findings = _play(pool, steps, end)
            stats = pool.stats().envs[0]
    except (RemudaError, TimeoutError) as error:
        return [Finding(what, "wrong", (str(error).strip().splitlines() or [type(error).__name__])[0])]
    text = f"{span(stats.step.mean)} each; resets take {span(stats.reset.mean)}, at most {span(stats.reset.max)}"
    if played < steps:
        return [Finding(what, "unknown", f"{text}; the time allowed only {played:,}"), *findings]
    return [Finding(what, "right", text), *findings]


def _play(pool: remuda.Pool, steps: int, end: float) -> tuple[int, list[Finding]]:
    """Returns how many steps were made, and the faults of the observations."""
    batch, nan, played = pool.reset(seed=_SEED), None, 0
    first = _values(pool, batch)
    still = set(first)
    pool.action_space.seed(_SEED)
    while True:
        if nan is None and any(_has_nan(one) for one in [*arrays(batch.obs), batch.rewards]):
            nan = played
        if still:
            still = {name for name, value in _values(pool, batch).items() if name in still and value == first[name]}
        if played == steps or time.monotonic() > end:
            break
        batch = pool.step(pool.action_space.sample())
        played += 1
    if "the observation" in still:
        still = {"the observation"}
    findings = []
    if nan is not None:
        findings.append(Finding("NaN", "wrong", f"in an observation or reward after {nan:,} steps", _NAN))
    if played >= _LEAST_STEPS and not _has_one_value(pool.single_observation_space):
        findings += [Finding(name, "wrong", f"never changed in {played:,} steps", _STILL) for name in sorted(still)]
    return played, findings


def _values(pool: remuda.Pool, batch: remuda.Batch) -> dict[str, bytes]:
    """Returns the observation of the first env and the pictures in it, by name, as bytes."""
    obs: Any = next(iter(iterate(pool.observation_space, batch.obs)))
    pictures = {f"picture {i} in the observation": one.tobytes() for i, one in enumerate(in_observation(obs))}
    return {"the observation": pickle.dumps(obs), **pictures}


def _has_nan(array: Any) -> bool:
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def _has_one_value(space: Any) -> bool:
    space.seed(_SEED)
    return len({pickle.dumps(space.sample()) for _ in range(10)}) == 1
