"""Parallel envs with `faults="resume"`: episodes that begin without a seed are resumed, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import kill

import remuda.pettingzoo
from remuda import FaultPolicy


def live(kills: tuple[int, ...]) -> list[Any]:
    """Returns the observations and rewards of two envs. `kills`: the steps before which a worker is killed."""
    spread = pytest.importorskip("mpe2.simple_spread_v3")
    rows, actions = list[Any](), np.random.default_rng(0)
    policy = FaultPolicy("resume", max_restarts=1000, backoff=0)
    with remuda.pettingzoo.vector([spread.parallel_env] * 2, num_workers=None, faults=policy) as envs:
        envs.reset(seed=0)
        for step in range(60):
            if step in kills:
                kill(envs.pool, step % 2)
            obs, rewards, *_ = envs.step({agent: actions.integers(0, 5, 2) for agent in envs.possible_agents})
            rows.append([{agent: of[agent].tolist() for agent in of} for of in (obs, rewards)])
            envs.agent_returns()
        assert envs.pool.stats().restarts == len(kills)
    return rows


def test_kills_change_no_row() -> None:
    assert live((5, 30, 41)) == live(())
