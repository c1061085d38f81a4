"""Tests `num_workers="auto"` against a plain loop, fixed numbers of workers, and the frameworks' own parallel envs.

A loop steps the envs and then thinks: not at all, for a fixed amount of work on a core (calibrated once), or with the
network of `harness/ppo.py`, which fills the caches with its own data. "auto" has to choose among the contenders "all
cores", "1 worker" and "caller" without knowledge of the policy. A figure is the median, over the rounds, of a
contender's speed as a ratio to that of the plain loop (SyncVectorEnv, DummyVecEnv) in the same round. A contender with
1 or more is no slower than the loop. The whole run takes about an hour.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.envs import WORKLOADS, missing
from harness.options import names, parse_options
from harness.policies import make_policy, with_policy
from harness.session import Session
from harness.sleepers import SleepingEnv, Sleeps
from harness.tables import Block, conditions, failures, figure, table
from peers import available

from remuda._bench import report
from remuda._bench.contenders import Plan
from remuda._bench.results import Entry, Result, paired_ratio
from remuda._bench.workloads import Workload
from remuda._system.cores import usable_cores

THOUGHTS = {"none": "core-0", "300 us": "core-300", "net": "net"}
"""The policies (`harness/policies.py`) that think between two steps."""
QUICK = ("none", "net")


FAMILIES = {
    "gymnasium": {
        "loop": "gymnasium-sync",
        "auto": "remuda-gymnasium-auto",
        "all cores": "remuda-gymnasium",
        "1 worker": "remuda-gymnasium-1",
        "caller": "remuda-gymnasium-caller",
        "auto, Pool": "remuda-auto",
        "one each": "remuda-gymnasium-1-per-env",
        "peer": "gymnasium",
    },
    "sb3": {"loop": "sb3-dummy", "auto": "remuda-sb3-auto", "peer": "sb3"},
}
"""The contenders of each framework by their column: first the plain loop, last the framework's own parallel env."""
COLUMNS = [column for column in FAMILIES["gymnasium"] if column != "loop"]


@dataclass(frozen=True)
class Case:
    """The envs of one measurement: a workload, and the number of its envs."""

    name: str
    workload: Workload
    num_envs: int


@dataclass(frozen=True)
class Race:
    """The result of racing the contenders of a framework (`family`) on one case, with a policy (`think`)."""

    case: Case
    family: str
    think: str
    result: Result

    def entry(self, column: str) -> Entry | None:
        return self.result.entry(FAMILIES[self.family].get(column, ""))

    def ratio(self, column: str) -> float | None:
        """Returns the speed of a column's contender, divided by the plain loop's. None if it was not measured."""
        entry = self.entry(column)
        return None if entry is None else paired_ratio(entry, self.result.plain)


def cases() -> list[Case]:
    cartpole, null = WORKLOADS["cartpole"](), WORKLOADS["null"]()
    sleeping = Workload("5 ms a step", functools.partial(SleepingEnv, Sleeps("5 ms a step", (5e-3,))))
    return [
        *(Case(f"cartpole-{n}", cartpole, n) for n in (4, 8, 64)),
        *([] if missing("mujoco") else [Case("cheetah-8", WORKLOADS["mujoco"](), 8)]),
        Case("noop-8", null, 8),
        Case("noop-64", null, 64),
        Case("work-1ms", WORKLOADS["heavy"](), 8),
        Case("sleep-5ms", sleeping, 8),
    ]


def main() -> None:
    options = parse_options(
        __doc__,
        seconds=3.0,
        quick=0.4,
        rounds=5,
        more=lambda parser: parser.add_argument("--only", type=names, help="cases that begin with one of these"),
    )
    session = Session(options)
    chosen = [case for case in cases() if options.only is None or case.name.startswith(tuple(options.only))]
    turns = [(case, family, think) for case in chosen for family in FAMILIES for think in thoughts(session)]
    races = [Race(*turn, result) for turn, result in session.measured(turns, lambda turn: measure(*turn, session))]
    session.publish("auto", markdown(races), map(to_json, races))


def thoughts(session: Session) -> Iterator[str]:
    for think in QUICK if session.options.is_quick else THOUGHTS:
        if think == "net" and importlib.util.find_spec("torch") is None:
            session.leave_out(['the thought "net": torch is not installed'])
        else:
            yield think


def measure(case: Case, family: str, think: str, session: Session) -> Result:
    kinds, left_out = available(FAMILIES[family].values())
    session.leave_out(left_out)
    policy = make_policy(THOUGHTS[think])
    plan = Plan(case.workload, case.num_envs, num_workers=min(usable_cores(), case.num_envs))
    return session.race([with_policy(kind, policy) for kind in kinds], plan)


def markdown(races: list[Race]) -> Iterator[Block]:
    yield table(["envs", "framework", "thought", "loop, us a batch", *COLUMNS, "auto is"], map(row, races))
    for race in races[:1]:
        yield conditions(race.result.rounds, race.result.seconds)
    yield from failures(race.result for race in races)


def row(race: Race) -> list[str]:
    num_envs, loop, auto = race.case.num_envs, race.result.plain.steps_per_second, race.entry("auto")
    us = "failed" if loop is None else figure(1e6 * num_envs / loop)
    workers = 0 if auto is None else auto.num_workers
    choice = f"{workers} workers for {num_envs} envs" if workers else "stepped by the caller"
    return [race.case.name, race.family, race.think, us, *(figure(race.ratio(column)) for column in COLUMNS), choice]


def to_json(race: Race) -> dict[str, Any]:
    """Adds `case`, `family` (the framework) and `think` (the policy) to the dict of `report.to_json`."""
    return {**report.to_json(race.result), "case": race.case.name, "family": race.family, "think": race.think}


if __name__ == "__main__":
    main()
