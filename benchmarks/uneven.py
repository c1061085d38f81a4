"""Measures the share of the ideal speed that is left if steps vary in length, with and without waiting for all envs.

The envs sleep, each in its own process, so the figures do not depend on the number of cores if the cores are otherwise
idle. The whole run takes about ten minutes; ``--quick`` is a rough look, ``--only resets`` a part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.options import parse_options
from harness.session import Session
from harness.sleepers import SLEEPS, SleepLoop, Sleeps, without_resets
from harness.tables import Block, conditions, failures, figure, table, verdict
from peers import UNEVEN_PEERS, available
from peers.remuda_pools import RemudaPartial, UnevenPlan

from remuda._bench import report
from remuda._bench.contenders import Contender
from remuda._bench.results import Result, paired_ratio

NUM_ENVS = 16


@dataclass(frozen=True)
class Case:
    """A workload, the way of stepping it, and the share of the ideal that remuda must reach."""

    workload: str
    at_least: float
    min_envs: int = 1
    """The least number of results in a partial batch."""
    spares: int = 0

    @property
    def sleeps(self) -> Sleeps:
        return SLEEPS[self.workload]

    @property
    def loops(self) -> int:
        return NUM_ENVS + self.spares

    @property
    def ideal(self) -> float:
        """The env steps per second if no env ever waits."""
        return self.loops / self.sleeps.seconds_a_step

    @property
    def bound(self) -> float:
        """The best possible share of the ideal: finished envs wait only until there are ``min_envs`` results.

        Results arrive one by one: first 0, then 1, ... ``min_envs - 1`` envs wait, each number for an equal time.
        """
        return 1.0 - (self.min_envs - 1) / 2 / NUM_ENVS

    def plan(self) -> UnevenPlan:
        return UnevenPlan(
            self.sleeps.workload(),
            NUM_ENVS,
            num_workers=NUM_ENVS,
            min_envs=self.min_envs,
            background_resets=self.sleeps.episode_steps is not None,
            spares=self.spares,
        )


CASES = (
    Case("lognormal", 0.95, min_envs=4),
    Case("lognormal", 0.95),
    Case("resets", 0.95),
    Case("resets", 0.85, spares=16),
)


def main() -> None:
    options = parse_options(
        __doc__, workloads=SLEEPS, peers=UNEVEN_PEERS, against=UNEVEN_PEERS, seconds=15.0, quick=3.0, rounds=5
    )
    kinds, left_out = line_up(options.against)
    session = Session(options)
    session.leave_out(left_out)
    cases = (case for case in CASES if case.workload in options.only)
    found = list(session.measured(cases, lambda case: measure(case, kinds, session)))
    session.publish("uneven", markdown(found), (to_json(case, result) for case, result in found))


def line_up(peers: Iterable[str]) -> tuple[list[type[Contender]], list[str]]:
    """Returns the contenders that are installed, and the reasons why the others are left out."""
    kinds, left_out = available(peers, UNEVEN_PEERS)
    return [SleepLoop, *map(without_resets, [RemudaPartial, *kinds])], left_out


def measure(case: Case, kinds: Sequence[type[Contender]], session: Session) -> Result:
    lead_in = 2 * case.sleeps.reset  # an env's first reset takes up to twice the usual time
    return session.race(kinds, case.plan(), lead_in=lead_in)


def markdown(found: Collection[tuple[Case, Result]]) -> Iterator[Block]:
    """Yields the table: each contender's share of the ideal, and of the ideal for sleeps as long as measured."""
    for _, first in list(found)[:1]:
        names = [entry.name for entry in first.entries[1:]]
        columns = ["workload", "recv", "spares", "goal", "at best", "reached", "", *names]
        yield table(columns, (row(case, result, names) for case, result in found))
        yield (
            f"{conditions(first.rounds, first.seconds)} {NUM_ENVS} envs, a worker each. In brackets: of the "
            "ideal if sleeps take as long as the plain loop's did in the same rounds."
        )
    yield from failures(result for _, result in found)


def row(case: Case, result: Result, names: Iterable[str]) -> list[str]:
    reached = of_ideal(case, result, "remuda")
    goal = [f"{case.at_least:g}", figure(case.bound), figure(reached), verdict(case.at_least, reached)]
    return [
        result.env,
        f">= {case.min_envs}",
        str(case.spares),
        *goal,
        *(parts(case, result, name) for name in names),
    ]


def of_ideal(case: Case, result: Result, name: str) -> float | None:
    """Returns the share of ``case.ideal`` that a contender reached. None if it failed."""
    entry = result.entry(name)
    if entry is None or entry.error is not None or entry.steps_per_second is None:
        return None
    return entry.steps_per_second / case.ideal


def parts(case: Case, result: Result, name: str) -> str:
    entry, part = result.entry(name), of_ideal(case, result, name)
    if entry is None or part is None:
        return "failed"
    of_loops = paired_ratio(entry, result.plain)
    return f"{report.ratio(part)} ({report.ratio(None if of_loops is None else of_loops / case.loops)})"


def to_json(case: Case, result: Result) -> dict[str, Any]:
    """Adds the ideal of the case to the dict of `report.to_json`, which has only the ideal of the plain loop."""
    more = {"min_envs": case.min_envs, "spares": case.spares, "asked_steps_per_second": case.ideal}
    return {**report.to_json(result), **more}


if __name__ == "__main__":
    main()
