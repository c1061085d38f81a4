"""Envs for evaluations of tasks, which die in builds, resets and steps as often as files say. Workers import this
module by name, like `pool_envs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from accidents import kill_myself
from gymnasium import spaces


class Walk(gymnasium.Env[Any, Any]):
    """A walk. Its length and steps depend on the seed of the reset, the init state and the actions."""

    observation_space = spaces.Box(-1000, 1000, (3,), np.float64)
    action_space = spaces.Box(-100, 100, (2,), np.float64)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, scale: float = 1.0, render_mode: str | None = None) -> None:
        self.scale, self.render_mode = scale, render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.length = 0, int(self.np_random.integers(2, 9))
        self.place = float(0.0 if options is None else options["init_state"])
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.place += self.scale * float(np.sum(action)) + float(self.np_random.random())
        over = self.steps == self.length
        return self._observation(), self.place, over, False, {"is_success": self.place > 0} if over else {}

    def _observation(self) -> Any:
        return np.array([self.place, self.steps, self.scale])

    def render(self) -> Any:
        return np.full((16, 16, 3), 10 * self.steps, np.uint8)


class Mortal(Walk):
    """A walk that kills its worker: each count in `deaths` is for builds, or for resets or steps of one seed.

    Files in `folder` count, so that the successors of a worker continue the counts.
    """

    def __init__(self, folder: Path, name: str, deaths: dict[str, int], scale: float = 1.0) -> None:
        super().__init__(scale)
        self._folder, self._name, self._deaths = folder, name, deaths
        self._die_in("build", "")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._seed = seed
        self._die_in("reset", f"-{seed}")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.steps == 1:
            self._die_in("step", f"-{self._seed}")
        return super().step(action)

    def _die_in(self, operation: str, key: str) -> None:
        if kills(self._folder, f"{operation}-{self._name}{key}") < self._deaths.get(operation, 0):
            _add(self._folder / f"{operation}-{self._name}{key}")
            kill_myself()


def kills(folder: Path, pattern: str = "*") -> int:
    """Returns the number of kills that the files in the folder have counted."""
    return sum(file.stat().st_size for file in folder.glob(pattern))


def _add(file: Path) -> None:
    with file.open("ab", buffering=0) as counted:
        counted.write(b"x")


class Flat(Walk):
    """A walk with other observations."""

    observation_space = spaces.Box(-1000, 1000, (4,), np.float64)


class Closing(Walk):
    """A walk with an accident in `close`."""

    def __init__(self, accident: Any) -> None:
        super().__init__()
        self._accident = accident

    def close(self) -> None:
        self._accident()


class DeadlyToLoad:
    """Makes walks. Kills the worker that unpickles it, at those loads whose numbers are in `deadly`."""

    def __init__(self, counts: Path, deadly: tuple[int, ...]) -> None:
        self._counts, self._deadly = counts, deadly

    def __call__(self) -> Walk:
        return Walk()

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        number = self._counts.stat().st_size if self._counts.exists() else 0
        _add(self._counts)
        if number in self._deadly:
            kill_myself()
