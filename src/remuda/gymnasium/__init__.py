"""Gymnasium's vector env on remuda: change the import, keep the rest.

from remuda.gymnasium import AsyncVectorEnv    # was: from gymnasium.vector import AsyncVectorEnv
"""

from __future__ import annotations

from remuda.gymnasium.async_vector_env import AsyncState, AsyncVectorEnv
from remuda.gymnasium.make_vec import make_vec

__all__ = ["AsyncState", "AsyncVectorEnv", "make_vec"]
