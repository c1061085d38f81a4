"""Faults of vector envs: a fault affects all slots of its vector env."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import die, once, raise_value_error
from failing import ACTS, MODES, assert_cut_off, final_info, policy_against
from pairs import pairwise
from pool_envs import begun
from programs import Watched, kill, pids_of
from vector_envs import die_while_sending, plain

from remuda import (
    Batch,
    EnvError,
    FaultPolicy,
    Pool,
    RestartLimitError,
    StateError,
)

# -- faults: raise ---------------------------------------------------------------------------------------


def test_an_exception_is_described_once_for_all_slots() -> None:
    with begun(plain(2, 100, step=raise_value_error), vector_size=100, backend="serial") as pool:
        with pytest.raises(EnvError) as raised:
            pool.step(np.zeros(200, int))
        assert len(raised.value.failures) == 100
        assert str(raised.value).count("broken") == 1
        assert re.search("env 0 .*; and with them, of the same vector envs, envs 1-99$", str(raised.value))


# -- faults: restart -------------------------------------------------------------------------------------


def restarting(
    mode: Any, size: int = 3, length: int = 1_000_000, policy: Any = "restart", seed: int | None = None, **hooks: Any
) -> Pool:
    """Returns two vector envs, which have been reset, with one worker each. The hooks belong to the first one."""
    return begun(plain(2, size, length, mode, **hooks), seed, vector_size=size, autoreset=mode, faults=policy)


def step_after_fault(pool: Pool, lost: Sequence[int] = ()) -> Batch:
    """Steps once. Before that it resets the `lost` envs, by default the first vector env, if the autoreset mode does
    not.
    """
    lost = lost or list(range(pool.vector_size or 1))
    actions = np.arange(pool.num_envs)
    if pool.autoreset == "disabled":
        with pytest.raises(StateError, match="expected envs that have been reset, got env"):
            pool.step(actions)
        pool.reset(env_ids=lost)
    elif pool.autoreset == "next_step":
        batch = pool.step(actions)
        assert not batch.rewards[lost].any()
        assert not batch.truncations[lost].any()
        assert (batch.obs[lost, 2] == 0).all()
    batch = pool.step(actions)
    assert batch.obs[lost, 2:].tolist() == [[1, slot] for slot in lost]
    return batch


@pairwise(kind=ACTS, mode=MODES)
def test_a_failed_step_truncates_the_episodes_of_all_slots(mode: Any, kind: str, tmp_path: Path) -> None:
    step = once(tmp_path / "step", ACTS[kind], lambda env: env.steps == 2)
    with restarting(mode, policy=policy_against(kind, "restart"), step=step, seed=3) as pool:
        before = pool.step(np.arange(6))
        batch = pool.step(np.arange(6))
        for slot in range(3):
            fault = assert_cut_off(batch, slot, before.obs[slot])
            assert (fault.env_id, fault.worker, fault.operation, fault.shared) == (slot, 0, "step", slot != 0)
            assert (fault.kind, fault.error.env_ids) == ("timeout" if kind == "hang" else kind, (0, 1, 2))
            assert (fault.where.episode, fault.where.step, fault.where.seed) == (0, 2, 3 + slot)
        assert batch.obs[3:, 2].tolist() == [2, 2, 2]
        assert step_after_fault(pool).obs[3:, 2].tolist() == [4 if mode == "next_step" else 3] * 3
        assert pool.stats().restarts == 1


@pairwise(mode=MODES, is_idle=[True, False])
def test_a_death_also_truncates_slots_after_the_end_of_their_episode(mode: Any, is_idle: bool, tmp_path: Path) -> None:
    """All episodes are truncated, even those that had just ended, so that the slots stay in step."""
    hooks: Any = {} if is_idle else {"step": once(tmp_path / "step", die, lambda env: env.steps == 3)}
    with restarting(mode, length=2, **hooks) as pool:
        pool.step(np.arange(6))
        before = pool.step(np.arange(6))
        assert before.terminations.tolist() == [True, False, False] * 2
        if is_idle:
            kill(pool, 0)
        batch = pool.step(np.arange(6))
        for slot in range(3):
            fault = assert_cut_off(batch, slot, before.obs[slot])
            assert fault.operation == ("nothing" if is_idle else "step")
        step_after_fault(pool)


@pytest.mark.parametrize("mode", MODES)
def test_a_death_after_all_episodes_ended_repeats_the_reset(mode: Any, tmp_path: Path) -> None:
    step = once(tmp_path / "step", die, lambda env: env.steps == 3)
    with restarting(mode, size=1, length=2, step=step) as pool:
        for _ in range(2):
            before = pool.step([0, 1])
        assert before.terminations.all()
        batch = pool.step([0, 1])
        if mode == "next_step":
            assert batch.obs[0].tolist() == [0, 1, 0, -1]
            assert not batch.truncations[0]
            assert pool.step([5, 1]).obs[0].tolist() == [0, 1, 1, 5]
        else:
            assert_cut_off(batch, 0, before.obs[0])


@pytest.mark.parametrize("mode", MODES)
def test_a_death_while_results_are_sent_discards_all_of_them(mode: Any, tmp_path: Path) -> None:
    """The pool has received the result of one slot but not of the next, so it discards the whole step."""
    step = once(tmp_path / "step", die_while_sending, lambda env: env.steps == 2)
    with restarting(mode, size=2, step=step) as pool:
        before = pool.step(np.arange(4))
        worker = Watched(pids_of(pool)[:1])
        pool.send(np.arange(4))
        worker.await_end()
        seen: dict[int, Any] = {}
        while pool.pending:
            batch = pool.recv(min_envs=1)
            seen |= {env: final_info(batch, row) for row, env in enumerate(batch.env_ids.tolist()) if env < 2}
        assert [seen[env]["fault"].kind for env in (0, 1)] == ["death"] * 2
        assert "parcel" not in seen[0]
        assert before.obs[:2, 2].tolist() == [1, 1]
        step_after_fault(pool)


@pytest.mark.parametrize("mode", MODES)
def test_reports_have_the_episode_and_step_of_each_slot(mode: Any, tmp_path: Path) -> None:
    step = once(tmp_path / "step", raise_value_error, lambda env: env.steps == 4)
    with begun(plain(1, 3, 2, mode, step=step), seed=5, vector_size=3, autoreset=mode, backend="serial") as pool:
        for _ in range(3):
            pool.step([1, 2, 3])
        with pytest.raises(EnvError) as raised:
            pool.step([4, 5, 6])
        places = [failure.where for failure in raised.value.failures]
        assert [(where.episode, where.step) for where in places if where] == {
            "next_step": [(1, 1), (1, 0), (0, 4)],  # env 0 had its autoreset in the third step, and env 1 in the fourth
            "same_step": [(1, 2), (1, 1), (0, 4)],
            "disabled": [(0, 4)] * 3,
        }[mode]
        assert [where.seed for where in places if where] == [5, 6, 7]
        assert [where.action for where in places if where and where.step] == (
            [4, 6] if mode == "next_step" else [4, 5, 6]
        )


@pytest.mark.parametrize("mode", MODES)
def test_an_exception_truncates_other_vector_envs_of_the_worker_in_the_next_step(mode: Any, tmp_path: Path) -> None:
    """The worker was replaced after it had finished the step of the second vector env."""
    fns = plain(3, 2, mode=mode, step=once(tmp_path / "step", raise_value_error, lambda env: env.steps == 2))
    with begun(fns, vector_size=2, autoreset=mode, faults="restart", num_workers=2) as pool:
        before = pool.step(np.arange(6))
        batch = pool.step(np.arange(6))
        for slot in (0, 1):
            assert assert_cut_off(batch, slot, before.obs[slot]).kind == "exception"
        assert batch.obs[2:, 2].tolist() == [2] * 4
        if mode == "disabled":
            pool.reset(env_ids=[0, 1])
        before, batch = batch, pool.step(np.arange(6))
        assert batch.obs[:2, 2].tolist() == ([0, 0] if mode == "next_step" else [1, 1])
        for slot in (2, 3):
            assert assert_cut_off(batch, slot, before.obs[slot]).shared
        step_after_fault(pool, range(2, 4))


def test_too_many_faults_of_a_vector_env() -> None:
    policy = FaultPolicy("restart", max_restarts=2, backoff=0)
    with restarting("next_step", policy=policy, step=raise_value_error) as pool:
        with pytest.raises(RestartLimitError, match="max_restarts=2"):
            for _ in range(10):
                pool.step(np.arange(6))
        assert pool.recv().env_ids.tolist() == [3, 4, 5]
