"""A pool on a cluster gives the results of local pools: in the courses of the conformance suite, and after faults."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import kill_myself, raise_value_error
from answers import DEATHS, EXCEPTIONS, MODES, SEQUENCES, answers, possible
from backends.test_conformance import COURSES, OpenPool, episodes
from cluster_envs import Scripted
from pairs import each
from pool_envs import assert_same
from resumed_envs import Failing, WalkEnv
from task_envs import Mortal, Walk, kills

import remuda
from remuda import FaultPolicy, Pool, Task, evaluate_tasks

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


@each(sequence=SEQUENCES, autoreset=[mode for mode in MODES if mode != "background"])
def test_answers_after_a_fault_are_those_of_one_machine(autoreset: Any, sequence: tuple[str, ...]) -> None:
    fates = possible(sequence, DEATHS + EXCEPTIONS)
    (expected,) = answers(fates[:1], sequence, autoreset=autoreset)
    backend = remuda.Ray(shards=1, cpus_per_shard=len(fates))
    seen = answers(fates, sequence, backend=backend, num_workers=len(fates), autoreset=autoreset)
    assert seen == [expected] * len(fates)


def walk(pool: Pool) -> list[Any]:
    drawn, rows = np.random.default_rng(0), [pool.reset(seed=5).obs.tolist()]
    for _ in range(6):
        batch = pool.step(drawn.normal(size=(2, 2)).astype(np.float32))
        rows.append((batch.obs.tolist(), batch.rewards.tolist(), batch.dones.tolist(), deepcopy(list(batch.infos))))
    return rows


@pytest.mark.parametrize("act", [kill_myself, raise_value_error])
def test_a_shard_resumes_the_episode_of_an_env_that_fails(act: Any, tmp_path: Path) -> None:
    env_fns = [partial(Failing, act, 3, tmp_path / "done"), partial(WalkEnv, 10**6)]
    with Pool([partial(WalkEnv, 10**6)] * 2, backend="serial") as alone:
        expected = walk(alone)
    cluster = remuda.Ray(shards=1, cpus_per_shard=2)
    with remuda.ClusterPool(env_fns, backend=cluster, num_workers=2, faults="resume") as pool:
        assert_same(walk(pool), expected)
        assert pool.stats().faults == 1


def noisy(obs: Any, context: remuda.PolicyContext) -> Any:
    return np.array([unit.rng.normal(size=2) for unit in context.units])


def test_tasks_have_the_results_of_one_machine_also_after_kills(tmp_path: Path) -> None:
    deaths, scales = {"build": 1, "reset": 1, "step": 1}, (1.0, -1.0)
    tasks = [Task(str(scale), partial(Walk, scale)) for scale in scales]
    expected = evaluate_tasks(noisy, tasks, episodes=3, num_envs=1, seed=3, backend="serial")
    mortal = [Task(str(scale), partial(Mortal, tmp_path, str(scale), deaths, scale)) for scale in scales]
    faults = FaultPolicy(backoff=0.0)
    results = evaluate_tasks(
        noisy, mortal, episodes=3, num_envs=4, seed=3, attempts=9, backend=remuda.Ray(shards=2), faults=faults
    )
    changed = ("attempts", "faults")
    for found, wanted in zip(results.rows, expected.rows, strict=True):
        assert {key: found[key] for key in found if key not in changed} == {
            key: wanted[key] for key in wanted if key not in changed
        }
    assert kills(tmp_path) >= 2 + 6 + 6 - 2  # an episode may end before its second step
