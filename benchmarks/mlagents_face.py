"""Compares ML-Agents' env manager with ours: steps per second, and the CPU time of the manager's process.

`make mlagents-test` sets up an environment with ML-Agents; run this script with its Python. The envs are written in
Python, without a game, so that only the managers differ.
"""

from __future__ import annotations

import argparse
import time
import warnings
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from harness.options import parse_options
from harness.session import Session
from harness.tables import conditions, table, verdict

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # from outdated packages
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

BEHAVIOR = "agent"
WARM_UP = 20  # the steps of each env before the measurement


@dataclass(frozen=True)
class Workload:
    """The work that an env does in each step.

    Attributes:
        name: The text in the table.
        wait: The seconds that a step sleeps, like a worker that waits for its game's process.
        agents: Number of agents.
        shape: Shape of each agent's observation.
        at_least: Our goal for the ratio to the original's speed. None: no goal.
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
    """An ML-Agents env with one behaviour and episodes that never end."""

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
    """A policy that returns zeros as actions."""

    def get_action(self, steps: DecisionSteps, worker_id: int) -> ActionInfo:
        action = ActionTuple(np.zeros((len(steps), 2), np.float32))
        return ActionInfo(action, action, {}, steps.agent_id.tolist())


CONTENDERS = {"original": original.SubprocessEnvManager, "remuda": SubprocessEnvManager}


Turn = tuple[float, float]
"""Steps per second, and the share of a core that the manager's process used meanwhile."""


def main() -> None:
    options = parse_options(__doc__, workloads=WORKLOADS, seconds=5.0, quick=1.0, rounds=5, more=add_options)
    session = Session(options)
    workloads = [WORKLOADS[name] for name in options.only]
    found = list(session.measured(workloads, lambda workload: measure(workload, session)))
    columns = ["a step", "goal", "remuda : original", "", "steps/s, remuda", "original", "manager's CPU, remuda"]
    lines = [table([*columns, "original"], (row(*one) for one in found))]
    lines.append(
        f"{conditions(options.rounds, options.seconds)} {options.num_envs} envs, each in a worker of its own; the "
        "manager's CPU is in cores."
    )
    session.publish("mlagents_face", lines, ({"workload": asdict(one), "turns": turns} for one, turns in found))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--num-envs", type=int, default=8, help="each in a worker of its own")


def measure(workload: Workload, session: Session) -> dict[str, list[Turn]]:
    with ExitStack() as stack:
        turns = {}
        for name, kind in CONTENDERS.items():
            manager = stack.enter_context(closing(build(kind, workload, session.options.num_envs)))
            turns[name] = partial(take_turn, manager, session.options.seconds / session.options.rounds)
        return session.rounds(workload.name, turns)


def build(kind: Any, workload: Workload, num_envs: int) -> Any:
    manager = kind(partial(SomeEnv, workload), RunOptions(), num_envs)
    manager.set_policy(BEHAVIOR, Policy())
    manager.reset({})
    manager.first_step_infos = []  # no agent managers exist here to process these steps
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
    return steps / elapsed, (time.process_time() - cpu) / elapsed


def row(workload: Workload, turns: dict[str, list[Turn]]) -> list[str]:
    goal, pairs = workload.at_least, zip(turns["remuda"], turns["original"], strict=True)
    ratio = median(ours / original for (ours, _), (original, _) in pairs)
    reached = ["", f"{ratio:.2f}", ""] if goal is None else [f">= {goal:g} x", f"{ratio:.2f}", verdict(goal, ratio)]
    both = turns["remuda"], turns["original"]
    rates = [f"{median(rate for rate, _ in each):,.0f}" for each in both]
    return [workload.name, *reached, *rates, *(f"{median(cpu for _, cpu in each):.0%}" for each in both)]


if __name__ == "__main__":
    main()
