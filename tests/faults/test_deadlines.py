"""Envs that take too long: their worker is killed from outside, wherever it hangs.

What is late here hangs for ever, and nothing else is asked while a deadline runs: no speed of any machine matters.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from failing import MODES, assert_cut_off, fault_in, final_info, once, rejoin
from pool_envs import Gate, counting, hooked
from programs import pids_of

from remuda import BrokenPoolError, EnvTimeoutError, FaultPolicy, Pool

LIMIT = 0.3


def loop_for_ever(*_: Any) -> None:
    while True:
        pass


def hold_the_gil(*_: Any) -> None:
    ctypes.PyDLL(None).pause()  # a PyDLL does not release it


def stop(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def ignore_signals(*_: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    while True:
        signal.pause()


HANGS = {
    "python": loop_for_ever,
    "native": hold_the_gil,
    "SIGSTOP": stop,
    "sleep": lambda *_: time.sleep(1e6),
    "deaf": ignore_signals,
}


@pytest.mark.parametrize("hang", HANGS)
@pytest.mark.parametrize("phase", ["step", "reset", "call"])
def test_a_missed_deadline_is_raised(phase: str, hang: str) -> None:
    faults = FaultPolicy(**{f"{phase}_timeout": LIMIT})  # type: ignore[arg-type]
    with Pool(hooked(3, **{phase: HANGS[hang]}), faults=faults) as pool:
        if phase != "reset":
            pool.reset()
        with pytest.raises(EnvTimeoutError) as raised:
            _ask(pool, phase)
        error = raised.value
        assert isinstance(error, TimeoutError)
        assert (error.deadline, error.limit, error.env_ids, error.operation) == (f"{phase}_timeout", LIMIT, (1,), phase)
        assert error.where is not None
        assert error.where.env_id == 1
        assert f"it took longer than {phase}_timeout={LIMIT} s, and was killed" in str(error)
        assert error.exitcode == -signal.SIGKILL
        assert not pool.workers[1].is_alive()
        if phase != "call":
            assert sorted(pool.recv().env_ids) == [0, 2]  # in the order of their arrival
        with pytest.raises(BrokenPoolError, match="env 1 was lost"):
            pool.step([1, 1, 1])


def _ask(pool: Pool, phase: str) -> Any:
    return {"step": lambda: pool.step([1, 1, 1]), "reset": pool.reset, "call": lambda: pool.call("poke")}[phase]()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("hang", HANGS)
def test_an_env_that_hangs_is_restarted(hang: str, mode: Any, tmp_path: Path) -> None:
    hangs = once(tmp_path / "hung", HANGS[hang], when=lambda env: env.steps == 2)
    faults = FaultPolicy("restart", step_timeout=LIMIT)
    with Pool(hooked(3, step=hangs), faults=faults, autoreset=mode) as pool:
        pool.reset()
        pool.step([1, 1, 1])
        batch = pool.step([2, 2, 2])
        fault = assert_cut_off(batch, 1, [1, 1, 1, 1])
        assert (fault.kind, fault.operation, fault.where.step) == ("timeout", "step", 2)
        assert isinstance(fault.error, EnvTimeoutError)
        assert batch.obs[[0, 2], 2].tolist() == [2, 2]
        assert rejoin(pool, [3, 3, 3]).obs[1].tolist() == [1, 1, 1, 3]


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_autoresets_have_the_deadline_of_resets(mode: Any, tmp_path: Path) -> None:
    hangs = once(tmp_path / "hung", hold_the_gil)
    faults = FaultPolicy("restart", reset_timeout=LIMIT)
    with Pool(hooked(2, length=1, autoreset=hangs), faults=faults, autoreset=mode) as pool:
        pool.reset()
        batch = pool.step([1, 1])
        if mode == "next_step":  # nothing is told of a reset that was tried again
            batch = pool.step([1, 1])
            assert not batch.truncated.any()
        else:
            assert fault_in(batch, 1).operation == "reset"
        assert batch.obs.tolist() == [[0, 2, 0, -1], [1, 1, 0, -1]]


def test_a_call_that_hangs_costs_the_episode(tmp_path: Path) -> None:
    hangs = once(tmp_path / "hung", hold_the_gil)
    with Pool(hooked(2, call=hangs), faults=FaultPolicy("restart", call_timeout=LIMIT)) as pool:
        pool.reset()
        with pytest.raises(EnvTimeoutError, match="call_timeout"):
            pool.call("poke")
        batch = pool.step([1, 1])
        assert fault_in(batch, 1).kind == "timeout"
        assert pool.call("poke") == ["poked"] * 2


def test_a_deadline_is_kept_while_others_keep_the_pool_busy() -> None:
    with Pool(hooked(3, step=hold_the_gil), faults=FaultPolicy(step_timeout=LIMIT)) as pool:
        pool.reset()
        pool.send([1, 1, 1])
        with pytest.raises(EnvTimeoutError):
            while True:  # whoever takes what is there never waits
                batch = pool.recv(min_envs=1)
                pool.send([1] * len(batch), env_ids=batch.env_ids)


def test_several_miss_a_deadline_at_once() -> None:
    with Pool(hooked(4, which=[1, 2], step=hold_the_gil), faults=FaultPolicy("restart", step_timeout=LIMIT)) as pool:
        pool.reset()
        batch = pool.step([1] * 4)
        assert batch.truncated.tolist() == [False, True, True, False]
        assert [final_info(batch, row)["fault"].kind for row in (1, 2)] == ["timeout"] * 2


def test_idle_workers_miss_no_deadline(tmp_path: Path) -> None:
    """However long the learner learns: longer than the limit, as a clock shows that we and the pool share."""
    with Pool(counting(2), faults=FaultPolicy("restart", step_timeout=LIMIT, reset_timeout=LIMIT)) as pool:
        before = pids_of(pool)
        pool.reset()
        end = time.monotonic() + 2 * LIMIT
        while time.monotonic() < end:
            pass
        assert pool.call("pid") == before
        assert not pool.step([1, 1]).truncated.any()
        assert pids_of(pool) == before


def test_waiting_for_a_successor_is_no_deadline_of_a_step(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    built = str(tmp_path / "built")
    second = lambda env: os.path.exists(built) or open(built, "w").close()  # noqa: E731
    build = lambda env: gate.wait() if second(env) else None  # noqa: E731
    hangs = once(tmp_path / "hung", hold_the_gil)
    faults = FaultPolicy("restart", step_timeout=LIMIT, reset_timeout=LIMIT)
    with Pool(hooked(2, build=build, step=hangs), faults=faults) as pool:
        pool.reset()
        assert pool.step([1, 1]).truncated[1]
        pool.send([1, 1])
        assert pool.recv(timeout=2 * LIMIT).env_ids.tolist() == [0]
        gate.let_pass()
        batch = pool.recv()
        assert (batch.env_ids.tolist(), batch.obs.tolist()) == ([1], [[1, 1, 0, -1]])
