"""The envs of a pool have the same agents in the same order, because rows of arrays stand for agents."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("pettingzoo")

from pairs import each
from parallel_envs import TwoAgents

from remuda import EnvError, InvalidEnvError
from remuda.pettingzoo import vector
from remuda.pettingzoo.agents_env import build

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


def test_an_env_that_a_factory_returns_again_is_refused() -> None:
    env = Named("abc")
    with pytest.raises(InvalidEnvError, match="got the same object as"):
        vector([lambda: env] * 2, backend="serial")


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


def test_a_replacement_is_compared_too() -> None:
    with vector([partial(Named, "abc")] * 2, backend="serial") as envs:
        with pytest.raises(InvalidEnvError, match="expected the agents of all envs to be"):
            envs.pool.replace([1], [partial(build, partial(Named, "acb"), with_state=False)])
        obs, _ = envs.reset()
        assert [obs[agent][1].tolist() for agent in "abc"] == [[0], [1], [2]]
