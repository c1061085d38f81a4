"""Measures how much longer a step takes if the learner thinks between two steps.

Steps of some CartPoles and thoughts alternate. A thought is a fixed amount of work on a core, or a sleep, like a
learner on a GPU. The cost of a step is the time of a step and a thought, less the time of the thought alone. The goal
is little more than the cost without thoughts, on an idle machine and beside processes that keep a core busy each. The
cost depends on the rule for spinning while waiting, so other rules than ours are measured too.

The noise rule cannot hold beside busy processes, so each round checks it before it starts them. The whole run takes
about eleven minutes; ``--quick`` less than three.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from statistics import median
from unittest import mock

import numpy as np
from harness.envs import WORKLOADS, iterations_for, work
from harness.options import names_of, numbers, parse_options
from harness.quiet import busy_processes
from harness.session import Session
from harness.tables import Block, conditions, figure, table, verdict

import remuda
from remuda._engine.startup import start
from remuda._system.cores import usable_cores
from remuda._wire.layout import Spinning

AT_MOST = 1.3
"""The goal: the largest ratio of a step's cost to that of a step without thoughts."""
PLACES = ("core", "elsewhere")
ALONE = "the thought alone"

RULES: dict[str, Spinning | None] = {
    "remuda": None,
    "all spin": Spinning(worker_ns=1_000_000, ignore_load=True),
    "none spins": Spinning(),
}
"""The rule for spinning of each contender. None: the pool's own rule."""


@dataclass(frozen=True)
class Case:
    """A number of envs, the place and duration of the learner's thoughts, and a number of busy processes."""

    num_envs: int
    place: str
    think_us: int
    busy: int

    @property
    def without_thought(self) -> Case:
        return Case(self.num_envs, PLACES[0], 0, self.busy)


@dataclass
class Cost:
    """The measured times of a case. `step_us`: for each rule a step's time in each round, without the thought."""

    case: Case
    thought_us: list[float] = field(default_factory=list)
    step_us: dict[str, list[float]] = field(default_factory=lambda: {rule: [] for rule in RULES})

    def median(self, rule: str) -> float:
        return median(self.step_us[rule])


def main() -> None:
    options = parse_options(__doc__, seconds=4.0, quick=0.9, rounds=5, more=add_options)
    session, iterations_per_us = Session(options), iterations_for(1e-3) / 1000
    costs: list[Cost] = []
    for num_envs in options.envs:
        with pools(num_envs, options.workers) as contenders:
            some = session.measured(
                cases(num_envs, options),
                lambda case: measure(case, contenders, thought(case, iterations_per_us), session),
            )
            costs += (cost for _, cost in some)
    session.publish("waiting", markdown(costs, options), map(asdict, costs))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--envs", type=numbers, default=[8, 64], help="how many at once (default: 8,64)")
    parser.add_argument("--think", type=numbers, default=[50, 100, 300, 1000], help="us (default: 50,100,300,1000)")
    parser.add_argument("--places", type=names_of("--places", PLACES), default=PLACES, help="of thoughts: both")
    parser.add_argument("--busy", type=numbers, default=[0, 1], help="processes that keep a core busy (default: 0,1)")
    parser.add_argument("--workers", type=int, default=usable_cores(), help="default: as many as cores")


def cases(num_envs: int, options: argparse.Namespace) -> Iterator[Case]:
    for busy in options.busy:
        yield Case(num_envs, PLACES[0], 0, busy)
        for place in options.places:
            for think_us in options.think:
                yield Case(num_envs, place, think_us, busy)


@contextmanager
def pools(num_envs: int, num_workers: int) -> Iterator[dict[str, Callable[[], object]]]:
    """Makes a pool for each of `RULES`. Yields the functions that step the pools, by rule."""
    steps: dict[str, Callable[[], object]] = {}
    actions = np.zeros(num_envs, dtype=np.int64)
    make_env = WORKLOADS["cartpole"]().make_env
    with ExitStack() as stack:
        for rule, spinning in RULES.items():
            with spinning_as(spinning):
                pool = remuda.Pool([make_env] * num_envs, num_workers=min(num_workers, num_envs), log_advice=False)
            stack.callback(pool.close)
            pool.reset(seed=0)
            steps[rule] = lambda pool=pool: pool.step(actions)  # type: ignore[misc]
        yield steps


@contextmanager
def spinning_as(rule: Spinning | None) -> Iterator[None]:
    """Applies a rule for spinning while waiting to pools started within the block. None: the pools' own rule."""
    if rule is None:
        yield
    else:
        with mock.patch.object(start, "spinning_for", return_value=rule):
            yield


def thought(case: Case, iterations_per_us: float) -> Callable[[], object]:
    if case.place == "elsewhere":
        return lambda: time.sleep(case.think_us * 1e-6)
    iterations = round(case.think_us * iterations_per_us)
    return lambda: work(iterations)


def measure(
    case: Case, contenders: Mapping[str, Callable[[], object]], think: Callable[[], object], session: Session
) -> Cost:
    """Measures the steps of each rule, and the thoughts alone, in interleaved rounds."""
    seconds = session.options.seconds / session.options.rounds
    turns = {ALONE: lambda: mean_seconds(lambda: None, think, seconds / 2, case.busy)}
    for rule, step in contenders.items():
        turns[rule] = lambda step=step: mean_seconds(step, think, seconds, case.busy)
    found = session.rounds(f"{case.num_envs} envs, {case.busy} busy, {case.think_us} us, {case.place}", turns)
    alone = found.pop(ALONE)
    without = {
        rule: [1e6 * (both - one) for both, one in zip(each, alone, strict=True)] for rule, each in found.items()
    }
    return Cost(case, [1e6 * one for one in alone], without)


def mean_seconds(step: Callable[[], object], think: Callable[[], object], seconds: float, busy: int) -> float:
    """Returns the mean time of a step and a thought beside busy processes, after a warm-up of ``seconds / 4``."""
    with busy_processes(busy):
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


def markdown(costs: Sequence[Cost], options: argparse.Namespace) -> Iterator[Block]:
    """Yields the table: for each case the cost of a step with each rule, and its ratio to that without thoughts."""
    by_case = {cost.case: cost for cost in costs}
    known = [cost for cost in costs if cost.case.without_thought in by_case]
    columns = ["envs", "busy processes", "thought", "us", "goal", "", *RULES]
    yield table(columns, (row(cost, by_case[cost.case.without_thought]) for cost in known))
    yield (
        f"{conditions(options.rounds, options.seconds)} {options.workers} workers. Microseconds a step of "
        "CartPole-v1, without the thought. Behind remuda, the same pool with other rules for spinning while waiting."
    )


def row(cost: Cost, before: Cost) -> list[str]:
    case, ratios = cost.case, {rule: cost.median(rule) / before.median(rule) for rule in RULES}
    goal = ["", ""] if case.think_us == 0 else [f"<= {AT_MOST:g} x", verdict(-AT_MOST, -ratios["remuda"])]
    where = [str(case.num_envs), str(case.busy), case.place if case.think_us else "none", str(case.think_us)]
    return [*where, *goal, *(f"{figure(cost.median(rule))} ({ratios[rule]:.2f})" for rule in RULES)]


if __name__ == "__main__":
    main()
