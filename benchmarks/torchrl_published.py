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
from harness.sleepers import Sleeps
from harness.tables import conditions, failures, rate, table
from peers import PEERS
from peers.remuda_partial import RemudaPartial

from remuda._bench import registry, report
from remuda._bench.contenders import Contender, PlainLoop, Plan, Remuda
from remuda._bench.results import Result
from remuda._system.cores import usable_cores

RESETS = Sleeps("1 ms a step; 200 ms a reset, after 200 steps", (1e-3,) * 200, reset=0.2, episode_steps=200)
PLANS = ("free", "resets")
AGAINST = ("torchrl", "torchrl-async", "remuda-per-env", "gymnasium", "gymnasium-sync")


def main() -> None:
    options = parse_options(__doc__, workloads=PLANS, peers=PEERS, against=AGAINST, seconds=10.0, quick=1.0, rounds=5)
    kinds, left_out = registry.available(options.against, PEERS)
    session = Session(options)
    session.leave_out(left_out)
    found = dict(session.measured(options.only, lambda name: measure(name, kinds, session)))
    session.publish("torchrl", markdown(found), map(report.to_json, found.values()))


def plan_of(name: str) -> Plan:
    if name == "free":
        return Plan(WORKLOADS["null"](), 8, num_workers=min(8, usable_cores()))
    lead_in = 2 * RESETS.reset  # an env's first reset takes up to twice the usual time
    return Plan(RESETS.workload(), 32, 32, min_envs=1, background_resets=True, loops=32, lead_in=lead_in)


def measure(name: str, kinds: Sequence[type[Contender]], session: Session) -> Result:
    ours: type[Contender] = Remuda if name == "free" else RemudaPartial
    # gymnasium-sync would reset the 32 envs one after another, which takes longer than a turn.
    others = [kind for kind in kinds if name == "free" or kind.name != "gymnasium-sync"]
    return session.race([PlainLoop, ours, *others], plan_of(name))


def markdown(found: Mapping[str, Result]) -> Iterator[str]:
    results = list(found.values())
    names = list(dict.fromkeys(entry.name for result in results for entry in result.entries))
    yield from table(["env steps/s", "envs", *names], (row(result, names) for result in results))
    for result in results[:1]:
        yield f"\n{conditions(result.rounds, result.seconds)}"
    yield from failures(results)


def row(result: Result, names: Sequence[str]) -> list[str]:
    entries = [result.entry(name) for name in names]
    return [result.env, str(result.num_envs), *("" if one is None else rate(one.steps_per_second) for one in entries)]


if __name__ == "__main__":
    main()
