"""What a step returns, out of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from remuda import Batch
from remuda.sb3.worker import REWARD_TYPE

Info: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One step of all envs.

    Attributes:
        rewards: (n,), of the dtype that stacking the envs' own rewards gives.
        dones: (n,) bool.
        infos: With ``TimeLimit.truncated``, and ``terminal_observation`` where an episode has ended.
        reset_infos: Of each env's latest reset.
    """

    rewards: npt.NDArray[Any]
    dones: npt.NDArray[np.bool_]
    infos: tuple[Info, ...]
    reset_infos: tuple[Info, ...]


def read_step(batch: Batch, reset_infos: Sequence[Info]) -> Step:
    """Reads a batch of all envs; ``reset_infos`` are those before. Nothing of the result is a view of the batch."""
    dones = batch.terminated | batch.truncated
    infos = list(batch.infos)
    for info in infos:
        info["TimeLimit.truncated"] = False
    if dones.any():
        reset_infos = list(reset_infos)
        for i in np.flatnonzero(dones):
            infos[i], reset_infos[i] = _end_of_episode(infos[i], bool(batch.truncated[i] and not batch.terminated[i]))
    return Step(_rewards(batch, infos), dones, tuple(infos), tuple(reset_infos))


def _end_of_episode(info: Info, was_truncated: bool) -> tuple[Info, Info]:
    """The terminal info and the reset's, out of what same-step autoreset makes of the two."""
    del info["TimeLimit.truncated"]
    terminal, last_obs = info.pop("final_info"), info.pop("final_obs")
    return {**terminal, "TimeLimit.truncated": was_truncated, "terminal_observation": last_obs}, info


def _rewards(batch: Batch, infos: Sequence[Info]) -> npt.NDArray[Any]:
    """Takes the notes of the rewards' types out of the infos, and obeys them."""
    codes = {info.pop(REWARD_TYPE, _FLOAT64) for info in infos}
    dtype = np.result_type(*(np.dtype(chr(code)) for code in codes))
    return batch.reward.astype(dtype)


_FLOAT64 = ord(np.dtype(np.float64).char)
