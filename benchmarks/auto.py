"""The worth of `num_workers="auto"`, beside a plain loop, one worker an env, and the frameworks' own parallel envs.

A loop steps the envs and then thinks: not at all, for a fixed amount of work on a core (calibrated once), or with the
network of `harness/ppo.py`, which leaves its own data in the caches. "auto" has to choose among the contenders "all
cores", "1 worker" and "caller" without knowledge of the policy. All contenders of a case are built first and take
turns. A figure is the median, over the rounds, of a contender's speed as a ratio to that of the plain loop
(SyncVectorEnv, DummyVecEnv) in the same round. At or above 1 nothing is lost.
"""

from __future__ import annotations

import functools
import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Protocol, TypeAlias

import gymnasium
import numpy as np
from harness.envs import VECTOR, fixed, iterations_for, missing, work
from harness.options import names, parse_options
from harness.session import Session
from harness.sleepers import SleepingEnv, Sleeps
from harness.tables import figure, table

import remuda
from remuda._system.cores import usable_cores
from remuda.gymnasium import AsyncVectorEnv

THOUGHTS = ("none", "100 us", "300 us", "1000 us", "net")
QUICK = ("none", "net")
_ACTIONS = 64
"""Number of batches of actions that are sampled beforehand."""

Think: TypeAlias = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """A kind of env, and a number of them."""

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
        Case("sleep-5ms", functools.partial(SleepingEnv, Sleeps("5 ms a step", (5e-3,))), 8),
    ]


# -- the contenders --------------------------------------------------------------------------------------------


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
"""The contenders of each framework: first the plain loop, last ("peer") the framework's own parallel env."""
NAMES = list(dict.fromkeys(name for family in FAMILIES.values() for name in family if name != "loop"))


# -- the thoughts between their steps --------------------------------------------------------------------------


def thought(name: str, case: Case) -> Think:
    """The work between two batches: one of `THOUGHTS`."""
    if name == "none":
        return lambda: None
    if name == "net":
        return _network(case)
    return functools.partial(work, iterations_for(float(name.removesuffix(" us")) / 1e6))


def _network(case: Case) -> Think:
    import torch
    from harness import ppo

    torch.set_num_threads(1)
    with closing(case.make_env()) as env:
        agent = ppo.Agent(env.observation_space, env.action_space)
        obs = np.stack([env.observation_space.sample()] * case.num_envs)
    return lambda: agent.act(obs)


# -- the race --------------------------------------------------------------------------------------------------


@dataclass
class Race:
    """The figures of one case, one framework and one think time.

    Attributes:
        think: One of `THOUGHTS`.
        chosen: The choice of "auto", in words.
        batch_seconds: For each contender the mean time of a batch in each round, think time included.
    """

    case: str
    family: str
    think: str
    chosen: str
    batch_seconds: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, name: str) -> float:
        """The contender's speed as a ratio to that of the plain loop."""
        pairs = zip(self.batch_seconds["loop"], self.batch_seconds[name], strict=True)
        return median(loop / other for loop, other in pairs)


def race(case: Case, family: str, thoughts: Mapping[str, Think], session: Session) -> Iterator[Race]:
    """Lets a framework's contenders take turns. Yields a race for each thought.

    Args:
        case: The envs they step.
        family: One of `FAMILIES`.
        thoughts: The work between two batches, by name.
        session: Its ``seconds`` are for each contender and thought, all rounds together.
    """
    seconds = session.options.seconds / session.options.rounds
    with ExitStack() as stack:
        there: dict[str, Contender] = {}
        for name, make in FAMILIES[family].items():
            there[name] = stack.enter_context(closing(make(case)))
            there[name].reset()
        actions = _actions(case)

        def measure(think: str) -> dict[str, list[float]]:
            turns = {
                name: functools.partial(_turn, envs, actions, thoughts[think], seconds) for name, envs in there.items()
            }
            return session.rounds(f"{case.name}, {family}, thought: {think}", turns)

        for think, figures in session.measured(thoughts, measure):
            yield Race(case.name, family, think, _chosen(there["auto"]), figures)


def _chosen(envs: Any) -> str:
    return str(envs._pool.choice)


def _actions(case: Case) -> list[Any]:
    with closing(case.make_env()) as env:
        env.action_space.seed(0)
        return [np.stack([env.action_space.sample() for _ in range(case.num_envs)]) for _ in range(_ACTIONS)]


def _turn(envs: Contender, actions: Sequence[Any], think: Think, seconds: float) -> float:
    """Mean seconds of a batch. The first four batches warm up caches and workers."""
    for batch in actions[:4]:
        envs.step(batch)
    batches, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        envs.step(actions[batches % len(actions)])
        think()
        batches += 1
    return (time.perf_counter() - begin) / batches


def cells(one: Race) -> list[str]:
    ratios = [figure(one.ratio(name)) if name in one.batch_seconds else "" for name in NAMES]
    loop = figure(1e6 * median(one.batch_seconds["loop"]))
    return [one.case, one.family, one.think, loop, *ratios, one.chosen.split(":")[0]]


def main() -> None:
    options = parse_options(
        __doc__,
        seconds=4.5,
        quick=1.2,
        rounds=15,
        more=lambda parser: parser.add_argument("--only", type=names, help="cases that begin with one of these"),
    )
    session, thoughts = Session(options), list(QUICK if options.is_quick else THOUGHTS)
    if importlib.util.find_spec("torch") is None:
        thoughts.remove("net")
        session.leave_out(['the thought "net": torch is not installed'])
    races = []
    for case in cases():
        if options.only is None or any(case.name.startswith(start) for start in options.only):
            thinks = {name: thought(name, case) for name in thoughts}
            races += [one for family in FAMILIES for one in race(case, family, thinks, session)]
    columns = ["envs", "framework", "thought", "loop, us a batch", *NAMES, "auto is"]
    session.publish("auto", table(columns, map(cells, races)), map(asdict, races))


if __name__ == "__main__":
    main()
