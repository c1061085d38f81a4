"""The contenders of `ray_shards.py`: pools, bare actors, tianshou's RayVectorEnv and RLlib's env runners.

Each function makes a contender, which `stack` closes, and returns a function that runs the contender for some seconds.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import ray
from gymnasium.vector import SyncVectorEnv

import remuda

Policy = Callable[[Any], Any]
Race = Callable[[float], float]
"""A function that runs a contender for some seconds, and returns env steps a second."""

MESSAGE = bytes(256)
"""A message as long as the packed step of a few envs that a shard receives."""


# -- contenders with remuda ------------------------------------------------------------------------------


def stepping(stack: ExitStack, env_fns: list[Any], policy: Policy, **options: Any) -> Race:
    pool = stack.enter_context(remuda.Pool(env_fns, **options))
    batch = pool.reset(seed=0)

    def run(seconds: float) -> float:
        nonlocal batch
        steps, begin = 0, time.perf_counter()
        while (passed := time.perf_counter() - begin) < seconds:
            batch = pool.step(policy(batch.obs))
            steps += len(batch)
        return steps / passed

    return run


def collecting(stack: ExitStack, env_fns: list[Any], policy: Policy, steps: int) -> Race:
    """Collects rollouts on one machine with `remuda.collect`, which chooses the fastest way of stepping."""
    pool = stack.enter_context(remuda.Pool(env_fns, num_workers=2))
    pool.reset(seed=0)
    rollouts = remuda.collect(pool, policy, steps=steps)
    return lambda seconds: take(rollouts, seconds)


def rolling(
    stack: ExitStack, env_fns: list[Any], policy: Policy, steps: int, backend: remuda.Ray, *, publishes: bool = False
) -> Race:
    """Takes rollouts from shards, which fill the next ones meanwhile. Each turn first drops the earlier rollouts."""
    in_flight = 2
    pool: Any = stack.enter_context(remuda.ClusterPool(env_fns, backend=backend))
    rollouts = pool.rollouts(policy, steps=steps, in_flight=in_flight)
    after_each = (lambda: pool.publish(policy)) if publishes else None

    def run(seconds: float) -> float:
        for _ in range(in_flight * pool.backend.shards):  # drops the rollouts that were filled before this turn
            next(rollouts)
        rate = take(rollouts, seconds, after_each)
        pool.stats()  # waits until the shards have filled the requested rollouts
        return rate

    return run


def take(rollouts: Iterator[Any], seconds: float, after_each: Callable[[], object] | None = None) -> float:
    """Takes one rollout after another for some seconds. Returns env steps a second."""
    steps, begin = 0, time.perf_counter()
    while (passed := time.perf_counter() - begin) < seconds:
        rollout = next(rollouts)
        steps += rollout.steps * rollout.num_envs
        if after_each is not None:
            after_each()
    return steps / passed


# -- peers ------------------------------------------------------------------------------------------------


def burn(seconds: float) -> None:
    """Keeps a core busy until this thread has used ``seconds`` of CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Bare:
    """An actor without remuda. Like shards, it does not report its calls to Ray's list of tasks."""

    @ray.method(enable_task_events=False)  # type: ignore[untyped-decorator]
    def sleep(self, seconds: float, message: bytes) -> bytes:
        time.sleep(seconds)
        return message

    @ray.method(enable_task_events=False)  # type: ignore[untyped-decorator]
    def compute(self, seconds: float, message: bytes) -> bytes:
        burn(seconds)
        return message


def bare_actors(stack: ExitStack, method: str, seconds: float, num_envs: int) -> Race:
    """Measures Ray's own cost: calls two actors that take as long as a shard's envs and return their argument.

    Args:
        stack: Kills the actors at its end.
        method: The method of `Bare` to call, "sleep" or "compute".
        seconds: The time of one call, which stands for a step of all envs of a shard.
        num_envs: The number of envs for which both actors stand together.
    """
    pair = [ray.remote(Bare).remote() for _ in range(2)]
    for actor in pair:
        stack.callback(ray.kill, actor)
    calls = [getattr(actor, method) for actor in pair]

    def run(duration: float) -> float:
        steps, begin = 0, time.perf_counter()
        while (passed := time.perf_counter() - begin) < duration:
            ray.get([call.remote(seconds, MESSAGE) for call in calls])
            steps += num_envs
        return steps / passed

    return run


class VectorActor:
    """An actor that steps a vector env of Gymnasium, written with Ray alone."""

    def __init__(self, env_fns: list[Any]) -> None:
        self._envs = SyncVectorEnv(env_fns)
        self._obs, _ = self._envs.reset(seed=0)

    @ray.method(enable_task_events=False)  # type: ignore[untyped-decorator]
    def step(self, actions: Any) -> Any:
        return self._envs.step(actions)[:4]

    @ray.method(enable_task_events=False)  # type: ignore[untyped-decorator]
    def rollout(self, steps: int, policy: Policy) -> list[Any]:
        rows = []
        for _ in range(steps):
            actions = policy(self._obs)
            obs, *rest = self._envs.step(actions)[:4]
            rows.append((self._obs, actions, *rest))
            self._obs = obs
        return [np.stack(column) for column in zip(*rows, strict=True)]


