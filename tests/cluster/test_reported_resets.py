"""With `FaultPolicy(resets="report")` the reset of an env on a shard that fails returns the row of a fault."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from cluster_envs import Scripted, kill_shard

import remuda
from remuda import FaultPolicy, Pool

pytestmark = pytest.mark.usefixtures("kept_actors")

REPORT = FaultPolicy("restart", resets="report", max_restarts=1)


class Obedient(Scripted):
    """Fails in resets whose options say so."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if options == {"do": "die"}:
            os.kill(os.getpid(), signal.SIGKILL)
        if options == {"do": "raise"}:
            raise ValueError("as told")
        return super().reset(seed=seed)


@pytest.mark.parametrize("do", ["die", "raise"])
def test_a_failed_reset_on_a_shard_is_reported_as_often_as_it_fails(do: str) -> None:
    options: Any = {"backend": remuda.Ray(shards=2), "autoreset": "disabled", "faults": REPORT}
    with Pool([Obedient] * 4, **options) as pool:
        pool.reset(seed=1)
        for _ in range(4):
            batch = pool.reset(env_ids=[3], options={"do": do})
            assert batch.truncations.tolist() == [True] and batch.infos[0]["fault"].env_id == 3
        assert "fault" not in pool.reset(env_ids=[3]).infos[0]
        assert len(pool.step([0, 0, 0, 0])) == 4


def test_the_reset_that_a_lost_shard_did_not_make_is_reported() -> None:
    options: Any = {"backend": remuda.Ray(shards=2, backend="serial"), "autoreset": "disabled", "faults": REPORT}
    with Pool([Obedient] * 4, **options) as pool:
        pool.reset(seed=1)
        kill_shard(pool, 2)
        batch = pool.step([0, 0, 0, 0])
        assert [("fault" in info) for info in batch.infos] == [False, False, True, True]
        batch = pool.reset(env_ids=[2, 3])
        assert len(pool.step([0, 0, 0, 0])) == 4
