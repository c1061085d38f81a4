"""The state of an emulator of ale_py, with the action that its sticky actions may repeat.

With `repeat_action_probability`, each frame draws whether the emulator takes the new action or repeats its last one.
That action is not in ale_py's clones, and ale_py does not return it. It matters only until the first draw that takes a
new action, so it can be found by trial: any action with the same frames from here on is as good as the last one.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

Frames: TypeAlias = list[tuple[int, bytes]]  # the reward and the memory of each

_UNLIKELY = 1e-12  # the probability that a new action was not taken in so many frames


def is_emulated(env: Any) -> bool:
    """Whether an env is one of ale_py's, or like them."""
    return all(hasattr(getattr(env, "ale", None), name) for name in ("cloneState", "restoreState", "act", "getFloat"))


def take(env: Any) -> tuple[Any, Any]:
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


def put(env: Any, state: tuple[Any, Any]) -> None:
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
    told = [(ale.act(new), ale.getRAM().tobytes()) for _ in range(frames)]
    return told, ale.cloneState(include_rng=True).serialize()
