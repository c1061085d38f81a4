"""Whether the vector envs of a pool reset their envs as it expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remuda._wire.autoreset import AUTORESET_MODES


def check_autoreset(autoreset: str, metadata: Sequence[Mapping[str, Any]]) -> None:
    """Whether vector envs, which reset their envs themselves, do so as the pool expects. `metadata`: of each.

    Raises:
        ValueError: One says otherwise. Who says nothing is believed.
    """
    for i, one in enumerate(metadata):
        mode = one.get("autoreset_mode")
        name = autoreset_name(mode)
        if mode is not None and name != autoreset:
            raise ValueError(
                f"expected vector envs that agree with autoreset={autoreset!r}, got the autoreset_mode {mode!r} of "
                f"env_fns[{i}]; pass autoreset={name!r}, or build them with another mode"
            )


_NAMES = {mode.gymnasium: name for name, mode in AUTORESET_MODES.items()}


def autoreset_name(mode: Any) -> Any:
    """The pool's name for what may be a member of Gymnasium's `AutoresetMode`, or its value; else the mode itself."""
    value = getattr(mode, "value", mode)
    return _NAMES.get(value, mode) if isinstance(value, str) else mode


def autoreset_mode(mode: Any) -> Any:
    """What the pool's option `autoreset` means. Raises ValueError: it is no mode."""
    name = autoreset_name(mode)
    if name not in tuple(AUTORESET_MODES):
        raise ValueError(f"expected autoreset to be one of {tuple(AUTORESET_MODES)}, got {name!r}")
    return name
