"""Functions of ALF's configuration. They accept values and ignore them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def configurable(
    fn_or_name: Any = None, whitelist: Sequence[str] = (), blacklist: Sequence[str] = ()
) -> Callable[[Any], Any]:
    """A decorator that can be used with a name or without."""
    return fn_or_name if callable(fn_or_name) else lambda decorated: decorated


def config(prefix_or_dict: Any, mutable: bool = True, raise_if_used: bool = True, **kwargs: Any) -> None:
    """Accepts values as a dict or as keywords, and ignores them."""
    assert bool(kwargs) == isinstance(prefix_or_dict, str)


def get_config_value(config_name: str) -> Any:
    return {"TrainerConfig.sync_progress_to_envs": False}[config_name]


def get_handled_pre_configs() -> list[tuple[str, Any]]:
    return []
