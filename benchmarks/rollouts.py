"""Compares ways to fill a rollout of images: the time until it is full and its first minibatch is taken.

All ways step the same envs in the same number of remuda's workers, and differ only in how they store observations.
There is no policy: actions are sampled beforehand, values are zeros. A way whose package is not installed is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import gymnasium
import numpy as np
from harness.envs import NullEnv, Step
from harness.options import parse_options
from harness.session import Session
from harness.tables import Block, figure, table

import remuda
from remuda._system import machine

MINIBATCH = 256
WARM_UP = 4
"""The number of rollouts before the one that is timed. The first rollouts reserve memory."""
ALONE = "steps alone, nothing kept"

Fill = Callable[[], Any]


class ImageEnv(NullEnv):
    """An env with observations of the size of Atari's stacked frames. A step takes a microsecond or two."""

    observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = gymnasium.spaces.Discrete(6)

    def step(self, action: Any) -> Step:
        self._obs[0] += 1
        return super().step(action)


class Task:
    """The envs, actions and minibatch rows that are the same for all ways of filling a rollout."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.steps, self.num_envs = options.steps, options.num_envs
        self.pool: Any = {"num_workers": options.num_workers, "log_advice": False}
        rng = np.random.default_rng(0)
        self.actions = rng.integers(0, 6, (self.steps, self.num_envs))
        self.rows = rng.permutation(self.steps * self.num_envs)[:MINIBATCH]

    @property
    def env_fns(self) -> list[Any]:
        return [ImageEnv] * self.num_envs


# -- the ways of filling a rollout: context managers, each with a function that fills one ------------------


@contextmanager
def nothing(task: Task) -> Iterator[Fill]:
    """Steps the envs and stores nothing, to measure the steps alone."""
    with remuda.Pool(task.env_fns, **task.pool) as pool:
        pool.reset()

        def fill() -> None:
            for actions in task.actions:
                pool.step(actions)

        yield fill


@contextmanager
def rollout(task: Task) -> Iterator[Fill]:
    with remuda.Pool(task.env_fns, **task.pool) as pool:
        pool.reset()
        zeros = np.zeros(task.num_envs, np.float32)

        def fill() -> Any:
            filled = pool.rollout(task.steps)
            for actions, step in zip(task.actions, filled, strict=True):
                step.act(actions, value=zeros, log_prob=zeros)
            obs = filled.obs[:-1]
            return obs.reshape(-1, *obs.shape[2:])[task.rows]

        yield fill


@contextmanager
def stack(task: Task) -> Iterator[Fill]:
    """Keeps the arrays of each step in lists, and stacks them with np.stack."""
    with remuda.Pool(task.env_fns, **task.pool) as pool:
        batch = pool.reset()

        def fill() -> Any:
            nonlocal batch
            kept, others = [], []
            for actions in task.actions:
                kept.append(batch.obs)
                batch = pool.step(actions)
                others.append((batch.rewards, batch.terminations, batch.truncations))
            obs = np.stack(kept)
            [np.stack(arrays) for arrays in zip(*others, strict=True)]
            return obs.reshape(-1, *obs.shape[2:])[task.rows]

        yield fill


@contextmanager
def cleanrl(task: Task) -> Iterator[Fill]:
    """Assigns each step to float32 tensors that are allocated once, like CleanRL's PPO for Atari."""
    import torch

    envs: Any = remuda.gymnasium.AsyncVectorEnv(task.env_fns, **task.pool)
    shape = (task.steps, task.num_envs)
    obs, zeros = torch.zeros((*shape, 84, 84, 4)), torch.zeros(task.num_envs)
    actions, rewards, dones, values, logprobs = (torch.zeros(shape) for _ in range(5))
    next_obs, next_done = torch.Tensor(envs.reset()[0]), zeros
    rows = torch.from_numpy(task.rows)

    def fill() -> Any:
        nonlocal next_obs, next_done
        for t in range(task.steps):
            obs[t], dones[t], values[t], logprobs[t] = next_obs, next_done, zeros, zeros
            actions[t] = torch.from_numpy(task.actions[t])
            seen, reward, terminations, truncations, _ = envs.step(task.actions[t])
            rewards[t] = torch.tensor(reward).view(-1)
            next_obs, next_done = torch.Tensor(seen), torch.Tensor(np.logical_or(terminations, truncations))
        return obs.reshape((-1, 84, 84, 4))[rows]

    yield fill
    envs.close()


