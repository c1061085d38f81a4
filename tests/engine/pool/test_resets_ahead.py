"""Resets that begin when an episode ends, and whose results wait for the next step."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import once
from pairs import pairwise
from pool_envs import DiceEnv, Gate, HookedEnv, StepResult, assert_same, counting, hooked
from programs import Watched, pids_of

from remuda import Batch, EnvError, FaultPolicy, Pool, WorkerDiedError

BACKENDS = ("process", "thread", "serial")


def told(batch: Batch) -> tuple[Any, ...]:
    return batch.obs.copy(), batch.reward.copy(), batch.terminated.copy(), batch.truncated.copy(), list(batch.infos)


@pairwise(seeding=["gymnasium", "per_episode"], num_workers=[1, 2, 5], backend=BACKENDS)
def test_what_steps_return_is_the_same(backend: Any, num_workers: int, seeding: Any) -> None:
    options: dict[str, Any] = {"num_workers": num_workers, "backend": backend, "seeding": seeding}
    with Pool([DiceEnv] * 5, **options) as plain, Pool([DiceEnv] * 5, resets_ahead=True, **options) as ahead:
        assert_same(told(ahead.reset(seed=3)), told(plain.reset(seed=3)))
        for _ in range(60):
            assert_same(told(ahead.step([0] * 5)), told(plain.step([0] * 5)))


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_reset_begins_before_it_is_asked_for(backend: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    envs = hooked(2, (0,), 1, autoreset=lambda _: gate.wait())
    with Pool(envs, backend=backend, resets_ahead=True) as pool:
        pool.reset()
        assert pool.step([1, 1]).terminated.all()
        gate.let_pass()  # nobody has asked the pool for anything
        assert pool.step([2, 2]).obs.tolist() == [[0, 2, 0, -1], [1, 2, 0, -1]]


def test_steps_of_others_in_the_worker_come_first(tmp_path: Path) -> None:
    """In the worker an env resets when the others' steps are told, and a step is answered before the next reset."""
    gates = [Gate(tmp_path, str(i)) for i in range(2)]
    envs = [lambda gate=gate: HookedEnv(0, 1, autoreset=lambda _: gate.wait()) for gate in gates]
    with Pool([*envs, *counting(1)], num_workers=1, resets_ahead=True) as pool:
        pool.reset()
        assert pool.step([1, 1, 1]).obs[:, 2].tolist() == [1, 1, 1]
        gates[0].await_arrival()  # env 0 resets, env 1 is to do so
        pool.send([5], [2])
        gates[0].open()
        assert pool.recv().obs[0, 2] == 2
        gates[1].let_pass()
        assert pool.step([2, 2, 2]).obs[:, 1].tolist() == [2, 2, 1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_reset_that_is_asked_for(backend: Any) -> None:
    with Pool(counting(2, length=1), backend=backend, resets_ahead=True) as pool:
        pool.reset()
        pool.step([1, 1])
        assert pool.reset().obs[:, 1].tolist() == [2, 2]  # it has been made
        pool.step([1, 1])
        assert pool.reset(seed=4).obs[:, 2].tolist() == [0, 0]
        assert pool.get_attr("last_seed") == [4, 5]


def test_an_exception_is_told_by_the_step_that_wants_the_reset(tmp_path: Path) -> None:
    def fail(_: Any) -> None:
        raise ValueError("broken")

    with Pool(hooked(2, length=1, autoreset=once(tmp_path / "once", fail)), resets_ahead=True) as pool:
        pool.reset()
        assert pool.step([1, 1]).terminated.all()
        assert pool.call("pid")  # it has been noticed by nobody
        with pytest.raises(EnvError, match="env 1 .* raised ValueError in reset"):
            pool.step([1, 1])
        pool.discard()
        assert pool.reset().obs[:, 1].tolist() == [3, 3]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_death_is_repeated_with_restarts(num_workers: int, tmp_path: Path) -> None:
    die = once(tmp_path / "died", lambda _: os.kill(os.getpid(), signal.SIGKILL))
    envs = hooked(2, length=2, autoreset=die)
    with Pool(envs, num_workers=num_workers, resets_ahead=True, faults="restart") as pool:
        worker = Watched([pids_of(pool)[-1]])
        pool.reset()
        for _ in range(2):
            batch = pool.step([1, 1])
        assert batch.terminated.all()
        worker.await_end()
        batch = pool.step([2, 2])
        assert not batch.truncated.any()
        assert batch.obs[:, 2].tolist() == [0, 0]
        assert pool.step([3, 3]).obs[:, 2:].tolist() == [[1, 3], [1, 3]]
        assert pool.stats().restarts == 1


def test_a_death_is_raised(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with Pool(hooked(2, length=1, autoreset=lambda _: gate.wait()), resets_ahead=True) as pool:
        pool.reset()
        pool.step([1, 1])
        gate.await_arrival()
        os.kill(pool.workers[1].pid or 0, signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match="reset") as raised:
            pool.step([1, 1])
        assert raised.value.env_ids == (1,)


def test_it_has_a_deadline(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    hang = once(tmp_path / "once", lambda _: gate.wait())
    with Pool(
        hooked(2, length=1, autoreset=hang), resets_ahead=True, faults=FaultPolicy("restart", reset_timeout=0.2)
    ) as pool:
        pool.reset()
        pool.step([1, 1])
        gate.await_arrival()  # and stays there
        batch = pool.step([1, 1])
        assert batch.obs[:, 2].tolist() == [0, 0]
        assert not batch.truncated.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"autoreset": "same_step"}, "autoreset='next_step' with resets_ahead=True, got 'same_step'"),
        ({"autoreset": "disabled"}, "autoreset='next_step' with resets_ahead=True, got 'disabled'"),
        ({"max_concurrency": 1}, "max_concurrency=None with resets_ahead=True, got 1"),
        ({"vector_size": 2}, "resets_ahead=False with vector_size=2"),
    ],
)
def test_where_it_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pool(counting(2), resets_ahead=True, **options)


