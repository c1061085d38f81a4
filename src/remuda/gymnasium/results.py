"""Joins results that arrived in several batches, in the order of the envs, and stacks infos as Gymnasium 0.29 does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium import Space

from remuda import Batch
from remuda._wire.codec import SpaceCodec

AddInfo: TypeAlias = Callable[[dict[str, Any], dict[str, Any], int], dict[str, Any]]  # VectorEnv._add_info


@dataclass(frozen=True)
class Joined:
    """The results of all envs, joined from several batches. It has the attributes of `Batch` that this face reads."""

    obs: Any
    rewards: npt.NDArray[np.float64]
    terminations: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]
    extras: dict[str, npt.NDArray[Any]]
    _batches: Sequence[Batch]
    _order: npt.NDArray[np.intp]
    _add_info: AddInfo

    @property
    def infos(self) -> list[dict[str, Any]]:
        infos = [info for batch in self._batches for info in batch.infos]
        return [infos[row] for row in self._order]

    def stack_infos(self) -> dict[str, Any]:
        stacked: dict[str, Any] = {}
        for i, info in enumerate(self.infos):
            stacked = self._add_info(stacked, info, i)
        return stacked


Results: TypeAlias = Batch | Joined
"""One result of each env, in the order of the envs."""


def join(batches: Sequence[Batch], single_space: Space[Any], add_info: AddInfo) -> Joined:
    """Joins copies of batches in the order of the envs. Together, the batches have every env once."""
    order = np.argsort(np.concatenate([batch.env_ids for batch in batches]))
    return Joined(
        SpaceCodec(single_space).gather([(batch.obs, None) for batch in batches], order),
        np.concatenate([batch.rewards for batch in batches])[order],
        np.concatenate([batch.terminations for batch in batches])[order],
        np.concatenate([batch.truncations for batch in batches])[order],
        {name: np.concatenate([batch.extras[name] for batch in batches])[order] for name in batches[0].extras},
        batches,
        order,
        add_info,
    )


# -- infos in the format of Gymnasium 0.29: a key has one array over the envs, and dicts are not stacked ----


def stack_old(got: Results) -> dict[str, Any]:
    """Returns the infos of all envs as Gymnasium 0.29 does.

    The value of a key is an array (n,) over the envs: of the type of the first number under this key, or of objects. A
    bool array under ``_key`` has True for envs that have the key. If an episode ended, ``final_observation`` and
    ``final_info`` have the terminal observation and the terminal info of its env, a dict.
    """
    stacked: dict[str, Any] = {}
    ends = got.terminations | got.truncations
    for i, info in enumerate(got.infos):
        if ends[i] and "final_obs" in info:
            info["final_observation"] = info.pop("final_obs")
        for key, value in info.items():
            if key not in stacked:
                stacked[key] = _empty_for(value, len(ends))
                stacked[f"_{key}"] = np.zeros(len(ends), np.bool_)
            stacked[key][i], stacked[f"_{key}"][i] = value, True
    return stacked


def _empty_for(value: Any, n: int) -> np.ndarray[Any, Any]:
    is_number = type(value) in (int, float, bool) or isinstance(value, np.number)
    return np.zeros(n, type(value)) if is_number else np.full(n, None, object)
