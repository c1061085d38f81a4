"""Collects rollouts in two halves: one half of the envs steps while the policy computes for the other.

    python examples/two_halves.py

`Collector` does the same as the collecting loop of CleanRL's ppo.py, and returns the same arrays, with the envs in
their order. With two parts, the envs of one part step while the policy computes for the other part.

Two halves gain if the policy takes about as long as the envs, and either computes on a GPU or needs much less time for
half a batch than for a whole one. A policy that takes the same time for half as many observations takes twice as long.
The policy here keeps a core busy, for a fixed time in each call and some more for each observation: 64 envs gain, 8
lose. No worker can use the core of the policy, so with two halves one worker less is best.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

import remuda
from remuda.gymnasium import AsyncVectorEnv

Policy = Callable[[Any], Any]

SIZES = (8, 64)
FIXED_SECONDS = 150e-6
SECONDS_AN_OBSERVATION = 150e-6 / 64
NUM_STEPS = 128
ROUNDS = 5
CORES = len(os.sched_getaffinity(0))


@dataclass
class Rollout:
    """Observations, actions and results of `num_steps` steps of all envs.

    Attributes:
        obs: (num_steps, num_envs, ...): the observations before the actions.
        actions: (num_steps, num_envs, ...)
        rewards: (num_steps, num_envs) float64: the rewards of the actions.
        dones: (num_steps, num_envs) bool: whether the step before `obs` ended an episode.
        last_obs, last_dones: (num_envs, ...), (num_envs,): the same after the last step.
    """

    obs: Any
    actions: Any
    rewards: Any
    dones: Any
    last_obs: Any
    last_dones: Any


class Collector:
    """Collects rollouts from a vector env, in lockstep (one part) or in turns of its parts.

    The policy is called for one part after another. If it samples, its random numbers therefore differ from those in
    lockstep. Between two rollouts no step is under way, so the policy may learn.
    """

    def __init__(self, envs: AsyncVectorEnv[Any, Any], policy: Policy, num_steps: int, seed: int, parts: int) -> None:
        self._envs, self._policy, self._num_steps = envs, policy, num_steps
        self._parts: Sequence[AsyncVectorEnv[Any, Any]] = envs.split(parts)
        self._rows = [np.arange(envs.num_envs)] if parts == 1 else [part.env_ids for part in self._parts]  # type: ignore[attr-defined]
        self._obs = np.empty(envs.observation_space.shape or (), envs.observation_space.dtype)
        self._dones = np.zeros(envs.num_envs, bool)
        for part, rows in zip(self._parts, self._rows, strict=True):
            self._obs[rows], _ = part.reset(seed=seed)

    def collect(self) -> Rollout:
        shape, space = (self._num_steps, self._envs.num_envs), self._envs.single_action_space
        rollout = Rollout(
            obs=np.empty((self._num_steps, *self._obs.shape), self._obs.dtype),
            actions=np.empty((*shape, *(space.shape or ())), space.dtype),
            rewards=np.empty(shape),
            dones=np.empty(shape, bool),
            last_obs=self._obs,
            last_dones=self._dones,
        )
        for part, rows in zip(self._parts, self._rows, strict=True):
            self._act(rollout, 0, part, rows)
        for step in range(1, self._num_steps + 1):
            for part, rows in zip(self._parts, self._rows, strict=True):
                # This part stepped while the policy computed for the other part.
                self._obs[rows], rollout.rewards[step - 1, rows], terminated, truncated, _ = part.step_wait()
                self._dones[rows] = terminated | truncated
                if step < self._num_steps:
                    self._act(rollout, step, part, rows)
        rollout.last_obs, rollout.last_dones = self._obs.copy(), self._dones.copy()
        return rollout

    def _act(self, rollout: Rollout, step: int, part: AsyncVectorEnv[Any, Any], rows: Any) -> None:
        obs = self._obs[rows]
        rollout.obs[step, rows], rollout.dones[step, rows] = obs, self._dones[rows]
        rollout.actions[step, rows] = actions = self._policy(obs)
        part.step_async(actions)


def policy(obs: Any) -> Any:
    """Keeps a core busy like a network, and returns actions that balance the pole for a while."""
    end = time.thread_time() + FIXED_SECONDS + SECONDS_AN_OBSERVATION * len(obs)
    while time.thread_time() < end:
        pass
    return (obs[:, 2] + obs[:, 3] > 0).astype(np.int64)


def steps_per_second(collector: Collector, num_envs: int) -> float:
    begin = time.perf_counter()
    collector.collect()
    return NUM_STEPS * num_envs / (time.perf_counter() - begin)


def compare(num_envs: int) -> None:
    """Measures and prints the rates of lockstep with a worker for each core, and of two halves with one worker less."""
    both = {"lockstep": (1, CORES), "split": (2, max(1, CORES - 1))}
    rates: dict[str, list[float]] = {name: [] for name in both}
    for _ in range(ROUNDS):
        for name, (parts, num_workers) in both.items():
            envs = remuda.make_vec("CartPole-v1", num_envs, num_workers=num_workers, log_advice=False)
            collector = Collector(envs, policy, NUM_STEPS, seed=0, parts=parts)
            collector.collect()  # to warm up
            rates[name].append(steps_per_second(collector, num_envs))
            envs.close()
    for name, (_, num_workers) in both.items():
        print(f"{num_envs} CartPoles, {name}, {num_workers} workers: {median(rates[name]):,.0f} env steps/s")


def main() -> None:
    for num_envs in SIZES:
        compare(num_envs)


if __name__ == "__main__":
    main()
