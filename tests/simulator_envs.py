"""Real simulators as envs with short episodes. Workers import this module by name, like `pool_envs`.

Episodes end in both ways: all are truncated after some steps, and ants also fall.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from ctypes import CDLL
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from drawn import MINUTES
from pool_envs import EnvFn

NAMES = ("HalfCheetah-v5", "Ant-v5", "ALE/Pong-v5", "pixels")
SOME = NAMES if MINUTES else ("Ant-v5", "ALE/Pong-v5")
BACKENDS = ("process", "thread", "serial")
STEPS = 12  # the length of the longest episode

# -- OpenGL without a screen -----------------------------------------------------------------------------

PACKAGES = "libegl1, libegl-mesa0 and libgl1-mesa-dri, or libosmesa6"
_VENDORS = ("/usr/share/glvnd/egl_vendor.d", "/etc/glvnd/egl_vendor.d")  # libEGL needs a vendor library to render


def _off_screen() -> str | None:
    """Returns the value of MUJOCO_GL for a library that is installed here. None means that there is no such library."""
    if _loads("libEGL.so.1") and any(any(Path(folder).glob("*.json")) for folder in _VENDORS):
        return "egl"
    return "osmesa" if _loads("libOSMesa.so.8") else None


def _loads(library: str) -> bool:
    try:
        return bool(CDLL(library))
    except OSError:
        return False


OFF_SCREEN = os.environ.get("MUJOCO_GL") or _off_screen()
if OFF_SCREEN is not None:
    os.environ["MUJOCO_GL"] = OFF_SCREEN
    os.environ.setdefault("LP_NUM_THREADS", "0")  # otherwise Mesa uses a thread for each core


def require_off_screen() -> None:
    """Skips a test that renders if there is no library for it."""
    if OFF_SCREEN is None:
        pytest.skip(f"no library draws without a screen here: install the Debian packages {PACKAGES}")


# -- envs ------------------------------------------------------------------------------------------------


def _half_cheetah(**options: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("HalfCheetah-v5", max_episode_steps=STEPS, **options)


def _ant() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("Ant-v5", max_episode_steps=STEPS, healthy_z_range=(0.6, 0.85))


def _pong() -> gymnasium.Env[Any, Any]:
    import ale_py
    from gymnasium.wrappers import AtariPreprocessing

    gymnasium.register_envs(ale_py)
    # with sticky actions, drawn in the emulator
    env = gymnasium.make("ALE/Pong-v5", max_episode_steps=None, frameskip=1)
    return gymnasium.wrappers.TimeLimit(AtariPreprocessing(env, noop_max=5, screen_size=42), STEPS)


def _pixels() -> gymnasium.Env[Any, Any]:
    from gymnasium.wrappers import AddRenderObservation

    env = _half_cheetah(render_mode="rgb_array", width=32, height=32)
    env.unwrapped.model.vis.quality.shadowsize = 0  # type: ignore[attr-defined] # shadows take five times as long
    env.reset(seed=0)
    env.render()  # the first picture places the camera permanently
    return AddRenderObservation(env)


_MAKERS: dict[str, EnvFn] = dict(zip(NAMES, (_half_cheetah, _ant, _pong, _pixels), strict=True))


def env_fns(name: str, num_envs: int) -> list[EnvFn]:
    """Returns factories of a simulator. Skips the test if the simulator is not installed."""
    for package in ("ale_py", "cv2") if name == "ALE/Pong-v5" else ("mujoco",):
        pytest.importorskip(package)
    if name == "pixels":
        require_off_screen()
    return [_MAKERS[name]] * num_envs


# The backends of each simulator. After rendering in one thread, OpenGL renders nothing in another.
# Simulators start slowly, so each is on one backend, and on all in `make soak`.
PLACES = [(name, backend) for name in NAMES for backend in BACKENDS if (name, backend) != ("pixels", "thread")]
if not MINUTES:
    PLACES = [*zip(NAMES, ("process", "process", "thread", "process"), strict=True)]


def num_envs_in_a_process(name: str) -> int:
    """Returns the number of envs of a serial twin, which is 1 for envs that render, because they share the OpenGL
    context.
    """
    return 1 if name == "pixels" else 3


def draw_actions(space: gymnasium.Space[Any], num_steps: int, num_envs: int) -> Any:
    """Returns actions of shape (num_steps, num_envs, ...), the same each time."""
    space.seed(0)
    return np.array([[space.sample() for _ in range(num_envs)] for _ in range(num_steps)])


class StumblingEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Runs a hook before each step."""

    def __init__(self, env: gymnasium.Env[Any, Any], hook: Callable[[], Any]) -> None:
        super().__init__(env)
        self.hook = hook

    def step(self, action: Any) -> Any:
        self.hook()
        return super().step(action)


def stumbling(fns: Sequence[EnvFn], hook: Callable[[], Any]) -> list[EnvFn]:
    """Returns the factories, of which the last makes an env that runs the hook before each step."""
    *others, last = fns
    return [*others, lambda: StumblingEnv(last(), hook)]
