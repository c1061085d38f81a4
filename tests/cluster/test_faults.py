"""The death of a worker, shard or machine ends the episodes of its own envs only, which continue from saved states."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import kill_myself, once, raise_value_error
from cluster_envs import Endless, Scripted, actions, fail, kill_shard, rows_by_env
from pool_envs import Gate, TextEnv, hooked
from programs import Watched, kill

import remuda
from remuda import (
    Batch,
    BrokenPoolError,
    FaultPolicy,
    Pool,
    RestartLimitError,
    ShardDiedError,
    StateError,
    WorkerDiedError,
)

pytestmark = pytest.mark.usefixtures("kept_actors")

NUM_ENVS, STEPS = 4, 20
SHARD = [2, 3]  # the ids of the envs of shard 1
SERIAL: Any = remuda.Ray(shards=2, backend="serial")
PROCESSES: Any = remuda.Ray(shards=2)
SEEDED: Any = {"seeding": "per_episode", "faults": "restart"}
EXTRAS: Any = {
    "mask": (lambda env: np.arange(5) <= env.unwrapped.steps, ((5,), np.bool_)),
    "draw": (lambda env: env.unwrapped.draw, ((), np.float64)),
    "drawn": remuda.StepColumn(lambda env: env.unwrapped.draw, (), np.float64),
}


def with_columns(batch: Batch) -> Any:
    return rows_by_env(batch), *(batch.extras[name].tolist() for name in EXTRAS)


def faults_of(batch: Batch) -> list[Any]:
    return [fault for info in batch.infos if (fault := (info.get("final_info") or info).get("fault"))]


def course(pool: Pool, is_twin: bool) -> tuple[list[Any], list[Any]]:
    """Returns the rows of a pool, and the position of each fault.

    Shard 1 is killed after one of its two envs has ended an episode, and that was observed again. In the twin, the envs
    raise instead. With next-step autoreset, the env that ended its episode has none to cut off.
    """
    batch, faults, is_killed = pool.reset(seed=3), list[Any](), False
    found = [with_columns(batch)]
    for step in range(STEPS):
        over = batch.terminations[SHARD]
        if not is_killed and over.any() and not over.all():
            is_killed = True
            pool.request_obs()
            found.append(with_columns(pool.recv(order="slot")))
            if is_twin:
                pool.apply(fail, env_ids=[env for env in SHARD if pool.autoreset == "same_step" or not over[env - 2]])
            else:
                kill_shard(pool, SHARD[0])
        batch = pool.step(actions(step, range(NUM_ENVS)))
        faults += faults_of(batch)
        found.append(with_columns(batch))
    pool.request_obs()
    return [*found, with_columns(pool.recv(order="slot"))], faults


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_the_death_of_a_shard_cuts_off_an_episode_of_each_of_its_envs(autoreset: Any) -> None:
    options: Any = {"autoreset": autoreset, "extras": EXTRAS, **SEEDED}
    with Pool([Scripted] * NUM_ENVS, backend="serial", **options) as twin:
        expected, raised = course(twin, is_twin=True)
    with Pool([Scripted] * NUM_ENVS, backend=SERIAL, **options) as pool:
        found, faults = course(pool, is_twin=False)
        assert pool.stats().restarts == 1
    assert found == expected
    # a shard's fault does not count the lost step, which may not have begun
    assert [replace(one.where, step=one.where.step + 1) for one in faults] == [one.where for one in raised]
    assert faults and {(fault.shard, fault.kind) for fault in faults} == {(1, "death")}
    assert isinstance(faults[0].error, ShardDiedError) and f"on node {faults[0].node}" in str(faults[0])


KILL_YOURSELF = 4


class Dying(Scripted):
    bonus = 0

    def step(self, action: Any) -> Any:
        if action == KILL_YOURSELF:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Other(Dying):
    kind = "other"


def test_the_death_of_a_shard_in_a_step_does_not_delay_the_others() -> None:
    with Pool([Dying] * NUM_ENVS, backend=SERIAL, faults="restart") as pool:
        pool.set_attr("bonus", 5, lasting=True)
        pool.set_reset_options({"wind": 1})
        pool.reset(seed=0)
        pool.replace([2], [Other])
        pool.step([0] * NUM_ENVS)
        pool.send([0, 1, 2, KILL_YOURSELF], [0, 1, 2, 3])
        steps = 0
        while pool.pending != 2 or steps == 0:  # the envs of the other shard
            batch = pool.recv(min_envs=2)
            if 0 not in batch.env_ids:
                break
            steps += 1
            pool.send([0, 0], [0, 1])
        assert batch.truncations[np.isin(batch.env_ids, SHARD)].all()
        assert steps > 0
        pool.discard()
        assert pool.step([0] * NUM_ENVS).rewards.tolist()[2:] == [0, 0]  # the envs of the shard have been reset
        assert [info["options"] for info in pool.reset().infos] == ["{'wind': 1}"] * 4
        assert pool.get_attr("bonus") == [5] * 4
        assert [kind == "other" for kind in pool.get_attr("kind")] == [False, False, True, False]


def test_a_death_between_rollouts_is_reported_with_the_next_rollout(caplog: pytest.LogCaptureFixture) -> None:
    with Pool([Endless] * NUM_ENVS, backend=PROCESSES, faults="restart", num_workers=None) as pool:
        pool.reset(seed=0)
        victim = pool.workers[3]
        with pool.rollouts(lambda obs: np.zeros(len(obs), int), steps=4, in_flight=1) as rollouts:
            assert victim.pid is not None  # the shard answers this call after its first rollout
            watched = Watched([victim.pid])
            os.kill(victim.pid, signal.SIGKILL)
            watched.await_end()
            of_shard = (rollout for rollout in rollouts if rollout.shard == 1)
            assert next(of_shard).lost == ()
            rollout = next(of_shard)
            assert [(fault.env_id, fault.shard, fault.kind) for fault in rollout.lost] == [(3, 1, "death")]
            assert rollout.faults == {} and next(of_shard).lost == ()
        assert pool.stats().restarts == 1
    (record,) = [record for record in caplog.records if record.name == "remuda"]
    assert (record.env, record.shard) == (3, 1)  # type: ignore[attr-defined]
    assert "env 3" in record.getMessage() and "(shard 1, node " in record.getMessage()


def test_a_dead_shard_is_rebuilt_while_the_program_does_not_call_the_pool(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    env_fns = hooked(2, build=once(tmp_path / "built", lambda _: gate.wait(), skip=1))
    with Pool(env_fns, backend=SERIAL, faults="restart") as pool:
        pool.reset()
        kill_shard(pool, 1)
        gate.let_pass()  # waits until the successor builds its env
        batch = pool.step([0, 0])
        assert batch.truncations.tolist() == [False, True]
        assert [(fault.env_id, fault.shard, fault.kind) for fault in faults_of(batch)] == [(1, 1, "death")]
        assert pool.step([1, 2]).truncations.tolist() == [False, False]
        assert pool.stats().restarts == 1


def test_without_restarts_the_death_of_a_shard_is_raised() -> None:
    with Pool([Dying] * NUM_ENVS, backend=SERIAL) as pool:
        pool.reset(seed=0)
        pool.send([0, 1, 2, KILL_YOURSELF])
        with pytest.raises(ShardDiedError, match=r"shard 1 \(envs 2, 3, on node .*\) died while in step") as raised:
            pool.recv()
        assert raised.value.env_ids == (2, 3) == pool.workers[raised.value.worker].env_ids
        pool.discard()
        with pytest.raises(BrokenPoolError, match="env 2 was lost"):
            pool.step([0] * NUM_ENVS)
        assert pool.step([0, 1], env_ids=[0, 1]).obs[:, 2].tolist() == [0, 1]


@pytest.mark.parametrize("backend", [SERIAL, PROCESSES])
def test_a_restart_limit_error_has_each_death_once(backend: Any) -> None:
    policy = FaultPolicy("restart", max_restarts=0)
    with Pool([Dying] * NUM_ENVS, backend=backend, faults=policy, num_workers=1) as pool:
        pool.reset(seed=0)
        with pytest.raises(RestartLimitError, match="max_restarts=0 of one env") as raised:
            pool.step([0, 1, 2, KILL_YOURSELF])
        assert [fault.env_id for fault in raised.value.faults] == SHARD
        assert str(raised.value).count("died while in step") == 1


def test_a_death_in_close_is_raised() -> None:
    pool = Pool(hooked(NUM_ENVS, [3], close=kill_myself), backend=PROCESSES, num_workers=None)
    pool.reset()
    with pytest.raises(WorkerDiedError, match="env 3.* died while in close") as raised:
        pool.close()
    assert (raised.value.worker, raised.value.env_ids) == (3, (3,))


def test_observations_without_columns_are_repeated_after_a_fault() -> None:
    with Pool([TextEnv] * 2, backend=PROCESSES, faults="restart") as pool:
        pool.reset()
        pool.step(("a", "b"))
        kill(pool, 1)
        for _ in range(2):
            pool.request_obs()
            assert pool.recv(order="slot").obs == ("a", "b")


def test_the_death_of_a_shard_in_build_is_a_fault(tmp_path: Path) -> None:
    env_fns = hooked(2, [1], build=once(tmp_path / "was here", kill_myself))
    with Pool(env_fns, backend=SERIAL, faults="restart") as pool:
        assert pool.reset().env_ids.tolist() == [0, 1]
        assert pool.stats().restarts == 1


REPORT = FaultPolicy("restart", resets="report", max_restarts=1)


@pytest.mark.parametrize("act", [kill_myself, raise_value_error])
def test_a_failed_reset_on_a_shard_is_reported_as_often_as_it_fails(act: Callable[..., Any]) -> None:
    def obey(env: Any) -> Any:
        return act() if env.last_options else None

    env_fns = hooked(4, [3], reset=obey, autoreset=obey)
    with Pool(env_fns, backend=PROCESSES, autoreset="disabled", faults=REPORT) as pool:
        pool.reset()
        for _ in range(4):
            batch = pool.reset(env_ids=[3], options={"fail": True})
            assert batch.truncations.tolist() == [True] and batch.infos[0]["fault"].env_id == 3
        assert "fault" not in pool.reset(env_ids=[3]).infos[0]
        assert len(pool.step([0, 0, 0, 0])) == 4


def test_the_reset_that_a_lost_shard_did_not_make_is_reported() -> None:
    with Pool([Scripted] * 4, backend=SERIAL, autoreset="disabled", faults=REPORT) as pool:
        pool.reset(seed=1)
        kill_shard(pool, 2)
        batch = pool.step([0, 0, 0, 0])
        assert [("fault" in info) for info in batch.infos] == [False, False, True, True]
        batch = pool.reset(env_ids=[2, 3])
        assert len(pool.step([0, 0, 0, 0])) == 4


def test_an_env_may_step_again_once_it_was_reset_after_its_fault(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)  # Python changes the running thread as often as it can
    faults, backend = FaultPolicy("restart", max_restarts=10_000), remuda.Ray(shards=1, backend="serial")
    env_fns = hooked(NUM_ENVS, range(NUM_ENVS), step=raise_value_error)
    with Pool(env_fns, backend=backend, autoreset="disabled", faults=faults) as pool:
        pool.send_reset()
        for _ in range(400):
            batch = pool.recv(1)
            for env, is_over in zip(batch.env_ids.tolist(), batch.truncations.tolist(), strict=True):
                if is_over:
                    pool.send_reset(env_ids=[env])
                else:
                    pool.send([0], [env])


# -- states --------------------------------------------------------------------------------------------


def there_and_back(pool: Pool, kill: bool = False) -> list[Any]:
    """Steps, takes states, steps again, and steps from the states in other envs. Returns all rows."""

    def steps(count: int) -> list[Any]:
        return [rows_by_env(pool.step(actions(step, range(NUM_ENVS)))) for step in range(count)]

    course = [rows_by_env(pool.reset(seed=3)), *steps(2)]
    states = pickle.loads(pickle.dumps(pool.get_state(state_fns="attributes")))
    course += steps(8)
    if kill:
        kill_shard(pool, 0)
    course += [rows_by_env(pool.set_state(states[::-1])), *steps(8)]
    return [*course, rows_by_env(pool.fork_state(3, [0, 2], state_fns="attributes")), *steps(8)]


def test_envs_continue_from_states_even_if_a_shard_dies() -> None:
    with Pool([Scripted] * NUM_ENVS, backend="serial", **SEEDED) as twin:
        expected = there_and_back(twin)
    with Pool([Scripted] * NUM_ENVS, backend=SERIAL, **SEEDED) as pool:
        assert there_and_back(pool, kill=True) == expected
        assert pool.stats().restarts == 1
        states = pool.get_state([3], state_fns="attributes")
        kill_shard(pool, 3)
        with pytest.raises(ShardDiedError):
            pool.get_state([3], state_fns="attributes")
        with pytest.raises(StateError, match="got env 3, rebuilt and not reset yet"):
            pool.get_state([3], state_fns="attributes")
        assert len(pool.set_state(states, [3])) == 1


def test_seeds_continue_after_a_state_was_set_in_a_new_shard() -> None:
    """This holds even if a shard has counted the seeds in rollouts and then died."""
    draws = []
    for kills in (False, True):
        with Pool([Endless] * 2, backend=remuda.Ray(backend="serial"), **SEEDED) as pool:
            pool.reset(seed=3)
            states = pool.get_state(state_fns="attributes")
            if kills:
                kill_shard(pool, 0)
            draws.append([pool.set_state(states).obs[:, 0].tolist()])
            with pool.rollouts(lambda obs: [0] * len(obs), steps=4) as rollouts:
                draws[-1].append(next(rollouts).obs[-1, :, 0].tolist())
            if kills:
                kill_shard(pool, 0)
            draws[-1].append(pool.reset().obs[:, 0].tolist())
    assert draws[0] == draws[1]
