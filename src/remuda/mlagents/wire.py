"""Encodes small orders and answers as bytes in a row of shared memory, in half the time of sending objects.

A step of ML-Agents is a dozen small arrays in objects of its own classes. Pickling these can take longer than the step
of an env, so they are sent as bytes and shapes. The pool sends others as objects: those of other classes, and those
with large arrays, which it does not copy.
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

_LARGE = 2048  # the size in bytes of the largest array that is sent in a row

ORDERS = spaces.Box(0, 255, (1024,), np.uint8)
ANSWERS = spaces.Box(0, 255, (8192,), np.uint8)


class _DoesNotFitError(Exception):
    """The object cannot be sent in a row of shared memory."""


# -- rows ------------------------------------------------------------------------------------------------


def is_empty(row: np.ndarray[Any, Any]) -> bool:
    """Returns whether a row is empty, because its content was sent as an object. No pickle begins with 0."""
    return bool(row[0] == 0)


def load_row(row: np.ndarray[Any, Any]) -> Any:
    return pickle.loads(row.data)  # the rest of the row is ignored: a pickle marks its own end


def _fill(row: np.ndarray[Any, Any], value: Any) -> bool:
    pickled = pickle.dumps(value, protocol=5)
    if len(pickled) > row.size:
        return False
    row[: len(pickled)] = np.frombuffer(pickled, np.uint8)
    return True


# -- orders ----------------------------------------------------------------------------------------------


def fill_with_actions(row: np.ndarray[Any, Any], actions: Mapping[str, Any]) -> bool:
    """Writes the actions of a step into a row. Returns whether they fit."""
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
    """Writes the result of a step or a reset into a row. Returns whether it fits."""
    try:
        if isinstance(answer, StepResponse):
            results, timers, stats = answer
            return _fill(row, (_pack_results(results), _pack_timers(timers), dict(stats)))
        return isinstance(answer, dict) and _fill(row, (_pack_results(answer), None, None))
    except _DoesNotFitError:
        return False


def load_answer(row: np.ndarray[Any, Any], no_ends: Mapping[str, TerminalSteps]) -> Any:
    """Reads the result of a step or reset from a row. ``no_ends`` has empty terminal steps for each behaviour."""
    packed, timers, stats = load_row(row)
    results = {
        name: (_unpack_decisions(*decisions), no_ends[name] if ends is None else _unpack_ends(*ends))
        for name, decisions, ends in packed
    }
    return results if stats is None else StepResponse(results, _unpack_timers(timers), stats)


def _pack_results(results: Mapping[str, Any]) -> list[Any]:
    return [(name, _pack_steps(decisions), _pack_steps(ends)) for name, (decisions, ends) in results.items()]


def _pack_steps(steps: Any) -> Any:
    """Packs decision or terminal steps as bytes and shapes. Returns None for empty terminal steps."""
    if type(steps) is DecisionSteps:
        arrays = steps.reward, steps.agent_id, steps.group_id, steps.group_reward
        return _pack_all(steps.obs), _pack_all(steps.action_mask), _pack_all(arrays)
    if type(steps) is not TerminalSteps:
        raise _DoesNotFitError
    if len(steps) == 0:
        return None
    return _pack_all(steps.obs), _pack_all(
        (steps.reward, steps.interrupted, steps.agent_id, steps.group_id, steps.group_reward)
    )


def _unpack_decisions(obs: Any, masks: Any, arrays: Any) -> DecisionSteps:
    reward, agent_id, group_id, group_reward = _unpack_all(arrays)
    return DecisionSteps(_unpack_all(obs), reward, agent_id, _unpack_all(masks), group_id, group_reward)


def _unpack_ends(obs: Any, arrays: Any) -> TerminalSteps:
    return TerminalSteps(_unpack_all(obs), *_unpack_all(arrays))


# -- arrays ----------------------------------------------------------------------------------------------


def _pack(array: Any) -> Any:
    if type(array) is list:  # for example Unity's group ids, which are sent as a list
        return array
    if type(array) is not np.ndarray or array.nbytes > _LARGE or array.dtype.kind not in "biuf":
        raise _DoesNotFitError
    return array.shape, array.dtype.str, bytearray(array.tobytes())


def _unpack(packed: Any) -> Any:
    return packed if type(packed) is list else np.ndarray(*packed)


def _pack_all(arrays: Sequence[Any] | None) -> Any:
    return None if arrays is None else [_pack(array) for array in arrays]


def _unpack_all(packed: Sequence[Any] | None) -> Any:
    return None if packed is None else [_unpack(each) for each in packed]


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
