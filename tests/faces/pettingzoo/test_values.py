"""Values of agents are checked by the rules of a pool: what does not fit is refused, and never changed."""

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
KINDS: dict[str, Any] = {
    "Box": (BYTES, lambda value: value),
    "Dict": (spaces.Dict(inner=BYTES), lambda value: {"inner": value}),
    "Tuple": (spaces.Tuple([BYTES, spaces.Discrete(2)]), lambda value: (value, 0)),
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
        return {agent: _zeros(self.space) for agent in self.agents}

    def step(self, actions: Any) -> Any:
        self.given = actions
        parts = {
            "observations": {"a": self.value, "b": _zeros(self.space)},
            "rewards": {"a": 1.0, "b": 2.0},
            "terminations": {"a": False, "b": False},
            "truncations": {"a": False, "b": False},
            "infos": {"a": {}, "b": {}},
        }
        return self.returned.get("step", tuple({**parts, **self.returned}[name] for name in parts))


def _zeros(space: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {"inner": np.zeros(2, np.uint8)}
    return (np.zeros(2, np.uint8), 0) if isinstance(space, spaces.Tuple) else np.zeros(2, np.uint8)


def stepped(env_fn: Any) -> Any:
    """Returns the results of one step of an env."""
    with vector([env_fn], backend="serial") as envs:
        envs.reset()
        return envs.step({agent: envs.action_space(agent).sample() for agent in envs.possible_agents})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [(300, 0), (-1, 0), (0.7, 0), (np.nan, 0), 5, (5,), None, "ab"], ids=str)
def test_observations_that_do_not_fit_are_refused_as_in_a_pool(kind: str, value: Any) -> None:
    space, wrapped = KINDS[kind]
    with pytest.raises(EnvError, match=r"expected an array of shape \(2,\) and dtype uint8 at obs\['a'\]"):
        stepped(lambda: Shower(space, wrapped(value)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.array([3, 255]), [3, 255], np.array([[3.0, 255.0]])], ids=str)
def test_observations_that_fit_are_taken_as_in_a_pool(kind: str, value: Any) -> None:
    space, wrapped = KINDS[kind]
    obs, *_ = stepped(lambda: Shower(space, wrapped(value)))
    shown = {"Box": lambda: obs["a"], "Dict": lambda: obs["a"]["inner"], "Tuple": lambda: obs["a"][0]}[kind]()
    assert shown.tolist() == [[3, 255]] and shown.dtype == np.uint8


@pytest.mark.parametrize("kind", KINDS)
def test_actions_follow_the_rules_of_a_pool(kind: str) -> None:
    space, wrapped = KINDS[kind]

    def action(value: Any) -> Any:
        return {"Box": value, "Dict": {"inner": value}, "Tuple": (value, np.zeros(2, int))}[kind]

    with vector([lambda: Shower(space, wrapped((1, 2)))] * 2, backend="serial") as envs:
        envs.reset()
        fine = action(np.zeros((2, 2), int))
        for bad in ([[300, 0]] * 2, [[0.7, 0]] * 2, [[np.nan, 0]] * 2, [[-1, 0]] * 2, [[1, 0]], 1, None, [None, None]):
            with pytest.raises(InvalidActionError, match=r"at actions\['a'\]"):
                envs.step({"a": action(bad), "b": fine})
        envs.step({"a": action(np.array([[1, 2], [3, 255]])), "b": fine})
        given = envs.get_attr("given")[1]["a"]
        leaf = {"Box": lambda: given, "Dict": lambda: given["inner"], "Tuple": lambda: given[0]}[kind]()
        assert leaf.tolist() == [3, 255] and leaf.dtype == np.uint8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "bad", [None, 1, "ab", [[1, 2], [3]], [[1, 2]], np.zeros((2, 3)), {"inner": 1}, ((1, 2),)], ids=str
)
def test_actions_in_another_form_are_refused_for_absent_agents_too(kind: str, bad: Any) -> None:
    space, wrapped = KINDS[kind]
    with vector([lambda: Shower(space, wrapped((1, 2)), terminations={"b": True})] * 2, backend="serial") as envs:
        envs.reset()
        envs.step({agent: envs.action_space(agent).sample() for agent in "ab"})
        assert not envs.alive["b"].any()
        for given in (bad, {"Box": bad, "Dict": {"inner": bad}, "Tuple": (bad, np.zeros(2, int))}[kind]):
            with pytest.raises(InvalidActionError, match=r"at actions\['b'\]"):
                envs.step({"a": envs.action_space("a").sample(), "b": given})


@pytest.mark.parametrize("reward", [1, np.float32(1), np.array([1.0]), np.array(1), np.bool_(True)], ids=repr)
def test_rewards_that_are_numbers_are_taken(reward: Any) -> None:
    _, rewards, *_ = stepped(lambda: Shower(rewards={"a": reward, "b": 0}))
    assert (rewards["a"].tolist(), rewards["b"].tolist()) == ([1.0], [0.0])


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
