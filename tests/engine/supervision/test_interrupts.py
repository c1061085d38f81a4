"""Interrupts of the caller while the pool handles a fault: no result is lost, and no later call hangs.

A signal handler may raise between any two lines. Here a tracer raises at the n-th line of the engine, for increasing n,
until the operation ends before that line.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from drawn import MINUTES
from failing import LIMIT, MODES, fault_in
from odd_exceptions import raising
from pairs import each
from pool_envs import counting, hooked
from programs import kill, pids_of
from vector_envs import PlainVector

import remuda
from remuda import BrokenPoolError, EnvError, FaultPolicy, Pool, WorkerDiedError
from remuda._backends.process.backend import ProcessBackend

PACKAGE = Path(remuda.__file__).parent
ENGINE = str(PACKAGE / "_engine")
# The distance of the lines at which the tests interrupt. With REMUDA_SOAK_MINUTES they interrupt at each line.
STRIDE = 1 if MINUTES else 97


class Interrupt(BaseException):
    """An exception that the engine does not catch."""


@contextmanager
def interrupting(n: int, *files: str) -> Iterator[list[str]]:
    """Raises at the n-th line that runs in these files, by default the engine's. Yields a list with the place of that
    line.
    """
    hit: list[str] = []
    left = n

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(files or ENGINE) or hit:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                hit.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}")
                raise Interrupt(hit[0])
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield hit
    finally:
        sys.settrace(before)


def each_line(body: Callable[[int], list[str]], first: int = 0, stride: int = STRIDE) -> None:
    """Calls `body(n)` for increasing n. `body` returns the interrupted place, or nothing if the n-th line was not
    reached.
    """
    n, places = first, []
    while hit := body(n):
        places += hit
        n += stride
    assert places


@pytest.mark.watchdog(600 + 600 * MINUTES)
@pytest.mark.parametrize("mode", MODES)
def test_a_restart_completes_despite_an_interrupt(mode: Any) -> None:
    with Pool(counting(3), faults=FaultPolicy("restart", backoff=0, max_restarts=10**6), autoreset=mode) as pool:

        def body(n: int) -> list[str]:
            pool.reset()
            pool.step([1] * 3)
            before = kill(pool, 1)
            with interrupting(n) as hit:
                try:
                    batch = pool.step([2] * 3)
                    assert fault_in(batch, 1).kind == "death", hit
                    pool.reset()
                except Interrupt:
                    pass
            pool.discard()
            assert pool.pending == 0
            assert pool.reset().obs[:, 2].tolist() == [0] * 3, hit
            assert pool.step([3] * 3).obs[:, 2:].tolist() == [[1, 3]] * 3, hit
            assert pool.call("pid") == pids_of(pool), hit
            assert before not in pids_of(pool)
            return hit

        each_line(body, first=MODES.index(mode))


@pytest.mark.watchdog(600 + 600 * MINUTES)
def test_a_death_is_raised_or_recorded_despite_an_interrupt() -> None:
    def body(n: int) -> list[str]:
        with Pool(counting(2)) as pool:
            pool.reset()
            kill(pool, 1)
            pool.send([1] * 2)
            with interrupting(n) as hit:
                try:
                    for _ in range(2):
                        pool.recv()
                except (Interrupt, WorkerDiedError):
                    pass
            pool.discard()
            assert pool.pending == 0
            with pytest.raises(BrokenPoolError, match="env 1 was lost"):
                pool.step([1] * 2)
            pool.send([2], env_ids=[0])
            assert pool.recv().env_ids.tolist() == [0]
            return hit

    each_line(body)


@pytest.mark.watchdog(600 + 600 * MINUTES)
def test_a_hang_in_a_thread_is_handled_despite_an_interrupt() -> None:
    doors = [threading.Event()]

    def hang(_: Any, action: int) -> None:
        if action == 9:
            doors[-1].wait()

    faults = FaultPolicy("restart", step_timeout=LIMIT, backoff=0, max_restarts=10**6, abandon_hung_threads=True)
    with Pool(hooked(2, step=hang), backend="thread", num_workers=1, faults=faults) as pool:

        def body(n: int) -> list[str]:
            pool.reset()
            doors.append(threading.Event())
            with interrupting(n) as hit:
                try:
                    assert fault_in(pool.step([1, 9]), 1).kind == "timeout", hit
                    pool.reset()
                except Interrupt:
                    pass
            pool.discard()
            assert pool.pending == 0
            doors[-1].set()
            assert pool.reset().obs[:, 2].tolist() == [0, 0], hit
            assert pool.step([3, 3]).obs[:, 2:].tolist() == [[1, 3]] * 2, hit
            return hit

        each_line(body)


@pytest.mark.watchdog(600 + 600 * MINUTES)
@pytest.mark.parametrize("faults", ["raise", "restart"])
def test_failures_and_answers_are_handled_despite_an_interrupt(faults: Any, tmp_path: Path) -> None:
    policy = FaultPolicy(faults, backoff=0, max_restarts=10**6)
    fails = lambda env, action: raising(lambda: ValueError("broken"))() if action == 9 else None  # noqa: E731
    with Pool(hooked(2, step=fails), num_workers=1, faults=policy) as pool:

        def body(n: int) -> list[str]:
            pool.reset()
            with interrupting(n) as hit:
                try:
                    call = pool.call_async("echo", n)
                    pool.send([9, 9])
                    assert call.result() == [((n,), {})] * 2
                    pool.recv()
                except (Interrupt, EnvError):
                    pass
            pool.discard()
            assert pool.pending == 0
            assert pool.reset().obs[:, 2].tolist() == [0, 0], hit
            assert pool.step([3, 3]).obs[:, 2:].tolist() == [[1, 3]] * 2, hit
            assert pool.call("echo", n) == [((n,), {})] * 2, hit
            return hit

        each_line(body)


def test_an_interrupted_kill_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vector env that raised is rebuilt only by a new worker, because its command has ended for the old one."""
    fails = raising(lambda: ValueError("broken"))
    factories = [lambda: PlainVector(2, step=lambda env, actions: fails() if actions[0] == 9 else None)] * 2
    with Pool(factories, vector_size=2, faults=FaultPolicy("restart", backoff=0)) as pool:
        pool.reset()
        before, kill_worker = pids_of(pool)[0], ProcessBackend.kill

        def interrupted(*_: Any) -> None:
            monkeypatch.setattr(ProcessBackend, "kill", kill_worker)
            raise Interrupt

        monkeypatch.setattr(ProcessBackend, "kill", interrupted)
        pool.send([9, 9, 1, 1])
        with pytest.raises(Interrupt):
            pool.recv()
        assert fault_in(pool.recv(), 1).kind == "exception"
        pool.step([1] * 4)
        assert pids_of(pool)[0] != before


