"""Envs that miss a deadline: the pool kills their worker, wherever it hangs, and reports its stack.

The tests are independent of the machine's speed: late envs hang forever, and no other command has a deadline.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from accidents import hold_the_gil, once
from failing import LIMIT, fault_in, limit_builds_of_successors
from pool_envs import Gate, TextEnv, begun, counting, gated, hooked
from programs import Script, await_sleep, kill, pids_of

from remuda import EnvTimeoutError, FaultPolicy, Pool, load_record


def test_a_deadline_is_kept_while_other_envs_keep_the_pool_busy() -> None:
    faults = FaultPolicy(step_timeout=LIMIT)
    with begun(hooked(3, step=hold_the_gil), faults=faults) as pool, pytest.raises(EnvTimeoutError):
        pool.send([1] * 3)
        while True:  # recv with min_envs=1 always has a result and never waits
            batch = pool.recv(min_envs=1)
            pool.send([1] * len(batch), env_ids=batch.env_ids)


def compute() -> None:
    """Holds the GIL for some tenths of a second, and uses a core."""
    sorted(_NUMBERS)


_NUMBERS = [hash(str(n)) for n in range(400_000)]


@pytest.mark.parametrize("phase", ["step", "build"])
def test_an_env_that_hangs_is_noticed_while_the_learner_holds_the_gil_in_pieces(phase: str, tmp_path: Path) -> None:
    hang = once(tmp_path / "hung", hold_the_gil, skip=int(phase == "build"))
    limits: Any = {"step_timeout": LIMIT} if phase == "step" else {}
    hooks: Any = {phase: hang}
    with begun(hooked(2, **hooks), faults=FaultPolicy("restart", backoff=0, max_restarts=9, **limits)) as pool:
        if phase == "build":
            limit_builds_of_successors(pool)
            kill(pool, 1)
        pool.send([1, 1])
        while pool.stats().restarts == 0:
            compute()
        assert fault_in(pool.recv(order="slot"), 1).kind == ("timeout" if phase == "step" else "death")
        assert pool.reset().obs[:, 2].tolist() == [0, 0]


def test_idle_workers_miss_no_deadline(tmp_path: Path) -> None:
    """The learner takes longer than the limit, measured by the clock that the pool also uses."""
    with Pool(counting(2), faults=FaultPolicy("restart", step_timeout=LIMIT, reset_timeout=LIMIT)) as pool:
        before = pids_of(pool)
        pool.reset()
        end = time.monotonic() + 2 * LIMIT
        while time.monotonic() < end:
            pass
        assert pool.call("pid") == before
        assert not pool.step([1, 1]).truncations.any()
        assert pids_of(pool) == before


def test_waiting_for_a_successor_does_not_count_for_a_deadline(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    build = once(tmp_path / "built", lambda _: gate.wait(), skip=1)
    env_fns = hooked(2, build=build, step=once(tmp_path / "hung", hold_the_gil))
    with begun(env_fns, faults=FaultPolicy("restart", step_timeout=LIMIT, reset_timeout=LIMIT)) as pool:
        assert pool.step([1, 1]).truncations[1]
        pool.send([1, 1])
        assert pool.recv(timeout=2 * LIMIT).env_ids.tolist() == [0]
        gate.let_pass()
        batch = pool.recv()
        assert (batch.env_ids.tolist(), batch.obs.tolist()) == ([1], [[1, 1, 0, -1]])


# -- messages too large for a socket's buffer --------------------------------------------------------------


LONG = 10**7
TEXTS = [TextEnv, lambda: TextEnv(times=LONG)]


@pytest.mark.parametrize("phase", ["step", "call", "message"])
def test_a_worker_that_stops_within_an_answer_or_before_a_message_misses_its_deadline(phase: str) -> None:
    name = "step_timeout" if phase == "step" else "call_timeout"
    with begun(TEXTS, faults=FaultPolicy(**{name: LIMIT})) as pool:  # type: ignore[arg-type]
        if phase == "step":
            pool.send(("a", "b"))
        if phase == "call":
            call = pool.apply_async(lambda env: "b" * LONG, env_ids=[1])
        pid = pids_of(pool)[1]
        await_sleep(pid)  # the worker sleeps until the pool reads the rest of its answer
        os.kill(pid, signal.SIGSTOP)
        if phase == "message":
            call = pool.call_async("repeat", bytes(LONG), env_ids=[1])
        with pytest.raises(EnvTimeoutError, match=f"longer than {name}={LIMIT} s") as raised:
            pool.recv() if phase == "step" else call.result()
        assert raised.value.env_ids == (1,)
        if phase == "step":
            assert pool.recv().obs == ("a",)
        assert pool.call("times", env_ids=[0]) == [1]


def test_time_in_which_the_pool_reads_no_answer_does_not_count() -> None:
    """The answer is late by the clock, but only because the pool did not read it meanwhile."""
    with begun(TEXTS, faults=FaultPolicy(step_timeout=2.0)) as pool:
        pool.send(("a", "b"))
        await_sleep(pids_of(pool)[1])
        began = time.monotonic()
        while time.monotonic() < began + 2.2:  # time that the learner takes
            pass
        assert pool.recv(order="slot").obs == ("a", "b" * LONG)


def test_a_message_that_a_worker_does_not_read_delays_no_other_env(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    large = bytes(LONG)
    with begun(gated([None, gate])) as pool:
        pool.send([1, 1])
        gate.await_arrival()
        calls = [pool.call_async("echo", large, i, env_ids=[1]) for i in range(3)]
        for action in range(3):
            assert pool.recv(min_envs=1).env_ids.tolist() == [0]
            pool.send([action], env_ids=[0])
        gate.open()
        assert [call.result()[0][0] for call in calls] == [(large, i) for i in range(3)]
        assert sorted(pool.recv().env_ids) == [0, 1]


# -- a job that is stopped as a whole, as containers and schedulers do -----------------------------------

FROZEN = """
import pickle
from accidents import once
gate = pickle.loads(Path(os.environ["REMUDA_TEST"], "gate").read_bytes())
def stand_once(skip=0):
    return once(Path(os.environ["REMUDA_TEST"], "stood"), lambda *_: gate.wait(), skip=skip)
