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
from pool_envs import HookedEnv, hooked

import remuda
from remuda import EnvTimeoutError, FaultPolicy, Pool


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


@pytest.mark.parametrize(
    ("hang", "innermost"),
    [(spin, "look_for_ever"), (hold_the_gil, "hold_the_gil"), (sleep, "sleep"), (read_a_pipe, "read_a_pipe")],
)
def test_the_error_has_the_stack_of_the_hung_env(hang: Any, innermost: str) -> None:
    with Pool(hooked(2, step=hang), faults=FaultPolicy(step_timeout=LIMIT)) as pool:
        pool.reset()
        with pytest.raises(EnvTimeoutError) as raised:
            pool.step([1, 1])
    stack, text = raised.value.stack.splitlines(), str(raised.value)
    assert stack[0].endswith(f"in {innermost}") and __file__.rpartition("/")[2] in stack[0]
    assert stack[-1].endswith("in step") and "pool_envs.py" in stack[-1]  # without remuda's own frames
    assert "was killed; pass faults=" in text and f"\n  it was in, the last call first:\n    {stack[0]}\n" in text


def test_the_crash_record_and_the_fault_have_the_stack(tmp_path: Path) -> None:
    faults = FaultPolicy("restart", step_timeout=LIMIT)
    with Pool(hooked(2, step=spin), faults=faults, crash_dir=tmp_path) as pool:
        pool.reset()
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

    with Pool(hooked(2, step=hang), faults=FaultPolicy(step_timeout=LIMIT)) as pool:
        pool.reset()
        with pytest.raises(EnvTimeoutError) as raised:
            pool.step([1, 1])
    assert raised.value.stack == "" and "it was in" not in str(raised.value)


def test_the_stack_of_a_deep_recursion_is_shortened() -> None:
    def down(n: int) -> None:
        if n == 0:
            look_for_ever()
        down(n - 1)

    fns = [lambda: HookedEnv(step=lambda *_: down(300))]
    with Pool(fns, faults=FaultPolicy(step_timeout=LIMIT)) as pool:
        pool.reset()
        with pytest.raises(EnvTimeoutError) as raised:
            pool.step([1])
    stack = raised.value.stack.splitlines()
    assert stack[0].endswith("in look_for_ever") and stack[-1] == "..."