@pytest.mark.watchdog(600 + 600 * MINUTES)
@pytest.mark.parametrize("faults", ["raise", "restart"])
def test_an_interrupt_while_the_caller_describes_a_failure(faults: Any) -> None:
    fails = lambda env, action: raising(lambda: ValueError("broken"))() if action == 9 else None  # noqa: E731
    policy = FaultPolicy(faults, backoff=0, max_restarts=10**6)
    files = ("_worker/host.py", "_wire/failures.py", "_wire/pickling.py")
    describing = [str(PACKAGE / name) for name in files]
    with Pool(hooked(2, step=fails), backend="serial", num_workers=1, faults=policy) as pool:

        def body(n: int) -> list[str]:
            pool.reset()
            with interrupting(n, *describing) as hit:
                try:
                    pool.step([9, 9])
                except (Interrupt, EnvError):
                    pass
            pool.discard()
            assert pool.pending == 0
            assert pool.reset().obs[:, 2].tolist() == [0, 0], hit
            assert pool.step([3, 3]).obs[:, 2:].tolist() == [[1, 3]] * 2, hit
            return hit

        each_line(body, stride=1 if MINUTES else 9)


@pytest.mark.watchdog(600 + 600 * MINUTES)
def test_new_info_columns_reach_all_workers_despite_an_interrupt() -> None:
    def step(env: Any, action: Any) -> Any:
        return env.observe(), 0.0, False, False, {f"key {n}": float(n + env.tag) for n in range(int(action))}

    with Pool(hooked(3, which=range(3), step=step)) as pool:
        pool.reset()
        keys = 0

        def body(n: int) -> list[str]:
            nonlocal keys
            keys = keys % 40 + 1
            with interrupting(n) as hit:
                try:
                    pool.step([keys] * 3)
                except Interrupt:
                    pass
            pool.discard()
            for logged in (keys, max(0, keys - 2)):
                infos = pool.step([logged] * 3).infos
                assert list(infos) == [{f"key {n}": float(n + env) for n in range(logged)} for env in range(3)], hit
            return hit

        each_line(body)


