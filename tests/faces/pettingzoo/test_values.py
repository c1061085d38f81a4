"""Values of agents are checked by the rules of a pool: what does not fit is refused, and never changed.

The flags have the end of an agent, and of an episode.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("pettingzoo")

from parallel_envs import TwoAgents

import remuda
from remuda import EnvError, InvalidActionError
from remuda.pettingzoo import vector

BYTES = spaces.Box(0, 255, (2,), np.uint8)
# For each kind: a space, a function that puts bytes into its form, and one that takes them out.
KINDS: dict[str, Any] = {
    "Box": (BYTES, lambda value: value, lambda given: given),
    "nested": (
        spaces.Dict(inner=spaces.Tuple([BYTES])),
        lambda value: {"inner": (value,)},
        lambda given: given["inner"][0],
    ),
}


class Shower(TwoAgents):
    """Observes and returns the values that it is given. `spoil`: changes what `reset` and `step` return."""

    def __init__(self, space: Any = BYTES, value: Any = (1, 2), **returned: Any) -> None:
        super().__init__()
        self.space, self.value, self.returned = space, value, returned

    def observation_space(self, agent: str) -> Any:
        return self.space

    def action_space(self, agent: str) -> Any:
        return self.space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        usual = super().reset()
        return self.returned.get("reset", usual)

    def _observed(self) -> dict[str, Any]:
        return {agent: self.space.sample() for agent in self.agents}

    def step(self, actions: Any) -> Any:
        self.given = actions
        parts = {
            "observations": {"a": self.value, "b": self.space.sample()},
            "rewards": {"a": 1.0, "b": 2.0},
            "terminations": {"a": False, "b": False},
            "truncations": {"a": False, "b": False},
            "infos": {"a": {}, "b": {}},
        }
        return self.returned.get("step", tuple({**parts, **self.returned}[name] for name in parts))


def stepped(env_fn: Any) -> Any:
    """Returns the results of one step of an env."""
    with vector([env_fn], backend="serial") as envs:
        envs.reset()
        return envs.step({agent: envs.action_space(agent).sample() for agent in envs.possible_agents})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [(300, 0), (-1, 0), (0.7, 0), (np.nan, 0), 5, (5,), None, "ab"], ids=str)
def test_observations_that_do_not_fit_are_refused_as_in_a_pool(kind: str, value: Any) -> None:
    space, wrapped, _ = KINDS[kind]
    with pytest.raises(EnvError, match=r"expected an array of shape \(2,\) and dtype uint8 at obs\['a'\]"):
        stepped(lambda: Shower(space, wrapped(value)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.array([3, 255]), [3, 255], np.array([[3.0, 255.0]])], ids=str)
def test_observations_that_fit_are_taken_as_in_a_pool(kind: str, value: Any) -> None:
    space, wrapped, unwrapped = KINDS[kind]
    obs, *_ = stepped(lambda: Shower(space, wrapped(value)))
    shown = unwrapped(obs["a"])
    assert shown.tolist() == [[3, 255]] and shown.dtype == np.uint8


@pytest.mark.parametrize("kind", KINDS)
def test_actions_follow_the_rules_of_a_pool(kind: str) -> None:
    space, wrapped, unwrapped = KINDS[kind]
    with vector([lambda: Shower(space, wrapped((1, 2)))] * 2, backend="serial") as envs:
        envs.reset()
        fine = wrapped(np.zeros((2, 2), int))
        for bad in ([[300, 0]] * 2, [[0.7, 0]] * 2, [[np.nan, 0]] * 2, [[-1, 0]] * 2, [[1, 0]], 1, None, [None, None]):
            with pytest.raises(InvalidActionError, match=r"at actions\['a'\]"):
                envs.step({"a": wrapped(bad), "b": fine})
        with pytest.raises(InvalidActionError, match=r"expected agents of \['a', 'b'\], got \['c'\]"):
            envs.step(dict.fromkeys("abc", fine))
        envs.step({"a": wrapped(np.array([[1, 2], [3, 255]])), "b": fine})
        given = unwrapped(envs.get_attr("given")[1]["a"])
        assert given.tolist() == [3, 255] and given.dtype == np.uint8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "bad", [None, 1, "ab", [[1, 2], [3]], [[1, 2]], np.zeros((2, 3)), {"inner": 1}, ((1, 2),)], ids=str
)
def test_actions_in_another_form_are_refused_for_absent_agents_too(kind: str, bad: Any) -> None:
    space, wrapped, _ = KINDS[kind]
    with vector([lambda: Shower(space, wrapped((1, 2)), terminations={"b": True})] * 2, backend="serial") as envs:
        envs.reset()
        envs.step({agent: envs.action_space(agent).sample() for agent in "ab"})
        assert not envs.alive["b"].any()
        for given in (bad, wrapped(bad)):
            with pytest.raises(InvalidActionError, match=r"at actions\['b'\]"):
                envs.step({"a": envs.action_space("a").sample(), "b": given})
        envs.step({"a": envs.action_space("a").sample(), "b": wrapped([[300, -1]] * 2)})  # rows of an absent agent


@pytest.mark.parametrize("reward", [1, np.float32(1), np.array([1.0]), np.array(1), np.bool_(True)], ids=repr)
def test_rewards_that_are_numbers_are_taken(reward: Any) -> None:
    _, rewards, *_ = stepped(lambda: Shower(rewards={"a": reward, "b": 0}))
    assert (rewards["a"].tolist(), rewards["b"].tolist()) == ([1.0], [0.0])


def test_an_agent_without_a_reward_has_none_which_pettingzoo_only_warns_of() -> None:
    _, rewards, *_ = stepped(lambda: Shower(rewards={"b": 2.0}))
    assert (rewards["a"].tolist(), rewards["b"].tolist()) == ([0.0], [2.0])


def test_flags_are_taken_as_in_a_pool() -> None:
    results = stepped(lambda: Shower(truncations={"a": None, "b": np.array([True])}, terminations={"b": 0}))
    assert [flags[agent].tolist() for flags in results[2:4] for agent in "ab"] == [[False], [False], [False], [True]]


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ({"rewards": {"a": None}}, "expected a number as the reward of agent 'a', got None"),
        ({"rewards": {"a": "3"}}, "expected a number as the reward of agent 'a', got '3'"),
        ({"rewards": {"a": np.ones(2)}}, "expected a number as the reward of agent 'a', got array"),
        ({"truncations": {"a": np.ones(2)}}, "expected a bool as the truncation of agent 'a', got array"),
        ({"terminations": {"a": False, "__all__": True}}, "expected step() to return results of agents of ['a', 'b']"),
        ({"observations": {"c": 1}}, "expected step() to return results of agents of ['a', 'b'], got ['c']"),
        ({"observations": {"a": (1, 2)}}, "expected an observation of each agent in `agents`, got none of ['b']"),
        ({"reset": ({"b": (1, 2)}, {})}, "expected an observation of each agent in `agents`, got none of ['a']"),
        ({"rewards": [1.0, 2.0]}, "expected the rewards of step() to be a dict by agent, got list of 2: [1.0, 2.0]"),
        ({"infos": [{}, {}]}, "expected the infos of step() to be a dict by agent"),
        ({"step": ({}, {}, {}, {})}, "truncations, infos), got tuple of 4: ({}, {}, {}, {})"),
        ({"reset": {"a": (0, 0), "b": (0, 0)}}, "expected reset() to return (observations, infos), got {'a'"),
        ({"reset": ({"a": (0, 0)}, None)}, "expected the infos of reset() to be a dict by agent, got None"),
        ({"reset": ({"z": (0, 0)}, {})}, "expected reset() to return results of agents of ['a', 'b'], got ['z']"),
    ],
    ids=str,
)
def test_results_in_another_form_are_refused_with_their_cause(returned: Any, text: str) -> None:
    with pytest.raises(EnvError) as caught:
        stepped(lambda: Shower(**returned))
    assert text in str(caught.value)


def test_agents_that_no_env_has_are_refused() -> None:
    class Grows(Shower):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            found = super().reset(seed, options)
            self.agents.append("c")
            return found

    with pytest.raises(EnvError, match="expected `agents` to be among"):
        stepped(Grows)


def test_env_ids_may_be_a_generator_and_are_checked_as_in_a_pool() -> None:
    action = {"a": np.zeros((1, 2), int), "b": np.zeros((1, 2), int)}
    with vector([Shower] * 2, backend="serial") as envs:
        envs.reset()
        envs.step(action, (env for env in [1]))
        assert envs.env_ids.tolist() == [1]
        for wrong in ([2], [-1], [0.5]):
            with pytest.raises((ValueError, TypeError)) as ours:
                envs.step(action, wrong)
            with pytest.raises((ValueError, TypeError)) as theirs:
                envs.pool.step({"a": np.zeros((1, 2, 2), int)}, wrong)
            assert str(ours.value) == str(theirs.value)
    with pytest.raises(remuda.ClosedError):
        envs.step(action, [1])


def test_final_observations_in_infos_are_by_agent() -> None:
    ends = {"a": True, "b": True}
    make_env = partial(Shower, value=np.array([4, 5]), terminations=ends)
    with vector([make_env], backend="serial", autoreset="same_step") as envs:
        envs.reset()
        *_, infos = envs.step({"a": np.zeros((1, 2), int), "b": np.zeros((1, 2), int)})
        assert infos[0]["final_obs"]["a"].tolist() == [4, 5] and list(infos[0]["final_obs"]) == ["a", "b"]
        assert [list(info["final_obs"]) for info in infos] == [["a", "b"]]


# -- ends of agents and of episodes, also if an env's `agents` and flags disagree -------------------------

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
