"""ML-Agents' env manager and ours, side by side: steps per second, and what the manager's process spends on them.

Needs ML-Agents: `make mlagents-test` sets up an environment with it, whose Python runs this. Both managers are built
first and take turns. What they step is not a game but Python, so that nothing but the managers differs.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from script import names, publish
from tables import head, row, verdict

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages of those days
    from mlagents.trainers import subprocess_env_manager as original
    from mlagents.trainers.action_info import ActionInfo
    from mlagents.trainers.settings import RunOptions
    from mlagents_envs.base_env import (
        ActionSpec,
        ActionTuple,
        BaseEnv,
        BehaviorMapping,
        BehaviorSpec,
        DecisionSteps,
        DimensionProperty,
        ObservationSpec,
        ObservationType,
        TerminalSteps,
    )

    from remuda.mlagents import SubprocessEnvManager

from remuda._system import machine

BEHAVIOR = "agent"
WARM_UP = 20  # steps of each env


@dataclass(frozen=True)
class Workload:
    """What an env does in a step.

    Attributes:
        name: What the table says.
        wait: Seconds for which it sleeps, as a worker does whose game computes in a process of its own.
        agents: How many there are.
        shape: Of what each of them sees.
        at_least: The ratio that is our goal; ``None``: there is none.
    """

    name: str
    wait: float = 0.0
    agents: int = 1
    shape: tuple[int, ...] = (8,)
    at_least: float | None = None


WORKLOADS = {
    "nothing": Workload("nothing: a step returns at once", at_least=2.0),
    "wait": Workload("1 ms in another process", wait=1e-3),
    "slow": Workload("20 ms in another process", wait=20e-3),
    "crowd": Workload("32 agents, at once", agents=32),
    "picture": Workload("4 agents that see (84, 84, 3) float32, at once", agents=4, shape=(84, 84, 3)),
}


class SomeEnv(BaseEnv):
    """Has one behaviour, whose agents never end."""

    academy_capabilities = None

    def __init__(self, workload: Workload, worker_id: int, side_channels: list[Any]) -> None:
        super().__init__()
        self._workload = workload
        unspecified = (DimensionProperty.UNSPECIFIED,) * len(workload.shape)
        seen = ObservationSpec(workload.shape, unspecified, ObservationType.DEFAULT, "seen")
        self._spec = BehaviorSpec([seen], ActionSpec(2, ()))
        self._obs = np.ones((workload.agents, *workload.shape), np.float32)

    @property
    def behavior_specs(self) -> BehaviorMapping:
        return BehaviorMapping({BEHAVIOR: self._spec})

    def reset(self) -> None:
        pass

    def step(self) -> None:
        if self._workload.wait:
            time.sleep(self._workload.wait)

    def get_steps(self, behavior_name: str) -> tuple[DecisionSteps, TerminalSteps]:
        n = self._workload.agents
        zeros, ids = np.zeros(n, np.float32), np.arange(n, dtype=np.int32)
        going = DecisionSteps([self._obs], zeros, ids, None, np.zeros(n, np.int32), zeros)
        return going, TerminalSteps.empty(self._spec)

    def set_actions(self, behavior_name: str, action: Any) -> None:
        pass

    def set_action_for_agent(self, behavior_name: str, agent_id: int, action: Any) -> None:
        pass

    def close(self) -> None:
        pass


class Policy:
    """Costs nothing worth mentioning."""

    def get_action(self, steps: DecisionSteps, worker_id: int) -> ActionInfo:
        action = ActionTuple(np.zeros((len(steps), 2), np.float32))
        return ActionInfo(action, action, {}, steps.agent_id.tolist())


CONTENDERS = {"original": original.SubprocessEnvManager, "remuda": SubprocessEnvManager}


@dataclass(frozen=True)
class Turn:
    """Steps per second, and the share of a core that the manager's process took meanwhile."""

    rate: float
    cpu: float


@dataclass(frozen=True)
class Result:
    """The turns of both contenders, round by round."""

    workload: Workload
    turns: dict[str, list[Turn]]

    @property
    def ratio(self) -> float:
        pairs = zip(self.turns["remuda"], self.turns["original"], strict=True)
        return median(ours.rate / theirs.rate for ours, theirs in pairs)


def main() -> None:
    options = parse_options()
    results = [measure(WORKLOADS[name], options) for name in options.only]
    publish("mlagents", markdown(results, options), map(asdict, results), options)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 s a contender instead of 5 s")
    parser.add_argument("--only", type=names, default=list(WORKLOADS), help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--num-envs", type=int, default=8, help="each in a worker of its own")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--json", type=Path, help="write every round's figures here")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md beside this file")
    options = parser.parse_args()
    if unknown := [name for name in options.only if name not in WORKLOADS]:
        parser.error(f"expected --only to name {', '.join(WORKLOADS)}, got {', '.join(unknown)}")
    options.seconds = (1.0 if options.quick else 5.0) / options.rounds
    return options


def measure(workload: Workload, options: argparse.Namespace) -> Result:
    print(f"{workload.name} ...", file=sys.stderr, flush=True)
    managers = {name: build(kind, workload, options.num_envs) for name, kind in CONTENDERS.items()}
    turns: dict[str, list[Turn]] = {name: [] for name in managers}
    try:
        for _ in range(options.rounds):
            for name, manager in managers.items():
                turns[name].append(take_turn(manager, options.seconds))
    finally:
        for manager in managers.values():
            manager.close()
    return Result(workload, turns)


def build(kind: Any, workload: Workload, num_envs: int) -> Any:
    manager = kind(partial(SomeEnv, workload), RunOptions(), num_envs)
    manager.set_policy(BEHAVIOR, Policy())
    manager.reset({})
    manager.first_step_infos = []  # there are no agent managers that would care
    step(manager, WARM_UP * num_envs)
    return manager


def step(manager: Any, count: int) -> None:
    while count > 0:
        count -= len(manager.get_steps())


def take_turn(manager: Any, seconds: float) -> Turn:
    steps, cpu, begin = 0, time.process_time(), time.perf_counter()
    while time.perf_counter() < begin + seconds:
        steps += len(manager.get_steps())
    elapsed = time.perf_counter() - begin
    return Turn(steps / elapsed, (time.process_time() - cpu) / elapsed)


def markdown(results: Iterable[Result], options: argparse.Namespace) -> Iterator[str]:
    columns = ["a step", "goal", "remuda : original", "", "steps/s, remuda", "original", "manager's CPU, remuda"]
    yield from head([*columns, "original"])
    for result in results:
        goal, ratio = result.workload.at_least, result.ratio
        turns = [result.turns[name] for name in ("remuda", "original")]
        rates = [f"{median(turn.rate for turn in each):,.0f}" for each in turns]
        shares = [f"{median(turn.cpu for turn in each):.0%}" for each in turns]
        told = ["", f"{ratio:.2f}", ""] if goal is None else [f">= {goal:g} x", f"{ratio:.2f}", verdict(goal, ratio)]
        yield row([result.workload.name, *told, *rates, *shares])
    yield ""
    yield (
        f"{options.num_envs} envs, each in a worker of its own, on {machine.describe()}. Medians of {options.rounds} "
        f"interleaved rounds, {options.seconds * options.rounds:g} s a contender; the manager's CPU is in cores."
    )


if __name__ == "__main__":
    main()
