"""Takes and restores the states of simulators: ale_py's emulator and MuJoCo's simulation.

An emulator's state includes the action that its sticky actions may repeat. With `repeat_action_probability`, each frame
draws whether the emulator takes the new action or repeats its last one. That action is not in ale_py's clones, and
ale_py does not return it. It matters only until the first draw that takes a new action, so it is found by trial:
any action that gives the same frames from here on is equivalent to it.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from remuda._worker.own_attribute import own_attribute

Array: TypeAlias = np.ndarray[Any, Any]
Frames: TypeAlias = list[tuple[int, bytes]]  # for each frame, the reward and the emulator's memory

_UNLIKELY = 1e-12  # the accepted probability that all frames in a trial repeat the old action
_HANDLES = ("model", "data", "mujoco_renderer")


# -- emulators ------------------------------------------------------------------------------------------


def is_emulator(env: Any) -> bool:
    """Whether an env has an emulator like ale_py's."""
    return all(hasattr(getattr(env, "ale", None), name) for name in ("cloneState", "restoreState", "act", "getFloat"))


def take_emulator(env: Any) -> tuple[Any, Any]:
    """Returns a clone of the emulator's state, and the action that the emulator may repeat (None: unknown)."""
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
    """Restores an emulator's state: the clone, and the action that the emulator may repeat."""
    clone, last = state
    if last is not None:
        _repeat(env.ale, _frames(env), last)
    env.ale.restoreState(clone)


def _frames(env: Any) -> int:
    """Returns in how many frames the emulator almost surely takes a new action; 0 without sticky actions."""
    sticky = env.ale.getFloat("repeat_action_probability")
    if not 0 < sticky < 1 or getattr(env, "continuous", False):
        return 0
    return math.ceil(math.log(_UNLIKELY) / math.log(sticky))


def _repeat(ale: Any, frames: int, action: Any) -> None:
    """Makes `action` the emulator's last action, almost surely. Restoring a clone does not change the last action."""
    for _ in range(frames):
        ale.act(action)


def _play(ale: Any, clone: Any, frames: int, last: Any = None) -> tuple[Frames, bytes]:
    """Steps the emulator from a clone. Returns the frames and the final state. `last`: the action taken before."""
    if last is not None:
        _repeat(ale, frames, last)
    ale.restoreState(clone)
    new = ale.getLegalActionSet()[0]
    seen = [(ale.act(new), ale.getRAM().tobytes()) for _ in range(frames)]
    return seen, ale.cloneState(include_rng=True).serialize()


# -- MuJoCo ---------------------------------------------------------------------------------------------


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


def is_beside_mujoco(name: str) -> bool:
    """Returns whether an attribute of the env lies outside the MuJoCo simulation."""
    return name not in _HANDLES
