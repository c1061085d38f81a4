"""Actions, states, spaces and crash records of parallel envs in a pool. `test_known_envs.py` compares their rows."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo")

from parallel_envs import AGENTS, Crowd, actions_of
from replays import assert_reproduced, replay

import remuda
from remuda import InvalidActionError, InvalidEnvError
from remuda.pettingzoo import ParallelVectorEnv, vector

STEPS = 60


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"b0": None}, "expected actions of 'b0', which is in envs 0, 1, got none"),
        ({"c0": np.zeros(2)}, "expected agents of"),
        ({"a0": np.zeros(3, int)}, "expected an array of shape (2,) and dtype int64 at actions['a0'], got an array of"),
        ({"a0": np.array([0.5, 0])}, "in which actions['a0'][0] is 0.5"),
        ({"a0": 1}, "expected an array of shape (2,) and dtype int64 at actions['a0'], got int: 1"),
        ({"b0": np.array([[1.0]])}, "expected an array of shape (2, 1) and dtype float32 at actions['b0']"),
        ({"a0": np.array([9, 9])}, "expected 0 <= action <= 3 at actions['a0'][0], got 9"),
    ],
    ids=str,
)
def test_actions_that_do_not_fit_are_refused(change: Any, text: str) -> None:
    with vector([Crowd] * 2) as envs:
        envs.reset(seed=1)
        actions = {**actions_of(np.random.default_rng(0), 2), **change}
        with pytest.raises(InvalidActionError) as caught:
            envs.step({agent: action for agent, action in actions.items() if action is not None})
        assert text in str(caught.value)
        envs.step(actions_of(np.random.default_rng(0), 2))


def test_envs_without_a_state_are_refused() -> None:
    with vector([Crowd], state=True) as envs:
        envs.reset(seed=1)
        rollout = envs.rollout(2)
        for step in rollout:
            step.act(actions_of(np.random.default_rng(0), 1))
        assert rollout.state[:, 0, 1].tolist() == [0, 1, 2] and envs.rollout(1).state is not None
    with pytest.raises(InvalidEnvError, match="expected an env with a `state_space`, for `state=True`"):
        vector([Stateless], state=True)
    with vector([Stateless]) as envs:
        envs.reset()
        assert envs.state is None


class Stateless(Crowd):
    state_space = None  # type: ignore[assignment]


def test_an_env_that_is_none_is_refused() -> None:
    with pytest.raises((InvalidEnvError, remuda.EnvError), match="expected a PettingZoo env, parallel or AEC"):
        vector([lambda: object()])


def test_envs_whose_agents_take_turns_are_converted() -> None:
    simple_spread = pytest.importorskip("mpe2.simple_spread_v3")
    seeds = [1, 2]
    with vector([lambda: simple_spread.env(max_cycles=5)] * 2) as envs:
        obs, _ = envs.reset(seed=seeds)
        alone = simple_spread.parallel_env(max_cycles=5)
        expected, _ = alone.reset(seed=2)
        for agent in alone.possible_agents:
            np.testing.assert_array_equal(obs[agent][1], expected[agent])


def test_spaces_and_dtypes_are_those_of_the_env_and_equal_agents_share_one_array() -> None:
    with vector([Crowd] * 2) as envs:
        assert isinstance(envs, ParallelVectorEnv)
        assert envs.single_action_space("a1") == Crowd().action_space("a1")
        assert envs.observation_space("a0").shape == (2, 2, 2)
        obs, _ = envs.reset(seed=1)
        assert obs["a0"].base is not None and obs["a0"].base is obs["a1"].base
        assert [leaf.dtype for leaf in (obs["a0"], *obs["b0"].values())] == [np.uint8, np.int8, np.float32]
        _, rewards, *flags, _ = envs.step(actions_of(np.random.default_rng(0), 2))
        for agent in AGENTS:
            assert rewards[agent].dtype == np.float64
            assert [of[agent].dtype for of in (*flags, envs.alive)] == [np.bool_] * 3


def test_a_crash_record_replays_the_fault(tmp_path: Path) -> None:
    with vector([partial(Crowd, break_at_three)] * 2, num_workers=2, crash_dir=tmp_path) as envs:
        envs.reset(seed=[1, 2])
        rng = np.random.default_rng(0)
        with pytest.raises(remuda.EnvError, match="broken"):
            for _ in range(STEPS):
                envs.step(actions_of(rng, 2))
    assert_reproduced(replay(next(tmp_path.glob("*.remuda")), "--trust"), "the env raised ValueError: broken")


def break_at_three(env: Any, _: Any) -> None:
    if env.time == 3:
        raise ValueError("broken")
