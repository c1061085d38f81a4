"""A pool on a cluster gives the results of local pools in the courses of the conformance suite."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from backends.test_conformance import COURSES, OpenPool, episodes
from cluster_envs import Scripted

import remuda
from remuda import FaultPolicy, Pool

pytestmark = pytest.mark.usefixtures("kept_actors")

SEEDED: Any = {"seeding": "per_episode"}
RENEWED: Any = {"faults": FaultPolicy("raise", renew_every=2), **SEEDED}
OPTIONS: dict[str, dict[str, Any]] = {
    "renewals in the background": {"autoreset": "background", "frames": 1, "threads_per_worker": 2, **RENEWED},
    "lazy starts": {"autoreset": "same_step", "lazy": True, "object_bytes": 4096, "max_concurrency": 1, **SEEDED},
    "renewals": {"resets_ahead": True, "starts_serially": True, "worker_output": "capture", **RENEWED},
}


def policy(obs: Any) -> Any:
    return np.int64(obs[:, 1]) % 5


def training(open_pool: OpenPool) -> list[Any]:
    found = []
    with open_pool([Scripted] * 4, autoreset="same_step") as pool:
        for way in ({"parts": 1}, {"parts": 2}, {"min_envs": 1}):
            pool.reset(seed=3)
            rollout = next(remuda.collect(pool, policy, steps=8, **way))  # type: ignore[arg-type]
            order = np.argsort(rollout.env_ids)
            found += [column[:, order].tolist() for column in (rollout.obs, rollout.actions, rollout.rewards)]
    with open_pool([Scripted] * 4, autoreset="disabled") as pool:
        result = remuda.evaluate(policy, pool, episodes=10, seed=7)
    return [*found, *(one.tolist() for one in (result.seeds, result.lengths, result.returns, result.env_ids))]


@pytest.mark.parametrize("name", [name for name in COURSES if not name.startswith("spares")])
def test_shards_that_step_envs_give_the_results_of_the_serial_backend(name: str) -> None:
    expected = COURSES[name](partial(Pool, num_workers=2, log_advice=False, backend="serial"))
    assert COURSES[name](partial(Pool, backend=remuda.Ray(shards=2, backend="serial"))) == expected


@pytest.mark.parametrize("name", [*OPTIONS, "restarts", "errors", "infos", "training"])
def test_shards_with_workers_give_the_results_of_processes(name: str) -> None:
    course = partial(episodes, **OPTIONS[name]) if name in OPTIONS else {**COURSES, "training": training}[name]
    expected = course(partial(Pool, num_workers=None, log_advice=False, backend="process"))
    assert course(partial(Pool, num_workers=None, backend=remuda.Ray(shards=3, cpus_per_shard=2))) == expected
