"""Compares vector envs for PettingZoo on simple_spread: the CPU time of an env step, in all processes, and the speed.

The contenders live in an environment of their own. Install remuda there, too:

    pip install torch==2.13.0 agilerl==2.58.0 supersuit==3.11.0 mpe2==1.1.1 psutil rich
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any, TypeAlias

import numpy as np
import psutil
from harness.options import parse_options
from harness.session import Session
from harness.tables import conditions, table, verdict
from mpe2 import simple_spread_v3

import remuda

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of outdated packages
    import supersuit
    from agilerl.vector.pz_async_vec_env import AsyncPettingZooVecEnv

SIZES = {"8": 1 / 1.6, "32": 1 / 1.9}  # the number of envs, and our goal: CPU of a step as a share of AgileRL's
AGENTS = 3

Step: TypeAlias = Callable[[], object]
Turn: TypeAlias = tuple[float, float]
"""Env steps per second, and microseconds of CPU for an env step."""


def on_remuda(num_envs: int, stack: ExitStack) -> Step:
    envs = stack.enter_context(remuda.pettingzoo.vector([simple_spread_v3.parallel_env] * num_envs, num_workers=2))
    envs.reset(seed=0)
    return partial(envs.step, _actions(num_envs))


def on_agilerl(num_envs: int, stack: ExitStack) -> Step:
    envs = AsyncPettingZooVecEnv([simple_spread_v3.parallel_env] * num_envs)
    stack.callback(envs.close)
    envs.reset(seed=0)
    return partial(envs.step, _actions(num_envs))


def on_supersuit(num_envs: int, stack: ExitStack) -> Step:
    one = supersuit.pettingzoo_env_to_vec_env_v1(simple_spread_v3.parallel_env())
    envs = supersuit.concat_vec_envs_v1(one, num_envs, num_cpus=2, base_class="gymnasium")
    stack.callback(envs.close)
    envs.reset(seed=0)
    return partial(envs.step, np.zeros(num_envs * AGENTS, np.int64))


def in_a_loop(num_envs: int, stack: ExitStack) -> Step:
    envs = [simple_spread_v3.parallel_env() for _ in range(num_envs)]
    for i, env in enumerate(envs):
        env.reset(seed=i)

    def step() -> None:
        for env in envs:
            env.step(dict.fromkeys(env.agents, 0)) if env.agents else env.reset()

    return step


CONTENDERS = {"a loop": in_a_loop, "remuda": on_remuda, "AgileRL": on_agilerl, "SuperSuit": on_supersuit}


def _actions(num_envs: int) -> dict[str, Any]:
    return {f"agent_{i}": np.zeros(num_envs, np.int64) for i in range(AGENTS)}


def main() -> None:
    options = parse_options(__doc__, workloads=SIZES, seconds=10.0, quick=2.0, rounds=5)
    session = Session(options)
    found = list(session.measured(options.only, lambda size: measure(int(size), session)))
    shares = ["goal", "remuda : AgileRL", ""]
    columns = ["envs", *shares, *(f"us of CPU, {name}" for name in CONTENDERS), *(f"steps/s, {n}" for n in CONTENDERS)]
    lines = [table(columns, (row(size, turns) for size, turns in found))]
    lines.append(f"{conditions(options.rounds, options.seconds)} Remuda and SuperSuit have two workers.")
    session.publish("multi_agent", lines, ({"envs": size, "turns": turns} for size, turns in found))


def measure(num_envs: int, session: Session) -> dict[str, list[Turn]]:
    with ExitStack() as stack:
        turns = {}
        for name, build in CONTENDERS.items():
            step = build(num_envs, stack)
            step()  # workers of some are started by it
            turns[name] = partial(take_turn, step, num_envs, session.options.seconds / session.options.rounds)
        return session.rounds(f"{num_envs} envs", turns)


def take_turn(step: Step, num_envs: int, seconds: float) -> Turn:
    steps, cpu, begin = 0, _cpu_seconds(), time.perf_counter()
    while time.perf_counter() < begin + seconds:
        step()
        steps += num_envs
    elapsed = time.perf_counter() - begin
    return steps / elapsed, 1e6 * (_cpu_seconds() - cpu) / steps


def _cpu_seconds() -> float:
    """Returns the CPU time of this process and its descendants. Workers of other contenders sleep meanwhile."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def row(size: str, turns: dict[str, list[Turn]]) -> list[str]:
    pairs = zip(turns["remuda"], turns["AgileRL"], strict=True)
    share, goal = median(ours / theirs for (_, ours), (_, theirs) in pairs), SIZES[size]
    cpu = [f"{median(cpu for _, cpu in each):,.0f}" for each in turns.values()]
    rates = [f"{median(rate for rate, _ in each):,.0f}" for each in turns.values()]
    return [size, f"<= {goal:.2f}", f"{share:.2f}", verdict(share, goal), *cpu, *rates]


if __name__ == "__main__":
    main()
