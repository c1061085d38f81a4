"""Runs Gymnasium's own benchmark of vector envs, `benchmark_vector_step`, with remuda's class beside Gymnasium's.

The source is Gymnasium 1.4 (Farama-Foundation/Gymnasium, release v1.4.0), `gymnasium/utils/performance.py`. The
function is called as it is installed. It steps with random actions, and does not count resets. A turn is one call.

`AsyncVectorEnv` and `remuda-1-per-env` have a worker for each env; `remuda` has one for each core. Envs, seeds and
options are equal. The whole run takes about four minutes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeAlias

from fetched import Rates, cells, columns
from gymnasium.utils import performance
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from harness.envs import WORKLOADS, missing
from harness.options import parse_options
from harness.session import Session
from harness.tables import Block, conditions, table

import remuda.gymnasium
from remuda._system.cores import usable_cores

CONTENDERS: dict[str, Callable[..., Any]] = {
    "AsyncVectorEnv": AsyncVectorEnv,
    "SyncVectorEnv": SyncVectorEnv,
    "remuda-1-per-env": functools.partial(remuda.gymnasium.AsyncVectorEnv, log_advice=False),
    "remuda": functools.partial(remuda.gymnasium.AsyncVectorEnv, num_workers=usable_cores(), log_advice=False),
}


@dataclass(frozen=True)
class Case:
    workload: str
    num_envs: int


CASES = (Case("cartpole", 8), Case("cartpole", 64), Case("mujoco", 8))
Found: TypeAlias = "list[tuple[Case, Rates]]"


def main() -> None:
    names = list(dict.fromkeys(case.workload for case in CASES))
    options = parse_options(__doc__, workloads=names, seconds=25.0, quick=5.0, rounds=5)
    session = Session(options)
    session.leave_out(map(missing, options.only))
    cases = [case for case in CASES if case.workload in options.only and missing(case.workload) is None]
    found: Found = list(session.measured(cases, lambda case: measure(case, session)))
    session.publish("published/gymnasium_vector_step", markdown(found, session), (rates for _, rates in found))


def measure(case: Case, session: Session) -> Rates:
    env_fns = [WORKLOADS[case.workload]().make_env] * case.num_envs
    seconds = session.options.seconds / session.options.rounds
    turns = {name: functools.partial(turn, make, env_fns, seconds) for name, make in CONTENDERS.items()}
    return session.rounds(f"{case.workload}, {case.num_envs} envs", turns)


def turn(make: Callable[..., Any], env_fns: Iterable[Any], seconds: float) -> float:
    """Returns the steps a second that `benchmark_vector_step` reports."""
    with closing(make(env_fns)) as envs:
        return performance.benchmark_vector_step(envs, target_duration=seconds, seed=0)  # type: ignore[arg-type]


def markdown(found: Found, session: Session) -> Iterator[Block]:
    for _, first in found[:1]:
        rows = ([WORKLOADS[case.workload]().name, str(case.num_envs), *cells(rates)] for case, rates in found)
        yield table(["env steps/s", "envs", *columns(first)], rows)
        yield conditions(session.options.rounds, session.options.seconds)


if __name__ == "__main__":
    main()