LIMIT = 2.0
"""
IN_A_STEP = """
import select
numbers = [hash(str(n)) for n in range(400_000)]
with begun(hooked(2, step=stand_once()), faults=FaultPolicy("restart", step_timeout=LIMIT)) as pool:
    pool.send([1, 1])
    say(pids(pool))
    while not select.select([0], [], [], 0)[0]:
        sorted(numbers)  # holds the GIL
    batch = pool.recv()
    say([batch.truncations.tolist(), batch.obs[:, 2].tolist(), pool.stats().restarts])
"""
IN_A_BUILD = """
with Pool(hooked(2, build=stand_once(skip=1)), faults=FaultPolicy("restart", backoff=0), start_timeout=30) as pool:
    successors = pool._exchange.supervisor.workers.successors
    successors.start_timeout = LIMIT  # of successors alone: the first have all the time
    pool.reset()
    os.kill(pids(pool)[1], signal.SIGKILL)
    pool.step([1, 1])
    pool.send([1, 1])
    while pool.stats().restarts == 0:
        pool.recv(min_envs=1)
        pool.send([1], env_ids=[0])
    say(pids(pool))
    batch = pool.recv()
    say([batch.truncations.tolist(), sorted(batch.obs[:, 2].tolist())[:1], pool.stats().restarts])
"""


IN_THE_FIRST_BUILD = """
with Pool(hooked(2)):
    pass  # what workers are forked from is there
say("ready")
with Pool(hooked(2, build=stand_once()), start_timeout=LIMIT) as pool:
    say(pool.reset().obs[:, 1].tolist())
"""
IN_THE_CLOSE = """
pool = Pool(hooked(2, close=stand_once()))
say("ready")
pool.close(timeout=LIMIT)
say([worker.exitcode for worker in pool.workers])
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (IN_THE_FIRST_BUILD, [1, 1]),
        (IN_THE_CLOSE, [0, 0]),
        (IN_A_STEP, [[False, False], [1, 1], 0]),
        (IN_A_BUILD, [[False, False], [0], 1]),
    ],
    ids=[
        "in the first build",
        "in the close",
        "while the learner holds the GIL",
        "in the build of a successor",
    ],
)
def test_time_in_which_the_whole_job_is_stopped_does_not_count(
    program: str, expected: Any, script: Callable[..., Script], tmp_path: Path
) -> None:
    gate = Gate(tmp_path)
    (tmp_path / "gate").write_bytes(pickle.dumps(gate))
    owner = script(FROZEN + program)
    owner.read_line()
    gate.await_arrival()
    job = owner.family()
    for pid in job:
        with suppress(ProcessLookupError):  # a worker whose env was closed at once may have ended
            os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + 4.0  # twice the limit, measured by the clock that the pool also uses
    while (left := end - time.monotonic()) > 0:
        select.select([], [], [], left)  # sleeps, since a busy loop would occupy a core during the tested time
    while not all(is_stopped(pid) for pid in job):
        pass
    for pid in job:
        with suppress(ProcessLookupError):  # a process that has ended is reaped as soon as its parent continues
            os.kill(pid, signal.SIGCONT)
    owner.write_line()
    gate.open()
    assert owner.read_line() == expected
    assert owner.await_end()[0] == 0


def is_stopped(pid: int) -> bool:
    """Returns whether the process is stopped, or has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"T", "Z"}
    except (FileNotFoundError, ProcessLookupError):
        return True


# -- the stack of the hung env ---------------------------------------------------------------------------


def look_for_ever() -> None:
    while True:
        pass


def spin(*_: Any) -> None:
    look_for_ever()


def wait_in_native_code(*_: Any) -> None:
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


@pytest.mark.parametrize("hang", [spin, wait_in_native_code, sleep, read_a_pipe])
def test_the_error_has_the_stack_of_the_hung_env(hang: Any) -> None:
    innermost = "look_for_ever" if hang is spin else hang.__name__
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
        record = load_record(fault.error.record)
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
