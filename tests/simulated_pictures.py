"""Real simulators that render with MuJoCo, and the libraries that they need. Workers import this module."""

from __future__ import annotations

import ctypes.util
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest

_LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}
_SIZE = {"width": 64, "height": 64}


def variables(gl: str) -> dict[str, str]:
    """Returns environment variables for workers that render with this library on their own cores.

    The first import of MuJoCo sets PYOPENGL_PLATFORM for all child processes, and a worker with another value fails.
    """
    return {"MUJOCO_GL": gl, "PYOPENGL_PLATFORM": gl, "LP_NUM_THREADS": "0"}


def require(gl: str) -> None:
    """Skips the test if the library is missing."""
    if ctypes.util.find_library(_LIBRARIES[gl]) is None:
        packages = "libegl1 libegl-mesa0 libgl1-mesa-dri libosmesa6"
        pytest.skip(f"lib{_LIBRARIES[gl]} is missing: apt install {packages}")


class Played(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that gives each env the same spaces, and draws the same actions after each reset.

    The first episode after each build is the same. (MetaWorld draws later ones from its own generators.)
    """

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]]) -> None:
        super().__init__(make())
        self._actions = self.env.action_space
        self.observation_space = self.action_space = gymnasium.spaces.Discrete(1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._actions.seed(0)
        self.env.reset(seed=0)
        return 0, {}

    def step(self, _: Any) -> Any:
        self.env.step(self._actions.sample())
        return 0, 0.0, False, False, {}


def _make(env_id: str, **arguments: Any) -> Played:
    return Played(partial(gymnasium.make, env_id, render_mode="rgb_array", disable_env_checker=True, **arguments))


def _make_task(task: str) -> Played:
    import metaworld  # noqa: F401 - the import registers the ids

    return _make("Meta-World/MT1", env_name=task, seed=0, **_SIZE)


MUJOCO = [partial(_make, env_id, **_SIZE) for env_id in ("HalfCheetah-v5", "Hopper-v5", "Ant-v5")]
METAWORLD = [partial(_make_task, task) for task in ("push-v3", "drawer-open-v3")]


def frames(pool: Any, count: int = 3) -> list[list[npt.NDArray[Any]]]:
    """Returns the picture of each env, for each step."""
    pool.reset()
    drawn = []
    for _ in range(count):
        pool.step([0] * pool.num_envs)
        drawn.append([np.array(picture) for picture in pool.call("render")])
    return drawn
