"""`renew_every`: envs that are rebuilt after a number of episodes, for simulators that degrade."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from accidents import raise_value_error
from failing import MODES, fault_in
from pairs import each, pairwise
from pool_envs import Diary, Gate, begun, counting, hooked
from programs import kill, pids_of

from remuda import FaultPolicy, Pool


def play(pool: Pool, episodes: int, length: int) -> list[list[Any]]:
    """Returns the observations of env 1 from resets and steps, whose other results are those of a usual episode."""
    seen = [pool.reset().obs[1].tolist()]
    for _ in range(episodes):
        for step in range(1, length + 1):
            batch = pool.step([step] * pool.num_envs)
            seen.append(batch.obs[1].tolist())
            assert (batch.rewards[1], batch.terminations[1], batch.truncations[1]) == (step, step == length, False)
        terminal = batch.obs if batch.final_obs is None else batch.final_obs
        assert terminal[1, 2:].tolist() == [length, length]
        if pool.autoreset == "next_step":
            seen.append(pool.step([0] * pool.num_envs).obs[1].tolist())
        elif pool.autoreset == "disabled":
            seen.append(pool.reset().obs[1].tolist())
    return seen


@pairwise(mode=MODES, num_workers=[1, 3], max_restarts=[None, 0])
def test_an_env_is_rebuilt_after_renew_every_episodes(
    max_restarts: int | None, num_workers: int, mode: Any, tmp_path: Path
) -> None:
    """A renewal does not count as a fault."""
    builds = Diary(tmp_path / "builds")
    restarts = FaultPolicy("restart", renew_every=2, max_restarts=0)
    faults = FaultPolicy(renew_every=2) if max_restarts is None else restarts
    env_fns = hooked(3, which=[0, 1, 2], length=3, build=lambda env: builds.note(env.tag))
    with Pool(env_fns, num_workers=num_workers, faults=faults, autoreset=mode) as pool:
        seen = play(pool, episodes=5, length=3)
        steps = [obs[2] for obs in seen]
        episodes = [obs[1] for obs in seen]
        if mode == "same_step":
            assert steps == [0] + [1, 2, 0] * 5
            assert episodes == [1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2, 1, 1, 1, 2]
        else:
            assert steps == [0] + [1, 2, 3, 0] * 5
            assert episodes == [1] * 4 + [2] * 4 + [1] * 4 + [2] * 4 + [1] * 4 + [2]
    assert sorted(builds.lines()) == sorted("012" * 3)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_renewal_closes_the_env_and_replaces_a_worker_that_has_no_other_env(num_workers: int, tmp_path: Path) -> None:
    closed = Diary(tmp_path / "closed")
    env_fns = hooked(2, length=1, close=lambda _: closed.note("x"))
    faults = FaultPolicy(renew_every=1)
    with begun(env_fns, num_workers=num_workers, faults=faults, autoreset="same_step") as pool:
        pool.set_attr("level", 7, lasting=True)
        before = pids_of(pool)
        pool.step([1, 1])
        after = pids_of(pool)
        assert set(before) & set(after) == (set(before) if num_workers == 1 else set())
        assert closed.lines() == ["x"]
        assert pool.get_attr("total_steps") == [0, 0]
        assert [pool.call("pid"), pool.get_attr("tag"), pool.get_attr("level")] == [(after * 2)[:2], [0, 1], [7, 7]]


def test_an_env_that_raises_in_close_is_renewed() -> None:
    with begun(hooked(2, length=1, close=raise_value_error), faults=FaultPolicy(renew_every=1)) as pool:
        before = pids_of(pool)[1]
        for _ in range(4):
            pool.step([1, 1])
        assert pids_of(pool)[1] != before
        pool.close(terminate=True)


def test_a_close_that_hangs_is_no_fault_of_the_successor() -> None:
    faults = FaultPolicy("restart", renew_every=1, backoff=0, call_timeout=0.2)
    with begun(hooked(2, length=2, close=lambda env: signal.pause()), faults=faults, autoreset="next_step") as pool:
        before = pids_of(pool)[1]
        for _ in range(3):
            batch = pool.step([1, 1])
        assert pids_of(pool)[1] != before
        assert not batch.truncations.any()
        kill(pool, 1)
        fault = fault_in(pool.step([1, 1]), 1)
        assert (fault.kind, fault.operation) == ("death", "nothing")
        pool.close(terminate=True)


# -- the count of episodes -------------------------------------------------------------------------------


@each(num_workers=[1, 3], mode=MODES)
def test_episodes_that_a_reset_ends_count(mode: Any, num_workers: int) -> None:
    faults = FaultPolicy(renew_every=2)
    with Pool(counting(3, length=3), num_workers=num_workers, faults=faults, autoreset=mode) as pool:
        episodes = [pool.reset(seed=seed).obs[1, 1].item() for seed in range(4)]  # each reset ends the previous episode
        assert episodes == [1, 2, 1, 2]
        assert pool.get_attr("last_seed") == [3, 4, 5]
        pool.step([1] * 3)
        assert pool.reset(options={"level": 1}).obs[:, 1].tolist() == [1] * 3  # each env has had its two episodes
        assert pool.get_attr("last_options") == [{"level": 1}] * 3
        assert pool.reset(env_ids=[1]).obs[0, 1] == 2
        batch = [pool.step([1] * 3) for _ in range(3)][-1]
        assert batch.terminations.all()
        if mode != "same_step":
            batch = pool.reset() if mode == "disabled" else pool.step([1] * 3)
        assert batch.obs[:, 1].tolist() == [2, 1, 2]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_unused_reset_in_advance_does_not_count_as_an_episode(num_workers: int, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    env_fns = hooked(2, length=1, autoreset=lambda env: gate.wait())
    with begun(env_fns, num_workers=num_workers, faults=FaultPolicy(renew_every=2), resets_ahead=True) as pool:
        assert pool.step([1, 1]).terminations.all()
        gate.let_pass()  # this is the reset in advance
        pool.send_reset(options={"level": 1}, env_ids=[1])  # the worker resets again, with these options
        gate.let_pass()
        assert pool.recv().obs.tolist() == [[1, 3, 0, -1]]
        assert pool.step([1, 1]).terminations[1]
        assert pool.step([1, 1]).obs[1, 1] == 1  # the env was rebuilt
