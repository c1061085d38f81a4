"""Deaths of worker processes: the errors of the calls, and the pool's use of its other workers.

The tests send real signals to real processes, and wait for their end through process descriptors.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pairs import each
from pool_envs import Gate, HookedEnv, TextEnv, counting, gated, hooked
from programs import Script, await_sleep, end_process, kill, pids_of

from remuda import BrokenPoolError, Pool, StateError, WorkerDiedError


def assert_death(error: WorkerDiedError, worker: int, pid: int, env_ids: tuple[int, ...], operation: str) -> None:
    assert (error.worker, error.pid, error.env_ids, error.operation) == (worker, pid, env_ids, operation)
    assert error.exitcode == -signal.SIGKILL
    envs = f"env{'s' * (len(env_ids) > 1)} {', '.join(map(str, env_ids))}"
    assert f"worker {worker} (pid {pid}, {envs}) died while" in str(error)
    assert "killed by SIGKILL" in str(error)


def assert_goes_on_without(pool: Pool, lost: Sequence[int]) -> None:
    """Asserts that the other envs' results arrive and that these envs can be used. Calls of lost envs are refused."""
    other_ids = [i for i in range(pool.num_envs) if i not in lost]
    batch = pool.recv()
    assert sorted(batch.env_ids.tolist()) == other_ids
    assert pool.pending == 0
    pool.send([7] * len(other_ids), env_ids=other_ids)
    assert pool.recv().rewards.tolist() == [7.0] * len(other_ids)
    for call in (lambda: pool.step([0] * pool.num_envs), pool.reset, lambda: pool.call("pid"), pool.request_obs):
        with pytest.raises(BrokenPoolError, match=f"env {lost[0]} was lost to an earlier fault") as raised:
            call()
        assert isinstance(raised.value.__cause__, WorkerDiedError)
    assert pool.call("tag", env_ids=other_ids) == other_ids


