"""Races remuda's partial batches against TorchRL's AsyncEnvPool, on the workloads for which TorchRL publishes figures.

    free      8 envs whose steps take no time
    resets    32 envs: 1 ms a step, and 200 ms a reset after every 200 steps

Conditions are equal: each contender has a process for each env, gets the same actions, and resets do not count. remuda
and AsyncEnvPool (`torchrl-shm`, `torchrl-queue`) take all results that are there, at least one (`min_get=1`). The
others wait for all envs: TorchRL's ParallelEnv (`torchrl`), `remuda-1-per-env` and `gymnasium`. Needs torchrl
(`requirements.txt` in this folder). `published/torchrl_envs.py` runs TorchRL's own benchmark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.envs import WORKLOADS
from harness.options import parse_options
from harness.session import Session
from harness.sleepers import SleepLoop, Sleeps, without_resets
from harness.tables import Block, conditions, failures, rate, table
from peers import PEERS, UNEVEN_PEERS, available
from peers.remuda_pools import RemudaPartial, UnevenPlan

from remuda._bench import report
from remuda._bench.contenders import Contender, PlainLoop
from remuda._bench.results import Result

RESETS = Sleeps("1 ms a step; 200 ms a reset, after 200 steps", (1e-3,) * 200, reset=0.2, episode_steps=200)
PLANS = ("free", "resets")
AGAINST = ("torchrl-shm", "torchrl-queue", "torchrl", "remuda-1-per-env", "gymnasium")
KNOWN = PEERS | UNEVEN_PEERS


def main() -> None:
    options = parse_options(__doc__, workloads=PLANS, peers=KNOWN, against=AGAINST, seconds=10.0, quick=4.0, rounds=5)
    kinds, left_out = available(options.against, KNOWN)
    session = Session(options)
    session.leave_out(left_out)
    found = dict(session.measured(options.only, lambda name: measure(name, kinds, session)))
    session.publish("torchrl_pools", markdown(found), map(report.to_json, found.values()))


def measure(name: str, kinds: Sequence[type[Contender]], session: Session) -> Result:
    all_kinds: list[type[Contender]] = [RemudaPartial, *kinds]
    raced = [without_resets(kind) for kind in all_kinds]
    if name == "free":
        return session.race([PlainLoop, *raced], UnevenPlan(WORKLOADS["null"](), 8, num_workers=8))
    plan = UnevenPlan(RESETS.workload(), 32, num_workers=32, background_resets=True)
    lead_in = 2 * RESETS.reset  # an env's first reset takes up to twice the usual time
    return session.race([SleepLoop, *raced], plan, lead_in=lead_in)


def markdown(found: Mapping[str, Result]) -> Iterator[Block]:
    results = list(found.values())
    names = [entry.name for result in results[:1] for entry in result.entries]
    yield table(["env steps/s", "envs", *names], (row(result, names) for result in results))
    for result in results[:1]:
        yield f"{conditions(result.rounds, result.seconds)} A process for each env."
    yield from failures(results)


def row(result: Result, names: Sequence[str]) -> list[str]:
    entries = [result.entry(name) for name in names]
    rates = ["" if one is None else rate(one.steps_per_second) for one in entries]
    return [result.env, str(result.plan.num_envs), *rates]


if __name__ == "__main__":
    main()
