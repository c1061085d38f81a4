"""Races contenders on the two workloads for which TorchRL publishes figures of its AsyncEnvPool.

    free      8 envs whose steps take no time
    resets    32 envs: 1 ms a step, and 200 ms a reset after every 200 steps

Both workloads count env steps without resets; TorchRL measures "free" in batches of 1024 transitions. Needs torchrl
(`requirements.txt` in this folder).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.envs import WORKLOADS
from harness.options import parse_options
from harness.session import Session
from harness.sleepers import SleepLoop, Sleeps, without_resets
from harness.tables import Block, conditions, failures, rate, table
from peers import PEERS, available
from peers.remuda_pools import RemudaPartial, UnevenPlan

from remuda._bench import report
from remuda._bench.contenders import Contender, PlainLoop, Plan, Remuda
from remuda._bench.results import Result
from remuda._system.cores import usable_cores

RESETS = Sleeps("1 ms a step; 200 ms a reset, after 200 steps", (1e-3,) * 200, reset=0.2, episode_steps=200)
PLANS = ("free", "resets")
AGAINST = ("torchrl", "remuda-1-per-env", "gymnasium", "gymnasium-sync")


def main() -> None:
    options = parse_options(__doc__, workloads=PLANS, peers=PEERS, against=AGAINST, seconds=10.0, quick=1.0, rounds=5)
    kinds, left_out = available(options.against)
    session = Session(options)
    session.leave_out(left_out)
    found = dict(session.measured(options.only, lambda name: measure(name, kinds, session)))
    session.publish("torchrl_pools", markdown(found), map(report.to_json, found.values()))


def measure(name: str, kinds: Sequence[type[Contender]], session: Session) -> Result:
    if name == "free":
        plan = Plan(WORKLOADS["null"](), 8, num_workers=min(8, usable_cores()))
        return session.race([PlainLoop, Remuda, *kinds], plan)
    # gymnasium-sync would reset the 32 envs one after another, which takes longer than a turn.
    others = [kind for kind in kinds if kind.name != "gymnasium-sync"]
    plan = UnevenPlan(RESETS.workload(), 32, 32, background_resets=True)
    lead_in = 2 * RESETS.reset  # an env's first reset takes up to twice the usual time
    return session.race([SleepLoop, *map(without_resets, [RemudaPartial, *others])], plan, lead_in=lead_in)


def markdown(found: Mapping[str, Result]) -> Iterator[Block]:
    results = list(found.values())
    names = list(dict.fromkeys(entry.name for result in results for entry in result.entries))
    yield table(["env steps/s", "envs", *names], (row(result, names) for result in results))
    for result in results[:1]:
        yield conditions(result.rounds, result.seconds)
    yield from failures(results)


def row(result: Result, names: Sequence[str]) -> list[str]:
    entries = [result.entry(name) for name in names]
    rates = ["" if one is None else rate(one.steps_per_second) for one in entries]
    return [result.env, str(result.plan.num_envs), *rates]


if __name__ == "__main__":
    main()
