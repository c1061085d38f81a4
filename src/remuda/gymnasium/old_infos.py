"""Infos in the format of Gymnasium 0.29: a key has one array over the envs, and dicts are not stacked."""

from __future__ import annotations

from typing import Any

import numpy as np

from remuda.gymnasium.results import Results


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
