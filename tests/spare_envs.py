"""Helpers for pools with spares: envs with different episode lengths, and the env of each row."""

from __future__ import annotations

import numpy as np
from pool_envs import EnvFn
from rollout_envs import ending

from remuda import Batch, Pool

LENGTHS = (3, 1, 5, 2, 4, 1)  # steps per episode of each env


def uneven(num_envs: int) -> list[EnvFn]:
    return ending([LENGTHS[i % len(LENGTHS)] for i in range(num_envs)])


def tags(batch: Batch) -> list[int]:
    """Returns the env of each row."""
    return [int(tag) for tag in batch.obs[:, 0]]


def step(pool: Pool, mode: str, batch: Batch) -> Batch:
    """Steps all envs within an episode, after the resets that the autoreset mode needs."""
    ended = batch.terminations | batch.truncations
    if mode == "disabled" and ended.any():
        pool.reset(env_ids=batch.env_ids[ended])
    if mode != "background":
        return pool.step(np.full(pool.num_envs, 7))
    if not ended.all():
        pool.send(np.full(int((~ended).sum()), 7), batch.env_ids[~ended])
    return pool.recv(order="slot")
