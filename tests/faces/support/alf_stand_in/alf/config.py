"""A configuration in which nobody configures anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def configurable(
    fn_or_name: Any = None, whitelist: Sequence[str] = (), blacklist: Sequence[str] = ()
) -> Callable[[Any], Any]:
    """A decorator; used with a name, as here, or without."""
    return fn_or_name if callable(fn_or_name) else lambda decorated: decorated


def get_config_value(config_name: str) -> Any:
    return {"TrainerConfig.sync_progress_to_envs": False}[config_name]


def get_handled_pre_configs() -> list[tuple[str, Any]]:
    return []
