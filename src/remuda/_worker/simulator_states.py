"""Takes and restores the states of MuJoCo's simulations, and says which emulators of ale_py have no whole state."""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from remuda._worker.own_attribute import own_attribute

Array: TypeAlias = np.ndarray[Any, Any]


def repeats_actions(env: Any) -> bool:
    """Returns whether an env has an emulator of ale_py that repeats its last action at random ("sticky actions").

    The last action is not in ale_py's clones, and ale_py does not return it.
    """
    ale = own_attribute(env, "ale")
    return hasattr(ale, "getFloat") and ale.getFloat("repeat_action_probability") > 0


def is_mujoco(env: Any) -> bool:
    """Returns whether an env has the `model` and `data` of a simulation. Does not import MuJoCo."""
    model, data = own_attribute(env, "model"), own_attribute(env, "data")
    return type(model).__name__ == "MjModel" and type(data).__name__ == "MjData"


def take_mujoco(env: Any) -> tuple[Array, dict[str, Array]]:
    """Returns the state that MuJoCo's next step depends on, including the warm start, and the derived arrays.

    The derived arrays are from before the integration of the last step. Envs read some of them before the next step,
    and computing them from the state would give other values.
    """
    mujoco: Any = import_module("mujoco")
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(env.model, kind))
    mujoco.mj_getState(env.model, env.data, state, kind)
    values = ((name, getattr(env.data, name)) for name in dir(env.data) if not name.startswith("_"))
    return state, {name: value.copy() for name, value in values if isinstance(value, np.ndarray) and value.size}


def put_mujoco(env: Any, state: tuple[Array, dict[str, Array]]) -> None:
    """Restores the state and the derived arrays, except those of contacts and constraints, which are recomputed."""
    mujoco: Any = import_module("mujoco")
    model, data, (integrated, derived) = env.model, env.data, state
    mujoco.mj_resetData(model, data)  # this empties the arrays of contacts and constraints
    fixed = [name for name, value in derived.items() if getattr(data, name).shape == value.shape]
    mujoco.mj_setState(model, data, integrated, mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(model, data)
    for name in fixed:  # also the solver's warm start, which `mj_forward` has changed
        getattr(data, name)[...] = derived[name]
