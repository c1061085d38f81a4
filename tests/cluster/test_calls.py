"""An env that dies, hangs or raises in any operation has the same consequences on a cluster as on one machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from cluster_envs import Faulty, arm
from drawn import MINUTES

import remuda
from remuda import Batch, EnvError, EnvState, Fault, FaultPolicy, Pool, WorkerDiedError

pytestmark = pytest.mark.usefixtures("kept_actors")

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
