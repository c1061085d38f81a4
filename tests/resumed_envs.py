"""Envs with episodes that can be played again exactly, and some without. Workers import this module."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pool_envs import Info, StepResult


class WalkEnv(gymnasium.Env[Any, Any]):
    """A random walk: it draws in resets and steps, and its infos have numbers, arrays and texts of varying keys.

    The observation is (steps, a random number, the sum of actions). Episodes have a random length of 2 to `longest`.
    """

    def __init__(self, longest: int = 9) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.Box(-10, 10, (2,), np.float32)
        self.longest, self.steps, self.total, self.last, self.level = longest, 0, 0.0, 0.0, 0

    def observe(self) -> Any:
        self.last = self.np_random.normal()
        return np.array([self.steps, self.last, self.total], np.float32)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.steps, self.total, self.level = 0, 0.0, (options or {}).get("level", 0)
        self.length = int(self.np_random.integers(2, self.longest + 1))
        return self.observe(), {"length": self.length, "level": self.level}

    def step(self, action: Any) -> StepResult:
        self.steps += 1
        self.total += float(action.sum())
        obs = self.observe()
        info: Info = {"drawn": self.np_random.random(3)}
        if self.steps % 3 == 0:
            info |= {"text": f"step {self.steps}", "nested": {"level": self.level, "set": {"a", "b"}}}
        return obs, float(obs[1] + self.level), self.steps >= self.length, False, info


class Failing(WalkEnv):
    """A walk that raises, dies or hangs in its step number `at`, as long as a file does not exist, which it makes."""

    def __init__(self, act: Callable[[], object], at: int, trace: Path) -> None:
        super().__init__(10**6)
        self.act, self.at, self.trace = act, at, trace

    def step(self, action: Any) -> Any:
        if self.steps == self.at and not self.trace.exists():
            self.trace.touch()
            self.act()
        return super().step(action)


class OddWalkEnv(WalkEnv):
    """A walk that is not the same when it is played again, for a reason that `kind` names."""

    def __init__(self, kind: str, counter: Path | None = None) -> None:
        super().__init__(10**6)
        self.kind, self.counter, self.builds = kind, counter, 0
        if counter is not None:
            with counter.open("ab") as file:
                file.write(b".")
            self.builds = counter.stat().st_size
        if kind == "race":
            self.count, self.is_closed = 0, threading.Event()
            threading.Thread(target=self.run).start()

    def run(self) -> None:
        while not self.is_closed.wait(1e-5):
            self.count += 1

    def close(self) -> None:
        if self.kind == "race":
            self.is_closed.set()

    def step(self, action: Any) -> StepResult:
        obs, reward, terminated, truncated, info = super().step(action)
        match self.kind:
            case "clock":
                obs[1] = time.perf_counter()
            case "global random":
                obs[1] = random.random()
            case "global numpy":
                reward = float(np.random.normal())
            case "file":
                info["builds"] = self.builds
            case "late":
                terminated = self.builds > 1 and self.steps == 2
            case "race":
                obs[1] = self.count
            case "own space":
                reward = float(self.action_space.sample()[0])
            case "NaN":
                obs[2] = np.nan if self.steps == 3 else 0.0
        return obs, reward, terminated, truncated, info


class CopiedEnv(WalkEnv):
    """A walk that is the same in each copy of the env, for a reason that `kind` names."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.own = kind, np.random.default_rng(3)
        if kind == "seeded in the factory":
            self.reset(seed=3)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        if self.kind == "global":
            random.seed(3)
        return super().reset(seed=3 if self.kind == "constant seed" else seed, options=options)

    def observe(self) -> Any:
        obs = super().observe()
        if self.kind in ("global", "own"):
            obs[1], self.length = random.random() if self.kind == "global" else self.own.random(), 5
        return obs

    def step(self, action: Any) -> StepResult:
        return *super().step(action)[:4], {}


class EarlierEnv(WalkEnv):
    """A walk with levels that become longer, or with random numbers that only a seed begins again."""

    def __init__(self, kind: str) -> None:
        super().__init__(10)
        self.kind, self.own = kind, np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        self.longest += 10 * (self.kind == "levels")
        if seed is not None:
            self.own = np.random.default_rng(seed)
        return super().reset(seed=seed, options=options)

    def observe(self) -> Any:
        obs = super().observe()
        obs[1] = self.own.random() if self.kind == "own generator" else self.longest
        return obs


class BufferEnv(WalkEnv):
    """A walk that writes its observations into one array, if `is_shared`, or never changes them."""

    def __init__(self, *, is_shared: bool) -> None:
        super().__init__()
        self.is_shared, self.buffer = is_shared, np.zeros(3, np.float32)

    def observe(self) -> Any:
        obs = super().observe()
        if self.is_shared:
            self.buffer[:] = obs
        return self.buffer if self.is_shared else np.zeros(3, np.float32)
