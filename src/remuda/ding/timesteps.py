"""Timesteps of DI-engine, and what their infos mean to a manager."""

from __future__ import annotations

from typing import Any

from ding.envs import BaseEnvTimestep


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


def spoilt(error: Exception) -> Any:
    """Stands for the timestep of an env that failed and is built anew."""
    return BaseEnvTimestep(None, None, None, {"abnormal": True, "err": error})
