"""Successes of episodes, which their last infos tell, and the confidence interval of their rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np

Success: TypeAlias = "str | Callable[[dict[str, Any]], Any]"


def check_success(success: Any, of: str = "") -> None:
    """Raises TypeError unless `success` is a key of infos or a function. `of`: its owner, for the message."""
    if not isinstance(success, str) and not callable(success):
        raise TypeError(f"expected success{of} to be a key of infos or a function of an info, got {success!r}")


def is_success(success: Success, info: dict[str, Any], where: str) -> bool:
    """Returns whether an episode with the last info `info` was a success. `where`: the episode, for messages.

    Raises:
        ValueError: The info does not have the key, or the value is not True, False, 1 or 0.
    """
    if callable(success):
        value, name = success(info), "success(info)"
    elif success in info:
        value, name = info[success], f"info[{success!r}]"
    else:
        raise ValueError(
            f"expected the last info of {where} to have the key {success!r}, got the keys {sorted(map(str, info))}; "
            "success= takes another key, or a function of the info"
        )
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf" or array.item() not in (0, 1):
        raise ValueError(f"expected {name} of {where} to be True, False, 1 or 0, got {value!r}")
    return bool(array.item())


def interval(successes: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Returns the Wilson score interval (low, high) of the probability of a success.

    It stays within 0 and 1, and covers the probability about as often as it claims even for few trials (Wilson,
    "Probable inference, the law of succession, and statistical inference", Journal of the American Statistical
    Association 22, 1927; recommended by Brown, Cai and DasGupta, Statistical Science 16, 2001).

    Args:
        successes, count: The number of successes, and of trials, from 0 up. Without trials nothing is known: (0, 1).
        confidence: The share of such intervals that contain the probability.

    Raises:
        ValueError: `confidence` is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"expected confidence to be between 0 and 1, got {confidence}")
    if count == 0:
        return 0.0, 1.0
    z, rate = NormalDist().inv_cdf((1 + confidence) / 2), successes / count
    middle, scale = rate + z * z / (2 * count), 1 + z * z / count
    margin = z * math.sqrt(rate * (1 - rate) / count + z * z / (4 * count * count))
    return max(0.0, (middle - margin) / scale), min(1.0, (middle + margin) / scale)
