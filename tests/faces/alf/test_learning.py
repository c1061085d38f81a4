"""A learner on the ALF face keeps learning, and can be evaluated, while workers are killed at random."""

from __future__ import annotations

import os
import signal
from typing import Any

import alf
import numpy as np
import pytest
import torch
from alf.data_structures import StepType, TimeStep
from alf.environments.alf_environment import AlfEnvironment
from alf.tensor_specs import BoundedTensorSpec, TensorSpec

from remuda import FaultPolicy
from remuda.alf import FastParallelEnvironment

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

ENVS = 4
UNROLL = 24


class CorridorAlfEnv(AlfEnvironment):  # type: ignore[misc]  # ALF has no types
    """A walker in a corridor with the prize at one end and a hole at the other. It observes which end has the prize."""

    def __init__(self, env_id: int) -> None:
        super().__init__()
        self._env_id, self._random = env_id, np.random.default_rng(env_id)
        self._is_over = True

    def seed(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def observation_spec(self) -> Any:
        return TensorSpec((2,))

    def action_spec(self) -> Any:
        return BoundedTensorSpec((), torch.int64, 0, 1)

    def env_info_spec(self) -> Any:
        return {}

    def _reset(self) -> Any:
        self._place, self._prize = 0.0, self._random.choice([-1.0, 1.0])
        return self._make_time_step(StepType.FIRST, 0, 0.0)

    def _step(self, action: Any) -> Any:
        if self._is_over:
            return self.reset()
        self._place += 0.5 if action else -0.5
        if abs(self._place) < 1.0:
            return self._make_time_step(StepType.MID, action, 0.0)
        return self._make_time_step(StepType.LAST, action, 1.0 if self._place == self._prize else -1.0)

    def _make_time_step(self, step_type: Any, action: Any, reward: float) -> TimeStep:
        self._is_over = step_type == StepType.LAST
        return TimeStep(
            step_type=step_type,
            reward=np.float32(reward),
            discount=np.float32(not self._is_over),
            observation=np.array([self._place, self._prize], np.float32),
            prev_action=np.int64(action),
            env_id=np.int32(self._env_id),
        )


class Killer:
    """Kills a random worker in some calls, chosen by a seeded generator."""

    def __init__(self, envs: FastParallelEnvironment) -> None:
        self._envs, self._random = envs, np.random.default_rng(3)
        self.kills = 0

    def maybe_kill(self) -> None:
        worker = self._envs.processes[self._random.integers(ENVS)]
        if self._random.random() < 0.015 and worker.is_alive():
            os.kill(worker.pid, signal.SIGKILL)
            self.kills += 1


class Unroll:
    """A sequence of time steps and the actions between them."""

    def __init__(self, envs: FastParallelEnvironment, policy: Any, killer: Killer, *, greedy: bool = False) -> None:
        self.returns: list[float] = []  # only those of episodes that were not cut off
        self.cut_off = 0
        self.observations, self.actions, self.steps = [], [], [envs.current_time_step()]
        for _ in range(UNROLL):
            logits = policy(self.steps[-1].observation).detach()
            action = logits.argmax(-1) if greedy else torch.distributions.Categorical(logits=logits).sample()
            killer.maybe_kill()
            step = alf.nest.map_structure(torch.clone, envs.step(action))
            self.observations.append(self.steps[-1].observation)
            self.actions.append(action)
            self.steps.append(step)
            over = [i for i in range(ENVS) if step.step_type[i] == StepType.LAST]
            self.returns += [float(step.reward[i]) for i in over if i not in envs.faults]
            self.cut_off += len(envs.faults)

    def loss(self, policy: Any) -> Any:
        """The loss of REINFORCE. A FIRST step is left out, because the policy did not choose it."""
        gains, gain = [], torch.zeros(ENVS)
        for step in reversed(self.steps[1:]):
            gain = step.reward + step.discount * gain * (step.step_type != StepType.FIRST)
            gains.append(gain)
        gains.reverse()
        is_own = torch.stack([step.step_type != StepType.FIRST for step in self.steps[1:]])
        chosen = torch.distributions.Categorical(logits=policy(torch.stack(self.observations)))
        return -(chosen.log_prob(torch.stack(self.actions)) * torch.stack(gains) * is_own).mean()


def test_a_policy_learns_while_workers_are_killed() -> None:
    torch.manual_seed(1)
    policy = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.1)
    faults = FaultPolicy("restart", max_restarts=1000, backoff=0)
    with FastParallelEnvironment([CorridorAlfEnv] * ENVS, faults=faults) as envs:
        envs.seed(list(range(ENVS)))
        envs.reset()
        killer = Killer(envs)
        before = Unroll(envs, policy, killer)
        for _ in range(12):
            unroll = Unroll(envs, policy, killer)
            optimizer.zero_grad()
            unroll.loss(policy).backward()
            optimizer.step()
        collection_kills = killer.kills
        after = Unroll(envs, policy, killer, greedy=True)
        while after.cut_off == 0:
            after = Unroll(envs, policy, killer, greedy=True)
    assert collection_kills >= 2
    assert killer.kills > collection_kills
    assert np.mean(before.returns) < 0.5
    assert np.mean(after.returns) == 1.0
