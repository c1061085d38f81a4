"""Envs that hang in a thread: the pool goes on without them, or with new envs in their place.

The tests are independent of the machine's speed: an env hangs until the test lets it go, and no other call has a
deadline.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from failing import LIMIT, MODES, ask, assert_cut_off, fault_in, rejoin
from pairs import each
from pool_envs import Hook, begun, counting, hooked
from state_envs import Putting, take_counts

from remuda import BrokenPoolError, EnvTimeoutError, FaultPolicy, Pool
from remuda._system.interpreter import has_gil


class Hang:
    """A hook in which the first env to come hangs until `let_go`. The hook `close` reports that this env was closed."""

    def __init__(self, when: Any = lambda env: True) -> None:
        self.hung: Any = None
        self._thread = threading.current_thread()
        self._when, self._lock = when, threading.Lock()
        self._door, self._closed = threading.Event(), threading.Event()

    def __call__(self, env: Any, *_: Any) -> None:
        with self._lock:
            is_first = self.hung is None and self._when(env)
            if is_first:
                self.hung, self._thread = env, threading.current_thread()
        if is_first:
            self._door.wait()

    def close(self, env: Any) -> None:
        if env is self.hung:
            self._closed.set()

    def let_go(self) -> None:
        """Lets the env return, and waits until the thread that it ran in has closed it and ended."""
        self._door.set()
        self._closed.wait()
        self._thread.join()


@pytest.fixture
def hang() -> Iterator[Hang]:
    hang = Hang()
    yield hang
    if hang.hung is not None:
        hang.let_go()


def hanging(num_envs: int, hang: Hang, *phases: str, **hooks: Hook) -> list[Any]:
    return hooked(num_envs, **dict.fromkeys(phases, hang), close=hang.close, **hooks)


def in_threads(env_fns: Any, policy: Any = "raise", num_workers: int | None = None, **options: Any) -> Pool:
    """Returns a pool of threads after a reset. Options whose names end with "timeout" are those of its policy."""
    limits = {name: options.pop(name) for name in list(options) if name.endswith("timeout")}
    faults = FaultPolicy(policy, backoff=0, abandon_hung_threads=policy == "restart", **limits)
    return begun(env_fns, backend="thread", num_workers=num_workers, faults=faults, **options)


@each(phase=["step", "reset", "call"], num_workers=[None, 1], policy=["raise", "restart"])
def test_a_missed_deadline_is_raised_unless_threads_may_be_left(
    phase: str, num_workers: int | None, policy: Any, hang: Hang
) -> None:
    limits: Any = {f"{phase}_timeout": LIMIT}
    faults = FaultPolicy(policy, **limits)
    with Pool(hanging(3, hang, phase), backend="thread", num_workers=num_workers, faults=faults) as pool:
        if phase != "reset":
            pool.reset()
        with pytest.raises(EnvTimeoutError) as raised:
            ask(pool, phase)
        error = raised.value
        assert (error.deadline, error.limit, error.env_ids, error.operation) == (f"{phase}_timeout", LIMIT, (1,), phase)
        assert (error.pid, error.worker) == (None, 1 if num_workers is None else 0)
        assert error.where is not None
        assert error.where.env_id == 1
        assert f"worker {error.worker} (env 1) hung while in {phase}" in str(error)
        assert "its thread goes on, because it cannot be killed" in str(error)
        assert ("in __call__" in error.stack) == has_gil()
        assert "_bootstrap" not in error.stack
        if phase != "call":
            assert sorted(pool.recv().env_ids) == [0, 2]
        with pytest.raises(BrokenPoolError, match="env 1 was lost"):
            pool.step([1, 1, 1])
        if phase == "reset":
            assert pool.reset(env_ids=[0, 2]).obs[:, 1].tolist() == [2, 2]
        hang.let_go()
        pool.send([4, 5], env_ids=[0, 2])
        assert pool.recv().rewards.tolist() == [4, 5]


@each(mode=MODES, num_workers=[None, 1, 2])
def test_an_env_that_hangs_is_rebuilt(mode: Any, num_workers: int | None) -> None:
    hang = Hang(lambda env: env.steps == 2)
    with in_threads(
        hanging(3, hang, "step"), "restart", num_workers, step_timeout=LIMIT, autoreset=mode, frames=2
    ) as pool:
        pool.step([1, 1, 1])
        batch = pool.step([2, 2, 2])
        fault = assert_cut_off(batch, 1, [1, 1, 1, 1])
        assert (fault.kind, fault.operation, fault.where.step) == ("timeout", "step", 2)
        assert isinstance(fault.error, EnvTimeoutError)
        assert batch.obs[[0, 2], 2].tolist() == [2, 2]
        assert rejoin(pool, [3, 3, 3]).obs[1].tolist() == [1, 1, 1, 3]
        held = [batch, pool.step([4, 4, 4])]
        copies = [one.obs.copy() for one in held]
        hang.let_go()  # the late result of the old env must not show up anywhere
        for n in range(5, 12):
            batch = pool.step([n] * 3)
            assert batch.obs[1].tolist() == [1, 1, n - 2, n]
        for one, copy in zip(held, copies, strict=True):
            np.testing.assert_array_equal(one.obs, copy)


@each(options=[{"autoreset": "next_step"}, {"autoreset": "same_step"}, {"resets_ahead": True}], num_workers=[None, 1])
def test_autoresets_have_the_deadline_of_resets(options: Any, num_workers: int | None, hang: Hang) -> None:
    env_fns = hanging(2, hang, "autoreset", length=1)
    with in_threads(env_fns, "restart", num_workers, reset_timeout=LIMIT, **options) as pool:
        batch = pool.step([1, 1])
        if pool.autoreset == "next_step":  # the reset is repeated
            batch = pool.step([1, 1])
            assert not batch.truncations.any()
        else:
            assert fault_in(batch, 1).operation == "reset"
        assert batch.obs.tolist() == [[0, 2, 0, -1], [1, 1, 0, -1]]


@pytest.mark.parametrize("num_workers", [None, 1])
def test_a_lasting_call_that_hangs_costs_the_episode_and_is_not_repeated(num_workers: int | None, hang: Hang) -> None:
    def mark(env: Any) -> None:
        env.unwrapped.poke()
        env.unwrapped.tag += 100

    with in_threads(hanging(2, hang, "call"), "restart", num_workers, call_timeout=LIMIT) as pool:
        call = pool.apply_async(mark, about="mark", env_ids=[1])
        with pytest.raises(EnvTimeoutError, match="call_timeout"):
            call.result()
        hang.let_go()
        batch = pool.step([1, 1])
        assert (fault_in(batch, 1).kind, batch.truncations.tolist()) == ("timeout", [False, True])
        assert pool.reset().obs[:, 0].tolist() == [0, 1]


@pytest.mark.parametrize("num_workers", [None, 1])
def test_states_have_the_deadline_of_calls_and_resets(num_workers: int | None, hang: Hang) -> None:
    with in_threads(hanging(2, hang, "call"), "restart", num_workers, reset_timeout=LIMIT) as pool:
        pool.step([1, 1])
        states = pool.get_state(state_fns=(take_counts, Putting(lambda env: env.poke())))
        assert pool.set_state(states).obs[:, 2].tolist() == [1, 1]  # the rebuilt env gets the state


def test_extras_have_the_deadline_of_the_step(hang: Hang) -> None:
    def level(env: Any) -> float:
        if env.unwrapped.tag == 1 and env.unwrapped.steps == 1:
            hang(env.unwrapped)
        return float(env.unwrapped.steps)

    with in_threads(hanging(2, hang), "restart", step_timeout=LIMIT, extras={"level": level}) as pool:
        assert_cut_off(pool.step([1, 1]), 1, [1, 1, 0, -1])
        assert rejoin(pool, [1, 1]).extras["level"].tolist() == [3, 1]


def test_several_envs_hang_one_after_another() -> None:
    hangs = [Hang(lambda env, tag=tag: env.tag == tag) for tag in range(4)]

    hooks: Any = {"step": lambda env, _: hangs[env.tag](env), "close": lambda env: hangs[env.tag].close(env)}
    with in_threads(hooked(4, which=range(4), **hooks), "restart", 1, step_timeout=LIMIT) as pool:
        assert pool.step([1] * 4).truncations.all()
        for hang in reversed(hangs):
            hang.let_go()
        assert not pool.step([1] * 4).truncations.any()
        assert pool.step([2] * 4).obs.tolist() == [[tag, 1, 1, 2] for tag in range(4)]


def test_the_serial_backend_has_no_deadlines() -> None:
    with pytest.raises(ValueError, match=r"backend='serial': only a process can be stopped"):
        Pool(counting(1), backend="serial", faults=FaultPolicy(step_timeout=1))
