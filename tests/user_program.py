"""A program that uses the whole public surface. Type checkers read it (test_types.py), and it never runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from typing_extensions import assert_type

import remuda
from remuda import Batch, CrashDir, Fault, FaultPolicy, Pool, PoolOptions
from remuda.gymnasium import AsyncVectorEnv, make_vec

Actions = NDArray[np.int64]


def make() -> gymnasium.Env[NDArray[np.float32], np.int64]:
    info = remuda.worker_info()
    if info is not None:
        print(info.index, info.num_workers, info.env_ids)
    return gymnasium.make("CartPole-v1")


def policy(obs: NDArray[np.float32]) -> Actions:
    return (obs[:, 2] > 0).astype(np.int64)


def lockstep() -> float:
    options: PoolOptions = {"num_workers": 2, "autoreset": "same_step", "seeding": "per_episode"}
    total = 0.0
    with Pool([make] * 8, **options) as pool:
        assert_type(pool, Pool)
        batch = assert_type(pool.reset(seed=0), Batch)
        for _ in range(100):
            batch = pool.step(policy(batch.obs))
            rewards: NDArray[np.float64] = batch.rewards
            total += float(rewards[batch.terminations | batch.truncations].sum())
            keys: list[str] = list(batch.infos[0])
            print(keys, assert_type(batch.infos.stack(), dict[str, Any]), len(batch), batch.final_obs)
    return total


def partial_batches(pool: Pool) -> None:
    pool.send_reset(seed=[1, None] * 4)
    while pool.pending:
        batch = pool.recv(min_envs=2, max_envs=4, timeout=0.1)
        ids: NDArray[np.int64] = batch.env_ids
        pool.send(policy(batch.obs), ids)
    for half in pool.split(2):
        half.send_reset()
        half.send(policy(half.recv().obs))


def calls(pool: Pool) -> None:
    pool.set_reset_options({"difficulty": 3})
    pool.set_attr("gravity", 9.8, env_ids=[0, 1], lasting=True)
    lengths = assert_type(pool.get_attr("length"), list[Any])
    results = [lengths, assert_type(pool.call("name"), list[Any]), pool.render()]
    call = pool.call_async("save", Path("here"))
    print(results, call.result(timeout=5.0), pool.apply(lambda env: env.unwrapped))
    pids: list[int | None] = [worker.pid for worker in pool.workers]
    version: str = remuda.__version__
    print(version, pids, pool.num_envs, pool.closed, pool.options["backend"])
    Pool([make] * 2, **pool.options).close()


def faults() -> None:
    policy = FaultPolicy("restart", step_timeout=5.0, reset_timeout=30.0, max_restarts=20, renew_every=100)
    crash_dir = CrashDir("crashes", bytes_per_env=1 << 20, max_files=20)
    try:
        with Pool([make] * 8, faults=policy, crash_dir=crash_dir, worker_output="capture") as pool:
            batch = pool.reset(seed=0)
            fault: Fault | None = batch.infos[0].get("fault")
            if fault is not None:
                print(fault.env_id, fault.kind, fault.operation, fault.where.step, fault.error, fault.record)
    except remuda.EnvError as error:
        for failure in error.failures:
            print(failure.env_id, failure.operation, failure.traceback)
    except remuda.WorkerDiedError as error:
        print(error.pid, error.exitcode, error.env_ids, error.output, error.out_of_memory)
    except (remuda.StateError, remuda.InvalidActionError, remuda.ResourceError) as error:
        print(error)
    record: remuda.CrashRecord = remuda.load_record("crashes/env-0.remuda")
    print(record.env_id, record.seeded_at, record.fault.kind)


def faces() -> None:
    envs: VectorEnv[Any, Any, Any] = AsyncVectorEnv([make] * 8, num_workers=2, faults="restart", lazy_infos=True)
    obs, infos = envs.reset(seed=0)
    obs, rewards, terminations, truncations, infos = envs.step(policy(obs))
    print(obs, rewards, terminations, truncations, infos)
    envs.close()
    assert_type(remuda.make_vec("CartPole-v1", num_envs=64, num_workers="auto"), AsyncVectorEnv[Any, Any])
    make_vec("CartPole-v1", num_envs=8, num_workers="auto", render_mode="rgb_array").close()
    vec_env = remuda.sb3.SubprocVecEnv([make] * 8, num_workers=2, keep_options=True)
    dones = vec_env.step(np.zeros(8, np.int64))[2]
    print(vec_env.reset(), dones, vec_env.get_attr("spec", indices=[0]))
    vec_env.close()


def evaluation() -> tuple[float, float]:
    result: remuda.Evaluation = remuda.evaluate(policy, [make] * 8, episodes=100, seed=0)
    return result.interval(0.95)


def rollouts(pool: Pool) -> None:
    rollout: remuda.Rollout = pool.rollout(16, columns={"value": np.float32}, parts=2)
    step: remuda.RolloutStep
    for step in rollout:
        step.act(policy(step.obs), value=np.zeros(len(step.env_ids)))
    valid: NDArray[np.bool_] = rollout.valid
    print(valid, rollout.rewards.sum(), rollout.columns["value"], rollout.episode_starts, rollout.infos, rollout.faults)
    collector: remuda.Collector = remuda.collect(pool, policy, steps=16)
    print(next(collector).actions)


def columns_and_states() -> None:
    with Pool([make] * 8, extras={"mask": lambda env: np.ones(2, np.bool_)}) as pool:
        batch = pool.reset(seed=0)
        mask: NDArray[Any] = batch.extras["mask"]
        states: list[remuda.EnvState] = pool.get_state(state_fns="attributes")
        again: Batch = pool.set_state(states)
        pool.replace([0], [make])
        print(mask, again.obs, states[0].steps, states[0].is_over)


def figures(pool: Pool) -> dict[str, float]:
    before: remuda.stats.PoolStats = pool.stats()
    with remuda.trace("run.json") as trace, remuda.span("step"):
        pool.step(policy(np.zeros((8, 4), np.float32)))
    stats = pool.stats() - before
    verdict: remuda.stats.Verdict = stats.verdict
    env: remuda.stats.EnvStats = stats.envs[0]
    took: remuda.stats.Durations = env.step
    worker: remuda.stats.WorkerStats = stats.workers[0]
    print(trace.path, verdict.text, verdict.saves, took.p99, env.returns, worker.busy, worker.doing)
    print(stats.caller.waiting, stats.cores, stats.setup.num_workers, stats.step.mean)
    return stats.scalars()


def clusters() -> None:
    cluster = remuda.Ray(shards=2, cpus_per_shard=4, placement="spread", backend="serial")
    with remuda.ClusterPool([make] * 8, backend=cluster, faults="restart") as pool:
        rollout: remuda.ShardRollout = next(pool.rollouts(policy, steps=32))
        version: int = pool.publish(policy)
        print(version, rollout.shard, rollout.obs, rollout.rewards, rollout.lost)


def tensors(batch: Batch) -> None:
    on_device: remuda.TensorBatch = batch.to("cuda", non_blocking=True)
    print(on_device.obs, on_device.rewards, remuda.to_torch({"obs": batch.obs}, "cpu"))
