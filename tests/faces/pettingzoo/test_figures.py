"""Figures of episodes have rewards only: the mean over agents in a pool's figures, and those of each agent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo")

from parallel_envs import AGENTS, Crowd, actions_of

import remuda
from remuda.pettingzoo import vector

STEPS = 40


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_returns_are_means_over_agents_and_those_of_each_agent(mode: Any) -> None:
    sums, returns = np.zeros((2, 3)), [list[Any](), list[Any]()]
    rng = np.random.default_rng(1)
    with vector([Crowd] * 2, autoreset=mode, backend="serial") as envs:
        envs.reset(seed=[5, 6])
        for _ in range(STEPS):
            _, rewards, *_, infos = envs.step(actions_of(rng, 2))
            sums += np.stack([rewards[agent] for agent in AGENTS], axis=1)
            for i, info in enumerate(infos):
                if "final_info" in info or not any(envs.alive[agent][i] for agent in AGENTS):
                    returns[i].append(sums[i].copy())
                    sums[i] = 0
        kept = np.array([one for own in returns for one in own[-15:]])
        assert len(kept) > 5
        stats = envs.stats()
        np.testing.assert_allclose(stats.returns, kept.mean(axis=1))
        assert stats.scalars()["remuda/episode_return_mean"] == pytest.approx(kept.mean())
        for i, agent in enumerate(AGENTS):
            np.testing.assert_allclose(envs.agent_returns()[agent], kept[:, i])


class Worthless(Crowd):
    """A Crowd without rewards, whose agents are all truncated by its second step."""

    def step(self, actions: Any) -> Any:
        observations, rewards, terminations, truncations, infos = super().step(actions)
        over = self.time == 2
        self.agents = [] if over else list(AGENTS)
        none, flags = dict.fromkeys(terminations, False), dict.fromkeys(truncations, over)
        return observations, dict.fromkeys(rewards, 0.0), none, flags, infos


def test_flags_of_agents_are_no_rewards() -> None:
    rng = np.random.default_rng(0)
    with vector([Worthless], backend="serial") as envs:
        envs.reset(seed=0)
        assert envs.agent_returns()["a0"].shape == (0,)
        envs.step(actions_of(rng, 1))
        envs.step(actions_of(rng, 1))
        assert envs.stats().returns == (0.0,) and envs.agent_returns()["a0"].tolist() == [0]


def test_an_evaluation_has_the_mean_over_agents() -> None:
    with vector([Crowd] * 2, backend="serial", autoreset="disabled") as envs:
        action = {"a0": np.full((2, 2), 1), "b0": np.full((2, 1, 1), 1.5, np.float32)}
        result = remuda.evaluate(lambda _: action, envs.pool, episodes=2, seed=1)
        assert result.returns.shape == (2,)
        np.testing.assert_allclose(result.returns, np.mean(list(envs.agent_returns().values()), axis=0))
