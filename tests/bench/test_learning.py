"""The policy and the learner that the scripts put into the loop of a contender."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from bench_fakes import COUNTING, entry, result
from gymnasium import spaces
from harness import policies, ppo
from peers.plain import GymnasiumSync
from peers.remuda_pools import RemudaGymnasiumSplit, RemudaSplit

from remuda._bench.contenders import Plan
from remuda._bench.workloads import Workload


class Echo(gymnasium.Env[Any, Any]):
    """Observes its last action, or its seed after a reset."""

    observation_space = spaces.Box(-1, 99, (1,), np.float32)
    action_space = spaces.Discrete(100)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.array([seed], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([action], np.float32), 1.0, False, False, {}


@pytest.mark.parametrize(("kind", "turns"), [(GymnasiumSync, 1), (RemudaSplit, 2), (RemudaGymnasiumSplit, 2)])
def test_the_policy_receives_the_observations_after_its_actions(kind: Any, turns: int) -> None:
    received: list[list[int]] = []

    def policy(obs: Any) -> Any:
        received.append(obs[:, 0].astype(int).tolist())
        return obs[:, 0].astype(np.int64) + 10

    contender = policies.with_policy(kind, lambda plan: policy)(Plan(Workload("echo", Echo), 4, num_workers=2))
    with closing(contender):
        contender.reset(seed=0)
        assert contender.step(None) == contender.step(None) == 4
    by_turn = [sorted(env for part in received[i : i + turns] for env in part) for i in range(0, len(received), turns)]
    assert by_turn == [[10 * i + env for env in range(4)] for i in range(3)]


def test_half_of_the_policys_time_is_independent_of_the_batch() -> None:
    shares: list[float] = []
    policy = policies.Thinking(Plan(COUNTING, num_envs=8, num_workers=2), spend=shares.append)
    assert policy(np.zeros((8, 2))).shape == (8,)
    assert policy(np.zeros((4, 2))).shape == (4,)
    assert shares == [1.0, 0.75]


def test_the_lockstep_bound_adds_envs_and_policy() -> None:
    """A step takes 1/2 us in two parallel loops and 1/2 us in the policy, so 1 us in total."""
    found = result(entry("plain loop", [1_000_000]), entry("remuda"), entry("policy alone", [2_000_000]))
    assert policies.lockstep_bound(found, found.entries[2]) == [pytest.approx(1_000_000)]


class Guess(gymnasium.Env[Any, Any]):
    """Observes the right action. Its episodes have five steps."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        reward = float(action == self.right)
        return self._show(), reward, self.steps == 5, False, {}

    def _show(self) -> Any:
        self.right = int(self.np_random.integers(2))
        return np.eye(2, dtype=np.float32)[self.right]


GUESS = Workload("guess", Guess)


def test_the_ppo_of_the_benchmarks_learns() -> None:
    plan = Plan(GUESS, num_envs=8, num_workers=2)
    settings = ppo.Settings(num_steps=24, learning_rate=5e-3)
    with closing(RemudaGymnasiumSplit(plan)) as envs:
        envs.reset(seed=0)
        learner = ppo.Ppo(envs, plan, settings)
        returns = []
        for _ in range(20):
            assert learner.iterate() == 24 * 8
            returns.append(learner.mean_episode_return)
        assert learner.learning_seconds > 0
    assert 1.0 < returns[0] < 4.0  # the maximum is 5, and random guesses reach half of it
    assert returns[-1] > 4.5


def test_advantages_stop_at_the_end_of_an_episode() -> None:
    plan = Plan(GUESS, num_envs=1, num_workers=1)
    with closing(GymnasiumSync(plan)) as envs:
        envs.reset(seed=0)
        learner = ppo.Ppo(envs, plan, ppo.Settings(num_steps=3, gamma=0.5, gae_lambda=1.0))
    rollout = learner._rollout
    rollout.rewards[:, 0], rollout.dones[:, 0] = [1, 2, 4], [False, False, True, False]
    rollout.values[:, 0], rollout.next_values[:] = torch.tensor([0.0, 10.0, 20.0]), 8.0
    advantages, returns = learner._advantages()
    assert returns[:, 0].tolist() == [1 + 0.5 * 2, 2, 4 + 0.5 * 8]
    assert advantages[:, 0].tolist() == [2 - 0, 2 - 10, 8 - 20]


@pytest.mark.parametrize(
    ("observations", "actions"),
    [
        (spaces.Box(-1, 1, (5,), np.float64), spaces.Box(-1, 1, (3,))),
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6)),
    ],
)
def test_an_agent_acts_within_its_spaces(observations: Any, actions: Any) -> None:
    agent = ppo.Agent(observations, actions)
    chosen, log_probs, values = agent.act(np.stack([observations.sample() for _ in range(3)]))
    assert chosen.shape == (3, *actions.shape)
    assert log_probs.shape == values.shape == (3,)
