"""The end of an agent, and of an episode, is in the flags, also if an env's `agents` and flags disagree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo")

from parallel_envs import TwoAgents

from remuda.pettingzoo import vector

LENGTH = 3


class Ends(TwoAgents):
    """Ends after `LENGTH` steps. "a" gets its flag one step before "b".

    `keeps`: whether `agents` keeps all agents. `flags`: whether there are flags. An env that keeps its agents also goes
    on to send observations, rewards and flags of all of them.
    """

    def __init__(self, *, keeps: bool, flags: bool, truncates: bool = False) -> None:
        super().__init__()
        self.keeps, self.flags, self.truncates = keeps, flags, truncates

    def _observed(self) -> Any:
        return {agent: np.array([self.time + 1]) for agent in self.possible_agents}

    def step(self, actions: Any) -> Any:
        assert list(actions) == self.agents
        self.time += 1
        ends = {"a": self.time >= LENGTH - 1, "b": self.time >= LENGTH}
        if not self.keeps:
            ends = {agent: ends[agent] if self.flags else self.time >= LENGTH for agent in self.agents}
            self.agents = [agent for agent in self.agents if not ends[agent]]
        flags, no = (ends if self.flags else dict.fromkeys(ends, False)), dict.fromkeys(ends, False)
        both = (no, flags) if self.truncates else (flags, no)
        return self._observed(), dict.fromkeys(self.possible_agents, 1.0), *both, {}


def played(env_fn: Any, steps: int, mode: Any) -> list[Any]:
    """Returns for each step the agents' (observation, reward, terminated, truncated, is alive)."""
    rows = []
    with vector([env_fn], autoreset=mode, backend="serial") as envs:
        envs.reset()
        for _ in range(steps):
            obs, *numbers, _ = envs.step({"a": [1], "b": [2]})
            shown = {a: [obs[a][0, 0], *(each[a][0] for each in numbers), envs.alive[a][0]] for a in "ab"}
            rows.append([tuple(value.item() for value in shown[a]) for a in "ab"])
    return rows


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
def test_an_agent_with_a_flag_is_gone_even_if_the_env_keeps_it(keeps: bool, truncates: bool) -> None:
    end = (not truncates, truncates, False)
    rows = played(lambda: Ends(keeps=keeps, flags=True, truncates=truncates), LENGTH + 2, "next_step")
    assert rows == [
        [(2, 1, False, False, True)] * 2,
        [(3, 1, *end), (3, 1, False, False, True)],
        [(0, 0, False, False, False), (4, 1, *end)],
        [(1, 0, False, False, True)] * 2,
        [(2, 1, False, False, True)] * 2,
    ]


def test_in_same_step_mode_the_next_episode_begins_at_once() -> None:
    rows = played(lambda: Ends(keeps=True, flags=True), LENGTH + 1, "same_step")
    assert rows[LENGTH - 1] == [(1, 0, False, False, True), (1, 1, True, False, True)]
    assert rows[LENGTH] == [(2, 1, False, False, True)] * 2


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_an_episode_that_ends_without_flags_is_terminated(mode: Any) -> None:
    rows = played(lambda: Ends(keeps=False, flags=False), LENGTH, mode)
    assert [row[1:4] for row in rows[-1]] == [(1, True, False)] * 2
    assert not any(row[2] or row[3] for step in rows[:-1] for row in step)


def test_advantages_do_not_run_across_episodes_without_flags() -> None:
    with vector([lambda: Ends(keeps=False, flags=False)], autoreset="same_step", backend="serial") as envs:
        envs.reset()
        rollout = envs.rollout(2 * LENGTH)
        for step in rollout:
            step.act({"a": [1], "b": [2]})
        zeros = {agent: np.zeros((2 * LENGTH + 1, 1)) for agent in "ab"}
        _, returns = rollout.gae(zeros, gamma=1, lam=1)
        assert returns["a"][:, 0].tolist() == [3, 2, 1] * 2


def test_a_state_of_an_env_that_keeps_its_agents_has_who_is_gone() -> None:
    with vector([lambda: Ends(keeps=True, flags=True)], backend="serial") as envs:
        envs.reset()
        for _ in range(LENGTH - 1):
            envs.step({"a": [1], "b": [2]})
        states = envs.pool.get_state(state_fns="attributes")
        envs.reset()
        envs.pool.set_state(states)
        assert (envs.alive["a"].tolist(), envs.alive["b"].tolist()) == ([False], [True])
        _, _, terminations, _, _ = envs.step({"b": [2]})
        assert (terminations["a"].tolist(), terminations["b"].tolist()) == ([False], [True])
