"""Env steps per second of remuda and its peers, on workloads that each isolate one cost and have a goal.

All of it takes about five minutes; ``--quick`` is a rough look, ``--only image,dict`` a part.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from envs import WORKLOADS, workloads
from readme import write_section

from remuda._bench import machine, registry, report
from remuda._bench.contenders import Plan
from remuda._bench.results import Result, paired_ratio
from remuda._bench.rounds import race
from remuda._bench.workloads import Workload
from remuda._engine.cores import usable_cores

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

CASES = (
    Case("cartpole", 8, (Goal(0.70), TWICE_GYMNASIUM_PER_ENV)),
    Case("cartpole", 64, (Goal(0.88), TWICE_GYMNASIUM_PER_ENV)),
    Case("null", 64, (Goal(0.25),)),
    Case("image", 8, (Goal(0.85),)),
    Case("image", 64, (Goal(0.95),)),
    Case("heavy", 8, (Goal(0.97),)),
    Case("mujoco", 8, (Goal(0.85),)),
    Case("dict", 64, (TEN_TIMES_GYMNASIUM,)),
    Case("infos", 64, (TEN_TIMES_GYMNASIUM,)),
)


def main() -> None:
    options = parse_options()
    cases = [case for case in CASES if case.workload in options.only]
    if "mujoco" in options.only and importlib.util.find_spec("mujoco") is None:
        cases = [case for case in cases if case.workload != "mujoco"]
        print('HalfCheetah-v5 is left out: pip install "gymnasium[mujoco]"', file=sys.stderr)
    loads = workloads({case.workload for case in cases})
    results = []
    for case in cases:
        print(f"{case.workload}, {case.num_envs} envs ...", file=sys.stderr, flush=True)
        results.append(measure(case, loads[case.workload], options))
    text = "\n".join(markdown(cases, results))
    print(text)
    if options.json is not None:
        options.json.write_text(json.dumps([report.to_json(result) for result in results], indent=2) + "\n")
    if options.readme:
        write_section("throughput", text)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 second a contender instead of 5")
    parser.add_argument("--only", type=_names, default=list(WORKLOADS), help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--against", type=_names, default=["remuda-per-env", "gymnasium"], help="the peers")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--json", type=Path, help="write every round's figures here")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md beside this file")
    options = parser.parse_args()
    unknown = [name for name in options.only if name not in WORKLOADS]
    if unknown:
        parser.error(f"expected --only to name {', '.join(WORKLOADS)}, got {', '.join(unknown)}")
    return options


def _names(text: str) -> list[str]:
    return text.split(",")


def measure(case: Case, workload: Workload, options: argparse.Namespace) -> Result:
    plan = Plan(workload, case.num_envs, num_workers=min(case.num_envs, usable_cores()))
    seconds = 1.0 if options.quick else 5.0
    return race(registry.line_up(options.against), plan, seconds=seconds, rounds=options.rounds)


def markdown(cases: Sequence[Case], results: Sequence[Result]) -> Iterator[str]:
    """One row a goal; after it, what everybody reached of the ideal."""
    if not results:
        return
    names = [entry.name for entry in results[0].entries[1:]]
    yield _row(["workload", "envs", "goal", "reached", "", *(f"{name}, of ideal" for name in names)])
    yield _row(["---"] * (5 + len(names)))
    for case, result in zip(cases, results, strict=True):
        ratios = [_ratio(result, name) for name in names]
        for goal in case.goals:
            reached = goal.measured(result)
            cells = [result.env, str(case.num_envs), str(goal), _figure(reached), verdict(goal, reached)]
            yield _row([*cells, *ratios])
    yield ""
    yield _conditions(results[0])
    for result in results:
        for entry in result.entries:
            if entry.error is not None:
                yield f"\n{entry.name} failed on {result.env}, {result.num_envs} envs: `{entry.error}`"


def verdict(goal: Goal, reached: float | None) -> str:
    if reached is None:
        return "not measured"
    return "pass" if reached >= goal.at_least else "**falls short**"


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


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
