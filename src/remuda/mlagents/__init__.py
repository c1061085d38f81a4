"""Unity ML-Agents' env manager on remuda: change the import, keep the rest.

from remuda.mlagents import SubprocessEnvManager
# was: from mlagents.trainers.subprocess_env_manager import SubprocessEnvManager
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remuda.mlagents.errors import ClosedError, CorruptReplyError, EnvTimeoutError, WorkerDiedError
    from remuda.mlagents.manager import SubprocessEnvManager

__all__ = ["ClosedError", "CorruptReplyError", "EnvTimeoutError", "SubprocessEnvManager", "WorkerDiedError"]


def __getattr__(name: str) -> Any:
    """The caller's side is imported when first asked for: workers import `remuda.mlagents.worker`, and not it."""
    if name not in __all__:
        raise AttributeError(f"module 'remuda.mlagents' has no attribute {name!r}")
    from remuda.mlagents import errors, manager

    return getattr(manager if name == "SubprocessEnvManager" else errors, name)