@each(start_method=["forkserver", "spawn", "fork"], phase=["step", "reset", "nothing"])
def test_a_death_is_raised_and_the_other_envs_go_on(phase: str, start_method: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    fns = gated([None, None, gate, None, None], phase)
    with Pool(fns, num_workers=3, start_method=start_method) as pool:
        if phase != "reset":
            pool.reset()
        if phase == "nothing":
            pid = kill(pool, 1)
        if phase == "reset":
            pool.send_reset()
        else:
            pool.send([0] * 5)
        if phase != "nothing":
            gate.await_arrival()
            pid = kill(pool, 1)
        with pytest.raises(WorkerDiedError) as raised:
            pool.recv()
        assert_death(raised.value, 1, pid, (2, 3), phase)
        assert [worker.is_alive() for worker in pool.workers] == [True, False, True]
        assert_goes_on_without(pool, [2, 3])
    assert [worker.exitcode for worker in pool.workers] == [0, -9, 0]


def test_each_call_to_a_dead_worker_raises_its_death(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with Pool(gated([None, gate, None], "call"), num_workers=None) as pool:
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


def test_a_death_during_the_close_is_not_raised_beside_one_in_a_step(tmp_path: Path) -> None:
    """The first worker dies in its step. The second one dies in its step when the third one closes its env."""
    gate = Gate(tmp_path)

    def step(env: Any, action: Any) -> None:
        if env.tag == 1:
            gate.wait()
        os._exit(env.tag * 3)

    fns = [*hooked(2, (0, 1), step=step), *hooked(1, (0,), close=lambda env: gate.open())]
    with pytest.raises(WorkerDiedError, match="it exited with code 0") as raised, Pool(fns, num_workers=None) as pool:
        pool.reset()
        pool.send([0, 0, 0])
        gate.await_arrival()
        while True:
            pool.recv(min_envs=1)
    assert (raised.value.worker, raised.value.exitcode, raised.value.operation) == (0, 0, "step")
    assert raised.value.__context__ is None
    assert [worker.exitcode for worker in pool.workers] == [0, 3, 0]


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


@pytest.mark.parametrize("how", ["close", "terminate", "with"])
def test_a_pool_with_a_dead_worker_closes_at_once(how: str) -> None:
    """With this timeout a wait for the dead worker's answer would last until the watchdog ends the test."""
    pool = Pool(counting(3), num_workers=None)
    pool.reset()
    kill(pool, 1)
    if how == "with":
        with pytest.raises(WorkerDiedError), pool:
            pool.step([0, 0, 0])
    else:
        pool.close(timeout=1e6, terminate=how == "terminate")
    assert not any(worker.is_alive() for worker in pool.workers)


def test_new_info_keys_do_not_wait_for_a_dead_worker() -> None:
    """The pool announces a new key's column to all workers, and the dead one does not answer."""

    def step(env: Any, action: Any) -> Any:
        return env.observe(), 0.0, False, False, {f"key {int(action)}": 1}

    pool = Pool([lambda: HookedEnv(step=step)] * 3, num_workers=None)
    pool.reset()
    kill(pool, 1)
    with pytest.raises(WorkerDiedError):
        pool.step([0, 0, 0])
    pool.recv()
    for i in range(200):  # more messages than fit in the dead worker's ring
        pool.send([i, i], env_ids=[0, 2])
        assert pool.recv().infos.stack()[f"key {i}"].tolist() == [1, 1]
    pool.close(timeout=1e6)


@pytest.mark.parametrize("dying", [0, 1], ids=["in its turn", "waiting"])
def test_a_worker_that_dies_keeps_no_turn(dying: int, tmp_path: Path) -> None:
    gates = [Gate(tmp_path, f"gate{i}") for i in range(3)]
    with Pool(gated([*gates[:2], gates[2] if dying == 1 else None]), max_concurrency=1, num_workers=None) as pool:
        pool.reset()
        pool.send([1, 2, 3])
        gates[0].await_arrival()
        kill(pool, dying)
        if dying == 1:
            gates[0].open()
        opener = threading.Thread(target=gates[dying + 1].let_pass)
        opener.start()
        with pytest.raises(WorkerDiedError, match=f"worker {dying} "):
            pool.recv()
        assert sorted(pool.recv().env_ids.tolist()) == [1 - dying, 2]
        opener.join()


def test_more_calls_to_a_dying_worker_than_fit_in_its_ring(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with Pool(gated([gate, None], "call"), num_workers=None) as pool:
        first = pool.call_async("poke", env_ids=[0])
        gate.await_arrival()
        kill(pool, 0)
        with pytest.raises((WorkerDiedError, BrokenPoolError)):
            for _ in range(1000):
                pool.call_async("pid", env_ids=[0])
        with pytest.raises(WorkerDiedError):
            first.result()
        assert len(pool.call("pid", env_ids=[1])) == 1


def test_death_within_a_message() -> None:
    """The text is larger than the socket's buffer, so that the worker dies while it waits for the pool to read."""
    with Pool([TextEnv, lambda: TextEnv(times=10**7)], num_workers=None) as pool:
        pool.reset()
        pool.send(("a", "b"))
        await_sleep(pids_of(pool)[1])
        kill(pool, 1)
        with pytest.raises(WorkerDiedError) as raised:
            pool.recv()
        assert raised.value.env_ids == (1,)
        assert pool.recv().obs == ("a",)


# The child keeps the worker's socket open, so that the worker's end does not close it.
FORK_A_CHILD = """
def fork_a_child(*_):
    __import__("warnings").simplefilter("ignore", DeprecationWarning)  # newer Pythons, of threads beside a fork
    if os.fork() == 0:  # it holds whatever descriptors we hold
        signal.pause()
        os._exit(0)

def die(*_):
    fork_a_child()
    os.kill(os.getpid(), signal.SIGKILL)

def attempt(use):
    try:
        use()
    except WorkerDiedError as error:
        say([error.operation, error.exitcode, error.env_ids])
"""


def test_a_forked_child_of_an_env_does_not_hide_its_death_in_build(script: Callable[..., Script]) -> None:
    run = script(
        f"{FORK_A_CHILD}\nattempt(lambda: Pool([HookedEnv, lambda: HookedEnv(build=die)], start_timeout=None))"
    )
    assert run.read_line() == ["build", -9, [1]]
    assert run.await_end() == (0, "", "")


@pytest.mark.parametrize("side", ["reading", "writing"])
def test_a_forked_child_of_an_env_does_not_hide_its_death_later(side: str, script: Callable[..., Script]) -> None:
    """The pool detects the death while it reads from the worker's socket, and while it writes to it."""
    ask = {"reading": "after_stop, os.getpid()", "writing": "lambda env, data: None, b'x' * 10**7"}[side]
    stop = {"reading": "", "writing": "os.kill(pids(pool)[0], signal.SIGSTOP)"}[side]
    run = script(
        FORK_A_CHILD
        + f"""
def after_stop(env, reader):
    os.kill(reader, signal.SIGSTOP)
    while open(f"/proc/{{reader}}/stat").read().rpartition(")")[2].split()[0] != "T":
        pass  # not asleep, which is what the test waits for
    return "x" * 10**7

with Pool([TextEnv]) as pool:
    pool.apply(fork_a_child)
    {stop}
    say(pids(pool))
    attempt(lambda: pool.apply({ask}))
"""
    )
    (pid,) = run.read_line()
    if side == "writing":
        await_sleep(run.process.pid)
    else:  # waits until the writer has stopped the reader and filled its socket
        os.waitid(os.P_PID, run.process.pid, os.WSTOPPED | os.WNOWAIT)
        await_sleep(pid)
    end_process(pid)
    run.process.send_signal(signal.SIGCONT)
    assert run.read_line() == ["nothing" if side == "writing" else "call", -9, [0]]
    assert run.await_end() == (0, "", "")
