"""The state of a simulation of MuJoCo, as Gymnasium's and other envs hold it: `model` and `data`."""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"

_HANDLES = ("model", "data", "mujoco_renderer")


def is_simulated(env: Any) -> bool:
    """Whether an env has both. (MuJoCo is not imported for this.)"""
    model, data = (getattr(env, "__dict__", {}).get(name) for name in ("model", "data"))
    return type(model).__name__ == "MjModel" and type(data).__name__ == "MjData"


def take(env: Any) -> tuple[Array, dict[str, Array]]:
    """Returns all that the next step depends on, warm starts of the solver included, and the arrays derived from it.

    A step leaves the derived arrays as they were before its integration. Envs read some of them before the next step,
    and computing them from the state gives other values.
    """
    mujoco: Any = import_module("mujoco")
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(env.model, kind))
    mujoco.mj_getState(env.model, env.data, state, kind)
    values = ((name, getattr(env.data, name)) for name in dir(env.data) if not name.startswith("_"))
    return state, {name: value.copy() for name, value in values if isinstance(value, np.ndarray) and value.size}


def put(env: Any, state: tuple[Array, dict[str, Array]]) -> None:
    """Restores all of that but the arrays of contacts and constraints, which are computed from the state."""
    mujoco: Any = import_module("mujoco")
    model, data, (integrated, derived) = env.model, env.data, state
    mujoco.mj_resetData(model, data)  # now only arrays of a fixed size have any
    fixed = [name for name, value in derived.items() if getattr(data, name).shape == value.shape]
    mujoco.mj_setState(model, data, integrated, mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(model, data)
    for name in fixed:  # the warm start, too, which that has moved on
        getattr(data, name)[...] = derived[name]


def is_beside(name: str) -> bool:
    """Whether an attribute is none of the simulation's handles."""
    return name not in _HANDLES