def vector_actors(stack: ExitStack, env_fns: list[Any], shards: int) -> list[Any]:
    size = len(env_fns) // shards
    kind = ray.remote(VectorActor).options(scheduling_strategy="SPREAD")  # remuda's shards are placed in the same way
    made = [kind.remote(env_fns[i * size : (i + 1) * size]) for i in range(shards)]
    for actor in made:
        stack.callback(ray.kill, actor)
    return made


def bare_steps(stack: ExitStack, env_fns: list[Any], policy: Policy, shards: int = 2) -> Race:
    """Steps vector envs in actors without remuda; the policy acts in the caller."""
    actors = vector_actors(stack, env_fns, shards)
    obs = [np.zeros((len(env_fns) // shards, 4))] * shards

    def run(seconds: float) -> float:
        nonlocal obs
        steps, begin = 0, time.perf_counter()
        while (passed := time.perf_counter() - begin) < seconds:
            refs = [actor.step.remote(policy(its)) for actor, its in zip(actors, obs, strict=True)]
            obs = [answer[0] for answer in ray.get(refs)]
            steps += len(env_fns)
        return steps / passed

    return run


def bare_rollouts(
    stack: ExitStack, env_fns: list[Any], policy: Policy, steps: int, shards: int = 2, *, publishes: bool = False
) -> Race:
    """Collects rollouts from actors without remuda. Each actor always has two requests under way."""
    actors = vector_actors(stack, env_fns, shards)

    def run(seconds: float) -> float:
        newest = ray.put(policy)
        asked = {actor.rollout.remote(steps, newest): actor for actor in actors * 2}
        count, begin = 0, time.perf_counter()
        while (passed := time.perf_counter() - begin) < seconds:
            (done,), _ = ray.wait(list(asked), num_returns=1)
            actor = asked.pop(done)
            count += ray.get(done)[2].size
            if publishes:
                newest = ray.put(policy)
            asked[actor.rollout.remote(steps, newest)] = actor
        ray.get(list(asked))
        return count / passed

    return run


def missing() -> list[str]:
    """Returns the names of the peers that are not installed."""
    needs = {"tianshou's RayVectorEnv": "tianshou", "RLlib's env runners": "tree"}  # RLlib needs `tree`
    return [name for name, module in needs.items() if importlib.util.find_spec(module) is None]


def tianshous(stack: ExitStack, env_fns: list[Any]) -> Race:
    """Steps tianshou's RayVectorEnv, which has an actor for each env. Resets finished envs between steps."""
    from tianshou.env import RayVectorEnv

    envs = RayVectorEnv(env_fns)
    stack.callback(envs.close)
    envs.reset()

    def run(duration: float) -> float:
        steps, begin = 0, time.perf_counter()
        while (passed := time.perf_counter() - begin) < duration:
            _, _, terminated, truncated, _ = envs.step(np.zeros(len(env_fns), np.int64))
            if (over := np.flatnonzero(terminated | truncated)).size:
                envs.reset(over)
            steps += len(env_fns)
        return steps / passed

    return run


def rllibs(stack: ExitStack, num_envs: int, num_steps: int) -> Race:
    """Samples with RLlib's env runners: two actors, each with half of the CartPoles and two samples under way."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module import RLModuleSpec
    from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
    from ray.rllib.env.env_runner_group import EnvRunnerGroup

    class Lean(TorchRLModule):  # type: ignore[misc]
        def _forward(self, batch: Any, **_: Any) -> Any:
            return {"actions": (batch["obs"][:, 2] > 0).long()}

    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=2, num_envs_per_env_runner=num_envs // 2, max_requests_in_flight_per_env_runner=2)
    )
    config = config.rl_module(rl_module_spec=RLModuleSpec(module_class=Lean))
    group = EnvRunnerGroup(config=config, local_env_runner=False, num_env_runners=2)
    stack.callback(group.stop)
    return _sampling(group, num_steps * num_envs // 2)


def _sampling(group: Any, num_timesteps: int) -> Race:
    """Takes samples; each runner fills its next one meanwhile. No sample is under way before or after a turn."""

    def ask(runners: list[int]) -> int:
        asked = {"num_timesteps": num_timesteps}
        return int(group.foreach_env_runner_async("sample", kwargs=asked, remote_worker_ids=runners))

    def fetch() -> list[tuple[int, int]]:
        """Returns (runner, number of steps) for each finished sample."""
        come = group.fetch_ready_async_reqs(timeout_seconds=0.1)
        return [(runner, sum(map(len, episodes))) for runner, episodes in come]

    def run(duration: float) -> float:
        under_way = ask([1, 2]) + ask([1, 2])
        first: list[tuple[int, int]] = []
        while not first:  # the measured time starts with the first sample, which does not count
            first = fetch()
        under_way += ask([runner for runner, _ in first]) - len(first)
        steps, passed, begin = 0, 0.0, time.perf_counter()
        while passed < duration:
            for runner, count in fetch():
                steps, passed = steps + count, time.perf_counter() - begin  # the measured time ends with a sample
                under_way += ask([runner]) - 1
        while under_way > 0:
            under_way -= len(fetch())
        return steps / passed

    return run
