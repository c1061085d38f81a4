"""What a Ray cluster costs: rollouts, steps and bytes over two shards on this machine, beside the process backend.

    python benchmarks/ray_shards.py            some minutes; --quick: one
    python benchmarks/ray_shards.py --readme   puts the table into README.md beside this file

The cluster is one of two nodes on this machine, so the cores are the same for all. Contenders take turns; a ratio is
the median of the rounds' ratios. tianshou's RayVectorEnv and RLlib's env runners are measured where they are installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import numpy as np
import ray
from ray.cluster_utils import Cluster
from readme import write_section
from tables import figure, head, row

import remuda

SHARDS = remuda.Ray(shards=2)
IN_ACTORS = remuda.Ray(shards=2, backend="serial")
STORE = 200 * 1024 * 1024
STEPS = 128


class Sleeper(gymnasium.Env[Any, Any]):
    """A step takes 20 ms, and no core."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        time.sleep(0.02)
        return np.zeros(4, np.float32), 0.0, False, False, {}


class Pictures(Sleeper):
    """A step takes nothing; what it shows has 28 kB."""

    observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    picture = np.zeros((4, 84, 84), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.picture, {}

    def step(self, action: Any) -> Any:
        return self.picture, 0.0, False, False, {}


def cartpole() -> Any:
    return gymnasium.make("CartPole-v1")


def lean(obs: Any) -> Any:
    """The policy of the rollouts: pushes to where the pole leans."""
    return (obs[:, 2] > 0).astype(np.int64)


def left(obs: Any) -> Any:
    return np.zeros(len(obs), np.int64)


# -- what is raced: a function that works for some seconds, and returns env steps a second -----------------

Race = Callable[[float], float]


def stepping(pool: Any, policy: Callable[[Any], Any]) -> Race:
    batch = pool.reset(seed=0)

    def run(seconds: float) -> float:
        nonlocal batch
        steps, begin = 0, time.perf_counter()
        while (passed := time.perf_counter() - begin) < seconds:
            batch = pool.step(policy(batch.obs))
            steps += len(batch)
        return steps / passed

    return run


def collecting(pool: Any, policy: Callable[[Any], Any]) -> Race:
    """The same rollouts on one machine, in whichever way of stepping is the fastest: the policy acts in the caller."""
    pool.reset(seed=0)
    return taking(remuda.collect(pool, policy, steps=STEPS))


def rolling(pool: Any, policy: Callable[[Any], Any]) -> Race:
    return taking(pool.rollouts(policy, steps=STEPS, in_flight=2))


def taking(rollouts: Iterator[Any]) -> Race:
    """Takes one rollout after another."""

    def run(seconds: float) -> float:
        steps, begin = 0, time.perf_counter()
        while (passed := time.perf_counter() - begin) < seconds:
            rollout = next(rollouts)
            steps += rollout.steps * rollout.num_envs
        return steps / passed

    return run


def tianshous(stack: ExitStack, env_fns: list[Any]) -> Race:
    from tianshou.env import RayVectorEnv

    envs = RayVectorEnv(env_fns)
    stack.callback(envs.close)
    envs.reset()

    def run(seconds: float) -> float:
        steps, begin = 0, time.perf_counter()
        while (passed := time.perf_counter() - begin) < seconds:
            _, _, terminated, truncated, _ = envs.step(np.zeros(len(env_fns), np.int64))
            if (over := np.flatnonzero(terminated | truncated)).size:
                envs.reset(over)
            steps += len(env_fns)
        return steps / passed

    return run


def rllibs(stack: ExitStack, num_envs: int) -> Race:
    """RLlib's env runners, two actors with half of the CartPoles each, asked for one more sample while one is taken."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module import RLModuleSpec
    from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
    from ray.rllib.env.env_runner_group import EnvRunnerGroup

    class Lean(TorchRLModule):  # type: ignore[misc]
        def _forward(self, batch: Any, **_: Any) -> Any:
            return {"actions": (batch["obs"][:, 2] > 0).long()}

    config = PPOConfig().environment("CartPole-v1")
    config = config.env_runners(num_env_runners=2, num_envs_per_env_runner=num_envs // 2)
    config = config.rl_module(rl_module_spec=RLModuleSpec(module_class=Lean))
    group = EnvRunnerGroup(config=config, local_env_runner=False, num_env_runners=2)
    stack.callback(group.stop)

    def ask(runners: list[int]) -> None:
        sample = {"num_timesteps": STEPS * num_envs // 2}
        group.foreach_env_runner_async("sample", kwargs=sample, remote_worker_ids=runners)

    for _ in range(2):
        ask([1, 2])

    def run(seconds: float) -> float:
        steps, begin = 0, time.perf_counter()
        while (passed := time.perf_counter() - begin) < seconds:
            for runner, episodes in group.fetch_ready_async_reqs(timeout_seconds=0.1):
                steps += sum(map(len, episodes))
                ask([runner])
        return steps / passed

    return run


# -- the races ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """What was reached.

    Attributes:
        what: The workload.
        ours, other: Env steps a second over Ray, and of whom it is compared with.
        ratio: The median of the rounds'.
        goal: That ratio is to be so much at least; None: it is only told.
    """

    what: str
    other_name: str
    ours: float
    other: float
    ratio: float
    goal: float | None


def races() -> Iterator[tuple[str, str, float | None, Callable[[ExitStack], tuple[Race, Race]]]]:
    """What, against whom, the goal, and how the two are made."""

    def pool(stack: ExitStack, env_fns: list[Any], **options: Any) -> Any:
        return stack.enter_context(remuda.Pool(env_fns, **options))

    many, sleepers, pictures = [cartpole] * 64, [Sleeper] * 8, [Pictures] * 32
    yield (
        f"rollouts of {STEPS} steps, 64 CartPoles",
        "processes",
        0.9,
        lambda s: (rolling(pool(s, many, backend=IN_ACTORS), lean), collecting(pool(s, many, num_workers=2), lean)),
    )
    yield (
        "steps, 64 CartPoles",
        "processes",
        None,
        lambda s: (stepping(pool(s, many, backend=IN_ACTORS), lean), stepping(pool(s, many, num_workers=2), lean)),
    )
    yield (
        "steps of 20 ms, 8 envs",
        "processes",
        0.95,
        lambda s: (
            stepping(pool(s, sleepers, backend=SHARDS, num_workers=None), left),
            stepping(pool(s, sleepers, num_workers=None), left),
        ),
    )
    yield (
        f"rollouts of {STEPS} steps, 32 envs of 28 kB",
        "processes",
        None,
        lambda s: (
            rolling(pool(s, pictures, backend=IN_ACTORS), left),
            collecting(pool(s, pictures, num_workers=2), left),
        ),
    )
    for count in (16, 32) if importlib.util.find_spec("tianshou") is not None else ():
        some = many[:count]
        yield (
            f"steps, {count} CartPoles",
            "tianshou's RayVectorEnv",
            5.0,
            lambda s, some=some: (stepping(pool(s, some, backend=IN_ACTORS), lean), tianshous(s, some)),  # type: ignore[misc]
        )
    if importlib.util.find_spec("tree") is not None:  # of what RLlib needs, the first thing that is missing
        yield (
            f"rollouts of {STEPS} steps, 64 CartPoles",
            "RLlib's env runners",
            None,
            lambda s: (rolling(pool(s, many, backend=IN_ACTORS), lean), rllibs(s, len(many))),
        )


def race(seconds: float, rounds: int, only: str) -> Iterator[Figure]:
    for what, other_name, goal, make in races():
        if only not in f"{what} {other_name}":
            continue
        with ExitStack() as stack:
            ours, other = make(stack)
            ours(seconds / 2), other(seconds / 2)
            turns = [(ours(seconds), other(seconds)) for _ in range(rounds)]
        yield Figure(
            what,
            other_name,
            median(mine for mine, _ in turns),
            median(its for _, its in turns),
            median(mine / its for mine, its in turns),
            goal,
        )


def markdown(figures: list[Figure]) -> Iterator[str]:
    yield from head(["over Ray, two shards", "env steps/s", "against", "env steps/s", "ratio", "goal"])
    for one in figures:
        goal = "" if one.goal is None else f"{one.goal:g}, {'met' if one.ratio >= one.goal else 'missed'}"
        cells = [one.what, f"{one.ours:,.0f}", one.other_name, f"{one.other:,.0f}", figure(one.ratio), goal]
        yield row(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 s a turn, three rounds, instead of 4 s and five")
    parser.add_argument("--only", default="", help="those whose names have this in them: tianshou, '20 ms', ...")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md beside this file")
    options = parser.parse_args()
    os.environ.setdefault("RAY_worker_register_timeout_seconds", "900")  # who starts an actor an env needs minutes
    node = {"num_cpus": 128, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        figures = list[Figure]()
        for one in race(1.0, 3, options.only) if options.quick else race(4.0, 5, options.only):
            figures.append(one)
            print(f"{one.what}, against {one.other_name}: {one.ratio:.2f}", file=sys.stderr, flush=True)
    finally:
        ray.shutdown()
        cluster.shutdown()
    text = "\n".join(markdown(figures))
    print(text)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(one) for one in figures], indent=2) + "\n")
    if options.readme:
        write_section("ray", text)


if __name__ == "__main__":
    main()
