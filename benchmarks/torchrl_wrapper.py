"""Measures what TorchRL's GymWrapper costs: a step of it over remuda's vector env, beside a step of a remuda pool.

Both step the same CartPoles in two workers, with the same actions. `gymnasium` is the wrapper over Gymnasium's
AsyncVectorEnv. Needs torchrl (`requirements.txt` in this folder).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import gymnasium
import numpy as np
from harness.options import parse_options
from harness.session import Session
from harness.tables import Block, table

import remuda
import remuda.gymnasium
from remuda._system.machine import describe

COUNTS = (8, 64)
STEPS_AT_ONCE = 20
MAKE = partial(gymnasium.make, "CartPole-v1")
REMUDA: Any = {"num_workers": 2, "log_advice": False}


def of_pool(seconds: float, num_envs: int) -> float:
    with remuda.Pool([MAKE] * num_envs, autoreset="same_step", **REMUDA) as pool:
        pool.reset(seed=0)
        actions = np.zeros(num_envs, np.int64)
        return microseconds(lambda: pool.step(actions).obs, seconds)


def of_face(seconds: float, num_envs: int) -> float:
    envs: Any = remuda.gymnasium.AsyncVectorEnv([MAKE] * num_envs, autoreset_mode="SameStep", **REMUDA)
    envs.reset(seed=0)
    actions = np.zeros(num_envs, np.int64)
    try:
        return microseconds(lambda: envs.step(actions), seconds)
    finally:
        envs.close()


def of_torchrl(make_envs: Callable[[int], Any], seconds: float, num_envs: int) -> float:
    import torch
    from torchrl.envs import GymWrapper

    env = GymWrapper(make_envs(num_envs), categorical_action_encoding=True)
    state = env.reset()
    actions = torch.zeros(num_envs, dtype=torch.int64)

    def step() -> None:
        nonlocal state
        _, state = env.step_and_maybe_reset(state.set("action", actions))

    try:
        return microseconds(step, seconds)
    finally:
        env.close()


def of_remuda(num_envs: int) -> Any:
    return remuda.gymnasium.AsyncVectorEnv([MAKE] * num_envs, autoreset_mode="SameStep", **REMUDA)


def of_gymnasium(num_envs: int) -> Any:
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    return gymnasium.vector.AsyncVectorEnv([MAKE] * num_envs, autoreset_mode=mode)


def microseconds(step: Callable[[], object], seconds: float) -> float:
    """Returns the microseconds of one step."""
    steps, begin = 0, time.perf_counter()
    while (took := time.perf_counter() - begin) < seconds or not steps:
        for _ in range(STEPS_AT_ONCE):
            step()
        steps += STEPS_AT_ONCE
    return 1e6 * took / steps


CONTENDERS: dict[str, Callable[[float, int], float]] = {
    "`remuda.Pool`": of_pool,
    "`remuda.gymnasium`": of_face,
    "`GymWrapper(remuda.gymnasium)`": partial(of_torchrl, of_remuda),
    "`GymWrapper(AsyncVectorEnv)`": partial(of_torchrl, of_gymnasium),
}


def measure(num_envs: int, session: Session) -> dict[str, list[float]]:
    turns = {
        name: partial(one, session.options.seconds / session.options.rounds, num_envs)
        for name, one in CONTENDERS.items()
    }
    return session.rounds(f"{num_envs} CartPoles", turns)


def blocks(found: dict[int, dict[str, list[float]]], session: Session) -> Iterator[Block]:
    rows = [[str(n), *(f"{median(figures):.0f}" for figures in each.values())] for n, each in found.items()]
    yield table(["us a step of all envs", *CONTENDERS], rows)
    options = session.options
    yield f"{describe()}. Medians of {options.rounds} interleaved rounds, {options.seconds:g} s a contender."


def main() -> None:
    session = Session(parse_options(__doc__, seconds=10.0, quick=4.0, rounds=5, json=False))
    found = dict(session.measured(COUNTS, lambda num_envs: measure(num_envs, session)))
    session.publish("torchrl_wrapper", blocks(found, session))


if __name__ == "__main__":
    main()
