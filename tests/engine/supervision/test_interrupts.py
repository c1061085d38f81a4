"""Interrupts of the caller while the pool handles a fault, or runs an env: no result is lost, and no later call hangs.

A signal handler may raise between any two lines. Here a tracer raises at the n-th line of the engine, for increasing n,
until the operation ends before that line.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import accidents
import numpy as np
import pytest
from accidents import once, raise_value_error
from drawn import MINUTES
from failing import LIMIT, MODES, fault_in
from interrupting import Interrupt, interrupting
from odd_exceptions import raising
from pairs import each
from pool_envs import begun, counting, hooked
from programs import kill, pids_of

import remuda
from remuda import BrokenPoolError, EnvError, FaultPolicy, Pool, StateError, WorkerDiedError

PACKAGE = Path(remuda.__file__).parent
ENGINE = (str(PACKAGE / "_engine"),)
DESCRIBING = tuple(
    str(PACKAGE / name) for name in ("_worker/host.py", "_wire/exceptions.py", "_wire/failures.py", "_wire/pickling.py")
)
RESTART = FaultPolicy("restart", backoff=0, max_restarts=10**6)

pytestmark = pytest.mark.watchdog(600 + 600 * MINUTES)


def each_line(body: Callable[[int], list[str]], first: int = 0, stride: int = 97) -> None:
    """Calls `body(n)` for increasing n. `body` returns the interrupted place, or nothing if the n-th line was not
    reached. `stride`: the distance of the lines; `make soak` interrupts at each line.
    """
    n, places = first, []
    while hit := body(n):
        places += hit
        n += 1 if MINUTES else stride
    assert places


def interrupted(n: int, act: Callable[[], Any], *ends: type[Exception], files: tuple[str, ...] = ENGINE) -> list[str]:
    """Calls `act`, interrupts it at the n-th line that runs in these files, and returns the place of that line.

    `ends`: exceptions with which `act` may end.
    """
    with interrupting(n, files, unit="line") as hit, suppress(Interrupt, *ends):
        act()
    return hit


def assert_usable(pool: Pool, hit: list[str]) -> None:
    """Asserts that all envs of the pool can be reset, stepped and called."""
    every = pool.num_envs
    pool.discard()
    assert pool.pending == 0, hit
    assert pool.reset().obs[:, 2].tolist() == [0] * every, hit
    assert pool.step([3] * every).obs[:, 2:].tolist() == [[1, 3]] * every, hit
    assert pool.call("echo", 7) == [((7,), {})] * every, hit


@pytest.mark.parametrize("mode", MODES)
def test_a_restart_completes_despite_an_interrupt(mode: Any) -> None:
    with Pool(counting(3), faults=RESTART, autoreset=mode) as pool:

        def act() -> None:
            assert fault_in(pool.step([2] * 3), 1).kind == "death"
            pool.reset()

        def body(n: int) -> list[str]:
            pool.reset()
            pool.step([1] * 3)
            before = kill(pool, 1)
            hit = interrupted(n, act)
            assert_usable(pool, hit)
            assert pool.call("pid") == pids_of(pool), hit
            assert before not in pids_of(pool)
            return hit

        each_line(body, first=MODES.index(mode))


def test_a_death_is_raised_or_recorded_despite_an_interrupt() -> None:
    def body(n: int) -> list[str]:
        with begun(counting(2)) as pool:
            kill(pool, 1)
            hit = interrupted(n, lambda: (pool.send([1] * 2), pool.recv(), pool.recv()), WorkerDiedError)
            pool.discard()
            assert pool.pending == 0
            with suppress(WorkerDiedError, BrokenPoolError):  # the interrupt may have come before the death was raised
                pool.step([1] * 2)
            pool.discard()
            with pytest.raises(BrokenPoolError, match="env 1 was lost"):
                pool.step([1] * 2)
            pool.send([2], env_ids=[0])
            assert pool.recv().env_ids.tolist() == [0]
            return hit

    each_line(body)


def test_a_hang_in_a_thread_is_handled_despite_an_interrupt() -> None:
    doors = [threading.Event()]
    hang = lambda _, action: doors[-1].wait() if action == 9 else None  # noqa: E731
    faults = FaultPolicy("restart", step_timeout=LIMIT, backoff=0, max_restarts=10**6, abandon_hung_threads=True)
    with Pool(hooked(2, step=hang), backend="thread", num_workers=1, faults=faults) as pool:

        def act() -> None:
            assert fault_in(pool.step([1, 9]), 1).kind == "timeout"
            pool.reset()

        def body(n: int) -> list[str]:
            pool.reset()
            doors.append(threading.Event())
            hit = interrupted(n, act)
            pool.discard()
            doors[-1].set()
            assert_usable(pool, hit)
            return hit

        each_line(body)
    for thread in threading.enumerate():
        if thread.name.startswith("remuda-"):  # threads that were left
            thread.join()


@pytest.mark.parametrize("faults", ["raise", RESTART])
@pytest.mark.parametrize(("backend", "files", "stride"), [("process", ENGINE, 97), ("serial", DESCRIBING, 9)])
def test_failures_and_answers_are_handled_despite_an_interrupt(
    backend: Any, files: tuple[str, ...], stride: int, faults: Any
) -> None:
    fails = lambda _, action: raise_value_error() if action == 9 else None  # noqa: E731
    with Pool(hooked(2, step=fails), backend=backend, num_workers=1, faults=faults) as pool:

        def act() -> None:
            call = pool.call_async("echo", 5)
            pool.send([9, 9])
            assert call.result() == [((5,), {})] * 2
            pool.recv()

        def body(n: int) -> list[str]:
            pool.reset()
            hit = interrupted(n, act, EnvError, files=files)
            assert_usable(pool, hit)
            return hit

        each_line(body, stride=stride)


def test_new_info_columns_reach_all_workers_despite_an_interrupt() -> None:
    def step(env: Any, action: Any) -> Any:
        return env.observe(), 0.0, False, False, {f"key {n}": float(n + env.tag) for n in range(int(action))}

    with begun(hooked(3, which=range(3), step=step)) as pool:
        keys = 0

        def body(n: int) -> list[str]:
            nonlocal keys
            keys = keys % 40 + 1
            hit = interrupted(n, lambda: pool.step([keys] * 3))
            pool.discard()
            for logged in (keys, max(0, keys - 2)):
                infos = pool.step([logged] * 3).infos
                assert list(infos) == [{f"key {n}": float(n + env) for n in range(logged)} for env in range(3)], hit
            return hit

        each_line(body)


def test_an_interrupted_close_can_be_repeated() -> None:
    def body(n: int) -> list[str]:
        pool = begun(counting(2))
        hit = interrupted(n, pool.close)
        workers = pool.workers
        pool.close()
        assert pool.closed
        assert not any(worker.is_alive() for worker in workers), hit
        return hit

    each_line(body, stride=24)


@pytest.mark.parametrize("parts", [1, 2])
def test_an_interrupted_rollout_loses_no_result_and_leaves_a_usable_pool(parts: int) -> None:
    with begun(counting(4), num_workers=2) as pool:

        def act(rollout: Any) -> None:
            for step in rollout:
                step.act([5] * len(step.env_ids))
                if rollout.valid.any():
                    break
            rollout.close()

        def body(n: int) -> list[str]:
            rollout = pool.rollout(3, parts=parts)
            hit = interrupted(n, lambda: act(rollout))
            rollout.close()
            sent = (rollout.actions == 5) & rollout.valid
            assert (rollout.rewards == np.where(sent, 5.0, 0.0)).all(), hit
            assert pool.pending == 0, hit
            assert_usable(pool, hit)
            return hit

        each_line(body, first=parts, stride=24)


# -- handlers of logs and signals ------------------------------------------------------------------------


@each(kind=[ValueError, KeyboardInterrupt], mode=MODES)
def test_a_log_handler_that_raises_loses_no_death(mode: Any, kind: Any, capsys: pytest.CaptureFixture[str]) -> None:
    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(record.env)  # type: ignore[attr-defined]
            raise kind

    logged: list[int] = []
    handler, logger = Raising(), logging.getLogger("remuda")
    with begun(counting(4), faults=RESTART, autoreset=mode) as pool:
        logger.addHandler(handler)
        try:
            for env in (1, 2, 3):
                kill(pool, env)
            pool.send([1] * 4)
            batch = None
            while batch is None:  # Ctrl-C in a log handler ends the call, which loses nothing
                with suppress(KeyboardInterrupt):
                    batch = pool.recv()
            while len(logged) < 3:
                with suppress(KeyboardInterrupt):
                    pool.call("echo", 7)
        finally:
            logger.removeHandler(handler)
        assert sorted(logged) == [1, 2, 3]
        assert batch.truncations.tolist() == [False, True, True, True]
        assert [fault_in(batch, env).env_id for env in (1, 2, 3)] == [1, 2, 3]
        assert_usable(pool, [])
    assert kind is KeyboardInterrupt or kind.__name__ in capsys.readouterr().err


# -- Ctrl-C in an env that the caller steps: no fault, and nothing restarts ------------------------------


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
