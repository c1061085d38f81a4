"""The state of a simulation of MuJoCo, as Gymnasium's and other envs hold it: `model` and `data`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

_HANDLES = ("model", "data", "mujoco_renderer")


def is_simulated(env: Any) -> bool:
    """Whether an env has both. (MuJoCo is not imported for this.)"""
    model, data = (getattr(env, "__dict__", {}).get(name) for name in ("model", "data"))
    return type(model).__name__ == "MjModel" and type(data).__name__ == "MjData"


def take(env: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """All that the next step depends on, warm starts of the solver included."""
    mujoco: Any = import_module("mujoco")
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(env.model, kind))
    mujoco.mj_getState(env.model, env.data, state, kind)
    return state


def put(env: Any, state: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    """What is derived from it is computed anew, for whoever looks at positions before the next step."""
    mujoco: Any = import_module("mujoco")
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    mujoco.mj_setState(env.model, env.data, state, kind)
    mujoco.mj_forward(env.model, env.data)
    mujoco.mj_setState(env.model, env.data, state, kind)  # that has moved the warm start on


def is_beside(name: str) -> bool:
    """Whether an attribute is none of the simulation's handles."""
    return name not in _HANDLES
