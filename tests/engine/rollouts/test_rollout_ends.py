"""Rollouts that end early: results in flight are not lost, and the pool remains usable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import kill_myself
from pairs import each
from pool_envs import Gate, begun, counting, hooked
from rollout_envs import FailingEnv, ending, fill

import remuda
from remuda import EnvError, Pool, Rollout, StateError

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


def test_discard_and_reset_recover_a_split_pool() -> None:
    with begun(counting(4), num_workers=2) as pool:
        first, second = pool.split(2)
        first.send([1, 1])
        assert pool.pending == 2
        with pytest.raises(StateError, match="split"):
            pool.step([1] * 4)  # the pool stays split while the caller holds its parts
        pool.discard()
        assert_usable(pool)
        with pytest.raises(StateError, match="split"):
            second.step([1, 1])
        first, second = pool.split(2)
        second.send([1, 1])
        assert pool.reset().obs[:, 2].tolist() == [0] * 4
        assert_usable(pool)


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_a_pool_is_usable_after_a_failed_collect(error: type[BaseException]) -> None:
    """The policy raises while an env that has already acted fails."""
    with begun([FailingEnv] * 4, num_workers=2) as pool:
        calls = []

        def policy(obs: Any) -> Any:
            calls.append(obs)
            if len(calls) == 2:
                raise error("in the policy")
            return [4, 1]

        with pytest.raises((error, EnvError)):
            next(remuda.collect(pool, policy, steps=4, parts=2))
        calls.clear()
        pool.reset()
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
