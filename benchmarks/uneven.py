"""Envs that take unequally long: how much of the ideal is left, for those that wait for all and those that do not.

The envs sleep, each in a process of its own, so the figures do not depend on the number of cores, as long as these have
nothing else to do. All of it takes about ten minutes; ``--quick`` is a rough look, ``--only resets`` a part.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from peers import UNEVEN_PEERS
from peers.remuda_partial import RemudaPartial
from script import parse_options, publish
from sleepers import SLEEPS, Sleeps
from tables import failures, figure, head, row, verdict

from remuda._bench import registry, report
from remuda._bench.contenders import Contender, PlainLoop, Plan
from remuda._bench.results import Result
from remuda._bench.rounds import race
from remuda._system import machine

NUM_ENVS = 16


@dataclass(frozen=True)
class Case:
    """A workload, how it is stepped, and which part of the ideal remuda is to reach."""

    workload: str
    at_least: float
    min_envs: int = 1
    """What the partial batches have at least."""
    spares: int = 0

    @property
    def sleeps(self) -> Sleeps:
        return SLEEPS[self.workload]

    @property
    def loops(self) -> int:
        return NUM_ENVS + self.spares

    @property
    def ideal(self) -> float:
        """Env steps per second if no env ever waits."""
        return self.loops / self.sleeps.seconds_a_step

    @property
    def bound(self) -> float:
        """The part of the ideal that is left if those that are done wait for ``min_envs``, and for nothing else.

        As they come in one by one, 0, 1, ... ``min_envs - 1`` of them are waiting, equally long each.
        """
        return 1.0 - (self.min_envs - 1) / 2 / NUM_ENVS

    def plan(self) -> Plan:
        return Plan(
            self.sleeps.workload(),
            NUM_ENVS,
            num_workers=NUM_ENVS,
            min_envs=self.min_envs,
            background_resets=self.sleeps.episode_steps is not None,
            spares=self.spares,
            loops=self.loops,
            lead_in=2 * self.sleeps.reset,  # the first reset takes up to twice as long
        )


CASES = (
    Case("lognormal", 0.95, min_envs=4),
    Case("lognormal", 0.95),
    Case("resets", 0.95),
    Case("resets", 0.85, spares=16),
)


def main() -> None:
    options = parse_options(
        __doc__,
        workloads=list(SLEEPS),
        peers=UNEVEN_PEERS,
        against=list(UNEVEN_PEERS),
        seconds=15.0,
        quick=3.0,
    )
    kinds, left_out = line_up(options.against)
    for reason in left_out:
        print(f"left out: {reason}", file=sys.stderr)
    cases = [case for case in CASES if case.workload in options.only]
    results = [measure(case, kinds, options) for case in cases]
    figures = (to_json(case, result) for case, result in zip(cases, results, strict=True))
    publish("uneven", markdown(cases, results, left_out), figures, options)


def line_up(peers: Iterable[str]) -> tuple[list[type[Contender]], list[str]]:
    """The contenders that are there, and why the others are not."""
    kinds, left_out = registry.available(peers, UNEVEN_PEERS)
    return [PlainLoop, RemudaPartial, *kinds], left_out


def measure(case: Case, kinds: Sequence[type[Contender]], options: argparse.Namespace) -> Result:
    print(f"{case.workload}, recv({case.min_envs}), {case.spares} spares ...", file=sys.stderr, flush=True)
    return race(kinds, case.plan(), seconds=options.seconds, rounds=options.rounds)


def markdown(cases: Sequence[Case], results: Sequence[Result], left_out: Iterable[str]) -> Iterator[str]:
    """One row a case; each contender's part of the ideal, and of what the sleeps left of that."""
    names = [entry.name for entry in results[0].entries[1:]]
    yield from head(["workload", "recv", "spares", "goal", "at best", "reached", "", *names])
    for case, result in zip(cases, results, strict=True):
        reached = of_ideal(case, result, "remuda")
        goal = [f"{case.at_least:g}", figure(case.bound), figure(reached), verdict(case.at_least, reached)]
        cells = [result.env, f">= {case.min_envs}", str(case.spares), *goal]
        yield row([*cells, *(_ratios(case, result, name) for name in names)])
    yield ""
    yield _conditions(results[0])
    for reason in left_out:
        yield f"\nLeft out: {reason}"
    yield from failures(results)


def of_ideal(case: Case, result: Result, name: str) -> float | None:
    """The part of ``case.ideal`` that a contender reached; None where it has failed."""
    entry = result.entry(name)
    if entry is None or entry.error is not None or entry.steps_per_second is None:
        return None
    return entry.steps_per_second / case.ideal


def _ratios(case: Case, result: Result, name: str) -> str:
    entry, ratio = result.entry(name), of_ideal(case, result, name)
    if entry is None or ratio is None:
        return "failed"
    return f"{report.ratio(ratio)} ({report.ratio(result.ratio_to_ideal(entry))})"


def _conditions(result: Result) -> str:
    return (
        f"{machine.describe()}; {result.cores} cores; {result.num_envs} envs, a worker each. Medians of "
        f"{result.rounds} interleaved rounds, {result.seconds:g} s a contender. In brackets: of the ideal if sleeps "
        "take as long as the plain loop's did in the same rounds."
    )


def to_json(case: Case, result: Result) -> dict[str, Any]:
    """As `report.to_json`, whose ideal is by the plain loop, and the ideal by the sleeps that were asked for."""
    more = {"min_envs": case.min_envs, "spares": case.spares, "asked_steps_per_second": case.ideal}
    return {**report.to_json(result), **more}


if __name__ == "__main__":
    main()
