"""Ctrl-C in an env that the caller steps is no fault: the caller receives the exception, and nothing restarts. The same
holds for the exception of any signal handler.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import accidents
import pytest
from accidents import once
from odd_exceptions import raising
from pairs import each
from pool_envs import begun, hooked
from vector_envs import plain

from remuda import EnvError, Pool, StateError

interrupt = raising(KeyboardInterrupt)


@pytest.mark.parametrize("phase", ["reset", "step", "call"])
def test_ctrl_c_reaches_the_caller(phase: str, tmp_path: Path) -> None:
    hooks = {phase: once(tmp_path / "interrupted", interrupt)}
    with Pool(hooked(2, **hooks), backend="serial", faults="restart") as pool:
        with pytest.raises(KeyboardInterrupt):
            pool.reset(), pool.step([1, 1]), pool.call("poke")
        if pool.pending:
            pool.recv()
        if phase != "call":
            with pytest.raises(StateError, match="env 1; call reset first"):
                pool.step([1, 1])
        pool.reset()
        assert not pool.step([1, 1]).truncations.any()


def test_ctrl_c_in_a_vector_env_reaches_the_caller(tmp_path: Path) -> None:
    step = once(tmp_path / "step", interrupt)
    with begun(plain(1, 2, step=step), vector_size=2, backend="serial") as pool:
        with pytest.raises(KeyboardInterrupt):
            pool.step([0, 0])
        pool.reset()
        pool.step([0, 0])


def test_ctrl_c_reaches_the_caller_from_a_rebuild_and_the_rebuild_is_repeated(tmp_path: Path) -> None:
    hooks = {
        "build": once(tmp_path / "interrupted", interrupt, skip=1),
        "step": once(tmp_path / "reason", accidents.raise_value_error),
    }
    with begun(hooked(2, **hooks), backend="serial", faults="restart", autoreset="same_step") as pool:
        with pytest.raises(KeyboardInterrupt):
            pool.step([1, 1])
        batch = pool.recv()
        assert (batch.truncations.tolist(), batch.obs[1].tolist()) == ([False, True], [1, 1, 0, -1])
        assert pool.step([1, 1]).obs[1].tolist() == [1, 1, 1, 1]


class Stop(KeyboardInterrupt):
    """An exception that can be pickled but not unpickled."""

    def __init__(self, code: int = 3, *, reason: str) -> None:
        super().__init__(reason, code)


def stop() -> Stop:
    return Stop(reason="told")


class Handler:
    def __init__(self, handle: Callable[..., None]) -> None:
        self.handle = handle

    def __call__(self, *args: Any) -> None:
        self.handle(*args)


@pytest.fixture
def handled() -> Iterator[Callable[[Any], object]]:
    """Sets the handler of SIGUSR1."""
    before = signal.getsignal(signal.SIGUSR1)
    yield partial(signal.signal, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


@each(
    phase=["build", "reset", "step", "extras", "call", "state", "rollout", "rebuild", "close"],
    make=[stop, KeyboardInterrupt, TimeoutError, SystemExit, GeneratorExit],
    wrap=[lambda handle: handle, partial, Handler, lambda handle: Handler(handle).__call__],
)
def test_the_exception_of_a_signal_handler_reaches_the_caller(
    make: Any, phase: str, wrap: Callable[[Any], Any], handled: Callable[[Any], object], tmp_path: Path
) -> None:
    error = make()

    def handle(*_: Any) -> None:
        raise error

    def interrupt_in(*phases: str) -> Callable[..., Any]:
        act = partial(signal.raise_signal, signal.SIGUSR1)
        return once(tmp_path / "interrupted", lambda *_: act()) if phase in phases else lambda *_: None

    handled(wrap(handle))
    hooks = {name: interrupt_in(name) for name in ("build", "reset", "call")}
    hooks["step"] = accidents.raise_value_error if phase == "rebuild" else interrupt_in("step", "rollout")
    hooks["close"] = interrupt_in("close", "rebuild")
    extras: Any = {"steps": (lambda env: interrupt_in("extras")() or env.steps, ((), int))}
    with (
        pytest.raises(type(error)) as raised,
        Pool(hooked(2, **hooks), backend="serial", faults="restart", extras=extras) as pool,
    ):
        pool.reset()
        if phase == "rollout":
            pool.rollout(2)
        pool.step([1, 1])
        pool.call("poke")
        pool.get_state(state_fns=(interrupt_in("state"), lambda env, state: None))
    assert raised.value is error


def test_the_exception_of_a_handler_that_an_env_sets_for_its_step_is_a_fault(handled: Callable[[Any], object]) -> None:
    def step(env: Any, action: Any) -> None:
        handled(raising(TimeoutError))
        try:
            signal.raise_signal(signal.SIGUSR1)
        finally:
            handled(signal.SIG_DFL)

    says = "env 1 .* raised TimeoutError in step"
    with begun(hooked(2, step=step), backend="serial") as pool, pytest.raises(EnvError, match=says):
        pool.step([1, 1])
