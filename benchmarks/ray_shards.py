"""What a Ray cluster costs: rollouts, steps and bytes over two shards on this machine, beside the process backend.

    python benchmarks/ray_shards.py            some minutes; --quick: one
    python benchmarks/ray_shards.py --readme   puts the table into README.md beside this file

The cluster is one of two nodes on this machine, so the cores are the same for all. Contenders take turns; a ratio is
the median of the rounds' ratios. Beside steps that take 20 ms stand two bare actors that take as long and return what
they are sent: what is missing there is Ray's. tianshou's RayVectorEnv and RLlib's env runners are raced where they are
installed. With `--json FILE` figures of earlier runs stay: the machine may be quiet for one race at a time.
"""

from __future__ import annotations

import argparse
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
from ray_peers import Race, bare_actors, burn, missing, rllibs, tianshous
from script import publish
from tables import figure, head, row

import remuda

SHARDS = remuda.Ray(shards=2)
IN_ACTORS = remuda.Ray(shards=2, backend="serial")
STORE = 200 * 1024 * 1024
STEPS = 128
PAUSE = 0.02  # seconds of a slow step


class Sleeper(gymnasium.Env[Any, Any]):
    """A step takes 20 ms, and no core."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        self.work()
        return np.zeros(4, np.float32), 0.0, False, False, {}

    def work(self) -> None:
        time.sleep(PAUSE)


class Computer(Sleeper):
    """A step takes 20 ms of a core."""

    def work(self) -> None:
        burn(PAUSE)


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


# -- what is raced -----------------------------------------------------------------------------------------


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
    rollouts = remuda.collect(pool, policy, steps=STEPS)
    return lambda seconds: take(rollouts, seconds)


def rolling(pool: Any, policy: Callable[[Any], Any]) -> Race:
    """Shards fill the next ones while one is taken; they rest in the other's turn, and start even."""
    in_flight = 2
    rollouts = pool.rollouts(policy, steps=STEPS, in_flight=in_flight)

    def run(seconds: float) -> float:
        for _ in range(in_flight * pool.backend.shards):  # those that were filled since the last turn
            next(rollouts)
        rate = take(rollouts, seconds)
        pool.stats()  # shards answer when they have filled what they were asked for
        return rate

    return run


def take(rollouts: Iterator[Any], seconds: float) -> float:
    """Takes one rollout after another; env steps a second."""
    steps, begin = 0, time.perf_counter()
    while (passed := time.perf_counter() - begin) < seconds:
        rollout = next(rollouts)
        steps += rollout.steps * rollout.num_envs
    return steps / passed


# -- the races ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pairing:
    """Who is raced with whom.

    Attributes:
        what: The workload.
        other_name: Who we are compared with.
        goal: Our rate is to be so many times the other's at least; None: it is only told.
        make: Makes us, the other, and bare actors where it is to be told what these reach.
    """

    what: str
    other_name: str
    goal: float | None
    make: Callable[[ExitStack], tuple[Race, ...]]


@dataclass(frozen=True)
class Figure:
    """What was reached.

    Attributes:
        what: The workload.
        other_name: Who we are compared with.
        ours, other: Env steps a second over Ray, and of whom it is compared with.
        ratio: The median of the rounds'.
        goal: That ratio is to be so much at least; None: it is only told.
        bare: What two bare actors reach of the other's rate; None: not raced.
        load: The machine's load average before, which the contenders themselves are no part of.
    """

    what: str
    other_name: str
    ours: float
    other: float
    ratio: float
    goal: float | None
    bare: float | None = None
    load: float | None = None


def make_pool(stack: ExitStack, env_fns: list[Any], **options: Any) -> Any:
    return stack.enter_context(remuda.Pool(env_fns, **options))


def pairings() -> Iterator[Pairing]:
    yield from with_cheap_envs()
    yield with_slow_envs("steps of 20 ms, 8 envs", Sleeper, "sleep", PAUSE)
    yield with_slow_envs("steps that compute for 20 ms, 8 envs", Computer, "compute", 4 * PAUSE)
    yield from with_peers()


def with_cheap_envs() -> Iterator[Pairing]:
    many, pictures = [cartpole] * 64, [Pictures] * 32
    yield Pairing(
        f"rollouts of {STEPS} steps, 64 CartPoles",
        "processes",
        0.9,
        lambda stack: (
            rolling(make_pool(stack, many, backend=IN_ACTORS), lean),
            collecting(make_pool(stack, many, num_workers=2), lean),
        ),
    )
    yield Pairing(
        "steps, 64 CartPoles",
        "processes",
        None,
        lambda stack: (
            stepping(make_pool(stack, many, backend=IN_ACTORS), lean),
            stepping(make_pool(stack, many, num_workers=2), lean),
        ),
    )
    yield Pairing(
        f"rollouts of {STEPS} steps, 32 envs of 28 kB",
        "processes",
        None,
        lambda stack: (
            rolling(make_pool(stack, pictures, backend=IN_ACTORS), left),
            collecting(make_pool(stack, pictures, num_workers=2), left),
        ),
    )


