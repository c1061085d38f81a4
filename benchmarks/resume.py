"""Measures what kills change with `faults="resume"`: rows beside an undisturbed twin, wall time, the time to resume.

A pool is stepped with fixed actions twice: undisturbed, and while a random worker is killed every second. Every tenth
worker is stopped instead, so that it misses a deadline of a second. The time to resume lasts from a kill in the middle
of an episode until the next step has returned. Beside it is the time that the steps before the kill had taken, and the
time to resume an episode without steps. The figures are times, not ratios, so the noise rule does not apply.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median

import gymnasium
from harness.options import names, parse_options
from harness.session import Session
from harness.tables import table

from remuda import FaultPolicy, Pool
from remuda._system.machine import describe

POLICY = FaultPolicy("resume", step_timeout=1.0, reset_timeout=1.0, max_restarts=10**6, backoff=0)
HANG_EVERY = 10  # accidents: this one stops a worker, the others kill one
COLUMNS = ["env", "kills, hangs", "rows", "rows different", "ended by faults", "wall time undisturbed", "with faults"]
RESUME_COLUMNS = ["killed at step", "time to resume", "its steps before the kill", "time to resume at step 0"]


@dataclass
class Run:
    """What a run has seen. `rows`: by step, each env's row as bytes. `ended`: the episodes that a fault has ended."""

    rows: list[list[bytes]] = field(default_factory=list)
    seconds: float = 0.0
    accidents: int = 0
    ended: int = 0

    def count(self) -> str:
        hangs = self.accidents // HANG_EVERY
        return f"{self.accidents - hangs}, {hangs}"


def main() -> None:
    options = parse_options(__doc__, json=False, more=add_options)
    logging.getLogger("remuda").setLevel(logging.CRITICAL)  # suppresses the warning about each fault
    lines = [table([*COLUMNS, *RESUME_COLUMNS], (row(env, options) for env in options.envs))]
    lines.append(f"{options.num_envs} envs, one a worker, {options.steps} steps of each, on {describe()}.")
    Session(options).publish("resume", lines)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--envs", type=names, default=["CartPole-v1", "Pendulum-v1"], help="ids of Gymnasium")
    parser.add_argument("--num-envs", type=int, default=8, help="each in a worker of its own")
    parser.add_argument("--steps", type=int, default=100_000, help="of each env")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two faults")
    parser.add_argument("--resumes", type=int, default=20, help="kills whose time to resume is measured")


def row(env: str, options: argparse.Namespace) -> list[str]:
    alone, disturbed = (live(env, options, is_disturbed=is_disturbed) for is_disturbed in (False, True))
    pairs = [pair for rows in zip(alone.rows, disturbed.rows, strict=True) for pair in zip(*rows, strict=True)]
    different = sum(one != other for one, other in pairs)
    cells = [env, disturbed.count(), f"{len(pairs):,}", str(different), str(disturbed.ended)]
    cells += [f"{run.seconds:.1f} s" for run in (alone, disturbed)]
    cells += resume_times(env, options.resumes)
    print(" | ".join(cells), file=sys.stderr, flush=True)
    return cells


def make_pool(env: str, num_envs: int) -> Pool:
    envs = [partial(gymnasium.make, env)] * num_envs
    return Pool(envs, num_workers=None, faults=POLICY, autoreset="same_step", log_advice=False)


def live(env: str, options: argparse.Namespace, *, is_disturbed: bool) -> Run:
    run = Run()
    with make_pool(env, options.num_envs) as pool:
        pool.action_space.seed(0)
        pool.reset(seed=0)
        begin = time.perf_counter()
        with accidents(pool, run, options.every if is_disturbed else threading.TIMEOUT_MAX):
            for _ in range(options.steps):
                batch = pool.step(pool.action_space.sample())
                columns = batch.obs, batch.rewards, batch.terminations, batch.truncations
                run.rows.append([b"".join(column[i].tobytes() for column in columns) for i in range(len(batch.obs))])
                ends = (batch.terminations | batch.truncations).nonzero()[0].tolist()
                run.ended += sum("fault" in batch.infos[i]["final_info"] for i in ends)
        run.seconds = time.perf_counter() - begin
    return run


@contextmanager
def accidents(pool: Pool, run: Run, every: float) -> Iterator[None]:
    """Kills or stops a random worker at intervals."""
    ended, drawn = threading.Event(), random.Random(0)

    def strike() -> None:
        while not ended.wait(every):
            worker, is_hang = drawn.choice(pool.workers), run.accidents % HANG_EVERY == HANG_EVERY - 1
            if worker.pid is not None and worker.is_alive():
                os.kill(worker.pid, signal.SIGSTOP if is_hang else signal.SIGKILL)
                run.accidents += 1

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def resume_times(env: str, resumes: int) -> list[str]:
    """Returns the cells of `RESUME_COLUMNS`: medians over kills in the middle of an episode, and at its begin."""
    with make_pool(env, 1) as pool:
        middles = [play(pool, seed, None)[0] // 2 for seed in range(resumes)]
        played, resumed = zip(*(play(pool, *both)[1:] for both in enumerate(middles)), strict=True)
        first = [play(pool, seed, 0)[2] for seed in range(resumes)]
    times = [f"{1e3 * median(some):.1f} ms" for some in (resumed, played, first)]
    return [str(round(median(middles))), *times]


def play(pool: Pool, seed: int, kill_at: int | None) -> tuple[int, float, float]:
    """Plays an episode to its end or a kill. Returns its steps, their seconds, and those of the step after the kill."""
    pool.action_space.seed(seed)
    pool.reset(seed=seed)
    steps, begin = 0, time.perf_counter()
    while steps != kill_at:
        batch = pool.step(pool.action_space.sample())
        steps += 1
        if batch.terminations[0] or batch.truncations[0]:
            break
    seconds = time.perf_counter() - begin
    return steps, seconds, 0.0 if kill_at is None else step_after_kill(pool)


def step_after_kill(pool: Pool) -> float:
    pid = pool.workers[0].pid
    assert pid is not None
    begin = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    pool.step(pool.action_space.sample())
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
