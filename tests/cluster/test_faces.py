"""The Gymnasium and the SB3 face run on a cluster by one option; the others say that they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cluster.conftest import TwoNodes
from cluster_envs import Scripted, actions
from pool_envs import assert_same

import remuda
from remuda._faces.worker_defaults import set_local_defaults
from remuda.gymnasium import AsyncVectorEnv

NUM_ENVS = 4


def vector_course(**options: Any) -> list[Any]:
    envs = AsyncVectorEnv([Scripted] * NUM_ENVS, **options)
    told = [envs.reset(seed=4)]
    told += [envs.step(actions(step, range(NUM_ENVS))) for step in range(12)]
    mask = np.array([True, False, True, False])
    told.append(envs.reset(options={"reset_mask": mask}))
    told.append(envs.call("steps"))
    envs.close()
    return told


def test_gymnasiums_face_returns_what_it_does_on_one_machine(cluster: TwoNodes) -> None:
    on_cluster = vector_course(backend=remuda.Ray(shards=2, backend="serial"))
    assert_same(on_cluster, vector_course(backend="serial"))


def sb3_course(**options: Any) -> list[Any]:
    sb3 = pytest.importorskip("stable_baselines3") and remuda.sb3
    envs = sb3.SubprocVecEnv([Scripted] * NUM_ENVS, **options)
    envs.seed(4)
    told = [envs.reset()]
    told += [envs.step(actions(step, range(NUM_ENVS))) for step in range(12)]
    envs.set_attr("length", 2, indices=[1])
    told += [envs.get_attr("length", [0, 1]), envs.env_method("pid") and None, envs.reset_infos]
    envs.close()
    return told


def test_sb3s_face_returns_what_it_does_on_one_machine(cluster: TwoNodes) -> None:
    on_cluster = sb3_course(backend=remuda.Ray(shards=2, backend="serial"))
    assert_same(on_cluster, sb3_course(backend="serial"))


def test_the_others_say_that_they_do_not() -> None:
    with pytest.raises(TypeError, match="from a cluster shard by shard"):
        set_local_defaults({"backend": remuda.Ray()}, "remuda")


def test_every_method_of_a_pool_is_one_of_a_cluster_or_refused() -> None:
    """A method that is new is written for clusters, or calls what is, or ends in the error that the next test sees."""
    from remuda._cluster.pool import ClusterPool

    pool = {
        name: method for name in dir(remuda.Pool) if not name.startswith("_") and (method := _code(remuda.Pool, name))
    }
    inherited = {name for name, method in pool.items() if _code(ClusterPool, name) is method}
    made_of_others = {"apply", "apply_async", "call", "call_async", "fork_state", "get_attr", "render", "reset"}
    made_of_others |= {"set_attr", "set_attrs"}
    refused = {"replace", "rollout", "trace"}
    assert inherited == made_of_others | refused


def _code(kind: type, name: str) -> Any:
    return getattr(getattr(kind, name), "__code__", None)


def test_what_a_pool_on_a_cluster_has_not_says_so(cluster: TwoNodes) -> None:
    with remuda.Pool([Scripted] * 2, backend=remuda.Ray(backend="serial")) as pool:
        pool.reset()
        with pytest.raises(NotImplementedError, match="expected a pool on this machine"):
            pool.replace([0], [Scripted])
        with pytest.raises(NotImplementedError, match="expected a pool on this machine"):
            pool.trace("here.json")
        with pytest.raises(NotImplementedError, match="expected a pool on this machine"):
            pool.rollout(4)
        text = str(pool.stats())
        assert "2 envs in 1 serial" in text
    with pytest.raises(remuda.ClosedError):
        pool.step([0, 0])
    pool.close()
    assert repr(pool) == "<Pool of 2 envs, closed>"
