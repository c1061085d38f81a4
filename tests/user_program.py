"""A program of a user, with the types that checkers must find in it (test_types.py). It never runs."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from typing_extensions import assert_type

import remuda
from remuda import Batch, CrashDir, Fault, FaultPolicy, Pool, PoolOptions
from remuda.gymnasium import AsyncVectorEnv, make_vec


def make() -> gymnasium.Env[NDArray[np.float32], np.int64]:
    info = assert_type(remuda.worker_info(), remuda.WorkerInfo | None)
    if info is not None:
        assert_type(info.env_ids, tuple[int, ...])
    return gymnasium.make("CartPole-v1")


def policy(obs: NDArray[np.float32]) -> NDArray[np.int64]:
    return (obs[:, 2] > 0).astype(np.int64)


def steps() -> None:
    options: PoolOptions = {"num_workers": 2, "autoreset": "same_step", "seeding": "per_episode"}
    with Pool([make] * 8, **options) as pool:
        assert_type(pool, Pool)
        batch = assert_type(pool.reset(seed=0), Batch)
        batch = assert_type(pool.step(policy(batch.obs)), Batch)
        rewards: NDArray[np.float64] = batch.rewards
        ids: NDArray[np.int64] = batch.env_ids
        pool.send(policy(batch.obs), ids)
        batch = assert_type(pool.recv(min_envs=2, max_envs=4, timeout=0.1), Batch)
        keys: list[str] = list(batch.infos[0])
        print(keys, rewards[batch.terminations | batch.truncations], batch.extras["mask"], len(batch))
        assert_type(batch.infos.stack(), dict[str, Any])
        for half in pool.split(2):
            half.send(policy(assert_type(half.recv(), Batch).obs))
        states = assert_type(pool.get_state(state_fns="attributes"), list[remuda.EnvState])
        assert_type(pool.set_state(states), Batch)
        assert_type(batch.to("cuda", non_blocking=True), remuda.TensorBatch)
    Pool([make] * 2, **pool.options).close()


def calls(pool: Pool) -> None:
    pool.set_attr("gravity", 9.8, env_ids=[0, 1], lasting=True)
    assert_type(pool.get_attr("length"), list[Any])
    assert_type(pool.call("name"), list[Any])
    print(pool.call_async("save", "here").result(timeout=5.0), pool.apply(lambda env: env.unwrapped))
    assert_type([worker.pid for worker in pool.workers], list[int | None])


def faults() -> None:
    policy = FaultPolicy("restart", step_timeout=5.0, max_restarts=20, renew_every=100)
    crash_dir = CrashDir("crashes", bytes_per_env=1 << 20, max_files=20)
    try:
        with Pool([make] * 8, faults=policy, crash_dir=crash_dir, worker_output="capture") as pool:
            fault: Fault | None = pool.reset(seed=0).infos[0].get("fault")
            if fault is not None:
                assert_type(fault.where.step, int)
    except remuda.EnvError as error:
        assert_type(error.failures[0], remuda.Failure)
    except remuda.WorkerDiedError as error:
        assert_type(error.env_ids, tuple[int, ...])
    assert_type(remuda.load_record("crashes/env-0.remuda"), remuda.CrashRecord)


def faces() -> None:
    envs: VectorEnv[Any, Any, Any] = AsyncVectorEnv([make] * 8, num_workers=2, faults="restart", lazy_infos=True)
    envs.close()
    assert_type(remuda.make_vec("CartPole-v1", num_envs=64, num_workers="auto"), AsyncVectorEnv[Any, Any])
    make_vec("CartPole-v1", num_envs=8, num_workers="auto", render_mode="rgb_array").close()
    vec_env = remuda.sb3.SubprocVecEnv([make] * 8, num_workers=2, keep_options=True)
    print(vec_env.reset(), vec_env.step(np.zeros(8, np.int64))[2], vec_env.get_attr("spec", indices=[0]))


def learning(pool: Pool) -> None:
    assert_type(remuda.evaluate(policy, [make] * 8, episodes=100, seed=0).interval(0.95), tuple[float, float])
    rollout = assert_type(pool.rollout(16, columns={"value": np.float32}, parts=2), remuda.Rollout)
    for step in rollout:
        assert_type(step, remuda.RolloutStep).act(policy(step.obs), value=np.zeros(len(step.env_ids)))
    valid: NDArray[np.bool_] = rollout.valid
    print(valid, next(assert_type(remuda.collect(pool, policy, steps=16), remuda.Collector)).actions)
    cluster = remuda.Ray(shards=2, cpus_per_shard=4, placement="spread", backend="serial")
    with remuda.ClusterPool([make] * 8, backend=cluster, faults="restart") as shards:
        assert_type(next(shards.rollouts(policy, steps=32)), remuda.ShardRollout)
        assert_type(shards.publish(policy), int)


def figures(pool: Pool) -> None:
    before = assert_type(pool.stats(), remuda.stats.PoolStats)
    with remuda.trace("run.json"), remuda.span("step"):
        pool.step(policy(np.zeros((8, 4), np.float32)))
    stats = assert_type(pool.stats() - before, remuda.stats.PoolStats)
    assert_type(stats.verdict, remuda.stats.Verdict)
    assert_type(stats.envs[0].step, remuda.stats.Durations)
    assert_type(stats.scalars(), dict[str, float])
