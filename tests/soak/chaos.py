"""Envs that fail on command, and are otherwise free of chance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import accidents
import gymnasium
import numpy as np
from gymnasium import spaces


class FuseBox:
    """A file that the test and all envs map: which env is to fail, how and when, and the env's next seed.

    The file outlives every process, so that each fuse burns once. An env that resets without a seed takes it from the
    file, and returns its seed in the info. The seed and the actions are enough to repeat an episode.
    """

    def __init__(self, path: Path, num_envs: int) -> None:
        self._path, self._shape = str(path), (num_envs, 3)
        path.write_bytes(bytes(8 * 3 * num_envs))
        self._open()

    def _open(self) -> None:
        self._seeds, self._kinds, self._delays = np.memmap(self._path, np.int64, "r+", shape=self._shape).T

    def __getstate__(self) -> Any:
        return self._path, self._shape

    def __setstate__(self, state: Any) -> None:
        self._path, self._shape = state
        self._open()

    def set_seed(self, env_id: int, seed: int) -> None:
        """Sets the seed for the next reset of the env that has none."""
        self._seeds[env_id] = seed

    def seed(self, env_id: int) -> int:
        return int(self._seeds[env_id])

    def arm(self, env_id: int, kind: str, delay: int) -> None:
        """Makes the env fail in a reset or step, after `delay` more of them."""
        self._delays[env_id] = delay
        self._kinds[env_id] = KINDS.index(kind) + 1

    def disarm(self) -> None:
        self._kinds[:] = 0

    def burn(self, env_id: int) -> None:
        """Called in the env: fails if it is time."""
        kind = int(self._kinds[env_id])
        if kind == 0:
            return
        if self._delays[env_id] > 0:
            self._delays[env_id] -= 1
            return
        self._kinds[env_id] = 0
        GRIEFS[KINDS[kind - 1]]()


GRIEFS: dict[str, Callable[[], None]] = {
    "killed": accidents.die,
    "aborts": accidents.abort,
    "exits": accidents.leave,
    "raises": accidents.raise_value_error,
    "stops": accidents.stop_myself,
    "spins": accidents.loop_for_ever,
    "waits": accidents.wait_for_ever,
    "holds the GIL": accidents.hold_the_gil,
}
KINDS = list(GRIEFS)

# The kind of fault that the pool reports for each failure.
FAULTS = dict.fromkeys(("stops", "spins", "waits", "holds the GIL"), "timeout")
FAULTS |= {"killed": "death", "aborts": "death", "exits": "death", "raises": "exception"}


class Fused(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that gives any env a fuse."""

    def __init__(self, env: gymnasium.Env[Any, Any], box: FuseBox, env_id: int) -> None:
        super().__init__(env)
        self._box, self._env_id = box, env_id

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._box.burn(self._env_id)
        seed = self._box.seed(self._env_id) if seed is None else seed
        obs, info = super().reset(seed=seed, options=options)
        return obs, {"seed": seed, **info}

    def step(self, action: Any) -> Any:
        self._box.burn(self._env_id)
        return super().step(action)


class NoiseEnv(gymnasium.Env[Any, Any]):
    """An env that draws its observations, rewards, ends and infos from NumPy's random numbers."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            noise=spaces.Box(-np.inf, np.inf, (3,), np.float64), word=spaces.Text(8), last=spaces.Discrete(5)
        )
        self.action_space = spaces.Discrete(5)

    def _draw(self, action: int) -> tuple[Any, dict[str, Any]]:
        word = "".join(self.np_random.choice(list("abcde"), 4))
        info: dict[str, Any] = {"luck": float(self.np_random.random())}
        if self.np_random.random() < 0.2:
            info["word"] = word[::-1]
        if (rare := int(self.np_random.integers(1500))) < 60:  # more keys than columns, each appearing at a random time
            info[f"rare {rare}"] = rare if rare % 2 else self.np_random.random(2)
        return {"noise": self.np_random.normal(size=3), "word": word, "last": np.int64(action)}, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._draw(0)

    def step(self, action: Any) -> Any:
        obs, info = self._draw(int(action))
        chance = self.np_random.random()
        return obs, float(self.np_random.normal()), bool(chance < 0.1), bool(0.1 <= chance < 0.15), info


MAKERS: dict[str, Callable[[], gymnasium.Env[Any, Any]]] = {
    "CartPole": lambda: gymnasium.make("CartPole-v1"),
    "noise": NoiseEnv,
}
