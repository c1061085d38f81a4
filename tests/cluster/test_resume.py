"""On a cluster, shards resume the episodes of envs whose workers die."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import kill_myself, raise_value_error
from resumed_envs import Failing, WalkEnv

import remuda

pytestmark = pytest.mark.usefixtures("kept_actors")


def rows_of(pool: remuda.Pool) -> list[Any]:
    drawn, rows = np.random.default_rng(0), [pool.reset(seed=5).obs.tolist()]
    for _ in range(6):
        batch = pool.step(drawn.normal(size=(2, 2)).astype(np.float32))
        rows.append((batch.obs.tolist(), batch.rewards.tolist(), batch.dones.tolist(), list(map(str, batch.infos))))
    return rows


@pytest.mark.parametrize("act", [kill_myself, raise_value_error])
def test_a_failure_within_a_shard_changes_no_row(act: Any, tmp_path: Path) -> None:
    env_fns = [partial(Failing, act, 3, tmp_path / "done"), partial(WalkEnv, 10**6)]
    with remuda.Pool([partial(WalkEnv, 10**6)] * 2, backend="serial") as alone:
        expected = rows_of(alone)
    cluster = remuda.Ray(shards=1, cpus_per_shard=2)
    with remuda.ClusterPool(env_fns, backend=cluster, num_workers=2, faults="resume") as pool:
        assert rows_of(pool) == expected
        assert pool.stats().faults == 1
