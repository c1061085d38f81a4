"""Env steps per second of remuda and its peers, on workloads that each isolate one cost and have a goal.

All of it takes about five minutes; ``--quick`` is a rough look, ``--only image,dict`` a part.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from envs import WORKLOADS, missing, workloads
from peers import PEERS
from script import parse_options, publish
from tables import failures, figure, head, row, verdict

from remuda._bench import registry, report
from remuda._bench.contenders import Plan
from remuda._bench.results import Result, paired_ratio
from remuda._bench.rounds import race
from remuda._bench.workloads import Workload
from remuda._system import machine
from remuda._system.cores import usable_cores

IDEAL = "the ideal"


@dataclass(frozen=True)
class Goal:
    """``contender`` is to reach ``at_least`` times the rate of ``base``."""

    at_least: float
    base: str = IDEAL
    contender: str = "remuda"

    def measured(self, result: Result) -> float | None:
        """The ratio reached; None where one of the two has no result."""
        contender, base = result.entry(self.contender), result.entry(self.base)
        if contender is None:
            return None
        if self.base == IDEAL:
            return result.ratio_to_ideal(contender)
        return None if base is None else paired_ratio(contender, base)

    def __str__(self) -> str:
        return f"{self.contender} >= {self.at_least:g} x {self.base}"


@dataclass(frozen=True)
class Case:
    """A workload at a number of envs, and what is expected there."""

    workload: str
    num_envs: int
    goals: tuple[Goal, ...]


TEN_TIMES_GYMNASIUM = Goal(10.0, "gymnasium")
TWICE_GYMNASIUM_PER_ENV = Goal(2.0, "gymnasium", "remuda-per-env")
FACES = tuple(
    goal
    for original, face in (("sb3", "remuda-sb3"), ("ding-sync", "remuda-ding"), ("ding-v2", "remuda-ding-v2"))
    for goal in (Goal(8.0, original, face), Goal(1.5, original, f"{face}-per-env"))
)

CASES = (
    Case("cartpole", 8, (Goal(0.70), TWICE_GYMNASIUM_PER_ENV, *FACES)),
    Case("cartpole", 64, (Goal(0.88), TWICE_GYMNASIUM_PER_ENV, *FACES)),
    Case("null", 64, (Goal(0.25),)),
    Case("image", 8, (Goal(0.85),)),
    Case("image", 64, (Goal(0.95),)),
    Case("heavy", 8, (Goal(0.97),)),
    Case("mujoco", 8, (Goal(0.85),)),
    Case("dict", 64, (TEN_TIMES_GYMNASIUM,)),
    Case("infos", 64, (TEN_TIMES_GYMNASIUM,)),
)


def main() -> None:
    options = parse_options(
        __doc__,
        workloads=list(WORKLOADS),
        peers=PEERS,
        against=["remuda-per-env", "gymnasium"],
        seconds=5.0,
        quick=1.0,
    )
    for reason in filter(None, map(missing, options.only)):
        print(reason, file=sys.stderr)
    cases = [case for case in CASES if case.workload in options.only and missing(case.workload) is None]
    loads = workloads({case.workload for case in cases})
    results = []
    for case in cases:
        print(f"{case.workload}, {case.num_envs} envs ...", file=sys.stderr, flush=True)
        results.append(measure(case, loads[case.workload], options))
    publish("throughput", markdown(cases, results), map(report.to_json, results), options)


def measure(case: Case, workload: Workload, options: argparse.Namespace) -> Result:
    plan = Plan(workload, case.num_envs, num_workers=min(case.num_envs, usable_cores()))
    return race(registry.line_up(options.against, PEERS), plan, seconds=options.seconds, rounds=options.rounds)


def markdown(cases: Sequence[Case], results: Sequence[Result]) -> Iterator[str]:
    """One row for each goal of those that were raced; after it, what everybody reached of the ideal."""
    if not results:
        return
    names = [entry.name for entry in results[0].entries[1:]]
    yield from head(["workload", "envs", "goal", "reached", "", *(f"{name}, of ideal" for name in names)])
    for case, result in zip(cases, results, strict=True):
        ratios = [_ratio(result, name) for name in names]
        for goal in (goal for goal in case.goals if result.entry(goal.contender) is not None):
            reached = goal.measured(result)
            cells = [result.env, str(case.num_envs), str(goal), figure(reached), verdict(goal.at_least, reached)]
            yield row([*cells, *ratios])
    yield ""
    yield _conditions(results[0])
    yield from failures(results)


def _conditions(result: Result) -> str:
    cores = result.cores
    return (
        f"{machine.describe()}; {cores} cores, as many workers. Medians of {result.rounds} interleaved "
        f"rounds, {result.seconds:g} s a contender. The ideal is {cores} x the plain loop in the same rounds."
    )


def _ratio(result: Result, name: str) -> str:
    entry = result.entry(name)
    if entry is None or entry.error is not None:
        return "failed"
    return report.ratio(result.ratio_to_ideal(entry))


if __name__ == "__main__":
    main()
