"""Unity ML-Agents' env manager on remuda: change the import, keep the rest.

from remuda.mlagents import SubprocessEnvManager
# was: from mlagents.trainers.subprocess_env_manager import SubprocessEnvManager
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda._faces.frameworks import lazily

if TYPE_CHECKING:
    from remuda.mlagents.errors import ClosedError, CorruptReplyError, EnvTimeoutError, WorkerDiedError
    from remuda.mlagents.subprocess_env_manager import SubprocessEnvManager

__all__ = ["ClosedError", "CorruptReplyError", "EnvTimeoutError", "SubprocessEnvManager", "WorkerDiedError"]

if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name
    __getattr__, __dir__ = lazily(__name__, __all__, {"SubprocessEnvManager": "subprocess_env_manager"})
