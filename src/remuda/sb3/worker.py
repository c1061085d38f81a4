"""What runs in a worker, around the env. It imports Stable-Baselines3 only where an env of old Gym needs it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

REWARD_TYPE = "remuda.sb3.reward_type"
"""In the info of a step whose reward was not of float64: the character code of its dtype, as an int."""


class HostedEnv:
    """An env as the engine sees it: all is the env's own, but that its infos tell of which type its rewards are.

    The engine carries rewards as float64. Where an env's first reward is a float, as it mostly is, its steps are not
    looked at again, and cost nothing more. The env itself is left alone, so that it may copy or pickle itself.
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
        self.step = self._telling_step if _note_reward_type(outcome) else self.env.step
        return outcome

    def _telling_step(self, action: Any) -> Any:
        outcome = self.env.step(action)
        _note_reward_type(outcome)
        return outcome


def _note_reward_type(outcome: Any) -> bool:
    """Whether there was a type to note. What is no outcome of a step is left for the engine to refuse."""
    match outcome:
        case (_, reward, _, _, dict() as info) if type(reward) is not float:
            dtype = np.asarray(reward).dtype
            if dtype != np.float64 and dtype.kind in "biuf":
                info[REWARD_TYPE] = ord(dtype.char)
                return True
    return False


def build(env_fn: Callable[[], Any]) -> HostedEnv:
    """The env, in Stable-Baselines3's compatibility wrapper if it is one of old Gym's."""
    env = env_fn()
    if not isinstance(env, gymnasium.Env):
        from stable_baselines3.common.vec_env.patch_gym import _patch_env

        env = _patch_env(env)
    return _hosted.setdefault(id(env), HostedEnv(env))


# The same for the same env: the engine refuses two factories that return one object.
_hosted: weakref.WeakValueDictionary[int, HostedEnv] = weakref.WeakValueDictionary()


def compute(function: Callable[[Any], Any], hosted: HostedEnv) -> Any:
    """What one of the pool's `extras` is of the env itself."""
    return function(hosted.env)


def get_attribute(hosted: HostedEnv, name: str) -> Any:
    """The attribute of the outermost wrapper that has it."""
    return hosted.env.get_wrapper_attr(name)


def has_attribute(hosted: HostedEnv, name: str) -> bool:
    """Whether the env or a wrapper has it; its value stays here, and need not be picklable."""
    try:
        hosted.env.get_wrapper_attr(name)
    except AttributeError:
        return False
    return True


def set_attribute(hosted: HostedEnv, name: str, value: Any) -> None:
    """Sets it on the outermost wrapper, whoever else has it."""
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
