"""A pool on a cluster gives the results of local pools: in the conformance suite, by faces, and if envs fail."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import kill_myself, raise_value_error
from answers import DEATHS, EXCEPTIONS, MODES, SEQUENCES, answers, possible
from backends.test_conformance import COURSES, OpenPool, episodes
from cluster_envs import Faulty, Scripted, actions, arm
from drawn import MINUTES
from pairs import each
from pool_envs import assert_same
from resumed_envs import Failing, WalkEnv
from task_envs import Mortal, Walk, kills

import remuda
from remuda import Batch, EnvError, EnvState, Fault, FaultPolicy, Pool, Task, WorkerDiedError, evaluate_tasks
from remuda.gymnasium import AsyncVectorEnv

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


# -- faces ---------------------------------------------------------------------------------------------

NUM_ENVS = 4
ACTIONS = [actions(step, range(NUM_ENVS)) for step in range(12)]
FACES = Path(__file__).parents[1] / "faces" / "support"


def gymnasiums(**options: Any) -> list[Any]:
    envs = AsyncVectorEnv([Scripted] * NUM_ENVS, **options)
    results = [envs.reset(seed=4), *map(envs.step, ACTIONS)]
    results.append(envs.reset(options={"reset_mask": np.array([True, False, True, False])}))
    results.append(envs.call("steps"))
    envs.close()
    return results


def sb3s(**options: Any) -> list[Any]:
    sb3 = pytest.importorskip("stable_baselines3") and remuda.sb3
    envs = sb3.SubprocVecEnv([Scripted] * NUM_ENVS, **options)
    envs.seed(4)
    results = [envs.reset(), *map(envs.step, ACTIONS)]
    envs.set_attr("length", 2, indices=[1])
    results += [envs.get_attr("length", [0, 1]), envs.env_method("pid") and None, envs.reset_infos]
    envs.close()
    return results


def alfs(**options: Any) -> list[Any]:
    envs_module = importlib.import_module("alf_face_envs")
    with remuda.alf.FastParallelEnvironment([envs_module.CountingAlfEnv] * NUM_ENVS, **options) as envs:
        rng = np.random.default_rng(5)
        each = [envs_module.random_actions(envs.action_spec(), envs.batch_size, rng) for _ in range(12)]
        return [str(envs.reset()), *(str(envs.step(one)) for one in each)]


def pettingzoos(**options: Any) -> list[Any]:
    pytest.importorskip("pettingzoo")
    crowd = importlib.import_module("parallel_envs")
    rng, results = np.random.default_rng(5), list[Any]()
    with remuda.pettingzoo.vector([crowd.Crowd] * NUM_ENVS, **options) as envs:
        results.append(envs.reset(seed=4)[0])
        for _ in range(12):
            *numbers, _ = envs.step(crowd.actions_of(rng, NUM_ENVS))
            results += [numbers, envs.alive]
    return results


@pytest.mark.parametrize("course", [gymnasiums, sb3s, alfs, pettingzoos])
def test_a_face_returns_what_it_does_on_one_machine(
    monkeypatch: pytest.MonkeyPatch, course: Callable[..., list[Any]]
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(FACES), str(FACES / "alf_stand_in")])
    assert_same(course(backend=remuda.Ray(shards=2, backend="serial")), course(num_workers=2))


# -- faults --------------------------------------------------------------------------------------------

LIMIT = 1.5  # seconds until a hanging env is killed; envs that do not hang take milliseconds
KINDS = ("death", "exception", "hang")
Operation = Callable[[Pool, int, dict[int, Any]], Any]
OPERATIONS: dict[str, Operation] = {
    "step": lambda pool, env, _: pool.step([0], env_ids=[env]),
    "reset": lambda pool, env, _: pool.reset(seed=5, env_ids=[env]),
    "call": lambda pool, env, _: pool.call("poke", env_ids=[env]),
    "get_state": lambda pool, env, _: pool.get_state([env]),
    "set_state": lambda pool, env, states: pool.set_state([states[env]], [env]),
    "render": lambda pool, env, _: pool.call("render", env_ids=[env]),
    "apply_async": lambda pool, env, _: pool.apply_async(Faulty.poke, env_ids=[env]).result(),
}
# A hang takes LIMIT seconds on the cluster and on one machine, so it occurs only in the operations with own limits.
ALL = [*product(OPERATIONS, KINDS[:2]), *product(("step", "reset", "call"), KINDS[2:])]
CASES = ALL if MINUTES else [case for i, case in enumerate(ALL[:-1]) if i % 4 in (0, 3)] + ALL[-1:]


def outcome(operation: Callable[[], Any]) -> Any:
    """Runs an operation. Returns its result or error as plain data, without pids and the names of machines."""
    try:
        return plain(operation())
    except remuda.RemudaError as error:
        return plain(error)


def plain(value: Any) -> Any:
    if isinstance(value, Batch):
        ends = zip(value.env_ids.tolist(), value.truncations.tolist(), value.obs.tolist(), strict=True)
        return [(*end, fault_in(info)) for end, info in zip(ends, value.infos, strict=True)]
    if isinstance(value, EnvError):
        each = [(f.env_id, f.worker, f.operation, f.message, f.where, type(f.exception)) for f in value.failures]
        return EnvError, each, type(value.__cause__)
    if isinstance(value, WorkerDiedError):
        fields = value.worker, value.env_ids, value.operation, value.exitcode, value.where
        text = re.sub(r"pid \d+", "pid", str(value)).splitlines()[0]
        return type(value), text, fields, getattr(value, "deadline", None), getattr(value, "limit", None)
    if isinstance(value, Exception):
        return type(value), str(value), value.__cause__ and plain(value.__cause__)
    return [type(one) if isinstance(one, EnvState) else one for one in value]


def fault_in(info: dict[str, Any]) -> Any:
    fault: Fault | None = info.get("fault")
    if fault is None:
        return None
    return fault.env_id, fault.worker, fault.kind, fault.operation, fault.where, fault.shared, plain(fault.error)


def run(pool: Pool, ids: list[int], env: int, name: str, kind: str) -> list[Any]:
    """Makes an env fail in an operation. Returns the outcomes of this operation and of later ones of the envs `ids`."""
    pool.reset(seed=1, env_ids=ids)
    states = dict(zip(ids, pool.get_state(ids), strict=True))
    pool.step([0] * len(ids), env_ids=ids)
    pool.apply(arm, kind, env_ids=[env])
    return [
        outcome(lambda: OPERATIONS[name](pool, env, states)),
        outcome(lambda: pool.get_state([env])),
        outcome(lambda: pool.step([0] * len(ids), env_ids=ids)),
        outcome(lambda: pool.get_state(ids)),
        outcome(lambda: pool.step([0] * len(ids), env_ids=ids)),
        outcome(lambda: pool.get_attr("pokes", env_ids=ids)),
        pool.pending,
    ]


def policy_with(on_fault: Any) -> FaultPolicy:
    limits: Any = dict.fromkeys(("step_timeout", "reset_timeout", "call_timeout"), LIMIT)
    return FaultPolicy(on_fault, **limits, backoff=0, max_restarts=1000)


@pytest.mark.watchdog(600)  # each hang lasts LIMIT seconds, and each restart starts a process
def test_faults_with_restarts_have_the_consequences_that_they_have_on_one_machine() -> None:
    """Shard 0 has two envs in one worker, and shard 1 has one env. Both have half a CPU, and thus one worker."""
    policy, backend = policy_with("restart"), remuda.Ray(shards=2, cpus_per_shard=0.5)
    with (
        Pool([Faulty] * 3, num_workers=2, faults=policy) as twin,
        Pool([Faulty] * 3, faults=policy, backend=backend) as pool,
    ):
        assert pool.num_workers == twin.num_workers
        for number, case in enumerate(CASES):
            env = 1 + number % 2
            assert run(pool, [0, 1, 2], env, *case) == run(twin, [0, 1, 2], env, *case), case
        assert pool.stats().restarts == twin.stats().restarts


@pytest.mark.watchdog(600)
def test_faults_that_are_raised_have_the_consequences_that_they_have_on_one_machine() -> None:
    policy, living = policy_with("raise"), list(range(len(OPERATIONS)))
    with (
        Pool([Faulty] * len(living), num_workers=len(living), faults=policy, log_advice=False) as twin,
        Pool([Faulty] * len(living), num_workers=None, faults=policy, backend=remuda.Ray(shards=2)) as pool,
    ):
        for env, name in enumerate(OPERATIONS):
            for kind in ("exception", "death" if env % 2 or not MINUTES else "hang"):
                assert run(pool, living, env, name, kind) == run(twin, living, env, name, kind), (name, kind)
            living = living[1:]
