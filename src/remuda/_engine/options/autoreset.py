"""Checks the names of autoreset modes, and whether vector envs have the mode of their pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remuda._engine.options.checks import one_of
from remuda._wire.autoreset import AUTORESET_MODES

_GYMNASIUM_NAMES = {mode.gymnasium: name for name, mode in AUTORESET_MODES.items()}


def autoreset_name(mode: Any) -> Any:
    """Returns the pool's name for a mode of Gymnasium's `AutoresetMode` or its value; other values unchanged."""
    value = getattr(mode, "value", mode)
    return _GYMNASIUM_NAMES.get(value, mode) if isinstance(value, str) else mode


def autoreset_mode(name: str, given: Any) -> Any:
    """Checks the option `autoreset`, and returns the pool's name for the mode."""
    return one_of(*AUTORESET_MODES)(name, autoreset_name(given))


def check_autoreset(autoreset: str, metadata: Sequence[Mapping[str, Any]]) -> None:
    """Raises ValueError if a vector env's metadata names another mode than the pool's."""
    for i, one in enumerate(metadata):
        mode = one.get("autoreset_mode")
        name = autoreset_name(mode)
        if mode is not None and name != autoreset:
            raise ValueError(
                f"expected vector envs that agree with autoreset={autoreset!r}, got the autoreset_mode {mode!r} of "
                f"env_fns[{i}]; pass autoreset={name!r}, or build them with another mode"
            )
