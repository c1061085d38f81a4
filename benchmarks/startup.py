"""Start-up time and memory of many workers, one env each: remuda and Gymnasium, for every start method.

Every figure comes from a process of its own, so that no contender profits from what another has loaded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from peers import PEERS
from script import publish

from remuda._bench import registry, workloads
from remuda._bench.contenders import Plan
from remuda._bench.rounds import Runner
from remuda._system import machine

CONTENDERS = ("remuda-per-env", "gymnasium")
START_METHODS = ("fork", "forkserver", "spawn")
WARM_UP_SECONDS = 0.2


@dataclass(frozen=True)
class Sample:
    """One start: from the constructor's call until the first reset returned, and the mean PSS of a worker."""

    contender: str
    start_method: str
    startup_seconds: float
    worker_mb: float


def main() -> None:
    options = parse_options()
    if options.contender:
        print(json.dumps(asdict(measure_here(options))))
        return
    samples = list(measure_all(options))
    publish("startup", markdown(samples, options), map(asdict, samples), options)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write every sample here")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md beside this file")
    parser.add_argument("--contender", choices=CONTENDERS, help="measure this one, in this process, once")
    parser.add_argument("--start-method", choices=START_METHODS, default="fork", help="with --contender")
    return parser.parse_args()


def measure_here(options: argparse.Namespace) -> Sample:
    """Start one contender in this process, step it a little, and weigh its workers."""
    workload = workloads.resolve(options.env)
    plan = Plan(workload, options.num_envs, options.num_envs, start_method=options.start_method)
    runner = Runner(registry.find(options.contender, PEERS), plan, time.perf_counter)
    actions = workloads.sample_actions(workloads.probe_spaces(workload).action_space, options.num_envs, 16, seed=0)
    try:
        runner.build(actions)
        runner.warm_up(WARM_UP_SECONDS)
    finally:
        runner.close()
    entry = runner.entry
    if entry.startup_seconds is None or entry.worker_mb is None:
        sys.exit(f"{options.contender}, {options.start_method}: {entry.error}")
    return Sample(options.contender, options.start_method, entry.startup_seconds, entry.worker_mb)


def measure_all(options: argparse.Namespace) -> Iterator[Sample]:
    """Interleaved: each round starts every contender with every start method once."""
    for round_number in range(1, options.rounds + 1):
        print(f"round {round_number} of {options.rounds} ...", file=sys.stderr, flush=True)
        for start_method in START_METHODS:
            for contender in CONTENDERS:
                yield measure_apart(contender, start_method, options)


def measure_apart(contender: str, start_method: str, options: argparse.Namespace) -> Sample:
    command = [sys.executable, __file__, "--env", options.env, "--num-envs", str(options.num_envs)]
    command += ["--contender", contender, "--start-method", start_method]
    child = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if child.returncode:
        sys.exit(f"{contender}, {start_method}: gave up with exit status {child.returncode}")
    return Sample(**json.loads(child.stdout))


def markdown(samples: list[Sample], options: argparse.Namespace) -> Iterator[str]:
    yield "| start method | contender | start-up | PSS a worker | |"
    yield "| --- | --- | --- | --- | --- |"
    for start_method in START_METHODS:
        ours, theirs = (typical(samples, contender, start_method) for contender in CONTENDERS)
        for sample in (ours, theirs):
            figures = f"{sample.startup_seconds:.2f} s | {sample.worker_mb:.1f} MB"
            remark = verdict(ours, theirs) if sample is ours else ""
            yield f"| {start_method} | {sample.contender} | {figures} | {remark} |"
    yield ""
    yield f"{options.num_envs} x {options.env}, {options.rounds} rounds (medians) on {machine.describe()}."


def typical(samples: list[Sample], contender: str, start_method: str) -> Sample:
    """The medians of a contender's samples."""
    mine = [s for s in samples if (s.contender, s.start_method) == (contender, start_method)]
    seconds, size = median(s.startup_seconds for s in mine), median(s.worker_mb for s in mine)
    return Sample(contender, start_method, seconds, size)


def verdict(ours: Sample, theirs: Sample) -> str:
    """What the goal says: no slower, and no larger."""
    shortfalls = []
    if ours.startup_seconds > theirs.startup_seconds:
        shortfalls.append("slower")
    if ours.worker_mb > theirs.worker_mb:
        shortfalls.append("larger")
    return f"**falls short: {' and '.join(shortfalls)}**" if shortfalls else "pass"


if __name__ == "__main__":
    main()
