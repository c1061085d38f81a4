"""From the SIGKILL of a worker until its env steps again, for every start method.

The env (CartPole) builds at once, so what is measured is remuda: noticing the death, telling of the episode's end, and
starting a successor. All other envs step on meanwhile.
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
from script import publish_lines

from remuda import FaultPolicy, Pool
from remuda._system import machine

START_METHODS = ("forkserver", "fork", "spawn")


@dataclass(frozen=True)
class Recovery:
    """Seconds from the kill until its episode was told to have ended (None: it was between two), and until the env had
    made a step again."""

    told: float | None
    stepping: float


def make_env() -> Any:
    return gymnasium.make("CartPole-v1")


def main() -> None:
    options = parse_options()
    logging.getLogger("remuda").setLevel(logging.ERROR)  # it would tell of every kill
    publish_lines("recovery", markdown(options), options)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=8, help="each in a worker of its own")
    parser.add_argument("--kills", type=int, default=200, help="for each start method")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md beside this file")
    return parser.parse_args()


def markdown(options: argparse.Namespace) -> Iterator[str]:
    yield "| start method | until told: median | p99 | until it steps again: median | p99 |"
    yield "| --- | --- | --- | --- | --- |"
    for start_method in START_METHODS:
        print(f"{start_method} ...", file=sys.stderr, flush=True)
        samples = list(measure(start_method, options.num_envs, options.kills))
        figures = [typical([s.told for s in samples if s.told is not None]), typical([s.stepping for s in samples])]
        yield f"| {start_method} | " + " | ".join(f"{m * 1e3:.1f} ms | {p * 1e3:.1f} ms" for m, p in figures) + " |"
    yield ""
    yield f"{options.kills} kills among {options.num_envs} x CartPole-v1, one env a worker, on {machine.describe()}."


def typical(seconds: list[float]) -> tuple[float, float]:
    """Median and 99th percentile."""
    return median(seconds), quantiles(seconds, n=100, method="inclusive")[98] if len(seconds) > 1 else seconds[0]


def measure(start_method: str, num_envs: int, kills: int) -> Iterator[Recovery]:
    faults = FaultPolicy("restart", max_restarts=kills, backoff=0)
    with Pool([make_env] * num_envs, start_method=start_method, faults=faults, advise=False) as pool:
        pool.reset(seed=0)
        for number in range(kills):
            yield recover(pool, number % num_envs)


def recover(pool: Pool, victim: int) -> Recovery:
    """With next-step autoreset the end of its episode comes first, then the fresh env's reset, then its first step."""
    pid = pool.workers[victim].pid
    assert pid is not None
    actions = np.zeros(pool.num_envs, np.int64)
    told = stepping = None
    begin = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    pool.send(actions)
    is_back = False
    while stepping is None:
        batch = pool.recv(min_envs=1)
        if (row := np.flatnonzero(batch.env_ids == victim)).size:
            now = time.perf_counter() - begin
            if "fault" in batch.infos[row[0]]:
                told = now
            elif is_back:
                stepping = now
            else:
                is_back = True  # it has reset
        pool.send(actions[batch.env_ids], env_ids=batch.env_ids)  # nobody waits for the other
    pool.discard()
    return Recovery(told, stepping)


if __name__ == "__main__":
    main()
