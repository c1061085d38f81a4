"""How long it takes to fill a rollout of images and to take the first minibatch of it, by who fills it.

All step the same envs in the same number of remuda's workers, so what differs is what becomes of the observations.
There is no policy: actions are drawn beforehand, values are zeros. Ways that need Stable-Baselines3 are left out where
it is not installed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, ClassVar

import gymnasium
import numpy as np
from script import publish_lines
from tables import figure, head, row

import remuda
from remuda._system import machine

MINIBATCH = 256
WARM_UP = 4  # rollouts: memory is reserved in the first ones

Fill = Callable[[], Any]


class ImageEnv(gymnasium.Env[Any, Any]):
    """Stacked frames of a size as Atari's; the step itself takes a microsecond or two."""

    metadata: ClassVar[dict[str, Any]] = {}
    observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = gymnasium.spaces.Discrete(6)

    def __init__(self) -> None:
        self._obs, self._steps = np.zeros((84, 84, 4), np.uint8), 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self._obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        self._obs[0] = self._steps % 256
        return self._obs, 1.0, False, False, {}


class Task:
    """What each way has to do."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.steps, self.num_envs = options.steps, options.num_envs
        self.pool: Any = {"num_workers": options.num_workers, "advise": False}
        rng = np.random.default_rng(0)
        self.actions = rng.integers(0, 6, (self.steps, self.num_envs))
        self.rows = rng.permutation(self.steps * self.num_envs)[:MINIBATCH]

    @property
    def env_fns(self) -> list[Any]:
        return [ImageEnv] * self.num_envs


# -- the ways: each yields what fills a rollout -----------------------------------------------------------


@contextmanager
def nothing(task: Task) -> Iterator[Fill]:
    """Steps, and keeps nothing."""
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
    """A list of what the steps return, and np.stack."""
    with remuda.Pool(task.env_fns, **task.pool) as pool:
        batch = pool.reset()

        def fill() -> Any:
            nonlocal batch
            kept, others = [], []
            for actions in task.actions:
                kept.append(batch.obs)
                batch = pool.step(actions)
                others.append((batch.reward, batch.terminated, batch.truncated))
            obs = np.stack(kept)
            [np.stack(arrays) for arrays in zip(*others, strict=True)]
            return obs.reshape(-1, *obs.shape[2:])[task.rows]

        yield fill


@contextmanager
def cleanrl(task: Task) -> Iterator[Fill]:
    """As CleanRL's PPO for Atari does: float32 tensors, allocated once, and each step assigned to its place."""
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
    """As SB3's algorithms fill their buffer, the env's images transposed as for `CnnPolicy`."""
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


@contextmanager
def theirs(task: Task) -> Iterator[Fill]:
    with sb3(task, is_ours=False) as fill:
        yield fill


@contextmanager
def ours(task: Task) -> Iterator[Fill]:
    with sb3(task, is_ours=True) as fill:
        yield fill


WAYS: dict[str, Any] = {
    "steps alone, nothing kept": nothing,
    "`pool.rollout`": rollout,
    "a list, and `np.stack`": stack,
    "CleanRL's tensors": cleanrl,
    "SB3's `RolloutBuffer`": theirs,
    "`remuda.sb3.RolloutBuffer`": ours,
}


# -- measuring -------------------------------------------------------------------------------------------


def measure(way: Any, task: Task) -> float | None:
    """Seconds of one rollout, after some that warm up; None: it needs what is not installed."""
    try:
        with way(task) as fill:
            for _ in range(WARM_UP):
                fill()
            begin = time.perf_counter()
            fill()
            return time.perf_counter() - begin
    except ImportError as missing:
        print(f"left out: {missing}", file=sys.stderr)
        return None


def markdown(seconds: dict[str, list[float]], options: argparse.Namespace) -> Iterator[str]:
    best = {name: median(each) for name, each in seconds.items() if each}
    base = best["steps alone, nothing kept"]
    yield from head(["a rollout is filled by", "ms", "ms more than steps alone", "steps/s"])
    for name, each in best.items():
        rate = options.steps * options.num_envs / each
        yield row([name, figure(1e3 * each), figure(1e3 * (each - base)), f"{rate:,.0f}"])
    yield ""
    yield (
        f"{machine.describe()}; {options.num_workers} workers. {options.steps} steps of {options.num_envs} envs with "
        f"images of 84 x 84 x 4 bytes, and a minibatch of {MINIBATCH}. Medians of {options.rounds} interleaved rounds."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--readme", action="store_true", help="put the table into README.md beside this file")
    options = parser.parse_args()
    task = Task(options)
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(options.rounds):
        for name, way in WAYS.items():
            if (one := measure(way, task)) is not None:
                seconds[name].append(one)
    publish_lines("rollouts", markdown(seconds, options), options)


if __name__ == "__main__":
    main()
