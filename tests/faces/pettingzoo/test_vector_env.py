"""Parallel envs in a pool have the results of a loop that plays each env by hand."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import accidents
import numpy as np
import pytest
from accidents import once

pytest.importorskip("pettingzoo")

import pettingzoo
from parallel_envs import AGENTS, Crowd, actions_of, played
from replays import assert_reproduced, replay

import remuda
from remuda import FaultPolicy, InvalidActionError, InvalidEnvError
from remuda.pettingzoo import ParallelVectorEnv, vector

STEPS = 60


def check_obs(shown: Mapping[str, Any], alone: Mapping[str, Any], row: Any) -> None:
    """Checks a row of observations by agent; agents without an observation have zeros."""
    for agent in AGENTS:
        own = alone.get(agent)
        if agent == "b0":
            zero = {"mask": np.zeros(3, np.int8), "place": np.zeros(1, np.float32)}
            for key, value in (zero if own is None else own).items():
                np.testing.assert_array_equal(shown[agent][key][row], value)
                assert shown[agent][key].dtype == value.dtype
        else:
            np.testing.assert_array_equal(shown[agent][row], np.zeros((2, 2)) if own is None else own)
            assert shown[agent].dtype == np.uint8


def check_step(numbers: Any, step: Any, row: Any) -> None:
    for shown, alone in zip(numbers, step or ({}, {}, {}), strict=False):
        assert {agent: shown[agent][row] for agent in AGENTS} == {agent: alone.get(agent, 0) for agent in AGENTS}


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_results_are_those_of_a_loop(mode: Any, backend: Any) -> None:
    rng, seeds = np.random.default_rng(3), [5, 6, 7]
    loops = [played(Crowd(), seed, mode) for seed in seeds]
    with vector([Crowd] * 3, state=True, autoreset=mode, num_workers=2, backend=backend) as envs:
        obs, infos = envs.reset(seed=seeds)
        rows, numbers = [next(loop) for loop in loops], ()
        for _ in range(STEPS):
            times = [env.time for env in envs.pool.apply(lambda env: env.env)] if backend == "serial" else None
            assert times in (None, envs.state[:, 1].tolist())
            for i, (observations, step, last, there) in enumerate(rows):
                check_obs(obs, observations, i)
                check_step(numbers, step, i)
                assert [agent for agent in AGENTS if envs.alive[agent][i]] == there
                if last is not None:
                    check_obs(envs.final_obs, last, i)
                if step is not None and last is None:
                    assert infos[i] == step[3]
            if mode == "disabled" and (over := [i for i, row in enumerate(rows) if not row[3]]):
                obs, _ = envs.reset(env_ids=over)
                for row, i in enumerate(over):
                    rows[i] = loops[i].send({})
                    check_obs(obs, rows[i][0], row)
            actions = actions_of(rng, 3)
            rows = [loop.send({agent: actions[agent][i] for agent in AGENTS}) for i, loop in enumerate(loops)]
            obs, *numbers, infos = envs.step(actions)
        assert envs.state.shape == (3, 2)
        assert envs.stats().episodes > 5


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_with_spares_rewards_and_flags_belong_to_the_step(mode: Any) -> None:
    rng = np.random.default_rng(3)
    with vector([Crowd] * 5, autoreset=mode, spares=2, num_workers=None) as envs:
        envs.reset(seed=1)
        before = np.stack(list(envs.alive.values()))
        ends = 0
        for _ in range(STEPS):
            _, rewards, terminations, truncations, _ = envs.step(actions_of(rng, 3))
            acted = np.stack(list(rewards.values())) > 0
            np.testing.assert_array_equal(acted, before)
            ended = np.stack(list(terminations.values())) | np.stack(list(truncations.values()))
            assert not (ended & ~before).any()
            ends += ended.sum()
            before = np.stack(list(envs.alive.values()))
        assert ends > 10


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_rollouts_have_the_rows_of_steps(mode: Any) -> None:
    rng, again = np.random.default_rng(3), np.random.default_rng(3)
    with vector([Crowd] * 2, autoreset=mode) as envs, vector([Crowd] * 2, autoreset=mode) as twin:
        envs.reset(seed=1)
        obs, _ = twin.reset(seed=1)
        rollout = envs.rollout(20)
        for step in rollout:
            step.act(actions_of(rng, 2))
        for t in range(20):
            for i in range(2):
                check_obs({a: _at(rollout.obs[a], t) for a in AGENTS}, {a: _at(obs[a], i) for a in AGENTS}, i)
            alive = {agent: twin.alive[agent].copy() for agent in AGENTS}
            obs, *numbers, _ = twin.step(actions_of(again, 2))
            shown = rollout.rewards, rollout.terminations, rollout.truncations
            for agent in AGENTS:
                assert [each[agent][t].tolist() for each in shown] == [each[agent].tolist() for each in numbers]
                assert (rollout.alive[agent][t] == alive[agent]).all()
                assert (rollout.valid[agent][t] == alive[agent]).all()
        values = {agent: rng.random((21, 2)) for agent in AGENTS}
        advantages, returns = rollout.gae(values)
        for agent in AGENTS:
            assert advantages[agent].shape == returns[agent].shape == (20, 2)
            assert not advantages[agent][~rollout.valid[agent]].any()


def _at(tree: Any, index: int) -> Any:
    return {key: value[index] for key, value in tree.items()} if isinstance(tree, dict) else tree[index]


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("accident", [accidents.kill_myself, accidents.raise_value_error])
def test_a_fault_truncates_the_agents_that_were_there(accident: Any, mode: Any, tmp_path: Path) -> None:
    def fail(env: Any, _: Any) -> None:
        if env.time == 3:
            once(tmp_path / "failed", accident)(env)

    with vector([partial(Crowd, fail), Crowd], num_workers=2, faults="restart", autoreset=mode) as envs:
        envs.reset(seed=[1, 2])
        rng, reported = np.random.default_rng(0), 0
        for _ in range(STEPS):
            before = {agent: envs.alive[agent][0] for agent in AGENTS}
            _, rewards, terminations, truncations, infos = envs.step(actions_of(rng, 2))
            if "fault" in infos[0] or "fault" in infos[0].get("final_info", {}):
                reported += 1
                assert {agent: truncations[agent][0] for agent in AGENTS} == before
                assert not any(terminations[agent][0] or rewards[agent][0] for agent in AGENTS)
                assert all(envs.alive[agent][0] == (mode == "same_step") for agent in AGENTS)
        assert reported == 1


def test_dtypes_are_those_of_the_env_and_absent_agents_have_zeros() -> None:
    rng, absent = np.random.default_rng(0), 0
    with vector([Crowd] * 4, autoreset="same_step") as envs:
        envs.reset(seed=1)
        for _ in range(STEPS):
            obs, rewards, terminations, truncations, _ = envs.step(actions_of(rng, 4))
            for agent in AGENTS:
                assert (rewards[agent].dtype, terminations[agent].dtype) == (np.float64, np.bool_)
                assert truncations[agent].dtype == envs.alive[agent].dtype == np.bool_
            for shown in (obs, envs.final_obs or obs):
                assert shown["a0"].dtype == shown["a1"].dtype == np.uint8
            assert obs["b0"]["mask"].dtype == np.int8 and np.isfinite(obs["b0"]["place"]).all()
            absent += (~envs.alive["b0"]).sum()
    assert absent > 0


def test_agents_that_are_in_no_env_need_no_action() -> None:
    with vector([Crowd]) as envs:
        envs.reset(seed=1)
        rng = np.random.default_rng(0)
        for _ in range(STEPS):
            actions = actions_of(rng, 1)
            envs.step({agent: actions[agent] for agent in AGENTS if envs.alive[agent].any()})


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


def test_parts_of_the_envs_are_sent_and_received() -> None:
    with vector([Crowd] * 3, num_workers=None) as envs:
        envs.reset(seed=1)
        actions = actions_of(np.random.default_rng(0), 3)
        envs.send({agent: actions[agent][1:] for agent in AGENTS}, env_ids=[1, 2])
        obs, *_ = envs.recv(order="slot")
        assert envs.env_ids.tolist() == [1, 2] and obs["a0"].shape == (2, 2, 2)
        obs, _ = envs.reset(env_ids=[2])
        assert envs.env_ids.tolist() == [2] and obs["b0"]["place"].tolist() == [[100]]


def test_calls_and_extras_reach_the_env() -> None:
    extras: Any = {"luck": lambda env: env.luck, "time": (lambda env: env.time, ((), np.int64))}
    with vector([Crowd] * 2, extras=extras) as envs:
        envs.reset(seed=1)
        assert envs.get_attr("luck") == envs.extras["luck"].tolist() == envs.call("luck")
        envs.step(actions_of(np.random.default_rng(0), 2))
        assert envs.extras["time"].tolist() == [1, 1]
        envs.set_attr("luck", 5)
        assert envs.get_attr("luck") == [5, 5]


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


def test_agents_with_equal_spaces_share_one_array() -> None:
    with vector([Crowd] * 2) as envs:
        obs, _ = envs.reset(seed=1)
        assert obs["a0"].base is not None and obs["a0"].base is obs["a1"].base
        assert envs.single_action_space("a1") == Crowd().action_space("a1")
        assert envs.observation_space("a0").shape == (2, 2, 2)
        assert isinstance(envs, ParallelVectorEnv) and pettingzoo.__version__
        assert envs.pool.num_envs == 2 and FaultPolicy() == envs.pool.options.get("faults", FaultPolicy())


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
