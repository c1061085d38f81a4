"""The stack of a hung env, captured before its worker is killed, in the error and in the crash record."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from failing import LIMIT
from pool_envs import begun, hooked

import remuda
from remuda import EnvTimeoutError, FaultPolicy


def look_for_ever() -> None:
    while True:
        pass


def spin(*_: Any) -> None:
    look_for_ever()


def hold_the_gil(*_: Any) -> None:
    ctypes.PyDLL(None).pause()  # a signal would end `pause`, but Python cannot run the handler


def sleep(*_: Any) -> None:
    time.sleep(1e6)


def read_a_pipe(*_: Any) -> None:
    os.read(os.pipe()[0], 1)


def error_of(env_fns: list[Any]) -> EnvTimeoutError:
    """Returns the error of a step that hangs."""
    with begun(env_fns, faults=FaultPolicy(step_timeout=LIMIT)) as pool, pytest.raises(EnvTimeoutError) as raised:
        pool.step([1] * len(env_fns))
    return raised.value


@pytest.mark.parametrize(
    ("hang", "innermost"),
    [(spin, "look_for_ever"), (hold_the_gil, "hold_the_gil"), (sleep, "sleep"), (read_a_pipe, "read_a_pipe")],
)
def test_the_error_has_the_stack_of_the_hung_env(hang: Any, innermost: str) -> None:
    error = error_of(hooked(2, step=hang))
    stack, text = error.stack.splitlines(), str(error)
    assert stack[0].endswith(f"in {innermost}") and __file__.rpartition("/")[2] in stack[0]
    assert stack[-1].endswith("in step") and "pool_envs.py" in stack[-1]  # without remuda's own frames
    assert "was killed; pass faults=" in text and f"\n  it was in, the last call first:\n    {stack[0]}\n" in text


def test_the_crash_record_and_the_fault_have_the_stack(tmp_path: Path) -> None:
    faults = FaultPolicy("restart", step_timeout=LIMIT)
    with begun(hooked(2, step=spin), faults=faults, crash_dir=tmp_path) as pool:
        batch = pool.step([1, 1])
        fault = batch.infos[1]["fault"]
        assert "in look_for_ever" in fault.error.stack
        record = remuda.load_record(fault.error.record)
        assert record.fault.stack == fault.error.stack


@pytest.mark.parametrize("how", ["stopped", "deaf"])
def test_a_worker_that_cannot_report_its_stack_is_killed(how: str) -> None:
    def hang(*_: Any) -> None:
        if how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
        look_for_ever()

    error = error_of(hooked(2, step=hang))
    assert error.stack == "" and "it was in" not in str(error)


def test_the_stack_of_a_deep_recursion_is_shortened() -> None:
    def down(n: int) -> None:
        if n == 0:
            look_for_ever()
        down(n - 1)

    stack = error_of(hooked(1, [0], step=lambda *_: down(300))).stack.splitlines()
    assert stack[0].endswith("in look_for_ever") and stack[-1] == "..."
