"""Timesteps of DI-engine: how they travel, and what their infos mean to a manager.

A row of the pool has an observation, a flag and an info. Most timesteps fit: their reward goes along with the info.
Those that do not, because they are of a class of their own, say, travel whole.
"""

from __future__ import annotations

from typing import Any

from ding.envs import BaseEnvTimestep

_REWARD = "remuda.ding.reward"  # in an info: what it came with
_WHOLE = "remuda.ding.timestep"  # in an info: all that there is of a timestep, but for its row


def as_info(timestep: Any, *, over: bool, has_row: bool) -> dict[str, Any]:
    """Return what travels as the info of a timestep.

    Args:
        timestep: as the env gave it, or a stand-in.
        over: what the flag of the row will be.
        has_row: whether its observation travels in the row.
    """
    if has_row and type(timestep) is BaseEnvTimestep and timestep.done is over and type(timestep.info) is dict:
        return {_REWARD: timestep.reward, **timestep.info}
    return {_WHOLE: timestep._replace(obs=None) if has_row else timestep}


def from_info(info: dict[str, Any], obs: Any, over: bool) -> Any:
    """Return the timestep that :func:`as_info` was given. ``obs``: of its row; ``None``: there are no rows."""
    if _WHOLE not in info:
        reward = info.pop(_REWARD)
        return BaseEnvTimestep(obs, reward, over, info)
    timestep = info[_WHOLE]
    return timestep if obs is None else timestep._replace(obs=obs)


def is_abnormal(timestep: Any) -> bool:
    """Whether the env says that its episode is spoilt.

    Raises:
        TypeError: an info that is neither a dict nor, of an env with two sides, a pair of them.
    """
    info = timestep.info
    if isinstance(info, dict):
        return bool(info.get("abnormal", False))
    if isinstance(info, (list, tuple)):
        return any(side.get("abnormal", False) for side in info[:2])
    raise TypeError(f"expected the info of a timestep to be a dict, or a list or tuple of them, got {type(info)}")


def unreadable() -> Any:
    """Stands for a timestep that cannot be unpickled here."""
    return BaseEnvTimestep(None, None, None, {"abnormal": True})


class ErrorText(str):
    """What went wrong, as text: DI-engine's evaluators make tensors of all infos, which lets texts pass but no errors.

    Attributes:
        error: the exception itself.
    """

    error: Any

    def __new__(cls, error: Any) -> ErrorText:
        text = super().__new__(cls, error)
        text.error = error
        return text


def spoilt(error: Exception) -> Any:
    """Stands for the timestep of an env that failed and is built anew."""
    return BaseEnvTimestep(None, None, None, {"abnormal": True, "err": ErrorText(error)})


def is_spoilt(timestep: Any) -> bool:
    """Whether :func:`spoilt` made it."""
    return isinstance(timestep.info, dict) and isinstance(timestep.info.get("err"), ErrorText)
