"""States, spaces, agents, figures and crash records of parallel envs in a pool.

`test_known_envs.py` compares their rows.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("pettingzoo")

from pairs import each
from parallel_envs import AGENTS, Crowd, TwoAgents, actions_of, fail_in_the_second_step
from replays import assert_reproduced, replay

import remuda
from remuda import EnvError, InvalidEnvError
from remuda.pettingzoo import ParallelVectorEnv, vector


def test_envs_without_a_state_are_refused() -> None:
    with vector([Crowd], state=True, num_workers=None) as envs:
        envs.reset(seed=1)
        rollout = envs.rollout(2)
        for step in rollout:
            step.act(actions_of(np.random.default_rng(0), 1))
        assert rollout.state[:, 0, 1].tolist() == [0, 1, 2] and envs.rollout(1).state is not None
    with pytest.raises(InvalidEnvError, match="expected an env with a `state_space`, for `state=True`"):
        vector([Stateless], state=True, num_workers=None)
    with vector([Stateless], num_workers=None) as envs:
        envs.reset()
        assert envs.state is None


class Stateless(Crowd):
    state_space = None  # type: ignore[assignment]


def test_an_env_that_is_none_is_refused() -> None:
    with pytest.raises((InvalidEnvError, remuda.EnvError), match="expected a PettingZoo env, parallel or AEC"):
        vector([lambda: object()], num_workers=None)


def test_envs_whose_agents_take_turns_are_converted() -> None:
    simple_spread = pytest.importorskip("mpe2.simple_spread_v3")
    seeds = [1, 2]
    with vector([lambda: simple_spread.env(max_cycles=5)] * 2, num_workers=None) as envs:
        obs, _ = envs.reset(seed=seeds)
        alone = simple_spread.parallel_env(max_cycles=5)
        expected, _ = alone.reset(seed=2)
        for agent in alone.possible_agents:
            np.testing.assert_array_equal(obs[agent][1], expected[agent])


def test_spaces_and_dtypes_are_those_of_the_env_and_equal_agents_share_one_array() -> None:
    with vector([Crowd] * 2, num_workers=None) as envs:
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


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_returns_are_means_over_agents_and_those_of_each_agent(mode: Any) -> None:
    sums, returns = np.zeros((2, 3)), [list[Any](), list[Any]()]
    rng = np.random.default_rng(1)
    with vector([Crowd] * 2, autoreset=mode, backend="serial") as envs:
        envs.reset(seed=[5, 6])
        assert envs.agent_returns()["a0"].shape == (0,)
        for _ in range(40):
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


def test_a_crash_record_replays_the_fault(tmp_path: Path) -> None:
    with vector([partial(Crowd, fail_in_the_second_step)] * 2, num_workers=2, crash_dir=tmp_path) as envs:
        envs.reset(seed=[1, 2])
        rng = np.random.default_rng(0)
        with pytest.raises(remuda.EnvError, match="broken"):
            for _ in range(2):
                envs.step(actions_of(rng, 2))
    assert_reproduced(replay(next(tmp_path.glob("*.remuda")), "--trust"), "the env raised ValueError: broken")


# -- agents, which are the same in all envs in the same order, because rows of arrays stand for them ------

TEXT = r"expected the agents of all envs to be \('a', 'b', 'c'\), as for .*, got {} for env 1; make them equal"


class Named(TwoAgents):
    """Observes the index of each agent. Agents in `wide` have other spaces."""

    def __init__(self, agents: str, wide: str = "") -> None:
        super().__init__()
        self.possible_agents, self.wide = list(agents), wide

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3 if agent in self.wide else 2)

    def step(self, actions: Any) -> Any:
        raise ValueError("broken")


WAYS: list[dict[str, Any]] = [
    *({"backend": "serial"}, {"backend": "thread", "num_workers": 2}, {"num_workers": 1}),
    *({"num_workers": 2, "start_method": method} for method in ("spawn", "fork", "forkserver")),
]


@each(other=["acb", "abx", "ax"], options=WAYS)
def test_envs_with_other_agents_are_refused(other: str, options: Any) -> None:
    with pytest.raises(InvalidEnvError, match=TEXT.format(r"\({}\)".format(", ".join(f"'{name}'" for name in other)))):
        vector([partial(Named, "abc"), partial(Named, other)], **options)


def test_groups_of_equal_spaces_are_compared_too() -> None:
    with pytest.raises(InvalidEnvError, match="expected the groups of agents of all envs to be"):
        vector([partial(Named, "abcde", "cd"), partial(Named, "abcde", "ce")], backend="serial")


def test_an_env_that_is_built_later_is_compared_too() -> None:
    envs = vector([partial(Named, "abc"), partial(Named, "acb")], backend="serial", lazy=True)
    with envs, pytest.raises(EnvError, match=TEXT.format(r"\('a', 'c', 'b'\)")):
        envs.reset()


def test_a_rebuilt_env_is_compared_too(tmp_path: Path) -> None:
    def changing() -> Named:
        built = Named("acb" if (tmp_path / "built").exists() else "abc")
        (tmp_path / "built").touch()
        return built

    with vector([partial(Named, "abc"), changing], backend="serial", faults="restart") as envs:
        envs.reset()
        with pytest.raises(Exception, match=TEXT.format(r"\('a', 'c', 'b'\)")):
            for _ in range(20):
                envs.step({agent: np.zeros(2, int) for agent in "abc"})
