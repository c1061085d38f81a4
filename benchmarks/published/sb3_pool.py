"""Races the pool that was proposed for Stable-Baselines3, unedited, against remuda's SubprocVecEnv.

The source is `stable_baselines3/common/vec_env/pool_vec_env.py` of pull request 2204 to DLR-RM/stable-baselines3, at
the commit in `SOURCE`. Like the author's table, this race has CartPole and HumanoidStandup with up to 128 envs, and its
figures are the steps of all envs a second. The author's script was not published, so the loop is that of the other
benchmarks here.

`PoolVecEnv` and `remuda-sb3` have a worker for each core; SB3's `SubprocVecEnv` (`sb3`) and `remuda-sb3-1-per-env` one
for each env; SB3's `DummyVecEnv` (`sb3-dummy`) has none. All workers are forked, because 128 that import PyTorch need
more memory than most machines have. Envs, seeds and actions are equal. All contenders but `remuda` (the pool itself)
reset within the step that ends an episode. The whole run takes ten minutes.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import fetched
import gymnasium
from fetched import Source
from harness.options import numbers, parse_options
from harness.session import Session
from harness.tables import Block, conditions, failures, figure, rate, table, verdict
from peers import PEERS, available

from remuda._bench import report
from remuda._bench.contenders import Contender, PlainLoop, Plan, Remuda, Sb3
from remuda._bench.results import Result, paired_ratio
from remuda._bench.workloads import Workload
from remuda._system.cores import usable_cores

SOURCE = Source(
    "DLR-RM/stable-baselines3",
    "ec56c4327f0eb9f23ac4e7b0bb86ad8f546dddc8",
    "stable_baselines3/common/vec_env/pool_vec_env.py",
    "8b87925f7ec8e735583cd2bfe7a4df2c91797e79339561542d7a2590143dfcc0",
)
NAMES = ("CartPole-v1", "HumanoidStandup-v5")
AGAINST = ("sb3-pool", "sb3", "sb3-dummy", "remuda-sb3", "remuda-sb3-1-per-env")


class PoolVecEnv(Sb3):
    """The proposed `PoolVecEnv`, with a worker for each core."""

    name = "sb3-pool"
    path: ClassVar[Path]

    def make(self) -> Any:
        make = fetched.import_file(self.path).PoolVecEnv
        return make(self.plan.env_fns, num_worker=self.plan.num_workers, start_method=self.plan.start_method)


KNOWN: dict[str, type[Contender]] = {**PEERS, PoolVecEnv.name: PoolVecEnv}


def main() -> None:
    options = parse_options(
        __doc__, workloads=NAMES, peers=KNOWN, against=AGAINST, seconds=10.0, quick=2.0, rounds=5, more=add_options
    )
    PoolVecEnv.path = SOURCE.fetch(options.source)
    session = Session(options)
    kinds, left_out = available(options.against, KNOWN)
    session.leave_out([*left_out, *filter(None, map(missing, options.only))])
    cases = [(name, num) for name in options.only if missing(name) is None for num in options.num_envs]
    found = [result for _, result in session.measured(cases, lambda case: measure(*case, kinds, session))]
    session.publish("published/sb3_pool", markdown(found), map(report.to_json, found))


def add_options(parser: argparse.ArgumentParser) -> None:
    SOURCE.add_option(parser)
    parser.add_argument("--num-envs", type=numbers, default=[8, 32, 128], help="(default: 8,32,128)")


def missing(name: str) -> str | None:
    is_missing = name.startswith("Humanoid") and importlib.util.find_spec("mujoco") is None
    return f'{name}: pip install "gymnasium[mujoco]"' if is_missing else None


def measure(name: str, num_envs: int, kinds: Sequence[type[Contender]], session: Session) -> Result:
    workload = Workload(name, lambda: gymnasium.make(name))
    plan = Plan(workload, num_envs, min(num_envs, usable_cores()), start_method="fork")
    return session.race([PlainLoop, Remuda, *kinds], plan)


def markdown(found: Sequence[Result]) -> Iterator[Block]:
    for first in found[:1]:
        names = [entry.name for entry in first.entries]
        yield table(["env steps/s", "envs", *names, "remuda-sb3 : sb3-pool", ""], (row(one, names) for one in found))
        yield conditions(first.rounds, first.seconds)
    yield from failures(found)


def row(result: Result, names: Sequence[str]) -> list[str]:
    entries = [result.entry(name) for name in names]
    ours, theirs = result.entry("remuda-sb3"), result.entry(PoolVecEnv.name)
    ratio = None if ours is None or theirs is None else paired_ratio(ours, theirs)
    rates = ["" if one is None else rate(one.steps_per_second) for one in entries]
    return [result.env, str(result.plan.num_envs), *rates, figure(ratio), verdict(1.0, ratio)]


if __name__ == "__main__":
    main()
