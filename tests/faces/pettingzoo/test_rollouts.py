"""A rollout of parallel envs has the columns, turns and faults of a pool's rollout, by agent or by group."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo")

from parallel_envs import AGENTS, Crowd, actions_of, fail_in_the_second_step

from remuda.pettingzoo import ParallelRollout, ParallelStep, vector

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


def test_faults_are_those_of_the_rollout() -> None:
    with vector([Crowd, partial(Crowd, fail_in_the_second_step)], backend="serial", faults="restart") as envs:
        envs.reset(seed=2)
        rollout = envs.rollout(STEPS)
        fill(rollout, rollout)
        assert [(t, column) for t, column in rollout.faults if t < 2] == [(1, 1)]
        assert "broken" in str(rollout.faults[1, 1])
        assert rollout.truncations["b0"][1, 1] == rollout.alive["b0"][1, 1]


def test_unknown_attributes_are_named() -> None:
    with vector([Crowd], backend="serial") as envs:
        envs.reset()
        rollout = envs.rollout(1)
        for name in ("_nothing", "nothing"):
            with pytest.raises(AttributeError, match="nothing"):
                getattr(rollout, name)
        rollout.close()
        assert not rollout.is_open
