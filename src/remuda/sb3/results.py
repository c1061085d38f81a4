"""Converts a batch to the results of Stable-Baselines3's `step`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from remuda import Batch, Fault
from remuda.sb3.worker import REWARD_TYPE

Info: TypeAlias = dict[str, Any]


# The results of a step: rewards, dones, infos, reset infos. The rewards have the common dtype of all envs. An info has
# ``TimeLimit.truncated``, and ``terminal_observation`` if the episode has ended. Reset infos are of the latest resets.
Step: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[np.bool_], tuple[Info, ...], tuple[Info, ...]]


def read_step(batch: Batch, reset_infos: Sequence[Info]) -> Step:
    """Copies the results of a step from a batch of all envs. ``reset_infos`` are those of the previous step."""
    dones, infos = batch.dones, batch.list_infos()
    resets = list(reset_infos)
    for i, done in enumerate(dones.tolist()):
        if done:
            resets[i] = infos[i]
            infos[i] = _terminal_info(resets[i], bool(batch.truncations[i] and not batch.terminations[i]))
        else:
            infos[i][_WAS_TRUNCATED] = False
    return _in_their_type(batch._copy_rewards(), infos), dones, tuple(infos), tuple(resets)


def _terminal_info(info: Info, was_truncated: bool) -> Info:
    """Removes the old episode's info and terminal observation from a reset's info, and returns both as one info."""
    terminal: Info = info.pop("final_info")
    terminal[_WAS_TRUNCATED] = was_truncated
    terminal["terminal_observation"] = info.pop("final_obs")
    return terminal


def _in_their_type(rewards: npt.NDArray[Any], infos: Sequence[Info]) -> npt.NDArray[Any]:
    """Removes the dtypes of rewards from the infos, and converts the rewards to the common dtype of all envs."""
    if not [info for info in infos if REWARD_TYPE in info]:
        return rewards
    codes = [info.pop(REWARD_TYPE, None if isinstance(info.get("fault"), Fault) else _FLOAT64) for info in infos]
    return rewards.astype(np.result_type(*(np.dtype(chr(code)) for code in codes if code is not None)))


_WAS_TRUNCATED = "TimeLimit.truncated"
GOES_ON = {_WAS_TRUNCATED: False}
"""The info of an env whose own info is empty, and whose episode goes on."""
_FLOAT64 = ord(np.dtype(np.float64).char)
