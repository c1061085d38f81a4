"""What runs in a worker, beside the env. It imports Stable-Baselines3 only where an env of old Gym needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

REWARD_TYPE = "remuda.sb3.reward_type"
"""In the info of a step whose reward was not of float64: the character code of its dtype, as an int."""


def build(env_fn: Callable[[], Any]) -> gymnasium.Env[Any, Any]:
    """The env, in Stable-Baselines3's compatibility wrapper if it is one of old Gym's."""
    env = env_fn()
    if not isinstance(env, gymnasium.Env):
        from stable_baselines3.common.vec_env.patch_gym import _patch_env

        env = _patch_env(env)
    tell_reward_types(env)
    return env


def tell_reward_types(env: gymnasium.Env[Any, Any]) -> None:
    """Has the env tell in its infos which type its rewards are of, unless the first one is a float, as most are.

    The engine carries rewards as float64. What is put in the way of ``env.step`` is gone after that first float.
    """
    plain_step, own_step = env.step, vars(env).get("step")

    def first_step(action: Any) -> Any:
        outcome = plain_step(action)
        if _note_reward_type(outcome):
            env.step = telling_step  # type: ignore[method-assign]
        elif own_step is not None:
            env.step = own_step  # type: ignore[method-assign]
        else:
            del env.step
        return outcome

    def telling_step(action: Any) -> Any:
        outcome = plain_step(action)
        _note_reward_type(outcome)
        return outcome

    env.step = first_step  # type: ignore[method-assign]


def _note_reward_type(outcome: Any) -> bool:
    """Whether there was a type to note. What is no outcome of a step is left for the engine to refuse."""
    match outcome:
        case (_, reward, _, _, dict() as info) if type(reward) is not float:
            dtype = np.asarray(reward).dtype
            if dtype != np.float64 and dtype.kind in "biuf":
                info[REWARD_TYPE] = ord(dtype.char)
                return True
    return False


def get_attribute(env: gymnasium.Env[Any, Any], name: str) -> Any:
    """The attribute of the outermost wrapper that has it."""
    return env.get_wrapper_attr(name)


def has_attribute(env: gymnasium.Env[Any, Any], name: str) -> bool:
    """Whether the env or a wrapper has it; its value stays here, and need not be picklable."""
    try:
        env.get_wrapper_attr(name)
    except AttributeError:
        return False
    return True


def set_attribute(env: gymnasium.Env[Any, Any], name: str, value: Any) -> None:
    """Sets it on the outermost wrapper, whoever else has it."""
    setattr(env, name, value)


def call_method(env: gymnasium.Env[Any, Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the method of the outermost wrapper that has it."""
    return env.get_wrapper_attr(name)(*args, **kwargs)


def is_wrapped(env: gymnasium.Env[Any, Any], wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]]) -> bool:
    """Whether one of the wrappers is of that class."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, wrapper_class):
            return True
        env = env.env
    return False
