"""Measures the start-up time and memory of 64 workers with one env each, for remuda, Gymnasium and every start method.

Each figure comes from a separate process, so that no contender profits from modules that another has loaded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median

from harness.memory import mean_pss_mb
from harness.options import parse_options
from harness.session import Session
from harness.tables import Block, table
from peers import PEERS

from remuda._bench import workloads
from remuda._bench.contenders import Plan, find
from remuda._bench.workloads import probe_spaces, sample_actions
from remuda._system import machine

CONTENDERS = ("remuda-1-per-env", "gymnasium")
START_METHODS = ("fork", "forkserver", "spawn")
STEPS = 100
"""The number of batches before the measurement of memory."""


@dataclass(frozen=True)
class Sample:
    """The figures of starting a contender once.

    Attributes:
        startup_seconds: From the constructor's call until the first reset returned.
        worker_mb: The mean PSS (proportional set size) of a worker.
    """

    contender: str
    start_method: str
    startup_seconds: float
    worker_mb: float


def main() -> None:
    options = parse_options(__doc__, rounds=5, more=add_options)
    if options.contender:
        print(json.dumps(asdict(measure_here(options))))
        return
    session = Session(options)
    turns = {
        f"{contender}, {start_method}": partial(measure_apart, contender, start_method, options)
        for start_method in START_METHODS
        for contender in CONTENDERS
    }
    found = [figures for _, figures in session.measured([turns], partial(session.rounds, "start-up"))]
    samples = [sample for figures in found for some in figures.values() for sample in some]
    session.publish("startup", markdown(samples, options) if samples else [], map(asdict, samples))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--contender", choices=CONTENDERS, help="measure this one, in this process, once")
    parser.add_argument("--start-method", choices=START_METHODS, default="fork", help="with --contender")


def measure_here(options: argparse.Namespace) -> Sample:
    """Starts one contender in this process, steps it a little, and measures its workers' memory."""
    plan = Plan(workloads.resolve(options.env), options.num_envs, options.num_envs, start_method=options.start_method)
    kind = find(options.contender, PEERS)
    kind.load()
    (actions,) = sample_actions(probe_spaces(plan.workload).action_space, plan.num_envs, 1, plan.seed).batches
    begin = time.perf_counter()
    with closing(kind(plan)) as contender:
        contender.reset(plan.seed)
        startup_seconds = time.perf_counter() - begin
        for _ in range(STEPS):
            contender.step(actions)
        memory = mean_pss_mb(contender.worker_pids())
    if memory is None:
        sys.exit(f"{options.contender}, {options.start_method}: expected workers with a memory size in /proc, got none")
    return Sample(options.contender, options.start_method, startup_seconds, memory)


def measure_apart(contender: str, start_method: str, options: argparse.Namespace) -> Sample:
    command = [sys.executable, __file__, "--env", options.env, "--num-envs", str(options.num_envs)]
    command += ["--contender", contender, "--start-method", start_method]
    child = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if child.returncode:
        sys.exit(f"{contender}, {start_method}: gave up with exit status {child.returncode}")
    return Sample(**json.loads(child.stdout))


def markdown(samples: list[Sample], options: argparse.Namespace) -> Iterator[Block]:
    columns = ["start method", "contender", "start-up", "PSS a worker", ""]
    yield table(columns, (row for start_method in START_METHODS for row in rows(samples, start_method)))
    yield f"{options.num_envs} x {options.env}, {options.rounds} rounds (medians) on {machine.describe()}."


def rows(samples: list[Sample], start_method: str) -> Iterator[list[str]]:
    ours, other = (typical(samples, contender, start_method) for contender in CONTENDERS)
    for sample, remark in ((ours, verdict(ours, other)), (other, "")):
        figures = [f"{sample.startup_seconds:.2f} s", f"{sample.worker_mb:.1f} MB"]
        yield [start_method, sample.contender, *figures, remark]


def typical(samples: list[Sample], contender: str, start_method: str) -> Sample:
    """Returns the medians of a contender's samples with one start method."""
    some = [one for one in samples if (one.contender, one.start_method) == (contender, start_method)]
    seconds, size = median(one.startup_seconds for one in some), median(one.worker_mb for one in some)
    return Sample(contender, start_method, seconds, size)


def verdict(ours: Sample, other: Sample) -> str:
    """Returns "pass" if remuda starts as fast as the other contender in as little memory; else names the shortfalls."""
    shortfalls = []
    if ours.startup_seconds > other.startup_seconds:
        shortfalls.append("slower")
    if ours.worker_mb > other.worker_mb:
        shortfalls.append("larger")
    return f"**falls short: {' and '.join(shortfalls)}**" if shortfalls else "pass"


if __name__ == "__main__":
    main()
