"""Compares threads with processes as workers, on this Python: steps per second, start-up, and memory of a worker.

Run it with a Python without the GIL (`python3.14t`). With the GIL, threads take turns.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.wrappers import TimeLimit
from harness.envs import FixedEnv, iterations_for
from harness.memory import mean_pss_mb, pss_bytes
from harness.options import parse_options
from harness.session import Session
from harness.tables import Block, table

import remuda
from remuda._system import machine
from remuda._system.cores import usable_cores
from remuda._system.interpreter import has_gil

MICROSECONDS = 75
STARTED = 16
"""The number of workers whose start-up and memory are measured."""


@dataclass(frozen=True)
class Case:
    """Some envs of one kind."""

    name: str
    num_envs: int
    make: Callable[[], gymnasium.Env[Any, Any]]


def cartpole() -> gymnasium.Env[Any, Any]:
    return TimeLimit(CartPoleEnv(), 500)  # `gymnasium.make` imports pygame, which enables the GIL


def python_work(iterations: int) -> gymnasium.Env[Any, Any]:
    return FixedEnv(gymnasium.spaces.Box(-1, 1, (4,), np.float32), iterations)


def cases() -> dict[str, Case]:
    work = partial(python_work, iterations_for(MICROSECONDS * 1e-6))
    found = [
        Case("8 CartPoles", 8, cartpole),
        Case("64 CartPoles", 64, cartpole),
        Case(f"8 envs of {MICROSECONDS} us of Python", 8, work),
        Case("8 HalfCheetahs", 8, partial(gymnasium.make, "HalfCheetah-v5")),
    ]
    return {case.name: case for case in found}


POOLS: dict[str, Any] = {
    "processes": {"backend": "process"},
    "processes, pinned": {"backend": "process", "pin_workers": True},
    "threads": {"backend": "thread"},
    "threads, pinned": {"backend": "thread", "pin_workers": True},
}


def main() -> None:
    all_cases = cases()
    options = parse_options(__doc__, workloads=all_cases, rounds=9, more=add_options)
    session = Session(options)
    chosen = (all_cases[name] for name in options.only)
    found = dict(session.measured(chosen, lambda case: race(case, options.seconds, session)))
    starts = session.rounds("start-up", {name: partial(start, name) for name in ("processes", "threads")})
    session.publish("free_threaded", markdown(found, starts))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=0.5, help="the time of a turn of a contender")


def race(case: Case, seconds: float, session: Session) -> dict[str, list[float]]:
    """Returns the steps per second of a plain loop and of each of `POOLS`, in each round that counts."""
    with ExitStack() as stack:
        turns = {"plain loop": partial(rate, plain_step([case.make() for _ in range(case.num_envs)]), case, seconds)}
        for name, settings in POOLS.items():
            envs = [case.make] * case.num_envs
            pool = stack.enter_context(remuda.Pool(envs, num_workers=usable_cores(), log_advice=False, **settings))
            pool.reset(seed=0)
            actions = pool.action_space.sample()
            turns[name] = partial(rate, partial(pool.step, actions), case, seconds)
        return session.rounds(case.name, turns)


def plain_step(envs: list[gymnasium.Env[Any, Any]]) -> Callable[[], None]:
    """Returns a function that steps all envs once, one after another."""
    actions = [env.action_space.sample() for env in envs]
    for env in envs:
        env.reset(seed=0)

    def step() -> None:
        for env, action in zip(envs, actions, strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return step


def rate(step: Callable[[], object], case: Case, seconds: float) -> float:
    """Calls `step` for some seconds. Returns the steps of single envs per second."""
    steps, begin = 0, time.perf_counter()
    while (passed := time.perf_counter() - begin) < seconds:
        step()
        steps += case.num_envs
    return steps / passed


def start(name: str) -> tuple[float, float]:
    """Starts a pool. Returns the seconds until its first reset has returned, and the memory of a worker in MB."""
    own, begin = pss_bytes(os.getpid()) or 0, time.perf_counter()
    with remuda.Pool([cartpole] * STARTED, num_workers=STARTED, log_advice=False, **POOLS[name]) as pool:
        pool.reset(seed=0)
        seconds = time.perf_counter() - begin
        if name == "processes":
            return seconds, mean_pss_mb(pool.apply(worker_pid)) or 0.0
        return seconds, ((pss_bytes(os.getpid()) or 0) - own) / STARTED / 2**20


def worker_pid(env: object) -> int:
    return os.getpid()


def markdown(
    found: dict[Case, dict[str, list[float]]], starts: dict[str, list[tuple[float, float]]]
) -> Iterator[Block]:
    yield table(["", "plain loop", *POOLS], (row(case, rates) for case, rates in found.items()))
    columns = [f"{STARTED} workers with a CartPole each", "start-up", "memory of a worker"]
    yield table(columns, (start_row(*item) for item in starts.items()))
    gil = "with the GIL" if has_gil() else "without the GIL"
    yield f"{machine.describe()}, {gil}; {usable_cores()} cores and as many workers. Medians of the rounds."


def row(case: Case, rates: dict[str, list[float]]) -> list[str]:
    plain = rates["plain loop"]
    ratios = [median(a / b for a, b in zip(rates[name], plain, strict=True)) for name in POOLS]
    return [case.name, f"{median(plain):,.0f} steps/s", *(f"{ratio:.2f} x" for ratio in ratios)]


def start_row(name: str, some: list[tuple[float, float]]) -> list[str]:
    seconds, size = (median(column) for column in zip(*some, strict=True))
    return [name, f"{seconds:.2f} s", f"{size:.1f} MB"]


if __name__ == "__main__":
    main()
