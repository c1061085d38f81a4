"""Reads from the last info of an episode whether the episode was a success."""

from __future__ import annotations

from collections.abc import Callable
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