@pytest.mark.watchdog(600 + 600 * MINUTES)
def test_an_interrupted_close_can_be_repeated() -> None:
    def body(n: int) -> list[str]:
        pool = Pool(counting(2))
        pool.reset()
        with interrupting(n) as hit:
            try:
                pool.close()
            except Interrupt:
                pass
        workers = pool.workers
        pool.close()
        assert pool.closed
        assert not any(worker.is_alive() for worker in workers), hit
        return hit

    each_line(body, stride=max(1, STRIDE // 4))


# -- handlers of logs ------------------------------------------------------------------------------------


@each(kind=[Interrupt, KeyboardInterrupt], mode=MODES)
def test_a_log_handler_that_raises_loses_no_death(mode: Any, kind: Any) -> None:
    """The handler raises at each of three deaths, while the pool has still to handle some of them."""

    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(record.env)  # type: ignore[attr-defined]
            raise kind

    logged: list[int] = []
    handler, logger = Raising(), logging.getLogger("remuda")
    with Pool(counting(4), faults=FaultPolicy("restart", backoff=0), autoreset=mode) as pool:
        pool.reset()
        logger.addHandler(handler)
        try:
            for env in (1, 2, 3):
                kill(pool, env)
            pool.send([1] * 4)
            raised = 0
            while raised < 4:
                try:
                    batch = pool.recv()
                    break
                except kind:
                    raised += 1
        finally:
            logger.removeHandler(handler)
        assert (sorted(logged), raised) == ([1, 2, 3], 3)
        assert batch.truncations.tolist() == [False, True, True, True]
        assert [fault_in(batch, env).env_id for env in (1, 2, 3)] == [1, 2, 3]
        pool.reset()
        assert pool.step([2] * 4).obs[:, 2].tolist() == [1] * 4


def test_signals_while_many_workers_die(tmp_path: Path) -> None:
    """Real signals at random times, with a handler that raises, as that of Ctrl-C does."""

    def interrupt(*_: Any) -> None:
        raise Interrupt

    policy = FaultPolicy("restart", backoff=0, max_restarts=10**6)
    died = threading.Event()
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with Pool(counting(3), faults=policy, autoreset="same_step") as pool:
            for delay in range(12):
                pool.reset()
                kill(pool, delay % 3)
                signaller = threading.Thread(target=_signal_after, args=(delay * 500, died))
                try:
                    signaller.start()
                    while True:
                        pool.step([1] * 3)
                        if not signaller.is_alive():
                            break
                except Interrupt:
                    pass
                while signaller.is_alive():  # the signal is sent once the thread has ended
                    try:
                        signaller.join()
                    except Interrupt:
                        pass
                try:
                    pool.discard()
                except Interrupt:
                    pool.discard()
                assert pool.reset().obs[:, 2].tolist() == [0] * 3
                assert pool.step([3] * 3).obs[:, 2:].tolist() == [[1, 3]] * 3
    finally:
        signal.signal(signal.SIGUSR1, before)


def _signal_after(turns: int, died: threading.Event) -> None:
    for _ in range(turns):
        died.is_set()
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)  # type: ignore[arg-type]


@pytest.mark.watchdog(600 + 600 * MINUTES)
@pytest.mark.parametrize("parts", [1, 2])
def test_an_interrupted_rollout_loses_no_result_and_leaves_a_usable_pool(parts: int) -> None:
    with Pool(counting(4), num_workers=2) as pool:
        pool.reset()

        def body(n: int) -> list[str]:
            rollout = pool.rollout(3, parts=parts)
            with interrupting(n) as hit:
                try:
                    for step in rollout:
                        step.act([5] * len(step.env_ids))
                        if rollout.valid.any():
                            break
                    rollout.close()
                except Interrupt:
                    pass
            rollout.close()
            sent = (rollout.actions == 5) & rollout.valid
            assert (rollout.rewards == np.where(sent, 5.0, 0.0)).all(), hit
            assert pool.pending == 0, hit
            assert pool.reset().obs[:, 2].tolist() == [0] * 4, hit
            assert pool.step([3] * 4).obs[:, 2:].tolist() == [[1, 3]] * 4, hit
            return hit

        each_line(body, first=parts, stride=max(1, STRIDE // 4))


@pytest.mark.watchdog(600 + 600 * MINUTES)
@pytest.mark.parametrize("recover", ["reset", "discard"])
def test_an_interrupted_split_is_undone(recover: str) -> None:
    with Pool(counting(4), num_workers=2) as pool:
        pool.reset()

        def body(n: int) -> list[str]:
            with interrupting(n) as hit, suppress(Interrupt):
                for step in pool.rollout(2, parts=2):
                    step.act([1] * 2)
            pool.reset() if recover == "reset" else pool.discard()
            assert len(pool.step([3] * 4)) == 4, hit
            return hit

        each_line(body, first=len(recover), stride=max(1, STRIDE // 4))
