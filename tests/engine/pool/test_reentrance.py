"""Calls of a pool during another call are refused. A close during a call takes effect after that call.

The call is made by a signal handler, a finalizer, an env, or a handler of logs, warnings or fault reports.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from accidents import raise_value_error
from pairs import each
from pool_envs import begun, counting, hooked

from remuda import ClosedError, EnvError, FaultPolicy, Pool, StateError

CALLS: dict[str, Callable[[Pool], Any]] = {
    "step": lambda pool: pool.step([1, 1]),
    "recv": lambda pool: pool.recv(),
    "send": lambda pool: pool.send([1, 1]),
    "reset": lambda pool: pool.reset(),
    "call": lambda pool: pool.call("pid"),
    "split": lambda pool: pool.split(2),
    "discard": lambda pool: pool.discard(),
    "rollout": lambda pool: pool.rollout(2),
}


def announcing(num: int, text: int = 0) -> list[Any]:
    """Envs of which the first sends SIGUSR1 to its owner in each step, while the pool waits for its result."""
    owner = os.getpid()

    def step(env: Any, action: Any) -> Any:
        os.kill(owner, signal.SIGUSR1)
        return env.observe(), 1.0, False, False, {"text": "x" * text} if text else {}

    return hooked(num, which=[0], step=step)


@contextmanager
def on_signal(act: Callable[[], Any]) -> Iterator[list[BaseException]]:
    """Calls `act` at each SIGUSR1. Yields the list of exceptions that `act` has raised."""
    raised: list[BaseException] = []

    def handle(*_: Any) -> None:
        try:
            act()
        except BaseException as error:
            raised.append(error)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield raised
    finally:
        signal.signal(signal.SIGUSR1, before)


@each(name=sorted(CALLS), text=[0, 300_000])
def test_a_signal_handler_that_calls_the_pool_is_refused(name: str, text: int) -> None:
    with begun(announcing(2, text), num_workers=2) as pool:
        with on_signal(lambda: CALLS[name](pool)) as raised:
            while not raised:  # a signal may also arrive between two calls into the core
                pool.split(1)
                pool.step([1, 1])
                if pool.pending:
                    pool.discard()
        for error in raised:
            assert isinstance(error, StateError), error


@pytest.mark.parametrize("text", [0, 300_000])
def test_a_close_during_a_call_takes_effect_after_it(text: int) -> None:
    pool = begun(announcing(2, text), num_workers=2)
    workers = pool.workers
    with on_signal(pool.close) as raised, pytest.raises(ClosedError):
        for _ in range(1000):
            pool.step([1, 1])
    assert not raised and pool.closed
    assert not any(worker.is_alive() for worker in workers)
    pool.close()


def test_a_close_while_an_env_hangs_ends_the_wait() -> None:
    """Env 1 never answers. Env 0 sends the signal and answers."""
    pool = begun([announcing(1)[0], hooked(2, step=lambda *_: signal.pause())[1]], num_workers=2)
    with on_signal(lambda: pool.close(timeout=0)), pytest.raises(ClosedError):
        pool.step([1, 1])
    assert pool.closed


class _Cycle:
    """An object in a reference cycle that calls a function when the garbage collector frees it."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.myself, self.act = self, act

    def __del__(self) -> None:
        self.act()


class _Collecting:
    """An action that runs the garbage collector while `send` converts it to an array."""

    def __init__(self, *values: int) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        gc.collect()
        return np.array(self.values)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_finalizer_that_calls_the_pool_is_refused(name: str) -> None:
    raised: list[BaseException] = []
    with Pool(counting(2), num_workers=1) as pool:

        def act() -> None:
            try:
                CALLS[name](pool)
            except BaseException as error:
                raised.append(error)

        pool.reset()
        gc.disable()
        try:
            _Cycle(act)
            batch = pool.step(_Collecting(1, 2))
        finally:
            gc.enable()
        assert [type(error) for error in raised] == ([] if name == "discard" else [StateError])  # nothing to discard
        assert batch.obs[:, 2].tolist() == [1, 1]
        assert pool.step([1, 2]).obs[:, 2].tolist() == [2, 2]


@pytest.mark.parametrize("actions", [(1, 2), (1, 2, 3)], ids=["fitting", "failing"])
def test_a_finalizer_that_closes_the_pool_closes_it_after_the_call(actions: tuple[int, ...]) -> None:
    pool = begun(counting(2), num_workers=1)
    _Cycle(pool.close)
    with pytest.raises(ClosedError, match="in the course of this call"):
        pool.step(_Collecting(*actions))
    assert pool.closed


@pytest.mark.parametrize("name", sorted(CALLS))
def test_an_env_in_the_callers_thread_that_calls_its_pool_is_refused(name: str) -> None:
    env_fns = hooked(2, step=lambda *_: CALLS[name](pool))
    refused = pytest.raises(EnvError, match="raised remuda.errors.StateError in step: expected no ")
    with begun(env_fns, backend="serial") as pool, refused:
        pool.step([1, 1])


# -- handlers of logs, warnings and fault reports --------------------------------------------------------

logger = logging.getLogger("an env's")


def log(env: Any, action: Any) -> None:
    logger.warning("careful")


def warn(env: Any, action: Any) -> None:
    warnings.warn("careful", stacklevel=1)


USES: dict[str, Callable[[Pool], object]] = {
    "step": lambda pool: pool.step([1, 1]),
    "recv": lambda pool: (pool.send([1, 1]), pool.recv()),
    "timeout": lambda pool: (pool.send([1, 1]), pool.recv(timeout=1e6)),
    "discard": lambda pool: (pool.send([1, 1]), pool.discard()),
    "rollout": lambda pool: (pool.rollout(2), pool.step([1, 1]), pool.step([1, 1])),
}


@contextmanager
def closing_handlers(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    handler = logging.Handler()
    handler.emit = lambda _: pool.close()  # type: ignore[method-assign]
    for name in (logger.name, "remuda"):
        logging.getLogger(name).addHandler(handler)
    try:
        with warnings.catch_warnings(), monkeypatch.context() as patch:
            warnings.simplefilter("always")
            patch.setattr(warnings, "showwarning", lambda *_, **__: pool.close())
            yield
    finally:
        for name in (logger.name, "remuda"):
            logging.getLogger(name).removeHandler(handler)


@each(
    use=list(USES),
    backend__step=[
        *(("process", step) for step in (log, warn, raise_value_error)),
        ("thread", raise_value_error),
        ("serial", raise_value_error),
    ],
)
def test_a_handler_of_an_envs_output_or_of_a_fault_report_closes_the_pool(
    use: str, backend: Any, step: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = FaultPolicy("restart", backoff=0)
    with begun(hooked(2, which=(1,), step=step), backend=backend, faults=faults) as pool:
        with closing_handlers(pool, monkeypatch), pytest.raises(ClosedError, match="the pool is closed"):
            USES[use](pool)
        assert pool.closed
        assert not any(worker.is_alive() for worker in pool.workers)
