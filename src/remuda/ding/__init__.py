"""DI-engine's env managers on remuda: change the import, keep the rest.

from remuda.ding import SyncSubprocessEnvManager    # was: from ding.envs import SyncSubprocessEnvManager

Configurations name them "remuda_async_subprocess", "remuda_subprocess" and "remuda_subprocess_v2";
after :func:`install` DI-engine's own names mean them, too.
"""

from __future__ import annotations

from remuda._faces.frameworks import FRAMEWORKS

with FRAMEWORKS[__name__].needed():
    from remuda.ding.managers import AsyncSubprocessEnvManager, SyncSubprocessEnvManager
    from remuda.ding.registry import install, register
    from remuda.ding.v2_manager import SubprocessEnvManagerV2

__all__ = ["AsyncSubprocessEnvManager", "SubprocessEnvManagerV2", "SyncSubprocessEnvManager", "install"]

register()
