"""Trains PPO on CartPole with remuda's and SB3's `SubprocVecEnv`. The curves are equal; remuda takes less time.

    python examples/sb3_ppo.py [PICTURE]        # sb3_ppo.png; a few minutes on two cores

The first two runs have the same seeds, and give the same actions and rewards to the last bit. They differ in the time
of the envs' steps; the time of PPO itself is the same. In the third run a worker of remuda is killed every two seconds,
and PPO learns nevertheless.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv as Original

from remuda import FaultPolicy
from remuda.sb3 import SubprocVecEnv

NUM_ENVS = 16
STEPS = 100_000
WORKERS = 2  # the workers of remuda's envs; the original has one for each env

SETTINGS: dict[str, Any] = {
    "n_steps": 32,
    "batch_size": 256,
    "n_epochs": 10,
    "gamma": 0.98,
    "gae_lambda": 0.8,
    "learning_rate": lambda left: 1e-3 * left,
}
OURS, THEIRS, KILLED = "remuda.sb3", "stable_baselines3", "remuda.sb3, killed"
RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    OURS: (SubprocVecEnv, {"num_workers": WORKERS}),
    THEIRS: (Original, {}),
    # This run kills workers on purpose, so they restart at once. By default the pauses before restarts grow.
    KILLED: (SubprocVecEnv, {"num_workers": WORKERS, "faults": FaultPolicy("restart", max_restarts=1000, backoff=0)}),
}
KILL_EVERY = 2.0  # the seconds between two kills in the last run


class Curve(BaseCallback):
    """Stores (seconds, steps, return) at the end of each episode. `Monitor` puts the return into the last info."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[tuple[float, int, float]] = []

    def _on_training_start(self) -> None:
        self.began = time.perf_counter()

    def _on_step(self) -> bool:
        seconds = time.perf_counter() - self.began
        ended = [info["episode"] for info in self.locals["infos"] if "episode" in info]
        self.points += [(seconds, self.num_timesteps, episode["r"]) for episode in ended]
        return True


class Killer(BaseCallback):
    """Kills one worker after another, at intervals."""

    def __init__(self) -> None:
        super().__init__()
        self.kills = 0

    def _on_training_start(self) -> None:
        self._next = time.perf_counter() + KILL_EVERY

    def _on_step(self) -> bool:
        if time.perf_counter() > self._next:
            workers = self.training_env.unwrapped.processes
            os.kill(workers[self.kills % len(workers)].pid, signal.SIGKILL)
            self.kills += 1
            self._next = time.perf_counter() + KILL_EVERY
        return True


def learn(vec_env_cls: Any, options: dict[str, Any], *others: BaseCallback) -> tuple[float, np.ndarray[Any, Any]]:
    """Trains PPO. Returns the seconds of the envs' start, and (seconds since then, steps, return) of every episode."""
    began = time.perf_counter()
    kwargs = {"vec_env_cls": vec_env_cls, "vec_env_kwargs": options}
    with contextlib.closing(make_vec_env("CartPole-v1", NUM_ENVS, seed=0, **kwargs)) as envs:
        curve, started = Curve(), time.perf_counter() - began
        PPO("MlpPolicy", envs, seed=0, device="cpu", **SETTINGS).learn(STEPS, callback=[curve, *others])
    return started, np.array(curve.points)


def draw(curves: dict[str, np.ndarray[Any, Any]], picture: Path) -> None:
    figure, (by_steps, by_seconds) = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for name, points in curves.items():
        seconds, steps, returns = points.T
        window = min(50, len(returns))
        smooth = np.convolve(returns, np.ones(window) / window, "valid")
        by_steps.plot(steps[window - 1 :] / 1000, smooth, label=name, linestyle="--" if name == THEIRS else "-")
        by_seconds.plot(seconds[window - 1 :], smooth, label=name)
    by_steps.set(xlabel="env steps, thousands", ylabel="return, mean of 50 episodes", title="the same curve ...")
    by_seconds.set(xlabel="seconds", title="... in less time")
    by_steps.legend()
    figure.savefig(picture)


def main(picture: Path) -> None:
    torch.set_num_threads(1)  # networks this small are slower with more threads
    curves, killer = {}, Killer()
    for name, (vec_env_cls, options) in RUNS.items():
        started, curves[name] = learn(vec_env_cls, options, *([killer] if name == KILLED else []))
        seconds, _, returns = curves[name].T
        last = returns[-50:].mean()
        print(f"{name + ':':20}{started:6.1f} s to start, {seconds[-1]:6.1f} s to learn; last 50 returns {last:.0f}")
    print(f"the same episodes:  {np.array_equal(curves[OURS][:, 1:], curves[THEIRS][:, 1:])}")
    print(f"workers killed:     {killer.kills}")
    draw(curves, picture)
    print(f"the picture is {picture}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "sb3_ppo.png"))
