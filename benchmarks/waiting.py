"""What a step costs beside a learner that thinks: by how long it thinks, how, and what else is on the machine.

A step of some CartPoles, then a thought, again and again: one that is a fixed amount of work on a core, or one that is
elsewhere (a sleep, as with a GPU). What a step and a thought take together, less what the thought takes alone, is to be
little more than a step without a thought takes: on a machine that has nothing else to do, and beside others that keep a
core busy each. It depends on who spins while waiting, so the same is measured with other rules than ours. All of it
takes about eleven minutes; ``--quick`` less than three.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from unittest import mock

import envs
import numpy as np
from script import names, publish
from tables import figure, head, row, verdict

import remuda
from remuda._engine.startup import start
from remuda._system import machine
from remuda._system.cores import usable_cores
from remuda._wire.layout import Spinning

AT_MOST = 1.3  # times the step without a thought
PLACES = ("core", "elsewhere")
SECONDS, QUICK_SECONDS = 4.0, 0.9  # of a contender in a cell, all rounds together

# Rules that a pool of ours can be given instead of its own.
RULES: dict[str, Spinning | None] = {
    "remuda": None,
    "all spin": Spinning(worker_ns=1_000_000, heedless=True),
    "none spins": Spinning(),
}


@dataclass(frozen=True)
class Case:
    """What is measured: how many envs, beside which thoughts, beside how many busy processes."""

    num_envs: int
    place: str
    think_us: int
    busy: int

    @property
    def without_thought(self) -> Case:
        return Case(self.num_envs, PLACES[0], 0, self.busy)


@dataclass
class Cost:
    """What came of it: microseconds a step by rule, the thought taken off, in each round."""

    case: Case
    thought_us: list[float] = field(default_factory=list)
    step_us: dict[str, list[float]] = field(default_factory=lambda: {rule: [] for rule in RULES})

    def median(self, rule: str) -> float:
        return median(self.step_us[rule])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", dest="seconds", action="store_const", const=QUICK_SECONDS, default=SECONDS)
    parser.add_argument("--envs", type=_numbers, default=[8, 64], help="how many at once (default: 8,64)")
    parser.add_argument("--think", type=_numbers, default=[50, 100, 300, 1000], help="us (default: 50,100,300,1000)")
    parser.add_argument("--places", type=names, default=list(PLACES), help="where thoughts are (default: both)")
    parser.add_argument("--busy", type=_numbers, default=[0, 1], help="processes that keep a core busy (default: 0,1)")
    parser.add_argument("--workers", type=int, default=usable_cores(), help="default: as many as cores")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--json", type=Path, help="write every round's figures here")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md beside this file")
    options = parser.parse_args()
    if unknown := [place for place in options.places if place not in PLACES]:
        parser.error(f"expected --places to name {', '.join(PLACES)}, got {', '.join(unknown)}")
    return options


def _numbers(text: str) -> list[int]:
    return [int(number) for number in names(text)]


def main() -> None:
    options = parse()
    iterations_per_us = envs.iterations_for(1e-3) / 1000
    costs = []
    for num_envs in options.envs:
        with pools(num_envs, options.workers) as contenders:
            for busy in options.busy:
                with busy_processes(busy):
                    for case in cases(num_envs, busy, options):
                        print(f"{case} ...", file=sys.stderr, flush=True)
                        think = thought(case, iterations_per_us)
                        costs.append(measure(case, contenders, think, options.rounds, options.seconds))
    publish("waiting", markdown(costs, options), (asdict(cost) for cost in costs), options)


def cases(num_envs: int, busy: int, options: argparse.Namespace) -> Iterator[Case]:
    yield Case(num_envs, PLACES[0], 0, busy)
    for place in options.places:
        for think_us in options.think:
            yield Case(num_envs, place, think_us, busy)


@contextmanager
def pools(num_envs: int, num_workers: int) -> Iterator[dict[str, Callable[[], object]]]:
    """A step of a pool for each rule."""
    steps: dict[str, Callable[[], object]] = {}
    actions = np.zeros(num_envs, dtype=np.int64)
    make_env = envs.workloads(["cartpole"])["cartpole"].make_env
    with ExitStack() as stack:
        for rule, spinning in RULES.items():
            with spinning_as(spinning):
                pool = remuda.Pool([make_env] * num_envs, num_workers=min(num_workers, num_envs), advise=False)
            stack.callback(pool.close)
            pool.reset(seed=0)
            steps[rule] = lambda pool=pool: pool.step(actions)  # type: ignore[misc]
        yield steps


@contextmanager
def spinning_as(rule: Spinning | None) -> Iterator[None]:
    """Pools that are started meanwhile have this rule; None: their own."""
    if rule is None:
        yield
    else:
        with mock.patch.object(start, "spinning_for", return_value=rule):
            yield


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many others keep a core busy each."""
    busy = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def thought(case: Case, iterations_per_us: float) -> Callable[[], object]:
    if case.place == "elsewhere":
        return lambda: time.sleep(case.think_us * 1e-6)
    iterations = round(case.think_us * iterations_per_us)
    return lambda: envs.work(iterations)


def measure(
    case: Case, contenders: dict[str, Callable[[], object]], think: Callable[[], object], rounds: int, seconds: float
) -> Cost:
    """All contenders in turns, and the thought alone."""
    cost, turn = Cost(case), seconds / rounds
    for _ in range(rounds):
        alone = mean_seconds(lambda: None, think, turn / 2)
        cost.thought_us.append(alone * 1e6)
        for rule, step in contenders.items():
            cost.step_us[rule].append((mean_seconds(step, think, turn) - alone) * 1e6)
    return cost


def mean_seconds(step: Callable[[], object], think: Callable[[], object], seconds: float) -> float:
    """Of a step and a thought. A quarter of the time is to settle."""
    _run(step, think, seconds / 4)
    count, spent = _run(step, think, seconds)
    return spent / count


def _run(step: Callable[[], object], think: Callable[[], object], seconds: float) -> tuple[int, float]:
    count, begin = 0, time.perf_counter()
    while True:
        for _ in range(10):
            step()
            think()
        count += 10
        if (spent := time.perf_counter() - begin) >= seconds:
            return count, spent


def markdown(costs: Sequence[Cost], options: argparse.Namespace) -> Iterator[str]:
    """A row a case: what a step costs with each rule, and in brackets how many times the step without a thought."""
    by_case = {cost.case: cost for cost in costs}
    yield from head(["envs", "busy processes", "thought", "us", "goal", "", *RULES])
    for cost in costs:
        case, before = cost.case, by_case[cost.case.without_thought]
        ratios = {rule: cost.median(rule) / before.median(rule) for rule in RULES}
        goal = ["", ""] if case.think_us == 0 else [f"<= {AT_MOST:g} x", verdict(-AT_MOST, -ratios["remuda"])]
        where = [str(case.num_envs), str(case.busy), case.place if case.think_us else "none", str(case.think_us)]
        yield row([*where, *goal, *(f"{figure(cost.median(rule))} ({ratios[rule]:.2f})" for rule in RULES)])
    yield ""
    yield _conditions(costs, options)


def _conditions(costs: Iterable[Cost], options: argparse.Namespace) -> str:
    load = os.getloadavg()[0]
    workers = f"{options.workers} workers on {usable_cores()} cores"
    return (
        f"{machine.describe()}; {workers}, load {load:.1f} at the end. Microseconds a step of CartPole-v1, the thought "
        f"taken off; medians of {options.rounds} interleaved rounds, {options.seconds:g} s a contender. Behind remuda, "
        "the same pool with other rules for who spins while waiting."
    )


if __name__ == "__main__":
    main()
