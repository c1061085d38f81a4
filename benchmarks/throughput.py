"""Measures env steps per second of remuda and its peers, on workloads that each isolate one cost.

The whole run takes about 25 minutes; ``--quick`` is a rough look, ``--only image,dict`` a part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from harness.envs import INFO_KEYS, WORKLOADS, missing
from harness.options import parse_options
from harness.session import Session
from harness.tables import Block, conditions, failures, figure, ratio, table, verdict
from peers import PEERS, available

from remuda._bench import report
from remuda._bench.contenders import Contender, PlainLoop, Plan, Remuda
from remuda._bench.results import Result, paired_ratio
from remuda._system.cores import usable_cores

IDEAL = "the ideal"


@dataclass(frozen=True)
class Goal:
    """A goal: ``contender`` reaches ``at_least`` times the rate of ``base``."""

    at_least: float
    base: str = IDEAL
    contender: str = "remuda"

    def measured(self, result: Result) -> float | None:
        """Returns the ratio that the contender reached. None if contender or base has no result."""
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
    """A workload with a number of envs, and its goals."""

    workload: str
    num_envs: int
    goals: tuple[Goal, ...]

    def among(self, names: Collection[str]) -> Case:
        """Returns the case with the goals of which both contenders are named."""
        return replace(self, goals=tuple(goal for goal in self.goals if {goal.base, goal.contender} <= set(names)))


NATIVE = Goal(1.0, "envpool")
TEN_TIMES_GYMNASIUM = Goal(10.0, "gymnasium")
TWICE_GYMNASIUM_PER_ENV = Goal(2.0, "gymnasium", "remuda-1-per-env")
FACES = tuple(
    goal
    for original, face in (("sb3", "remuda-sb3"), ("ding-sync", "remuda-ding"), ("ding-v2", "remuda-ding-v2"))
    for goal in (Goal(8.0, original, face), Goal(1.5, original, f"{face}-1-per-env"))
)

CASES = (
    Case("cartpole", 8, (Goal(0.70), TWICE_GYMNASIUM_PER_ENV, *FACES)),
    Case("cartpole", 64, (Goal(0.88), TWICE_GYMNASIUM_PER_ENV, *FACES)),
    Case("null", 64, (Goal(0.25),)),
    Case("image", 8, (Goal(0.85),)),
    Case("image", 64, (Goal(0.95),)),
    Case("heavy", 8, (Goal(0.97),)),
    Case("mujoco", 8, (Goal(0.85), NATIVE)),
    Case("ant", 8, (NATIVE,)),
    Case("pong", 8, (NATIVE,)),
    Case("dict", 64, (TEN_TIMES_GYMNASIUM,)),
    Case("infos", 64, (TEN_TIMES_GYMNASIUM,)),
    Case("text", 64, (Goal(2.0, "gymnasium"),)),
)


def main() -> None:
    against = ["remuda-1-per-env", "gymnasium", "sb3", "pufferlib", "pufferlib-1"]
    options = parse_options(
        __doc__, workloads=WORKLOADS, peers=PEERS, against=against, seconds=5.0, quick=1.0, rounds=5
    )
    session = Session(options)
    session.leave_out(map(missing, options.only))
    raced = {IDEAL, Remuda.name, *options.against}
    cases = [case.among(raced) for case in CASES if case.workload in options.only and missing(case.workload) is None]
    found = list(session.measured((case for case in cases if case.goals), lambda case: measure(case, session)))
    session.publish("throughput", markdown(found), (report.to_json(result) for _, result in found))


def measure(case: Case, session: Session) -> Result:
    plan = Plan(WORKLOADS[case.workload](), case.num_envs, num_workers=min(case.num_envs, usable_cores()))
    kinds, left_out = available(session.options.against, PEERS, plan.workload)
    session.leave_out(left_out)
    raced: list[type[Contender]] = [Remuda, *kinds]
    return session.race([PlainLoop, *(map(reading_infos, raced) if case.workload == "infos" else raced)], plan)


def reading_infos(kind: type[Contender]) -> type[Contender]:
    """Returns a contender class like the given one, which looks up a key in the info of every env at every step."""

    def step(self: Contender, actions: Any) -> int:
        env_steps, infos = kind.step(self, actions), self.infos
        if isinstance(infos, (list, tuple, np.ndarray)):
            for info in infos:
                info.get(INFO_KEYS[3])
        else:
            (infos.stack() if hasattr(infos, "stack") else infos).get(INFO_KEYS[3])
        return env_steps

    return type(kind.__name__, (kind,), {"step": step})


def markdown(found: Collection[tuple[Case, Result]]) -> Iterator[Block]:
    """Yields the table: a row for each goal of a raced contender, with each contender's share of the ideal."""
    for _, first in list(found)[:1]:
        names = [entry.name for entry in first.entries[1:]]
        columns = ["workload", "envs", "goal", "reached", "", *(f"{name}, of ideal" for name in names)]
        yield table(columns, (row for case, result in found for row in rows(case, result, names)))
        more = f"As many workers as cores. The ideal is {first.cores} x the plain loop in the same rounds."
        yield f"{conditions(first.rounds, first.seconds)} {more}"
    yield from failures(result for _, result in found)


def rows(case: Case, result: Result, names: list[str]) -> Iterator[list[str]]:
    entries = [result.entry(name) for name in names]
    shares = [ratio(entry, None if entry is None else result.ratio_to_ideal(entry)) for entry in entries]
    for goal in case.goals:
        if result.entry(goal.contender) is not None:
            reached = goal.measured(result)
            cells = [
                result.env,
                str(case.num_envs),
                str(goal),
                figure(reached),
                verdict(goal.at_least, reached),
            ]
            yield [*cells, *shares]


if __name__ == "__main__":
    main()
