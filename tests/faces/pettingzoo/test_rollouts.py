"""Rollouts of parallel envs, and the newest results, which actions and attributes follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("pettingzoo")

from parallel_envs import AGENTS, Crowd, TwoAgents, actions_of, fail_in_the_second_step

from remuda import InvalidActionError
from remuda.pettingzoo import ParallelRollout, ParallelStep, ParallelVectorEnv, vector
from remuda.pettingzoo.groups import within
from remuda.pettingzoo.newest import Newest

STEPS = 12


def fill(rollout: ParallelRollout, turns: Iterable[ParallelStep]) -> dict[str, Any]:
    """Fills a rollout with random actions. Returns them, in the form of `actions`."""
    rng, n = np.random.default_rng(3), rollout.num_envs
    given = actions_of(rng, STEPS * n)
    given = {agent: own.reshape(STEPS, n, *own.shape[1:]) for agent, own in given.items()}
    for step in turns:
        step.act({agent: own[step.rows] for agent, own in given.items()}, value=np.ones((len(step.env_ids), 3)))
    return given


@pytest.mark.parametrize("way", ["all", "parts", "partial"])
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_each_way_of_stepping_gives_the_same_rows(way: str, mode: Any) -> None:
    with vector([Crowd] * 2, autoreset=mode, num_workers=2, backend="serial") as envs:
        envs.reset(seed=[5, 6])
        rollout = envs.rollout(STEPS, {"value": ("float32", (3,))}, parts=2 if way == "parts" else 1)
        given = fill(rollout, rollout.partial(1) if way == "partial" else rollout)
        assert (len(rollout), rollout.steps, rollout.num_envs, rollout.is_open) == (STEPS, STEPS, 2, False)
        assert rollout.columns["value"].shape == (STEPS, 2, 3) and rollout.columns["value"].dtype == np.float32
        assert rollout.columns["value"].all() and rollout.faults == {} and rollout.lost == ()
        with vector([Crowd] * 2, autoreset=mode, backend="serial") as twin:
            obs, _ = twin.reset(seed=[5, 6])
            was_there = dict.fromkeys(AGENTS, np.zeros(2, bool))
            over = np.ones(2, bool)  # the envs whose observation is the first of an episode
            for t in range(STEPS):
                np.testing.assert_array_equal(rollout.obs["a1"][t], obs["a1"])
                np.testing.assert_array_equal(rollout.obs["b0"]["place"][t], obs["b0"]["place"])
                for agent in AGENTS:
                    there = twin.alive[agent].copy()
                    assert rollout.alive[agent][t].tolist() == rollout.valid[agent][t].tolist() == there.tolist()
                    acted = rollout.actions[agent][t][there]
                    np.testing.assert_array_equal(acted, given[agent][t][there])
                    starts = there & (over | ~was_there[agent])
                    assert rollout.episode_starts[agent][t].tolist() == starts.tolist()
                    was_there[agent] = there
                obs, *numbers, infos = twin.step({agent: own[t] for agent, own in given.items()})
                ended = np.array(["final_info" in info for info in infos])
                over = ended if mode == "same_step" else ~np.stack([*was_there.values()]).any(0)
                shown = rollout.rewards, rollout.terminations, rollout.truncations
                for agent in AGENTS:
                    assert [of[agent][t].tolist() for of in shown] == [of[agent].tolist() for of in numbers]
        advantages, returns = rollout.gae({agent: np.ones((STEPS + 1, 2)) for agent in AGENTS})
        for agent in AGENTS:
            assert advantages[agent].shape == returns[agent].shape == (STEPS, 2)
            assert not advantages[agent][~rollout.valid[agent]].any()


def test_agents_with_equal_spaces_come_as_one_array() -> None:
    with vector([Crowd] * 2, backend="serial") as envs:
        envs.reset(seed=[5, 6])
        assert envs.groups == {"a0": ("a0", "a1"), "b0": ("b0",)}
        rollout = envs.rollout(2)
        for step in rollout:
            assert step.obs_by_group["a0"].shape == (2, 2, 2, 2)
            assert (step.obs_by_group["a0"][:, 1] == step.obs["a1"]).all()
            step.act_by_group({"a0": np.array([[0, 1], [2, 3]]), "b0": np.full((2, 1, 1), 1.5)})
        assert np.shares_memory(rollout.obs_by_group["a0"], rollout.obs["a1"])
        assert rollout.obs_by_group["b0"]["place"].shape == (3, 2, 1, 1)
        assert rollout.actions_by_group["a0"][0].tolist() == [[0, 1], [2, 3]]
        assert rollout.actions["a1"][0].tolist() == [1, 3]
        valid = rollout.by_group(rollout.valid)
        assert valid["a0"].shape == (2, 2, 2) and (valid["a0"][..., 1] == rollout.valid["a1"]).all()
        values = {"a0": np.random.default_rng(0).random((3, 2, 2)), "b0": np.zeros((3, 2, 1))}
        advantages = rollout.by_group(rollout.gae(rollout.by_agent(values))[0])
        alone, _ = rollout.gae({"a1": values["a0"][..., 1]})
        np.testing.assert_array_equal(advantages["a0"][..., 1], alone["a1"])
        with pytest.raises(ValueError, match=r"expected groups of agents among \['a0', 'b0'\], got \['a1'\]"):
            rollout.by_agent({"a1": values["a0"]})


# -- the newest results of the envs, whichever call has received them -------------------------------------

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


class Failing(Listed):
    """Fails if "a" gets the action 9."""

    def step(self, actions: Any) -> Any:
        if actions["a"] == 9:
            raise ValueError("broken")
        return super().step(actions)


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_after_dropped_results_a_fault_truncates_only_the_agents_that_were_there(mode: Any) -> None:
    with vector([Failing], autoreset=mode, backend="serial", faults="restart") as envs:
        envs.reset()
        envs.send(acts(7, envs))  # "b" leaves
        envs.pool.discard()
        _, _, _, truncations, _ = envs.step({"a": [9], "b": [9]})
        assert {agent: own.tolist() for agent, own in truncations.items()} == {"a": [True], "b": [False]}


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


@pytest.mark.parametrize("value", [np.nan, -1, None, "x", 2**70, [1, 2]], ids=repr)
def test_values_of_absent_agents_are_ignored_whatever_they_are(value: Any) -> None:
    with vector([Listed] * 2, backend="serial") as envs:
        envs.reset()
        envs.step({"a": [7], "b": [8]}, env_ids=[0])
        with pytest.raises(InvalidActionError, match=r"at actions\['b'\], got ") as refusal:
            envs.step({"a": [1, 2], "b": [value, None]})
        assert str(within(envs.single_action_space("b"))) not in str(refusal.value)  # the substitute of `value`
        envs.step({"a": [1, 2], "b": [value, 4]}, env_ids=[0, 1])
        assert given(envs) == [{"a": 1}, {"a": 2, "b": 4}]
        envs.step({"a": [1, 2], "b": [value, 99]})
        assert [own["a"] for own in given(envs)] == [1, 2]


def test_actions_of_an_absent_agent_have_a_row_for_each_env() -> None:
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
        assert list(rollout.faults) == [(1, 0)] and "broken" in str(rollout.faults[1, 0])
        assert rollout.alive["a0"][:, 0].tolist() == [True, True, False]
        for agent in AGENTS:
            assert rollout.truncations[agent][1, 0] == rollout.alive[agent][1, 0]
        assert not any(own.any() for own in envs.alive.values())
        after = envs.rollout(1)
        assert not any(own[0].any() for own in after.alive.values())
        for step in after:
            assert not any(own.any() for own in step.alive.values())
            step.act({})
        assert not any(own.any() for own in after.valid.values()) and all(own[1, 0] for own in after.alive.values())
