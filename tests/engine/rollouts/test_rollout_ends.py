"""Rollouts that end early, and replacements of envs before and in a rollout.

Results in flight are not lost, and the pool remains usable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import kill_myself
from pairs import each
from pool_envs import CountingEnv, Gate, begun, counting, hooked
from programs import kill
from rollout_envs import FailingEnv, ending, fill
from vector_envs import PlainVector

import remuda
from remuda import EnvError, FaultPolicy, Pool, Rollout, StateError

# -- what is in flight -----------------------------------------------------------------------------------


@contextmanager
def failed_close() -> Iterator[tuple[Pool, Rollout]]:
    """Yields a pool, and a rollout whose close an env has failed. The results of the other envs are in flight."""
    with begun([*ending([1, 50, 50]), FailingEnv], num_workers=2) as pool:
        rollout = pool.rollout(3)
        pool.send([7, 8, 9, 4])
        with pytest.raises(EnvError, match="four"):
            rollout.close()
        yield pool, rollout


def test_results_in_flight_after_a_failed_close_keep_rewards_and_flags() -> None:
    for again in (True, False):
        with failed_close() as (pool, rollout):
            assert not rollout.is_open and not rollout.valid.any()
            if again:
                rollout.close()
            else:
                batch = pool.recv()
                rows = zip(batch.env_ids.tolist(), batch.rewards.tolist(), batch.terminations.tolist(), strict=True)
                assert sorted(rows) == [(0, 7.0, True), (1, 8.0, False), (2, 9.0, False)]
            assert (pool.pending, rollout.rewards[0].tolist()) == (0, [7.0, 8.0, 9.0, 0.0])
            assert rollout.valid.tolist() == [[True, True, True, False], [False] * 4, [False] * 4]


@contextmanager
def filled() -> Iterator[tuple[Pool, Rollout]]:
    with begun(ending([1, 50, 50, 50]), num_workers=2) as pool:
        yield pool, fill(pool.rollout(2))


@pytest.mark.parametrize("ended", [failed_close, filled])
def test_closing_an_ended_rollout_does_not_disturb_a_later_one(ended: Callable[[], Any]) -> None:
    with ended() as (pool, first):
        pool.reset()
        before, second = first.valid.copy(), pool.rollout(2)
        pool.send([1] * 4)
        first.close()
        assert pool.pending == 4
        pool.recv()
        pool.step([1] * 4)
        assert second.valid.tolist() == [[True] * 4, [False, True, True, True]]  # env 0 was reset
        np.testing.assert_array_equal(first.valid, before)


@pytest.mark.parametrize("drop", [lambda pool: pool.discard(), lambda pool: pool.reset()])
def test_rows_of_discarded_results_are_empty(drop: Callable[[Pool], Any]) -> None:
    with failed_close() as (pool, rollout):
        drop(pool)
        assert not rollout.valid.any() and not rollout.rewards.any()
        assert not (rollout.terminations | rollout.truncations).any()


def test_unfilled_rows_of_an_open_rollout_are_empty() -> None:
    with begun(ending([1, 50]), num_workers=1) as pool:
        fill(pool.rollout(4))  # fills the memory that the next rollout reuses
        rollout = pool.rollout(4)
        pool.step([3, 3])
        assert rollout.rewards[1:].tolist() == [[0.0, 0.0]] * 3
        assert not rollout.terminations[1:].any()


def test_steps_of_all_envs_have_the_order_of_the_envs_while_only_some_have_rows_left(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    hook = lambda _, action: gate.wait() if action == 9 else None  # noqa: E731
    with begun(hooked(2, [0], step=hook), num_workers=2) as pool:
        rollout = pool.rollout(2)
        pool.step([1], [1])
        for _ in range(2):  # the rows of the envs lie in two frames of the rollout, then in the rollout and outside
            pool.send([9, 5])
            pool.call("echo", env_ids=[1])  # the result of env 1 has arrived when this returns
            gate.let_pass()
            batch = pool.recv()
            assert (batch.env_ids.tolist(), batch.rewards.tolist()) == ([0, 1], [9.0, 5.0])
        assert rollout.valid.all() and pool.owns(pool.step([1, 1]).obs)


# -- parts ----------------------------------------------------------------------------------------------


def assert_usable(pool: Pool) -> None:
    """Asserts that the pool steps, fills rollouts in one and two parts, and has no env in flight."""
    pool.step([1] * pool.num_envs)
    for parts in (1, 2):
        assert fill(pool.rollout(3, parts=parts)).valid.all()
    with pytest.raises(StateError, match="split"):
        pool.step([1] * pool.num_envs)  # the pool stays divided
    pool.split(1)
    assert pool.pending == 0


@each(turns=[1, 2, 3], recover=["reset", "discard", "send_reset"])
def test_a_pool_recovers_from_an_unfinished_rollout_in_parts(turns: int, recover: str) -> None:
    with begun(counting(4), num_workers=2) as pool:
        held = pool.rollout(4, parts=2)
        for step in islice(held, turns):
            step.act([1, 1])
        if recover == "reset":
            assert pool.reset().obs[:, 2].tolist() == [0] * 4
        elif recover == "discard":
            pool.discard()
        else:
            with pytest.raises(StateError, match="split"):
                pool.send_reset()
            pool.discard()
            pool.split(2)
            pool.send_reset()
            pool.recv()
        assert_usable(pool)
        held.close()
        assert_usable(pool)


@pytest.mark.parametrize("close_first", [True, False])
def test_closing_an_ended_rollout_does_not_disturb_later_parts(close_first: bool) -> None:
    with begun(counting(4), num_workers=2) as pool:
        ended = pool.rollout(4, parts=2)
        pool.split(1)
        rollout = pool.rollout(4, parts=2)
        if close_first:
            ended.close()
        turns = iter(rollout)
        next(turns).act([1, 1])
        ended.close()
        for step in turns:
            step.act([1, 1])
        assert rollout.valid.all() and not ended.valid.any()
        halves = pool.split(2)
        rollout.close()  # closing a full rollout does not change the parts
        assert halves[0].step([1, 1]).rewards.tolist() == [1.0, 1.0]


# -- faces ------------------------------------------------------------------------------------------------


@each(parts=[1, 2], face=["gymnasium", "sb3"])
def test_a_face_can_be_reset_after_an_unfinished_rollout(face: str, parts: int) -> None:
    if face == "sb3":
        pytest.importorskip("stable_baselines3")
    make: Any = remuda.gymnasium.AsyncVectorEnv if face == "gymnasium" else remuda.sb3.SubprocVecEnv
    envs = make(counting(4), num_workers=2)
    envs.reset()
    for step in envs.rollout(4, parts=parts):
        step.act([1] * len(step.env_ids))
        break
    envs.reset()
    assert envs.step(np.ones(4, int))[1].tolist() == [1.0] * 4
    envs.close()


# -- reports ----------------------------------------------------------------------------------------------


def test_a_death_between_rollouts_reports_the_last_action() -> None:
    for parts in (1, 2):
        with begun(counting(4), num_workers=2) as pool:
            pool.step([9] * 4)
            fill(pool.rollout(5, parts=parts), 3)
            pool.split(1)
            pool.rollout(50).close()  # this uses other memory and frees the first rollout's
            with pytest.raises(remuda.WorkerDiedError) as raised:
                pool.apply(kill_myself, env_ids=[2])
            assert (raised.value.where.step, int(raised.value.where.action)) == (6, 3)


def test_a_death_after_a_split_reports_the_envs_last_action() -> None:
    with begun(counting(4), num_workers=2) as pool:
        pool.step([5, 6, 7, 8])
        first, second = pool.split(2)
        first.step([1, 1])
        with pytest.raises(remuda.WorkerDiedError) as raised:
            second.apply(kill_myself, env_ids=[3])
        assert (raised.value.where.env_id, int(raised.value.where.action)) == (3, 8)


def test_a_rollout_of_one_env_reports_the_action_of_the_step_it_died_in() -> None:
    def step(env: Any, action: Any) -> None:
        if action == 7:
            os._exit(1)

    with begun(hooked(1, (0,), step=step), num_workers=1) as pool:
        with pytest.raises(remuda.WorkerDiedError) as raised:
            for t, turn in enumerate(pool.rollout(5)):
                turn.act([7 if t == 3 else t])
        assert (raised.value.where.step, int(raised.value.where.action)) == (4, 7)


# -- replaced envs ---------------------------------------------------------------------------------------------

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
