"""Envs that fail during `set_state` or after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from accidents import once, raise_value_error
from failing import ACTS, MODES, fault_in
from pairs import each, pairwise
from pool_envs import begun, hooked
from programs import kill
from state_envs import Putting, take_counts

from remuda import EnvError, FaultPolicy, Pool, StateError, WorkerDiedError, load_record

RESTART = FaultPolicy("restart", backoff=0)


@each(kind=["death", "exception"], mode=MODES)
def test_a_fault_after_set_state_repeats_the_observation_of_the_state(mode: Any, kind: str, tmp_path: Path) -> None:
    fail = once(tmp_path / "once", ACTS[kind], lambda env: env.last_action == 9)
    extras = {"steps": lambda env: env.steps}
    with begun(hooked(2, step=fail), seed=0, autoreset=mode, faults=RESTART, extras=extras) as pool:
        pool.step([1, 1])
        states = pool.get_state(state_fns=(take_counts, Putting()))
        for _ in range(4):
            pool.step([1, 1])
        put = pool.set_state(states)
        assert put.obs[:, 2].tolist() == [1, 1]
        batch = pool.step([0, 9])
        assert batch.truncations.tolist() == [False, True]
        last = batch.final_obs if mode == "same_step" else batch.obs
        assert last[1].tolist() == put.obs[1].tolist()
        assert batch.extras["steps"].tolist() == [2, 0 if mode == "same_step" else 1]
        if mode == "disabled":
            pool.reset(env_ids=[1])
        assert pool.step([0, 0]).obs[1, 2] == (0 if mode == "next_step" else 1)


@pairwise(is_idle=[True, False], mode=MODES)
def test_a_rebuilt_env_has_no_state_before_its_reset(mode: Any, is_idle: bool, tmp_path: Path) -> None:
    fail = once(tmp_path / "once", raise_value_error, lambda env: env.last_action == 9)
    fns = take_counts, Putting()
    with begun(hooked(2, step=fail), seed=0, autoreset=mode, faults=RESTART) as pool:
        if is_idle:
            kill(pool, 1)
            with pytest.raises((StateError, WorkerDiedError)):
                pool.get_state([1], state_fns=fns)
        else:
            assert pool.step([0, 9]).truncations.tolist() == [False, True]
        if mode != "same_step" or is_idle:  # in the other cases the row of the fault begins the next episode
            for _ in range(2):
                with pytest.raises(StateError, match="env 1"):
                    pool.get_state(state_fns=fns)
        if is_idle:
            assert pool.step([0, 0]).truncations.tolist() == [False, True]
            if mode != "same_step":
                with pytest.raises(StateError, match="env 1"):
                    pool.get_state([1], state_fns=fns)
        if mode == "disabled":
            pool.reset(env_ids=[1])
        pool.step([0, 0])
        assert len(pool.get_state(state_fns=fns)) == 2


def test_a_renewed_env_has_no_state_before_its_reset() -> None:
    fns = take_counts, Putting()
    with begun(hooked(2, length=1), faults=FaultPolicy(renew_every=1)) as pool:
        pool.step([0, 0])
        with pytest.raises(StateError, match="got envs 0, 1, rebuilt and not reset yet"):
            pool.get_state(state_fns=fns)
        pool.request_obs()
        assert pool.recv(order="slot").obs[:, 2].tolist() == [1, 1]
        pool.step([0, 0])
        assert len(pool.get_state(state_fns=fns)) == 2


@pytest.mark.parametrize("kind", ["death", "exception"])
def test_set_state_is_repeated_after_a_fault(kind: str, tmp_path: Path) -> None:
    fail = once(tmp_path / "once", ACTS[kind], lambda env: env.tag == 1)
    with begun(hooked(2), seed=0, faults=RESTART) as pool:
        pool.step([1, 1])
        states = pool.get_state(state_fns=(take_counts, Putting(fail)))
        pool.step([1, 1])
        batch = pool.set_state(states)
        assert (batch.obs[:, 2].tolist(), batch.truncations.any()) == ([1, 1], False)
        assert pool.stats().restarts == (kind == "death")
        assert pool.step([0, 0]).obs[:, 2].tolist() == [2, 2]


def test_without_restarts_a_failed_set_state_needs_a_reset(tmp_path: Path) -> None:
    fail = once(tmp_path / "once", raise_value_error, lambda env: env.tag == 1)
    with begun(hooked(2), num_workers=1) as pool:
        pool.step([1, 1])
        states = pool.get_state(state_fns=(take_counts, Putting(fail)))
        with pytest.raises(EnvError, match="env 1 .* in reset"):
            pool.set_state(states)
        with pytest.raises(StateError, match="expected envs that have been reset, got env 1"):
            pool.step([0, 0])
        pool.discard()  # discards the result of env 0, because its state was set
        assert pool.set_state(states).obs[:, 2].tolist() == [1, 1]


def test_reports_count_steps_from_the_state(tmp_path: Path) -> None:
    fail = once(tmp_path / "once", raise_value_error, lambda env: env.last_action == 9)
    with begun(hooked(2, step=fail), num_workers=1) as pool:
        for _ in range(3):
            pool.step([1, 1])
        states = pool.get_state(state_fns=(take_counts, Putting()))
        pool.reset()
        pool.set_state(states)
        with pytest.raises(EnvError, match="step 4"):
            pool.step([0, 9])


def test_only_a_record_of_an_episode_without_set_state_can_be_replayed(tmp_path: Path) -> None:
    fail = lambda env, action: raise_value_error() if action == 9 else None  # noqa: E731
    with Pool(hooked(2, step=fail), faults=RESTART, autoreset="disabled", crash_dir=tmp_path) as pool:
        records = []
        for _ in range(2):
            pool.reset(seed=0)
            records.append(load_record(fault_in(pool.step([1, 9]), 1).record or ""))
            pool.reset(env_ids=[1])
            pool.set_state(pool.get_state(state_fns=(take_counts, Putting())))
            records.append(load_record(fault_in(pool.step([1, 9]), 1).record or ""))
    assert [record.is_whole for record in records] == [True, False] * 2
    assert records[1].kinds.tolist()[-2:] == [5, 4]
