"""Hosts an env in a worker. It imports Stable-Baselines3 only if an env of old Gym needs it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

REWARD_TYPE = "remuda.sb3.reward_type"
"""In the info of a step whose reward was not of float64: the character code of its dtype, as an int."""


class HostedEnv:
    """An env with a note of its rewards' type in its infos. Everything else is the env's own.

    The engine carries rewards as float64. If an env's first reward is a float, as it mostly is, its later steps are
    not looked at, and cost nothing more. The env itself is not changed, so that it can copy or pickle itself.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.env = env
        self.step: Callable[[Any], Any] = self._first_step

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def __repr__(self) -> str:
        return repr(self.env)

    def _first_step(self, action: Any) -> Any:
        outcome = self.env.step(action)
        self.step = self._noting_step if _note_reward_type(outcome) else self.env.step
        return outcome

    def _noting_step(self, action: Any) -> Any:
        outcome = self.env.step(action)
        _note_reward_type(outcome)
        return outcome


def _note_reward_type(outcome: Any) -> bool:
    """Whether there was a type to note. Anything but an outcome of a step is left for the engine to refuse."""
    match outcome:
        case (_, reward, _, _, dict() as info) if type(reward) is not float:
            dtype = np.asarray(reward).dtype
            if dtype != np.float64 and dtype.kind in "biuf":
                info[REWARD_TYPE] = ord(dtype.char)
                return True
    return False


def build(env_fn: Callable[[], Any]) -> HostedEnv:
    """Hosts an env, in Stable-Baselines3's compatibility wrapper if it is one of old Gym's."""
    env = env_fn()
    if not isinstance(env, gymnasium.Env):
        from stable_baselines3.common.vec_env.patch_gym import _patch_env

        env = _patch_env(env)
    return _hosted.setdefault(id(env), HostedEnv(env))


# One host for an env, because the engine refuses two factories that return one object.
_hosted: weakref.WeakValueDictionary[int, HostedEnv] = weakref.WeakValueDictionary()


def compute(function: Callable[[Any], Any], hosted: HostedEnv) -> Any:
    """Returns the result of one of the pool's `extras` for the env itself."""
    return function(hosted.env)


def get_attribute(hosted: HostedEnv, name: str) -> Any:
    """Returns the attribute of the outermost wrapper that has it."""
    return hosted.env.get_wrapper_attr(name)


def has_attribute(hosted: HostedEnv, name: str) -> bool:
    """Whether the env or a wrapper has it; its value stays here, and need not be picklable."""
    try:
        hosted.env.get_wrapper_attr(name)
    except AttributeError:
        return False
    return True


def set_attribute(hosted: HostedEnv, name: str, value: Any) -> None:
    """Sets it on the outermost wrapper, even if an inner one has it."""
    setattr(hosted.env, name, value)


def call_method(hosted: HostedEnv, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the method of the outermost wrapper that has it."""
    return hosted.env.get_wrapper_attr(name)(*args, **kwargs)


def is_wrapped(hosted: HostedEnv, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]]) -> bool:
    """Whether one of the wrappers is of that class."""
    env = hosted.env
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, wrapper_class):
            return True
        env = env.env
    return False
