"""The two workloads that TorchRL publishes figures of its AsyncEnvPool for, raced in one run.

    free      8 envs whose steps take no time
    resets    32 envs: 1 ms a step, and 200 ms a reset after every 200 steps; who can goes on with those that are done

Both count env steps, resets not; TorchRL's own count of the first is in batches of 1024 transitions. Needs torchrl
(`requirements.txt` beside this).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence

from envs import workloads
from peers import PEERS
from peers.remuda_partial import RemudaPartial
from script import parse_options, publish
from sleepers import Sleeps
from tables import failures, head, row

from remuda._bench import registry, report
from remuda._bench.contenders import PlainLoop, Plan, Remuda
from remuda._bench.results import Entry, Result
from remuda._bench.rounds import race
from remuda._system import machine
from remuda._system.cores import usable_cores

RESETS = Sleeps("1 ms a step; 200 ms a reset, after 200 steps", (1e-3,) * 200, reset=0.2, episode_steps=200)
PLANS = ("free", "resets")
AGAINST = ("torchrl", "torchrl-async", "remuda-per-env", "gymnasium", "gymnasium-sync")


def plan_of(name: str) -> Plan:
    if name == "free":
        return Plan(workloads(["null"])["null"], 8, num_workers=min(8, usable_cores()))
    lead_in = 2 * RESETS.reset  # the first reset takes up to twice as long
    return Plan(RESETS.workload(), 32, 32, min_envs=1, background_resets=True, loops=32, lead_in=lead_in)


def main() -> None:
    options = parse_options(__doc__, workloads=PLANS, peers=PEERS, against=AGAINST, seconds=10.0, quick=1.0)
    kinds, left_out = registry.available(options.against, PEERS)
    for reason in left_out:
        print(f"left out: {reason}", file=sys.stderr)
    results = {name: measure(name, kinds, options) for name in options.only}
    publish("torchrl", markdown(results), map(report.to_json, results.values()), options)


def measure(name: str, kinds: Sequence[type], options: argparse.Namespace) -> Result:
    print(f"{name} ...", file=sys.stderr, flush=True)
    ours = Remuda if name == "free" else RemudaPartial
    # One after another, 32 envs would sleep for a whole turn before the first has stepped.
    others = [kind for kind in kinds if name == "free" or kind.name != "gymnasium-sync"]
    return race([PlainLoop, ours, *others], plan_of(name), seconds=options.seconds, rounds=options.rounds)


def markdown(results: Mapping[str, Result]) -> Iterator[str]:
    names = list(dict.fromkeys(entry.name for result in results.values() for entry in result.entries))
    yield from head(["env steps/s", "envs", *names])
    for result in results.values():
        yield row([result.env, str(result.num_envs), *(cell(result.entry(name)) for name in names)])
    yield ""
    for result in list(results.values())[:1]:
        yield (
            f"{machine.describe()}; {result.cores} cores. Medians of {result.rounds} interleaved rounds, "
            f"{result.seconds:g} s a contender."
        )
    yield from failures(results.values())


def cell(entry: Entry | None) -> str:
    if entry is None:
        return ""
    return "failed" if entry.error is not None or entry.steps_per_second is None else f"{entry.steps_per_second:,.0f}"


if __name__ == "__main__":
    main()
