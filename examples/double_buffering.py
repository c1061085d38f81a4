"""Double buffering: while the policy computes for one half of the envs, the other half steps.

    python examples/double_buffering.py

In lockstep a batch takes the time of the envs plus that of the policy, because each waits for the other. Split in
halves, an env waits for the actions of its own half only. This gains most if envs and policy take about equally long,
on different hardware. It gains nothing if one of them takes almost no time.

Envs and policy sleep here, so that the gain shows on any machine: the envs like simulators that run elsewhere, the
policy like a network on a GPU, with a fixed time for each call and for each observation. Replace both by your own.
(Envs that keep cores busy gain more: half of them take half the time.)
"""

from __future__ import annotations

import time
from operator import truediv
from statistics import median
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import remuda

NUM_ENVS = 16
STEP_SECONDS = 4e-3
CALL_SECONDS = 0.5e-3
OBSERVATION_SECONDS = 0.4e-3
ROUNDS = 5
BATCHES = 200  # in each round


class Simulator(gymnasium.Env[Any, Any]):
    """An env that sleeps in each step, so it needs no core."""

    observation_space = spaces.Box(-1.0, 1.0, (8,), np.float32)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(STEP_SECONDS)
        return self._observe(), 1.0, False, False, {}

    def _observe(self) -> Any:
        return self.np_random.uniform(-1.0, 1.0, 8).astype(np.float32)


def policy(obs: Any) -> Any:
    time.sleep(CALL_SECONDS + OBSERVATION_SECONDS * len(obs))
    return np.abs(obs[:, :4]).argmax(axis=1)


def steps_per_second(pool: remuda.Pool, num_parts: int) -> float:
    """Splits the envs into parts and steps the parts in turns. Returns env steps per second. One part is lockstep."""
    parts = pool.split(num_parts)
    for part in parts:
        part.send_reset(seed=0)
    begin = time.perf_counter()
    for _ in range(BATCHES):
        for part in parts:
            batch = part.recv()  # this part stepped while the policy served the other parts
            part.send(policy(batch.obs))
    for part in parts:
        part.recv()
    return BATCHES * pool.num_envs / (time.perf_counter() - begin)


def main() -> None:
    lockstep, split = [], []
    with remuda.Pool([Simulator] * NUM_ENVS, num_workers=None) as pool:  # one worker for each env
        for _ in range(ROUNDS):  # Lockstep and split take turns, so a slow phase of the machine affects both.
            lockstep.append(steps_per_second(pool, num_parts=1))
            split.append(steps_per_second(pool, num_parts=2))
    print(f"lockstep: {median(lockstep):,.0f} env steps/s")
    print(f"split:    {median(split):,.0f} env steps/s")
    print(f"ratio:    {median(map(truediv, split, lockstep)):.2f}")


if __name__ == "__main__":
    main()
