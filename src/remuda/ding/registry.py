"""Registers the managers under the names by which DI-engine finds its own."""

from __future__ import annotations

import sys
from typing import Any

from ding.utils import ENV_MANAGER_REGISTRY

from remuda.ding.managers import AsyncSubprocessEnvManager, SyncSubprocessEnvManager
from remuda.ding.v2_manager import SubprocessEnvManagerV2

_MANAGERS: dict[str, type[Any]] = {
    "async_subprocess": AsyncSubprocessEnvManager,
    "subprocess": SyncSubprocessEnvManager,
    "subprocess_v2": SubprocessEnvManagerV2,
}


def register() -> None:
    """Registers the env managers as "remuda_async_subprocess", "remuda_subprocess" and "remuda_subprocess_v2"."""
    for name, manager in _MANAGERS.items():
        ENV_MANAGER_REGISTRY.register(f"remuda_{name}", manager, force_overwrite=True)


def install() -> None:
    """Replaces DI-engine's env managers by remuda's.

    "async_subprocess", "subprocess" and "subprocess_v2" name them from now on, and so do the classes' names in all
    modules of DI-engine. Names that other modules have imported before stay unchanged.
    """
    for name, manager in _MANAGERS.items():
        ENV_MANAGER_REGISTRY.register(name, manager, force_overwrite=True)
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == "ding":
            _replace_in(module)


def _replace_in(module: Any) -> None:
    for manager in _MANAGERS.values():
        theirs = vars(module).get(manager.__name__)
        if isinstance(theirs, type) and theirs.__module__.startswith("ding."):
            setattr(module, manager.__name__, manager)
