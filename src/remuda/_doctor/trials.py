"""Trials of an env, each of which runs in a worker of its own and returns plain data."""

from __future__ import annotations

import gc
import importlib
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import gymnasium
import numpy as np
import numpy.typing as npt

from remuda._worker.env_report import free_closed_env, renders
from remuda._worker.memory import own_bytes

EnvFn: TypeAlias = Callable[[], Any]
Picture: TypeAlias = npt.NDArray[Any]

A, B = 0, 1  # the seeds of the two envs
BUILT_FIRST = "its predecessor is closed after it was built"
CLOSED_FIRST = "its predecessor is closed before it is built"
_STEPS = 3  # the number of steps between two pictures of an env.
_SECONDS = 60.0  # the time limit for the measured resets
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "EGL_DEVICE_ID", "LP_NUM_THREADS", "MUJOCO_EGL_DEVICE_ID", "MUJOCO_GL")


class Stage(gymnasium.Env[Any, Any]):
    """A placeholder env, which is never stepped. It gives a trial a worker, in which the trial runs as a call."""

    observation_space = action_space = gymnasium.spaces.Discrete(1)


class _Actor:
    """An env with a random policy, which repeats its actions for the same seed.

    The global generators of the process are seeded before each use, because some envs draw from them.
    """

    def __init__(self, env_fn: EnvFn, seed: int) -> None:
        self._uses, self._seed = 0, seed
        self._seed_shared()
        self.env: Any = env_fn()
        self.env.action_space.seed(seed)
        self._obs = self.env.reset(seed=seed)[0]

    def draw(self) -> list[Picture]:
        """Steps the env, and returns its pictures after the last step."""
        self._seed_shared()
        for _ in range(_STEPS):
            self._obs, _, terminated, truncated, _ = self.env.step(self.env.action_space.sample())
            if terminated or truncated:
                self._obs = self.env.reset(seed=self._seed)[0]
        return pictures(self.env, self._obs)

    def _seed_shared(self) -> None:
        self._uses += 1
        seed_shared(100 * self._seed + self._uses)

    def close(self) -> None:
        self.env.close()
        self.env = self._obs = None
        free_closed_env()


def seed_shared(number: int) -> None:
    """Seeds the random generators of the process, from which some envs draw."""
    for seed in (random.seed, np.random.seed):
        seed(number)


def pictures(env: Any, obs: Any) -> list[Picture]:
    """Copies the picture that an env's `render` returns, if it returns any, and the pictures in an observation."""
    drawn = env.render() if renders(env) and env.render_mode != "human" else None
    return [np.array(one) for one in [*([] if drawn is None else [drawn]), *in_observation(obs)]]


def in_observation(obs: Any) -> list[Picture]:
    """Returns the pictures in an observation."""
    return [one for one in arrays(obs) if one.dtype == np.uint8 and one.ndim >= 2]


def arrays(obs: Any) -> list[npt.NDArray[Any]]:
    """Returns the arrays in an observation, or in a batch of observations."""
    if isinstance(obs, dict):
        obs = tuple(obs.values())
    if isinstance(obs, tuple):
        return [one for value in obs for one in arrays(value)]
    return [obs] if isinstance(obs, np.ndarray) else []


def alone(_: Any, env_fn: EnvFn, seed: int) -> tuple[list[list[Picture]], dict[str, str]]:
    """Draws an env three times, alone in its process. Returns the pictures, and a description of its renderer."""
    actor = _Actor(env_fn, seed)
    found = [actor.draw() for _ in range(3)], _where()
    actor.close()
    return found


def together(_: Any, env_fn: EnvFn, other_fn: EnvFn) -> dict[str, tuple[int, int, list[Picture]]]:
    """Draws with two envs in one process.

    Returns by situation: the seed of the env that draws, the number of its earlier drawings, and its pictures.
    """
    found: dict[str, tuple[int, int, list[Picture]]] = {}
    first = _Actor(env_fn, A)
    first.draw()
    second = _Actor(other_fn, B)
    found["another env is built"] = B, 0, second.draw()
    found["another env draws"] = A, 1, first.draw()
    second.close()
    found["another env is closed"] = A, 2, first.draw()
    successor = _Actor(env_fn, A)
    first.close()
    found[BUILT_FIRST] = A, 0, successor.draw()
    successor.close()
    last = _Actor(env_fn, A)
    found[CLOSED_FIRST] = A, 0, last.draw()
    last.close()
    return found


def resets(_: Any, env_fn: EnvFn, count: int, warm_up: int) -> list[int]:
    """Resets and draws an env `count` times, or fewer if this takes long. Returns the memory in bytes after each."""
    env, sizes, end = env_fn(), list[int](), time.monotonic() + _SECONDS
    for i in range(warm_up + count):
        pictures(env, env.reset(seed=i)[0])
        gc.collect()
        if i >= warm_up:
            sizes.append(own_bytes())
        if time.monotonic() > end:
            break
    env.close()
    return sizes


def _where() -> dict[str, str]:
    """Returns the environment variables that choose a GPU, and the renderer if PyOpenGL has a current context."""
    found = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    if "OpenGL" in sys.modules:
        gl = importlib.import_module("OpenGL.GL")
        with suppress(Exception):  # PyOpenGL raises different exceptions on different platforms
            if (text := gl.glGetString(gl.GL_RENDERER)) is not None:
                found["renderer"] = text.decode(errors="replace")
    return found
