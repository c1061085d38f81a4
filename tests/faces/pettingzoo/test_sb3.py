"""Stable-Baselines3 learns from parallel envs, in which each agent of each env is an env of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("pettingzoo")
pytest.importorskip("stable_baselines3")

from parallel_envs import Crowd

from remuda import InvalidActionError
from remuda.pettingzoo import vector


class Equals(Crowd):
    """A Crowd whose agents have equal spaces."""

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 255, (2, 2), np.uint8)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(4)

    def _observations(self, agents: Any) -> dict[str, Any]:
        return {agent: np.full((2, 2), 1 + 10 * self.time + "ab".index(agent[0]), np.uint8) for agent in agents}


def test_rows_are_those_of_the_agents() -> None:
    with (
        vector([Equals] * 2, autoreset="same_step", backend="serial") as envs,
        vector([Equals] * 2, autoreset="same_step", backend="serial") as twin,
    ):
        venv = envs.to_sb3()
        venv.seed(3)
        seeds = venv._seeds[::3]
        obs = venv.reset()
        expected, _ = twin.reset(seed=seeds)
        agents, rng, truncated, absent = envs.possible_agents, np.random.default_rng(0), 0, 0
        assert venv.num_envs == 6 and obs.shape == (6, 2, 2)
        for _ in range(40):
            actions = rng.integers(0, 4, 6)
            before = np.stack(list(twin.alive.values()), axis=1)
            obs, rewards, dones, infos = venv.step(actions)
            expected, *numbers, own = twin.step(dict(zip(agents, actions.reshape(2, 3).T, strict=True)))
            for row in range(6):
                env, agent = divmod(row, 3)
                name = agents[agent]
                reward, terminated, cut_off = (each[name][env] for each in numbers)
                is_over = not any(twin.alive[each][env] for each in agents) or "final_info" in own[env]
                assert rewards[row] == np.float32(reward)
                assert dones[row] == (terminated or cut_off)
                if not dones[row]:
                    assert (obs[row] == expected[name][env]).all() and "terminal_observation" not in infos[row]
                    absent += not before[env, agent]
                    continue
                assert before[env, agent]
                assert infos[row]["of"] == name  # the info of the last step
                last = twin.final_obs if is_over else expected
                assert infos[row]["TimeLimit.truncated"] == bool(cut_off and not terminated)
                truncated += infos[row]["TimeLimit.truncated"]
                assert last is not None
                assert (infos[row]["terminal_observation"] == last[name][env]).all()
                assert (obs[row] == (expected[name][env] if is_over else 0)).all()
        assert truncated > 3 and absent > 3
        assert venv.get_attr("time") == [time for time in twin.get_attr("time") for _ in agents]
        assert venv.env_method("state", indices=[5])[0].tolist() == twin.call("state")[1].tolist()
        venv.set_attr("luck", 7, indices=[1])
        assert envs.get_attr("luck") == envs.call("luck") == [7, envs.get_attr("luck", [1])[0]]


@pytest.mark.parametrize("actions", [np.ones((3, 2), int), np.ones(5, int), np.full(6, 0.5), np.full(6, 9)], ids=str)
def test_actions_that_do_not_fit_are_refused(actions: Any) -> None:
    with vector([Equals] * 2, autoreset="same_step", backend="serial") as envs:
        venv = envs.to_sb3()
        venv.reset()
        with pytest.raises(InvalidActionError, match="at actions"):
            venv.step(actions)
        venv.step(np.ones((6, 1), int))
        with pytest.raises(TypeError, match=r"^AgentsVecEnv.reset\(\) got .* 'seed'; call envs.seed\(0\) before"):
            venv.reset(seed=0)


def test_a_reset_drops_the_step_that_an_interrupt_has_left_in_flight() -> None:
    with vector([Equals] * 2, autoreset="same_step", backend="serial") as envs:
        venv = envs.to_sb3()
        venv.reset()
        venv.step_async(np.ones(6, int))  # Ctrl-C comes in `step_wait`
        assert (venv.reset() == np.tile([[[1]], [[1]], [[2]]], (2, 2, 2))).all()
        assert venv.step(np.ones(6, int))[0].shape == (6, 2, 2)


@pytest.mark.parametrize(("kind", "mode"), [(Crowd, "same_step"), (Equals, "next_step")])
def test_other_agents_and_modes_are_refused(kind: Any, mode: Any) -> None:
    with (
        vector([kind], autoreset=mode, backend="serial") as envs,
        pytest.raises(ValueError, match="expected agents with equal spaces"),
    ):
        envs.to_sb3()
