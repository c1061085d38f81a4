"""Converts timesteps of DI-engine to rows of the pool and back, and reads their infos.

A row of the pool has an observation, a flag and an info. Most timesteps fit into a row, with the reward in the info.
Others, for example those of another class, travel as one object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ding.envs import BaseEnvTimestep

from remuda import Batch, Fault

_REWARD = "remuda.ding.reward"  # the key in an info for a timestep's reward,
_WHOLE = "remuda.ding.timestep"  # or for the whole timestep (without the observation, if that is in a row)


# -- conversion in the worker ----------------------------------------------------------------------------


def as_info(timestep: Any, *, over: bool, has_row: bool) -> dict[str, Any]:
    """Converts a timestep to the info in which it is sent to the manager.

    Args:
        timestep: The env's timestep.
        over: The flag of the row.
        has_row: Whether the observation travels in the row.
    """
    if has_row and type(timestep) is BaseEnvTimestep and timestep.done is over and type(timestep.info) is dict:
        return {_REWARD: timestep.reward, **timestep.info}
    return {_WHOLE: timestep._replace(obs=None) if has_row else timestep}


# -- conversion in the manager's process -----------------------------------------------------------------


def rows(batch: Batch, keys: Sequence[str] | None, *, copy: bool) -> Iterator[tuple[int, Any, dict[str, Any], bool]]:
    """Yields (env id, observation, info, whether the episode is over) for each result of a batch.

    The observation is ``None`` if it travels in the info.

    Args:
        batch: Results of the pool.
        keys: The keys of a dict observation, in the env's order; ``None``: observations are arrays.
        copy: Yield copies instead of views of shared memory.
    """
    return zip(
        batch.env_ids.tolist(),
        _observations(batch.obs, keys, copy),
        list(batch.infos),
        batch.terminations.tolist(),
        strict=True,
    )


def _observations(obs: Any, keys: Sequence[str] | None, copy: bool) -> Sequence[Any]:
    if isinstance(obs, tuple):  # a pool without shared memory has a tuple of observations
        return obs
    if keys is not None:
        parts = zip(*(_observations(obs[key], None, copy) for key in keys), strict=True)
        return [dict(zip(keys, each, strict=True)) for each in parts]
    arrays = [obs[i, ...] for i in range(len(obs))]  # `...` keeps each element an array, even if it has no axes
    return [array.copy() for array in arrays] if copy else arrays


def timestep_of(obs: Any, info: dict[str, Any], over: bool) -> Any:
    """Restores the timestep that :func:`as_info` has converted. :func:`rows` yields the arguments.

    For an env that has failed, returns a substitute with ``abnormal``.
    """
    if isinstance(fault := info.get("fault"), Fault):
        return BaseEnvTimestep(None, None, None, {"abnormal": True, "err": ErrorText(fault.error)})
    if _WHOLE not in info:
        reward = info.pop(_REWARD)
        return BaseEnvTimestep(obs, reward, over, info)
    timestep = info[_WHOLE]
    return timestep if obs is None else timestep._replace(obs=obs)


class ErrorText(str):
    """The text of an exception, for infos: DI-engine's evaluators convert infos to tensors, and refuse exceptions.

    Attributes:
        error: The exception.
    """

    error: Any

    def __new__(cls, error: Any) -> ErrorText:
        text = super().__new__(cls, error)
        text.error = error
        return text


def is_fault_substitute(timestep: Any) -> bool:
    """Returns whether a timestep is the substitute that a failed and rebuilt env gets."""
    return isinstance(timestep.info, dict) and isinstance(timestep.info.get("err"), ErrorText)


def is_abnormal(timestep: Any) -> bool:
    """Returns whether a timestep's info has ``abnormal``, which marks an episode as invalid.

    Raises:
        TypeError: The info is neither a dict nor, of an env with two sides, a pair of them.
    """
    info = timestep.info
    if isinstance(info, dict):
        return bool(info.get("abnormal", False))
    if isinstance(info, (list, tuple)) and all(isinstance(side, Mapping) for side in info[:2]):
        return any(side.get("abnormal", False) for side in info[:2])
    raise TypeError(f"expected the info of a timestep to be a dict, or a list or tuple of them, got {info!r}")