def test_with_spares_it_changes_nothing() -> None:
    with Pool(counting(3, length=1), spares=1, resets_ahead=True) as pool:
        assert pool.reset().obs[:, 0].tolist() == [0, 1]
        assert pool.step(np.array([1, 1])).terminated.all()
        assert pool.step(np.array([1, 1])).obs[:, 0].tolist() == [2, 0]


class EndsAtOnce(DiceEnv):
    """Each of its steps ends the episode, when `act` is over."""

    def __init__(self, act: Callable[[], Any]) -> None:
        super().__init__()
        self.act = act

    def step(self, action: Any) -> StepResult:
        self.act()
        obs, reward, *_, info = super().step(action)
        return obs, reward, True, False, info


def take_a_moment() -> None:
    """Longer than results are held back for those that come after them."""
    time.sleep(0.001)


def reset_with_options(pool: Pool) -> None:
    pool.send_reset(options={"level": 1}, env_ids=[0])


def step_with_new_options(pool: Pool) -> None:
    pool.set_reset_options({"level": 1})
    pool.send([0], [0])


@pytest.mark.parametrize("go_on", [reset_with_options, step_with_new_options])
def test_random_numbers_are_as_if_there_had_been_time_for_it(go_on: Callable[[Pool], None], tmp_path: Path) -> None:
    """Env 0 is told of options before its worker, which is still with env 1, can have reset it in advance."""

    def told_with(backend: Any, stay: Callable[[], Any], leave: Callable[[], Any]) -> list[Any]:
        envs = [partial(EndsAtOnce, take_a_moment), partial(EndsAtOnce, stay)]
        with Pool(envs, num_workers=1, resets_ahead=True, backend=backend) as pool:
            pool.reset(seed=3)
            pool.send([0, 0])
            told = pool.recv(min_envs=1, max_envs=1).obs.tolist()
            go_on(pool)
            leave()
            while pool.pending:
                told += pool.recv().obs.tolist()
            return sorted(told)

    gate = Gate(tmp_path)
    assert told_with("process", gate.wait, gate.let_pass) == told_with("serial", take_a_moment, take_a_moment)
