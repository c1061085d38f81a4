"""Envs that fail at certain actions. Workers import this module by name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import accidents
import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from old_gymnasium import in_mode, require_mode
from pool_envs import EnvFn, Info, StepResult

FAIL = {"exception": 100, "death": 200, "hang": 300}  # the action for each kind of failure
FAIL_NEXT_RESET = 400  # ends the episode in this step; added to an action of FAIL, the next reset fails
may_go = threading.Event()  # makes the envs that hang in threads return


def hang() -> None:
    """Hangs forever in a process, and until `may_go` in a thread."""
    accidents.hold_the_gil() if threading.current_thread() is threading.main_thread() else may_go.wait()


_ACTS: dict[int, Callable[[], Any]] = {100: accidents.raise_value_error, 200: accidents.kill_myself, 300: hang}


class ScriptedEnv(gymnasium.Env[Any, Any]):
    """Observes (tag, builds of this place, episodes since the last seed, steps, last action).

    The reward is the last two digits of the action plus `bonus`. Infos have the arguments of resets, the number of
    steps, and after two steps a text. An episode has `length` steps. `builds`: a file with one byte for each build for
    this place; None: builds and episodes are not counted, so that the env is the same when an episode is played again.
    `reuses`: whether it writes all observations to one array.
    """

    def __init__(self, tag: int, length: int, builds: Path | None, *, reuses: bool) -> None:
        self.observation_space = spaces.Box(-1, 2**40, (5,), np.int64)
        self.action_space = spaces.Discrete(1000)
        self.tag, self.length, self.bonus = tag, length, 0
        self.episodes = self.steps = 0
        self.last_action, self._next_reset = -1, 0
        self._buffer = np.zeros(5, np.int64) if reuses else None
        self.life = 0
        if builds is not None:
            with builds.open("ab") as file:
                file.write(b".")
            self.life = builds.stat().st_size

    def _observe(self) -> Any:
        return np.array([self.tag, self.life, self.episodes, self.steps, self.last_action])

    def _observe_again(self) -> Any:
        if self._buffer is not None:
            self._buffer[:] = self._observe()
        return self._observe() if self._buffer is None else self._buffer

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        fail, self._next_reset = self._next_reset, 0
        if fail:
            _ACTS[fail]()
        self.episodes = 0 if self.life == 0 else 1 if seed is not None else self.episodes + 1
        self.steps, self.last_action = 0, -1
        return self._observe_again(), {"seed": -1 if seed is None else seed, "level": (options or {}).get("level", -1)}

    def step(self, action: Any) -> StepResult:
        code = int(action) // 100 * 100
        if code in _ACTS:
            _ACTS[code]()
        is_last = code >= FAIL_NEXT_RESET
        self._next_reset = code - FAIL_NEXT_RESET if is_last else 0
        self.steps += 1
        self.last_action = int(action) % 100
        info = {"steps": self.steps} | ({"text": "x" * 3000 * (self.tag % 2)} if self.steps == 2 else {})
        return self._observe_again(), float(paid(self)), is_last or self.steps >= self.length, False, info


class ScriptedVector(SyncVectorEnv):
    """A vector env of ScriptedEnvs. Setting its `bonus` sets theirs."""

    @property
    def bonus(self) -> int:
        return int(self.envs[0].unwrapped.bonus)

    @bonus.setter
    def bonus(self, bonus: int) -> None:
        for env in self.envs:
            env.unwrapped.bonus = bonus  # type: ignore[attr-defined]


def seen(env: Any) -> Any:
    """Returns the current observation of an env, or of each env of a vector env."""
    if isinstance(env, SyncVectorEnv):
        return np.array([one.unwrapped._observe() for one in env.envs])  # type: ignore[attr-defined]
    return env._observe()


def paid(env: Any) -> int:
    """Returns the reward of the latest step of an env."""
    return int(env.last_action + env.bonus)


def take(env: Any) -> Any:
    core = env.unwrapped
    return core.episodes, core.steps, core.last_action, core._next_reset


def put(env: Any, state: Any) -> None:
    core = env.unwrapped
    core.episodes, core.steps, core.last_action, core._next_reset = state


def scripted(num_envs: int, directory: Path | None, width: int, first_tag: int = 0) -> list[EnvFn]:
    """Returns factories. Each `width` neighbours end their episodes together. `directory`: for the files that count
    builds; None: see `ScriptedEnv`.
    """
    reuses = width == 1  # SyncVectorEnv does not copy the terminal observation before it resets
    files = [None if directory is None else directory / f"builds-{i}" for i in range(num_envs)]
    return [_make(first_tag + i, 2 + i // width % 3, files[i], reuses) for i in range(num_envs)]


def vectors(env_fns: list[EnvFn], width: int, mode: str) -> list[EnvFn]:
    """Returns factories of vector envs of `width` of these envs each, with this autoreset mode."""
    require_mode(mode)
    return [_vector(env_fns[first : first + width], mode) for first in range(0, len(env_fns), width)]


def _make(tag: int, length: int, builds: Path | None, reuses: bool) -> EnvFn:
    return lambda: ScriptedEnv(tag, length, builds, reuses=reuses)


def _vector(env_fns: list[EnvFn], mode: str) -> EnvFn:
    return lambda: ScriptedVector(env_fns, **in_mode(mode))
