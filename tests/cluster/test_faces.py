"""The faces return on a cluster, with `backend=remuda.Ray(...)`, what they return on one machine."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_envs import Scripted, actions
from pool_envs import assert_same

import remuda
from remuda.gymnasium import AsyncVectorEnv

NUM_ENVS = 4
ACTIONS = [actions(step, range(NUM_ENVS)) for step in range(12)]
FACES = Path(__file__).parents[1] / "faces" / "support"


def gymnasiums(**options: Any) -> list[Any]:
    envs = AsyncVectorEnv([Scripted] * NUM_ENVS, **options)
    results = [envs.reset(seed=4), *map(envs.step, ACTIONS)]
    results.append(envs.reset(options={"reset_mask": np.array([True, False, True, False])}))
    results.append(envs.call("steps"))
    envs.close()
    return results


def sb3s(**options: Any) -> list[Any]:
    sb3 = pytest.importorskip("stable_baselines3") and remuda.sb3
    envs = sb3.SubprocVecEnv([Scripted] * NUM_ENVS, **options)
    envs.seed(4)
    results = [envs.reset(), *map(envs.step, ACTIONS)]
    envs.set_attr("length", 2, indices=[1])
    results += [envs.get_attr("length", [0, 1]), envs.env_method("pid") and None, envs.reset_infos]
    envs.close()
    return results


def alfs(**options: Any) -> list[Any]:
    envs_module = importlib.import_module("alf_face_envs")
    with remuda.alf.FastParallelEnvironment([envs_module.CountingAlfEnv] * NUM_ENVS, **options) as envs:
        rng = np.random.default_rng(5)
        each = [envs_module.random_actions(envs.action_spec(), envs.batch_size, rng) for _ in range(12)]
        return [str(envs.reset()), *(str(envs.step(one)) for one in each)]


def pettingzoos(**options: Any) -> list[Any]:
    pytest.importorskip("pettingzoo")
    crowd = importlib.import_module("parallel_envs")
    rng, results = np.random.default_rng(5), list[Any]()
    with remuda.pettingzoo.vector([crowd.Crowd] * NUM_ENVS, **options) as envs:
        results.append(envs.reset(seed=4)[0])
        for _ in range(12):
            *numbers, _ = envs.step(crowd.actions_of(rng, NUM_ENVS))
            results += [numbers, envs.alive]
    return results


@pytest.mark.usefixtures("kept_actors")
@pytest.mark.parametrize("course", [gymnasiums, sb3s, alfs, pettingzoos])
def test_a_face_returns_what_it_does_on_one_machine(
    monkeypatch: pytest.MonkeyPatch, course: Callable[..., list[Any]]
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(FACES), str(FACES / "alf_stand_in")])
    assert_same(course(backend=remuda.Ray(shards=2, backend="serial")), course(num_workers=2))
