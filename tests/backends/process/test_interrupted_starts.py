"""Interrupts of the caller while workers start: the call ends, and no process, zombie, descriptor or thread is left."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pairs import each
from pool_envs import Gate, counting, gated, hooked
from programs import Script, collect, holdings, kill, pids_of, step_until_restarted, zombies

from remuda import FaultPolicy, Pool


@contextmanager
def interrupted_at(gate: Gate) -> Iterator[None]:
    """Sends SIGINT to this process when a worker or server waits at the gate. Expects KeyboardInterrupt."""

    def interrupt() -> None:
        gate.await_arrival()
        os.kill(os.getpid(), signal.SIGINT)

    onlooker = threading.Thread(target=interrupt)
    onlooker.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    onlooker.join()


def assert_usable(**options: Any) -> None:
    with Pool(counting(2), num_workers=2, **options) as pool:
        assert pool.reset().obs.shape == (2, 4)
        assert pool.call("pid") == pids_of(pool)  # the fork server's answers are to this pool's requests


@each(start_method=["forkserver", "spawn", "fork"], serially=[False, True])
def test_an_interrupt_while_envs_are_built_leaves_nothing(start_method: Any, serially: bool, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    options: Any = {
        "start_method": start_method,
        "num_workers": "auto" if serially else None,
    }  # "auto" builds one first
    assert_usable(start_method=start_method)
    collect()
    before = holdings()
    with interrupted_at(gate):
        Pool(hooked(3, build=lambda _: gate.wait()) if serially else gated([None, gate, None], "build"), **options)
    collect()
    assert holdings() == before
    assert not zombies()
    assert_usable(start_method=start_method)
    assert holdings() == before


@pytest.mark.parametrize("in_use", [False, True])
def test_an_interrupt_while_the_fork_server_imports_a_module(
    in_use: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server with workers goes on and later reaps them. Meanwhile another pool gets another server."""
    gate = Gate(tmp_path)
    (tmp_path / "remuda_test_hanging.py").write_text(f"from pool_envs import Gate\n{gate!r}.wait()")
    monkeypatch.syspath_prepend(tmp_path)
    assert_usable()
    before = holdings()
    user = Pool(counting(2), faults=FaultPolicy("restart", backoff=0)) if in_use else None
    with interrupted_at(gate):
        Pool(counting(1), preload=["remuda_test_hanging"], num_workers=None)
    assert_usable()
    if user is not None:
        gate.open()
        user.reset()
        step_until_restarted(user, 1, kill(user, 1))
        user.close()
        del user
    collect()
    after = holdings()
    assert (after["threads"], after["children"]) == (before["threads"], before["children"])
    assert not zombies()


def test_an_interrupt_while_the_fork_server_starts_leaves_none(script: Callable[..., Script], tmp_path: Path) -> None:
    gate, slow = Gate(tmp_path), tmp_path / "slow-python"
    slow.write_text(f'#!/bin/sh\n: > "{gate.arrivals}"\ncat "{gate.door}" > /dev/null\nexec "{sys.executable}" "$@"\n')
    slow.chmod(0o755)
    run = script(f"""
from programs import holdings
Pool(counting(1), start_method="fork").close()
before, executable = holdings(), sys.executable
sys.executable = {str(slow)!r}
try:
    Pool(counting(1))
except KeyboardInterrupt:
    say(holdings() == before)
sys.executable = executable
with Pool(counting(1)) as pool:
    say(pool.reset().obs.shape)
""")
    gate.await_arrival()
    os.kill(run.process.pid, signal.SIGINT)
    assert run.read_line() is True
    assert run.read_line() == [1, 4]
    assert run.await_end() == (0, "", "")


def test_a_pool_that_a_module_uses_while_it_is_imported(start_method: Any, script: Callable[..., Script]) -> None:
    """Workers, their successors and the caller need a class of the module, which the caller's thread imports."""
    run = script(f"""
(Path(__file__).parent / "uses_a_pool.py").write_text('''
import gymnasium, multiprocessing
from pool_envs import CountingEnv
from programs import kill, step_until_restarted
from remuda import FaultPolicy, Pool

class Colour(gymnasium.spaces.Discrete):
    pass

class Env(CountingEnv):
    def __init__(self):
        super().__init__()
        self.action_space = Colour(9)

if multiprocessing.parent_process() is None:
    with Pool([Env] * 2, start_method="{start_method}", faults=FaultPolicy("restart", backoff=0)) as pool:
        pool.reset()
        step_until_restarted(pool, 1, kill(pool, 1))
        IS_SAME = type(pool.single_action_space) is Colour
''')
import uses_a_pool
say(uses_a_pool.IS_SAME)
""")
    assert run.read_line() is True
    assert run.await_end()[:2] == (0, "")


def test_a_forked_worker_runs_in_its_main_thread(script: Callable[..., Script]) -> None:
    """Threads of envs are no daemons, and signal handlers can be set."""
    run = script(
        """
def look(env):
    import threading
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    main = threading.main_thread()
    is_main = main is threading.current_thread() and main.ident == threading.get_ident()
    return is_main, main.name, main.daemon, threading.get_native_id() == os.getpid()

with Pool(counting(1), start_method="fork") as pool:
    say(pool.apply(look)[0])
""",
        "-W",
        "error",
    )
    assert run.read_line() == [True, "MainThread", False, True]
    assert run.await_end() == (0, "", "")
