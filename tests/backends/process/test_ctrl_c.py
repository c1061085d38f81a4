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
from programs import Script, await_sleep

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
    run = script(
        f"""
METHOD = "{start_method}"
gate = {gate!r}
fns = hooked(3, {phase}=lambda *_: (gate.wait(), wait_for_ever()))
{use}
    pool.reset()
    pool.call("poke")
    for _ in range(3):
        pool.step([0, 0, 0])
"""
    )
    gate.let_pass()
    os.killpg(run.process.pid, signal.SIGINT)
    code, out, err = run.await_end()
    assert err.count("Traceback (most recent call last)") == 1, err
    assert err.strip().endswith("KeyboardInterrupt"), err
    assert err.count("KeyboardInterrupt") == 1, err
    assert out == ""
    assert code == -signal.SIGINT


def test_a_pool_stays_usable_after_ctrl_c(script: Callable[..., Script], tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    run = script(
        f"""
gate = {gate!r}
with Pool(gated([None, gate])) as pool:
    pool.reset()
    try:
        pool.step([1, 2])
    except KeyboardInterrupt:
        say(pool.pending)
    say(pool.recv().rewards.tolist())
    say(pool.call("tag"))
"""
    )
    gate.await_arrival()
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.read_line() == 2
    gate.open()
    assert run.read_line() == [1, 2]
    assert run.read_line() == [0, 1]
    assert run.await_end() == (0, "", "")


def test_ctrl_c_within_a_message_does_not_disturb_the_next_one(script: Callable[..., Script]) -> None:
    """The worker is stopped within a long answer, and the interrupt arrives while the pool waits for the rest."""
    run = script(
        """
with Pool([TextEnv, TextEnv]) as pool:
    pool.reset()
    say(pids(pool))
    slow = pool.apply_async(lambda env: b"x" * 50_000_000, env_ids=[0])
    os.kill(os.getpid(), signal.SIGSTOP)  # until the worker is stopped in the middle of its answer
    try:
        slow.result()
        say("whole")
    except KeyboardInterrupt:
        say("interrupted")
    say([len(answer) for answer in slow.result()])
    say(len(pool.step(("a", "b")).obs))
"""
    )
    pid, _ = run.read_line()
    await_sleep(pid)  # the answer is larger than the socket's buffer, so the worker sleeps
    os.kill(pid, signal.SIGSTOP)
    run.process.send_signal(signal.SIGCONT)
    await_sleep(run.process.pid)
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.read_line() == "interrupted"
    os.kill(pid, signal.SIGCONT)
    assert run.read_line() == [50_000_000]
    assert run.read_line() == 2
    assert run.await_end() == (0, "", "")


def test_ctrl_c_while_a_pool_starts_does_not_disturb_the_next_pool(
    script: Callable[..., Script], tmp_path: Path
) -> None:
    """The next pool may not take the fork server's answer to the interrupted request for its own."""
    (tmp_path / "slow_module.py").write_text(
        "import script_head\nscript_head.say('importing')\nscript_head.wait_for_ever()\n"
    )
    run = script(
        """
try:
    Pool(counting(2), preload=["slow_module"])
except KeyboardInterrupt:
    say("interrupted")
with Pool(counting(2)) as pool:
    say(pool.call("pid") == pids(pool))
"""
    )
    assert run.read_line() == "importing"
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.read_line() == "interrupted"
    assert run.read_line() is True
    assert run.await_end() == (0, "", "")


def test_ctrl_c_during_a_close_kills_the_workers_at_once(script: Callable[..., Script], tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    run = script(
        f"""
gate = {gate!r}

def step(*_):
    signal.signal(signal.SIGTERM, lambda *_: gate.wait())
    gate.wait()
    wait_for_ever()

pool = Pool(hooked(3, step=step))
pool.reset()
pool.send([1, 2, 3])
say("sent")
sys.stdin.readline()
try:
    pool.close(timeout=0)
except KeyboardInterrupt:
    say([worker.is_alive() for worker in pool.workers])
"""
    )
    assert run.read_line() == "sent"
    gate.let_pass()
    run.write_line()
    gate.await_arrival()  # the worker has received SIGTERM and does not end
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.read_line() == [False] * 3
    assert run.await_end() == (0, "", "")


def test_ctrl_c_ends_a_close_while_an_env_hangs_in_native_code(script: Callable[..., Script], tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    run = script(
        f"""
gate = {gate!r}
pool = Pool([lambda: HookedEnv(0, close=lambda env: gate.wait()), lambda: HookedEnv(1, step=hold_the_gil)])
pool.reset()
pool.send([1, 2])
try:
    pool.close(timeout=600)
except KeyboardInterrupt:
    say([worker.is_alive() for worker in pool.workers])
"""
    )
    gate.await_arrival()  # the other env is being closed
    os.kill(run.process.pid, signal.SIGINT)
    assert run.read_line() == [False, False]
    assert run.await_end() == (0, "", "")