def with_slow_envs(what: str, env_fn: Any, method: str, seconds: float) -> Pairing:
    """A worker for each env. `method`, `seconds`: what a bare actor does meanwhile, and how long."""
    env_fns = [env_fn] * 8
    return Pairing(
        what,
        "processes",
        0.95,
        lambda stack: (
            stepping(make_pool(stack, env_fns, backend=SHARDS, num_workers=None), left),
            stepping(make_pool(stack, env_fns, num_workers=None), left),
            bare_actors(stack, method, seconds, len(env_fns)),
        ),
    )


def with_peers() -> Iterator[Pairing]:
    for count in (16, 64):
        some = [cartpole] * count
        yield Pairing(
            f"steps, {count} CartPoles",
            "tianshou's RayVectorEnv",
            5.0,
            lambda stack, some=some: (  # type: ignore[misc]
                stepping(make_pool(stack, some, backend=IN_ACTORS), lean),
                tianshous(stack, some),
            ),
        )
    yield Pairing(
        f"rollouts of {STEPS} steps, 64 CartPoles",
        "RLlib's env runners",
        None,
        lambda stack: (
            rolling(make_pool(stack, [cartpole] * 64, backend=IN_ACTORS), lean),
            rllibs(stack, 64, STEPS),
        ),
    )


def race(pairing: Pairing, seconds: float, rounds: int) -> Figure:
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        contenders = pairing.make(stack)
        for contender in contenders:
            contender(seconds / 2)
        turns = [[contender(seconds) for contender in contenders] for _ in range(rounds)]
    return Figure(
        pairing.what,
        pairing.other_name,
        median(turn[0] for turn in turns),
        median(turn[1] for turn in turns),
        median(turn[0] / turn[1] for turn in turns),
        pairing.goal,
        median(turn[2] / turn[1] for turn in turns) if len(contenders) > 2 else None,
        load,
    )


# -- what is told ---------------------------------------------------------------------------------------------


def markdown(figures: list[Figure]) -> Iterator[str]:
    columns = ["over Ray, two shards", "env steps/s", "against", "env steps/s", "ratio", "goal", "bare actors", "load"]
    yield from head(columns)
    for one in figures:
        goal = "" if one.goal is None else f"{one.goal:g}, {'met' if one.ratio >= one.goal else 'missed'}"
        cells = [one.what, f"{one.ours:,.0f}", one.other_name, f"{one.other:,.0f}", figure(one.ratio), goal]
        yield row([*cells, figure(one.bare), figure(one.load)])


def kept(path: Path | None) -> dict[tuple[str, str], Figure]:
    """What earlier runs have measured."""
    if path is None or not path.exists():
        return {}
    figures = [Figure(**one) for one in json.loads(path.read_text())]
    return {(one.what, one.other_name): one for one in figures}


def measure(figures: dict[tuple[str, str], Figure], options: argparse.Namespace) -> None:
    """Adds what is measured to these."""
    seconds, rounds = (1.0, 3) if options.quick else (4.0, 5)
    absent = missing()
    for pairing in pairings():
        if options.only not in f"{pairing.what} {pairing.other_name}":
            continue
        if pairing.other_name in absent:
            print(f"{pairing.what}: skipped, {pairing.other_name} are not installed", file=sys.stderr, flush=True)
            continue
        one = figures[pairing.what, pairing.other_name] = race(pairing, seconds, rounds)
        beside = "" if one.bare is None else f" (bare actors {one.bare:.3f})"
        print(
            f"{one.what}, against {one.other_name}: {one.ratio:.3f}{beside}, at a load of {one.load:.1f}",
            file=sys.stderr,
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 s a turn, three rounds, instead of 4 s and five")
    parser.add_argument("--only", default="", help="those whose names have this in them: tianshou, '20 ms', ...")
    parser.add_argument("--json", type=Path, help="the figures are kept here; those of earlier runs stay")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md beside this file")
    options = parser.parse_args()
    os.environ.setdefault("RAY_worker_register_timeout_seconds", "900")  # who starts an actor an env needs minutes
    node = {"num_cpus": 128, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    figures = kept(options.json)
    try:
        cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        measure(figures, options)
    finally:
        ray.shutdown()
        cluster.shutdown()
    order = [(pairing.what, pairing.other_name) for pairing in pairings()]
    told = [figures[one] for one in order if one in figures]
    publish("ray", markdown(told), map(asdict, told), options)


if __name__ == "__main__":
    main()
