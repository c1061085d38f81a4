"""Functions that the imitated libraries lack: every face has `stats`, and its pool or a reason why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fault_table import FACES, NEEDS
from pool_envs import counting

import remuda
from remuda import ClosedError, FaultPolicy, Part, Pool, StateError
from remuda.gymnasium import AsyncVectorEnv

pytestmark = pytest.mark.filterwarnings("ignore")  # the imitated libraries use deprecated functions


@pytest.mark.parametrize("face", sorted(FACES))
def test_every_face_has_stats_and_has_its_pool_or_the_reason_why_not(face: str) -> None:
    pytest.importorskip(NEEDS.get(face, face), reason=f"{face} is not tested in this environment")
    envs = FACES[face].make("step", lambda *_: None, FaultPolicy(), None)
    if hasattr(envs, "launch"):
        with pytest.raises(StateError):
            envs.stats()
        envs.launch()
    FACES[face].go_on(envs)
    stats = envs.stats()
    assert stats.setup.num_envs == len(stats.envs) == 2
    assert stats.steps >= 4
    assert stats.seconds > 0
    assert "2 envs" in str(stats)
    if face in ("ding", "alf", "mlagents"):
        with pytest.raises(NotImplementedError, match=r"remuda.Pool for rollouts, .*, got a \w+: .*(DI|ALF|ML)"):
            envs.pool  # noqa: B018
        with pytest.raises(NotImplementedError, match="got a"):
            remuda.collect(envs, lambda obs: obs, steps=2)
    envs.close()
    with pytest.raises((ClosedError, StateError)):
        envs.stats()


def sb3(n: int) -> Any:
    pytest.importorskip("stable_baselines3")
    from remuda.sb3 import SubprocVecEnv

    return SubprocVecEnv(counting(n), num_workers=2)


@pytest.mark.parametrize("make", [lambda n: AsyncVectorEnv(counting(n), num_workers=2), sb3], ids=["gymnasium", "sb3"])
def test_a_face_continues_from_states_that_its_pool_restored(make: Any) -> None:
    envs = make(4)
    envs.reset()
    envs.step(np.array([5, 5, 5, 5]))
    states = envs.pool.get_state(state_fns="attributes")
    envs.step(np.array([6, 6, 6, 6]))
    assert isinstance(envs.pool, Pool) and envs.pool.set_state(states).obs[:, 2].tolist() == [1] * 4
    assert envs.step(np.array([7, 7, 7, 7]))[0][:, 2].tolist() == [2] * 4
    envs.pool.fork_state(0, [1, 2], state_fns="attributes")
    assert envs.step(np.array([7, 7, 7, 7]))[0][:, 0].tolist() == [0, 0, 0, 3]
    half = envs.split(2)[0]
    assert type(half.pool) is Part and half.pool.num_envs == 2
    envs.close()
    with pytest.raises(ClosedError):
        envs.pool.get_state()


def test_evaluate_takes_a_whole_pool_and_collect_a_pool_or_vector_env_of_ours() -> None:
    envs = AsyncVectorEnv(counting(2), num_workers=1)
    policy: Any = lambda obs: np.ones(len(obs), int)  # noqa: E731
    with pytest.raises(TypeError, match="expected a Pool or factories, got AsyncVectorEnv: give its `pool`"):
        remuda.evaluate(policy, envs, episodes=2)  # type: ignore[arg-type]
    half = envs.split(2)[0]
    with pytest.raises(TypeError, match="expected a whole pool, got a part of one"):
        remuda.evaluate(policy, half.pool, episodes=2)  # type: ignore[arg-type]
    envs.close()
    with pytest.raises(TypeError, match=r"expected a remuda.Pool, or a vector env of .*, got list"):
        remuda.collect([], lambda obs: obs, steps=2)  # type: ignore[arg-type]
