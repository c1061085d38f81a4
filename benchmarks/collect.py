"""Measures the speed of collecting steps with a policy, without learning, as a ratio to the lockstep bound.

In lockstep a batch takes the policy's time and then the envs' time, which all cores may share. A caller that waits for
all envs before it calls the policy is never faster than 1 / (policy + env work / cores). Both are measured in the same
rounds, the policy by itself and the envs in a plain loop. Halves that are stepped in turns may pass the bound.

The whole run takes an hour and a half, the policies of the README half of that. ``--quick`` is a rough look (three
minutes); ``--only``, ``--policies`` and ``--num-envs`` choose a part.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from harness.envs import WORKLOADS as ALL_WORKLOADS
from harness.envs import missing
from harness.options import names, parse_options
from harness.policies import POLICIES, PolicyAlone, lockstep_bound, make_policy, with_policy
from harness.session import Session
from harness.tables import Block, conditions, failures, parent_us, rate, ratio, table
from peers import PEERS, available

from remuda._bench import report
from remuda._bench.contenders import Contender, PlainLoop, Plan, Remuda
from remuda._bench.results import Entry, Result
from remuda._system.cores import usable_cores

WORKLOADS = ("cartpole", "mujoco", "pong")
NUM_ENVS = ("8", "64")
QUICK = ("core-300", "sleep-300", "net")
AGAINST = (
    *("remuda-auto", "remuda-split", "remuda-gymnasium", "remuda-gymnasium-auto", "remuda-gymnasium-split"),
    *("remuda-sb3", "gymnasium-sync", "gymnasium", "pufferlib", "pufferlib-1"),
)


@dataclass(frozen=True)
class Case:
    """A workload with a number of envs, and the policy that chooses their actions."""

    workload: str
    num_envs: int
    policy: str


def main() -> None:
    options = parse_options(
        __doc__,
        workloads=WORKLOADS,
        peers=PEERS,
        against=AGAINST,
        seconds=5.0,
        quick=0.5,
        rounds=5,
        more=add_options,
    )
    session = Session(options)
    session.leave_out(map(missing, options.only))
    found = list(session.measured(choose(session), lambda case: measure(case, session)))
    session.publish("collect", markdown(found), (to_json(case, result) for case, result in found))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policies", type=names, help=f"of {', '.join(POLICIES)}")
    parser.add_argument("--num-envs", type=names, help=f"(default: {','.join(NUM_ENVS)})")
    parser.add_argument("--torch-threads", type=int, default=1, help="of the network's (default: 1)")


def choose(session: Session) -> Iterator[Case]:
    options = session.options
    policies = options.policies or (QUICK if options.is_quick else POLICIES)
    if "net" in policies and importlib.util.find_spec("torch") is None:
        policies = [policy for policy in policies if policy != "net"]
        session.leave_out(['net: pip install "torch==2.13.0"'])
    for workload in (name for name in options.only if missing(name) is None):
        for num_envs in options.num_envs or (NUM_ENVS[:1] if options.is_quick else NUM_ENVS):
            for policy in policies:
                yield Case(workload, int(num_envs), policy)


def measure(case: Case, session: Session) -> Result:
    workload = ALL_WORKLOADS[case.workload]()
    kinds, reasons = available(session.options.against, PEERS, workload)
    session.leave_out(reasons)
    policy = make_policy(case.policy, session.options.torch_threads)
    plan = Plan(workload, case.num_envs, num_workers=min(case.num_envs, usable_cores()))
    raced: list[type[Contender]] = [Remuda, PolicyAlone, *kinds]
    return session.race([PlainLoop, *(with_policy(kind, policy) for kind in raced)], plan)


# -- the table ----------------------------------------------------------------------------------------------


def of_bound(result: Result, entry: Entry | None) -> float | None:
    """Returns the ratio of a contender's speed to the lockstep bound, the median over the rounds. None if it failed."""
    alone = result.entry(PolicyAlone.name)
    if entry is None or alone is None or entry.error is not None or not entry.turns or not alone.turns:
        return None
    ratios = [rate / bound for rate, bound in zip(entry.rates, lockstep_bound(result, alone), strict=False)]
    return median(ratios) if ratios else None


def markdown(found: Collection[tuple[Case, Result]]) -> Iterator[Block]:
    """Yields the table. A row has a case's policy time, its lockstep bound, and each contender's ratio to the bound."""
    contenders = list(dict.fromkeys(entry.name for _, result in found for entry in collectors(result)))
    columns = ["workload", "envs", "policy", "its time, us", "bound, steps/s", *contenders]
    yield table(columns, (row(case, result, contenders) for case, result in found))
    for _, result in list(found)[:1]:
        yield (
            f"{conditions(result.rounds, result.seconds)} Ratios to the lockstep bound of the same rounds. remuda, "
            "remuda-gymnasium and remuda-sb3 have as many workers as there are cores, those that are split one less."
        )
    yield from failures(result for _, result in found)


def row(case: Case, result: Result, contenders: Sequence[str]) -> list[str]:
    alone = result.entry(PolicyAlone.name)
    us = bound = "failed"
    if alone is not None and alone.turns and alone.steps_per_second:
        us, bound = f"{1e6 * case.num_envs / alone.steps_per_second:.0f}", rate(median(lockstep_bound(result, alone)))
    entries = [result.entry(name) for name in contenders]
    parts = [ratio(entry, of_bound(result, entry)) for entry in entries]
    return [result.env, str(case.num_envs), case.policy, us, bound, *parts]


def collectors(result: Result) -> list[Entry]:
    return [entry for entry in result.entries[1:] if entry.name != PolicyAlone.name]


def to_json(case: Case, result: Result) -> dict[str, Any]:
    """Adds the policy, the lockstep bounds, the ratios to the bounds, and CPU times to the dict of `report.to_json`."""
    alone = result.entry(PolicyAlone.name)
    more = {
        "policy": case.policy,
        "lockstep_bounds": lockstep_bound(result, alone) if alone is not None else [],
        "of_lockstep_bound": {entry.name: of_bound(result, entry) for entry in collectors(result)},
        "parent_us_a_batch": {entry.name: parent_us(entry) for entry in collectors(result)},
    }
    return {**report.to_json(result), **more}


if __name__ == "__main__":
    main()
