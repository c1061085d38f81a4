"""Actions and attributes follow the newest results of the envs, whichever call has received them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("pettingzoo")

from parallel_envs import Crowd, TwoAgents, actions_of, fail_in_the_second_step

from remuda import InvalidActionError
from remuda.pettingzoo import ParallelVectorEnv, vector
from remuda.pettingzoo.newest import Newest

LENGTH = 3


class Listed(TwoAgents):
    """Writes down its actions, which observations repeat. "b" leaves after the first step, "a" after `LENGTH` steps."""

    state_space = spaces.Box(0, 100, (1,), np.float64)
    given: dict[str, int] = {}

    def step(self, actions: Any) -> Any:
        self.time += 1
        acted, self.given = self.agents, {agent: int(action) for agent, action in actions.items()}
        ends = {agent: agent == "b" or self.time == LENGTH for agent in acted}
        self.agents = [agent for agent in acted if not ends[agent]]
        observations = {agent: np.array([self.given[agent]]) for agent in acted}
        return observations, dict.fromkeys(acted, 1.0), ends, dict.fromkeys(acted, False), {a: {} for a in acted}

    def state(self) -> Any:
        return np.array([self.time], np.float64)

    def get_state(self) -> Any:
        return self.time, list(self.agents)

    def set_state(self, state: Any) -> None:
        self.time, self.agents = state[0], list(state[1])


def given(envs: ParallelVectorEnv) -> list[dict[str, int]]:
    found: list[dict[str, int]] = envs.get_attr("given")
    return found


def acts(first: int, envs: ParallelVectorEnv) -> dict[str, Any]:
    n = envs.num_envs
    return {"a": np.arange(first, first + n), "b": np.arange(first + 50, first + 50 + n)}


def by_rollout(envs: ParallelVectorEnv) -> None:
    for step in envs.rollout(LENGTH + 1):
        step.act(acts(7, envs))


def by_reset_of_the_pool(envs: ParallelVectorEnv) -> None:
    envs.step(acts(7, envs))
    envs.pool.reset()


def by_steps_of_the_pool(envs: ParallelVectorEnv) -> None:
    for _ in range(LENGTH + 1):
        envs.pool.step({"a": np.full((envs.num_envs, 2), 7)})


def by_parts_of_the_pool(envs: ParallelVectorEnv) -> None:
    envs.step(acts(7, envs))
    for part in envs.pool.split(2):
        part.reset()
    envs.pool.split(1)


def by_set_state(envs: ParallelVectorEnv) -> None:
    states = envs.pool.get_state()
    envs.step(acts(7, envs))
    envs.pool.set_state(states)


@pytest.mark.parametrize(
    "change", [by_rollout, by_reset_of_the_pool, by_steps_of_the_pool, by_parts_of_the_pool, by_set_state]
)
def test_a_living_agent_receives_the_action_that_was_given(change: Callable[[ParallelVectorEnv], None]) -> None:
    with vector([Listed] * 2, num_workers=2, backend="serial") as envs:
        envs.reset()
        change(envs)
        assert all(own.all() for own in envs.alive.values())
        envs.step(acts(100, envs))
        assert given(envs) == [{"a": 100, "b": 150}, {"a": 101, "b": 151}]


def test_attributes_belong_to_the_newest_results() -> None:
    extras: Any = {"time": (lambda env: env.time, ((), np.int64))}
    with vector([Listed] * 2, backend="serial", autoreset="same_step", state=True, extras=extras) as envs:
        envs.reset()
        for step in envs.rollout(LENGTH):
            assert step.alive["b"].tolist() == envs.alive["b"].tolist()
            assert envs.extras["time"].tolist() == envs.state[:, 0].tolist()
            step.act(acts(7, envs))
        assert envs.final_obs is not None and envs.final_obs["a"][:, 0].tolist() == [7, 8]
        assert list(envs.extras) == ["time"] and envs.alive["b"].tolist() == [True, True]
        envs.pool.step({"a": np.full((1, 2), 7)}, env_ids=[1])
        assert (envs.env_ids.tolist(), envs.alive["b"].tolist(), envs.state.tolist()) == ([1], [False], [[1.0]])
        assert envs.final_obs is None


def test_after_dropped_results_no_action_may_be_missing_and_none_is_replaced() -> None:
    with vector([Listed], backend="serial") as envs:
        envs.reset()
        envs.step(acts(7, envs))
        for _ in range(LENGTH - 1):
            envs.step({"a": [1]})
        envs.send(acts(7, envs))  # resets the env
        envs.pool.discard()
        with pytest.raises(InvalidActionError, match="expected actions of 'b', which is in env 0, got none"):
            envs.step({"a": [8]})
        with pytest.raises(InvalidActionError, match=r"at actions\['b'\]\[0\], got -1"):
            envs.step({"a": [8], "b": [-1]})
        envs.step({"a": [8], "b": [9]})
        assert given(envs) == [{"a": 8, "b": 9}]


def test_after_an_interrupt_that_loses_results_no_action_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with vector([Listed], backend="serial") as envs:
        envs.reset()
        for _ in range(LENGTH):
            envs.step(acts(7, envs))
        assert not envs.alive["b"].any()
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Newest, "note", interrupt)
            envs.step({})  # resets the env
        with pytest.raises(InvalidActionError, match="expected actions of 'a', which is in env 0, got none"):
            envs.step({})
        envs.step(acts(7, envs))
        assert given(envs) == [{"a": 7, "b": 57}] and envs.alive["a"].all()


def test_values_of_absent_agents_are_ignored_whatever_they_are() -> None:
    with vector([Listed] * 2, backend="serial") as envs:
        envs.reset()
        envs.step({"a": [7], "b": [8]}, env_ids=[0])
        envs.step({"a": [1, 2], "b": [np.nan, 4]}, env_ids=[0, 1])
        assert given(envs) == [{"a": 1}, {"a": 2, "b": 4}]
        envs.step({"a": [1, 2], "b": [-1, 99]})
        assert [own["a"] for own in given(envs)] == [1, 2]
    with vector([Crowd], backend="serial") as envs:
        envs.reset()
        with pytest.raises(InvalidActionError, match=r"at actions\['b0'\], got NoneType: None"):
            envs.step({"a0": [1], "a1": [1], "b0": None})


def test_after_a_fault_no_agent_is_there_until_the_env_is_reset() -> None:
    rng = np.random.default_rng(0)
    numbers = actions_of(rng, 1)
    with vector([partial(Crowd, fail_in_the_second_step)], backend="serial", faults="restart") as envs:
        envs.reset(seed=2)
        rollout = envs.rollout(2)
        for step in rollout:
            step.act(numbers)
        assert rollout.alive["a0"][:, 0].tolist() == [True, True, False]
        assert not any(own.any() for own in envs.alive.values())
        after = envs.rollout(1)
        assert not any(own[0].any() for own in after.alive.values())
        for step in after:
            assert not any(own.any() for own in step.alive.values())
            step.act({})
        assert not any(own.any() for own in after.valid.values()) and all(own[1, 0] for own in after.alive.values())
