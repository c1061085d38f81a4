"""Functions that the imitated libraries lack: every face has `stats`, and its pool or a reason why not.

`test_vector_envs.py` has those that only vector envs have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fault_table import FACES, NEEDS
from pool_envs import counting

import remuda
from remuda import ClosedError, FaultPolicy, StateError
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
