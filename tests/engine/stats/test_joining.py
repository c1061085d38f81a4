"""Snapshots of shards make one of the whole, with the whole's numbers, also where a shard is gone."""

from __future__ import annotations

import pytest
from made_up_stats import US, each, snapshot

from remuda._engine.stats.joining import ShardStats, join_stats

FIRST = snapshot(steps=[each(100 * US)] * 3, workers=2, waited=300 * US, cores=4)
SECOND = snapshot(steps=[each(200 * US)] * 2, workers=1, waited=400 * US, cores=2)


def test_the_whole_has_all_envs_and_workers_under_numbers_of_its_own() -> None:
    whole = join_stats([ShardStats(0, (2, 1), FIRST), ShardStats(3, (2,), SECOND, restarts=1)], 1000, 0.3)
    assert [env.env_id for env in whole.envs] == [0, 1, 2, 3, 4]
    assert [env.worker for env in whole.envs] == [0, 0, 1, 2, 2]
    assert [worker.index for worker in whole.workers] == [0, 1, 2]
    assert [worker.env_ids for worker in whole.workers] == [(0, 1), (2,), (3, 4)]
    assert whole.steps == FIRST.steps + SECOND.steps
    assert whole.restarts == 1
    assert (whole.batches, whole.caller.waiting) == (1000, 0.3)
    assert whole.seconds == max(FIRST.seconds, SECOND.seconds)
    assert whole.machine.cores == 6
    assert whole.setup.envs_of_worker == (2, 1, 2)
    assert "workers" not in whole.verdict.cause
    assert (whole - whole).steps == 0


@pytest.mark.parametrize("first", [FIRST, None])
def test_a_shard_that_is_gone_has_done_nothing(first: object) -> None:
    whole = join_stats([ShardStats(0, (2, 1), FIRST if first else None), ShardStats(3, (2,), None)], 10, 0.1)
    assert [env.env_id for env in whole.envs] == [0, 1, 2, 3, 4]
    assert [worker.env_ids for worker in whole.workers] == [(0, 1), (2,), (3, 4)]
    assert [env.steps for env in whole.envs[3:]] == [0, 0]
    assert str(whole)
