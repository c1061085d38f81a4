"""How orders and answers travel: small ones as bytes in a row of shared memory, which takes half the time of objects.

Pickling a step of ML-Agents costs more than many an env's step: a dozen small arrays in objects of its own classes. So
those go as bytes and shapes. What is large, or is not what ML-Agents makes, is left to the pool's way with objects,
where large arrays are not copied.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from mlagents.trainers.subprocess_env_manager import StepResponse
from mlagents_envs.base_env import ActionTuple, DecisionSteps, TerminalSteps
from mlagents_envs.timers import TimerNode

_LARGE = 2048  # bytes of an array

ORDERS = spaces.Box(0, 255, (1024,), np.uint8)
ANSWERS = spaces.Box(0, 255, (8192,), np.uint8)


class _DoesNotFitError(Exception):
    """Into a row."""


# -- rows ------------------------------------------------------------------------------------------------


def is_empty(row: np.ndarray[Any, Any]) -> bool:
    """Whether what should be in it came another way: no pickle begins with 0."""
    return bool(row[0] == 0)


def load_row(row: np.ndarray[Any, Any]) -> Any:
    return pickle.loads(row.data)  # it knows its own end


def _fill(row: np.ndarray[Any, Any], value: Any) -> bool:
    pickled = pickle.dumps(value, protocol=5)
    if len(pickled) > row.size:
        return False
    row[: len(pickled)] = np.frombuffer(pickled, np.uint8)
    return True


# -- orders ----------------------------------------------------------------------------------------------


def fill_with_actions(row: np.ndarray[Any, Any], actions: Mapping[str, Any]) -> bool:
    """Put the actions of a step into a row; whether they fit."""
    try:
        return _fill(row, [(name, *_pack_action(action)) for name, action in actions.items()])
    except _DoesNotFitError:
        return False


def load_actions(row: np.ndarray[Any, Any]) -> dict[str, ActionTuple]:
    return {name: ActionTuple(_unpack(first), _unpack(second)) for name, first, second in load_row(row)}


def _pack_action(action: Any) -> tuple[Any, Any]:
    if type(action) is not ActionTuple:
        raise _DoesNotFitError
    return _pack(action.continuous), _pack(action.discrete)


# -- answers ---------------------------------------------------------------------------------------------


def fill_with_answer(row: np.ndarray[Any, Any], answer: Any) -> bool:
    """Put what a step or a reset has given into a row; whether it fits."""
    try:
        if isinstance(answer, StepResponse):
            results, timers, stats = answer
            return _fill(row, (_pack_results(results), _pack_timers(timers), dict(stats)))
        return isinstance(answer, dict) and _fill(row, (_pack_results(answer), None, None))
    except _DoesNotFitError:
        return False


def load_answer(row: np.ndarray[Any, Any], ends: Mapping[str, TerminalSteps]) -> Any:
    """``ends``: the terminal steps of each behaviour where there are none."""
    packed, timers, stats = load_row(row)
    results = {name: _unpack_results(decisions, its_ends, ends[name]) for name, decisions, its_ends in packed}
    return results if stats is None else StepResponse(results, _unpack_timers(timers), stats)


def _pack_results(results: Mapping[str, Any]) -> list[Any]:
    return [(name, _pack_decisions(decisions), _pack_ends(ends)) for name, (decisions, ends) in results.items()]


def _unpack_results(decisions: Any, ends: Any, no_ends: TerminalSteps) -> tuple[DecisionSteps, TerminalSteps]:
    return _unpack_decisions(*decisions), no_ends if ends is None else _unpack_ends(*ends)


def _pack_decisions(steps: Any) -> tuple[Any, ...]:
    if type(steps) is not DecisionSteps:
        raise _DoesNotFitError
    mask = None if steps.action_mask is None else _pack_all(steps.action_mask)
    return _pack_all(steps.obs), mask, *map(_pack, (steps.reward, steps.agent_id, steps.group_id, steps.group_reward))


def _unpack_decisions(obs: Any, mask: Any, reward: Any, agent_id: Any, group_id: Any, group_reward: Any) -> Any:
    masks = None if mask is None else _unpack_all(mask)
    return DecisionSteps(
        _unpack_all(obs), _unpack(reward), _unpack(agent_id), masks, _unpack(group_id), _unpack(group_reward)
    )


def _pack_ends(steps: Any) -> tuple[Any, ...] | None:
    if type(steps) is not TerminalSteps:
        raise _DoesNotFitError
    if len(steps) == 0:
        return None
    rest = steps.reward, steps.interrupted, steps.agent_id, steps.group_id, steps.group_reward
    return _pack_all(steps.obs), *map(_pack, rest)


def _unpack_ends(obs: Any, *rest: Any) -> TerminalSteps:
    return TerminalSteps(_unpack_all(obs), *map(_unpack, rest))


# -- arrays ----------------------------------------------------------------------------------------------


def _pack(array: Any) -> Any:
    if type(array) is list:  # as Unity's group ids
        return array
    if type(array) is not np.ndarray or array.nbytes > _LARGE or array.dtype.kind not in "biuf":
        raise _DoesNotFitError
    return array.shape, array.dtype.str, bytearray(array.tobytes())


def _unpack(packed: Any) -> Any:
    return packed if type(packed) is list else np.ndarray(*packed)


def _pack_all(arrays: Sequence[Any]) -> list[Any]:
    return [_pack(array) for array in arrays]


def _unpack_all(packed: Sequence[Any]) -> list[Any]:
    return [_unpack(each) for each in packed]


# -- timers ----------------------------------------------------------------------------------------------


def _pack_timers(node: TimerNode | None) -> tuple[Any, ...] | None:
    if node is None:
        return None
    children = [(name, _pack_timers(each)) for name, each in node.children.items()]
    return node.total, node.count, node.is_parallel, children


def _unpack_timers(packed: tuple[Any, ...] | None) -> TimerNode | None:
    if packed is None:
        return None
    node = TimerNode()
    node.total, node.count, node.is_parallel, children = packed
    node.children = {name: _unpack_timers(each) for name, each in children}
    return node
