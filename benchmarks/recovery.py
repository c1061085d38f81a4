"""Measures the time from a worker's SIGKILL until its env steps again, for every start method.

The env (CartPole) is built quickly, so the time is remuda's: remuda detects the death, reports the episode's end, and
starts a successor. All other envs step on meanwhile. The figures are times, not ratios, so the noise rule does not
apply.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import gymnasium
import numpy as np
from harness.options import parse_options
from harness.session import Session
from harness.tables import table

from remuda import Fault, FaultPolicy, Pool
from remuda._system.machine import describe

START_METHODS = ("forkserver", "fork", "spawn")


@dataclass(frozen=True)
class Recovery:
    """The seconds from a kill until the episode's end was reported, and until the env had made a step again.

    `reported` is None if the env was between two episodes.
    """

    reported: float | None
    stepping: float


def make_env() -> Any:
    return gymnasium.make("CartPole-v1")


def main() -> None:
    options = parse_options(__doc__, json=False, more=add_options)
    logging.getLogger("remuda").setLevel(logging.ERROR)  # suppresses the warning about each kill
    columns = ["start method", "until told: median", "p99", "until it steps again: median", "p99"]
    lines = [table(columns, (row(method, options) for method in START_METHODS))]
    lines.append(f"{options.kills} kills among {options.num_envs} x CartPole-v1, one env a worker, on {describe()}.")
    Session(options).publish("recovery", lines)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--num-envs", type=int, default=8, help="each in a worker of its own")
    parser.add_argument("--kills", type=int, default=200, help="for each start method")


def row(start_method: str, options: argparse.Namespace) -> list[str]:
    print(f"{start_method} ...", file=sys.stderr, flush=True)
    samples = list(measure(start_method, options.num_envs, options.kills))
    reported, stepping = [s.reported for s in samples if s.reported is not None], [s.stepping for s in samples]
    return [start_method, *(f"{1e3 * time:.1f} ms" for some in (reported, stepping) for time in typical(some))]


def typical(seconds: list[float]) -> tuple[float, float]:
    """Returns the median and the 99th percentile of some durations."""
    return median(seconds), quantiles(seconds, n=100, method="inclusive")[98] if len(seconds) > 1 else seconds[0]


def measure(start_method: str, num_envs: int, kills: int) -> Iterator[Recovery]:
    faults = FaultPolicy("restart", max_restarts=kills, backoff=0)
    with Pool([make_env] * num_envs, start_method=start_method, faults=faults, log_advice=False) as pool:
        pool.reset(seed=0)
        for number in range(kills):
            yield recover(pool, number % num_envs)


def recover(pool: Pool, victim: int) -> Recovery:
    """Kills a worker, and waits for three results of its env: the episode's end, the new env's reset, and a step."""
    pid = pool.workers[victim].pid
    assert pid is not None
    actions = np.zeros(pool.num_envs, np.int64)
    reported = stepping = None
    begin = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    pool.send(actions)
    is_back = False
    while stepping is None:
        batch = pool.recv(min_envs=1)
        if (row := np.flatnonzero(batch.env_ids == victim)).size:
            now = time.perf_counter() - begin
            if isinstance(batch.infos[row[0]].get("fault"), Fault):
                reported = now
            elif is_back:
                stepping = now
            else:
                is_back = True  # The result is the reset of the new env.
        pool.send(actions[batch.env_ids], env_ids=batch.env_ids)  # All envs keep stepping.
    pool.discard()
    return Recovery(reported, stepping)


if __name__ == "__main__":
    main()