@contextmanager
def sb3(task: Task, is_ours: bool) -> Iterator[Fill]:
    """Fills SB3's buffer, or remuda's if ``is_ours``, like SB3's algorithms, with images transposed for `CnnPolicy`."""
    import torch
    from stable_baselines3.common.buffers import RolloutBuffer
    from stable_baselines3.common.vec_env import VecTransposeImage

    envs: Any = VecTransposeImage(remuda.sb3.SubprocVecEnv(task.env_fns, **task.pool))
    kind: Any = remuda.sb3.RolloutBuffer if is_ours else RolloutBuffer
    buffer = kind(task.steps, envs.observation_space, envs.action_space, device="cpu", n_envs=task.num_envs)
    zeros, starts = torch.zeros(task.num_envs), np.zeros(task.num_envs, np.bool_)
    last_obs = envs.reset()

    def fill() -> Any:
        nonlocal last_obs
        buffer.reset()
        for actions in task.actions:
            obs, rewards, dones, _ = envs.step(actions)
            buffer.add(last_obs, actions.reshape(-1, 1), rewards, starts, zeros, zeros)
            last_obs = obs
        buffer.compute_returns_and_advantage(zeros, dones)
        return next(buffer.get(MINIBATCH))

    yield fill
    envs.close()


WAYS: dict[str, tuple[Callable[[Task], Any], str]] = {
    ALONE: (nothing, "numpy"),
    "`pool.rollout`": (rollout, "numpy"),
    "a list, and `np.stack`": (stack, "numpy"),
    "CleanRL's tensors": (cleanrl, "torch"),
    "SB3's `RolloutBuffer`": (partial(sb3, is_ours=False), "stable_baselines3"),
    "`remuda.sb3.RolloutBuffer`": (partial(sb3, is_ours=True), "stable_baselines3"),
}
"""The ways by name, each with the package that it needs."""


# -- measuring -------------------------------------------------------------------------------------------


def measure(way: Callable[[Task], Any], task: Task) -> float:
    """Fills some rollouts to warm up. Returns the seconds for filling another one."""
    with way(task) as fill:
        for _ in range(WARM_UP):
            fill()
        begin = time.perf_counter()
        fill()
        return time.perf_counter() - begin


def markdown(seconds: dict[str, list[float]], options: argparse.Namespace) -> Iterator[Block]:
    medians = {name: median(each) for name, each in seconds.items()}
    frames = options.steps * options.num_envs
    columns = ["a rollout is filled by", "ms", "ms more than steps alone", "steps/s"]
    rows = (
        [name, figure(1e3 * each), figure(1e3 * (each - medians[ALONE])), f"{frames / each:,.0f}"]
        for name, each in medians.items()
    )
    yield table(columns, rows)
    yield (
        f"{machine.describe()}; {options.num_workers} workers. {options.steps} steps of {options.num_envs} envs with "
        f"images of 84 x 84 x 4 bytes, and a minibatch of {MINIBATCH}. Medians of {options.rounds} interleaved rounds."
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--num-workers", type=int, default=2)


def main() -> None:
    options = parse_options(__doc__, rounds=5, more=add_options)
    session, task = Session(options), Task(options)
    missing = [name for name, (_, needs) in WAYS.items() if importlib.util.find_spec(needs) is None]
    session.leave_out(f"{name}: {WAYS[name][1]} is not installed" for name in missing)
    turns = {name: partial(measure, way, task) for name, (way, _) in WAYS.items() if name not in missing}
    found = [seconds for _, seconds in session.measured([turns], partial(session.rounds, "rollouts"))]
    session.publish("rollouts", (line for seconds in found for line in markdown(seconds, options)), found)


if __name__ == "__main__":
    main()
