"""Gymnasium's vector env on remuda: change the import, keep the rest.

from remuda.gymnasium import AsyncVectorEnv    # was: from gymnasium.vector import AsyncVectorEnv
"""

from __future__ import annotations

from gymnasium.vector.async_vector_env import AsyncState

from remuda.gymnasium.installing import entry_point, install, uninstall
from remuda.gymnasium.lazy_infos import LazyInfos
from remuda.gymnasium.making import make_vec
from remuda.gymnasium.vector_env import AsyncVectorEnv

__all__ = ["AsyncState", "AsyncVectorEnv", "LazyInfos", "entry_point", "install", "make_vec", "uninstall"]
