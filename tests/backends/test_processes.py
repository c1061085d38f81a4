"""Worker processes: how they start, what they inherit, and that none is left behind however things end.

Deaths are real signals to real processes, awaited through their process descriptors; nothing here sleeps, or asserts
how long something takes.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from pool_envs import CountingEnv, Gate, HookedEnv, TextEnv, counting, gated, hooked
from programs import Script, Watched, await_sleep, children, end_process, holdings, kill, pids_of

from remuda import (
    BrokenPoolError,
    EnvError,
    Pool,
    StartTimeoutError,
    StateError,
    WorkerDiedError,
    worker_info,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")

START_METHODS = ("forkserver", "spawn", "fork")


# -- a worker dies ---------------------------------------------------------------------------------------


def assert_death(error: WorkerDiedError, worker: int, pid: int, env_ids: tuple[int, ...], operation: str) -> None:
    assert (error.worker, error.pid, error.env_ids, error.operation) == (worker, pid, env_ids, operation)
    assert error.exitcode == -signal.SIGKILL
    envs = f"env{'s' * (len(env_ids) > 1)} {', '.join(map(str, env_ids))}"
    assert f"worker {worker} (pid {pid}, {envs}) died while" in str(error)
    assert "killed by SIGKILL" in str(error)


def assert_goes_on_without(pool: Pool, lost: Sequence[int]) -> None:
    """The others' results are there, and they can be sent more; the lost envs are refused."""
    others = [i for i in range(pool.num_envs) if i not in lost]
    batch = pool.recv()
    assert sorted(batch.env_ids.tolist()) == others
    assert pool.pending == 0
    pool.send([7] * len(others), env_ids=others)
    assert pool.recv().reward.tolist() == [7.0] * len(others)
    for call in (lambda: pool.step([0] * pool.num_envs), pool.reset, lambda: pool.call("pid"), pool.send_observe):
        with pytest.raises(BrokenPoolError, match=f"env {lost[0]} was lost to an earlier fault") as raised:
            call()
        assert isinstance(raised.value.__cause__, WorkerDiedError)
    assert pool.call("tag", env_ids=others) == others


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # newer Pythons, of fork
def test_death_in_step(start_method: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with Pool(gated([None, None, gate, None, None]), num_workers=3, start_method=start_method) as pool:
        pool.reset()
        pool.send([0] * 5)
        gate.await_arrival()
        pid = kill(pool, 1)
        with pytest.raises(WorkerDiedError) as raised:
            pool.recv()
        assert_death(raised.value, 1, pid, (2, 3), "step")
        assert [worker.is_alive() for worker in pool.workers] == [True, False, True]
        assert_goes_on_without(pool, [2, 3])
    assert [worker.exitcode for worker in pool.workers] == [0, -9, 0]


def test_death_in_reset(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with Pool(gated([None, gate, None], "reset")) as pool:
        pool.send_reset()
        gate.await_arrival()
        pid = kill(pool, 1)
        with pytest.raises(WorkerDiedError) as raised:
            pool.recv()
        assert_death(raised.value, 1, pid, (1,), "reset")
        assert_goes_on_without(pool, [1])


def test_death_in_call(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with Pool(gated([None, gate, None], "call")) as pool:
        pool.reset()
        calls = [pool.call_async("poke") for _ in range(3)]
        other = pool.call_async("pid", env_ids=[0, 2])
        gate.await_arrival()
        pid = kill(pool, 1)
        for call in calls:
            for _ in range(2):
                with pytest.raises(WorkerDiedError) as raised:
                    call.result()
                assert_death(raised.value, 1, pid, (1,), "call")
        assert len(other.result()) == 2
        pool.send([1, 2], env_ids=[0, 2])
        assert_goes_on_without(pool, [1])


def test_death_while_idle() -> None:
    with Pool(counting(3)) as pool:
        pool.reset()
        pid = kill(pool, 1)
        pool.send([1, 2, 3])
        with pytest.raises(WorkerDiedError) as raised:
            pool.recv()
        assert_death(raised.value, 1, pid, (1,), "step")  # it was asked to step, and will never have
        assert_goes_on_without(pool, [1])


def test_death_while_idle_is_told_by_a_call_too() -> None:
    with Pool(counting(3)) as pool:
        pid = kill(pool, 0)
        with pytest.raises(WorkerDiedError) as raised:
            pool.call("pid")
        assert_death(raised.value, 0, pid, (0,), "call")
        assert len(pool.reset(env_ids=[1, 2])) == 2


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_death_in_build(start_method: Any) -> None:
    fns = hooked(4, (2,), build=lambda env: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(WorkerDiedError) as raised:
        Pool(fns, num_workers=2, start_method=start_method)
    assert raised.value.pid is not None
    assert_death(raised.value, 1, raised.value.pid, (2, 3), "build")


def test_death_in_close() -> None:
    pool = Pool(hooked(3, close=lambda env: os.kill(os.getpid(), signal.SIGKILL)))
    pids = pids_of(pool)
    with pytest.raises(WorkerDiedError) as raised:
        pool.close()
    assert_death(raised.value, 1, pids[1], (1,), "close")
    assert pool.closed
    assert not any(worker.is_alive() for worker in pool.workers)


@pytest.mark.parametrize(
    ("end", "exitcode", "says"),
    [
        (lambda *_: os._exit(3), 3, "it exited with code 3"),
        (lambda *_: os._exit(0), 0, "it exited with code 0"),
        (lambda *_: os.kill(os.getpid(), signal.SIGSEGV), -signal.SIGSEGV, "killed by SIGSEGV"),
        (lambda *_: os.abort(), -signal.SIGABRT, "killed by SIGABRT"),
        (lambda *_: os.kill(os.getpid(), signal.SIGTERM), -signal.SIGTERM, "killed by SIGTERM"),
        (lambda *_: os.kill(os.getpid(), signal.SIGBUS), -signal.SIGBUS, "killed by SIGBUS"),
        (lambda *_: os.kill(os.getpid(), signal.SIGRTMIN + 3), -signal.SIGRTMIN - 3, "killed by signal 37"),
    ],
)
def test_all_kinds_of_death_are_told(end: Callable[..., Any], exitcode: int, says: str) -> None:
    with Pool(hooked(2, step=end)) as pool:
        pool.reset()
        with pytest.raises(WorkerDiedError, match=says) as raised:
            pool.step([0, 0])
        assert raised.value.exitcode == exitcode
        assert pool.recv().env_ids.tolist() == [0]


def test_several_deaths_are_told_as_one_error() -> None:
    with Pool(counting(4)) as pool:
        pool.reset()
        for worker in (1, 2):
            kill(pool, worker)
        pool.send([0] * 4)
        with pytest.raises(WorkerDiedError, match=r"^worker 1 .*; and worker 2 .* killed by SIGKILL") as raised:
            pool.recv()
        (other,) = raised.value.others
        assert isinstance(other, WorkerDiedError)
        assert (raised.value.worker, other.worker) == (1, 2)
        assert_goes_on_without(pool, [1, 2])


def test_all_workers_die() -> None:
    with Pool(counting(2), num_workers=1) as pool:
        pool.reset()
        kill(pool, 0)
        with pytest.raises(WorkerDiedError):
            pool.step([0, 0])
        with pytest.raises(StateError, match="expected envs in flight, got none"):
            pool.recv()
        with pytest.raises(BrokenPoolError):
            pool.reset()


def test_a_death_is_told_though_others_keep_the_pool_busy() -> None:
    """Whoever takes the first results that come never waits; the dead must not be forgotten over it."""
    with Pool(counting(3)) as pool:
        pool.reset()
        pid = kill(pool, 1)
        pool.send([0, 0, 0])
        with pytest.raises(WorkerDiedError) as raised:
            while True:
                ids = pool.recv(min_envs=1).env_ids
                pool.send([0] * len(ids), env_ids=ids)
        assert raised.value.pid == pid
        pool.recv()


def test_discard_outlives_a_death(tmp_path: Path) -> None:
    gates = [Gate(tmp_path, f"gate{i}") for i in range(2)]
    with Pool(gated([*gates, None])) as pool:
        pool.reset()
        pool.send([1, 2, 3])
        for gate in gates:
            gate.await_arrival()
        kill(pool, 0)
        opener = threading.Thread(target=gates[1].open)
        opener.start()
        pool.discard()  # also what comes after the death
        opener.join()
        assert pool.pending == 0
        pool.send([1, 2], env_ids=[1, 2])
        gates[1].let_pass()
        assert sorted(pool.recv().env_ids.tolist()) == [1, 2]


@pytest.mark.parametrize("how", ["close", "terminate", "with"])
def test_a_pool_with_a_dead_worker_closes_at_once(how: str) -> None:
    """`timeout` is endless here: whoever waits for the dead worker's goodbye waits for the watchdog."""
    pool = Pool(counting(3))
    pool.reset()
    kill(pool, 1)
    if how == "with":
        with pytest.raises(WorkerDiedError), pool:
            pool.step([0, 0, 0])
    else:
        pool.close(timeout=1e6, terminate=how == "terminate")
    assert not any(worker.is_alive() for worker in pool.workers)


def test_new_info_keys_after_a_death_hold_up_nobody() -> None:
    """The workers are told of a new key's column; the dead one will never answer."""

    def step(env: Any, action: Any) -> Any:
        return env.observe(), 0.0, False, False, {f"key {int(action)}": 1}

    pool = Pool([lambda: HookedEnv(step=step)] * 3)
    pool.reset()
    kill(pool, 1)
    with pytest.raises(WorkerDiedError):
        pool.step([0, 0, 0])
    pool.recv()
    for i in range(200):  # more than the dead worker's ring has room for
        pool.send([i, i], env_ids=[0, 2])
        assert pool.recv().infos.stack()[f"key {i}"].tolist() == [1, 1]
    pool.close(timeout=1e6)


def test_a_worker_that_dies_while_it_waits_for_its_turn_blocks_nobody(tmp_path: Path) -> None:
    gates = [Gate(tmp_path, f"gate{i}") for i in range(3)]
    with Pool(gated(gates), max_concurrency=1) as pool:
        pool.reset()
        pool.send([1, 2, 3])
        gates[0].await_arrival()
        kill(pool, 1)
        gates[0].open()
        opener = threading.Thread(target=gates[2].let_pass)
        opener.start()
        with pytest.raises(WorkerDiedError, match="worker 1 "):
            pool.recv()
        assert sorted(pool.recv().env_ids.tolist()) == [0, 2]
        opener.join()


def test_a_worker_that_dies_in_its_turn_passes_it_on(tmp_path: Path) -> None:
    gates = [Gate(tmp_path, f"gate{i}") for i in range(2)]
    with Pool(gated([*gates, None]), max_concurrency=1) as pool:
        pool.reset()
        pool.send([1, 2, 3])
        gates[0].await_arrival()
        kill(pool, 0)
        opener = threading.Thread(target=gates[1].let_pass)
        opener.start()
        with pytest.raises(WorkerDiedError, match="worker 0 "):
            pool.recv()
        assert sorted(pool.recv().env_ids.tolist()) == [1, 2]
        opener.join()


def test_more_calls_than_room_to_a_worker_that_dies(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with Pool(gated([gate, None], "call")) as pool:
        first = pool.call_async("poke", env_ids=[0])
        gate.await_arrival()
        kill(pool, 0)
        with pytest.raises((WorkerDiedError, BrokenPoolError)):
            for _ in range(1000):
                pool.call_async("pid", env_ids=[0])
        with pytest.raises(WorkerDiedError):
            first.result()
        assert len(pool.call("pid", env_ids=[1])) == 1


def test_death_in_the_middle_of_a_message() -> None:
    """Its text is too long for the socket's buffer: it dies while it waits for us to read."""
    with Pool([TextEnv, lambda: TextEnv(times=10**7)]) as pool:
        pool.reset()
        pool.send(("a", "b"))
        pid = pids_of(pool)[1]
        await_sleep(pid)
        kill(pool, 1)
        with pytest.raises(WorkerDiedError) as raised:
            pool.recv()
        assert raised.value.env_ids == (1,)
        assert pool.recv().obs == ("a",)


FORK_A_CHILD = """
def fork_a_child(*_):
    if os.fork() == 0:  # it holds whatever descriptors we hold
        signal.pause()
        os._exit(0)
"""


def test_a_forked_child_of_an_env_does_not_hide_its_death_in_build(script: Callable[..., Script]) -> None:
    """The child keeps the worker's socket open: its end does not show there."""
    run = script(
        FORK_A_CHILD
        + """
def die(*_):
    fork_a_child()
    os.kill(os.getpid(), signal.SIGKILL)

try:
    Pool([HookedEnv, lambda: HookedEnv(build=die)], start_timeout=None)
except WorkerDiedError as error:
    say([error.operation, error.exitcode, error.env_ids])
"""
    )
    assert run.read_line() == ["build", -9, [1]]
    assert run.await_end() == (0, "", "")


@pytest.mark.parametrize("side", ["reading", "writing"])
def test_a_forked_child_of_an_env_does_not_hide_its_death_later(side: str, script: Callable[..., Script]) -> None:
    """Not when we wait for the rest of its message, nor when we wait for it to read the rest of ours."""
    ask = {"reading": "lambda env: 'x' * 10**7", "writing": "lambda env, data: None, b'x' * 10**7"}[side]
    stop = {"reading": "", "writing": "os.kill(pids(pool)[0], signal.SIGSTOP)"}[side]
    run = script(
        FORK_A_CHILD
        + f"""
with Pool([TextEnv]) as pool:
    pool.apply(fork_a_child)
    {stop}
    say(pids(pool))
    try:
        pool.apply({ask})
    except WorkerDiedError as error:
        say([error.operation, error.exitcode, error.env_ids])
"""
    )
    (pid,) = run.read_line()
    if side == "writing":
        await_sleep(run.process.pid)
    os.kill(pid, signal.SIGKILL) if side == "writing" else _kill_in_the_middle(run, pid)
    assert run.read_line() == ["call", -9, [0]]
    assert run.await_end() == (0, "", "")


def _kill_in_the_middle(run: Script, pid: int) -> None:
    """Stops the reader until the writer's socket is full, and lets it go on when the writer is dead."""
    run.process.send_signal(signal.SIGSTOP)
    await_sleep(pid)
    watched = Watched([pid])
    os.kill(pid, signal.SIGKILL)
    watched.await_end()
    run.process.send_signal(signal.SIGCONT)


# -- the parent dies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.parametrize("stuck", ["hold_the_gil", "burn_the_cpu", "wait_for_ever"])
def test_no_worker_outlives_its_parent(
    stuck: str, start_method: Any, script: Callable[..., Script], tmp_path: Path
) -> None:
    """However stuck it is; nor do the simulators that the envs have started."""
    gate = Gate(tmp_path)
    run = script(
        f"""
gate = Gate.__new__(Gate)
gate.__dict__.update({gate.__dict__!r})

def simulate(env):
    env.simulator = subprocess.Popen(["sh", "-c", "sleep 100000 & wait"])

def step(*_):
    gate.wait()
    {stuck}()

pool = Pool(
    [lambda: HookedEnv(build=simulate), lambda: HookedEnv(build=simulate, step=step), HookedEnv],
    start_method="{start_method}",
)
pool.reset()
pool.send([1, 2, 3])
say(pids(pool))
wait_for_ever()
"""
    )
    workers = run.read_line()
    gate.let_pass()
    family = run.family()
    assert {run.process.pid, *workers} < set(family)
    assert len(family) >= 1 + 3 + 4
    watched = Watched(family)
    run.process.kill()
    watched.await_end()
    assert run.family() == []


def test_the_parent_dies_while_envs_are_built(script: Callable[..., Script], tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    run = script(
        f"""
gate = Gate.__new__(Gate)
gate.__dict__.update({gate.__dict__!r})
Pool([HookedEnv, lambda: HookedEnv(build=lambda env: (gate.wait(), hold_the_gil()))])
"""
    )
    gate.let_pass()
    watched = Watched(run.family())
    run.process.kill()
    watched.await_end()
    assert run.family() == []


def test_a_pool_within_a_worker(script: Callable[..., Script]) -> None:
    run = script(
        """
class Outer(CountingEnv):
    def __init__(self):
        super().__init__()
        self.inner = Pool(counting(2))

    def reset(self, **_):
        return self.inner.reset().obs[0], {}

    def inner_pids(self):
        return pids(self.inner)

    def close(self):
        self.inner.close()

pool = Pool([Outer] * 2)
pool.reset()
say(pool.call("inner_pids"))
pool.close()
pool = Pool([Outer] * 2)
say(pool.call("inner_pids"))
wait_for_ever()
"""
    )
    run.read_line()
    inner: list[int] = sum(run.read_line(), [])
    family = run.family()
    assert set(inner) < set(family)
    watched = Watched(family)
    run.process.kill()
    watched.await_end()
    assert run.family() == []


# -- Ctrl-C ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.parametrize(
    "use", ["with Pool(fns, start_method=METHOD) as pool:", "pool = Pool(fns, start_method=METHOD)\nif pool:"]
)
@pytest.mark.parametrize("phase", ["build", "reset", "step", "call"])
def test_ctrl_c(phase: str, use: str, start_method: Any, script: Callable[..., Script], tmp_path: Path) -> None:
    """One clean traceback, and no process left."""
    gate = Gate(tmp_path)
    run = script(
        f"""
METHOD = "{start_method}"
gate = Gate.__new__(Gate)
gate.__dict__.update({gate.__dict__!r})
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


def test_ctrl_c_on_the_serial_backend_is_no_env_error(script: Callable[..., Script], tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    run = script(
        f"""
gate = Gate.__new__(Gate)
gate.__dict__.update({gate.__dict__!r})
fns = hooked(3, step=lambda *_: (gate.wait(), wait_for_ever()))
with Pool(fns, backend="serial") as pool:
    pool.reset()
    while True:
        try:
            pool.step([0, 0, 0])
        except Exception:
            pass
"""
    )
    gate.let_pass()
    os.killpg(run.process.pid, signal.SIGINT)
    code, _, err = run.await_end()
    assert err.strip().endswith("KeyboardInterrupt"), err
    assert code == -signal.SIGINT


def test_ctrl_c_may_be_caught_and_the_pool_used_on(script: Callable[..., Script], tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    run = script(
        f"""
gate = Gate.__new__(Gate)
gate.__dict__.update({gate.__dict__!r})
with Pool(gated([None, gate])) as pool:
    pool.reset()
    try:
        pool.step([1, 2])
    except KeyboardInterrupt:
        say(pool.pending)
    say(pool.recv().reward.tolist())
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


def test_ctrl_c_in_the_middle_of_a_message_does_not_confuse_the_next(script: Callable[..., Script]) -> None:
    """The worker is stopped halfway through a long answer; the interrupt comes while we wait for the rest."""
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
    await_sleep(pid)  # its answer is longer than the socket's buffer
    os.kill(pid, signal.SIGSTOP)
    run.process.send_signal(signal.SIGCONT)
    await_sleep(run.process.pid)
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.read_line() == "interrupted"
    os.kill(pid, signal.SIGCONT)
    assert run.read_line() == [50_000_000]
    assert run.read_line() == 2
    assert run.await_end() == (0, "", "")


def test_ctrl_c_while_a_pool_starts_does_not_confuse_the_next(script: Callable[..., Script], tmp_path: Path) -> None:
    """The fork server's answer to the interrupted request must not be taken for the next one's."""
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


def test_ctrl_c_during_a_close_only_cuts_the_patience_short(script: Callable[..., Script], tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    run = script(
        f"""
gate = Gate.__new__(Gate)
gate.__dict__.update({gate.__dict__!r})

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
    gate.await_arrival()  # the SIGTERM has come, and is not heeded
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.read_line() == [False] * 3
    assert run.await_end() == (0, "", "")


def test_ctrl_c_ends_a_close_beside_a_native_hang(script: Callable[..., Script], tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    run = script(
        f"""
gate = Gate.__new__(Gate)
gate.__dict__.update({gate.__dict__!r})
pool = Pool([lambda: HookedEnv(0, close=lambda env: gate.wait()), lambda: HookedEnv(1, step=hold_the_gil)])
pool.reset()
pool.send([1, 2])
try:
    pool.close(timeout=600)
except KeyboardInterrupt:
    say([worker.is_alive() for worker in pool.workers])
"""
    )
    gate.await_arrival()  # of the other env, which is being closed
    os.kill(run.process.pid, signal.SIGINT)
    assert run.read_line() == [False, False]
    assert run.await_end() == (0, "", "")


# -- nobody closes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forgotten_pool_ends_with_its_last_reference(start_method: Any) -> None:
    pool = Pool(counting(2), start_method=start_method)
    batch = pool.reset()
    pool.send([1, 2])
    watched = Watched(pids_of(pool))
    del pool
    gc.collect()
    watched.await_end()
    assert batch.obs[:, 0].tolist() == [0, 1]


class Untidy(str):
    """Has garbage collected whenever it is pickled."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        gc.collect()
        return str, (str(self),)


def test_a_forgotten_pool_may_end_in_the_middle_of_anothers_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """As garbage collection has it: the fork server is being asked for a worker, and is to reap others."""
    pool = Pool(counting(2))
    pids = pids_of(pool)
    monkeypatch.setattr(sys, "argv", [Untidy("program")])  # part of the request for a worker
    gc.disable()  # not before
    try:
        cycle: list[Any] = [pool]
        cycle.append(cycle)
        del pool, cycle
        with Pool(counting(1)) as other:
            assert other.reset().obs[:, 0].tolist() == [0]
            assert not any(Path(f"/proc/{pid}").exists() for pid in pids)  # reaped, too
    finally:
        gc.enable()


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError('mine')", "os._exit(3)"])
def test_the_interpreter_ends_without_a_close(end: str, start_method: Any, script: Callable[..., Script]) -> None:
    run = script(
        f"""
pool = Pool(counting(2), start_method="{start_method}")
other = Pool(counting(2), backend="thread")
pool.reset(), other.reset()
pool.send([1, 2]), other.send([1, 2])
say(pids(pool))
{end}
""",
        "-Werror",
        "-Xdev",
    )
    run.read_line()
    code, _, err = run.await_end()
    if "mine" in end:
        assert (code, err.count("Traceback")) == (1, 1)
    else:
        assert (code, err) == (3 if end else 0, "")


def test_close_ends_all_however_stuck(tmp_path: Path) -> None:
    """Envs that do not answer, and do not heed a SIGTERM either."""

    def step(env: Any, action: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        gate.wait()
        signal.pause()

    gate = Gate(tmp_path)
    pool = Pool(hooked(3, step=step))
    pool.reset()
    pool.send([1, 2, 3])
    gate.let_pass()
    pool.close(timeout=0)
    assert [worker.exitcode for worker in pool.workers][1] == -signal.SIGKILL
    assert not any(worker.is_alive() for worker in pool.workers)


def test_close_ends_stopped_workers_too() -> None:
    pool = Pool(counting(2))
    pool.reset()
    os.kill(pids_of(pool)[0], signal.SIGSTOP)
    pool.close(terminate=True)
    assert not any(worker.is_alive() for worker in pool.workers)


def test_close_ends_simulators() -> None:
    def simulate(env: Any) -> None:
        env.simulator = subprocess.Popen(["sh", "-c", "sleep 100000 & wait"])

    pool = Pool(hooked(2, (0, 1), build=simulate))
    simulators = pool.apply(lambda env: env.simulator.pid)
    watched = Watched(simulators)
    pool.close()
    watched.await_end()


# -- leaks -----------------------------------------------------------------------------------------------


def _cycle(backend: Any, start_method: Any) -> None:
    with Pool(counting(2), num_workers=1, backend=backend, start_method=start_method) as pool:
        pool.reset()
        pool.step([1, 2])
        pool.call("pid")


@pytest.mark.parametrize(
    ("backend", "start_method", "times"),
    [
        ("process", "forkserver", 50),
        ("process", "fork", 20),
        ("process", "spawn", 5),
        ("thread", None, 50),
        ("serial", None, 50),
    ],
)
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_create_and_close_leak_nothing(backend: Any, start_method: Any, times: int) -> None:
    _cycle(backend, start_method)  # the fork server stays
    gc.collect()
    before = holdings()
    for _ in range(times):
        _cycle(backend, start_method)
    assert holdings() == before


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_failed_starts_and_forgotten_pools_leak_nothing(backend: Any) -> None:
    _cycle(backend, None)
    gc.collect()
    before = holdings()
    for _ in range(10):
        with pytest.raises(EnvError, match="no"):
            Pool(hooked(2, build=_refuse), backend=backend)
        pool = Pool(counting(2), backend=backend)
        pool.send_reset()
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("remuda")]
        del pool
        gc.collect()
        for thread in threads:
            thread.join()
    del threads
    gc.collect()
    assert holdings() == before


def _refuse(env: Any) -> None:
    raise ValueError("no")


# -- forked copies of the parent -------------------------------------------------------------------------


def in_a_fork(what: Callable[[], Any]) -> Any:
    """What that returns in a forked copy of this process."""
    read, write = os.pipe()
    before = children()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, json.dumps(what()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    if os.getpid() == 1:
        for orphan in children() - before:  # what served the copy to its end
            os.waitpid(orphan, 0)
    return json.loads(answer)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_copy_can_do_a_pool_no_harm() -> None:
    pool: Any = Pool(counting(2))

    def try_all() -> list[str]:
        nonlocal pool
        told = []
        uses: list[Callable[[], Any]] = [
            lambda: pool.step([1, 2]),
            lambda: pool.send([1, 2]),
            pool.reset,
            pool.recv,
            lambda: pool.call("pid"),
            pool.stats,
            pool.discard,
            pool.close,
            lambda: pool.close(terminate=True),
        ]
        for use in uses:
            try:
                use()
                told.append("nothing")
            except StateError as error:
                told.append(str(error))
        uses.clear()
        pool = None
        gc.collect()
        return told

    pool.reset()
    told = in_a_fork(try_all)
    assert len(told) == 9
    assert all(f"this pool belongs to process {os.getpid()}, got a call from its forked copy" in text for text in told)
    assert pool.step([1, 2]).reward.tolist() == [1, 2]
    pool.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_copy_may_have_pools_of_its_own() -> None:
    def own() -> list[float]:
        with Pool(counting(2)) as mine:
            mine.reset()
            rewards: list[float] = mine.step([3, 4]).reward.tolist()
            return rewards

    with Pool(counting(2)) as pool:
        pool.reset()
        assert in_a_fork(own) == [3, 4]
        assert pool.step([1, 2]).reward.tolist() == [1, 2]
    assert own() == [3, 4]


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_copy_that_ends_as_programs_do(script: Callable[..., Script]) -> None:
    """With exit handlers, and out of a `with` block."""
    run = script(
        """
with Pool(counting(2)) as pool:
    pool.reset()
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    os.waitpid(pid, 0)
    say(pool.step([1, 2]).reward.tolist())
"""
    )
    assert run.read_line() == [1, 2]
    code, out, _ = run.await_end()
    assert (code, out) == (0, "")


# -- starting --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start_method", START_METHODS)
def test_a_script_needs_no_guard(start_method: Any, script: Callable[..., Script]) -> None:
    run = script(
        f"""
say("run")

class Oops(Exception):
    pass

class Thing:
    def __init__(self, n):
        self.n = n

class Colour(ColourSpace):
    pass

class Mine(CountingEnv):
    def __init__(self, tag=0):
        super().__init__(tag)
        self.observation_space = Colour()
        self.action_space = Colour()

    def observe(self):
        return "red"

    def reset(self, **kwargs):
        obs, info = super().reset(**kwargs)
        return obs, {{"n": kwargs["options"]["thing"].n, "thing": Thing(7)}}

    def step(self, action):
        raise Oops(action)

def named(env, thing):
    return Thing(env.tag + thing.n)

with Pool([Mine, lambda: Mine(tag=5)], start_method="{start_method}") as pool:
    batch = pool.reset(options={{"thing": Thing(3)}})
    say([batch.obs, batch.infos.stack()["n"].tolist(), type(batch.infos[0]["thing"]).__name__])
    say([type(pool.single_action_space) is Colour, pool.single_action_space == Colour()])
    say([thing.n for thing in pool.apply(named, Thing(1))])
    pool.set_attr("thing", Thing(8))
    say([thing.n for thing in pool.get_attr("thing")])
    try:
        pool.step(("red", "blue"))
    except EnvError as error:
        say([type(failure.exception).__name__ + str(failure) for failure in error.failures])
"""
    )
    assert run.read_line() == "run"  # once
    assert run.read_line() == [["red", "red"], [3, 3], "Thing"]
    assert run.read_line() == [True, True]
    assert run.read_line() == [1, 6]
    assert run.read_line() == [8, 8]
    assert run.read_line() == [
        "Oopsenv 0 (worker 0) raised __main__.Oops in step: red (episode 0, step 1, no seed)",
        "Oopsenv 1 (worker 1) raised __main__.Oops in step: blue (episode 0, step 1, no seed)",
    ]
    assert run.await_end() == (0, "", "")


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_workers_live_in_the_parents_world(start_method: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment variables, working directory and import path as they are now."""
    Pool(counting(1), start_method=start_method).close()  # whatever stays between pools is started
    (tmp_path / f"new_module_{start_method}.py").write_text("VALUE = 42\n")
    monkeypatch.setenv("REMUDA_TEST_VARIABLE", "new")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def look(env: Any) -> Any:
        import importlib

        module = importlib.import_module(f"new_module_{start_method}")
        return os.environ.get("REMUDA_TEST_VARIABLE"), os.environ.get("HOME"), os.getcwd(), module.VALUE

    with Pool(counting(2), start_method=start_method) as pool:
        assert pool.apply(look) == [("new", None, str(tmp_path), 42)] * 2


_build_counting: Any = lambda tag=0, **_: CountingEnv(tag)  # noqa: E731 - so that it travels by value


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*Overriding environment.*:UserWarning")
def test_ids_registered_in_the_parent_are_known(start_method: Any) -> None:
    registry = gymnasium.envs.registration.registry
    before = dict(registry)
    try:
        gymnasium.register("remuda-test/Counting-v0", entry_point="pool_envs:CountingEnv", kwargs={"tag": 6})
        gymnasium.register("remuda-test/Lambda-v0", entry_point=_build_counting)
        gymnasium.register(
            "remuda-test/ShortPole-v0",
            entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv",
            max_episode_steps=3,
        )
        gymnasium.register("CartPole-v1", entry_point="pool_envs:CountingEnv")  # instead of the one there is
        gymnasium.register("remuda-test/Stuck-v0", entry_point=_build_counting, kwargs={"lock": threading.Lock()})
        fns: list[Callable[[], Any]] = [
            lambda: gymnasium.make("remuda-test/Counting-v0"),
            lambda: gymnasium.make("remuda-test/Lambda-v0", tag=3),
            lambda: gymnasium.make("remuda-test/ShortPole-v0"),
            lambda: gymnasium.make("CartPole-v1"),
        ]
        with Pool(fns[:2], start_method=start_method) as pool:
            assert pool.reset().obs[:, 0].tolist() == [6, 3]
            assert pool.spec is not None
            assert pool.spec.id == "remuda-test/Counting-v0"
        with Pool(fns[2:3], start_method=start_method) as pool:
            pool.reset()
            assert [bool(pool.step([0]).truncated[0]) for _ in range(3)] == [False, False, True]
        with Pool(fns[3:], start_method=start_method) as pool:
            assert pool.reset().obs.shape == (1, 4)
            assert pool.reset().obs.dtype == np.int64
    finally:
        registry.clear()
        registry.update(before)


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_workers_know_who_they_are(start_method: Any) -> None:
    def note(env: Any) -> None:
        env.built_as = worker_info()

    def look(env: Any) -> Any:
        import threading as t

        found: list[Any] = []
        thread = t.Thread(target=lambda: found.append(worker_info()))
        thread.start()
        thread.join()
        return env.built_as, worker_info(), os.environ["REMUDA_WORKER_INDEX"], found[0]

    assert worker_info() is None
    fns = hooked(5, range(5), build=note)
    with Pool(fns, num_workers=2, start_method=start_method, name="herd") as pool:
        for i, (built_as, now, variable, in_thread) in enumerate(pool.apply(look)):
            index = 0 if i < 3 else 1
            assert (now.index, now.num_workers, now.env_ids) == (index, 2, ((0, 1, 2), (3, 4))[index])
            assert built_as == now == in_thread
            assert variable == str(index)
        names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids_of(pool)]
        assert names == [worker.name for worker in pool.workers] == ["herd-0", "herd-1"]
        assert pool.workers[1].env_ids == (3, 4)
    assert worker_info() is None
    assert "REMUDA_WORKER_INDEX" not in os.environ


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_thread_limits(start_method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    for name in names[1:]:
        monkeypatch.delenv(name, raising=False)
    for limit, expected in ((1, ["1"] * 4), (3, ["3"] * 4), (None, ["5", None, None, None])):
        with Pool(counting(1), start_method=start_method, threads_per_worker=limit) as pool:
            assert pool.apply(lambda env: [os.environ.get(name) for name in names]) == [expected]
    assert os.environ["OMP_NUM_THREADS"] == "5"


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_workers_are_no_ranks_of_mpi(start_method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"):
        monkeypatch.setenv(name, "1")
    with Pool(counting(1), start_method=start_method) as pool:
        (names,) = pool.apply(lambda env: [n for n in os.environ if n.startswith(("OMPI_", "PMI_", "PMIX_"))])
        assert names == []
    assert os.environ["PMI_RANK"] == "1"


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_what_workers_print_goes_where_we_print_now(start_method: Any, capfd: pytest.CaptureFixture[str]) -> None:
    def shout(env: Any) -> None:
        print("from python")
        os.write(1, b"from below\n")
        print("an error", file=sys.stderr)

    for _ in range(2):
        with Pool(counting(1), start_method=start_method) as pool:
            pool.apply(shout)
        out, err = capfd.readouterr()
        assert sorted(out.split("\n")) == ["", "from below", "from python"]
        assert err == "an error\n"


@pytest.mark.parametrize("start_method", START_METHODS)
def test_a_parent_without_output_streams(start_method: Any, script: Callable[..., Script], tmp_path: Path) -> None:
    """As a daemon has them."""
    run = script(
        f"""
sys.stdout = sys.stderr = sys.stdin = None
for fd in range(3):
    os.close(fd)
with Pool(counting(2), start_method="{start_method}") as pool:
    pool.apply(lambda env: print("to nowhere"))
    Path("{tmp_path}/done").write_text(str(pool.reset().obs[:, 0].tolist()))
"""
    )
    assert run.await_end() == (0, "", "")
    assert (tmp_path / "done").read_text() == "[0, 1]"


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_parents_world_may_be_odd(start_method: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No working directory any more, a variable that is no text, a path that is no string."""
    monkeypatch.setenv("REMUDA_TEST_BYTES", "caf\udce9")
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path, "quote'd \" path"])
    monkeypatch.chdir(tmp_path)  # back again afterwards
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with Pool(counting(2), start_method=start_method) as pool:
        assert pool.apply(lambda env: os.environb[b"REMUDA_TEST_BYTES"]) == [b"caf\xe9"] * 2
        assert pool.reset().obs[:, 0].tolist() == [0, 1]


@pytest.mark.parametrize("start_method", START_METHODS)
def test_too_few_descriptors_are_an_error_and_no_leak(start_method: Any, script: Callable[..., Script]) -> None:
    run = script(
        f"""
import resource
Pool(counting(1), start_method="{start_method}").close()
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
before = sorted(os.listdir("/proc/self/fd"))
try:
    Pool(counting(60), start_method="{start_method}")
except ResourceError as error:
    say([isinstance(error, OSError), error.errno, error.strerror])
say(sorted(os.listdir("/proc/self/fd")) == before)
with Pool(counting(2), start_method="{start_method}") as pool:
    say(pool.reset().obs[:, 0].tolist())
"""
    )
    is_os_error, number, text = run.read_line()
    assert (is_os_error, number) == (True, errno.EMFILE)
    assert "expected 134 free file descriptors for 60 worker processes" in text
    assert "have the hard limit of 40 raised" in text
    assert run.read_line() is True
    assert run.read_line() == [0, 1]
    code, out, _ = run.await_end()
    assert (code, out) == (0, "")


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_global_random_numbers_differ_between_workers(start_method: Any) -> None:
    np.random.seed(0)
    with Pool(counting(4), start_method=start_method) as pool:
        drawn = pool.apply(lambda env: (int(np.random.randint(2**31)), __import__("random").random()))
    with Pool(counting(4), start_method=start_method) as pool:
        drawn += pool.apply(lambda env: (int(np.random.randint(2**31)), __import__("random").random()))
    assert len({number for number, _ in drawn}) == 8
    assert len({number for _, number in drawn}) == 8
    assert np.random.randint(2**31) == np.random.RandomState(0).randint(2**31)  # ours are as they were


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_pool_may_be_made_in_any_thread(start_method: Any) -> None:
    rewards: list[Any] = []

    def use() -> None:
        with Pool(counting(2), start_method=start_method) as pool:
            pool.reset()
            rewards.append(pool.step([1, 2]).reward.tolist())

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rewards == [[1, 2]] * 3


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_start_timeout(start_method: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    Pool(counting(1), start_method=start_method).close()
    # A slow machine may not even have built the others by then.
    told = r"within start_timeout=0.5 s, got no answer for the envs \[(0, 1, )?2, 3\]"
    with pytest.raises(StartTimeoutError, match=told):
        Pool(gated([None, None, gate, None], "build"), num_workers=2, start_method=start_method, start_timeout=0.5)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 2  # the fork server's


def test_preload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "preloaded_module.py").write_text("import os\nPID = os.getpid()\n")
    monkeypatch.syspath_prepend(tmp_path)

    def look(env: Any) -> int:
        import importlib

        return int(importlib.import_module("preloaded_module").PID)

    with Pool(counting(2), preload=["preloaded_module"]) as pool:
        one, other = pool.apply(look)
        assert one == other
        assert one not in [*pids_of(pool), os.getpid()]
    with Pool(counting(1), preload=["preloaded_module"]) as pool:
        assert pool.apply(look) == [one]


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        (None, ModuleNotFoundError, "No module named 'bad_module"),
        ("raise ValueError('not today')", ValueError, "not today"),
        ("import sys; sys.exit(3)", Exception, "SystemExit in importing bad_module"),
        ("class E(Exception):\n    def __init__(self, a, b): super().__init__(a)\nraise E('odd', 2)", Exception, "odd"),
        ("import os; os._exit(3)", Exception, "fork server"),
    ],
)
def test_modules_that_cannot_be_preloaded(
    content: str | None, error: type[Exception], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"bad_module_{abs(hash(content))}"
    if content is not None:
        (tmp_path / f"{name}.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    before = holdings()["children"]
    with pytest.raises(error, match=says):
        Pool(counting(2), preload=[name])
    with Pool(counting(1)) as pool:
        assert pool.reset().obs.shape == (1, 4)
    assert holdings()["children"] <= before + 1


def test_the_fork_server_may_be_killed() -> None:
    def parent(env: Any) -> int:
        return os.getppid()

    with Pool(counting(2)) as pool:
        (server, _) = pool.apply(parent)
        end_process(server)
        pool.reset()
        assert pool.step([1, 2]).reward.tolist() == [1, 2]  # its workers live on
        with Pool(counting(1)) as other:
            assert other.apply(parent) != [server]
        kill(pool, 0)
        with pytest.raises(
            WorkerDiedError, match="its exit code is unknown|killed by SIGKILL"
        ):  # it may have come to us
            pool.step([1, 2])
    assert not any(worker.is_alive() for worker in pool.workers)


def test_envs_are_built_in_workers_and_never_here() -> None:
    with Pool(hooked(2, (0, 1), build=lambda env: setattr(env, "pid_of_birth", os.getpid()))) as pool:
        assert pool.get_attr("pid_of_birth") == pids_of(pool)


def test_pools_side_by_side() -> None:
    with Pool(counting(2)) as one, Pool(counting(2)) as other, Pool(counting(2), backend="thread") as third:
        for pool in (one, other, third):
            pool.reset()
        for i in range(50):
            for k, pool in enumerate((one, other, third)):
                pool.send([i, 3 * i + k])
            for k, pool in enumerate((third, one, other)):
                assert pool.recv().reward.tolist() == [i, 3 * i + (k - 1) % 3]


# -- the other backends ----------------------------------------------------------------------------------


def test_threads_end_with_their_pool() -> None:
    before = threading.active_count()
    pool = Pool(counting(3), backend="thread", num_workers=2, name="remuda")
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("remuda-")]
    assert len(threads) == 2
    assert all(thread.daemon for thread in threads)
    assert [worker.pid for worker in pool.workers] == [None, None]
    assert all(worker.is_alive() for worker in pool.workers)
    pool.reset()
    pool.close()
    assert threading.active_count() == before
    assert not any(worker.is_alive() for worker in pool.workers)


def test_a_stuck_thread_does_not_hold_up_close(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    pool = Pool(gated([None, gate]), backend="thread")
    pool.reset()
    pool.send([1, 2])
    gate.await_arrival()
    pool.close(timeout=0.01)
    assert pool.closed
    stuck = [thread for thread in threading.enumerate() if thread.name == "remuda-1"]
    gate.open()
    for thread in stuck:
        thread.join()
    assert not any(worker.is_alive() for worker in pool.workers)


@pytest.mark.parametrize("backend", ["thread", "serial"])
def test_forgotten_pools_close_their_envs(backend: Any) -> None:
    closed: list[int] = []
    pool = Pool(hooked(3, (0, 1, 2), close=lambda env: closed.append(env.tag)), backend=backend)
    pool.reset()
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("remuda-")]
    del pool
    gc.collect()
    for thread in threads:
        thread.join()
    assert sorted(closed) == [0, 1, 2]


@pytest.mark.parametrize("backend", ["thread", "serial"])
def test_workers_of_other_backends_know_who_they_are_when_built(backend: Any) -> None:
    def note(env: Any) -> None:
        env.built_as = worker_info()

    with Pool(hooked(3, range(3), build=note), backend=backend, num_workers=2) as pool:
        assert [info.index for info in pool.get_attr("built_as")] == [0, 0, 1]
        assert worker_info() is None
        if backend == "thread":
            names = pool.apply(lambda env: threading.current_thread().name)
            assert names == ["remuda-0", "remuda-0", "remuda-1"]
        else:
            assert pool.apply(lambda env: threading.current_thread() is threading.main_thread()) == [True] * 3


def test_processes_need_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(
        NotImplementedError, match="expected Linux for backend='process', got darwin; use backend='thread'"
    ):
        Pool(counting(1))
    Pool(counting(1), backend="serial").close()
