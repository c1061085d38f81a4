"""Collecting with a policy in the loop, without learning: what is left of the lockstep bound, and what overlap adds.

In lockstep a batch takes the policy's time and then the envs', which all cores may share: nobody who waits for all envs
before he asks the policy is faster than 1 / (policy + env work / cores). Both are measured in the same rounds, the
policy by itself and the envs in a plain loop. Halves that are stepped in turns may pass the bound.

All of it takes about half an hour; ``--quick`` is a rough look (three minutes); ``--only``, ``--policies`` and
``--num-envs`` choose a part.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from collecting import MakePolicy, PolicyAlone, Thinking, lockstep_bound, sleeping, with_policy
from envs import iterations_for, missing, work, workloads
from peers import PEERS
from script import names, parse_options, publish
from tables import failures, head, row

from remuda._bench import registry, report
from remuda._bench.contenders import Contender, PlainLoop, Plan, Remuda
from remuda._bench.results import Entry, Result
from remuda._bench.rounds import race
from remuda._bench.workloads import Workload, probe_spaces
from remuda._system import machine
from remuda._system.cores import usable_cores

WORKLOADS = ("cartpole", "mujoco", "pong")
NUM_ENVS = ("8", "64")
THINK_US = (0, 100, 300, 1000)
POLICIES = (*(f"core-{us}" for us in THINK_US), *(f"sleep-{us}" for us in THINK_US[1:]), "net")
QUICK = ("core-300", "sleep-300", "net")
AGAINST = (
    "remuda-auto",
    "remuda-split",
    "remuda-gymnasium",
    "remuda-gymnasium-auto",
    "remuda-gymnasium-split",
    "remuda-sb3",
    "gymnasium-sync",
    "gymnasium",
    "pufferlib",
)


@dataclass(frozen=True)
class Case:
    """A policy beside so many envs of a workload."""

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
        more=add_options,
    )
    policies = options.policies or (QUICK if options.is_quick else POLICIES)
    reasons = [reason for reason in map(missing, options.only) if reason is not None]
    if "net" in policies and importlib.util.find_spec("torch") is None:
        policies = [policy for policy in policies if policy != "net"]
        reasons.append('net is left out: pip install "torch==2.13.0"')
    cases = [
        Case(workload, int(num_envs), policy)
        for workload in options.only
        if missing(workload) is None
        for num_envs in options.num_envs or (NUM_ENVS[:1] if options.is_quick else NUM_ENVS)
        for policy in policies
    ]
    results, left_out = run(cases, options)
    reasons += left_out
    figures = (to_json(case, result) for case, result in zip(cases, results, strict=True))
    publish("collect", markdown(cases, results, reasons), figures, options)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policies", type=names, help=f"of {', '.join(POLICIES)}")
    parser.add_argument("--num-envs", type=names, help=f"(default: {','.join(NUM_ENVS)})")
    parser.add_argument("--torch-threads", type=int, default=1, help="of the network's (default: 1)")


def run(cases: Sequence[Case], options: argparse.Namespace) -> tuple[list[Result], list[str]]:
    loads = workloads({case.workload for case in cases})
    results, left_out = [], dict[str, None]()
    for case in cases:
        print(f"{case.workload}, {case.num_envs} envs, {case.policy} ...", file=sys.stderr, flush=True)
        kinds, reasons = registry.available(options.against, PEERS, loads[case.workload])
        left_out.update(dict.fromkeys(reasons))
        results.append(measure(case, loads[case.workload], kinds, options))
    return results, list(left_out)


def measure(case: Case, workload: Workload, kinds: Sequence[type[Contender]], options: argparse.Namespace) -> Result:
    plan = Plan(workload, case.num_envs, num_workers=min(case.num_envs, usable_cores()))
    policy = make_policy(case.policy, options.torch_threads)
    asked = [with_policy(kind, policy) for kind in (Remuda, PolicyAlone, *kinds)]
    return race([PlainLoop, *asked], plan, seconds=options.seconds, rounds=options.rounds)


def make_policy(name: str, torch_threads: int) -> MakePolicy:
    """The policy of that name: a time on a core, a time elsewhere, or a network."""
    if name == "net":
        return functools.partial(Network, threads=torch_threads)
    where, us = name.split("-")
    seconds = int(us) / 1e6
    if where == "sleep":
        return sleeping(seconds)
    iterations = iterations_for(seconds) if seconds else 0
    return functools.partial(Thinking, spend=lambda share: work(round(iterations * share)))


class Network:
    """The policy of `ppo.py`: an MLP for vectors, a CNN for images."""

    def __init__(self, plan: Plan, threads: int) -> None:
        import ppo
        import torch

        torch.set_num_threads(threads)
        found = probe_spaces(plan.workload)
        self._agent = ppo.Agent(found.observation_space, found.action_space)

    def __call__(self, obs: Any) -> Any:
        return self._agent.act(obs)[0]


# -- what is shown ------------------------------------------------------------------------------------------


def of_bound(result: Result, entry: Entry) -> float | None:
    """The part of the lockstep bound that a contender reached: the median over the rounds."""
    alone = result.entry(PolicyAlone.name)
    if alone is None or entry.error is not None or not entry.turns or not alone.turns:
        return None
    ratios = [rate / bound for rate, bound in zip(entry.rates, lockstep_bound(result, alone), strict=False)]
    return median(ratios) if ratios else None


def markdown(cases: Sequence[Case], results: Sequence[Result], left_out: Iterable[str]) -> Iterator[str]:
    """A row a case: the policy's time, the bound, and which part of it each contender reached."""
    contenders = list(dict.fromkeys(entry.name for result in results for entry in collectors(result)))
    yield from head(["workload", "envs", "policy", "its time, us", "bound, steps/s", *contenders])
    for case, result in zip(cases, results, strict=True):
        alone = result.entry(PolicyAlone.name)
        us, bound = "failed", "failed"
        if alone is not None and alone.turns and alone.steps_per_second:
            us = f"{1e6 * case.num_envs / alone.steps_per_second:.0f}"
            bound = f"{median(lockstep_bound(result, alone)):,.0f}"
        yield row(
            [result.env, str(case.num_envs), case.policy, us, bound, *(cell(result, name) for name in contenders)]
        )
    yield ""
    if results:
        yield conditions(results[0])
    for reason in left_out:
        yield f"\nLeft out: {reason}"
    yield from failures(results)


