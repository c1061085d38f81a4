"""Takes and puts the states of simulators: ale_py's emulator, and MuJoCo's simulation.

An emulator's state includes the action that its sticky actions may repeat. With `repeat_action_probability`, each frame
draws whether the emulator takes the new action or repeats its last one. That action is not in ale_py's clones, and
ale_py does not return it. It matters only until the first draw that takes a new action, so it can be found by trial:
any action with the same frames from here on is as good as the last one.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Frames: TypeAlias = list[tuple[int, bytes]]  # the reward and the memory of each

_UNLIKELY = 1e-12  # the probability that a new action was not taken in so many frames
_HANDLES = ("model", "data", "mujoco_renderer")


# -- emulators ------------------------------------------------------------------------------------------


def is_emulator(env: Any) -> bool:
    """Whether an env has an emulator like ale_py's."""
    return all(hasattr(getattr(env, "ale", None), name) for name in ("cloneState", "restoreState", "act", "getFloat"))


def take_emulator(env: Any) -> tuple[Any, Any]:
    """Returns a clone with the emulator's random numbers, and the action that may be repeated; None if none can be."""
    ale = env.ale
    clone = ale.cloneState(include_rng=True)
    frames = _frames(env)
    if not frames:
        return clone, None
    try:
        seen = _play(ale, clone, frames)
        same = (action for action in ale.getLegalActionSet() if _play(ale, clone, frames, action) == seen)
        last = next(same, None)
        if last is not None:
            _repeat(ale, frames, last)
        return clone, last
    finally:
        ale.restoreState(clone)


def put_emulator(env: Any, state: tuple[Any, Any]) -> None:
    """Restores a clone, and has the emulator repeat that action first."""
    clone, last = state
    if last is not None:
        _repeat(env.ale, _frames(env), last)
    env.ale.restoreState(clone)


def _frames(env: Any) -> int:
    """Returns how many frames surely take a new action; 0 if actions are not sticky, or have any strength."""
    sticky = env.ale.getFloat("repeat_action_probability")
    if not 0 < sticky < 1 or getattr(env, "continuous", False):
        return 0
    return math.ceil(math.log(_UNLIKELY) / math.log(sticky))


def _repeat(ale: Any, frames: int, action: Any) -> None:
    """Makes an action the one that may be repeated, which restoring a clone does not change."""
    for _ in range(frames):
        ale.act(action)


def _play(ale: Any, clone: Any, frames: int, last: Any = None) -> tuple[Frames, bytes]:
    """Returns the frames from a clone on, and the state after them; `last`: the action that may be repeated."""
    if last is not None:
        _repeat(ale, frames, last)
    ale.restoreState(clone)
    new = ale.getLegalActionSet()[0]
    seen = [(ale.act(new), ale.getRAM().tobytes()) for _ in range(frames)]
    return seen, ale.cloneState(include_rng=True).serialize()


# -- MuJoCo ---------------------------------------------------------------------------------------------


def is_mujoco(env: Any) -> bool:
    """Whether an env has the `model` and `data` of a simulation. (MuJoCo is not imported for this.)"""
    model, data = (getattr(env, "__dict__", {}).get(name) for name in ("model", "data"))
    return type(model).__name__ == "MjModel" and type(data).__name__ == "MjData"


def take_mujoco(env: Any) -> tuple[Array, dict[str, Array]]:
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


def put_mujoco(env: Any, state: tuple[Array, dict[str, Array]]) -> None:
    """Restores all of that but the arrays of contacts and constraints, which are computed from the state."""
    mujoco: Any = import_module("mujoco")
    model, data, (integrated, derived) = env.model, env.data, state
    mujoco.mj_resetData(model, data)  # now only arrays of a fixed size have any
    fixed = [name for name, value in derived.items() if getattr(data, name).shape == value.shape]
    mujoco.mj_setState(model, data, integrated, mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(model, data)
    for name in fixed:  # the warm start, too, which that has moved on
        getattr(data, name)[...] = derived[name]


def is_beside_mujoco(name: str) -> bool:
    """Whether an attribute does not belong to the simulation."""
    return name not in _HANDLES
