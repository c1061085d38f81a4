"""Replacement of envs before a rollout begins, and while it is open."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from pairs import each
from pool_envs import CountingEnv, begun, counting
from programs import kill
from rollout_envs import ending, fill
from vector_envs import PlainVector

from remuda import FaultPolicy, Pool, StateError

BACKENDS = ("process", "thread", "serial")
LOOKS: dict[str, Callable[[Pool], object]] = {
    "rollout": lambda pool: pool.rollout(3),
    "observe": lambda pool: pool.request_obs(),
    "state": lambda pool: pool.get_state(state_fns="attributes"),
}
REFUSED = [
    (mode, look) for look in LOOKS for mode in ("same_step", "disabled") if (mode, look) != ("disabled", "rollout")
]


@each(at=[0, 1, 3], faults=["raise", "restart", "resume"])
def test_a_replacement_truncates_the_episode_in_an_open_rollout(at: int, faults: Any) -> None:
    with begun(counting(3), num_workers=2, faults=faults) as pool:
        rollout = pool.rollout(6)
        for t, step in enumerate(rollout):
            if t == at:
                pool.replace([1], [partial(CountingEnv, 10)])
            step.act([1, 1, 1])
        ends, resets, starts = np.zeros((6, 3), bool), np.zeros((6, 3), bool), np.zeros((7, 3), bool)
        starts[0], starts[at + 1, 1], resets[at, 1] = True, True, True
        if at:
            ends[at - 1, 1] = True
        np.testing.assert_array_equal(rollout.truncations, ends)
        assert not rollout.terminations.any()
        np.testing.assert_array_equal(rollout.valid, ~resets)
        np.testing.assert_array_equal(rollout.episode_starts, starts)
        assert rollout.obs[:, 1, 0].tolist() == [1] * (at + 1) + [10] * (6 - at)
        assert rollout.obs[:, 1, 2].tolist() == [*range(at + 1), *range(6 - at)]  # steps of the episode
        advantages, _ = rollout.gae(np.ones((7, 3)), 0.5, 1.0)
        assert advantages[at, 1] == 0
        if at:
            assert advantages[at - 1, 1] == 0.5  # 1 + 0.5 - 1, from the old env's last step only


def test_a_replacement_after_a_termination_does_not_truncate() -> None:
    with begun(ending([2, 50]), num_workers=1) as pool:
        rollout = pool.rollout(5)
        for t, step in enumerate(rollout):
            if t == 2:
                pool.replace([0], [partial(CountingEnv, 10)])
            step.act([1, 1])
        assert rollout.terminations[:, 0].tolist() == [False, True, False, False, False]
        assert not rollout.truncations.any()
        assert rollout.valid[:, 0].tolist() == [True, True, False, True, True]


def test_an_env_that_was_lost_before_its_replacement_truncates_once() -> None:
    with begun(counting(2), num_workers=2, faults=FaultPolicy("restart", backoff=0)) as pool:
        rollout = pool.rollout(6)
        for t, step in enumerate(rollout):
            if t == 2:
                kill(pool, 1)
                while not pool.stats().restarts:  # until the pool has noticed the death
                    pass
                pool.replace([1], [partial(CountingEnv, 10)])
            step.act([1, 1])
        assert rollout.truncations[:, 1].sum() == 1
        first = int(np.flatnonzero(rollout.episode_starts[:, 1])[-1])
        assert rollout.obs[first:, 1, 0].tolist() == [10] * (7 - first)
        assert not rollout.valid[first - 1, 1] and rollout.obs[first, 1, 2] == 0


@each(faults=["raise", "restart", "resume"], backend=BACKENDS)
@pytest.mark.parametrize("how", ["reset", "step", None])
def test_a_rollout_after_replace_begins_with_the_reset_of_the_env(faults: Any, backend: Any, how: str | None) -> None:
    with begun(counting(3), backend=backend, num_workers=2, faults=faults) as pool:
        before = pool.step([1] * 3).obs.copy()
        pool.replace([1], [partial(CountingEnv, 10)])
        if how == "reset":
            pool.reset(env_ids=[1])
        if how == "step":
            pool.step([1] * 3)
        rollout = fill(pool.rollout(2))
        is_new = how is not None
        assert rollout.obs[:, 1, 0].tolist() == [10 if is_new else 1, 10, 10]
        assert rollout.valid.tolist() == [[True, is_new, True], [True] * 3]
        assert rollout.episode_starts[:, 1].tolist() == [is_new, not is_new, False]
        if not is_new:
            np.testing.assert_array_equal(rollout.obs[0], before)
        assert pool.stats().restarts == 0


def test_a_replaced_vector_env_can_be_observed_and_truncates_all_its_episodes() -> None:
    make = partial(PlainVector, 2, mode="next_step")
    with begun([partial(make, 0), partial(make, 2)], vector_size=2, num_workers=2, faults="restart") as pool:
        pool.replace([2, 3], [partial(make, 10)])
        pool.request_obs()
        assert pool.recv().obs[:, 0].tolist() == [0, 1, 2, 3]
        rollout = fill(pool.rollout(2))
        assert rollout.obs[:, :, 0].tolist() == [[0, 1, 2, 3], [0, 1, 10, 11], [0, 1, 10, 11]]
        assert rollout.valid[0].tolist() == [True, True, False, False]
        assert pool.stats().restarts == 0
        rollout = pool.rollout(4)
        for t, step in enumerate(rollout):
            if t == 2:
                pool.replace([2, 3], [partial(make, 20)])
            step.act([1] * 4)
        assert rollout.truncations[1].tolist() == [False, False, True, True]
        assert rollout.valid[2].tolist() == [True, True, False, False]
        assert rollout.episode_starts[3].tolist() == [False, False, True, True]


@each(mode__look=REFUSED, faults=["raise", "restart", "resume"], backend=BACKENDS)
def test_a_replaced_env_needs_a_reset_if_no_step_resets_it(mode: Any, look: str, faults: Any, backend: Any) -> None:
    with begun(counting(3), backend=backend, num_workers=2, autoreset=mode, faults=faults) as pool:
        pool.step([1] * 3)
        pool.replace([1], [partial(CountingEnv, 10)])
        with pytest.raises(StateError, match=r"expected envs that have been reset, got env 1; call reset"):
            LOOKS[look](pool)
        assert pool.pending == 0
        pool.request_obs([0, 2])
        assert sorted(pool.recv().obs[:, 0].tolist()) == [0, 2]
        pool.reset(env_ids=[1])
        pool.request_obs()
        assert sorted(pool.recv().obs[:, 0].tolist()) == [0, 2, 10]
        assert pool.stats().restarts == 0