def cell(result: Result, name: str) -> str:
    entry = result.entry(name)
    return "" if entry is None else report.ratio(of_bound(result, entry)) or "failed"


def collectors(result: Result) -> list[Entry]:
    return [entry for entry in result.entries[1:] if entry.name != PolicyAlone.name]


def conditions(result: Result) -> str:
    return (
        f"{machine.describe()}; {result.cores} cores. Medians of {result.rounds} interleaved rounds, "
        f"{result.seconds:g} s a contender; ratios to the lockstep bound of the same rounds. remuda, remuda-gymnasium "
        "and remuda-sb3 have as many workers as there are cores, those that are split one less."
    )


def to_json(case: Case, result: Result) -> dict[str, Any]:
    """As `report.to_json`, and the bound."""
    alone = result.entry(PolicyAlone.name)
    bounds = lockstep_bound(result, alone) if alone is not None else []
    reached = {entry.name: of_bound(result, entry) for entry in collectors(result)}
    parents = {entry.name: entry.parent_us_a_batch for entry in collectors(result)}
    more = {
        "policy": case.policy,
        "lockstep_bounds": bounds,
        "of_lockstep_bound": reached,
        "parent_us_a_batch": parents,
    }
    return {**report.to_json(result), **more}


if __name__ == "__main__":
    main()
