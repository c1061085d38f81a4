"""The faces run on a cluster with `backend=remuda.Ray(...)`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.conftest import TwoNodes
from cluster_envs import Scripted, actions
from pool_envs import assert_same

import remuda
from remuda.gymnasium import AsyncVectorEnv

NUM_ENVS = 4


def vector_course(**options: Any) -> list[Any]:
    envs = AsyncVectorEnv([Scripted] * NUM_ENVS, **options)
    results = [envs.reset(seed=4)]
    results += [envs.step(actions(step, range(NUM_ENVS))) for step in range(12)]
    mask = np.array([True, False, True, False])
    results.append(envs.reset(options={"reset_mask": mask}))
    results.append(envs.call("steps"))
    envs.close()
    return results


def test_gymnasiums_face_returns_what_it_does_on_one_machine(cluster: TwoNodes) -> None:
    on_cluster = vector_course(backend=remuda.Ray(shards=2, backend="serial"))
    assert_same(on_cluster, vector_course(backend="serial"))


def sb3_course(**options: Any) -> list[Any]:
    sb3 = pytest.importorskip("stable_baselines3") and remuda.sb3
    envs = sb3.SubprocVecEnv([Scripted] * NUM_ENVS, **options)
    envs.seed(4)
    results = [envs.reset()]
    results += [envs.step(actions(step, range(NUM_ENVS))) for step in range(12)]
    envs.set_attr("length", 2, indices=[1])
    results += [envs.get_attr("length", [0, 1]), envs.env_method("pid") and None, envs.reset_infos]
    envs.close()
    return results


def test_sb3s_face_returns_what_it_does_on_one_machine(cluster: TwoNodes) -> None:
    on_cluster = sb3_course(backend=remuda.Ray(shards=2, backend="serial"))
    assert_same(on_cluster, sb3_course(backend="serial"))


def test_a_closed_pool_refuses_steps(cluster: TwoNodes) -> None:
    with remuda.Pool([Scripted] * 2, backend=remuda.Ray(backend="serial")) as pool:
        pool.reset()
        assert "2 envs in 1 process" in str(pool.stats())
    with pytest.raises(remuda.ClosedError):
        pool.step([0, 0])
    pool.close()
    assert repr(pool) == "<Pool of 2 envs, closed>"


FACES = Path(__file__).parents[1] / "faces" / "support"


def test_alfs_face_returns_what_it_does_on_one_machine(cluster: TwoNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(FACES), str(FACES / "alf_stand_in")])
    envs_module = importlib.import_module("alf_face_envs")

    def course(**options: Any) -> list[str]:
        with remuda.alf.FastParallelEnvironment([envs_module.CountingAlfEnv] * NUM_ENVS, **options) as envs:
            rng = np.random.default_rng(5)
            actions = [envs_module.random_actions(envs.action_spec(), envs.batch_size, rng) for _ in range(12)]
            return [str(envs.reset()), *(str(envs.step(one)) for one in actions)]

    assert course(backend=remuda.Ray(shards=2, backend="serial")) == course(num_workers=2)
