"""Hosts an env in a worker. Stable-Baselines3 is imported only for envs of the old gym library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from remuda._faces import hosting
from remuda._faces.hosting import reading
from remuda.errors import InvalidEnvError

REWARD_TYPE = "remuda.sb3.reward_type"
"""The key in the info of a step with a reward that is not float64: the character code of its dtype, as an int."""


class HostedEnv(hosting.HostedEnv):
    """Hosts an env, and adds the dtype of its rewards to its infos, because the engine converts rewards to float64.

    If the first reward is a float, later steps are not checked, which saves time. The env itself is not changed, so
    that it can copy or pickle itself.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.env = env
        self.step: Callable[[Any], Any] = self._first_step

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def _first_step(self, action: Any) -> Any:
        outcome = self.env.step(action)
        _check_reward(outcome)
        self.step = self._noting_step if _note_reward_type(outcome) else self.env.step
        return outcome

    def _noting_step(self, action: Any) -> Any:
        outcome = self.env.step(action)
        _note_reward_type(outcome)
        return outcome


def _check_reward(outcome: Any) -> None:
    """Raises InvalidEnvError if the reward of a step is a vector."""
    match outcome:
        case (_, np.ndarray(size=size) as reward, *_) if size > 1:
            raise InvalidEnvError(
                f"expected a number as the reward, got {reward!r}: Stable-Baselines3 learns from numbers, so wrap the "
                "env in a wrapper that weighs the objectives, such as mo_gymnasium.wrappers.LinearReward"
            )


def _note_reward_type(outcome: Any) -> bool:
    """Adds the reward's dtype to a step's info, unless it is float64. Returns whether it was added."""
    match outcome:
        case (_, reward, _, _, dict() as info) if type(reward) is not float:
            dtype = np.asarray(reward).dtype
            if dtype != np.float64 and dtype.kind in "biuf":
                info[REWARD_TYPE] = ord(dtype.char)
                return True
    return False


def build(env_fn: Callable[[], Any]) -> HostedEnv:
    """Builds an env and returns its host. An env of the old gym gets Stable-Baselines3's compatibility wrapper."""
    env = env_fn()
    if not isinstance(env, gymnasium.Env):
        from stable_baselines3.common.vec_env.patch_gym import _patch_env

        env = _patch_env(env)
    return HostedEnv(env)


@reading
def has_attribute(hosted: Any, name: str) -> bool:
    """Whether the env or a wrapper has the attribute. The value is not sent, so it need not be picklable."""
    try:
        hosting.get_attribute(hosted, name)
    except AttributeError:
        return False
    return True


@reading
def is_wrapped(hosted: Any, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]]) -> bool:
    """Whether one of the env's wrappers is an instance of the class."""
    env = hosting.called_env(hosted)
    while isinstance(env, gymnasium.Wrapper) or (isinstance(env, VectorEnv) and hasattr(env, "env")):
        if isinstance(env, wrapper_class):
            return True
        env = env.env
    return False
