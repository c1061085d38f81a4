"""What `num_workers="auto"` is worth: beside a plain loop, one worker an env, and the parallel envs of the frameworks.

    python benchmarks/auto.py [--quick] [--only cartpole-8,sleep] [--json FILE]

A loop steps the envs and then thinks: not at all, for a fixed amount of work on a core (calibrated once), or as a
policy does, with the network of `ppo.py`, which leaves its own in the caches. "auto" has to choose among the contenders
"all cores", "1 worker" and "caller" without knowing of the policy. All contenders of a workload are built first and
take turns, in another order in every round. A figure is the median, over the rounds, of a contender's speed as a ratio
to that of the plain loop (SyncVectorEnv, DummyVecEnv) in the same round, so a machine that is slow for a while is slow
for all of them. At or above 1 nothing is lost.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TypeAlias

import gymnasium
import numpy as np
from envs import VECTOR, fixed, iterations_for, missing, work
from gymnasium import spaces
from tables import figure, head, row

import remuda
from remuda._system.cores import usable_cores
from remuda.gymnasium import AsyncVectorEnv

THOUGHTS = ("none", "100 us", "300 us", "1000 us", "net")
QUICK = ("none", "net")
_ACTIONS = 64  # batches of them, drawn beforehand

Think: TypeAlias = Callable[[], object]


class SleepingEnv(gymnasium.Env[Any, Any]):
    """Waits for a game server, so to speak."""

    observation_space, action_space = VECTOR, spaces.Discrete(2)

    def __init__(self, seconds: float) -> None:
        self._seconds, self._obs = seconds, np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._obs, {}

    def step(self, action: Any) -> Any:
        time.sleep(self._seconds)
        return self._obs, 1.0, False, False, {}


@dataclass(frozen=True)
class Case:
    """A kind of env, and how many."""

    name: str
    make_env: Callable[[], Any]
    num_envs: int


def cases() -> list[Case]:
    cartpole = functools.partial(gymnasium.make, "CartPole-v1")
    return [
        *(Case(f"cartpole-{n}", cartpole, n) for n in (4, 8, 64)),
        *([] if missing("mujoco") else [Case("cheetah-8", functools.partial(gymnasium.make, "HalfCheetah-v5"), 8)]),
        Case("noop-8", fixed(VECTOR), 8),
        Case("noop-64", fixed(VECTOR), 64),
        Case("work-1ms", fixed(VECTOR, iterations_for(1e-3)), 8),
        Case("sleep-5ms", functools.partial(SleepingEnv, 5e-3), 8),
    ]


# -- who takes part --------------------------------------------------------------------------------------------


class Contender(Protocol):
    """Envs that are stepped together."""

    def reset(self) -> Any: ...
    def step(self, actions: Any) -> Any: ...
    def close(self) -> Any: ...


def of_gymnasium(kind: Callable[..., Any], case: Case) -> Contender:
    envs: Contender = kind([case.make_env] * case.num_envs)
    return envs


def of_sb3(name: str, case: Case) -> Contender:
    import stable_baselines3.common.vec_env as peers

    kind = remuda.sb3.SubprocVecEnv if name == "remuda" else getattr(peers, name)
    more = {"num_workers": "auto", "backend": "auto"} if name == "remuda" else {}
    envs: Contender = kind([case.make_env] * case.num_envs, **more)
    return envs


def of_face(**options: Any) -> Callable[[Case], Contender]:
    return functools.partial(of_gymnasium, functools.partial(AsyncVectorEnv, advise=False, **options))


def of_workers(most: int) -> Callable[[Case], Contender]:
    return lambda case: of_face(num_workers=min(most, case.num_envs))(case)


FAMILIES: dict[str, dict[str, Callable[[Case], Contender]]] = {
    "gymnasium": {
        "loop": functools.partial(of_gymnasium, gymnasium.vector.SyncVectorEnv),
        "auto": of_face(num_workers="auto", backend="auto"),
        "all cores": of_workers(usable_cores()),
        "1 worker": of_workers(1),
        "caller": of_face(num_workers=1, backend="serial"),
        "auto, Pool": functools.partial(of_gymnasium, remuda.Pool),
        "one each": of_face(),
        "peer": functools.partial(of_gymnasium, gymnasium.vector.AsyncVectorEnv),
    },
    "sb3": {
        "loop": functools.partial(of_sb3, "DummyVecEnv"),
        "auto": functools.partial(of_sb3, "remuda"),
        "peer": functools.partial(of_sb3, "SubprocVecEnv"),
    },
}
"""By framework: the first is the plain loop, "peer" is its own parallel env."""


# -- who thinks between their steps ----------------------------------------------------------------------------


def thought(name: str, case: Case) -> Think:
    """What is done between two batches of a case: one of `THOUGHTS`."""
    if name == "none":
        return lambda: None
    if name == "net":
        return _network(case)
    return functools.partial(work, _iterations(name))


@functools.cache
def _iterations(name: str) -> int:
    """Calibrated once, so that all cases think for as long."""
    return iterations_for(float(name.removesuffix(" us")) / 1e6)


def _network(case: Case) -> Think:
    import ppo
    import torch

    torch.set_num_threads(1)
    with closing(case.make_env()) as env:
        agent = ppo.Agent(env.observation_space, env.action_space)
        obs = np.stack([env.observation_space.sample()] * case.num_envs)
    return lambda: agent.act(obs)


# -- the race --------------------------------------------------------------------------------------------------


@dataclass
class Race:
    """What came of one case, one framework and one think time.

    Attributes:
        think: One of `THOUGHTS`.
        chosen: What "auto" says of itself.
        batch_seconds: By contender: of each round, the mean time of a batch, think time included.
    """

    case: str
    family: str
    think: str
    chosen: str
    batch_seconds: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, name: str) -> float:
        """To the plain loop, in speed."""
        pairs = zip(self.batch_seconds["loop"], self.batch_seconds[name], strict=True)
        return median(loop / other for loop, other in pairs)


def race(case: Case, family: str, thoughts: Mapping[str, Think], seconds: float, rounds: int) -> Iterator[Race]:
    """Lets a framework's contenders take turns.

    Args:
        case: What they step.
        family: Of `FAMILIES`.
        thoughts: What is done between two batches, by name.
        seconds: For a turn, about.
        rounds: How many turns each has, for each think time.
    """
    with ExitStack() as stack:
        there: dict[str, Contender] = {}
        for name, make in FAMILIES[family].items():
            there[name] = stack.enter_context(closing(make(case)))
            there[name].reset()
        actions = _actions(case)
        for name_of_thought, think in thoughts.items():
            found = Race(case.name, family, name_of_thought, _chosen(there["auto"]), {name: [] for name in there})
            order = random.Random(0)
            for _ in range(rounds):
                for name in order.sample(list(there), len(there)):
                    found.batch_seconds[name].append(_turn(there[name], actions, think, seconds))
            yield found


def _chosen(envs: Any) -> str:
    return str(envs._pool.choice)


def _actions(case: Case) -> list[Any]:
    with closing(case.make_env()) as env:
        env.action_space.seed(0)
        return [np.stack([env.action_space.sample() for _ in range(case.num_envs)]) for _ in range(_ACTIONS)]


def _turn(envs: Contender, actions: Sequence[Any], think: Think, seconds: float) -> float:
    """Seconds a batch, in the mean. The first batches bring caches and workers to where they would be."""
    for batch in actions[:4]:
        envs.step(batch)
    batches, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        envs.step(actions[batches % len(actions)])
        think()
        batches += 1
    return (time.perf_counter() - begin) / batches


# -- what is printed -------------------------------------------------------------------------------------------


NAMES = list(dict.fromkeys(name for family in FAMILIES.values() for name in family if name != "loop"))


def line(one: Race) -> str:
    ratios = [figure(one.ratio(name)) if name in one.batch_seconds else "" for name in NAMES]
    loop = figure(1e6 * median(one.batch_seconds["loop"]))
    return row([one.case, one.family, one.think, loop, *ratios, one.chosen.split(":")[0]])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter turns, fewer thoughts")
    parser.add_argument("--only", type=lambda text: text.split(","), help="cases that begin with one of these")
    parser.add_argument("--json", type=Path, help="write all rounds there")
    options = parser.parse_args(arguments)
    names = list(QUICK if options.quick else THOUGHTS)
    if importlib.util.find_spec("torch") is None:
        names.remove("net")
        print('left out: the thought "net", as torch is not installed')
    seconds, rounds = (0.08, 5) if options.quick else (0.3, 15)
    races = []
    print("\n".join(head(["envs", "framework", "thought", "loop, us a batch", *NAMES, "auto is"])))
    for case in cases():
        if options.only is None or any(case.name.startswith(start) for start in options.only):
            thoughts = {name: thought(name, case) for name in names}
            for family in FAMILIES:
                for one in race(case, family, thoughts, seconds, rounds):
                    print(line(one), flush=True)
                    races.append(one)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(one) for one in races], indent=1))


if __name__ == "__main__":
    main()
