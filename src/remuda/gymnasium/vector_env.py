"""Chooses the ``AsyncVectorEnv`` that has the constructor of the installed Gymnasium's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.gymnasium.releases import IS_0_29

__all__ = ["AsyncVectorEnv"]

if not TYPE_CHECKING and IS_0_29:
    from remuda.gymnasium.old_async_vector_env import AsyncVectorEnv
else:
    from remuda.gymnasium.async_vector_env import AsyncVectorEnv
