"""PettingZoo's parallel envs on remuda: many of them at once, with all that a pool has."""

from __future__ import annotations

from remuda.pettingzoo.rollout import ParallelRollout, ParallelStep
from remuda.pettingzoo.vector_env import ParallelVectorEnv, vector

__all__ = ["ParallelRollout", "ParallelStep", "ParallelVectorEnv", "vector"]
