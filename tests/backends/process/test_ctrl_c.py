"""Ctrl-C in every phase: the caller receives KeyboardInterrupt, and its next calls work."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pairs import covering
from pool_envs import Gate
from programs import Script

START_METHODS = ("forkserver", "spawn", "fork")


USES = ("with Pool(fns, start_method=METHOD) as pool:", "pool = Pool(fns, start_method=METHOD)\nif pool:")
PHASES = ("build", "reset", "step", "call")
# The start method matters only while envs are built, so each later phase is tested with one start method.
CASES = covering(
    [(phase, USES[i % 2], start_method) for i, (phase, start_method) in enumerate(product(PHASES, START_METHODS))],
    lambda case: (case[0], case[2] if case[0] == "build" else None),
    lambda case: case[1:],
)


@pytest.mark.parametrize(("phase", "use", "start_method"), CASES)
def test_ctrl_c_ends_a_program_in_each_phase(
    phase: str, use: str, start_method: Any, script: Callable[..., Script], tmp_path: Path
) -> None:
    """The program ends with one traceback, and leaves no process."""
    gate = Gate(tmp_path)
    run = script(f"""
METHOD = "{start_method}"
gate = {gate!r}
fns = hooked(3, {phase}=lambda *_: (gate.wait(), wait_for_ever()))
{use}
    pool.reset()
    pool.call("poke")
    for _ in range(3):
        pool.step([0, 0, 0])
""")
    gate.let_pass()
    os.killpg(run.process.pid, signal.SIGINT)
    code, out, err = run.await_end()
    assert err.count("Traceback (most recent call last)") == 1, err
    assert err.strip().endswith("KeyboardInterrupt"), err
    assert err.count("KeyboardInterrupt") == 1, err
    assert out == ""
    assert code == -signal.SIGINT


@pytest.mark.parametrize(
    ("hooks", "timeout"),
    [("dict(close=wait_in_env_0, step=hang_in_env_1)", 600), ("dict(reset=stay_at_sigterm, step=wait_for_ever)", 0)],
    ids=["while an env hangs in native code", "while a worker does not end at SIGTERM"],
)
def test_ctrl_c_during_a_close_kills_the_workers_at_once(
    hooks: str, timeout: float, script: Callable[..., Script], tmp_path: Path
) -> None:
    gate = Gate(tmp_path)
    run = script(f"""
gate = {gate!r}

def wait_in_env_0(env):
    if env.tag == 0:
        gate.wait()

def hang_in_env_1(env, action):
    if env.tag == 1:
        hold_the_gil()

def stay_at_sigterm(env):
    signal.signal(signal.SIGTERM, lambda *_: gate.wait())

pool = Pool(hooked(2, (0, 1), **{hooks}))
pool.reset()
pool.send([1, 2])
try:
    pool.close(timeout={timeout})
except KeyboardInterrupt:
    say([worker.is_alive() for worker in pool.workers])
""")
    gate.await_arrival()  # the other env is being closed, or the worker has received SIGTERM
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.read_line() == [False, False]
    assert run.await_end() == (0, "", "")
