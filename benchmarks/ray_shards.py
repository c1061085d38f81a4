"""Measures the cost of a Ray cluster: steps and rollouts over shards on this machine, compared with other systems.

    python benchmarks/ray_shards.py            takes some minutes; with --quick one minute
    python benchmarks/ray_shards.py --readme   puts the table into README.md beside this file

The cluster has two nodes on this machine, so all contenders share the same cores. A ratio is the median of the rounds'
ratios. Bare vectorised actors are 40 lines of Ray around Gymnasium's `SyncVectorEnv`, without faults, seeds or infos.
Steps of 20 ms are also raced with two bare actors that take as long and return their message, which shows Ray's own
cost. tianshou's RayVectorEnv and RLlib's env runners are raced if they are installed. `--json FILE` keeps the figures
of earlier runs, because the machine may be quiet for one race at a time only.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import numpy as np
import ray
from harness.envs import IMAGE, NullEnv
from harness.options import parse_options
from harness.session import Session
from harness.tables import figure, table
from ray.cluster_utils import Cluster
from ray_contenders import (
    Race,
    bare_actors,
    bare_rollouts,
    bare_steps,
    burn,
    collecting,
    missing,
    rllibs,
    rolling,
    stepping,
    tianshous,
)

import remuda

SHARDS = remuda.Ray(shards=2)
IN_ACTORS = remuda.Ray(shards=2, backend="serial")
BARE = "bare vectorised actors"
STORE = 600 * 1024 * 1024
STEPS = 128
"""Steps of a rollout."""
PAUSE = 0.02
"""The seconds of a step of `Sleeper` and `Computer`."""


class Sleeper(NullEnv):
    """An env that sleeps for 20 ms in each step."""

    def step(self, action: Any) -> Any:
        time.sleep(PAUSE)
        return super().step(action)


class Computer(NullEnv):
    """An env that computes for 20 ms in each step."""

    def step(self, action: Any) -> Any:
        burn(PAUSE)
        return super().step(action)


class Pictures(NullEnv):
    """An env with observations of 28 kB and steps that return at once."""

    observation_space = IMAGE


def cartpole() -> Any:
    return gymnasium.make("CartPole-v1")


def lean(obs: Any) -> Any:
    """A policy for CartPole that pushes to the side to which the pole leans."""
    return (obs[:, 2] > 0).astype(np.int64)


def left(obs: Any) -> Any:
    return np.zeros(len(obs), np.int64)


# -- the races ------------------------------------------------------------------------------------------------

Make = Callable[[ExitStack], Race]


@dataclass(frozen=True)
class Pairing:
    """A race of two contenders on a workload.

    Attributes:
        what: The workload.
        other_name: Name of the contender that we are compared with.
        goal: The least ratio of our rate to the other's that meets the goal. None: no goal.
        ours, other: The functions that make the contenders.
        bare: The function that makes bare actors. None: they are not raced.
    """

    what: str
    other_name: str
    goal: float | None
    ours: Make
    other: Make
    bare: Make | None = None

    @property
    def name(self) -> str:
        return f"{self.what}, against {self.other_name}"


@dataclass(frozen=True)
class Figure:
    """The result of racing a `Pairing`.

    Attributes:
        what, other_name, goal: As in `Pairing`.
        ours, other: Env steps a second of the two contenders.
        ratio: The median of the rounds' ratios.
        bare: The share of the other's rate that two bare actors reach. None: not raced.
        load: The machine's load average before the race.
    """

    what: str
    other_name: str
    ours: float
    other: float
    ratio: float
    goal: float | None
    bare: float | None = None
    load: float | None = None


def pairings() -> Iterator[Pairing]:
    many, pictures = [cartpole] * 64, [Pictures] * 32
    rollouts, steps = f"rollouts of {STEPS} steps", partial(stepping, policy=lean, backend=IN_ACTORS)
    same: dict[str, Any] = {"env_fns": many, "policy": lean, "steps": STEPS}
    roll, collect = partial(rolling, backend=IN_ACTORS, **same), partial(collecting, **same)
    yield Pairing(f"{rollouts}, 64 CartPoles", "processes", 0.9, roll, collect)
    local = partial(stepping, env_fns=many, policy=lean, num_workers=2)
    yield Pairing("steps, 64 CartPoles", "processes", None, partial(steps, env_fns=many), local)
    same = {"env_fns": pictures, "policy": left, "steps": STEPS}
    images = partial(rolling, backend=IN_ACTORS, **same), partial(collecting, **same)
    yield Pairing(f"{rollouts}, 32 envs of 28 kB", "processes", None, *images)
    yield from against_bare_actors(many)
    same = {"env_fns": pictures, "policy": left, "steps": STEPS}
    images = partial(rolling, backend=IN_ACTORS, **same), partial(bare_rollouts, **same)
    yield Pairing(f"{rollouts}, 32 envs of 28 kB", BARE, 1.0, *images)
    yield with_slow_envs("steps of 20 ms, 8 envs", Sleeper, "sleep", PAUSE)
    yield with_slow_envs("steps that compute for 20 ms, 8 envs", Computer, "compute", 4 * PAUSE)
    for count in (16, 64):
        some = [cartpole] * count
        ours, other = partial(steps, env_fns=some), partial(tianshous, env_fns=some)
        yield Pairing(f"steps, {count} CartPoles", "tianshou's RayVectorEnv", 5.0, ours, other)
    runners = partial(rllibs, num_envs=64, num_steps=STEPS)
    yield Pairing(f"{rollouts}, 64 CartPoles", "RLlib's env runners", None, roll, runners)


def against_bare_actors(env_fns: list[Any]) -> Iterator[Pairing]:
    """Yields the races against bare vectorised actors: steps, and rollouts with 2 to 16 shards and a 1 MB policy."""
    same: dict[str, Any] = {"env_fns": env_fns, "policy": lean}
    yield Pairing(
        "steps, 64 CartPoles", BARE, 0.9, partial(stepping, backend=IN_ACTORS, **same), partial(bare_steps, **same)
    )
    for shards in (2, 4, 16):
        for publishes in (False, True):
            same = {"env_fns": env_fns, "policy": Heavy(), "steps": STEPS, "publishes": publishes}
            where = remuda.Ray(shards=shards, backend="serial")
            which = f"rollouts of {STEPS} steps, 64 CartPoles, {shards} shards{', a publish after each' * publishes}"
            yield Pairing(
                which, BARE, 1.0, partial(rolling, backend=where, **same), partial(bare_rollouts, shards=shards, **same)
            )


class Heavy:
    """The policy `lean` with weights of 1 MB."""

    def __init__(self) -> None:
        self.weights = np.zeros(1 << 18, np.float32)

    def __call__(self, obs: Any) -> Any:
        return lean(obs)


def with_slow_envs(what: str, env_fn: Any, method: str, seconds: float) -> Pairing:
    """Returns a race with 8 envs, one in each worker. Each call of a bare actor runs ``method`` for ``seconds``."""
    make = partial(stepping, env_fns=[env_fn] * 8, policy=left, num_workers=None)
    bare = partial(bare_actors, method=method, seconds=seconds, num_envs=8)
    return Pairing(what, "processes", 0.95, partial(make, backend=SHARDS), make, bare)


def race(pairing: Pairing, session: Session) -> Figure:
    load, seconds = os.getloadavg()[0], session.options.seconds / session.options.rounds
    with ExitStack() as stack:
        makers = {"ours": pairing.ours, "other": pairing.other, "bare": pairing.bare}
        contenders = {name: make(stack) for name, make in makers.items() if make is not None}
        for contender in contenders.values():
            contender(seconds / 2)
        turns = {name: partial(contender, seconds) for name, contender in contenders.items()}
        rates = session.rounds(pairing.name, turns)
    ratios = {name: [a / b for a, b in zip(each, rates["other"], strict=True)] for name, each in rates.items()}
    bare = median(ratios["bare"]) if "bare" in ratios else None
    medians = median(rates["ours"]), median(rates["other"]), median(ratios["ours"])
    return Figure(pairing.what, pairing.other_name, *medians, pairing.goal, bare, load)


def row(one: Figure) -> list[str]:
    goal = "" if one.goal is None else f"{one.goal:g}, {'met' if one.ratio >= one.goal else 'missed'}"
    rates = [f"{one.ours:,.0f}", one.other_name, f"{one.other:,.0f}"]
    return [one.what, *rates, figure(one.ratio), goal, figure(one.bare), figure(one.load)]


def kept(path: Path | None) -> dict[str, Figure]:
    """Reads the figures of earlier runs. Returns them by the name of their pairing."""
    if path is None or not path.exists():
        return {}
    figures = [Figure(**one) for one in json.loads(path.read_text())]
    return {f"{one.what}, against {one.other_name}": one for one in figures}


@contextmanager
def cluster() -> Iterator[None]:
    """Starts a Ray cluster of two nodes on this machine, and connects to it."""
    os.environ.setdefault("RAY_worker_register_timeout_seconds", "900")  # tianshou's actors take minutes to start
    node = {"num_cpus": 128, "object_store_memory": STORE}
    two = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        two.add_node(**node)
        ray.init(address=two.address, log_to_driver=False, logging_level="ERROR")
        yield
    finally:
        ray.shutdown()
        two.shutdown()


def chosen(session: Session) -> Iterator[Pairing]:
    absent = missing()
    session.leave_out(f"{name} is not installed" for name in absent)
    for pairing in pairings():
        if session.options.only in pairing.name and pairing.other_name not in absent:
            yield pairing


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", help="pairings whose name has this in it: tianshou, '20 ms', ...")


def main() -> None:
    options = parse_options(__doc__, seconds=20.0, quick=5.0, rounds=5, more=add_options)
    session, figures = Session(options), kept(options.json)
    with cluster():
        found = session.measured(chosen(session), lambda pairing: race(pairing, session))
        figures |= {pairing.name: one for pairing, one in found}
    ordered = [figures[pairing.name] for pairing in pairings() if pairing.name in figures]
    columns = ["over Ray, two shards", "env steps/s", "against", "env steps/s", "ratio", "goal", "bare actors", "load"]
    session.publish("ray_shards", [table(columns, map(row, ordered))], map(asdict, ordered))


if __name__ == "__main__":
    main()
