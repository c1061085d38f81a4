"""Envs for the tests of clusters, and helpers that act on them."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from failing import ACTS

from remuda import Batch, Pool


class Scripted(gymnasium.Env[Any, Any]):
    """Observes (draw of its seed, steps, action). Episodes have 3, 5, 7 or 9 steps. `fail` lets the next step raise."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gymnasium.spaces.Discrete(5)
    fails = False
    episode = 0
    kind = "first"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.episode, self.steps = self.episode + 1, 0
        self.draw = float(self.np_random.integers(1 << 30))
        self.length = 3 + 2 * int(self.np_random.integers(4))
        return self._obs(0.0), {"options": str(options), "draw": self.draw}

    def step(self, action: Any) -> Any:
        if self.fails:
            raise RuntimeError("told to")
        self.steps += 1
        info = {"action": int(action)} if action else {}
        return self._obs(float(action)), float(self.steps + action), self.steps >= self.length, False, info

    def _obs(self, action: float) -> Any:
        return np.array([self.draw, self.steps, action])

    def pid(self) -> int:
        return os.getpid()


class Endless(Scripted):
    """An env with episodes that end only by truncation."""

    def reset(self, **arguments: Any) -> Any:
        result = super().reset(**arguments)
        self.length = 1 << 30
        return result


class Faulty(Endless):
    """An env that dies, hangs or raises in the next operation after `arm`, whichever that is."""

    metadata: Any = {"render_modes": ["ansi"]}
    render_mode = "ansi"
    armed: str | None = None
    pokes = 0

    def poke(self) -> int:
        armed, self.armed = self.armed, None
        if armed is not None:
            ACTS[armed]()
        self.pokes += 1
        return self.pokes

    def reset(self, **arguments: Any) -> Any:
        self.poke()
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        self.poke()
        return super().step(action)

    def render(self) -> Any:
        return self.poke()

    def get_state(self) -> Any:
        self.poke()
        return self.steps, self.draw, self.length

    def set_state(self, state: Any) -> None:
        self.poke()
        self.steps, self.draw, self.length = state


def arm(env: Any, kind: str) -> None:
    """Makes the next operation of a `Faulty` env fail, in the way that `failing.ACTS` has under this name."""
    env.unwrapped.armed = kind


def fail(env: Any) -> None:
    """Makes the next step of this env raise. A rebuilt env does not raise."""
    env.unwrapped.fails = True


def actions(step: int, env_ids: Sequence[int]) -> np.ndarray[Any, Any]:
    return np.array([(step * 7 + env * 3) % 5 for env in env_ids])


def rows_by_env(batch: Batch) -> dict[int, Any]:
    """Returns the rows of a batch by env, as plain data. A fault is reduced to its presence."""
    rows = {}
    for i, env in enumerate(batch.env_ids.tolist()):
        columns = batch.obs, batch.rewards, batch.terminations, batch.truncations
        rows[env] = *(column[i].tolist() for column in columns), _plain(batch.infos[i])
    return rows


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: key == "fault" or _plain(part) for key, part in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def kill_shard(pool: Pool, env_id: int) -> None:
    """Kills the actor with this env. For pools of `Ray(backend="serial")`, where the actor steps the envs."""
    (pid,) = pool.call("pid", env_ids=[env_id])
    os.kill(pid, signal.SIGKILL)
