"""Pools with spares: envs whose episodes differ in length, and which env each row is of."""

from __future__ import annotations

import numpy as np
from pool_envs import CountingEnv, EnvFn

from remuda import Batch, Pool

LENGTHS = (3, 1, 5, 2, 4, 1)  # of the episodes of each env


def uneven(num_envs: int) -> list[EnvFn]:
    return [(lambda tag=i: CountingEnv(tag, LENGTHS[tag % len(LENGTHS)])) for i in range(num_envs)]  # type: ignore[misc]


def tags(batch: Batch) -> list[int]:
    """Which env each row is of."""
    return [int(tag) for tag in batch.obs[:, 0]]


def step(pool: Pool, mode: str, batch: Batch) -> Batch:
    """One more step of all envs that can be stepped."""
    ended = batch.terminated | batch.truncated
    if mode == "disabled" and ended.any():
        pool.reset(env_ids=batch.env_ids[ended])
    if mode != "background":
        return pool.step(np.full(pool.num_envs, 7))
    if not ended.all():
        pool.send(np.full(int((~ended).sum()), 7), batch.env_ids[~ended])
    return pool.recv(order="slot")
